package leasehold_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
)

// section is a critical section that knows if two are ever in it.
type section struct {
	inside   atomic.Int32
	overlaps atomic.Int32
}

func (s *section) enter() {
	if s.inside.Add(1) > 1 {
		s.overlaps.Add(1)
	}
}

func (s *section) leave() { s.inside.Add(-1) }

func TestALostTermKeepsItsLockUntilTheFunctionHasReturned(t *testing.T) {
	for name, run := range map[string]func(ctx context.Context, l *leasehold.Lock, work func(context.Context)) error{
		"Do": func(ctx context.Context, l *leasehold.Lock, work func(context.Context)) error {
			for ctx.Err() == nil {
				_ = l.Do(ctx, func(ctx context.Context, _ *leasehold.Lease) error {
					work(ctx)
					return nil
				})
			}
			return nil
		},
		"Lease.Do": func(ctx context.Context, l *leasehold.Lock, work func(context.Context)) error {
			for ctx.Err() == nil {
				if lease, err := l.Acquire(ctx); err == nil {
					_ = lease.Do(ctx, func(ctx context.Context, _ *leasehold.Lease) error {
						work(ctx)
						return nil
					})
				}
			}
			return nil
		},
		"Elector": func(ctx context.Context, l *leasehold.Lock, work func(context.Context)) error {
			e, err := leasehold.NewElector(l, leasehold.Callbacks{OnStartedLeading: func(ctx context.Context, _ *leasehold.Lease) { work(ctx) }})
			if err != nil {
				return err
			}
			return e.Run(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &faultStore{Store: leasehold.NewMemStore()}
				lock := newLock(t, store)
				ctx, cancel := context.WithCancel(t.Context())
				var s section
				terms := 0
				var wg sync.WaitGroup
				for range 3 {
					wg.Go(func() {
						if err := run(ctx, lock, func(ctx context.Context) {
							s.enter()
							defer s.leave()
							terms++
							windDown := []time.Duration{2900 * time.Millisecond, 10 * time.Second}[terms%2] // within the safety margin, and beyond it
							<-ctx.Done()
							time.Sleep(windDown)
						}); err != nil {
							t.Error(err)
						}
					})
				}
				for range 20 { // outages that end a lease, and end just after it
					time.Sleep(30 * time.Second)
					store.down.Store(true)
					time.Sleep(13 * time.Second)
					store.down.Store(false)
				}
				cancel()
				wg.Wait()
				require.Zero(t, s.overlaps.Load())
				require.Greater(t, terms, 10)
			})
		})
	}
}

func TestALostLeaseWithoutAFunctionKeepsItsLockForTheSafetyMargin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faultStore{Store: leasehold.NewMemStore()}
		lock := newLock(t, store)
		lease := acquire(t, lock)
		store.down.Store(true)
		<-lease.Context().Done()
		runtime.KeepAlive(lease)
		store.down.Store(false)
		_, err := lock.TryAcquire(t.Context())
		var held *leasehold.HeldError
		require.ErrorAs(t, err, &held)
		require.Equal(t, 3*time.Second, held.Wait)
		time.Sleep(held.Wait - 1)
		_, err = lock.TryAcquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrHeld)
		time.Sleep(time.Nanosecond)
		require.NoError(t, acquire(t, lock).Release(t.Context()))
	})
}

// A callback that returns early may have left goroutines behind, which have the safety margin to stop.
func TestATermWhoseCallbackReturnedEarlyKeepsTheMargin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasehold.NewMemStore()
		var mu sync.Mutex
		var ended time.Time
		var began []time.Time
		e, err := leasehold.NewElector(newLock(t, store, leasehold.WithPollInterval(100*time.Millisecond)), leasehold.Callbacks{
			OnStartedLeading: func(ctx context.Context, _ *leasehold.Lease) {
				mu.Lock()
				defer mu.Unlock()
				began = append(began, time.Now())
				context.AfterFunc(ctx, func() {
					mu.Lock()
					defer mu.Unlock()
					ended = time.Now()
				})
			},
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- e.Run(ctx) }()
		time.Sleep(time.Second)
		require.NoError(t, newLock(t, store).Break(t.Context(), 1))
		time.Sleep(10 * time.Second)
		mu.Lock()
		times, lost := slices.Clone(began), ended
		mu.Unlock()
		cancel()
		require.NoError(t, <-done)
		require.Len(t, times, 2)
		require.InDelta(t, 3*time.Second, times[1].Sub(lost), float64(200*time.Millisecond))
	})
}

