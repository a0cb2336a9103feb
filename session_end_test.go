package leasehold_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
)

// heldUp holds up the next GET of one key on its way to the store.
type heldUp struct {
	leasehold.Store
	key string
	let chan struct{} // nil: not held up
}

func (s *heldUp) Get(ctx context.Context, key string) (leasehold.Object, error) {
	if let := s.let; key == s.key && let != nil {
		<-let
	}
	return s.Store.Get(ctx, key)
}

// The wait for a session whose object was replaced by another counts from the start of a GET, and not from its answer.
func TestAReplacedSessionIsWaitedForFromTheAnswerOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := []leasehold.Option{leasehold.WithSafetyMargin(500 * time.Millisecond), leasehold.WithRenewInterval(2 * time.Second)} // a request may take 4.1 s
		store := leasehold.NewMemStore()
		cut, renewed := &cutStore{Store: store}, make(chan time.Time, 1000)
		session, stop := runSession(t, cut, "sessions/a", append(opts, leasehold.WithObserver(func(e leasehold.Event) {
			if e.Kind == leasehold.EventRenewed && e.Key == "sessions/a" {
				renewed <- time.Now()
			}
		}))...)
		lease, err := leaningLock(t, session, "locks/x").Acquire(t.Context())
		require.NoError(t, err)
		held := &heldUp{Store: store, key: "sessions/a", let: make(chan struct{})}
		other, stopOther := runSession(t, held, "sessions/b", opts...)
		lock := leaningLock(t, other, "locks/x")
		<-renewed
		began := time.Now()
		got := make(chan *leasehold.Lease, 1)
		go func() {
			for {
				if next, err := lock.TryAcquire(t.Context()); err == nil {
					got <- next
					return
				}
				time.Sleep(10 * time.Millisecond)
			}
		}()
		last := <-renewed // while the GET is under way
		cut.down.Store(true)
		obj, err := store.Get(t.Context(), "sessions/a")
		require.NoError(t, err)
		_, err = store.PutIfMatch(t.Context(), "sessions/a", []byte(`{"expires_at":0,"token":0}`), obj.ETag)
		require.NoError(t, err)
		close(held.let)
		next := <-got
		valid := lease.Valid()
		t.Logf("after the GET was sent: last renewal %v, taken %v, deadline of the old lease %v", last.Sub(began), time.Since(began), lease.Deadline().Sub(began))
		stopOther()
		cut.down.Store(false)
		stop()
		require.False(t, valid, "two valid leases, tokens %d and %d", lease.Token(), next.Token())
	})
}

// A process whose electors and session end with one context.
func TestAGracefulEndIsOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &counting{Store: leasehold.NewMemStore()}
		session, err := leasehold.NewSession(store, "sessions/a", leasehold.WithLogger(nil))
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		for i := range 1000 {
			elector, err := leasehold.NewElector(leaningLock(t, session, fmt.Sprint("locks/", i)), leasehold.Callbacks{})
			require.NoError(t, err)
			go func() { _ = elector.Run(ctx) }()
		}
		go func() { _ = session.Run(ctx) }()
		time.Sleep(time.Minute + time.Second)
		before := store.puts.Load()
		cancel()
		time.Sleep(time.Minute)
		require.LessOrEqual(t, store.puts.Load()-before, int64(2))
	})
}

// The way back to a version that does not know sessions: no lock names the session any more.
func TestEachLockIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &counting{Store: leasehold.NewMemStore()}
		session, stop := runSession(t, store, "sessions/a", leasehold.WithEachLockReleased())
		var leases []*leasehold.Lease
		for i := range 100 {
			lease, err := leaningLock(t, session, fmt.Sprint("locks/", i)).Acquire(t.Context())
			require.NoError(t, err)
			leases = append(leases, lease)
		}
		ended := make(chan struct{})
		elector, err := leasehold.NewElector(leaningLock(t, session, "locks/elector"), leasehold.Callbacks{OnStartedLeading: func(ctx context.Context, _ *leasehold.Lease) {
			<-ctx.Done()
			time.Sleep(time.Second)
			close(ended)
		}})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = elector.Run(ctx) }()
		time.Sleep(time.Minute)
		before := store.puts.Load()
		cancel()
		stop()
		<-ended
		require.LessOrEqual(t, store.puts.Load()-before, int64(103)) // each lock, the session, and perhaps a renewal
		for i := range leases {
			rec, err := newLockOf(t, store, fmt.Sprint("locks/", i)).Inspect(t.Context())
			require.NoError(t, err)
			require.True(t, rec.Released())
			require.Nil(t, rec.Session)
			require.ErrorIs(t, context.Cause(leases[i].Context()), leasehold.ErrReleased)
		}
		for _, key := range []string{"locks/elector", "sessions/a"} {
			rec, err := newLockOf(t, store, key).Inspect(t.Context())
			require.NoError(t, err)
			require.True(t, rec.Released(), key)
		}
	})
}

// A store that refuses to write the locks does not keep the session from its end.
func TestEachLockIsReleasedIfItCanBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &counting{Store: leasehold.NewMemStore()}
		refusing := &refusingLocks{Store: store}
		session, stop := runSession(t, refusing, "sessions/a", leasehold.WithEachLockReleased())
		for i := range 100 {
			lease, err := leaningLock(t, session, fmt.Sprint("locks/", i)).Acquire(t.Context())
			require.NoError(t, err)
			defer lease.Release(t.Context()) // keeps it reachable
		}
		refusing.now.Store(true)
		began := time.Now()
		stop()
		require.Less(t, time.Since(began), 15*time.Second)
		rec, err := newLockOf(t, store, "sessions/a").Inspect(t.Context())
		require.NoError(t, err)
		require.True(t, rec.Released())
	})
}

// refusingLocks refuses to write the locks.
type refusingLocks struct {
	leasehold.Store
	now atomic.Bool
}

func (s *refusingLocks) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	if s.now.Load() && strings.HasPrefix(key, "locks/") {
		return "", errors.New("503 SlowDown")
	}
	return s.Store.PutIfMatch(ctx, key, body, etag)
}

// A lease is not reported as lost that was valid when its function returned.
func TestAFunctionThatReturnsJustBeforeTheSessionIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &cutStore{Store: leasehold.NewMemStore()}
		session, stop := runSession(t, store, "sessions/a")
		defer stop()
		ctx, cancel := context.WithCancel(t.Context())
		err := leaningLock(t, session, "locks/x").Do(ctx, func(ctx context.Context, lease *leasehold.Lease) error {
			store.down.Store(true)
			time.Sleep(time.Until(lease.Deadline()) - time.Millisecond)
			cancel()
			require.True(t, lease.Valid())
			return nil
		})
		require.NotErrorIs(t, err, leasehold.ErrLost)
		store.down.Store(false)
	})
}
