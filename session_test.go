package leasehold_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
)

// counting counts the requests of a Store by kind.
type counting struct {
	leasehold.Store
	gets, puts atomic.Int64
}

func (c *counting) Get(ctx context.Context, key string) (leasehold.Object, error) {
	c.gets.Add(1)
	return c.Store.Get(ctx, key)
}

func (c *counting) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	c.puts.Add(1)
	return c.Store.PutIfMatch(ctx, key, body, etag)
}

func (c *counting) PutIfNoneMatch(ctx context.Context, key string, body []byte) (string, error) {
	c.puts.Add(1)
	return c.Store.PutIfNoneMatch(ctx, key, body)
}

// runSession runs a session until the result is called, which waits for its end.
func runSession(t *testing.T, s leasehold.Store, key string, opts ...leasehold.Option) (*leasehold.Session, context.CancelFunc) {
	t.Helper()
	session, err := leasehold.NewSession(s, key, append([]leasehold.Option{leasehold.WithLogger(nil)}, opts...)...)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- session.Run(ctx) }()
	stop := func() {
		cancel()
		require.NoError(t, <-done)
	}
	return session, stop
}

func leaningLock(t *testing.T, s *leasehold.Session, key string, opts ...leasehold.Option) *leasehold.Lock {
	t.Helper()
	l, err := s.Lock(key, opts...)
	require.NoError(t, err)
	return l
}

func TestSessionHoldsManyLocksWithOneHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &counting{Store: leasehold.NewMemStore()}
		session, stop := runSession(t, store, "sessions/a")
		var leases []*leasehold.Lease
		for i := range 100 {
			lease, err := leaningLock(t, session, fmt.Sprint("locks/", i)).Acquire(t.Context())
			require.NoError(t, err)
			leases = append(leases, lease)
		}
		time.Sleep(time.Minute)
		before := store.puts.Load()
		time.Sleep(10 * time.Minute)
		renewals := store.puts.Load() - before
		require.InDelta(t, 120, renewals, 10)
		for _, lease := range leases {
			require.True(t, lease.Valid())
		}
		before = store.puts.Load()
		stop()
		require.LessOrEqual(t, store.puts.Load()-before, int64(2), "the release, and a renewal during the safety margin")
		for _, lease := range leases {
			require.False(t, lease.Valid())
			require.ErrorIs(t, context.Cause(lease.Context()), leasehold.ErrReleased)
		}
		other, stop := runSession(t, store, "sessions/b")
		began := time.Now()
		lease, err := leaningLock(t, other, "locks/7").Acquire(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 2, lease.Token())
		require.Less(t, time.Since(began), time.Second)
		stop()
	})
}

func TestLocksOfADeadSessionAreTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasehold.NewMemStore()
		cut := &cutStore{Store: store}
		session, _ := runSession(t, cut, "sessions/a")
		lease, err := leaningLock(t, session, "locks/x").Acquire(t.Context())
		require.NoError(t, err)
		other, stop := runSession(t, store, "sessions/b")
		time.Sleep(10 * time.Second)
		cut.down.Store(true)
		died := time.Now()
		next, err := leaningLock(t, other, "locks/x").Acquire(t.Context())
		require.NoError(t, err)
		require.ErrorIs(t, lease.Context().Err(), context.Canceled)
		require.ErrorIs(t, context.Cause(lease.Context()), leasehold.ErrLost)
		require.EqualValues(t, 2, next.Token())
		require.Less(t, time.Since(died), 2*15*time.Second)
		require.NoError(t, next.Release(t.Context()))
		stop()
	})
}

// cutStore fails while it is down.
type cutStore struct {
	leasehold.Store
	down atomic.Bool
}

var errCut = errors.New("cut off")

func (c *cutStore) Get(ctx context.Context, key string) (leasehold.Object, error) {
	if c.down.Load() {
		return leasehold.Object{}, errCut
	}
	return c.Store.Get(ctx, key)
}

func (c *cutStore) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	if c.down.Load() {
		return "", errCut
	}
	return c.Store.PutIfMatch(ctx, key, body, etag)
}

func (c *cutStore) PutIfNoneMatch(ctx context.Context, key string, body []byte) (string, error) {
	if c.down.Load() {
		return "", errCut
	}
	return c.Store.PutIfNoneMatch(ctx, key, body)
}

func TestWaitersOfASessionReadOnlyTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasehold.NewMemStore()
		session, stop := runSession(t, store, "sessions/a")
		counted := &counting{Store: store}
		other, stopOther := runSession(t, counted, "sessions/b")
		ctx, cancel := context.WithCancel(t.Context())
		var first *leasehold.Lease
		var kept []*leasehold.Lease // or they are released when they are garbage collected
		got := make(chan *leasehold.Lease, 100)
		for i := range 100 {
			key := fmt.Sprint("locks/", i)
			lease, err := leaningLock(t, session, key).Acquire(ctx)
			require.NoError(t, err)
			if kept = append(kept, lease); first == nil {
				first = lease
			}
			go func() {
				if lease, err := leaningLock(t, other, key).Acquire(ctx); err == nil {
					got <- lease
				}
			}()
		}
		time.Sleep(time.Minute)
		before := counted.gets.Load()
		time.Sleep(5 * time.Minute)
		require.Less(t, counted.gets.Load()-before, int64(150), "a read per poll interval, not 100")
		require.NoError(t, first.Release(ctx))
		released := time.Now()
		lease := <-got
		require.EqualValues(t, 2, lease.Token())
		require.Less(t, time.Since(released), 6*time.Second)
		cancel()
		synctest.Wait()
		stopOther()
		stop()
		runtime.KeepAlive(kept)
	})
}

// holding acquires a lock and keeps the lease reachable, because a session releases what is garbage collected.
func holding(t *testing.T, l *leasehold.Lock, ctx context.Context) error {
	lease, err := l.Acquire(ctx)
	t.Cleanup(func() { runtime.KeepAlive(lease) })
	return err
}
