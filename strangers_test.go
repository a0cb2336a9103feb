package leasehold_test

import (
	"context"
	"errors"
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
)

// A callback that returns early and leaves Lease.Do running: the elector releases under the running function.
func TestElectorReleasesUnderLeaseDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := leasehold.NewMemStore()
		var s section
		work := func(ctx context.Context, _ *leasehold.Lease) error {
			s.enter()
			defer s.leave()
			<-ctx.Done()
			time.Sleep(2 * time.Second) // winds down
			return nil
		}
		var doErr error
		var wg sync.WaitGroup
		e, err := leasehold.NewElector(newLock(t, mem), leasehold.Callbacks{
			OnStartedLeading: func(ctx context.Context, lease *leasehold.Lease) {
				wg.Go(func() {
					time.Sleep(100 * time.Millisecond) // the callback has returned: "the elector leads on"
					doErr = lease.Do(ctx, work)
				})
			},
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- e.Run(ctx) }()
		time.Sleep(time.Second)
		other := newLock(t, mem)
		otherCtx, stop := context.WithCancel(t.Context())
		wg.Go(func() { _ = other.Do(otherCtx, work) })
		time.Sleep(3 * time.Second)
		cancel()
		require.NoError(t, <-done)
		time.Sleep(10 * time.Second)
		stop()
		wg.Wait()
		require.ErrorContains(t, doErr, "has its function already")
		require.Zero(t, s.overlaps.Load(), "another process's function ran beside one under Lease.Do")
	})
}

// The same within one Lock: two electors.
func TestElectorReleasesUnderLeaseDoSibling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock := newLock(t, leasehold.NewMemStore(), leasehold.WithPollInterval(200*time.Millisecond))
		var s section
		var wg sync.WaitGroup
		work := func(ctx context.Context, _ *leasehold.Lease) error {
			s.enter()
			defer s.leave()
			<-ctx.Done()
			time.Sleep(2 * time.Second)
			return nil
		}
		e, err := leasehold.NewElector(lock, leasehold.Callbacks{
			OnStartedLeading: func(ctx context.Context, lease *leasehold.Lease) {
				wg.Go(func() {
					time.Sleep(100 * time.Millisecond)
					_ = lease.Do(ctx, work)
				})
			},
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- e.Run(ctx) }()
		time.Sleep(time.Second)
		otherCtx, stop := context.WithCancel(t.Context())
		wg.Go(func() { _ = lock.Do(otherCtx, work) })
		time.Sleep(time.Second)
		cancel()
		require.NoError(t, <-done)
		time.Sleep(10 * time.Second)
		stop()
		wg.Wait()
		require.Zero(t, s.overlaps.Load())
	})
}

// hookCtx calls hook when the context machinery asks it for its parent while a child ends.
type hookCtx struct {
	context.Context
	hook atomic.Pointer[func()]
}

func (c *hookCtx) Value(k any) any {
	if h := c.hook.Swap(nil); h != nil {
		(*h)()
	}
	return c.Context.Value(k)
}

// A second Lease.Do that begins between the return of the first function and the release: it is not refused, and the
// lease is released under it. The hook only widens the window.
func TestSecondDoInTheGapBeforeTheRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := leasehold.NewMemStore()
		lock := newLock(t, mem)
		base, cancel := context.WithCancel(t.Context())
		defer cancel()
		parent := &hookCtx{Context: base}
		var s section
		var wg sync.WaitGroup
		var doErr error
		require.NoError(t, lock.Do(parent, func(_ context.Context, lease *leasehold.Lease) error {
			hook := func() {
				wg.Go(func() {
					doErr = lease.Do(t.Context(), func(context.Context, *leasehold.Lease) error {
						s.enter()
						defer s.leave()
						time.Sleep(time.Second)
						return nil
					})
				})
				time.Sleep(time.Millisecond)
			}
			parent.hook.Store(&hook)
			return nil
		}))
		other := acquire(t, newLock(t, mem))
		s.enter()
		time.Sleep(100 * time.Millisecond)
		s.leave()
		wg.Wait()
		t.Log("second Do:", doErr)
		require.NoError(t, other.Release(t.Context()))
		require.Zero(t, s.overlaps.Load())
	})
}

