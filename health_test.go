package leasehold_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
)

// takesNoWrites is a store that answers each write with a conflict.
type takesNoWrites struct {
	leasehold.Store
	conflicts atomic.Bool
}

func (s *takesNoWrites) PutIfNoneMatch(ctx context.Context, key string, body []byte) (string, error) {
	if s.conflicts.Load() {
		return "", fmt.Errorf("writing %q: %w", key, leasehold.ErrConflict)
	}
	return s.Store.PutIfNoneMatch(ctx, key, body)
}

func (s *takesNoWrites) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	if s.conflicts.Load() {
		return "", fmt.Errorf("writing %q: %w", key, leasehold.ErrConflict)
	}
	return s.Store.PutIfMatch(ctx, key, body, etag)
}

// A Lock for which somebody waits is healthy when an elector that waits is: not if the store
// answers, and yet lets nobody have the lock.
func TestCheckOfALockWhileNobodyCanLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := leasehold.NewMemStore()
		require.NoError(t, acquire(t, newLock(t, mem)).Release(t.Context()))
		store := &takesNoWrites{Store: mem}
		store.conflicts.Store(true)
		lock := newLock(t, store)
		elector, err := leasehold.NewElector(newLock(t, store), leasehold.Callbacks{})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		wait := func(ctx context.Context) (ended chan error) {
			ended = make(chan error, 1)
			go func() {
				lease, err := lock.Acquire(ctx)
				if err == nil {
					err = lease.Release(context.WithoutCancel(ctx))
				}
				ended <- err
			}()
			return ended
		}
		short, stop := context.WithCancel(ctx)
		first, run := wait(short), make(chan error, 1)
		go func() { run <- elector.Run(ctx) }()
		healthy := func(want bool) {
			t.Helper()
			synctest.Wait()
			if want {
				require.NoError(t, elector.Check(nil))
				require.NoError(t, lock.Check(nil))
				return
			}
			require.Error(t, elector.Check(nil))
			require.ErrorContains(t, lock.Check(nil), "conflicting write")
		}
		time.Sleep(29 * time.Second)
		healthy(true)
		time.Sleep(2 * time.Second)
		healthy(false)

		stop()
		require.ErrorIs(t, <-first, context.Canceled)
		require.NoError(t, lock.Check(nil), "nobody waits")
		time.Sleep(time.Hour)
		second := wait(ctx)
		time.Sleep(29 * time.Second)
		require.NoError(t, lock.Check(nil), "what failed before does not count")
		time.Sleep(2 * time.Second)
		healthy(false)

		other := newLock(t, mem, leasehold.WithTTL(time.Minute))
		lease := acquire(t, other)
		time.Sleep(time.Minute)
		healthy(true)
		lease.Abandon()
		time.Sleep(4 * time.Minute)
		healthy(false)
		mine, err := other.Resume(ctx, lease.Handle()) // the same term goes on, so no other has begun
		require.NoError(t, err)
		time.Sleep(10 * time.Minute)
		healthy(true)

		store.conflicts.Store(false)
		require.NoError(t, mine.Release(ctx))
		time.Sleep(10 * time.Minute)
		healthy(true)
		cancel()
		require.NoError(t, <-run)
		if err := <-second; err != nil {
			require.ErrorIs(t, err, context.Canceled)
		}
	})
}

// A store that does not answer is a failure once somebody waits for it, and a function that
// outlives its lease is one in any case.
func TestCheckOfALock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := leasehold.NewMemStore()
		store := &faultStore{Store: mem}
		lock := newLock(t, store)
		other := acquire(t, newLock(t, mem))
		hangs, ended := make(chan struct{}), make(chan error, 1)
		go func() {
			ended <- lock.Do(t.Context(), func(context.Context, *leasehold.Lease) error {
				<-hangs
				return nil
			})
		}()
		time.Sleep(time.Hour)
		require.NoError(t, lock.Check(nil))
		store.down.Store(true)
		time.Sleep(25 * time.Second)
		require.NoError(t, lock.Check(nil))
		time.Sleep(10 * time.Second)
		require.ErrorContains(t, lock.Check(nil), "no answer from the store")
		store.down.Store(false)
		time.Sleep(20 * time.Second)
		require.NoError(t, lock.Check(nil))

		require.NoError(t, other.Release(t.Context()))
		time.Sleep(time.Hour)
		require.NoError(t, lock.Check(nil), "it leads")
		remove(t, mem) // so that the term is lost
		time.Sleep(10 * time.Second)
		require.ErrorContains(t, lock.Check(nil), "a function still runs although its lease (token 2) is over")
		close(hangs)
		require.ErrorIs(t, <-ended, leasehold.ErrLost)
		require.NoError(t, lock.Check(nil))
	})
	require.Error(t, new(leasehold.Lock).Check(nil))
}