func TestALostTermWhoseFunctionHasReturnedKeepsNobodyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasehold.NewMemStore()
		lock := newLock(t, store)
		require.ErrorIs(t, lock.Do(t.Context(), func(ctx context.Context, _ *leasehold.Lease) error {
			require.NoError(t, newLock(t, store).Break(t.Context(), 1))
			<-ctx.Done()
			return nil
		}), leasehold.ErrLost)
		require.NoError(t, acquire(t, lock).Release(t.Context()))
	})
}

func TestAReleaseUnderWayIsHeldForSiblings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faultStore{Store: leasehold.NewMemStore()}
		lock := newLock(t, store)
		done := make(chan error)
		go func() {
			done <- lock.Do(t.Context(), func(context.Context, *leasehold.Lease) error {
				store.next(fault{op: "put", apply: true, later: 500 * time.Millisecond, delay: time.Second, err: errInjected})
				return nil
			})
		}()
		time.Sleep(200 * time.Millisecond)
		_, err := lock.TryAcquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrHeld, "the release is under way")
		require.NoError(t, <-done)
		require.NoError(t, acquire(t, lock).Release(t.Context()))
	})
}

func TestAFailedReleaseFreesTheLockForSiblings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faultStore{Store: leasehold.NewMemStore()}
		lock := newLock(t, store)
		lease := acquire(t, lock)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		store.next(fault{op: "put", err: errInjected})
		require.ErrorIs(t, lease.Release(ctx), errInjected)
		next := acquire(t, lock)
		require.Equal(t, uint64(2), next.Token())
		require.NoError(t, lease.Release(t.Context()), "for all that is known the first attempt has landed")
		require.True(t, next.Valid())
		require.NoError(t, next.Release(t.Context()))
	})
}

func TestALostRaceIsAlwaysErrHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := leasehold.NewMemStore()
		var tries, won atomic.Int64
		var wg sync.WaitGroup
		for i := range 16 {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			lock := newLock(t, &jittery{Store: mem, rand: random})
			wg.Go(func() {
				for tries.Add(1) <= 5000 {
					lease, err := lock.TryAcquire(t.Context())
					switch {
					case err == nil:
						won.Add(1)
						if err := lease.Release(t.Context()); err != nil {
							t.Error(err)
						}
					case !errors.Is(err, leasehold.ErrHeld), errors.Is(err, leasehold.ErrPreconditionFailed):
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		t.Logf("%d tries, %d successes", tries.Load()-16, won.Load())
		require.Greater(t, won.Load(), int64(100))
	})
}

// jittery is a store with requests of 0 to 6 ms.
type jittery struct {
	leasehold.Store
	rand *rand.Rand
}

func (s *jittery) pause() { time.Sleep(time.Duration(s.rand.Int64N(int64(3 * time.Millisecond)))) }

func (s *jittery) Get(ctx context.Context, key string) (leasehold.Object, error) {
	s.pause()
	defer s.pause()
	return s.Store.Get(ctx, key)
}

func (s *jittery) PutIfNoneMatch(ctx context.Context, key string, body []byte) (string, error) {
	s.pause()
	defer s.pause()
	return s.Store.PutIfNoneMatch(ctx, key, body)
}

func (s *jittery) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	s.pause()
	defer s.pause()
	return s.Store.PutIfMatch(ctx, key, body, etag)
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

func TestWaitingForOneselfIsAnErrorAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasehold.NewMemStore()
		lock := newLock(t, store)
		other, err := leasehold.NewLock(store, "locks/other", leasehold.WithLogger(slog.New(slog.DiscardHandler)))
		require.NoError(t, err)
		nothing := func(context.Context, *leasehold.Lease) error { return nil }
		began := time.Now()
		var after context.Context
		require.NoError(t, lock.Do(t.Context(), func(ctx context.Context, _ *leasehold.Lease) error {
			after = context.WithoutCancel(ctx)
			require.ErrorContains(t, lock.Do(ctx, nothing), "wait for itself")
			_, err := lock.Acquire(ctx)
			require.ErrorContains(t, err, "wait for itself")
			e, err := leasehold.NewElector(lock, leasehold.Callbacks{})
			require.NoError(t, err)
			require.ErrorContains(t, e.Run(ctx), "wait for itself")
			_, err = lock.TryAcquire(ctx)
			require.ErrorIs(t, err, leasehold.ErrHeld)
			return other.Do(ctx, func(ctx context.Context, _ *leasehold.Lease) error {
				require.ErrorContains(t, lock.Do(ctx, nothing), "wait for itself", "below another lock's lease, too")
				return nil
			})
		}))
		require.Zero(t, time.Since(began))
		require.NoError(t, lock.Do(after, nothing), "the lease is over")
	})
}

