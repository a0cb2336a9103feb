package main

import (
	"context"
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
		Short: "Run a command while this process leads, again and again",
		Long: `Campaigns for the lock, runs the command while it leads, and campaigns again. The
command gets the environment of "run". If the lease is lost, the command is dead before anyone else
can lead. If the command ends by itself, the lock is released, the others may lead first, and the
campaign goes on.

SIGINT, SIGTERM and SIGQUIT are passed on to the command and end the campaign: when the command has
ended, the lock is released, and the exit code is 0. SIGHUP, SIGUSR1 and SIGUSR2 are only passed on,
but a SIGHUP because the terminal has gone ends the campaign, too.
A command for new leaders that still runs at the end gets SIGTERM, and SIGKILL 5 seconds later.`,
		Example: `  leasehold elect s3://bucket/leaders/scheduler -- ./scheduler
  leasehold elect --on-new-leader 'echo "$LEASEHOLD_HOLDER leads"' s3://bucket/leaders/scheduler -- ./scheduler`,
		Args:              commandArgs,
		ValidArgsFunction: keys,
		RunE: a.action(func(ctx context.Context, _ *cobra.Command, args []string) error {
			return a.campaign(ctx, &c, hook, args)
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

func (a *app) campaign(ctx context.Context, c *campaign, hook string, args []string) error {
	defer c.web.end()
	s, lock, store, err := a.supervisor(ctx, c, args)
	if err != nil {
		return err
	}
	defer store.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	signals := make(chan os.Signal, 16)
	guard.Catch(signals, guard.ToGroup, guard.ToCommand, guard.Unharmed)
	relay := &relay{passed: make(chan os.Signal, 16), terminal: guard.HasTerminal()}
	s.Signals = relay.passed
	hooks := &newLeaderHooks{app: a, command: hook, key: lock.Key()}
	defer hooks.end()
	var failed error
	var elector *leasehold.Elector
	callbacks, err := c.web.callbacks(lock, leasehold.Callbacks{
		OnStartedLeading: func(term context.Context, lease *leasehold.Lease) {
			var result guard.Outcome
			var err error
			defer func() {
				if signal := relay.end(result.HungUp); signal != nil {
					cancel(*signal)
				}
			}()
			if !relay.begin() {
				return
			}
			result, err = s.Run(term, lease, environment(lock.Key(), lease.Record()), c.orphan(a, args[0], lease))
			switch {
			case err != nil:
				failed = err
				cancel(err)
			case !result.Lost && relay.ending.Load() == nil:
				a.log.Warn("the command has ended by itself: others may lead first", "code", result.Code)
				over, end := context.WithCancel(ctx)
				end()
				_ = elector.Resign(over) // returns at once with the error of its context
			}
		},
		OnNewLeader: hooks.run,
	})
	if err != nil {
		return err
	}
	if elector, err = leasehold.NewElector(lock, callbacks); err != nil {
		return err
	}
	c.web.serve(a.log, elector.Check)
	defer wakeWhenFree(ctx, store, lock)()
	over := make(chan struct{})
	defer close(over)
	go func() {
		for {
			select {
			case <-over:
				return
			case sig := <-signals:
				if signal := relay.take(sig); signal != nil {
					cancel(*signal)
				}
			}
		}
	}()
	err = elector.Run(ctx)
	switch {
	case failed != nil:
		return failed
	case relay.ending.Load() != nil:
		if err != nil {
			a.log.Warn("the campaign has ended with an error", "err", err)
		}
		return nil
	}
	return err
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
// last command is dropped before the look at ending, or a signal that comes in between would reach
// nobody.
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