// A plain lock and a reclaiming one of one process, one identity: two valid leases.
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

// User code (observer, logger) runs under the global mutex of reclaim.go.
func TestObserverUnderTheReclaimMutex(t *testing.T) {
	store := leasehold.NewMemStore()
	c := newBrokenClock()
	third, err := leasehold.NewLock(store, "locks/third", leasehold.WithIdentity("pod-0"), leasehold.WithReclaim())
	require.NoError(t, err)
	namesake, err := leasehold.NewLock(store, "locks/third", leasehold.WithIdentity("pod-0"))
	require.NoError(t, err)
	_, err = namesake.TryAcquire(t.Context()) // so that third has to ask whether it may reclaim
	require.NoError(t, err)
	opts := []leasehold.Option{withClock(c), leasehold.WithLogger(nil), leasehold.WithIdentity("pod-0"), leasehold.WithReclaim(), leasehold.WithManualRenewal()}
	one, err := leasehold.NewLock(store, key, append(opts, leasehold.WithObserver(func(e leasehold.Event) {
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

// WithStoreCheck: the name of the package twice.
type unsafeStore struct{ *leasehold.MemStore }

func (s unsafeStore) PutIfNoneMatch(ctx context.Context, key string, body []byte) (string, error) {
	if o, err := s.Get(ctx, key); err == nil {
		return s.PutIfMatch(ctx, key, body, o.ETag)
	}
	return s.MemStore.PutIfNoneMatch(ctx, key, body)
}

func TestStoreCheckStutters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, err := newLock(t, unsafeStore{leasehold.NewMemStore()}, leasehold.WithStoreCheck()).TryAcquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrUnsafeStore)
		require.Equal(t, 1, strings.Count(err.Error(), "leasehold: "), err.Error())
	})
}

// Plain numbers are accepted.
func TestPlainNumbers(t *testing.T) {
	s3 := floor{leasehold.NewMemStore()}
	_, err := leasehold.NewLock(s3, key, leasehold.WithSafetyMargin(3))
	require.Error(t, err, "a safety margin of 3 ns")
}

func TestPlainNumberSkew(t *testing.T) {
	s3 := floor{leasehold.NewMemStore()}
	_, err := leasehold.NewLock(s3, key, leasehold.WithSkewAllowance(5))
	require.Error(t, err, "a skew allowance of 5 ns")
}

// "A nil logger keeps the lock silent."
func TestNilLoggerIsNotSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := logged(t, func() {
			e, err := leasehold.NewElector(newLock(t, leasehold.NewMemStore(), leasehold.WithLogger(nil)), leasehold.Callbacks{
				OnStartedLeading: func(context.Context, *leasehold.Lease) { panic("boom") },
			})
			require.NoError(t, err)
			require.Panics(t, func() { _ = e.Run(t.Context()) })
		})
		require.Empty(t, text)
	})
}

// RunOnce: "an error that matches ErrLost if it was lost".
func TestRunOnceIsSilentAboutALossWhileWindingDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faultStore{Store: leasehold.NewMemStore()}
		var lost bool
		e, err := leasehold.NewElector(newLock(t, store), leasehold.Callbacks{
			OnStartedLeading: func(ctx context.Context, lease *leasehold.Lease) {
				<-ctx.Done()
				store.down.Store(true)
				time.Sleep(20 * time.Second)
				lost = errors.Is(lease.Renew(context.Background()), leasehold.ErrLost)
			},
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		err = e.RunOnce(ctx)
		require.True(t, lost)
		require.ErrorIs(t, err, leasehold.ErrLost)
	})
}

