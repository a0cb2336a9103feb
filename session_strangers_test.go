package leasehold_test

import (
	"context"
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
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/storeapi"
	"github.com/leasehold-go/leasehold/internal/testopt"
)

// scripted is a Store with a hook before and after each request. A hook that returns an error ends the request with it.
type scripted struct {
	leasehold.Store
	before func(ctx context.Context, op, key string, body []byte) error
	after  func(ctx context.Context, op, key string, body []byte) error
}

func (s *scripted) run(ctx context.Context, op, key string, body []byte, request func() error) error {
	if s.before != nil {
		if err := s.before(ctx, op, key, body); err != nil {
			return err
		}
	}
	if err := request(); err != nil {
		return err
	}
	if s.after != nil {
		return s.after(ctx, op, key, body)
	}
	return nil
}

func (s *scripted) Get(ctx context.Context, key string) (obj leasehold.Object, err error) {
	err = s.run(ctx, "get", key, nil, func() (err error) { obj, err = s.Store.Get(ctx, key); return err })
	return obj, err
}

func (s *scripted) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (got string, err error) {
	err = s.run(ctx, "update", key, body, func() (err error) { got, err = s.Store.PutIfMatch(ctx, key, body, etag); return err })
	return got, err
}

func (s *scripted) PutIfNoneMatch(ctx context.Context, key string, body []byte) (got string, err error) {
	err = s.run(ctx, "create", key, body, func() (err error) { got, err = s.Store.PutIfNoneMatch(ctx, key, body); return err })
	return got, err
}

// hookedClock calls a hook in Now.
type hookedClock struct {
	clock.Clock
	hook func()
}

func (c *hookedClock) Now() clock.Reading { c.hook(); return c.Clock.Now() }

// under reports whether the function with this name is on the stack.
func under(name string) bool {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for {
		f, more := frames.Next()
		if strings.HasSuffix(f.Function, name) {
			return true
		}
		if !more {
			return false
		}
	}
}

func releasedBody(body []byte) bool {
	var rec leasehold.Record
	return rec.UnmarshalJSON(body) == nil && rec.Released()
}

// anySession runs a session until the result is called, as often as one likes.
func anySession(t *testing.T, s leasehold.Store, key string, opts ...leasehold.Option) (*leasehold.Session, func()) {
	t.Helper()
	session, err := leasehold.NewSession(s, key, append([]leasehold.Option{leasehold.WithLogger(nil)}, opts...)...)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { _ = session.Run(ctx); close(done) }()
	return session, func() { cancel(); <-done }
}

// acquired waits for a lease of l until the time is over.
func acquired(t *testing.T, l *leasehold.Lock, within time.Duration) (*leasehold.Lease, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	return l.Acquire(ctx)
}

// Lease.Valid, called while a loss of the session is being carried out, must not take the lease out of what healing waits for.
func TestHealingWaitsForFunctionsWhoseLeaseWasFoundInvalid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasehold.NewMemStore()
		cut := &cutStore{Store: store}
		var other *leasehold.Lease
		var done atomic.Bool
		c := &hookedClock{Clock: clock.System, hook: func() {
			if under("(*term).loseLeaning") && done.CompareAndSwap(false, true) { // the first of the leases is being ended
				require.False(t, other.Valid())
				cut.down.Store(false)
			}
		}}
		a, stopA := anySession(t, cut, "sessions/a", testopt.WithClock(c))
		defer stopA()
		first, err := leaningLock(t, a, "locks/first").Acquire(t.Context())
		require.NoError(t, err)
		go func() {
			_ = first.Do(t.Context(), func(ctx context.Context, _ *leasehold.Lease) error { <-ctx.Done(); return nil })
		}()
		other, err = leaningLock(t, a, "locks/x").Acquire(t.Context())
		require.NoError(t, err)
		var returned atomic.Bool
		go func() {
			_ = other.Do(t.Context(), func(ctx context.Context, _ *leasehold.Lease) error {
				<-ctx.Done()
				time.Sleep(2900 * time.Millisecond) // within the safety margin of 3 s
				returned.Store(true)
				return nil
			})
		}()
		b, stopB := anySession(t, store, "sessions/b")
		defer stopB()
		time.Sleep(10 * time.Second)
		cut.down.Store(true)
		next, err := leaningLock(t, b, "locks/x").Acquire(t.Context())
		require.NoError(t, err)
		require.True(t, returned.Load(), "token %d was acquired while the function under token %d was still within its safety margin", next.Token(), other.Token())
	})
}

