package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/aws/smithy-go"
	"github.com/spf13/cobra"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold-go/leasehold/internal/storeapi"
)

func (a *app) watch() *cobra.Command {
	var every time.Duration
	cmd := &cobra.Command{
		Use:   "watch [flags] URL",
		Short: "Print a line for every change of a lock",
		Long: `Prints the state of the lock, and then a line whenever it changes, until it is
interrupted: never taken, held, released, expired or deleted. A lock has expired if it was not
renewed for its TTL. It reads the lock once per interval, and is not a candidate.`,
		Args:              oneArg("one URL"),
		ValidArgsFunction: noFiles,
		RunE: a.action(func(ctx context.Context, _ *cobra.Command, args []string) error {
			at, err := place.ParseLock(args[0])
			if err != nil {
				return err
			}
			store, err := at.Open(ctx)
			if err != nil {
				return err
			}
			defer store.Close()
			_, err = newLock(store, at.Key, []leasehold.Option{
				leasehold.WithLogger(slog.New(slog.DiscardHandler)), leasehold.WithTTL(max(defaultTTL, every)),
				leasehold.WithPollInterval(every),
			})
			if err != nil {
				return err
			}
			return a.follow(ctx, store, at, every)
		}),
	}
	cmd.Flags().DurationVar(&every, "interval", 2*time.Second, "time between two reads")
	return cmd
}

// follow prints the state of a lock whenever it is another.
func (a *app) follow(ctx context.Context, store *place.Store, at place.Location, every time.Duration) error {
	var printed shown
	var last sight
	var since time.Time // when the record was seen to be another
	var renewed bool    // since it was read first
	var taken bool      // there was a term
	var complained string
	for ; ; time.Sleep(every) {
		view, err := a.inspect(ctx, store, at)
		switch {
		case err != nil && storeapi.Permanent(err):
			return err
		case err != nil:
			if kind := kindOf(err); kind != complained {
				a.complain(err, exit.Code(err))
				complained = kind
			}
			continue
		case view.State == "corrupt":
			return exit.Errorf(exit.Config, "%s", view.Error)
		case view.Token == 0 && taken:
			view.State = "deleted"
		}
		complained = ""
		if seen := (sight{view.Token, timeOf(view.RenewedAt)}); seen != last {
			renewed, since, last = !since.IsZero(), time.Now(), seen
		}
		if ttl := time.Duration(view.TTL * float64(time.Second)); ttl > 0 &&
			(view.State == "held" || view.State == "expired") {
			switch { // what was seen here says more than the holder's clock
			case time.Since(since) > ttl:
				view.State = "expired"
			case renewed:
				view.State = "held"
			}
		}
		if view.State == printed.State && view.Token == printed.Token {
			continue
		}
		if err := a.print(view, time.Now().Format(time.DateTime)+" "+view.sentence()); err != nil {
			return err
		}
		printed, taken = view, taken || view.Token > 0
	}
}

// kindOf tells one failure of a store from another. The texts of two of a kind may differ, by the
// number of the request or of a port.
func kindOf(err error) string {
	kind := fmt.Sprint(exit.Code(err), " ", exit.HTTPStatus(err))
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		kind += " " + api.ErrorCode()
	}
	return kind
}

// sight tells one write of a record from another.
type sight struct {
	token   uint64
	renewed int64
}

func timeOf(t *time.Time) int64 {
	if t == nil {
		return 0
	}
	return t.UnixNano()
}

func (s shown) sentence() string {
	switch {
	case s.State == "deleted":
		return "deleted: there is no lock object any more"
	case s.Token == 0:
		return "free: never taken"
	case s.State == "free":
		return fmt.Sprintf("token %d released by %s", s.Token, s.Holder)
	case s.State == "expired":
		return fmt.Sprintf("token %d of %s has expired: not renewed since %s", s.Token, s.Holder, stamp(s.RenewedAt))
	}
	return fmt.Sprintf("token %d held by %s since %s", s.Token, s.Holder, stamp(s.AcquiredAt))
}
