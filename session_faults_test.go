package leasehold_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
)

// keyFaults is a connection on which requests have faults, by kind and key.
type keyFaults struct {
	leasehold.Store
	mu   sync.Mutex
	plan func(op, key string) *fault // nil: the request goes well
}

func (s *keyFaults) set(plan func(op, key string) *fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plan = plan
}

func faulty[T any](ctx context.Context, s *keyFaults, op, key string, request func(context.Context) (T, error)) (got T, err error) {
	s.mu.Lock()
	f := &fault{apply: true}
	if s.plan != nil {
		if planned := s.plan(op, key); planned != nil {
			f = planned
		}
	}
	s.mu.Unlock()
	switch {
	case f.apply && f.later > 0:
		time.AfterFunc(f.later, func() { _, _ = request(context.WithoutCancel(ctx)) })
	case f.apply:
		got, err = request(context.WithoutCancel(ctx))
	}
	time.Sleep(f.delay)
	if f.err != nil {
		var none T
		return none, f.err
	}
	return got, err
}

func (s *keyFaults) Get(ctx context.Context, key string) (leasehold.Object, error) {
	return faulty(ctx, s, "get", key, func(ctx context.Context) (leasehold.Object, error) { return s.Store.Get(ctx, key) })
}

func (s *keyFaults) PutIfNoneMatch(ctx context.Context, key string, body []byte) (string, error) {
	return faulty(ctx, s, "put", key, func(ctx context.Context) (string, error) { return s.Store.PutIfNoneMatch(ctx, key, body) })
}

func (s *keyFaults) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	return faulty(ctx, s, "put", key, func(ctx context.Context) (string, error) { return s.Store.PutIfMatch(ctx, key, body, etag) })
}

var errReset = errors.New("connection reset by peer")

// failing is a plan under which all requests fail whose kind and key begin so.
func failing(kind, prefix string) func(op, key string) *fault {
	return func(op, key string) *fault {
		if strings.HasPrefix(op, kind) && strings.HasPrefix(key, prefix) {
			return &fault{err: errReset}
		}
		return nil
	}
}

const (
	sessionA, sessionB = "sessions/a", "sessions/b"
	lockX              = "locks/x"
	sessionTTL         = 15 * time.Second
)

// heldUnder returns a session on a connection, and what stops it.
func heldUnder(t *testing.T, s leasehold.Store, key string, opts ...leasehold.Option) (*leasehold.Session, func()) {
	t.Helper()
	session, stop := runSession(t, s, key, opts...)
	require.Eventually(t, session.Held, time.Minute, time.Millisecond)
	return session, stop
}

func TestAnAcquisitionOfUnknownOutcomeIsFreed(t *testing.T) {
	for name, f := range map[string]fault{
		"lands late":                      {apply: true, later: 7 * time.Second, err: errReset},
		"never lands":                     {err: errReset},
		"has landed, and the read failed": {apply: true, err: errReset},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := leasehold.NewMemStore()
				conn := &keyFaults{Store: store}
				session, stop := heldUnder(t, conn, sessionA)
				conn.set(func(op, key string) *fault {
					switch {
					case key != lockX:
						return nil
					case op == "put":
						return &f
					case f.later == 0 && f.apply:
						return &fault{err: errReset}
					}
					return nil
				})
				before, err := leaningLock(t, session, lockX).TryAcquire(t.Context())
				require.Error(t, err, "%v", before)
				require.NotErrorIs(t, err, leasehold.ErrHeld)
				conn.set(nil)
				time.Sleep(sessionTTL)
				require.True(t, session.Held())
				other, stopOther := heldUnder(t, store, sessionB)
				lease, err := leaningLock(t, other, lockX).TryAcquire(t.Context())
				require.NoError(t, err)
				require.NoError(t, lease.Release(t.Context()))
				stopOther()
				stop()
			})
		})
	}
}

func TestAFailedReleaseIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasehold.NewMemStore()
		conn := &keyFaults{Store: store}
		session, stop := heldUnder(t, conn, sessionA)
		lease, err := leaningLock(t, session, lockX).TryAcquire(t.Context())
		require.NoError(t, err)
		conn.set(failing("put", lockX))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, lease.Release(ctx), errReset)
		time.Sleep(2 * sessionTTL)
		conn.set(nil)
		time.Sleep(sessionTTL)
		other, stopOther := heldUnder(t, store, sessionB)
		next, err := leaningLock(t, other, lockX).TryAcquire(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 2, next.Token())
		stopOther()
		stop()
	})
}

func TestAFunctionThatDoesNotReturnUnderASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasehold.NewMemStore()
		var overran atomic.Bool
		session, stop := heldUnder(t, store, sessionA, leasehold.WithObserver(func(e leasehold.Event) {
			if e.Kind == leasehold.EventOverrun && e.Key == lockX {
				overran.Store(true)
			}
		}))
		ctx, cancel := context.WithCancel(t.Context())
		hang, done := make(chan struct{}), make(chan error)
		go func() {
			done <- leaningLock(t, session, lockX).Do(ctx, func(context.Context, *leasehold.Lease) error {
				<-hang
				return nil
			})
		}()
		time.Sleep(time.Second)
		cancel()
		began := time.Now()
		other, stopOther := heldUnder(t, store, sessionB)
		waiting, cancelWait := context.WithTimeout(t.Context(), 2*sessionTTL)
		defer cancelWait()
		next, err := leaningLock(t, other, lockX).Acquire(waiting)
		took, held := time.Since(began), session.Held()
		close(hang)
		ended := <-done
		stopOther()
		stop()
		require.NoError(t, err)
		require.EqualValues(t, 2, next.Token())
		require.Greater(t, took, sessionTTL+3*time.Second, "a TTL, and the safety margin")
		require.True(t, overran.Load(), "loudly")
		require.True(t, held)
		require.ErrorIs(t, ended, leasehold.ErrLost)
	})
}

func TestLocksOfASessionAreLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasehold.NewMemStore()
		session, stop := heldUnder(t, store, sessionA)
		var leases []*leasehold.Lease
		for _, key := range []string{lockX, "locks/y"} {
			lease, err := leaningLock(t, session, key).TryAcquire(t.Context())
			require.NoError(t, err)
			leases = append(leases, lease)
		}
		obj, err := store.Get(t.Context(), lockX)
		require.NoError(t, err)
		require.NoError(t, store.DeleteIfMatch(t.Context(), lockX, obj.ETag))
		time.Sleep(101 * sessionTTL)
		require.ErrorIs(t, context.Cause(leases[0].Context()), leasehold.ErrLost)
		require.ErrorContains(t, context.Cause(leases[0].Context()), "the lock object was deleted")
		require.True(t, leases[1].Valid())
		stop()
	})
}

func TestRenewUnderASessionReadsTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasehold.NewMemStore()
		session, stop := heldUnder(t, store, sessionA)
		lease, err := leaningLock(t, session, lockX).TryAcquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, lease.Renew(t.Context()))
		require.NoError(t, lease.Commit(t.Context(), []byte("state")))
		require.NoError(t, lease.Renew(t.Context()))
		obj, err := store.Get(t.Context(), lockX)
		require.NoError(t, err)
		require.Contains(t, string(obj.Body), `"expires_at":253370764800,`)
		require.NotContains(t, string(obj.Body), `"ttl":0`)
		require.NoError(t, store.DeleteIfMatch(t.Context(), lockX, obj.ETag))
		require.ErrorIs(t, lease.Renew(t.Context()), leasehold.ErrLost)
		stop()
	})
}

func TestAGapIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasehold.NewMemStore()
		session, stop := heldUnder(t, store, sessionA)
		other, stopOther := heldUnder(t, &counting{Store: store}, sessionB) // so that no release wakes it
		first, err := leaningLock(t, session, lockX).TryAcquire(t.Context())
		require.NoError(t, err)
		once, err := leaningLock(t, session, "locks/once").TryAcquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, once.Release(t.Context()))
		got := make(chan *leasehold.Lease)
		go func() {
			lease, err := leaningLock(t, other, lockX).Acquire(t.Context())
			require.NoError(t, err)
			got <- lease
		}()
		time.Sleep(10 * sessionTTL)
		require.NoError(t, first.Release(t.Context()))
		released := time.Now()
		for i := range 300 { // more than a record tells
			lease, err := leaningLock(t, session, fmt.Sprint("locks/", i)).TryAcquire(t.Context())
			require.NoError(t, err)
			require.NoError(t, lease.Release(t.Context()))
		}
		lease := <-got
		require.EqualValues(t, 2, lease.Token())
		require.Less(t, time.Since(released), 2*sessionTTL)
		stopOther()
		stop()
	})
}

// cutUntilLost cuts conn until the session's lease is lost, and returns when that was.
func cutUntilLost(t *testing.T, conn *keyFaults, lease *leasehold.Lease) time.Time {
	t.Helper()
	conn.set(failing("", ""))
	<-lease.Context().Done()
	conn.set(nil)
	require.ErrorIs(t, context.Cause(lease.Context()), leasehold.ErrLost)
	require.False(t, lease.Valid())
	return time.Now()
}

func TestASessionWaitsForTheMargin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &keyFaults{Store: leasehold.NewMemStore()}
		session, stop := heldUnder(t, conn, sessionA)
		lease, err := leaningLock(t, session, lockX).TryAcquire(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Minute)
		lost := cutUntilLost(t, conn, lease)
		require.False(t, session.Held())
		next, err := leaningLock(t, session, lockX).Acquire(t.Context())
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(lost), 3*time.Second)
		require.Less(t, time.Since(lost), 10*time.Second)
		require.EqualValues(t, 2, next.Token())
		stop()
	})
}

func TestAStuckFunctionDoesNotKeepTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &keyFaults{Store: leasehold.NewMemStore()}
		session, stop := heldUnder(t, conn, sessionA)
		hang, leading, done := make(chan struct{}), make(chan *leasehold.Lease), make(chan error)
		go func() {
			done <- leaningLock(t, session, lockX).Do(t.Context(), func(_ context.Context, lease *leasehold.Lease) error {
				leading <- lease
				<-hang
				return nil
			})
		}()
		lease := <-leading
		time.Sleep(time.Minute)
		lost := cutUntilLost(t, conn, lease)
		time.Sleep(time.Second)
		require.False(t, session.Held(), "while the function may run for its margin")
		require.Eventually(t, session.Held, time.Minute, time.Millisecond)
		require.GreaterOrEqual(t, time.Since(lost), 3*time.Second)
		require.Less(t, time.Since(lost), sessionTTL)
		close(hang)
		require.ErrorIs(t, <-done, leasehold.ErrLost)
		stop()
	})
}

func TestCommitAfterTheEndOfTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &keyFaults{Store: leasehold.NewMemStore()}
		session, stop := heldUnder(t, conn, sessionA)
		lease, err := leaningLock(t, session, lockX).TryAcquire(t.Context())
		require.NoError(t, err)
		conn.set(func(op, key string) *fault {
			if key == sessionA {
				return &fault{err: errReset}
			}
			return &fault{apply: true, delay: time.Until(lease.Deadline()) + time.Second}
		})
		require.ErrorIs(t, lease.Commit(t.Context(), []byte("late")), leasehold.ErrLost)
		conn.set(nil)
		stop()
	})
}

func TestAnAcquisitionAfterTheEndOfTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &keyFaults{Store: leasehold.NewMemStore()}
		session, stop := heldUnder(t, conn, sessionA)
		first, err := leaningLock(t, session, "locks/first").TryAcquire(t.Context())
		require.NoError(t, err)
		conn.set(func(op, key string) *fault {
			switch {
			case key == sessionA:
				return &fault{err: errReset}
			case op == "put":
				return &fault{apply: true, delay: time.Until(first.Deadline()) + time.Second}
			}
			return nil
		})
		lease, err := leaningLock(t, session, lockX).TryAcquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrNoSession)
		require.Nil(t, lease)
		conn.set(nil)
		stop()
	})
}

func TestBreakOfALeaningLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasehold.NewMemStore()
		session, stop := heldUnder(t, store, sessionA)
		lease, err := leaningLock(t, session, lockX).TryAcquire(t.Context())
		require.NoError(t, err)
		err = newLockOf(t, store, lockX).Break(t.Context(), 1)
		require.ErrorContains(t, err, `break the session "sessions/a" with token 1, which ends all its locks`)
		require.NoError(t, lease.Renew(t.Context()))
		require.NoError(t, newLockOf(t, store, sessionA).Break(t.Context(), 1))
		next, err := newLockOf(t, store, lockX).TryAcquire(t.Context())
		require.NoError(t, err, "at once, and its holder has to check tokens until it notices")
		require.EqualValues(t, 2, next.Token())
		<-lease.Context().Done()
		require.ErrorIs(t, context.Cause(lease.Context()), leasehold.ErrLost)
		stop()
	})
}

func newLockOf(t *testing.T, s leasehold.Store, key string) *leasehold.Lock {
	t.Helper()
	l, err := leasehold.NewLock(s, key, leasehold.WithLogger(nil))
	require.NoError(t, err)
	return l
}

// prefixed is a Store below a prefix.
type prefixed struct {
	*leasehold.MemStore
	prefix string
}

func (s prefixed) Get(ctx context.Context, key string) (leasehold.Object, error) {
	return s.MemStore.Get(ctx, s.prefix+key)
}

func (s prefixed) PutIfNoneMatch(ctx context.Context, key string, body []byte) (string, error) {
	return s.MemStore.PutIfNoneMatch(ctx, s.prefix+key, body)
}

func (s prefixed) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	return s.MemStore.PutIfMatch(ctx, s.prefix+key, body, etag)
}

func TestAnotherPrefix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasehold.NewMemStore()
		session, stop := heldUnder(t, prefixed{store, "team/"}, sessionA)
		err := holding(t, leaningLock(t, session, lockX), t.Context())
		require.NoError(t, err)
		_, err = newLockOf(t, store, "team/"+lockX).Acquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrPermanent)
		require.ErrorContains(t, err, `its record says that it is the lock "locks/x"`)
		stop()
	})
}

func TestBadSessions(t *testing.T) {
	store := leasehold.NewMemStore()
	for _, opt := range []leasehold.Option{leasehold.WithManualRenewal(), leasehold.WithFairness()} {
		_, err := leasehold.NewSession(store, sessionA, opt)
		require.ErrorContains(t, err, "is not for sessions")
	}
	_, err := leasehold.NewSession(store, sessionA, leasehold.WithIdentity("a"), leasehold.WithReclaim())
	require.ErrorContains(t, err, "WithReclaim is not for sessions")
	_, err = leasehold.NewSession(store, "")
	require.ErrorContains(t, err, "is empty")
	session, err := leasehold.NewSession(store, sessionA, leasehold.WithLogger(nil))
	require.NoError(t, err)
	for option, opt := range map[string]leasehold.Option{
		"WithTTL": leasehold.WithTTL(time.Minute), "WithRenewInterval": leasehold.WithRenewInterval(time.Second),
		"WithSafetyMargin": leasehold.WithSafetyMargin(time.Second), "WithClockDrift": leasehold.WithClockDrift(0.5),
		"WithManualRenewal": leasehold.WithManualRenewal(), "WithReclaim": leasehold.WithReclaim(),
	} {
		_, err := session.Lock(lockX, opt)
		require.ErrorContains(t, err, option+" is decided by the session")
	}
	_, err = session.Lock(lockX, leasehold.WithEachLockReleased())
	require.ErrorContains(t, err, "WithEachLockReleased is for NewSession")
	_, err = leasehold.NewLock(store, lockX, leasehold.WithEachLockReleased())
	require.ErrorContains(t, err, "WithEachLockReleased is for NewSession")
	_, err = session.Lock(sessionA)
	require.ErrorContains(t, err, "is that of the session itself")
	_, err = session.Lock("a//b")
	require.ErrorContains(t, err, "empty path segment")
	_, err = session.Lock(lockX, nil)
	require.ErrorContains(t, err, "an Option is nil")
	_, err = session.Lock(lockX, leasehold.WithMetadata(map[string]string{"a": strings.Repeat("x", 10000)}))
	require.ErrorContains(t, err, "metadata")
	_, err = leaningLock(t, session, lockX).TryAcquire(t.Context())
	require.ErrorIs(t, err, leasehold.ErrNoSession)
	var none *leasehold.Session
	_, err = none.Lock(lockX)
	require.Error(t, err)
	require.Error(t, none.Run(t.Context()))
	require.Error(t, new(leasehold.Session).Run(t.Context()))
	require.False(t, none.Held())
	require.Error(t, none.Check(nil))
	require.Empty(t, none.Key())
}

func TestTwoProcessesWithOneSessionKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasehold.NewMemStore()
		first, stop := heldUnder(t, store, sessionA)
		err := holding(t, leaningLock(t, first, lockX), t.Context())
		require.NoError(t, err)
		second, stopSecond := runSession(t, store, sessionA)
		e, err := leasehold.NewElector(leaningLock(t, second, lockX), leasehold.Callbacks{})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- e.Run(ctx) }()
		time.Sleep(10 * sessionTTL)
		require.NoError(t, first.Check(nil))
		require.ErrorIs(t, second.Check(nil), leasehold.ErrNoSession)
		require.ErrorContains(t, second.Check(nil), "give each process a session key of its own")
		require.ErrorIs(t, e.Check(nil), leasehold.ErrNoSession)
		require.False(t, e.IsLeader())
		stop()
		time.Sleep(sessionTTL)
		require.NoError(t, second.Check(nil))
		require.True(t, e.IsLeader(), "it goes on in the next session by itself")
		require.NoError(t, e.Check(nil))
		cancel()
		require.NoError(t, <-done)
		stopSecond()
	})
}

func TestAWaitingElectorUnderASessionIsHealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasehold.NewMemStore()
		conn := &keyFaults{Store: store}
		session, stop := heldUnder(t, store, sessionA)
		err := holding(t, leaningLock(t, session, lockX), t.Context())
		require.NoError(t, err)
		other, stopOther := heldUnder(t, conn, sessionB)
		e, err := leasehold.NewElector(leaningLock(t, other, lockX), leasehold.Callbacks{})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- e.Run(ctx) }()
		time.Sleep(20 * sessionTTL)
		require.NoError(t, e.Check(nil), "the reads of the other session count")
		rec, ok := e.Leader()
		require.True(t, ok)
		require.Equal(t, sessionA, rec.Session.Key)
		require.Equal(t, sessionTTL, rec.TTL, "the times are those of the session")
		conn.set(failing("get", sessionA))
		time.Sleep(3 * sessionTTL)
		require.ErrorIs(t, e.Check(nil), errReset)
		cancel()
		require.NoError(t, <-done)
		stopOther()
		stop()
	})
}

func TestInspectAndWatchFollowTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasehold.NewMemStore()
		session, stop := heldUnder(t, store, sessionA)
		lease, err := leaningLock(t, session, lockX).TryAcquire(t.Context())
		require.NoError(t, err)
		reader := newLockOf(t, store, lockX)
		time.Sleep(time.Minute)
		rec, err := reader.Inspect(t.Context())
		require.NoError(t, err)
		require.Equal(t, sessionTTL, rec.TTL)
		require.WithinDuration(t, time.Now(), rec.ExpiresAt, sessionTTL)
		require.WithinDuration(t, time.Now(), lease.Record().ExpiresAt, sessionTTL)
		var held *leasehold.HeldError
		_, err = reader.TryAcquire(t.Context())
		require.ErrorAs(t, err, &held)
		require.LessOrEqual(t, held.Wait, 16*time.Second)
		require.Equal(t, "locks/x", held.Record.Session.Lock)
		time.AfterFunc(time.Minute, stop)
		var seen []leasehold.Record
		for rec, err := range reader.Watch(t.Context()) {
			require.NoError(t, err)
			if seen = append(seen, rec); rec.Released() {
				break
			}
		}
		require.Len(t, seen, 2)
		rec, err = reader.Inspect(t.Context())
		require.NoError(t, err)
		require.True(t, rec.Released(), "the session's release frees it, though nothing has written it")
	})
}

func TestSessionMember(t *testing.T) {
	const member = `"session": {"lock": "x", "key": "s", "id": "i", "token": 3, "ttl": 15}`
	read := func(body string) (leasehold.Record, error) {
		var rec leasehold.Record
		err := json.Unmarshal([]byte(body), &rec)
		return rec, err
	}
	rec, err := read(`{"expires_at": 253370764800, "token": 7, "session_id": "k", ` + member + `}`)
	require.NoError(t, err)
	require.Equal(t, &leasehold.SessionTerm{Lock: "x", Key: "s", ID: "i", Token: 3, TTL: sessionTTL}, rec.Session)
	require.Equal(t, "k", rec.SessionID)
	require.Equal(t, time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), rec.ExpiresAt.UTC())
	again, err := json.Marshal(rec)
	require.NoError(t, err)
	back, err := read(string(again))
	require.NoError(t, err)
	require.Equal(t, rec, back)
	for _, foreign := range []string{ // a client that does not know the member has kept it
		`{"expires_at": 1792000000, "token": 7, ` + member + `}`,
		`{"expires_at": 0, "token": 7, ` + member + `}`,
		`{"expires_at": 253370764800, "ttl": 15, "token": 7, ` + member + `}`,
		`{"expires_at": 1792000000, "token": 7, "session": 5}`,
	} {
		rec, err := read(foreign)
		require.NoError(t, err, foreign)
		require.Nil(t, rec.Session, foreign)
	}
	for _, from := range []string{`"lock": "x"`, `"key": "s"`, `"id": "i"`, `"token": 3`, `"ttl": 15`} {
		name, _, _ := strings.Cut(from, ":")
		for _, to := range []string{name + `: null`, name + `: -1`, name + `: ""`, name + `: 1e-400`, `"none": 1`} {
			_, err := read(`{"expires_at": 253370764800, "token": 7, ` + strings.Replace(member, from, to, 1) + `}`)
			require.ErrorIs(t, err, leasehold.ErrCorruptRecord, "%s", to)
		}
	}
	_, err = read(`{"expires_at": 253370764800, "token": 7, "session": {"lock": "s", "key": "s", "id": "i", "token": 3, "ttl": 15}}`)
	require.ErrorIs(t, err, leasehold.ErrCorruptRecord)
}

func TestAForgottenLeaseOfASession(t *testing.T) {
	// Not in a bubble: the garbage collector's clean-up runs outside of it.
	store := leasehold.NewMemStore()
	session, stop := heldUnder(t, store, sessionA, leasehold.WithTTL(time.Second), leasehold.WithRenewInterval(20*time.Millisecond))
	_, err := leaningLock(t, session, lockX).TryAcquire(t.Context())
	require.NoError(t, err)
	other := newLockOf(t, store, lockX)
	require.Eventually(t, func() bool {
		runtime.GC()
		rec, err := other.Inspect(t.Context())
		return err == nil && rec.Released()
	}, 20*time.Second, 20*time.Millisecond)
	require.True(t, session.Held())
	stop()
}
