package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/guard"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/place"
)

func (a *app) acquire() *cobra.Command {
	var c campaign
	var file string
	cmd := &cobra.Command{
		Use:   "acquire [flags] URL",
		Short: "Take a lock for several steps of a pipeline, and print a handle",
		Long: `Waits for the lock, takes it for the TTL, and prints a handle, or writes it to a file
that only you can read. Later steps, each a process of its own, give the handle back to "renew" and
"release". Nothing renews the lease in between, so choose a TTL that covers the longest time between
two steps, or let "hold" renew it in the background. Where one command is all that needs the lock,
use "run": it renews the lease, and ends the command if it is lost.

Who has the handle can release the lock: keep it among the secrets of the pipeline.`,
		Example: `  leasehold acquire --ttl 1h --wait 10m --handle-file lock s3://bucket/locks/deploy
  leasehold renew --handle-file lock
  leasehold release --if-held --handle-file lock`,
		Args:              oneArg("one URL"),
		ValidArgsFunction: keys,
		RunE: a.action(func(ctx context.Context, _ *cobra.Command, args []string) error {
			return a.takeForSteps(ctx, &c, file, args[0])
		}),
	}
	cmd.Flags().StringVar(&file, "handle-file", "", "write the handle to this `file` in place of standard output; if "+
		"the lock is not taken, the file stays as it is")
	c.leaseFlags(cmd.Flags(), time.Hour)
	c.waitFlags(cmd.Flags())
	return cmd
}

func (a *app) takeForSteps(ctx context.Context, c *campaign, path, url string) error {
	if err := c.check(); err != nil {
		return err
	}
	at, err := place.ParseLock(url)
	if err != nil {
		return err
	}
	var file *handleFile
	switch {
	case path != "":
		if err := checkOverwritten(path, at); err != nil {
			return err
		}
		if file, err = newHandleFile(path); err != nil {
			return err
		}
		defer file.remove()
	case goesNowhere(os.Stdout):
		return exit.Errorf(exit.Usage, "standard output is closed or /dev/null, so the handle would be lost")
	}
	store, err := at.Open(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	lock, err := c.lock(a, store, at.Key, func() {}, leasehold.WithManualRenewal())
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 16)
	guard.Catch(signals, guard.ToGroup, []os.Signal{syscall.SIGPIPE})
	lease, err := c.acquireUntilSignal(ctx, a, store, lock, signals)
	if err != nil {
		return err
	}
	h := handle{at, lease.Handle()}
	if file != nil {
		err = a.tell(h, "acquired", lease.Record(), file.keep(h))
	} else {
		err = a.print(struct {
			Handle string `json:"handle"`
			shown
		}{h.String(), show(at, lease.Record(), 0)}, h.String())
	}
	if err != nil {
		return errors.Join(err, giveBack(ctx, lease))
	}
	signal.Reset() // the lock is the caller's now
	return nil
}

// goesNowhere reports whether what is written to a file is lost.
func goesNowhere(f *os.File) bool {
	null, err1 := os.Stat(os.DevNull)
	info, err2 := f.Stat()
	return err2 != nil || err1 == nil && os.SameFile(null, info)
}

func (a *app) renew() *cobra.Command {
	var given givenHandle
	var ttl time.Duration
	cmd := &cobra.Command{
		Use:   "renew [flags] [HANDLE]",
		Short: "Renew a lease that acquire has begun",
		Long: `Renews the lease of the handle for its TTL. If it succeeds, nobody else has held the
lock since "acquire", even if the lease had run out. If it exits with 79, the lease is lost. Without
an argument, the handle is taken from --handle-file, or from ` +
			handleEnv + `.

With --ttl, the lease has that TTL from now on, also for "hold" and later renewals.`,
		Args:              given.check,
		ValidArgsFunction: noFiles,
		RunE: a.withHandle(&given, func(ctx context.Context, cmd *cobra.Command, h handle, store *place.Store) error {
			if cmd.Flags().Changed("ttl") && ttl < shortestTTL {
				return exit.Errorf(exit.Usage, "--ttl %v is below %v", ttl, shortestTTL)
			}
			record, err := h.renew(ctx, store, ttl)
			return a.tell(h, "renewed", record, err)
		}),
	}
	given.fileFlag(cmd.Flags())
	cmd.Flags().DurationVar(&ttl, "ttl", 0, "how long this renewal and later ones last (default as before)")
	return cmd
}

func (a *app) release() *cobra.Command {
	var given givenHandle
	cmd := &cobra.Command{
		Use:   "release [flags] [HANDLE]",
		Short: "Release a lock that acquire has taken",
		Long: `Releases the lock of the handle. Releasing twice does no harm. If the lease is lost,
it changes nothing and exits with 79. Without an argument, the handle is taken from --handle-file,
or from ` + handleEnv + `.

With --if-held, it is silent and exits with 0 where there is nothing to release: there is no handle,
because "acquire" has failed, or the lease is lost.`,
		Args:              given.check,
		ValidArgsFunction: noFiles,
		RunE: a.withHandle(&given, func(ctx context.Context, _ *cobra.Command, h handle, store *place.Store) error {
			record, err := h.release(ctx, store)
			if given.ifHeld && errors.Is(err, leasehold.ErrLost) {
				return nil
			}
			return a.tell(h, "released", record, err)
		}),
	}
	given.fileFlag(cmd.Flags())
	cmd.Flags().BoolVar(&given.ifHeld, "if-held", false, "do nothing if there is no handle or the lease is lost")
	return cmd
}