// Check blames the store while a sibling overruns, and no request is made at all.
func TestCheckBlamesTheStoreForASiblingsOverrun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faultStore{Store: leasehold.NewMemStore()}
		lock := newLock(t, store, leasehold.WithLogger(nil))
		go func() {
			_ = lock.Do(context.Background(), func(ctx context.Context, _ *leasehold.Lease) error {
				<-ctx.Done()
				time.Sleep(2 * time.Minute)
				return nil
			})
		}()
		time.Sleep(time.Second)
		e, err := leasehold.NewElector(lock, leasehold.Callbacks{})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- e.Run(ctx) }()
		store.down.Store(true)
		time.Sleep(15 * time.Second)
		store.down.Store(false)
		store.count()
		time.Sleep(50 * time.Second)
		n := len(store.count())
		err = e.Check(nil)
		cancel()
		<-done
		time.Sleep(2 * time.Minute)
		t.Logf("%d requests in 50 s; Check: %v", n, err)
		require.NoError(t, err)
	})
}

// What stands in the way is the lock's own function, not "other candidates".
func TestHeldErrorAfterAReleaseInsideDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock := newLock(t, leasehold.NewMemStore(), leasehold.WithIdentity("alice"))
		require.NoError(t, lock.Do(t.Context(), func(ctx context.Context, lease *leasehold.Lease) error {
			require.NoError(t, lease.Release(ctx))
			_, err := lock.TryAcquire(context.Background())
			require.ErrorIs(t, err, leasehold.ErrHeld)
			require.NotContains(t, err.Error(), "other candidates were faster")
			return nil
		}))
	})
}

// raced lets others act just before each conditional write.
type raced struct {
	leasehold.Store
	before func()
}

func (s *raced) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	s.before()
	return s.Store.PutIfMatch(ctx, key, body, etag)
}

// Wait is 0 though somebody holds a living lease.
func TestHeldErrorWaitAfterFourLostRaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := leasehold.NewMemStore()
		require.NoError(t, acquire(t, newLock(t, mem)).Release(t.Context()))
		rival := newLock(t, mem, leasehold.WithIdentity("rival"))
		n := 0
		store := &raced{mem, func() {
			n++
			lease, err := rival.TryAcquire(t.Context())
			if err == nil && n < 4 {
				_ = lease.Release(t.Context())
			}
		}}
		_, err := newLock(t, store).TryAcquire(t.Context())
		var held *leasehold.HeldError
		require.ErrorAs(t, err, &held)
		t.Log(err)
		require.False(t, held.Record.Released())
		require.Greater(t, held.Wait, 15*time.Second, "the rival holds it")
	})
}

// Wait of a sibling's lease: the lock can be taken only a margin after what it says.
func TestHeldErrorWaitOfASibling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faultStore{Store: leasehold.NewMemStore()}
		lock := newLock(t, store, leasehold.WithManualRenewal())
		acquire(t, lock)
		_, err := lock.TryAcquire(t.Context())
		var held *leasehold.HeldError
		require.ErrorAs(t, err, &held)
		time.Sleep(held.Wait)
		_, err = lock.TryAcquire(t.Context())
		require.NoError(t, err, "after Wait = %v", held.Wait)
	})
}

// Run returns nil though the store never answered.
func TestRunReturnsNilThoughTheStoreNeverAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faultStore{Store: leasehold.NewMemStore()}
		store.down.Store(true)
		e, err := leasehold.NewElector(newLock(t, store), leasehold.Callbacks{})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		require.Error(t, e.Run(ctx))
	})
}

// Renew with an ended ctx: sends a request or not, at random; and its text.
func TestRenewWithAnEndedContextIsRandom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faultStore{Store: leasehold.NewMemStore()}
		lease := acquire(t, newLock(t, store, leasehold.WithManualRenewal()))
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		store.count()
		texts := map[string]int{}
		for range 100 {
			if err := lease.Renew(ended); err != nil {
				texts[err.Error()]++
			} else {
				texts["nil"]++
			}
		}
		n := len(store.count())
		t.Log(n, "requests of 100;", texts)
		require.Contains(t, []int{0, 100}, n)
	})
}

