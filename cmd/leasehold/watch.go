package main

import (
	"cmp"
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
interrupted: never taken, held, released, expired or deleted. A lock has expired once it was watched
for its TTL and was not renewed. Until then it is held, even if its holder has crashed. The command
reads the lock once per interval, and is not a candidate.`,
		Args:              oneArg("one URL"),
		ValidArgsFunction: keys,
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
			var last error
			complained := "" // the kind of failure that was reported, until the store answers
			lock, err := newLock(store, at.Key, []leasehold.Option{
				leasehold.WithLogger(slog.New(slog.DiscardHandler)), leasehold.WithTTL(max(defaultTTL, every)),
				leasehold.WithPollInterval(every),
				leasehold.WithObserver(func(_ context.Context, e leasehold.Event) {
					if e.Err == nil || errors.Is(e.Err, leasehold.ErrNotExist) {
						complained = ""
					}
				}),
			})
			if err != nil {
				return err
			}
			for status, err := range lock.Watch(ctx) {
				last = err
				switch {
				case storeapi.Permanent(err) && !errors.Is(err, leasehold.ErrUnsent):
					return err
				case err != nil:
					if kind := kindOf(err); kind != complained {
						a.complain(err, exit.Code(err))
						complained = kind
					}
					continue
				}
				view := showStatus(at, status, store.Age(at.Key))
				line := time.Now().Format(dateTime) + " " + view.sentence()
				if err := a.printIn(colourOf[view.State], view, line); err != nil {
					return err
				}
			}
			return cmp.Or(ctx.Err(), last)
		}),
	}
	cmd.Flags().DurationVar(&every, "interval", 2*time.Second, "time between two reads")
	return cmd
}

// kindOf is the kind of a failure of a store. The texts of two of a kind may differ, by the number
// of the request or of a port.
func kindOf(err error) string {
	kind := fmt.Sprint(exit.Code(err), " ", exit.HTTPStatus(err))
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		kind += " " + api.ErrorCode()
	}
	return kind
}

// showStatus is the view of a status that a watch yields.
func showStatus(at place.Location, status leasehold.Status, age time.Duration) shown {
	s := showNone(at)
	if status.State != leasehold.StateNeverTaken && status.State != leasehold.StateDeleted {
		s = show(at, status.Record, age)
	}
	s.State = string(status.State) // the watch decides, not the holder's clock
	return s
}

func (s shown) sentence() string {
	switch {
	case s.State == stateDeleted:
		return "deleted: there is no lock object any more"
	case s.State == stateNeverTaken:
		return "never taken"
	case s.State == stateReleased:
		return fmt.Sprintf("token %d released by %s", s.Token, s.Holder)
	case s.State == stateExpired:
		return fmt.Sprintf("token %d of %s has expired: not renewed since %s", s.Token, s.Holder, stamp(s.RenewedAt))
	case s.ExpiresAt == nil:
		return fmt.Sprintf("token %d of %s has come back, as from a backup: a later term may continue", s.Token,
			s.Holder)
	}
	return fmt.Sprintf("token %d held by %s since %s", s.Token, s.Holder, stamp(s.AcquiredAt))
}
