package main

import (
	"context"
	"errors"
	"sync"

	"github.com/spf13/cobra"

	"github.com/leasehold-go/leasehold"
)

func (a *app) status() *cobra.Command {
	return &cobra.Command{
		Use:   "status [flags] URL...",
		Short: "Show who holds locks",
		Long: `Shows who holds each lock, since when, and until when by the holder's clock. AGE is the time since the last renewal, at least, by the
server's clock, if that is known. A lock is "expired" if it should have been renewed by now, by this machine's clock; it can be taken by who
has watched it for its TTL.`,
		Example:           `  leasehold status s3://bucket/locks/report s3://bucket/locks/nightly -o json`,
		Args:              someArgs("one URL or more"),
		ValidArgsFunction: noFiles,
		RunE: a.action(func(ctx context.Context, _ *cobra.Command, args []string) error {
			var locations []location
			for _, url := range args {
				at, err := parseLock(url)
				if err != nil {
					return err
				}
				locations = append(locations, at)
			}
			table := a.table(lockHeader)
			var failed error
			for _, at := range locations {
				view, err := a.lookAt(ctx, at)
				if err != nil {
					failed = firstOf(failed, err)
					continue
				}
				table.add(view, view.cells(at.String()))
			}
			return firstOf(table.close(), failed)
		}),
	}
}

// firstOf is the first error that is not nil.
func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// lookAt reads one lock.
func (a *app) lookAt(ctx context.Context, at location) (shown, error) {
	store, err := at.open(ctx)
	if err != nil {
		return shown{}, err
	}
	defer store.close()
	return a.inspect(ctx, store, at)
}

func (a *app) inspect(ctx context.Context, store *backend, at location) (shown, error) {
	lock, err := newLock(store, at.key, []leasehold.Option{leasehold.WithLogger(a.log), leasehold.WithTTL(defaultTTL)})
	if err != nil {
		return shown{}, err
	}
	record, err := lock.Inspect(ctx)
	switch {
	case errors.Is(err, leasehold.ErrNotExist):
		return showNone(at), nil
	case errors.Is(err, leasehold.ErrCorruptRecord):
		view := showNone(at)
		view.State, view.Error = "corrupt", message(err)
		return view, nil
	case err != nil:
		return shown{}, err
	}
	return show(at, record, store.age(at.key)), nil
}

func (a *app) list() *cobra.Command {
	return &cobra.Command{
		Use:   "list [flags] PREFIX",
		Short: "Show all locks below a prefix",
		Long: `Shows all locks whose keys begin with the prefix, as "status" does. An object that is not a lock is shown as corrupt: give locks a
prefix of their own. With -o json there is one line for each lock.`,
		Example:           `  leasehold list s3://bucket/locks/`,
		Args:              oneArg("one URL of a prefix"),
		ValidArgsFunction: noFiles,
		RunE: a.action(func(ctx context.Context, _ *cobra.Command, args []string) error {
			at, err := parsePrefix(args[0])
			if err != nil {
				return err
			}
			store, err := at.open(ctx)
			if err != nil {
				return err
			}
			defer store.close()
			return a.listAll(ctx, store, at)
		}),
	}
}

// readsAtOnce is how many locks of a list are read side by side.
const readsAtOnce = 16

// listAll reads the locks in the order of their keys.
func (a *app) listAll(ctx context.Context, store *backend, at location) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		view shown
		err  error
	}
	results := make(chan chan result, readsAtOnce)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer cancel()
	reading.Go(func() {
		defer close(results)
		for key, err := range store.keys(ctx, at.key) {
			one := make(chan result, 1)
			select {
			case results <- one:
			case <-ctx.Done():
				return
			}
			if err != nil {
				one <- result{err: err}
				return
			}
			lock := at
			lock.key = key
			reading.Go(func() {
				view, err := a.inspect(ctx, store, lock)
				one <- result{view, err}
			})
		}
	})
	table := a.table(lockHeader)
	for one := range results {
		r := <-one
		if r.err != nil {
			return firstOf(table.close(), r.err)
		}
		table.add(r.view, r.view.cells(r.view.Key))
		if table.err != nil {
			break
		}
	}
	return table.close()
}