// Reads succeed, writes are denied: Run never ends, Check is healthy.
type readOnly struct{ *leasehold.MemStore }

var errDenied = errors.New("access denied")

func (readOnly) PutIfNoneMatch(context.Context, string, []byte) (string, error) {
	return "", errors.Join(leasehold.ErrPermanent, errDenied)
}

func TestRunWithReadOnlyCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock := newLock(t, readOnly{leasehold.NewMemStore()}, leasehold.WithLogger(nil))
		_, err := lock.Acquire(t.Context())
		require.ErrorIs(t, err, errDenied, "Acquire ends at once")
		e, err := leasehold.NewElector(newLock(t, readOnly{leasehold.NewMemStore()}, leasehold.WithLogger(nil)), leasehold.Callbacks{})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var check error
		time.AfterFunc(59*time.Minute, func() { check = e.Check(nil) })
		began := time.Now()
		err = e.Run(ctx)
		t.Logf("Run returned %v after %v; Check at 59 min: %v", err, time.Since(began), check)
		require.True(t, err != nil || check != nil, "nobody is told")
	})
}

// runtime.Goexit in an observer (t.FailNow in a test) under an elector: nil dereference.
func TestGoexitInAnObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		e, err := leasehold.NewElector(newLock(t, leasehold.NewMemStore(), leasehold.WithObserver(func(e leasehold.Event) {
			if n++; n == 1 {
				runtime.Goexit()
			}
		})), leasehold.Callbacks{})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		ended := make(chan bool)
		go func() {
			returned := false
			defer func() { ended <- returned }()
			_ = e.Run(ctx)
			returned = true
		}()
		require.False(t, <-ended, "it goes on as runtime.Goexit, in Run's own goroutine")
	})
}

// EventNewLeader again for a term seen before.
func TestNewLeaderTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := leasehold.NewMemStore()
		slow := &faultStore{Store: mem}
		var seen []uint64
		lock := newLock(t, slow, leasehold.WithObserver(func(e leasehold.Event) {
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

// Break that loses its races shows a 412, which reads as "another term".
func TestBreakLosesItsRaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := leasehold.NewMemStore()
		lease := acquire(t, newLock(t, mem, leasehold.WithManualRenewal()))
		err := newLock(t, &raced{mem, func() { _ = lease.Renew(t.Context()) }}).Break(t.Context(), lease.Token())
		t.Log(err)
		require.NotErrorIs(t, err, leasehold.ErrPreconditionFailed, "it is that very term")
	})
}

// A typed nil.
func TestNilMemStore(t *testing.T) {
	_, err := leasehold.NewLock((*leasehold.MemStore)(nil), key)
	require.Error(t, err)
}

// TryAcquire that was cut off and could not release: nobody is told that the lock stays taken for a TTL.
func TestCutOffTryAcquireHidesTheStrayLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faultStore{Store: leasehold.NewMemStore()}
		var kinds []string
		var err error
		text := logged(t, func() {
			lock := newLock(t, store, leasehold.WithObserver(func(e leasehold.Event) { kinds = append(kinds, e.Kind.String()) }))
			ctx, cancel := context.WithCancel(t.Context())
			store.next(fault{op: "put", apply: true, delay: time.Second}, fault{op: "put", err: errInjected})
			time.AfterFunc(500*time.Millisecond, cancel)
			_, err = lock.TryAcquire(ctx)
		})
		rec, _ := newLock(t, store).Inspect(t.Context())
		t.Logf("error %q, log %q, events %v, released %v", err, text, kinds, rec.Released())
		require.True(t, errors.Is(err, errInjected) || text != "" || rec.Released())
	})
}

