package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"sync/atomic"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/guard"
)

func (a *app) elect() *cobra.Command {
	var c campaign
	var hook string
	cmd := &cobra.Command{
		Use:   "elect [flags] URL -- COMMAND [ARGUMENT...]",
		Short: "Run a command whenever this process leads",
		Long: `Campaigns for the lock, runs the command while it leads, and campaigns again. The
command gets the environment of "run". If the lease is lost, the command is dead before another
candidate can lead: see "leasehold help guarantee". If the command ends by itself, the lock is
released, other candidates may lead first, and the campaign continues.

SIGINT, SIGTERM and SIGQUIT go to the command and end the campaign: when the command has ended, the
lock is released, and the exit code is 0. SIGHUP, SIGUSR1 and SIGUSR2 only go to the command, except
that a SIGHUP from a closed terminal ends the campaign. See "leasehold help signals".`,
		Example: `  leasehold elect s3://bucket/leaders/scheduler -- ./scheduler
  leasehold elect --on-new-leader 'echo "$LEASEHOLD_HOLDER leads"' s3://bucket/leaders/scheduler -- ./scheduler`,
		Args:              commandArgs,
		ValidArgsFunction: keys,
		RunE: a.action(func(ctx context.Context, _ *cobra.Command, args []string) error {
			return a.stand(ctx, &c, hook, args)
		}),
	}
	c.leaseFlags(cmd.Flags(), defaultTTL)
	c.marginFlag(cmd.Flags())
	c.crashFlags(cmd.Flags())
	c.web.flags(cmd.Flags())
	c.web.admin.flags(cmd.Flags())
	cmd.Flags().StringVar(&hook, "on-new-leader", "",
		"`command` for /bin/sh at every change of the leader, with LEASEHOLD_HOLDER, LEASEHOLD_TOKEN and LEASEHOLD_KEY")
	return cmd
}

// candidacy is a command that runs whenever this process leads.
type candidacy struct {
	*job
	relay   *relay
	elector *leasehold.Elector
	end     context.CancelCauseFunc // ends the campaign: by a signal, or by an error of the supervisor
}

func (a *app) stand(ctx context.Context, c *campaign, hook string, args []string) error {
	if err := cmp.Or(c.check(), c.checkCrash()); err != nil {
		return err
	}
	defer c.web.end()
	j, err := a.prepare(ctx, c, args)
	if err != nil {
		return err
	}
	defer j.store.Close()
	lock, err := j.lock()
	if err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	signals := make(chan os.Signal, 16)
	guard.Catch(signals, guard.ToGroup, guard.ToCommand, guard.Unharmed)
	relay := &relay{passed: make(chan os.Signal, 16), terminal: guard.HasTerminal()}
	j.supervisor.Signals = relay.passed
	hooks := &newLeaderHooks{app: a, command: hook, key: lock.Key()}
	defer hooks.end()
	own := &candidacy{job: j, relay: relay, end: end}
	callbacks, err := c.web.callbacks(lock, leasehold.Callbacks{OnStartedLeading: own.lead, OnNewLeader: hooks.run})
	if err != nil {
		return err
	}
	if own.elector, err = leasehold.NewElector(lock, callbacks); err != nil {
		return err
	}
	c.web.serve(a.log, own.elector.Check)
	defer wakeWhenFree(ctx, j.store, lock)()
	over := make(chan struct{})
	defer close(over)
	go func() {
		for {
			select {
			case <-over:
				return
			case sig := <-signals:
				if signal := relay.take(sig); signal != nil {
					end(*signal)
				}
			}
		}
	}()
	err = own.elector.Run(ctx)
	cause := context.Cause(ctx)
	_, interrupted := errors.AsType[exit.Interrupted](cause)
	switch {
	case cause != nil && !interrupted: // the command has not run, or the guard was killed
		return cause
	case relay.ending.Load() != nil:
		if err != nil {
			a.log.Warn("the campaign has ended with an error", "err", err)
		}
		return nil
	}
	return err
}

// lead is one term of the elector.
func (o *candidacy) lead(ctx context.Context, lease *leasehold.Lease) {
	var outcome guard.Outcome
	defer func() {
		if signal := o.relay.end(outcome.HungUp); signal != nil {
			o.end(*signal)
		}
	}()
	if !o.relay.begin() {
		return
	}
	var err error
	outcome, err = o.run(ctx, o.ofLock(lease))
	switch {
	case err != nil:
		o.end(err)
	case !outcome.Lost && o.relay.ending.Load() == nil:
		o.app.log.Warn("the command has ended by itself", "code", outcome.Code, "effect",
			"other candidates may lead first")
		_ = o.elector.Resign(ctx) // returns nil at once, because ctx is the term's
	}
}

// relay passes signals on to the commands of an elector, which run one after the other, and knows
// which of them ends the campaign.
type relay struct {
	passed   chan os.Signal
	terminal bool                             // there was one at the start
	hangUp   atomic.Bool                      // SIGHUP has come since the command has begun
	running  atomic.Bool                      // a command runs, or is about to
	ending   atomic.Pointer[exit.Interrupted] // by a signal
}

// take takes a signal. It returns the one that ends the campaign now, because no command runs.
func (r *relay) take(sig os.Signal) (ends *exit.Interrupted) {
	switch sig {
	case syscall.SIGHUP: // to read settings again, unless the terminal has gone
		r.hangUp.Store(true)
		if !r.hasLostTerminal() {
			break
		}
		fallthrough
	case syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT:
		signal := &exit.Interrupted{Signal: sig.(syscall.Signal)}
		r.ending.Store(signal)
		if !r.running.Load() {
			ends = signal
		}
	}
	select {
	case r.passed <- sig:
	default:
	}
	return ends
}

// begin is called before a command runs, and reports whether it may. What was passed on for the
// last command is dropped before the look at ending, or a signal that comes in between would be
// lost.
func (r *relay) begin() bool {
	r.running.Store(true)
	r.hangUp.Store(false)
	for len(r.passed) > 0 {
		<-r.passed
	}
	return r.ending.Load() == nil
}

// end is called after begin, when the command has ended. It returns the signal that ends the
// campaign, which may have come at any time. hungUp says that the command had the terminal, which
// has gone: then the system has sent SIGHUP to the command alone. A shell that ends may send it
// while the terminal is still there.
func (r *relay) end(hungUp bool) *exit.Interrupted {
	r.running.Store(false)
	if (hungUp || r.hangUp.Load()) && r.hasLostTerminal() {
		r.ending.CompareAndSwap(nil, &exit.Interrupted{Signal: syscall.SIGHUP})
	}
	return r.ending.Load()
}

func (r *relay) hasLostTerminal() bool { return r.terminal && !guard.HasTerminal() }
