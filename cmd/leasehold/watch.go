package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/storeapi"
)

func (a *app) watch() *cobra.Command {
	var every time.Duration
	cmd := &cobra.Command{
		Use:   "watch [flags] URL",
		Short: "Print a line for every change of term",
		Long: `Prints the state of the lock, and then a line whenever a term begins or ends, until it is interrupted. It reads the lock once per
interval, and is not a candidate.`,
		Args:              oneArg("one URL"),
		ValidArgsFunction: noFiles,
		RunE: a.action(func(ctx context.Context, _ *cobra.Command, args []string) error {
			at, err := parseLock(args[0])
			if err != nil {
				return err
			}
			store, err := at.open(ctx)
			if err != nil {
				return err
			}
			defer store.close()
			lock, err := newLock(store, at.key, []leasehold.Option{
				leasehold.WithLogger(nil), leasehold.WithTTL(max(defaultTTL, every)), leasehold.WithPollInterval(every),
			})
			if err != nil {
				return err
			}
			for record, err := range lock.Watch(ctx) {
				switch {
				case err != nil && storeapi.Permanent(err):
					return err
				case err != nil:
					a.complain(err, exitCode(err))
					continue
				}
				view := show(at, record, 0)
				text := fmt.Sprintf("token %d held by %s since %s", view.Token, view.Holder, stamp(view.AcquiredAt))
				if record.Released() {
					text = fmt.Sprintf("token %d released by %s", view.Token, view.Holder)
				}
				if err := a.print(view, time.Now().Format(time.DateTime)+" "+text); err != nil {
					return err
				}
			}
			return nil
		}),
	}
	cmd.Flags().DurationVar(&every, "interval", 2*time.Second, "time between two reads")
	return cmd
}
