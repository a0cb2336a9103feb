package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/guard"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold-go/leasehold/internal/clock"
)

// defaultFor is how long hold renews by default: as long as the longest job of the hosted CI
// services.
const defaultFor = 6 * time.Hour

func (a *app) hold() *cobra.Command {
	var given givenHandle
	var until holding
	cmd := &cobra.Command{
		Use:   "hold [flags] [HANDLE]",
		Short: "Renew the lease of a handle in the background",
		Long: `Renews the lease of the handle every third of its TTL, for steps of unknown length. Run
it in the background after "acquire". The handle is given as for "renew".

It ends with 0 when the lock is released, or when the process of --while has ended; then the lock is
free after the TTL. It ends with 79 if the lease is lost, and after the time of --for, because the
lease is not renewed any more. While the store cannot be reached, it tries again and reports that.
It does not end with the shell that has started it, because in a pipeline that is the shell of one
step.`,
		Example: `  leasehold acquire --ttl 2m --wait 1h --handle-file lock s3://bucket/locks/deploy
  leasehold hold --handle-file lock --while $$ &
  leasehold release --if-held --handle-file lock`,
		Args:              given.check,
		ValidArgsFunction: noFiles,
		RunE: a.withHandle(&given, func(ctx context.Context, cmd *cobra.Command, h handle, store *place.Store) error {
			switch {
			case until.limit <= 0:
				return exit.Errorf(exit.Usage, "--for %v is not positive", until.limit)
			case cmd.Flags().Changed("while") && until.pid <= 0:
				return exit.Errorf(exit.Usage, "--while %d is not the PID of a process", until.pid)
			}
			return a.holdOn(ctx, h, store, until)
		}),
	}
	given.fileFlag(cmd.Flags())
	cmd.Flags().DurationVar(&until.limit, "for", defaultFor, "maximum time to renew, so that a forgotten lock "+
		"expires")
	cmd.Flags().IntVar(&until.pid, "while", 0, "`PID` of the process at whose end hold ends, such as $$, the shell "+
		"itself")
	return cmd
}

// holding says until when hold renews.
type holding struct {
	limit time.Duration
	pid   int // 0 for none
}

func (a *app) holdOn(ctx context.Context, h handle, store *place.Store, until holding) error {
	alive, err := living(until.pid)
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 16)
	guard.Catch(signals, guard.ToGroup, []os.Signal{syscall.SIGPIPE})
	ctx, stop := untilSignal(ctx, signals)
	defer stop()
	return a.keepRenewing(ctx, h, store, until.limit, alive)
}

// keepRenewing renews until ctx ends, limit has passed or alive is false. A failure that may pass
// does not end it: the lease is valid while hold starts, and hold may run in the background,
// without a reader.
func (a *app) keepRenewing(ctx context.Context, h handle, store *place.Store, limit time.Duration,
	alive func() bool) error {
	end := time.Now().Add(limit)
	var last leasehold.Record // of the last renewal
	for {
		record, err := h.renew(ctx, store, 0)
		first := last.ExpiresAt.IsZero()
		if err == nil {
			last = record
		}
		if first {
			err = a.report(h, "renewing", record, err)
		}
		switch early := time.Now().Before(last.ExpiresAt); {
		case errors.Is(err, leasehold.ErrReleased):
			return nil
		case h.table != nil && errors.Is(err, leasehold.ErrLost) && early && !h.inTable(ctx, store):
			return nil // nothing is left of a member that has released all
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case final(err):
			return err
		case err != nil && first:
			a.log.Warn("renewal failed", "key", h.at.Key, "err", err)
		case err != nil:
			text := "renewal failed"
			if !early {
				text = "lease expired and renewal failed"
			}
			a.log.Warn(text, "key", h.at.Key, "token", h.token(last), "until", last.ExpiresAt.Format(dateTime),
				"err", err)
		}
		switch ended := pause(ctx, clock.System, min(untilRenewal(last), time.Until(end)), alive); {
		case errors.Is(ended, errEnded):
			return nil
		case ended != nil:
			return ended
		case time.Now().Before(end):
		case last.ExpiresAt.IsZero():
			return err
		default:
			return exit.Errorf(exit.Lost, "stopped renewing the lock %q, because --for %v has passed (it expires at "+
				"%s; give a longer --for)", h.at.Key, limit, last.ExpiresAt.Format(dateTime))
		}
	}
}

var errEnded = errors.New("the process has ended")

// untilRenewal is a third of the TTL after a renewal. After a failure it is a third of what remains
// of the lease, but no less than the longest pause of resume, so that the lease outlasts an outage
// that ends before it. The last renewal may be none.
func untilRenewal(last leasehold.Record) time.Duration {
	return min(cmp.Or(last.TTL/3, maxPause), max(time.Until(last.ExpiresAt)/3, maxPause))
}

// pause waits, and returns errEnded when alive is false. It looks once a second. The time that the
// machine is suspended counts, because the lease does not last longer for it.
func pause(ctx context.Context, c clock.Clock, d time.Duration, alive func() bool) error {
	for began := c.Now(); ; {
		if !alive() {
			return errEnded
		}
		left := d - c.Now().Elapsed(began)
		if left <= 0 {
			return nil
		}
		if err := c.Sleep(ctx, min(left, time.Second)); err != nil {
			return context.Cause(ctx)
		}
	}
}

// living returns a function that reports whether a process runs. On Linux, a later process with the
// same PID is another process, and a process that has ended does not run, even if its parent has
// not reaped it.
func living(pid int) (func() bool, error) {
	if pid == 0 {
		return func() bool { return true }, nil
	}
	process, err := os.FindProcess(pid)
	alive := func() bool {
		err := process.Signal(syscall.Signal(0))
		return (err == nil || errors.Is(err, syscall.EPERM)) && !zombie(pid)
	}
	if err != nil || !alive() {
		return nil, exit.Errorf(exit.Usage, "--while %d: there is no such process", pid)
	}
	return alive, nil
}
