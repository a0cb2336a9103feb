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
lease is lost, the command is dead before another holder can have the lock: see "leasehold help
guarantee". Processes that the command leaves running are ended before the lock is released.

Signals go to the command, and the lease is renewed until the command has ended: see "leasehold help
signals".

With --slots, --shared or --lock, the URL names a table of locks. Several commands may hold one of its
locks at once, and waiting commands get the lock in the order in which they asked. The command also
gets LEASEHOLD_LOCK. See "leasehold help tables".`,
		Example: `  leasehold run s3://bucket/locks/report -- make report
  leasehold run --no-wait --held-code 0 'gs://bucket/locks/nightly' -- ./nightly.sh
  leasehold run --slots 3 s3://bucket/tables/imports -- ./import.sh
  leasehold run --wait 30s file:///var/lib/locks/import -- sh -c 'echo token $LEASEHOLD_TOKEN'`,
		Args: commandArgs,
		RunE: a.action(func(ctx context.Context, _ *cobra.Command, args []string) error {
			if heldCode < 0 || heldCode > 255 {
				return exit.Errorf(exit.Usage, "--held-code %d is not an exit code, which is from 0 to 255", heldCode)
			}
			if err := cmp.Or(c.check(), c.checkCrash(), in.check(&c)); err != nil {
				return err
			}
			var err error
			if in.wanted() {
				err = a.runInTable(ctx, &c, &in, args)
			} else {
				err = a.runLock(ctx, &c, args)
			}
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
	cmd.Flags().IntVar(&heldCode, "held-code", exit.Held, "exit code if another holder has the lock; 0 if any "+
		"machine may do the job")
	return cmd
}

// commandArgs are URL -- COMMAND...
func commandArgs(cmd *cobra.Command, args []string) error {
	switch at := cmd.ArgsLenAtDash(); {
	case at < 0:
		return exit.Errorf(exit.Usage, "two dashes are missing between the URL and the command (write leasehold %s "+
			"URL -- COMMAND)", cmd.Name())
	case at != 1:
		return exit.Errorf(exit.Usage, "there must be one URL before the two dashes, not %d", at)
	case len(args) == 1:
		return exit.Errorf(exit.Usage, "there is no command after the two dashes")
	}
	return nil
}

// runLock is run for the URL of a lock.
func (a *app) runLock(ctx context.Context, c *campaign, args []string) error {
	defer c.web.end()
	c.waiting = c.newWaiting()
	j, err := a.prepare(ctx, c, args)
	if err != nil {
		return err
	}
	defer j.store.Close()
	lock, err := j.lock()
	if err != nil {
		return err
	}
	if c.waiting.terms, err = c.web.callbacks(lock, leasehold.Callbacks{}); err != nil {
		return err
	}
	c.web.serve(a.log, lock.Check)
	signals := make(chan os.Signal, 16)
	guard.Catch(signals, guard.ToGroup, guard.ToCommand, []os.Signal{syscall.SIGPIPE})
	unfollow := c.waiting.follow(ctx, lock)
	lease, err := c.acquireUntilSignal(ctx, a, j.store, lock, signals)
	unfollow()
	if err != nil {
		return err
	}
	defer c.waiting.stopped()
	return tenure(ctx, j, signals, lease, func(ctx context.Context, lease *leasehold.Lease) grant {
		c.waiting.started(ctx, lease)
		return j.ofLock(lease)
	})
}