// One debt that cannot be settled must not keep the session from settling the others.
func TestOneFailingDebtDoesNotHoldUpTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		store := &scripted{Store: leasehold.NewMemStore()}
		store.before = func(_ context.Context, op, key string, body []byte) error {
			if op == "update" && (key == "locks/bad" || key == "locks/good" && down.Load()) && releasedBody(body) {
				return fmt.Errorf("writing: %w: access denied", leasehold.ErrPermanent)
			}
			return nil
		}
		a, stopA := anySession(t, store, "sessions/a")
		defer stopA()
		bad, err := leaningLock(t, a, "locks/bad").Acquire(t.Context())
		require.NoError(t, err)
		good, err := leaningLock(t, a, "locks/good").Acquire(t.Context())
		require.NoError(t, err)
		down.Store(true)
		require.Error(t, bad.Release(t.Context()))
		require.Error(t, good.Release(t.Context()))
		down.Store(false)
		b, stopB := anySession(t, store, "sessions/b")
		defer stopB()
		_, err = acquired(t, leaningLock(t, b, "locks/good"), time.Hour)
		require.NoError(t, err, "locks/good can be released, and nobody holds it")
	})
}

// A lease that ends because of one strange answer to a read must not leave its lock held by nobody.
func TestStrangeReadLeavesNoOrphan(t *testing.T) {
	for name, answer := range map[string]error{
		"the store says that it is missing": leasehold.ErrNotExist, "a page": leasehold.ErrCorruptRecord,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var lie atomic.Bool
				store := leasehold.NewMemStore()
				lying := &scripted{Store: store}
				lying.before = func(_ context.Context, op, key string, _ []byte) error {
					if op == "get" && key == "locks/x" && lie.CompareAndSwap(true, false) {
						return fmt.Errorf("reading: %w", answer)
					}
					return nil
				}
				a, stopA := anySession(t, lying, "sessions/a")
				defer stopA()
				lease, err := leaningLock(t, a, "locks/x").Acquire(t.Context())
				require.NoError(t, err)
				lie.Store(true)
				err = lease.Renew(t.Context())
				t.Logf("Renew: %v; valid: %v", err, lease.Valid())
				if lease.Valid() {
					require.NoError(t, lease.Release(t.Context()))
				}
				b, stopB := anySession(t, store, "sessions/b")
				defer stopB()
				_, err = acquired(t, leaningLock(t, b, "locks/x"), time.Hour)
				require.NoError(t, err, "nobody holds it")
			})
		})
	}
}

