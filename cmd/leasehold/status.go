package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/spf13/cobra"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold-go/leasehold/internal/storeapi"
)

func (a *app) status() *cobra.Command {
	var byCode bool
	cmd := &cobra.Command{
		Use:   "status [flags] URL...",
		Short: "Show the holders of locks",
		Long: `Shows the holder of each lock, since when, and until when by the holder's clock. AGE is
the time since the last renewal, at least, by the server's clock; if that is not known, by the
holder's clock and this machine's.

The STATE is held, released, expired or never_taken. A lock is expired if it should have been renewed
by now, by this machine's clock. A candidate that has watched it for its TTL can take it. Of several
locks, one that cannot be read is unknown, and the exit code is the code of the first failure.

A table of locks is shown with its members, and with the requests that hold or wait, in order. The
token of the table is its revision, and the token of a held request is its fencing token. Members and
requests are held, waiting or expired. A member is expired if its lock should have been renewed by now,
or its term has ended, and so are its requests.

With --exit-code, the exit code is 75 if a lock is held or expired, and 0 if all are released or were
never taken. The code of a lock that is corrupt (78) or cannot be read (69, 77, 78) comes first. The
answer is already old when a script has it: to do something under the lock, use "run --no-wait".`,
		Example:           `  leasehold status s3://bucket/locks/report s3://bucket/locks/nightly -o json`,
		Args:              someArgs("one URL or more"),
		ValidArgsFunction: keys,
		RunE: a.action(func(ctx context.Context, _ *cobra.Command, args []string) error {
			var locations []place.Location
			for _, url := range args {
				at, err := place.ParseLock(url)
				if err != nil {
					return err
				}
				locations = append(locations, at)
			}
			table := a.locks()
			var failed error
			held := false
			for _, at := range locations {
				view, err := a.lookAt(ctx, at)
				if err != nil {
					failed = cmp.Or(failed, err)
					if len(locations) == 1 && !a.json() { // the message says it all
						break
					}
					view = showNone(at)
					view.State, view.Error = stateUnknown, exit.Message(err)
				}
				table.add(view, view.cells(at.String())...)
				held = held || view.State == stateHeld || view.State == stateExpired
				if view.Table != nil {
					view.Table.addTo(table)
					held = held || len(view.Table.Held) > 0
				}
				if byCode && view.State == stateCorrupt {
					failed = cmp.Or(failed, exit.Errorf(exit.Config, "%s", view.Error))
				}
			}
			if err := cmp.Or(table.close(), failed); err != nil || !byCode || !held {
				return err
			}
			return childCode(exit.Held) // the table has shown why
		}),
	}
	cmd.Flags().BoolVar(&byCode, "exit-code", false, "exit with 75 if a lock is held or expired, else with 0")
	return cmd
}

// lookAt reads one lock.
func (a *app) lookAt(ctx context.Context, at place.Location) (shown, error) {
	store, err := at.Open(ctx)
	if err != nil {
		return shown{}, err
	}
	defer store.Close()
	return a.inspect(ctx, store, at)
}

func (a *app) inspect(ctx context.Context, store *place.Store, at place.Location) (shown, error) {
	view, err := a.inspectObject(ctx, store, at)
	if errors.Is(err, leasehold.ErrNotExist) {
		return showNone(at), nil
	}
	return view, err
}

// inspectObject returns leasehold.ErrNotExist if there is no object.
func (a *app) inspectObject(ctx context.Context, store *place.Store, at place.Location) (shown, error) {
	lock, err := newLock(store, at.Key, []leasehold.Option{leasehold.WithLogger(a.log), leasehold.WithTTL(defaultTTL)})
	if err != nil {
		return shown{}, err
	}
	record, err := lock.Inspect(ctx)
	switch {
	case errors.Is(err, leasehold.ErrCorruptRecord):
		view, ok, failed := a.lookAtTable(ctx, store, at)
		switch {
		case errors.Is(failed, leasehold.ErrCorruptRecord): // such as one of a later version
			return unreadable(at, failed), nil
		case ok || failed != nil:
			return view, failed
		}
		return unreadable(at, err), nil
	case err != nil:
		return shown{}, err
	}
	return show(at, record, store.Age(at.Key)), nil
}

