package locktable_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/locktable"
)

// runs is Run, whose panics it returns as errors.
func runs(ctx context.Context, tab *locktable.Table) (err error) {
	defer func() {
		if thrown, ok := recover().(error); ok {
			err = thrown
		}
	}()
	return tab.Run(ctx)
}

// If an observer panics, the panic goes on from Run. A function that still runs under a lease hears
// of it, and nobody gets its lock before it could have ended. Run may be called again.
func TestAPanicOfAnObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, boom := newCounting(), errors.New("boom")
		var panics atomic.Bool
		tab, err := locktable.New(store, key, locktable.WithLogger(silent),
			locktable.WithObserver(func(_ context.Context, e locktable.Event) {
				if e.Kind == locktable.EventRead && panics.CompareAndSwap(true, false) {
					panic(boom)
				}
			}))
		require.NoError(t, err)
		a, b := &member{Table: tab}, start(t, store)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- runs(ctx, tab) }()
		acted := make(chan time.Time, 1)
		over := make(chan error, 1)
		go func() {
			over <- a.Lock("x").Do(t.Context(), func(ctx context.Context, lease *locktable.Lease) error {
				panics.Store(true)
				<-ctx.Done()
				assert.False(t, lease.Valid())
				time.Sleep(ttl / 2)
				acted <- time.Now()
				return nil
			})
		}()
		require.ErrorIs(t, <-ended, boom)
		require.ErrorIs(t, tab.Check(nil), locktable.ErrNotRunning)
		next := acquire(t, b.Lock("x"))
		require.Len(t, acted, 1, "the function still runs, and another holds its lock")
		require.NoError(t, next.Release(t.Context()))
		require.Error(t, <-over)

		go func() { ended <- runs(ctx, tab) }()
		synctest.Wait() // until it has begun
		acquire(t, a.Lock("x"))
		stop()
		require.NoError(t, <-ended)
	})
}
