package locktable_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/locktable"
)

// Members that remember a higher revision than the table has lift it, so a process that has just
// started gets no token that another had before.
func TestTokensAfterARestore(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		a := start(t, store)
		acquire(t, a.Lock("kept"))
		old, err := store.Get(t.Context(), key)
		require.NoError(t, err)
		var last uint64
		for range 50 {
			lease := acquire(t, a.Lock("x"))
			last = lease.Token()
			require.NoError(t, lease.Release(t.Context()))
		}
		overwrite(t, store, old.Body)
		time.Sleep(6 * ttl) // a member that only holds looks every few TTLs
		late := start(t, store)
		require.Greater(t, acquire(t, late.Lock("x")).Token(), last)
	})
}

// After its end, the deadline of a lease does not lie ahead.
func TestDeadlineAfterRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := start(t, newCounting())
		lease := acquire(t, a.Lock("x"))
		require.True(t, lease.Deadline().After(time.Now()))
		time.Sleep(time.Second)
		require.NoError(t, lease.Release(t.Context()))
		require.False(t, lease.Deadline().After(time.Now()))
		ended := lease.Deadline()
		time.Sleep(ttl)
		require.Equal(t, ended, lease.Deadline())
	})
}

// A call under leases that together leave it too few slots would wait for itself.
func TestSlotsUnderSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := start(t, newCounting())
		err := a.Semaphore("gpu", 3).Do(soon(t), func(ctx context.Context, _ *locktable.Lease) error {
			return a.Semaphore("gpu", 3).Do(ctx, func(ctx context.Context, _ *locktable.Lease) error {
				_, err := a.Semaphore("gpu", 3).Slots(2).Acquire(ctx)
				require.ErrorIs(t, err, leasehold.ErrHeld)
				require.ErrorContains(t, err, "would wait for itself")
				return a.Semaphore("gpu", 3).Do(ctx, func(context.Context, *locktable.Lease) error { return nil })
			})
		})
		require.NoError(t, err)
	})
}

// A member that ends its own term, because it cannot free what others wait for, has lost what it
// held: its observer counts a loss, and no release.
func TestATermThatEndsItself(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		cut := alone(store)
		var d diary
		a := start(t, cut, locktable.WithObserver(d.note))
		quiet, freed := acquire(t, a.Lock("quiet")), acquire(t, a.Lock("freed"))
		cut.set(on("put", errLost), nil)
		go func() { _ = freed.Release(soon(t)) }()
		<-quiet.Context().Done()
		require.ErrorIs(t, context.Cause(quiet.Context()), leasehold.ErrLost)
		require.ErrorIs(t, context.Cause(quiet.Context()), errLost)
		time.Sleep(2 * ttl)
		require.Equal(t, []string{"acquired freed", "acquired quiet", "lost quiet", "released freed"}, d.all())
		runtime.KeepAlive(freed)
		cut.set(nil, nil)
	})
}
