package leasehold_test

import (
	"context"
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
		lock, err := leasehold.NewLock(mem, "k", leasehold.WithObserver(func(e leasehold.Event) { kinds[e.Kind].Add(1) }))
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