// The wait for the end of a term whose object was replaced must be counted from the end of the read that showed that, because
// the object may have been replaced, and renewed before, while the read was under way.
func TestReplacedSessionAndASlowRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const margin = 150 * time.Millisecond
		store := leasehold.NewMemStore()
		cut := &cutStore{Store: store}
		renewed := make(chan struct{}, 1)
		holder := &scripted{Store: cut}
		holder.after = func(_ context.Context, op, key string, _ []byte) error {
			if op == "update" && key == "sessions/a" {
				select {
				case renewed <- struct{}{}:
				default:
				}
			}
			return nil
		}
		a, stopA := anySession(t, holder, "sessions/a", leasehold.WithSafetyMargin(margin), leasehold.WithRenewInterval(1500*time.Millisecond))
		defer stopA()
		lease, err := leaningLock(t, a, "locks/x").Acquire(t.Context())
		require.NoError(t, err)
		time.Sleep(10 * time.Second)

		var once sync.Once
		stopNext := func() {}
		defer func() { stopNext() }()
		slow := &scripted{Store: store}
		slow.before = func(ctx context.Context, op, key string, _ []byte) error {
			if op != "get" || key != "sessions/a" {
				return nil
			}
			once.Do(func() { // the read is on its way for less than the time of one attempt
				select {
				case <-renewed:
				default:
				}
				for range 2 {
					<-renewed
				}
				cut.down.Store(true) // the holder is cut off
				obj, err := store.Get(t.Context(), key)
				require.NoError(t, err)
				require.NoError(t, store.DeleteIfMatch(t.Context(), key, obj.ETag)) // somebody deletes the session's object
				next, err := leasehold.NewSession(store, key, leasehold.WithLogger(nil))
				require.NoError(t, err)
				run, stop := context.WithCancel(context.Background())
				stopNext = stop
				go func() { _ = next.Run(run) }() // and a second process with this key makes it anew
				time.Sleep(time.Millisecond)
				require.True(t, next.Held())
				require.NoError(t, ctx.Err(), "the read has not timed out")
			})
			return nil
		}
		b, stopB := anySession(t, slow, "sessions/b", leasehold.WithSafetyMargin(margin), leasehold.WithRenewInterval(1500*time.Millisecond))
		defer stopB()
		next, err := leaningLock(t, b, "locks/x").Acquire(t.Context())
		require.NoError(t, err)
		require.False(t, lease.Valid() && next.Valid(), "two valid leases: tokens %d and %d; the first is valid for another %v",
			lease.Token(), next.Token(), time.Until(lease.Deadline()))
	})
}

// A waiter must look again if more was released during its first look than the session tells.
func TestFirstLookMissesManyReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasehold.NewMemStore()
		a, stopA := anySession(t, store, "sessions/a")
		defer stopA()
		var leases []*leasehold.Lease
		for i := range 300 {
			lease, err := leaningLock(t, a, fmt.Sprint("locks/", i)).Acquire(t.Context())
			require.NoError(t, err)
			leases = append(leases, lease)
		}
		time.Sleep(10 * time.Second)
		var once sync.Once
		slow := &scripted{Store: store}
		slow.before = func(_ context.Context, op, key string, _ []byte) error {
			if op == "get" && key == "sessions/a" { // after the first read of locks/0, which showed it as held
				once.Do(func() {
					for _, lease := range leases { // the process hands over its locks, locks/0 first
						require.NoError(t, lease.Release(t.Context()))
					}
					time.Sleep(2 * time.Second) // which the session tells meanwhile
				})
			}
			return nil
		}
		b, stopB := anySession(t, slow, "sessions/b")
		defer stopB()
		began := time.Now()
		err := holding(t, leaningLock(t, b, "locks/0"), t.Context())
		require.NoError(t, err)
		require.Less(t, time.Since(began), 2*time.Minute)
	})
}

// An error that waiting cannot fix must reach the waiter, also if its session's follower meets it.
func TestWaiterLearnsThatSealingIsForbidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasehold.NewMemStore()
		cut := &cutStore{Store: store}
		a, stopA := anySession(t, cut, "sessions/a")
		defer stopA()
		err := holding(t, leaningLock(t, a, "locks/x"), t.Context())
		require.NoError(t, err)
		forbidden := &scripted{Store: store}
		forbidden.before = func(_ context.Context, op, key string, _ []byte) error {
			if op != "get" && key == "sessions/a" {
				return fmt.Errorf("writing: %w: access denied", leasehold.ErrPermanent)
			}
			return nil
		}
		b, stopB := anySession(t, forbidden, "sessions/b")
		defer stopB()
		l := leaningLock(t, b, "locks/x")
		go func() { time.Sleep(20 * time.Second); cut.down.Store(true) }()
		began := time.Now()
		_, err = l.Acquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrPermanent)
		require.Less(t, time.Since(began), 5*time.Minute)
	})
}