func (a *app) list() *cobra.Command {
	return &cobra.Command{
		Use:   "list [flags] PREFIX",
		Short: "Show all locks below a prefix",
		Long: `Shows all locks whose keys begin with the prefix, as "status" does. An object that is
not a lock is shown as corrupt: give locks a separate prefix. An object that may not be read is shown
as denied, and the exit code is 77. With -o json there is one line for each lock. If there is no
lock, standard output is empty, and the exit code is 0.

MinIO does not list a lock whose key is below the key of another lock, such as jobs/report/daily and
jobs/report. Both work, and "status" shows them.`,
		Example:           `  leasehold list s3://bucket/locks/`,
		Args:              oneArg("one URL of a prefix"),
		ValidArgsFunction: keys,
		RunE: a.action(func(ctx context.Context, _ *cobra.Command, args []string) error {
			at, err := place.ParsePrefix(args[0])
			if err != nil {
				return err
			}
			store, err := at.Open(ctx)
			if err != nil {
				return err
			}
			defer store.Close()
			return a.listAll(ctx, store, at)
		}),
	}
}

// readsAtOnce is how many locks of a list are read side by side.
const readsAtOnce = 16

// listAll reads the locks in the order of their keys.
func (a *app) listAll(ctx context.Context, store *place.Store, at place.Location) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		view shown
		gone bool // deleted, and the list does not know it
		err  error
	}
	results := make(chan chan result, readsAtOnce)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer cancel()
	reading.Go(func() {
		defer close(results)
		for object, err := range store.Objects(ctx, at.Key) {
			one := make(chan result, 1)
			select {
			case results <- one:
			case <-ctx.Done():
				return
			}
			lock := at
			lock.Key = object.Key
			switch why := storeapi.BadKey(object.Key); {
			case err != nil:
				one <- result{err: err}
				return
			case object.Err != nil:
				one <- result{view: notLock(lock, object.Err)}
				continue
			case why != "":
				one <- result{view: notLock(lock, fmt.Errorf("it is not a lock: its key %s", why))}
				continue
			}
			reading.Go(func() {
				view, err := a.inspectObject(ctx, store, lock)
				switch {
				case errors.Is(err, leasehold.ErrNotExist):
					one <- result{gone: true}
					return
				case storeapi.Permanent(err):
					view, err = unreadable(lock, err), nil
				}
				one <- result{view: view, err: err}
			})
		}
	})
	table := a.locks()
	var refused error
	empty := true
	for one := range results {
		r := <-one
		switch {
		case r.err != nil:
			return cmp.Or(table.close(), r.err)
		case r.gone:
			continue
		}
		if r.view.State == stateDenied && refused == nil {
			refused = exit.Errorf(exit.Permission, "not all locks may be read: lock %q: %s", r.view.Key, r.view.Error)
		}
		table.add(r.view, r.view.cells(r.view.Key)...)
		empty = false
		if table.err != nil {
			break
		}
	}
	switch {
	case !empty || a.json():
	case at.Key == "":
		fmt.Fprintf(a.stderr, "leasehold: there is no lock in %q\n", at.Bucket)
	default:
		fmt.Fprintf(a.stderr, "leasehold: no lock in %q has a key that begins with %q\n", at.Bucket, at.Key)
	}
	return cmp.Or(table.close(), refused)
}

// unreadable is the view of an object that cannot be read, however often one tries.
func unreadable(at place.Location, err error) shown {
	view := showNone(at)
	view.State, view.Error = stateCorrupt, exit.Message(err)
	if exit.Denied(err) {
		view.State = stateDenied
	}
	return view
}

// notLock is the view of an object that no lock can have, so no URL of a lock names it.
func notLock(at place.Location, err error) shown {
	view := unreadable(at, err)
	view.URL = ""
	return view
}
