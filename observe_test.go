package leasehold_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
)

// A late answer does not announce a term again.
func TestATermIsAnnouncedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := leasehold.NewMemStore()
		slow := &faultStore{Store: mem}
		var seen []uint64
		lock := newLock(t, slow, leasehold.WithObserver(func(_ context.Context, e leasehold.Event) {
			if e.Kind == leasehold.EventNewLeader {
				seen = append(seen, e.Token)
			}
		}))
		one := acquire(t, newLock(t, mem))
		slow.next(fault{op: "get", apply: true, delay: time.Second})
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = lock.Inspect(t.Context()) }) // overtaken
		time.Sleep(100 * time.Millisecond)
		require.NoError(t, one.Release(t.Context()))
		acquire(t, newLock(t, mem))
		_, _ = lock.Inspect(t.Context())
		wg.Wait()
		_, _ = lock.Inspect(t.Context())
		require.Equal(t, []uint64{2}, seen)
	})
}

// A negative age is none.
func TestNegativeAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := leasehold.NewMemStore()
		acquire(t, newLock(t, mem, leasehold.WithManualRenewal()))
		_, err := newLock(t, &toldAge{mem, -time.Hour}).TryAcquire(t.Context())
		var held *leasehold.HeldError
		require.ErrorAs(t, err, &held)
		require.LessOrEqual(t, held.Wait, 15300*time.Millisecond)
	})
}