// An acquisition that was answered with a conflict may still be carried out, so the session owes it.
func TestConflictThatLandsLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasehold.NewMemStore()
		ctx, cancel := context.WithCancel(t.Context())
		var once sync.Once
		conflicting := &scripted{Store: store}
		conflicting.before = func(_ context.Context, op, key string, body []byte) error {
			var err error
			if key == "locks/x" && op == "create" {
				once.Do(func() {
					body := append([]byte(nil), body...)
					go func() { // a proxy has sent the request twice, and the second copy met the first
						time.Sleep(time.Second)
						_, err := store.PutIfNoneMatch(t.Context(), key, body)
						require.NoError(t, err)
					}()
					go func() { time.Sleep(time.Millisecond); cancel() }() // the caller gives up
					err = fmt.Errorf("writing: %w", storeapi.ErrConflict)
				})
			}
			return err
		}
		a, stopA := anySession(t, conflicting, "sessions/a")
		defer stopA()
		_, err := leaningLock(t, a, "locks/x").Acquire(ctx)
		require.ErrorIs(t, err, context.Canceled)
		time.Sleep(10 * time.Second)
		b, stopB := anySession(t, store, "sessions/b")
		defer stopB()
		_, err = acquired(t, leaningLock(t, b, "locks/x"), time.Hour)
		require.NoError(t, err, "nobody holds it")
	})
}

// A Store that panics after it has written leaves a lock that runs out; one that leans must not stay for ever.
func TestPanicInAnAcquisition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var armed atomic.Bool
		store := &scripted{Store: leasehold.NewMemStore()}
		store.after = func(_ context.Context, op, key string, _ []byte) error {
			if key == "locks/x" && op == "create" && armed.CompareAndSwap(true, false) {
				panic("a fault in the store")
			}
			return nil
		}
		a, stopA := anySession(t, store, "sessions/a")
		defer stopA()
		armed.Store(true)
		require.Panics(t, func() { _, _ = leaningLock(t, a, "locks/x").Acquire(t.Context()) }) // as under net/http, which recovers
		b, stopB := anySession(t, store, "sessions/b")
		defer stopB()
		_, err := acquired(t, leaningLock(t, b, "locks/x"), time.Hour)
		require.NoError(t, err, "nobody holds it")
	})
}

// Reads of one session's object that hang must not keep a process from locks that have nothing to do with it.
func TestOneSlowSessionDoesNotHoldUpOtherLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasehold.NewMemStore()
		a, stopA := anySession(t, store, "sessions/a")
		defer stopA()
		for i := range 200 {
			err := holding(t, leaningLock(t, a, fmt.Sprint("locks/", i)), t.Context())
			require.NoError(t, err)
		}
		hanging := &scripted{Store: store}
		hanging.before = func(ctx context.Context, op, key string, _ []byte) error {
			if op == "get" && key == "sessions/a" { // for example, its part of the store is down
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		b, stopB := anySession(t, hanging, "sessions/b")
		defer stopB()
		time.Sleep(time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		for i := range 200 {
			go func() { _, _ = leaningLock(t, b, fmt.Sprint("locks/", i)).Acquire(ctx) }()
		}
		time.Sleep(time.Second)
		began := time.Now()
		_, err := acquired(t, leaningLock(t, b, "locks/free"), time.Hour)
		require.NoError(t, err)
		took := time.Since(began)
		cancel()
		synctest.Wait()
		require.Less(t, took, 15*time.Second, "of a lock that nobody holds")
	})
}

// Renew of many leases at once needs one write of the session, not one each.
func TestManyRenewsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var writes atomic.Int64
		store := &scripted{Store: leasehold.NewMemStore()}
		store.before = func(_ context.Context, op, key string, _ []byte) error {
			time.Sleep(50 * time.Millisecond)
			if key == "sessions/a" && op == "update" {
				writes.Add(1)
			}
			return nil
		}
		a, stopA := anySession(t, store, "sessions/a")
		defer stopA()
		var leases []*leasehold.Lease
		for i := range 1000 {
			lease, err := leaningLock(t, a, fmt.Sprint("locks/", i)).Acquire(t.Context())
			require.NoError(t, err)
			leases = append(leases, lease)
		}
		before, began := writes.Load(), time.Now()
		var all sync.WaitGroup
		for _, lease := range leases {
			all.Go(func() { require.NoError(t, lease.Renew(t.Context())) })
		}
		all.Wait()
		took := time.Since(began)
		t.Logf("1,000 calls of Renew: %d writes of the session, the last one returned after %v", writes.Load()-before, took)
		stopA()
		require.Less(t, took, 15*time.Second)
	})
}

