package main

import (
	"cmp"
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
	var in inTable
	var file string
	cmd := &cobra.Command{
		Use:   "acquire [flags] URL",
		Short: "Take a lock for several steps of a pipeline, and print its handle",
		Long: `Waits for the lock, takes it for the TTL, and prints a handle, or writes it to a file
that only you can read. Later steps pass the handle to "renew" and "release". Nothing renews the
lease in between, so choose a TTL that covers the longest time between two steps, or let "hold" renew
it in the background. If one command needs the lock, use "run": it renews the lease, and ends the
command if the lease is lost.

The handle is a secret, because any process that has it can release the lock: see "leasehold help
steps".

With --slots, --shared or --lock, the URL names a table of locks: see "leasehold help tables".`,
		Example: `  leasehold acquire --ttl 1h --wait 10m --handle-file lock s3://bucket/locks/deploy
  leasehold renew --handle-file lock
  leasehold release --if-held --handle-file lock`,
		Args:              oneArg("one URL"),
		ValidArgsFunction: keys,
		RunE: a.action(func(ctx context.Context, _ *cobra.Command, args []string) error {
			return a.takeForSteps(ctx, &c, &in, file, args[0])
		}),
	}
	cmd.Flags().StringVar(&file, "handle-file", "", "`file` for the handle, instead of standard output; it does not "+
		"change if the lock is not taken")
	c.leaseFlags(cmd.Flags(), time.Hour)
	c.waitFlags(cmd.Flags())
	in.addFlags(cmd.Flags())
	return cmd
}

func (a *app) takeForSteps(ctx context.Context, c *campaign, in *inTable, path, url string) error {
	if err := cmp.Or(c.check(), in.check(c)); err != nil {
		return err
	}
	at, err := place.ParseLock(url)
	if err != nil {
		return err
	}
	var file *handleFile
	var before handle
	switch {
	case path != "":
		if before, err = checkOverwritten(path, at); err != nil {
			return err
		}
		if file, err = newHandleFile(path); err != nil {
			return err
		}
		defer file.remove()
	case goesNowhere(os.Stdout):
		return exit.Errorf(exit.Usage, "standard output is closed or /dev/null, so the handle would be lost (give a "+
			"--handle-file)")
	}
	store, err := at.Open(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	signals := make(chan os.Signal, 16)
	guard.Catch(signals, guard.ToGroup, []os.Signal{syscall.SIGPIPE})
	var got taken
	if in.wanted() {
		got, err = in.take(ctx, c, a, store, at, signals)
	} else {
		got, err = c.take(ctx, a, store, at, signals)
	}
	h, record := got.handle, got.record
	switch {
	case err != nil:
		return err
	case before.goesOn(ctx, store):
		err = exit.Errorf(exit.Usage, "--handle-file %q has the handle of another lease of this table (release it "+
			"by leasehold release --handle-file, or give another file)", path)
	case file != nil:
		err = a.report(h, "acquired", record, file.keep(h))
	default:
		record.Token = h.token(record)
		err = a.print(struct {
			Handle string `json:"handle"`
			shown
		}{h.String(), show(at, record, 0)}, h.String())
	}
	if err != nil {
		return errors.Join(err, got.giveBack())
	}
	signal.Reset() // from now on, the caller has the lock
	return nil
}

// taken is what acquire has.
type taken struct {
	handle   handle
	record   leasehold.Record // of the lock that later steps renew
	giveBack func() error
}

// take acquires the lock that the URL names.
func (c *campaign) take(ctx context.Context, a *app, store *place.Store, at place.Location,
	signals <-chan os.Signal) (taken, error) {
	lock, err := c.lock(a, store, at.Key, nil, leasehold.WithManualRenewal())
	if err != nil {
		return taken{}, err
	}
	lease, err := c.acquireUntilSignal(ctx, a, store, lock, signals)
	if err != nil {
		return taken{}, err
	}
	return taken{
		handle{at: at, term: lease.Handle()}, lease.Record(), func() error { return giveBack(ctx, lease) },
	}, nil
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
		Short: "Renew the lease of a handle",
		Long: `Renews the lease of the handle for its TTL. If it succeeds, no other holder has had the
lock since "acquire", even if the lease had expired. If it exits with 79, the lease is lost. Without
an argument, the handle is read from --handle-file, or from ` +
			handleEnv + `.

With a longer --ttl, this renewal and all later ones have that TTL, as do those by "hold".`,
		Args:              given.check,
		ValidArgsFunction: noFiles,
		RunE: a.withHandle(&given, func(ctx context.Context, cmd *cobra.Command, h handle, store *place.Store) error {
			switch changed := cmd.Flags().Changed("ttl"); {
			case changed && h.table != nil:
				return exit.Errorf(exit.Usage, "a lease of a table keeps the TTL of acquire (leave --ttl out)")
			case changed && ttl < shortestTTL:
				return exit.Errorf(exit.Usage, "--ttl %v is below %v", ttl, shortestTTL)
			}
			record, err := h.renew(ctx, store, ttl)
			return a.report(h, "renewed", record, err)
		}),
	}
	given.fileFlag(cmd.Flags())
	cmd.Flags().DurationVar(&ttl, "ttl", 0, "TTL of this renewal and later ones, if it is longer (default as before)")
	return cmd
}

func (a *app) release() *cobra.Command {
	var given givenHandle
	cmd := &cobra.Command{
		Use:   "release [flags] [HANDLE]",
		Short: "Release the lock of a handle",
		Long: `Releases the lock of the handle. A second release does no harm. If the lease is lost,
it changes nothing and exits with 79. Without an argument, the handle is read from --handle-file,
or from ` + handleEnv + `.

With --if-held, it prints nothing and exits with 0 if there is no handle, because "acquire" has
failed, or if the lease is lost.`,
		Args:              given.check,
		ValidArgsFunction: noFiles,
		RunE: a.withHandle(&given, func(ctx context.Context, _ *cobra.Command, h handle, store *place.Store) error {
			record, err := h.release(ctx, store)
			if given.ifHeld && errors.Is(err, leasehold.ErrLost) {
				return nil
			}
			return a.report(h, "released", record, err)
		}),
	}
	given.fileFlag(cmd.Flags())
	cmd.Flags().BoolVar(&given.ifHeld, "if-held", false, "succeed silently if there is no handle or the lease is lost")
	return cmd
}
