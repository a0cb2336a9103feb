package k8slock_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/faultproxy"
	"github.com/leasehold-go/leasehold/internal/testserver"
	"github.com/leasehold-go/leasehold/k8slock"
)

// perKey counts the requests of a store by key, such as "get leaders/test".
type perKey struct {
	leasehold.Store
	mu    sync.Mutex
	count map[string]int
}

func (p *perKey) add(op, key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.count == nil {
		p.count = map[string]int{}
	}
	p.count[op+" "+key]++
}

// take returns the counts so far and begins anew.
func (p *perKey) take() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.count
	p.count = nil
	return was
}

func (p *perKey) Get(ctx context.Context, key string) (leasehold.Object, error) {
	p.add("get", key)
	return p.Store.Get(ctx, key)
}

func (p *perKey) PutIfNoneMatch(ctx context.Context, key string, body []byte) (string, error) {
	p.add("put", key)
	return p.Store.PutIfNoneMatch(ctx, key, body)
}

func (p *perKey) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	p.add("put", key)
	return p.Store.PutIfMatch(ctx, key, body, etag)
}

// begin runs a session until end is called, which waits for its release.
func begin(t *testing.T, store leasehold.Store, name string, opts ...leasehold.Option) (session *leasehold.Session, end func()) {
	t.Helper()
	session, err := leasehold.NewSession(store, "sessions/"+name, append([]leasehold.Option{
		leasehold.WithTTL(k8slock.LeaseDuration), leasehold.WithIdentity(name), leasehold.WithLogger(nil)}, opts...)...)
	require.NoError(t, err)
	return session, run(t, session)
}

func run(t *testing.T, session *leasehold.Session) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	var err error
	go func() {
		defer close(over)
		err = session.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-over
	})
	return func() {
		t.Helper()
		cancel()
		<-over
		assert.NoError(t, err)
	}
}

func sessionLock(t *testing.T, session *leasehold.Session, opts ...leasehold.Option) *k8slock.Lock {
	t.Helper()
	lock, err := k8slock.NewSessionLock(session, key, k8slock.LeaseDuration, opts...)
	require.NoError(t, err)
	return lock
}

func TestNewSessionLockRefusesBadInput(t *testing.T) {
	session, err := leasehold.NewSession(leasehold.NewMemStore(), "sessions/a")
	require.NoError(t, err)
	for _, c := range []struct {
		name string
		new  func() (*k8slock.Lock, error)
		want string
	}{
		{"no session", func() (*k8slock.Lock, error) { return k8slock.NewSessionLock(nil, key, time.Minute) }, "NewSession"},
		{"key", func() (*k8slock.Lock, error) { return k8slock.NewSessionLock(session, "a//b", time.Minute) }, "empty path segment"},
		{"the session's key", func() (*k8slock.Lock, error) { return k8slock.NewSessionLock(session, session.Key(), time.Minute) }, "session itself"},
		{"fraction", func() (*k8slock.Lock, error) { return k8slock.NewSessionLock(session, key, 1500*time.Millisecond) }, "whole seconds"},
		{"TTL", func() (*k8slock.Lock, error) {
			return k8slock.NewSessionLock(session, key, time.Minute, leasehold.WithTTL(time.Minute))
		}, "decided by the session"},
	} {
		t.Run(c.name, func(t *testing.T) {
			lock, err := c.new()
			require.ErrorContains(t, err, c.want)
			require.Nil(t, lock)
		})
	}
}

func TestTurnsOfLeadingUnderSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, ref := leasehold.NewMemStore(), &referee{t: t}
		first, second := &perKey{Store: mem}, &perKey{Store: mem}
		a, endA := begin(t, first, "a")
		b, endB := begin(t, second, "b")
		leader := stand(t, ref, "a", sessionLock(t, a))
		_, token := next(t, 30*time.Second, leader)
		require.EqualValues(t, 1, token)
		require.Equal(t, "a", leader.lock.Identity(), "the session's")
		waiting := stand(t, ref, "b", sessionLock(t, b))
		time.Sleep(time.Minute)
		first.take()
		second.take()
		const minutes = 600
		time.Sleep(minutes * time.Minute)
		require.Empty(t, waiting.started)
		require.EqualValues(t, 1, leader.lock.Token())
		requests := first.take()
		require.Zero(t, requests["put "+key], "the leader sends nothing for its lock: %v", requests)
		require.LessOrEqual(t, requests["get "+key], minutes/100+1, "the session looks at it every 100 TTLs")
		require.InDelta(t, 3*minutes, requests["put sessions/a"], minutes/5)
		requests = second.take()
		t.Logf("a minute: candidate %.2f reads of the lock, %.2f of the leader's session",
			float64(requests["get "+key])/minutes, float64(requests["get sessions/a"])/minutes)
		require.InDelta(t, 3.75*minutes, requests["get "+key], 0.3*minutes)
		require.LessOrEqual(t, requests["get sessions/a"], requests["get "+key])
		require.Zero(t, requests["put "+key])

		leader.stop()
		receive(t, leader.stopped, time.Minute, "the elector's end")
		began := time.Now()
		_, token = next(t, 30*time.Second, waiting)
		require.EqualValues(t, 2, token)
		require.LessOrEqual(t, time.Since(began), 22*time.Second, "the wait between two polls of client-go")
		waiting.stop()
		receive(t, waiting.stopped, time.Minute, "the elector's end")
		endA()
		endB()
	})
}

// TestNoSessionIsNotAcquired lets client-go campaign while the session is not held.
func TestNoSessionIsNotAcquired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, ref := leasehold.NewMemStore(), &referee{t: t}
		session, err := leasehold.NewSession(mem, "sessions/a", leasehold.WithLogger(nil))
		require.NoError(t, err)
		lock := sessionLock(t, session)
		require.NoError(t, lock.Check(nil), "nothing runs yet")
		for _, write := range []func() error{
			func() error { return lock.Create(t.Context(), asked(lock, k8slock.LeaseDuration)) },
			func() error { return lock.Update(t.Context(), asked(lock, k8slock.LeaseDuration)) },
		} {
			err := write()
			require.ErrorIs(t, err, leasehold.ErrNoSession)
			require.False(t, apierrors.IsConflict(err), "nobody else holds it: %v", err)
		}
		c := stand(t, ref, "a", lock)
		time.Sleep(10 * time.Minute)
		require.Empty(t, c.started)
		require.Zero(t, lock.Token())

		twin, endTwin := begin(t, mem, "a")
		require.Eventually(t, twin.Held, time.Minute, time.Second)
		run(t, session)
		time.Sleep(time.Minute)
		require.ErrorIs(t, lock.Check(nil), leasehold.ErrNoSession, "another process has the session's key")
		require.ErrorContains(t, lock.Check(nil), "give each process a session key of its own")
		require.Empty(t, c.started)
		endTwin()
		_, token := next(t, time.Minute, c)
		require.EqualValues(t, 1, token)
		require.NoError(t, lock.Check(nil))
		c.stop()
		receive(t, c.stopped, time.Minute, "the elector's end")
	})
}

func TestLossOfTheSessionEndsLeading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, ref, seen := leasehold.NewMemStore(), &referee{t: t}, &events{}
		plug := &cable{Store: mem}
		a, _ := begin(t, plug, "a")
		b, _ := begin(t, mem, "b")
		lock := sessionLock(t, a, leasehold.WithObserver(seen.observe))
		leader := stand(t, ref, "a", lock)
		next(t, 30*time.Second, leader)
		waiting := stand(t, ref, "b", sessionLock(t, b))
		time.Sleep(10*time.Minute + time.Second)

		plug.cut.Store(true)
		cut := time.Now()
		require.ErrorIs(t, receive(t, leader.ended, k8slock.LeaseDuration, "the end of leading"), leasehold.ErrLost)
		require.Zero(t, lock.Token())
		require.ErrorIs(t, lock.Update(t.Context(), asked(lock, k8slock.LeaseDuration)), leasehold.ErrLost, "until client-go has stopped")
		_, token := next(t, 2*time.Minute, waiting)
		require.EqualValues(t, 2, token)
		require.Greater(t, time.Since(cut), k8slock.LeaseDuration-k8slock.LeaseDuration/3, "the session's last renewal may be that old")
		require.Less(t, time.Since(cut), 100*time.Second)
		receive(t, leader.stopped, k8slock.RetryPeriod+k8slock.RenewDeadline+time.Second, "the elector's end")
		require.Equal(t, []string{"acquired", "lost, expired"}, seen.seen())

		plug.cut.Store(false) // the session heals by itself
		again := stand(t, ref, "a", lock)
		time.Sleep(10 * time.Minute)
		require.Empty(t, again.started)
		waiting.stop()
		_, token = next(t, time.Minute, again)
		require.EqualValues(t, 3, token)
		again.stop()
		receive(t, again.stopped, time.Minute, "the elector's end")
	})
}