// A candidate that only tries now and then must take over from dead sessions, however many there are.
func TestTryingLocksOfManyDeadSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasehold.NewMemStore()
		const n = 1100
		put := func(key string, rec leasehold.Record) {
			body, err := rec.MarshalJSON()
			require.NoError(t, err)
			_, err = store.PutIfNoneMatch(t.Context(), key, body)
			require.NoError(t, err)
		}
		now := time.Now()
		for i := range n {
			session, lock := fmt.Sprint("sessions/", i), fmt.Sprint("locks/", i)
			put(session, leasehold.Record{
				Token: 1, Holder: "dead", TTL: 15 * time.Second, ExpiresAt: now.Add(15 * time.Second), RenewedAt: now, AcquiredAt: now,
				Nonce: session, SessionID: fmt.Sprint("id", i),
			})
			put(lock, leasehold.Record{
				Token: 1, Holder: "dead", ExpiresAt: time.Unix(253370764800, 0), RenewedAt: now, AcquiredAt: now, Nonce: lock,
				Session: &leasehold.SessionTerm{Lock: lock, Key: session, ID: fmt.Sprint("id", i), Token: 1, TTL: 15 * time.Second},
			})
		}
		b, stopB := anySession(t, store, "sessions/b")
		defer stopB()
		time.Sleep(time.Second)
		var locks []*leasehold.Lock
		for i := range n {
			locks = append(locks, leaningLock(t, b, fmt.Sprint("locks/", i)))
		}
		got := 0
		for range 60 {
			for _, l := range locks {
				if _, err := l.TryAcquire(t.Context()); err == nil {
					got++
				}
			}
			time.Sleep(5 * time.Second)
		}
		stopB()
		require.NotZero(t, got, "locks acquired in 20 TTLs after all their sessions had died")
	})
}

// Every term that an observer was told of ends for the observer too.
func TestObserverLearnsOfTheSessionsGracefulEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended atomic.Int64
		a, stopA := anySession(t, leasehold.NewMemStore(), "sessions/a", leasehold.WithObserver(func(e leasehold.Event) {
			if e.Key == "locks/x" && (e.Kind == leasehold.EventReleased || e.Kind == leasehold.EventLost) {
				ended.Add(1)
			}
		}))
		lease, err := leaningLock(t, a, "locks/x").Acquire(t.Context())
		require.NoError(t, err)
		began := time.Now()
		stopA()
		require.NoError(t, lease.Release(t.Context()))
		time.Sleep(time.Minute)
		require.EqualValues(t, 1, ended.Load(), "EventReleased: the gauge of promlock and otellock depends on it")
		require.True(t, lease.Deadline().After(began), "Deadline is %v", lease.Deadline())
	})
}

// An option that NewLock takes must not crash a lock of a session.
func TestNilObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, stopA := anySession(t, leasehold.NewMemStore(), "sessions/a", leasehold.WithObserver(nil))
		defer stopA()
		l, err := a.Lock("locks/x", leasehold.WithObserver(nil))
		if err != nil {
			return
		}
		require.NotPanics(t, func() { _, err = l.Acquire(t.Context()) })
		require.NoError(t, err)
	})
}

// Break repairs a lock that leans on a session and can never be taken again.
func TestBreakRepairsWhatNobodyCanTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, change := range map[string]func(*leasehold.Record){
			"highest token": func(r *leasehold.Record) { r.Token = 1<<53 - 1 },
		} {
			store := leasehold.NewMemStore()
			forbidding := &scripted{Store: store}
			forbidding.before = func(_ context.Context, _, key string, _ []byte) error {
				if key == "sessions/forbidden" {
					return fmt.Errorf("%w: access denied", leasehold.ErrPermanent)
				}
				return nil
			}
			a, stopA := anySession(t, store, "sessions/a")
			defer stopA()
			lease, err := leaningLock(t, a, "locks/x").Acquire(t.Context())
			require.NoError(t, err)
			rec := lease.Record()
			obj, err := store.Get(t.Context(), "locks/x")
			require.NoError(t, err)
			require.NoError(t, rec.UnmarshalJSON(obj.Body))
			change(&rec)
			rec.Nonce = "other"
			body, err := rec.MarshalJSON()
			require.NoError(t, err)
			_, err = store.PutIfMatch(t.Context(), "locks/x", body, obj.ETag)
			require.NoError(t, err)
			stopA() // its session is over for good
			b, err := leasehold.NewLock(forbidding, "locks/x", leasehold.WithLogger(nil))
			require.NoError(t, err)
			_, err = acquired(t, b, time.Hour)
			if err == nil {
				continue
			}
			t.Logf("%s: Acquire: %v", name, err)
			if err := b.Break(t.Context(), rec.Token); err != nil {
				t.Errorf("%s: Break: %v", name, err)
				continue
			}
			_, err = acquired(t, b, time.Hour)
			require.NoError(t, err, name)
		}
	})
}

