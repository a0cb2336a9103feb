package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/guard"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/place"
)

func (a *app) run() *cobra.Command {
	var c campaign
	var in inTable
	var heldCode int
	cmd := &cobra.Command{
		Use:   "run [flags] URL -- COMMAND [ARGUMENT...]",
		Short: "Run a command under a lock",
		Long: `Waits for the lock, runs the command under it, and releases the lock. The exit code
is the command's; if a signal has ended the command, "run" ends by the same signal.

The command gets LEASEHOLD_KEY, LEASEHOLD_TOKEN and LEASEHOLD_HOLDER in its environment. If the
lease is lost, the command is dead before anyone else can hold the lock: see "leasehold help
guarantee". What the command leaves running is ended, too, before the lock is released.

SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed on to the command's process group, SIGUSR1 and
SIGUSR2 to the command alone. The lease is renewed until the command has ended.

With --slots, --shared or --lock, the URL is that of a table of locks: several commands may hold one
of its locks at once. The command also gets LEASEHOLD_LOCK, and LEASEHOLD_TOKEN is the revision of
the table that has granted the lock. Who waits gets it in order. If leasehold is killed, the lock is
free after the TTL.`,
		Example: `  leasehold run s3://bucket/locks/report -- make report
  leasehold run --no-wait --held-code 0 'gs://bucket/locks/nightly' -- ./nightly.sh
  leasehold run --slots 3 s3://bucket/tables/imports -- ./import.sh
  leasehold run --wait 30s file:///var/lib/locks/import -- sh -c 'echo token $LEASEHOLD_TOKEN'`,
		Args: commandArgs,
		RunE: a.action(func(ctx context.Context, _ *cobra.Command, args []string) error {
			if heldCode < 0 || heldCode > 255 {
				return exit.Errorf(exit.Usage, "--held-code %d is not an exit code, which is from 0 to 255", heldCode)
			}
			runs := a.runUnderLock
			if in.wanted() {
				runs = func(ctx context.Context, c *campaign, args []string) error {
					return a.runInTable(ctx, c, &in, args)
				}
			}
			err := runs(ctx, &c, args)
			if errors.Is(err, leasehold.ErrHeld) && exit.Code(err) == exit.Held && heldCode != exit.Held {
				a.log.Info("the lock is held by another", "err", err)
				if heldCode == 0 {
					return nil
				}
				return childCode(heldCode)
			}
			return err
		}),
		ValidArgsFunction: keys,
	}
	c.leaseFlags(cmd.Flags(), defaultTTL)
	c.marginFlag(cmd.Flags())
	c.crashFlags(cmd.Flags())
	c.waitFlags(cmd.Flags())
	c.web.flags(cmd.Flags())
	in.addFlags(cmd.Flags())
	cmd.Flags().IntVar(&heldCode, "held-code", exit.Held, "exit code if the lock is held by another; 0 for jobs that "+
		"the others may do")
	return cmd
}

// commandArgs are URL -- COMMAND...
func commandArgs(cmd *cobra.Command, args []string) error {
	switch at := cmd.ArgsLenAtDash(); {
	case at < 0:
		return exit.Errorf(exit.Usage, "two dashes are missing between the URL and the command: leasehold %s URL "+
			"-- COMMAND",
			cmd.Name())
	case at != 1:
		return exit.Errorf(exit.Usage, "there must be one URL before the two dashes, not %d", at)
	case len(args) == 1:
		return exit.Errorf(exit.Usage, "there is no command after the two dashes")
	}
	return nil
}

func (a *app) runUnderLock(ctx context.Context, c *campaign, args []string) error {
	defer c.web.end()
	c.waiting = c.newWaiting()
	s, lock, store, err := a.supervisor(ctx, c, args)
	if err != nil {
		return err
	}
	defer store.Close()
	if c.waiting.terms, err = c.web.callbacks(lock, leasehold.Callbacks{}); err != nil {
		return err
	}
	c.web.serve(a.log, c.waiting.healthy)
	signals := make(chan os.Signal, 16)
	guard.Catch(signals, guard.ToGroup, guard.ToCommand, []os.Signal{syscall.SIGPIPE})
	stop := c.waiting.follow(ctx, lock)
	lease, err := c.acquireUntilSignal(ctx, a, store, lock, signals)
	stop()
	if err != nil {
		return err
	}
	guard.Catch(signals, []os.Signal{syscall.SIGTSTP})
	s.Signals = signals
	result := guard.Outcome{Lost: true} // if the lease is over before the command begins
	var failed error
	stop = func() {}
	releasing, giveUp := context.WithCancel(ctx)
	defer giveUp()
	err = lease.Do(releasing, func(ctx context.Context, lease *leasehold.Lease) error {
		c.waiting.started(ctx, lease)
		result, failed = s.Run(ctx, lease, environment(lock.Key(), lease.Record()), c.orphan(a, args[0], lease))
		var signalled context.Context
		signalled, stop = untilSignal(releasing, signals) // which no command gets any more
		context.AfterFunc(signalled, giveUp)
		return nil
	})
	stop()
	c.waiting.stopped()
	return a.outcome(result, failed, err)
}

// outcome is the error of run after its command: failed is why it has not run, and err that of the
// lease.
func (a *app) outcome(result guard.Outcome, failed, err error) error {
	switch {
	case failed != nil:
		return failed
	case result.Lost && err == nil:
		return exit.Errorf(exit.Lost, "the command was ended, or not started, because its lease had run out by the "+
			"clock of the guard process (see leasehold help guarantee)")
	case result.Lost:
		return exit.Errorf(exit.Lost, "the command was ended, or not started, because its lease was lost: %w (see "+
			"leasehold help guarantee)", err)
	case err != nil: // the command itself is done
		a.log.Warn("the command has ended, but the lock was not released", "err", err)
	}
	if result.Signal != 0 {
		return childSignal(result.Signal)
	}
	if result.Code != 0 {
		return childCode(result.Code)
	}
	return nil
}

// supervisor makes what runs the command in args, which begin with the URL, under its lock.
func (a *app) supervisor(ctx context.Context, c *campaign,
	args []string) (*guard.Supervisor, *leasehold.Lock, *place.Store, error) {
	if err := cmp.Or(c.check(), c.checkCrash()); err != nil {
		return nil, nil, nil, err
	}
	at, err := place.ParseLock(args[0])
	if err != nil {
		return nil, nil, nil, err
	}
	command, err := guard.FindProgram(args[1:])
	if err != nil {
		return nil, nil, nil, err
	}
	if c.metadata, err = c.web.listen(ctx, c.metadata); err != nil {
		return nil, nil, nil, err
	}
	store, err := at.Open(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	guard.ReapOrphans()
	guard.ReserveThreads(guard.OwnThreads)
	renewed := make(chan struct{}, 1)
	lock, err := c.lock(a, store, at.Key, func() {
		select {
		case renewed <- struct{}{}:
		default:
		}
	}, leasehold.WithSafetyMargin(c.margin))
	if err != nil {
		store.Close()
		return nil, nil, nil, err
	}
	return &guard.Supervisor{Program: command, Margin: c.margin, Renewed: renewed, Log: a.log}, lock, store, nil
}