func TestLocksThatWereNotMadeAreRefused(t *testing.T) {
	for name, lock := range map[string]*leasehold.Lock{"not made by NewLock": {}, "lock is nil": nil} {
		_, err := lock.TryAcquire(t.Context())
		require.ErrorContains(t, err, name)
		_, err = lock.Acquire(t.Context())
		require.ErrorContains(t, err, name)
		require.ErrorContains(t, lock.Do(t.Context(), nil), name)
		_, err = lock.Inspect(t.Context())
		require.ErrorContains(t, err, name)
		require.ErrorContains(t, lock.Break(t.Context(), 1), name)
		for _, err := range lock.Watch(t.Context()) {
			require.ErrorContains(t, err, name)
		}
		_, err = leasehold.NewElector(lock, leasehold.Callbacks{})
		require.ErrorContains(t, err, name)
	}
}

func TestLeaseDo(t *testing.T) {
	boom := errors.New("boom")
	synctest.Test(t, func(t *testing.T) {
		store := &faultStore{Store: leasehold.NewMemStore()}
		lock := newLock(t, store)
		lease := acquire(t, lock)
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), ctxKey{}, "kept"))
		err := lease.Do(ctx, func(ctx context.Context, same *leasehold.Lease) error {
			require.Same(t, lease, same)
			require.Equal(t, "kept", ctx.Value(ctxKey{}))
			require.ErrorContains(t, lease.Do(ctx, nil), "has its function already")
			time.Sleep(time.Minute)
			cancel()
			<-ctx.Done()
			time.Sleep(10 * time.Second)
			require.True(t, lease.Valid(), "renewed while the function winds down")
			return boom
		})
		require.True(t, err == boom, "the function's own error, as it is: %v", err)
		require.ErrorIs(t, context.Cause(lease.Context()), leasehold.ErrReleased)
		require.ErrorIs(t, lease.Do(t.Context(), nil), leasehold.ErrReleased)

		lease = acquire(t, lock)
		err = lease.Do(t.Context(), func(ctx context.Context, _ *leasehold.Lease) error {
			crash(store)
			<-ctx.Done()
			return fmt.Errorf("writing: %w", ctx.Err())
		})
		require.ErrorIs(t, err, leasehold.ErrLost)
		require.ErrorIs(t, err, context.Canceled)
		require.Regexp(t, `^leasehold: lock "locks/test": lease lost \(token 2\): not renewed in time`, err.Error(), "the loss comes first")
		require.ErrorIs(t, lease.Do(t.Context(), nil), leasehold.ErrLost)
	})
}

// A call of Do that is refused runs nothing, so it keeps nobody out.
func TestARefusedDoKeepsNobodyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock := newLock(t, leasehold.NewMemStore())
		lease := acquire(t, lock)
		require.NoError(t, lease.Release(t.Context()))
		err := lease.Do(t.Context(), func(context.Context, *leasehold.Lease) error { return nil })
		require.ErrorIs(t, err, leasehold.ErrReleased)
		next, err := lock.TryAcquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, next.Release(t.Context()))
	})
}