// A term of a session that is over must not keep the other locks of that session in memory.
func TestOverSessionKeepsNothing(t *testing.T) {
	var gone atomic.Int64
	var kept *leasehold.Lock
	synctest.Test(t, func(t *testing.T) {
		cut := &cutStore{Store: leasehold.NewMemStore()}
		a, stopA := anySession(t, cut, "sessions/a")
		defer stopA()
		kept = leaningLock(t, a, "locks/kept")
		_, err := kept.Acquire(t.Context())
		require.NoError(t, err)
		for i := range 100 {
			l := leaningLock(t, a, fmt.Sprint("locks/", i), leasehold.WithMetadata(map[string]string{"data": strings.Repeat("x", 1000)}))
			_, err := l.Acquire(t.Context())
			require.NoError(t, err)
			runtime.AddCleanup(l, func(n *atomic.Int64) { n.Add(1) }, &gone)
		}
		cut.down.Store(true)
		time.Sleep(time.Minute)
		cut.down.Store(false)
		time.Sleep(time.Minute)
		require.True(t, a.Held(), "the next term")
		stopA()
	})
	for range 20 {
		runtime.GC()
		time.Sleep(10 * time.Millisecond)
	}
	runtime.KeepAlive(kept)
	require.Greater(t, gone.Load(), int64(90), "of 100 locks that nobody has any more")
}

// A TTL that the options allow must not make a waiter spin.
func TestLongTTLDoesNotSpin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const year = 365 * 24 * time.Hour
		ctx, cancel := context.WithCancel(t.Context())
		var gets atomic.Int64
		store := leasehold.NewMemStore()
		counted := &scripted{Store: store}
		counted.before = func(_ context.Context, op, key string, _ []byte) error {
			if op == "get" && key == "locks/x" && gets.Add(1) > 1000 {
				cancel()
			}
			return nil
		}
		a, stopA := anySession(t, store, "sessions/a", leasehold.WithTTL(5*year))
		defer stopA()
		err := holding(t, leaningLock(t, a, "locks/x"), ctx)
		require.NoError(t, err)
		b, stopB := anySession(t, counted, "sessions/b", leasehold.WithTTL(5*year))
		defer stopB()
		go func() { time.Sleep(time.Hour); cancel() }()
		_, _ = leaningLock(t, b, "locks/x").Acquire(ctx)
		stopB()
		require.Less(t, gets.Load(), int64(100), "reads of the lock in an hour")
	})
}

// A Session that NewSession did not make answers with errors, as a Lock does.
func TestZeroSession(t *testing.T) {
	for name, s := range map[string]*leasehold.Session{"zero": {}, "nil": nil} {
		require.NotPanics(t, func() { require.Error(t, s.Run(t.Context())) }, name+": Run")
		require.NotPanics(t, func() { _ = s.Check(nil) }, name+": Check")
		require.NotPanics(t, func() { _ = s.Key() }, name+": Key")
		require.NotPanics(t, func() { _ = s.Held() }, name+": Held")
	}
}