// TestSessionEndsBeforeItsElectors is the wrong order: client-go learns of the end only when it asks.
func TestSessionEndsBeforeItsElectors(t *testing.T) {
	for _, name := range []string{"release on cancel", "keep the lease"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mem, ref := leasehold.NewMemStore(), &referee{t: t}
				a, endA := begin(t, mem, "a")
				b, _ := begin(t, mem, "b")
				leader := stand(t, ref, "a", sessionLock(t, a))
				if name == "keep the lease" {
					leader.stop()
					receive(t, leader.stopped, time.Minute, "the elector's end")
					leader = stand(t, ref, "a", sessionLock(t, a), keepLease)
				}
				next(t, 30*time.Second, leader)
				waiting := stand(t, ref, "b", sessionLock(t, b))
				time.Sleep(10*time.Minute + time.Second)
				began, over := time.Now(), make(chan struct{})
				go func() {
					defer close(over)
					endA()
				}()
				require.ErrorIs(t, receive(t, leader.ended, time.Millisecond, "the end of leading"), leasehold.ErrReleased)
				require.ErrorIs(t, leader.lock.Update(t.Context(), asked(leader.lock, k8slock.LeaseDuration)), leasehold.ErrReleased)
				receive(t, over, time.Minute, "the session's end")
				require.Zero(t, leader.lock.Token())
				require.InDelta(t, k8slock.LeaseDuration/5, time.Since(began), float64(time.Second), "the safety margin, in which work stops")
				next(t, 30*time.Second, waiting)
				receive(t, leader.stopped, k8slock.RetryPeriod+k8slock.RenewDeadline+time.Second, "the elector's end")
				waiting.stop()
				receive(t, waiting.stopped, time.Minute, "the elector's end")
			})
		})
	}
}

func TestStopUnderASessionWithoutReleaseOnCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, ref, seen := leasehold.NewMemStore(), &referee{t: t}, &events{}
		a, endA := begin(t, mem, "a")
		b, _ := begin(t, mem, "b")
		lock := sessionLock(t, a, leasehold.WithObserver(seen.observe))
		pod := stand(t, ref, "a", lock, keepLease)
		next(t, 30*time.Second, pod)
		other := stand(t, ref, "b", sessionLock(t, b), keepLease)
		time.Sleep(10*time.Minute + time.Second)
		stopped := time.Now()
		pod.stop()
		receive(t, pod.stopped, time.Second, "the elector's end")
		synctest.Wait()
		require.Equal(t, []string{"acquired", "released"}, seen.seen(), "a stop ends the term at once")
		require.Zero(t, lock.Token())
		require.True(t, apierrors.IsConflict(lock.Update(t.Context(), asked(lock, k8slock.LeaseDuration))), "work of the term may still be running")
		_, token := next(t, 3*k8slock.LeaseDuration, other)
		require.EqualValues(t, 2, token)
		require.GreaterOrEqual(t, time.Since(stopped), k8slock.LeaseDuration)
		time.Sleep(10 * time.Minute)
		require.Equal(t, []string{"acquired", "released"}, seen.seen(), "no loss is reported later")
		endA()
		require.NotZero(t, other.lock.Token())
	})
}

