package leasehold_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
)

func TestAbandon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := leasehold.NewMemStore()
		var kinds [256]atomic.Int64
		lock, err := leasehold.NewLock(mem, "k", leasehold.WithObserver(func(_ context.Context, e leasehold.Event) { kinds[e.Kind].Add(1) }))
		require.NoError(t, err)
		lease, err := lock.TryAcquire(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Minute)
		requests, renewed := kinds[leasehold.EventRequest].Load(), lease.Record().RenewedAt
		lease.Abandon()
		lease.Abandon() // does nothing
		require.False(t, lease.Valid())
		require.ErrorIs(t, context.Cause(lease.Context()), leasehold.ErrReleased)
		require.EqualValues(t, 1, kinds[leasehold.EventReleased].Load())
		other, err := leasehold.NewLock(mem, "k")
		require.NoError(t, err)
		next, err := other.Acquire(t.Context())
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(renewed), 15*time.Second, "it stood for its TTL")
		time.Sleep(time.Minute)
		require.Zero(t, kinds[leasehold.EventLost].Load())
		require.Equal(t, requests, kinds[leasehold.EventRequest].Load(), "without a request")
		require.NoError(t, lease.Release(t.Context()), "nothing is left to release")
		require.True(t, next.Valid())
		require.NoError(t, next.Release(t.Context()))

		lease, err = lock.TryAcquire(t.Context())
		require.NoError(t, err)
		lease.Abandon()
		_, err = lock.TryAcquire(t.Context())
		var held *leasehold.HeldError
		require.ErrorAs(t, err, &held, "work of the term may go on in this process as well")
		require.Equal(t, 15_300*time.Millisecond, held.Wait)
		released := kinds[leasehold.EventReleased].Load()
		require.NoError(t, lease.Release(t.Context()), "Release may follow")
		require.Equal(t, released, kinds[leasehold.EventReleased].Load(), "told once")
		rec, err := lock.Inspect(t.Context())
		require.NoError(t, err)
		require.True(t, rec.Released())
	})
}

// Whatever ends the function, only Release frees a lease that was abandoned in it.
func TestAbandonInAFunction(t *testing.T) {
	work := errors.New("work goes on")
	for name, run := range map[string]func(ctx context.Context, l *leasehold.Lock, abandon func(context.Context, *leasehold.Lease) error) error{
		"Lock.Do": func(ctx context.Context, l *leasehold.Lock, abandon func(context.Context, *leasehold.Lease) error) error {
			return l.Do(ctx, abandon)
		},
		"Lease.Do": func(ctx context.Context, l *leasehold.Lock, abandon func(context.Context, *leasehold.Lease) error) error {
			lease, err := l.TryAcquire(ctx)
			if err != nil {
				return err
			}
			return lease.Do(ctx, abandon)
		},
		"a panic": func(ctx context.Context, l *leasehold.Lock, abandon func(context.Context, *leasehold.Lease) error) (err error) {
			defer func() { err = recover().(error) }()
			return l.Do(ctx, func(ctx context.Context, lease *leasehold.Lease) error { panic(abandon(ctx, lease)) })
		},
		"RunOnce": func(ctx context.Context, l *leasehold.Lock, abandon func(context.Context, *leasehold.Lease) error) (err error) {
			e, _ := leasehold.NewElector(l, leasehold.Callbacks{
				OnStartedLeading: func(ctx context.Context, lease *leasehold.Lease) { err = abandon(ctx, lease) },
			})
			return errors.Join(e.RunOnce(ctx), err)
		},
		"Resign": func(ctx context.Context, l *leasehold.Lock, abandon func(context.Context, *leasehold.Lease) error) (err error) {
			var e *leasehold.Elector
			e, _ = leasehold.NewElector(l, leasehold.Callbacks{
				OnStartedLeading: func(ctx context.Context, lease *leasehold.Lease) {
					over, cancel := context.WithCancel(ctx)
					cancel()
					_ = e.Resign(over)
					err = abandon(ctx, lease)
				},
			})
			return errors.Join(e.RunOnce(ctx), err)
		},
		"the end of ctx": func(ctx context.Context, l *leasehold.Lock, abandon func(context.Context, *leasehold.Lease) error) error {
			ctx, cancel := context.WithCancel(ctx)
			return l.Do(ctx, func(ctx context.Context, lease *leasehold.Lease) error {
				cancel()
				return abandon(ctx, lease)
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := leasehold.NewMemStore()
				lock := newLock(t, store)
				var lease *leasehold.Lease
				err := run(t.Context(), lock, func(ctx context.Context, given *leasehold.Lease) error {
					time.Sleep(time.Second)
					lease = given
					lease.Abandon()
					<-ctx.Done()
					return work
				})
				require.ErrorIs(t, err, work)
				require.NotErrorIs(t, err, leasehold.ErrLost)
				rec, err := lock.Inspect(t.Context())
				require.NoError(t, err)
				require.False(t, rec.Released(), "only Release frees an abandoned lease")
				_, err = lock.TryAcquire(t.Context())
				require.ErrorIs(t, err, leasehold.ErrHeld)
				require.NoError(t, lease.Release(t.Context()))
				require.NoError(t, acquire(t, newLock(t, store)).Release(t.Context()))
			})
		})
	}
}

// A release that was asked for goes on at the end of Do, whatever was called besides.
func TestAReleaseThatHasFailedGoesOnAfterAbandon(t *testing.T) {
	for name, end := range map[string]func(ctx context.Context, lease *leasehold.Lease) error{
		"Release, then Abandon": func(ctx context.Context, lease *leasehold.Lease) error {
			err := lease.Release(ctx)
			lease.Abandon()
			return err
		},
		"Abandon, then Release": func(ctx context.Context, lease *leasehold.Lease) error {
			lease.Abandon()
			return lease.Release(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &faultStore{Store: leasehold.NewMemStore()}
				lock := newLock(t, store)
				require.NoError(t, lock.Do(t.Context(), func(ctx context.Context, lease *leasehold.Lease) error {
					over, cancel := context.WithCancel(ctx)
					cancel()
					store.next(fault{op: "put", err: errInjected})
					require.ErrorIs(t, end(over, lease), errInjected)
					return nil
				}))
				rec, err := lock.Inspect(t.Context())
				require.NoError(t, err)
				require.True(t, rec.Released())
			})
		})
	}
}