// The poll interval of one lock must not decide how often the other locks of the session look.
func TestPollIntervalOfOneLockIsItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasehold.NewMemStore()
		a, stopA := anySession(t, store, "sessions/a")
		defer stopA()
		err := holding(t, leaningLock(t, a, "locks/rare"), t.Context())
		require.NoError(t, err)
		b, stopB := anySession(t, &scripted{Store: store}, "sessions/b") // another process
		defer stopB()
		ctx, cancel := context.WithCancel(t.Context())
		rare := leaningLock(t, b, "locks/rare", leasehold.WithPollInterval(time.Hour))
		go func() { _, _ = rare.Acquire(ctx) }()
		time.Sleep(time.Minute)
		var slowest time.Duration
		for i := range 20 {
			key := fmt.Sprint("locks/", i)
			lease, err := leaningLock(t, a, key).Acquire(t.Context())
			require.NoError(t, err)
			got := make(chan time.Time)
			go func() {
				err := holding(t, leaningLock(t, b, key), t.Context())
				require.NoError(t, err)
				got <- time.Now()
			}()
			time.Sleep(time.Minute + time.Duration(i)*time.Second)
			began := time.Now()
			require.NoError(t, lease.Release(t.Context()))
			took := (<-got).Sub(began)
			slowest = max(slowest, took)
		}
		cancel()
		synctest.Wait()
		require.Less(t, slowest, 6*time.Second, "from a release until a waiter with the default poll interval of 3 s has the lock")
	})
}

// Run returns in the time that its documentation names, even if a function does not.
func TestRunEndsThoughAFunctionDoesNot(t *testing.T) {
	for name, renew := range map[string]bool{"function that sleeps": false, "function that renews": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, stopA := anySession(t, leasehold.NewMemStore(), "sessions/a")
				defer stopA()
				l := leaningLock(t, a, "locks/x")
				quit := make(chan struct{})
				go func() {
					_ = l.Do(t.Context(), func(_ context.Context, lease *leasehold.Lease) error {
						for range 600 {
							select {
							case <-quit:
								return nil
							case <-time.After(time.Second):
							}
							if renew {
								_ = lease.Renew(t.Context())
							}
						}
						return nil
					})
				}()
				time.Sleep(10 * time.Second)
				began := time.Now()
				stopA()
				took := time.Since(began)
				close(quit)
				require.LessOrEqual(t, took, 31*time.Second, "it is renewed for one TTL, and runs out in another")
			})
		})
	}
}

// The holder notices within 100 TTLs that its lock's object was deleted, also if one read fails.
func TestOneFailedLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fail atomic.Bool
		store := leasehold.NewMemStore()
		failing := &scripted{Store: store}
		failing.before = func(_ context.Context, op, key string, _ []byte) error {
			if op == "get" && key == "locks/x" && fail.CompareAndSwap(true, false) {
				return errCut
			}
			return nil
		}
		a, stopA := anySession(t, failing, "sessions/a")
		defer stopA()
		lease, err := leaningLock(t, a, "locks/x").Acquire(t.Context())
		require.NoError(t, err)
		obj, err := store.Get(t.Context(), "locks/x")
		require.NoError(t, err)
		require.NoError(t, store.DeleteIfMatch(t.Context(), "locks/x", obj.ETag))
		fail.Store(true)
		began := time.Now()
		<-lease.Context().Done()
		require.LessOrEqual(t, time.Since(began), 101*15*time.Second)
		runtime.KeepAlive(lease)
	})
}

// A session whose locks are released often keeps to the one write a second that some stores allow for a key.
func TestHintsOnAStoreWithOneWriteASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		last := make(map[string]time.Time)
		throttling := &scripted{Store: leasehold.NewMemStore()}
		throttling.before = func(_ context.Context, op, key string, _ []byte) error {
			mu.Lock()
			defer mu.Unlock()
			if op == "get" {
				return nil
			}
			if time.Since(last[key]) < time.Second {
				return errors.New("429 Too Many Requests")
			}
			last[key] = time.Now()
			return nil
		}
		var failed atomic.Int64
		a, stopA := anySession(t, throttling, "sessions/a", leasehold.WithTTL(6*time.Second), leasehold.WithObserver(func(e leasehold.Event) {
			if e.Key == "sessions/a" && e.Kind == leasehold.EventRenewFailed {
				failed.Add(1)
			}
		}))
		defer stopA()
		time.Sleep(time.Second)
		for i := range 600 { // ten short jobs a second
			lease, err := leaningLock(t, a, fmt.Sprint("locks/", i)).Acquire(t.Context())
			require.NoError(t, err)
			go func() { time.Sleep(time.Second); _ = lease.Release(t.Context()) }()
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		require.Less(t, failed.Load(), int64(5), "renewals of the session that failed in a minute, each with a warning in the log")
	})
}