// TestLeaningLockAsOthersSeeIt has a candidate without a session beside a leader with one.
func TestLeaningLockAsOthersSeeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, ref := &leasehold.MemStore{ServerClock: true}, &referee{t: t}
		plug := &cable{Store: mem}
		a, _ := begin(t, plug, "a", leasehold.WithTTL(90*time.Second))
		leader := stand(t, ref, "a", sessionLock(t, a))
		next(t, 30*time.Second, leader)
		acquired := time.Now()
		time.Sleep(time.Hour) // the lock's own object is old by now
		other := newLock(t, &cable{Store: mem}, time.Minute)
		seen := map[string]bool{}
		for range 20 {
			ler, raw, err := other.Get(t.Context())
			require.NoError(t, err)
			require.Equal(t, "a", ler.HolderIdentity, "the age that counts is the session's")
			require.Equal(t, 90, ler.LeaseDurationSeconds)
			require.WithinDuration(t, acquired, ler.AcquireTime.Time, time.Second)
			require.WithinDuration(t, time.Now(), ler.RenewTime.Time, 46*time.Second)
			seen[string(raw)] = true
			ler, _, err = other.Get(t.Context())
			require.NoError(t, err)
			require.Equal(t, "a", ler.HolderIdentity, "this time without a new look at the session")
			time.Sleep(46 * time.Second)
		}
		require.Len(t, seen, 20, "client-go detects a renewal by different bytes")
		err := other.Update(t.Context(), asked(other, time.Minute))
		require.True(t, apierrors.IsConflict(err), "%v", err)
		require.ErrorContains(t, err, `"a" with token 1`)

		plug.cut.Store(true)
		receive(t, leader.ended, 90*time.Second, "the end of leading")
		time.Sleep(2 * time.Minute)
		began := time.Now()
		_, token := next(t, time.Minute, stand(t, ref, "newcomer", newLock(t, &cable{Store: mem}, time.Minute)))
		require.EqualValues(t, 2, token)
		require.Less(t, time.Since(began), time.Second, "the store reports the age of the session's object")
	})
}

func TestElectionUnderSessionsThroughABucket(t *testing.T) {
	t.Parallel()
	server := testserver.MinIO(t)
	bucket, ref := server.Bucket(t), &referee{t: t}
	type member struct {
		*candidate
		cut *atomic.Bool
		end func() // of its session
	}
	join := func(name string) member {
		cut := new(atomic.Bool)
		store, _ := behind(t, server, bucket, func(*http.Request) faultproxy.Fault {
			if cut.Load() {
				return faultproxy.Fault{Kind: faultproxy.Refuse}
			}
			return faultproxy.Fault{}
		})
		session, end := begin(t, store, name, leasehold.WithTTL(lease))
		lock, err := k8slock.NewSessionLock(session, key, lease)
		require.NoError(t, err)
		return member{stand(t, ref, name, lock), cut, end}
	}
	leader := join("a")
	_, token := next(t, 2*lease, leader.candidate)
	for round, leave := range []func(member){
		func(m member) { m.stop(); receive(t, m.stopped, lease, "the elector's end"); m.end() },
		func(m member) { m.cut.Store(true) }, // to the others it is dead
		func(m member) { m.end() },           // the wrong order
	} {
		require.EqualValues(t, round+1, token)
		waiting := join(fmt.Sprint("after-", round))
		renewed := leader.lock.Lease().Record().RenewedAt
		require.Eventually(t, func() bool { return leader.lock.Lease().Record().RenewedAt.After(renewed) }, lease, lease/100,
			"the session is renewed")
		require.Empty(t, waiting.started)
		began := time.Now()
		leave(leader)
		receive(t, leader.ended, lease, "the end of leading")
		_, token = next(t, 5*lease, waiting.candidate)
		t.Logf("round %d: %s leads after %v", round, waiting.lock.Identity(), time.Since(began).Round(time.Millisecond))
		receive(t, leader.stopped, 3*lease, "the elector's own end")
		leader.cut.Store(false)
		leader = waiting
	}
}