// TryAcquire does not say its ctx's cause, Acquire does.
func TestTryAcquireCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine := errors.New("mine")
		store := &faultStore{Store: leasehold.NewMemStore()}
		ctx, cancel := context.WithCancelCause(t.Context())
		store.next(fault{op: "put", apply: true, delay: time.Second})
		time.AfterFunc(500*time.Millisecond, func() { cancel(mine) })
		_, err := newLock(t, store).TryAcquire(ctx)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, mine)
	})
}

// Acquire with the ended context of a lost lease: "the error matches ctx's error".
func TestAcquireWithTheEndedContextOfALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faultStore{Store: leasehold.NewMemStore()}
		lock := newLock(t, store, leasehold.WithLogger(nil))
		_ = lock.Do(t.Context(), func(ctx context.Context, _ *leasehold.Lease) error {
			crash(store)
			<-ctx.Done()
			_, err := lock.Acquire(ctx)
			require.ErrorIs(t, err, context.Canceled)
			return nil
		})
	})
}

// A cut-off acquisition: released without acquired.
func TestEventsOfACutOffAcquisition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faultStore{Store: leasehold.NewMemStore()}
		n := map[leasehold.EventKind]int{}
		lock := newLock(t, store, leasehold.WithObserver(func(e leasehold.Event) { n[e.Kind]++ }))
		ctx, cancel := context.WithCancel(t.Context())
		store.next(fault{op: "put", apply: true, delay: time.Second})
		time.AfterFunc(500*time.Millisecond, cancel)
		_, err := lock.TryAcquire(ctx)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, n[leasehold.EventAcquired], n[leasehold.EventReleased]+n[leasehold.EventLost])
	})
}

// OnStoppedLeading that takes its time (its comment does not say that it must be quick) makes Check fail.
func TestCheckDuringOnStoppedLeading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := leasehold.NewElector(newLock(t, leasehold.NewMemStore()), leasehold.Callbacks{
			OnStoppedLeading: func(error) { time.Sleep(time.Minute) },
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- e.Run(ctx) }()
		time.Sleep(time.Second)
		over, stop := context.WithCancel(t.Context())
		stop()
		_ = e.Resign(over) // only asks
		time.Sleep(45 * time.Second)
		check := e.Check(nil)
		cancel()
		require.NoError(t, <-done)
		require.NoError(t, check)
	})
}

// Somebody who watches the same Lock turns errors that cannot heal into endless retries of Run.
func TestWatchHidesAnUnsafeStoreFromRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock := newLock(t, unsafeStore{leasehold.NewMemStore()}, leasehold.WithStoreCheck(), leasehold.WithLogger(nil))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		e, err := leasehold.NewElector(lock, leasehold.Callbacks{})
		require.NoError(t, err)
		var wg sync.WaitGroup
		wg.Go(func() {
			for range lock.Watch(ctx) {
			}
		})
		synctest.Wait()
		began := time.Now()
		err = e.Run(ctx)
		took := time.Since(began)
		cancel()
		wg.Wait()
		require.ErrorIs(t, err, leasehold.ErrUnsafeStore, "after %v", took)
	})
}

// A negative age of a store of the user's own: Wait is over the TTL, and the candidate waits so long.
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

// An acquisition that took too long, with a ctx that has ended: the record stays.
func TestTooLateAndCutOffLeavesAStrayLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := leasehold.NewMemStore()
		c := newBrokenClock()
		ctx, cancel := context.WithCancel(t.Context())
		store := &sleepy{mem, func() { c.suspend(13 * time.Second); cancel() }}
		_, err := newLock(t, store, withClock(c)).TryAcquire(ctx)
		rec, _ := newLock(t, mem).Inspect(t.Context())
		t.Log(err)
		require.True(t, rec.Released(), "so that it leaves no stray lock")
	})
}

type sleepy struct {
	leasehold.Store
	sleep func()
}

func (s *sleepy) PutIfNoneMatch(ctx context.Context, key string, body []byte) (string, error) {
	etag, err := s.Store.PutIfNoneMatch(context.WithoutCancel(ctx), key, body)
	s.sleep()
	return etag, err
}
