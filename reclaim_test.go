package leasehold_test

import (
	"context"
	"log/slog"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/clock"
)

var pod = []leasehold.Option{leasehold.WithIdentity("pod-0"), leasehold.WithReclaim()}

// The user of an abandoned lease keeps nothing of it, and the garbage collector runs.
func TestAnAbandonedTermIsNotReclaimedByANamesake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasehold.NewMemStore()
		func() { acquire(t, newLock(t, store, pod...)).Abandon() }()
		for range 10 {
			time.Sleep(time.Second)
			runtime.GC()
		}
		namesake := newLock(t, store, pod...)
		_, err := namesake.TryAcquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrHeld)
		time.Sleep(5*time.Second - 1)
		_, err = namesake.TryAcquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrHeld)
		time.Sleep(time.Second)
		require.EqualValues(t, 2, acquire(t, namesake).Token())
	})
}

// A renewal that was under way when the lease was abandoned makes its term last longer.
func TestARenewalThatLandsAfterAbandonKeepsANamesakeOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faultStore{Store: leasehold.NewMemStore()}
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
		time.Sleep(2 * time.Second)
		require.EqualValues(t, 2, acquire(t, namesake).Token())
	})
}

// wrapped is a Store that cannot be compared.
type wrapped struct {
	leasehold.Store
	_ func()
}

func TestStoresThatCannotBeComparedAreTakenForOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasehold.NewMemStore()
		lease := acquire(t, newLock(t, wrapped{Store: store}, pod...))
		for _, s := range []leasehold.Store{wrapped{Store: store}, store} {
			_, err := newLock(t, s, pod...).TryAcquire(t.Context())
			require.ErrorIs(t, err, leasehold.ErrHeld)
		}
		require.True(t, lease.Valid())
		require.NoError(t, lease.Release(t.Context()))
	})
}

// A Lock with a name is kept only for as long as a term of it keeps others out.
func TestALockWithANameIsCollectedAfterItsTerm(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, l *leasehold.Lock, store *faultStore){
		"never tried": func(*testing.T, *leasehold.Lock, *faultStore) {},
		"failed try": func(t *testing.T, l *leasehold.Lock, store *faultStore) {
			store.next(fault{op: "get", err: errInjected})
			_, err := l.TryAcquire(t.Context())
			require.ErrorIs(t, err, errInjected)
		},
		"released": func(t *testing.T, l *leasehold.Lock, _ *faultStore) {
			require.NoError(t, acquire(t, l).Release(t.Context()))
		},
		"not released": func(t *testing.T, l *leasehold.Lock, store *faultStore) {
			lease := acquire(t, l)
			store.down.Store(true)
			require.Error(t, lease.Release(t.Context()))
		},
		"abandoned": func(t *testing.T, l *leasehold.Lock, _ *faultStore) {
			acquire(t, l).Abandon()
			time.Sleep(time.Minute)
		},
		"abandoned during a renewal": func(t *testing.T, l *leasehold.Lock, store *faultStore) {
			lease := acquire(t, l)
			time.Sleep(time.Second)
			store.next(fault{op: "put", apply: true, delay: time.Second})
			done := make(chan error)
			go func() { done <- lease.Renew(t.Context()) }()
			synctest.Wait()
			lease.Abandon()
			require.ErrorIs(t, <-done, leasehold.ErrReleased)
			time.Sleep(time.Minute)
		},
		"abandoned in a function": func(t *testing.T, l *leasehold.Lock, _ *faultStore) {
			require.NoError(t, l.Do(t.Context(), func(_ context.Context, lease *leasehold.Lease) error {
				lease.Abandon()
				time.Sleep(time.Minute)
				return nil
			}))
		},
		"lost": func(t *testing.T, l *leasehold.Lock, store *faultStore) {
			lease := acquire(t, l)
			crash(store)
			<-lease.Context().Done()
			time.Sleep(time.Minute)
		},
		"lost in a function": func(t *testing.T, l *leasehold.Lock, store *faultStore) {
			require.ErrorIs(t, l.Do(t.Context(), func(context.Context, *leasehold.Lease) error {
				crash(store)
				time.Sleep(time.Minute)
				return nil
			}), leasehold.ErrLost)
		},
		"dropped": func(t *testing.T, l *leasehold.Lock, _ *faultStore) {
			acquire(t, l)
			for range 10 {
				runtime.GC()
				time.Sleep(10 * time.Second)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &faultStore{Store: leasehold.NewMemStore()}
				lock := newLock(t, store, pod...)
				kept := weak.Make(lock)
				end(t, lock, store)
				require.Eventually(t, func() bool {
					runtime.GC()
					return kept.Value() == nil
				}, time.Minute, time.Second)
			})
		})
	}
}

// A Lock with WithReclaim does not reclaim from one without it, in the same process and under the same identity.
func TestReclaimFromASiblingWithoutTheOption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasehold.NewMemStore()
		one := newLock(t, store, leasehold.WithIdentity("pod-0"))
		two := newLock(t, store, leasehold.WithIdentity("pod-0"), leasehold.WithReclaim())
		lease := acquire(t, one)
		_, err := two.TryAcquire(t.Context())
		require.True(t, lease.Valid())
		require.ErrorIs(t, err, leasehold.ErrHeld, "Locks that share a Store value, a key and an identity do not reclaim from each other")
	})
}

// An observer or logger may use another Lock of the same identity.
func TestObserversRunUnderNoMutexOfReclaim(t *testing.T) {
	store := leasehold.NewMemStore()
	c := newBrokenClock()
	third, err := leasehold.NewLock(store, "locks/third", leasehold.WithIdentity("pod-0"), leasehold.WithReclaim())
	require.NoError(t, err)
	namesake, err := leasehold.NewLock(store, "locks/third", leasehold.WithIdentity("pod-0"))
	require.NoError(t, err)
	_, err = namesake.TryAcquire(t.Context()) // so that third has to ask whether it may reclaim
	require.NoError(t, err)
	opts := []leasehold.Option{withClock(c), leasehold.WithLogger(slog.New(slog.DiscardHandler)), leasehold.WithIdentity("pod-0"), leasehold.WithReclaim(), leasehold.WithManualRenewal()}
	one, err := leasehold.NewLock(store, key, append(opts, leasehold.WithObserver(func(_ context.Context, e leasehold.Event) {
		if e.Kind == leasehold.EventLost {
			_, _ = third.TryAcquire(context.Background()) // another lock altogether
		}
	}))...)
	require.NoError(t, err)
	two, err := leasehold.NewLock(store, key, opts...)
	require.NoError(t, err)
	_, err = one.TryAcquire(t.Context())
	require.NoError(t, err)
	c.move(clock.Reading{Mono: 13 * time.Second, Wall: 13 * time.Second, Boot: 13 * time.Second})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = two.TryAcquire(context.Background())
	}()
	select {
	case <-done:
	case <-time.After(2 * time.Second):
		t.Fatal("deadlock: the observer of a lost lease is called under the mutex of all reclaiming locks")
	}
}

func TestOneIdentityIsReclaimedByOneLockOfAProcessOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasehold.NewMemStore()
		pod := []leasehold.Option{leasehold.WithIdentity("pod-0"), leasehold.WithReclaim()}
		one, two := newLock(t, store, pod...), newLock(t, store, pod...)
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
		store := &faultStore{Store: leasehold.NewMemStore()}
		pod := []leasehold.Option{leasehold.WithIdentity("pod-0"), leasehold.WithReclaim()}
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