func TestAnAcquiredLeaseReportsAFunctionThatOverruns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faultStore{Store: leasehold.NewMemStore()}
		var overran atomic.Int64
		lock := newLock(t, store, leasehold.WithObserver(func(_ context.Context, e leasehold.Event) {
			if e.Kind == leasehold.EventOverrun {
				overran.Add(1)
			}
		}))
		lease := acquire(t, lock)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := lease.Do(ctx, func(context.Context, *leasehold.Lease) error {
			time.Sleep(time.Minute)
			return nil
		})
		require.ErrorIs(t, err, leasehold.ErrLost, "renewals end a TTL after ctx")
		require.EqualValues(t, 1, overran.Load())
	})
}

func TestDeadlineIsNeverAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faultStore{Store: leasehold.NewMemStore()}
		lock := newLock(t, store)
		lease := acquire(t, lock)
		require.Equal(t, 12*time.Second, time.Until(lease.Deadline()))
		time.Sleep(time.Second)
		require.NoError(t, lease.Release(t.Context()))
		require.LessOrEqual(t, time.Until(lease.Deadline()), time.Duration(0))
		time.Sleep(time.Second)
		require.LessOrEqual(t, time.Until(lease.Deadline()), -time.Second)

		lease = acquire(t, lock)
		require.NoError(t, newLock(t, store).Break(t.Context(), lease.Token()))
		<-lease.Context().Done()
		require.LessOrEqual(t, time.Until(lease.Deadline()), time.Duration(0))
	})
}

// The first attempt of a release lands, and its answer is lost.
func TestAReleaseThatHasLandedIsNotWrittenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faultStore{Store: leasehold.NewMemStore()}
		lease := acquire(t, newLock(t, store))
		store.count()
		store.next(fault{op: "put", apply: true, err: errInjected})
		require.NoError(t, lease.Release(t.Context()))
		require.Equal(t, []string{"put", "put", "get"}, store.count())
	})
}

func TestAReleaseThatHasLandedIsNoLossIfAnotherTookTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := leasehold.NewMemStore()
		store := &faultStore{Store: mem}
		lock := newLock(t, store)
		done := make(chan error)
		go func() {
			done <- lock.Do(t.Context(), func(context.Context, *leasehold.Lease) error {
				store.next(fault{op: "put", apply: true, err: errInjected})
				return nil
			})
		}()
		time.Sleep(100 * time.Millisecond) // before the second attempt
		next := acquire(t, newLock(t, mem))
		require.NoError(t, <-done)
		require.NoError(t, next.Release(t.Context()))
	})
}

// A renewal that was under way when the release began finds the lock broken: in time, or after the lease has run out.
func TestAReleaseBehindARefusedRenewal(t *testing.T) {
	for begins, want := range map[time.Duration]struct {
		err error
		end leasehold.EventKind
	}{
		time.Second:      {leasehold.ErrLost, leasehold.EventLost},
		11 * time.Second: {nil, leasehold.EventReleased},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := &faultStore{Store: leasehold.NewMemStore()}
			var ends []leasehold.EventKind
			lease := acquire(t, newLock(t, store, leasehold.WithManualRenewal(), leasehold.WithObserver(func(_ context.Context, e leasehold.Event) {
				if e.Kind == leasehold.EventReleased || e.Kind == leasehold.EventLost {
					ends = append(ends, e.Kind)
				}
			})))
			time.Sleep(begins)
			require.NoError(t, newLock(t, store).Break(t.Context(), 1))
			store.next(fault{op: "put", apply: true, delay: 2 * time.Second})
			renewed := make(chan error)
			go func() { renewed <- lease.Renew(t.Context()) }()
			time.Sleep(500 * time.Millisecond)
			require.ErrorIs(t, lease.Release(t.Context()), want.err)
			require.ErrorIs(t, <-renewed, leasehold.ErrReleased)
			require.Equal(t, []leasehold.EventKind{want.end}, ends)
		})
	}
}

// Wait counts the margin after a sibling's lease.
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