// The end of a lease whose function did not return has a cause that metrics know.
func TestOutcomeOfAnOverrunningFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var outcome atomic.Value
		a, stopA := anySession(t, leasehold.NewMemStore(), "sessions/a", leasehold.WithObserver(func(e leasehold.Event) {
			if e.Key == "locks/x" && e.Kind == leasehold.EventLost {
				outcome.Store(e.Outcome())
			}
		}))
		defer stopA()
		l := leaningLock(t, a, "locks/x")
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			_ = l.Do(ctx, func(context.Context, *leasehold.Lease) error { time.Sleep(2 * time.Minute); return nil })
		}()
		time.Sleep(10 * time.Second)
		cancel()
		time.Sleep(3 * time.Minute)
		require.Contains(t, []any{"expired", "taken_over", "deleted", "broken", "corrupt"}, outcome.Load(), "as Event.Outcome says")
	})
}

// Gaps in what a session tells make each waiter look about once per TTL, however often they come.
func TestLooksAfterGapsAreMerged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const waiters = 200
		store := leasehold.NewMemStore()
		a, stopA := anySession(t, store, "sessions/a")
		defer stopA()
		ctx, cancel := context.WithCancel(t.Context())
		for i := range waiters {
			err := holding(t, leaningLock(t, a, fmt.Sprint("locks/", i)), ctx)
			require.NoError(t, err)
		}
		counted := &counting{Store: store}
		b, stopB := anySession(t, counted, "sessions/b")
		defer stopB()
		time.Sleep(time.Second)
		for i := range waiters {
			go func() { _, _ = leaningLock(t, b, fmt.Sprint("locks/", i)).Acquire(ctx) }()
		}
		time.Sleep(time.Minute)
		go func() { // short jobs, 200 a second
			for i := 0; ctx.Err() == nil; i++ {
				lease, err := leaningLock(t, a, fmt.Sprint("jobs/", i%10)).Acquire(ctx)
				if err != nil {
					return
				}
				_ = lease.Release(ctx)
				time.Sleep(5 * time.Millisecond)
			}
		}()
		time.Sleep(time.Minute)
		before := counted.gets.Load()
		time.Sleep(10 * 15 * time.Second)
		reads := counted.gets.Load() - before
		cancel()
		synctest.Wait()
		require.Less(t, reads, int64(10*waiters*3/2), "reads in ten TTLs of %d waiters whose locks were not touched", waiters)
	})
}

// What could not be released during an outage is free soon after it, as it would be without a session.
func TestManyDebtsAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		mem := leasehold.NewMemStore()
		store := &scripted{Store: mem}
		store.before = func(_ context.Context, _, _ string, body []byte) error {
			time.Sleep(50 * time.Millisecond) // a round trip
			if down.Load() && releasedBody(body) {
				return errCut
			}
			return nil
		}
		a, stopA := anySession(t, store, "sessions/a")
		defer stopA()
		var all sync.WaitGroup
		for i := range 2000 {
			all.Go(func() {
				lease, err := leaningLock(t, a, fmt.Sprint("locks/", i)).Acquire(t.Context())
				require.NoError(t, err)
				time.Sleep(30 * time.Second)
				ended, stop := context.WithCancel(t.Context())
				stop()
				down.Store(true)
				require.Error(t, lease.Release(ended))
			})
		}
		all.Wait()
		down.Store(false)
		time.Sleep(2 * 15 * time.Second)
		held := 0
		for i := range 2000 {
			var rec leasehold.Record
			obj, err := mem.Get(t.Context(), fmt.Sprint("locks/", i))
			require.NoError(t, err)
			require.NoError(t, rec.UnmarshalJSON(obj.Body))
			if !rec.Released() {
				held++
			}
		}
		require.Zero(t, held, "locks that are not free two TTLs after the outage; Lease.Release: the lock becomes free when the TTL has passed")
	})
}
