package leasehold_test

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
)

var pod = []leasehold.Option{leasehold.WithHolder("pod-0"), leasehold.WithReclaim()}

// The user of an abandoned lease keeps nothing of it, and the garbage collector runs.
func TestAnAbandonedTermIsNotReclaimedByANamesake(t *testing.T) {
	onMemStore(t, func(t *testing.T, store leasehold.Store) {
		func() { acquire(t, newLock(t, store, pod...)).Abandon() }()
		for range 10 {
			time.Sleep(time.Second)
			runtime.GC()
		}
		namesake := newLock(t, store, pod...)
		_, err := namesake.TryAcquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrHeld)
		time.Sleep(15 * time.Second)
		err = tryAtOnce(t, namesake)
		require.ErrorIs(t, err, leasehold.ErrHeld, "nobody else has waited for longer than this one")
		time.Sleep(time.Second)
		require.EqualValues(t, 2, acquire(t, namesake).Token())
	})
}

// A renewal that was under way when the lease was abandoned makes its term last longer.
func TestARenewalThatLandsAfterAbandonKeepsANamesakeOut(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		namesake := newLock(t, store, pod...)
		func() {
			lease := acquire(t, newLock(t, store, append(pod, leasehold.WithManualRenewal())...))
			time.Sleep(10 * time.Second)
			store.next(fault{op: "put", apply: true, delay: time.Second})
			go func() { _ = lease.Renew(t.Context()) }()
			synctest.Wait()
			lease.Abandon()
		}()
		time.Sleep(14 * time.Second)
		runtime.GC()
		_, err := namesake.TryAcquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrHeld)
		time.Sleep(16 * time.Second)
		require.EqualValues(t, 2, acquire(t, namesake).Token())
	})
}

// A Lock with WithReclaim does not reclaim from one without it, in the same process and under the
// same holder name.
func TestReclaimFromASiblingWithoutTheOption(t *testing.T) {
	onMemStore(t, func(t *testing.T, store leasehold.Store) {
		one := newLock(t, store, leasehold.WithHolder("pod-0"))
		two := newLock(t, store, leasehold.WithHolder("pod-0"), leasehold.WithReclaim())
		lease := acquire(t, one)
		_, err := two.TryAcquire(t.Context())
		require.True(t, lease.Valid())
		require.ErrorIs(t, err, leasehold.ErrHeld, "locks of one process do not reclaim from each other")
	})
}

func TestOneNameIsReclaimedByOneLockOfAProcessOnly(t *testing.T) {
	onMemStore(t, func(t *testing.T, store leasehold.Store) {
		one, two := newLock(t, store, pod...), newLock(t, newFaultStore(store), pod...)
		lease := acquire(t, one)
		_, err := two.TryAcquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrHeld)
		require.True(t, lease.Valid())
		require.NoError(t, lease.Release(t.Context()))
		next := acquire(t, two)
		_, err = one.TryAcquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrHeld)
		require.NoError(t, next.Release(t.Context()))
	})
	synctest.Test(t, func(t *testing.T) { // while one has landed in the store, but does not know yet
		store := newFaultStore(leasehold.NewMemStore())
		one, two := newLock(t, store, pod...), newLock(t, store, pod...)
		store.next(fault{op: "put", apply: true, delay: time.Second})
		got := make(chan *leasehold.Lease)
		go func() {
			lease, _ := one.TryAcquire(t.Context())
			got <- lease
		}()
		time.Sleep(500 * time.Millisecond)
		_, err := two.TryAcquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrHeld)
		lease := <-got
		require.True(t, lease.Valid())
		require.NoError(t, lease.Release(t.Context()))
	})
}
