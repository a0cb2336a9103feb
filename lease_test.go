package leasehold_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/testkit/bubble"
	"github.com/leasehold-go/leasehold/internal/testkit/testctx"
	"github.com/leasehold-go/leasehold/internal/testkit/testopt"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
)

func TestLeaseEndsBeforeAnyoneElseCanHoldTheLock(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		began := time.Now()
		lease := acquire(t, newLock(t, store))
		require.Equal(t, began.Add(12*time.Second), lease.Deadline(), "the TTL less the safety margin")
		crash(store)
		<-lease.Context().Done()
		require.Equal(t, 12*time.Second, time.Since(began))
		require.False(t, lease.Valid())
		require.ErrorIs(t, context.Cause(lease.Context()), leasehold.ErrLost)
		require.ErrorIs(t, lease.Renew(t.Context()), leasehold.ErrLost)
	})
}

func TestValidityCountsFromBeforeTheRequestWasSent(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		store.next(fault{op: "get", apply: true}, fault{op: "put", apply: true, delay: 2 * time.Second})
		began := time.Now()
		lease := acquire(t, newLock(t, store, leasehold.WithManualRenewal()))
		require.Equal(t, 2*time.Second, time.Since(began))
		require.Equal(t, began.Add(12*time.Second), lease.Deadline())

		store.next(fault{op: "put", apply: true, delay: 2 * time.Second})
		renewing := time.Now()
		require.NoError(t, lease.Renew(t.Context()))
		require.Equal(t, renewing.Add(12*time.Second), lease.Deadline())
		require.NoError(t, lease.Release(t.Context()))
	})
}

// One wrong hand of the clock is enough to end a lease, and a clock set back cannot lengthen it.
func TestAnyClockEndsALease(t *testing.T) {
	for name, jump := range map[string]clock.Reading{
		"monotonic":                       {Mono: 12 * time.Second},
		"wall":                            {Wall: 12 * time.Second},
		"boottime":                        {Boot: 12 * time.Second},
		"boottime, wall set back an hour": {Boot: 12 * time.Second, Wall: -time.Hour},
		"two sleeps, each seen by one":    {Boot: 7 * time.Second, Wall: 7 * time.Second},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			c := newBrokenClock()
			lease := acquire(t, newLock(t, leasehold.NewMemStore(), withClock(c)))
			c.move(clock.Reading{Wall: -time.Hour})
			require.True(t, lease.Valid(), "set back")
			c.move(clock.Reading{Wall: time.Hour})
			require.True(t, lease.Valid())
			c.move(jump)
			require.False(t, lease.Valid())
			require.ErrorIs(t, context.Cause(lease.Context()), leasehold.ErrLost)
		})
	}
}

func TestSuspendedHolderKnowsOnWaking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := testopt.NewMemStore(false, true)
		c := newBrokenClock()
		asleep := newFaultStore(mem)
		lease := acquire(t, newLock(t, asleep, withClock(c), leasehold.WithManualRenewal()))
		// Suspended: no timer runs, the monotonic clock stands still.
		c.suspend(5 * time.Second)
		require.True(t, lease.Valid(), "10 s: the wall clock and BOOTTIME may have seen two sleeps")
		c.suspend(11 * time.Second)
		require.False(t, lease.Valid(), "though the monotonic clock has not moved")

		next, err := newLock(t, mem).TryAcquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, next.Release(t.Context()))
	})
}

func TestSuspendEndsTheContextSoonAfterWaking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newBrokenClock()
		store := newFaultStore(leasehold.NewMemStore())
		lease := acquire(t, newLock(t, store, withClock(c)))
		crash(store)
		c.move(clock.Reading{Wall: time.Hour, Boot: time.Hour}) // an hour asleep
		woke := time.Now()
		<-lease.Context().Done()
		require.LessOrEqual(t, time.Since(woke), 3*time.Second, "a fifth of the TTL")
		runtime.KeepAlive(lease)
	})
}

// The clocks of holder and candidate are hours apart, and neither steals nor waits longer.
func TestNoWallClockDecidesAboutARecordWithTTL(t *testing.T) {
	for name, off := range map[string]time.Duration{
		"candidate an hour fast": time.Hour,
		"candidate an hour slow": -time.Hour,
	} {
		bubble.Run(t, name, func(t *testing.T) {
			mem := leasehold.NewMemStore()
			holder := newFaultStore(mem)
			lease := acquire(t, newLock(t, holder))
			c := newBrokenClock()
			c.move(clock.Reading{Wall: off})
			candidate := newLock(t, newFaultStore(mem), withClock(c))

			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			_, err := candidate.Acquire(ctx)
			cancel()
			require.ErrorIs(t, err, leasehold.ErrHeld, "a renewed lease is never stolen")
			require.True(t, lease.Valid())

			crash(holder)
			crashed := time.Now()
			next, err := candidate.Acquire(t.Context())
			require.NoError(t, err)
			require.LessOrEqual(t, time.Since(crashed), 19*time.Second)
			require.ErrorIs(t, context.Cause(lease.Context()), leasehold.ErrLost)
			require.NoError(t, next.Release(t.Context()))
		})
	}
}

// A write that times out and lands seconds later must neither lock us out nor give the lock to two.
func TestGhostAcquisitionIsTakenOverAtOnce(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		lock := newLock(t, store)
		store.next(fault{op: "get", apply: true}, fault{
			op:    "put",
			apply: true,
			later: 4 * time.Second,
			delay: time.Hour,
		})
		_, err := lock.TryAcquire(t.Context())
		require.Error(t, err)
		require.NotErrorIs(t, err, leasehold.ErrHeld)
		time.Sleep(5 * time.Second)

		lease, err := lock.TryAcquire(t.Context())
		require.NoError(t, err, "the ghost is our own")
		require.Equal(t, uint64(2), lease.Token(), "a new term: the ghost's validity is not known to anyone")
		require.NoError(t, lease.Release(t.Context()))
	})
}

func TestGhostRenewalIsAdopted(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		lease := acquire(t, newLock(t, store))
		// The renewal at 5 s hangs and lands at 8 s, before the retry is sent; that one is refused
		// and finds the ghost.
		store.next(fault{op: "put", apply: true, later: 2400 * time.Millisecond, delay: time.Hour})
		time.Sleep(time.Minute)
		require.True(t, lease.Valid())
		require.NoError(t, lease.Release(t.Context()))
	})
}

func TestGhostRenewalCannotUndoARelease(t *testing.T) {
	onMemStore(t, func(t *testing.T, mem leasehold.Store) {
		store := newFaultStore(mem)
		lease := acquire(t, newLock(t, store, leasehold.WithManualRenewal()))
		ctx := testctx.Within(t, time.Second)
		store.next(fault{op: "put", apply: true, later: 10 * time.Second, delay: time.Hour})
		require.Error(t, lease.Renew(ctx))
		require.NoError(t, lease.Release(t.Context()))
		time.Sleep(time.Minute)
		next := acquire(t, newLock(t, mem))
		require.Equal(t, uint64(2), next.Token())
		require.NoError(t, next.Release(t.Context()))
	})
}

func TestReleaseWithoutReplyIsRetriedUntilTheLeaseWouldEnd(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		lease := acquire(t, newLock(t, store))
		crash(store)
		began := time.Now()
		err := lease.Release(t.Context())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.InDelta(t, 15*time.Second, time.Since(began), float64(5*time.Second))
		store.down.Store(false)
		require.NoError(t, lease.Release(t.Context()), "a failed release can be repeated")
	})
}

// A release is tried until the lease would have ended, however long ago that was renewed.
func TestAReleaseIsTriedNoLongerThanTheLeaseWouldHaveLasted(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		lease := acquire(t, newLock(t, store, leasehold.WithManualRenewal()))
		began := time.Now()
		time.Sleep(11 * time.Second)
		crash(store)
		require.Error(t, lease.Release(t.Context()))
		require.InDelta(t, 15*time.Second, time.Since(began), float64(4*time.Second), "a TTL and an attempt")
	})
}

// A renewal that lands, and whose answer comes when the lease is over, has renewed nothing.
func TestAnAnswerAfterTheEndOfALeaseIsALoss(t *testing.T) {
	for name, write := range map[string]func(context.Context, *leasehold.Lease) error{
		"Renew":  func(ctx context.Context, l *leasehold.Lease) error { return l.Renew(ctx) },
		"Commit": func(ctx context.Context, l *leasehold.Lease) error { return l.Commit(ctx, []byte("x")) },
	} {
		bubble.Run(t, name, func(t *testing.T) {
			store := newFaultStore(leasehold.NewMemStore())
			lease := acquire(t, newLock(t, store, leasehold.WithManualRenewal()))
			time.Sleep(11 * time.Second) // of 12
			store.next(fault{op: "put", apply: true, delay: 2 * time.Second})
			require.ErrorIs(t, write(t.Context(), lease), leasehold.ErrLost)
			require.False(t, lease.Valid())
		})
	}
}

// In an outage that has time for more writes than a term remembers, the first of them may have
// landed, or one of the last.
func TestALongOutageCostsNoLease(t *testing.T) {
	const writes = 150
	for _, landed := range []int{0, writes - 20, writes - 1} {
		bubble.Run(t, strconv.Itoa(landed), func(t *testing.T) {
			store := newFaultStore(leasehold.NewMemStore())
			lock := newLock(t, store, leasehold.WithManualRenewal(), leasehold.WithTTL(time.Hour))
			lease := acquire(t, lock)
			for i := range writes {
				store.next(fault{op: "put", apply: i == landed, err: errInjected})
				once, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				require.ErrorIs(t, lease.Renew(once), errInjected)
				cancel()
			}
			require.NoError(t, lease.Renew(t.Context()))
			require.NoError(t, lease.Release(t.Context()))
		})
	}
}

// Release tells that the lease was over before, as Renew does, and tells it again.
func TestReleaseOfALeaseThatWasReplaced(t *testing.T) {
	for name, replace := range map[string]func(*testing.T, leasehold.Store){
		"taken over": func(t *testing.T, s leasehold.Store) {
			rec := stored(t, s)
			rec.Token, rec.Holder, rec.Nonce = rec.Token+1, "mallory", "x"
			overwrite(t, s, rec)
		},
		"broken": func(t *testing.T, s leasehold.Store) { require.NoError(t, newLock(t, s).Break(t.Context(), 1)) },
		"deleted": func(t *testing.T, s leasehold.Store) {
			o, err := s.Get(t.Context(), key)
			require.NoError(t, err)
			require.NoError(t, s.DeleteIfMatch(t.Context(), key, o.ETag))
		},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			store := leasehold.NewMemStore()
			lease := acquire(t, newLock(t, store))
			replace(t, store)
			before, _ := store.Get(t.Context(), key)
			for range 2 {
				require.ErrorIs(t, lease.Release(t.Context()), leasehold.ErrLost)
			}
			after, _ := store.Get(t.Context(), key)
			require.Equal(t, before.ETag, after.ETag)
		})
	}
}

func TestReleaseWithAnEndedContextStillReleases(t *testing.T) {
	onMemStore(t, func(t *testing.T, store leasehold.Store) {
		lease := acquire(t, newLock(t, store))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, lease.Release(ctx))
		rec, err := newLock(t, store).Inspect(t.Context())
		require.NoError(t, err)
		require.True(t, rec.Released())
	})
}

func TestAcquireCutOffMidWriteLeavesNoStrayLock(t *testing.T) {
	onMemStore(t, func(t *testing.T, mem leasehold.Store) {
		store := newFaultStore(mem)
		store.next(fault{op: "get", apply: true}, fault{op: "put", apply: true, delay: 2 * time.Second})
		ctx := testctx.Within(t, time.Second)
		_, err := newLock(t, store).Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		rec, err := newLock(t, mem).Inspect(t.Context())
		require.NoError(t, err)
		require.True(t, rec.Released())
	})
}

func TestDefinitiveLossEndsTheContextAtOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		do            func(t *testing.T, s leasehold.Store)
		says, outcome string
	}{
		"object deleted": {func(t *testing.T, s leasehold.Store) {
			o, err := s.Get(t.Context(), key)
			require.NoError(t, err)
			require.NoError(t, s.DeleteIfMatch(t.Context(), key, o.ETag))
		}, "deleted", "deleted"},
		"foreign overwrite": {func(t *testing.T, s leasehold.Store) {
			o, err := s.Get(t.Context(), key)
			require.NoError(t, err)
			_, err = s.PutIfMatch(
				t.Context(), key, []byte(`{"expires_at": 99999999999, "token": 5, "holder": "mallory"}`), o.ETag)
			require.NoError(t, err)
		}, `taken over by "mallory" with token 5`, "taken_over"},
		"garbage": {func(t *testing.T, s leasehold.Store) {
			o, err := s.Get(t.Context(), key)
			require.NoError(t, err)
			_, err = s.PutIfMatch(t.Context(), key, []byte(`<html>`), o.ETag)
			require.NoError(t, err)
		}, "corrupt", "corrupt"},
		"broken by an administrator": {func(t *testing.T, s leasehold.Store) {
			require.NoError(t, newLock(t, s).Break(t.Context(), 1))
		}, "administrator", "broken"},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			store := leasehold.NewMemStore()
			lease := acquire(t, newLock(t, store))
			tc.do(t, store)
			happened := time.Now()
			<-lease.Context().Done()
			require.LessOrEqual(t, time.Since(happened), 5*time.Second, "the next renewal, not the deadline")
			cause := context.Cause(lease.Context())
			require.ErrorIs(t, cause, leasehold.ErrLost)
			require.ErrorContains(t, cause, tc.says)
			require.Equal(t, tc.outcome, leasehold.Outcome(cause))
			before, _ := store.Get(t.Context(), key)
			require.ErrorIs(t, lease.Release(t.Context()), leasehold.ErrLost)
			after, _ := store.Get(t.Context(), key)
			require.Equal(t, before.ETag, after.ETag, "a lost lease touches nothing")
		})
	}
}

func TestLeaseSurvivesShortOutages(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		lease := acquire(t, newLock(t, store))
		for range 20 {
			store.down.Store(true)
			time.Sleep(5 * time.Second)
			store.down.Store(false)
			time.Sleep(10 * time.Second)
		}
		require.True(t, lease.Valid())
		require.NoError(t, lease.Release(t.Context()))
	})
}

func TestManualRenewalLeavesRenewingToTheCaller(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		lease := acquire(t, newLock(t, store, leasehold.WithManualRenewal()))
		store.count()
		for range 10 {
			time.Sleep(10 * time.Second)
			require.NoError(t, lease.Renew(t.Context()))
		}
		require.Len(t, store.count(), 10, "one request each, no others")
		time.Sleep(12 * time.Second)
		require.ErrorIs(t, lease.Renew(t.Context()), leasehold.ErrLost)
		require.Empty(t, store.count())
	})
}

func TestForgottenLeaseStopsRenewing(t *testing.T) {
	// Not in a bubble: the garbage collector's clean-up runs outside of it.
	var renewed atomic.Int64
	lock, err := leasehold.NewLock(leasehold.NewMemStore(), key, leasehold.WithTTL(time.Second),
		leasehold.WithRenewInterval(10*time.Millisecond),
		onEvent(func(leasehold.Event) { renewed.Add(1) }, leasehold.EventRenewed))
	require.NoError(t, err)
	timeout := time.After(time.Minute)
	try := func() *leasehold.Lease { // the lease runs out by itself if this machine stands still
		for {
			select {
			case <-timeout:
				t.Fatalf("still renewing: %d", renewed.Load())
			default:
			}
			runtime.GC()
			if lease, err := lock.TryAcquire(context.Background()); err == nil {
				return lease
			}
		}
	}
	keepsTheContext := func() bool { // that is enough
		ctx, before := try().Context(), renewed.Load()
		for renewed.Load() < before+5 && ctx.Err() == nil {
			runtime.GC()
		}
		return ctx.Err() == nil
	}
	for !keepsTheContext() {
	}
	require.NoError(t, try().Release(context.Background()))
}

func TestCommittedStateSurvivesReleaseAndTakeover(t *testing.T) {
	onMemStore(t, func(t *testing.T, mem leasehold.Store) {
		store := newFaultStore(mem)
		lease := acquire(t, newLock(t, store))
		// The reply of the first commit is lost, that of the second comes after a renewal whose
		// reply was lost.
		store.next(fault{op: "put", apply: true, err: errInjected})
		require.NoError(t, lease.Commit(t.Context(), []byte("one")))
		store.next(fault{op: "put", apply: true, err: errInjected}, fault{op: "put", apply: true, err: errInjected})
		require.NoError(t, lease.Renew(t.Context()))
		require.NoError(t, lease.Commit(t.Context(), []byte("two")))
		require.Equal(t, "two", string(lease.Record().Payload))
		require.ErrorContains(t, lease.Commit(t.Context(), make([]byte, 33<<10)), "32768")
		require.NoError(t, lease.Release(t.Context()))

		next := acquire(t, newLock(t, mem))
		require.Equal(t, "two", string(next.Record().Payload))
		require.ErrorIs(t, lease.Commit(t.Context(), []byte("zombie")), leasehold.ErrReleased)
		rec, err := newLock(t, mem).Inspect(t.Context())
		require.NoError(t, err)
		require.Equal(t, "two", string(rec.Payload))
		require.NoError(t, next.Release(t.Context()))
	})
}

// renewWithoutAnswer renews a lease. The write lands, but its answer is lost.
func renewWithoutAnswer(t *testing.T, store *faultStore, lease *leasehold.Lease) {
	t.Helper()
	store.next(fault{op: "put", apply: true, err: errInjected})
	require.ErrorIs(t, lease.Renew(testctx.Within(t, time.Millisecond)), context.DeadlineExceeded)
}

// A commit whose condition fails because an earlier renewal has landed is written again.
func TestACommitAfterARenewalOfUnknownOutcomeIsWritten(t *testing.T) {
	onMemStore(t, func(t *testing.T, mem leasehold.Store) {
		store := newFaultStore(mem)
		lease := acquire(t, newLock(t, store, leasehold.WithManualRenewal()))
		renewWithoutAnswer(t, store, lease)
		require.NoError(t, lease.Commit(t.Context(), []byte("state")))
		rec, err := newLock(t, mem).Inspect(t.Context())
		require.NoError(t, err)
		require.Equal(t, "state", string(rec.Payload))
		require.NoError(t, lease.Release(t.Context()))
	})
}

func TestAReleaseIsToldOnceAndWrittenOnce(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		var told []error
		lease := acquire(t, newLock(t, store,
			onEvent(func(e leasehold.Event) { told = append(told, e.Err) }, leasehold.EventReleased)))
		store.count()
		require.NoError(t, lease.Release(t.Context()))
		require.NoError(t, lease.Release(t.Context()))
		require.Equal(t, []error{nil}, told)
		require.Equal(t, []string{"put"}, store.count())
	})
}

func TestZombiesCommitFails(t *testing.T) {
	onMemStore(t, func(t *testing.T, mem leasehold.Store) {
		c := newBrokenClock()
		zombie := acquire(t, newLock(t, mem, withClock(c), leasehold.WithManualRenewal()))
		time.Sleep(11 * time.Second)
		// a paused machine: no clock has noticed
		c.move(clock.Reading{Mono: -time.Hour, Wall: -time.Hour, Boot: -time.Hour})
		require.NoError(t, newLock(t, mem).Break(t.Context(), 1))
		leader := acquire(t, newLock(t, mem))
		require.NoError(t, leader.Commit(t.Context(), []byte("leader")))
		require.True(t, zombie.Valid(), "it cannot know")
		require.ErrorIs(t, zombie.Commit(t.Context(), []byte("zombie")), leasehold.ErrLost)
		require.Equal(t, "leader", string(leader.Record().Payload))
		require.NoError(t, leader.Renew(t.Context()))
		require.NoError(t, leader.Release(t.Context()))
	})
}

// A store that fails for less time than a lease has left when its renewal is due costs no lease.
func TestShortOutagesCostNoLease(t *testing.T) {
	onMemStore(t, func(t *testing.T, mem leasehold.Store) {
		var lost atomic.Int64
		ctx := testctx.Within(t, time.Hour)
		// The store fails for the last 6 seconds of each minute. A lease of 12 seconds that is
		// renewed every 5 has 7 left.
		store := teststore.New(mem, func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
			if r.Op == teststore.Update && time.Now().Second() >= 54 {
				return leasehold.Object{}, errors.New("503 SlowDown")
			}
			return r.Send(ctx)
		})
		var all sync.WaitGroup
		for i := range 20 {
			l, err := leasehold.NewLock(store, fmt.Sprint("locks/", i), withClock(newBrokenClock()),
				leasehold.WithLogger(slog.New(slog.DiscardHandler)),
				onEvent(func(leasehold.Event) { lost.Add(1) }, leasehold.EventLost))
			require.NoError(t, err)
			all.Go(func() {
				_ = l.Do(ctx, func(ctx context.Context, _ *leasehold.Lease) error {
					<-ctx.Done()
					return nil
				})
			})
		}
		all.Wait()
		require.Zero(t, lost.Load())
	})
}

// Failures of the past do not make the next try late.
func TestTheFirstTryAfterAFailureComesSoon(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		var failed time.Time
		var pauses []time.Duration
		l := newLock(t, store, leasehold.WithObserver(func(_ context.Context, e leasehold.Event) {
			switch e.Kind {
			case leasehold.EventRenewFailed:
				failed = time.Now()
			case leasehold.EventRenewed:
				if !failed.IsZero() {
					pauses = append(pauses, time.Since(failed))
					failed = time.Time{}
					store.next(fault{op: "put", err: errors.New("503 SlowDown")})
				}
			}
		}))
		lease := acquire(t, l)
		store.next(fault{op: "put", err: errors.New("503 SlowDown")})
		time.Sleep(time.Minute)
		require.NoError(t, lease.Release(t.Context()))
		require.Greater(t, len(pauses), 5)
		for _, p := range pauses {
			require.LessOrEqual(t, p, 330*time.Millisecond, "an eighth of a request's time limit, and a tenth more")
		}
	})
}

// In an outage, one line tells of it, one more each renew interval, and one of its end.
func TestRenewalsThatFailAreToldOncePerRenewInterval(t *testing.T) {
	for name, c := range map[string]struct {
		outage time.Duration
		lines  []string
	}{
		"one failure":   {time.Millisecond, []string{"renewal failed", "renewals succeed again"}},
		"seven seconds": {7 * time.Second, []string{"renewal failed", "renewal failed", "renewals succeed again"}},
		"too long":      {time.Minute, []string{"renewal failed", "renewal failed", "lease lost"}},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			store := newFaultStore(leasehold.NewMemStore())
			var out bytes.Buffer
			var failed atomic.Int64
			logger := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn}))
			lease := acquire(t, newLock(t, store, leasehold.WithLogger(logger),
				onEvent(func(leasehold.Event) { failed.Add(1) }, leasehold.EventRenewFailed)))
			renewed := lease.Record().RenewedAt
			// until the first renewal, after which the next one is due in 5 s
			for lease.Record().RenewedAt.Equal(renewed) {
				time.Sleep(100 * time.Millisecond)
			}
			time.Sleep(4 * time.Second)
			refuse := slices.Repeat([]fault{{op: "put", err: errInjected}}, 1000)
			if c.outage < time.Second {
				refuse = refuse[:1]
			}
			store.next(refuse...)
			time.Sleep(c.outage)
			store.mu.Lock()
			if c.outage > time.Second {
				store.plan = nil
			}
			store.mu.Unlock()
			time.Sleep(20 * time.Second)
			synctest.Wait() // for what is being logged
			require.NotNil(t, lease)
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			require.Len(t, lines, len(c.lines), "%s", out.String())
			for i, line := range lines {
				require.Contains(t, line, c.lines[i])
			}
			if c.outage == 7*time.Second {
				require.Greater(t, failed.Load(), int64(5))
				require.Contains(t, lines[2], fmt.Sprint("failures=", failed.Load()))
			}
			runtime.KeepAlive(lease)
		})
	}
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

// A second Lease.Do between the return of the first function and the release is refused. The hook
// only widens the window.
func TestASecondDoBeforeTheReleaseIsRefused(t *testing.T) {
	onMemStore(t, func(t *testing.T, mem leasehold.Store) {
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

// With a ctx that has ended, either each call sends a request or none.
func TestRenewWithAnEndedContextIsNotRandom(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
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

func TestLeaseDo(t *testing.T) {
	boom := errors.New("boom")
	onFaultStore(t, func(t *testing.T, store *faultStore) {
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
		require.Regexp(t, `^leasehold: lock "locks/test": lease lost \(token 2\): not renewed in time`, err.Error(),
			"the loss comes first")
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
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		var overran atomic.Int64
		lock := newLock(t, store, onEvent(func(leasehold.Event) { overran.Add(1) }, leasehold.EventOverrun))
		lease := acquire(t, lock)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := lease.Do(ctx, func(context.Context, *leasehold.Lease) error {
			time.Sleep(time.Minute)
			return nil
		})
		require.ErrorIs(t, err, leasehold.ErrLost, "renewals end a TTL after ctx")
		require.ErrorContains(t, err, "not renewed in time: the function still runs a TTL after its context has ended")
		require.Equal(t, "expired", leasehold.Outcome(err))
		require.EqualValues(t, 1, overran.Load())
	})
}

func TestDeadlineIsNeverAfterTheEnd(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
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
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		lease := acquire(t, newLock(t, store))
		store.count()
		store.next(fault{op: "put", apply: true, err: errInjected})
		require.NoError(t, lease.Release(t.Context()))
		require.Equal(t, []string{"put", "put", "get"}, store.count())
	})
}

func TestAReleaseThatHasLandedIsNoLossIfAnotherTookTheLock(t *testing.T) {
	onMemStore(t, func(t *testing.T, mem leasehold.Store) {
		store := newFaultStore(mem)
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

// A renewal that was under way when the release began finds the lock broken: in time, or after the
// lease has run out.
func TestAReleaseBehindARefusedRenewal(t *testing.T) {
	for begins, want := range map[time.Duration]struct {
		err error
		end leasehold.EventKind
	}{
		time.Second:      {leasehold.ErrLost, leasehold.EventLost},
		11 * time.Second: {nil, leasehold.EventReleased},
	} {
		onFaultStore(t, func(t *testing.T, store *faultStore) {
			var ends []leasehold.EventKind
			lease := acquire(t, newLock(t, store, leasehold.WithManualRenewal(),
				onEvent(func(e leasehold.Event) { ends = append(ends, e.Kind) },
					leasehold.EventReleased, leasehold.EventLost)))
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

func TestAbandon(t *testing.T) {
	onMemStore(t, func(t *testing.T, mem leasehold.Store) {
		var counters sync.Map
		kinds := func(kind leasehold.EventKind) *atomic.Int64 {
			n, _ := counters.LoadOrStore(kind, new(atomic.Int64))
			return n.(*atomic.Int64)
		}
		lock, err := leasehold.NewLock(mem, "k", leasehold.WithObserver(func(_ context.Context, e leasehold.Event) {
			kinds(e.Kind).Add(1)
		}))
		require.NoError(t, err)
		lease, err := lock.TryAcquire(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Minute)
		requests, renewed := kinds(leasehold.EventRequest).Load(), lease.Record().RenewedAt
		lease.Abandon()
		lease.Abandon() // does nothing
		require.False(t, lease.Valid())
		require.ErrorIs(t, context.Cause(lease.Context()), leasehold.ErrReleased)
		require.EqualValues(t, 1, kinds(leasehold.EventReleased).Load())
		other, err := leasehold.NewLock(mem, "k")
		require.NoError(t, err)
		next, err := other.Acquire(t.Context())
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(renewed), 15*time.Second, "it stood for its TTL")
		time.Sleep(time.Minute)
		require.Zero(t, kinds(leasehold.EventLost).Load())
		require.Equal(t, requests, kinds(leasehold.EventRequest).Load(), "without a request")
		require.NoError(t, lease.Release(t.Context()), "nothing is left to release")
		require.True(t, next.Valid())
		require.NoError(t, next.Release(t.Context()))

		lease, err = lock.TryAcquire(t.Context())
		require.NoError(t, err)
		lease.Abandon()
		_, err = lock.TryAcquire(t.Context())
		var held *leasehold.HeldError
		require.ErrorAs(t, err, &held, "work of the term may go on in this process as well")
		require.Equal(t, 15_300*time.Millisecond, held.Wait)
		released := kinds(leasehold.EventReleased).Load()
		require.NoError(t, lease.Release(t.Context()), "Release may follow")
		require.Equal(t, released, kinds(leasehold.EventReleased).Load(), "told once")
		rec, err := lock.Inspect(t.Context())
		require.NoError(t, err)
		require.True(t, rec.Released())
	})
}

// One event tells of the end of a term, whatever is found later.
func TestATermEndsOnce(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, store *faultStore, lease *leasehold.Lease, replace func()){
		"abandoned, and a renewal under way finds it replaced": func(t *testing.T, store *faultStore,
			lease *leasehold.Lease, replace func()) {
			store.next(fault{op: "put", err: leasehold.ErrPreconditionFailed, delay: time.Second})
			done := make(chan error)
			go func() { done <- lease.Renew(t.Context()) }()
			synctest.Wait()
			lease.Abandon()
			replace()
			<-done
		},
		"abandoned, and its release finds it replaced": func(t *testing.T, _ *faultStore,
			lease *leasehold.Lease, replace func()) {
			lease.Abandon()
			replace()
			_ = lease.Release(t.Context())
		},
		"a release that failed is tried again, and finds it gone": func(t *testing.T, store *faultStore,
			lease *leasehold.Lease, _ func()) {
			store.next(fault{op: "put", err: leasehold.ErrPermanent})
			_ = lease.Release(t.Context())
			obj, err := store.Get(t.Context(), key)
			require.NoError(t, err)
			require.NoError(t, store.DeleteIfMatch(t.Context(), key, obj.ETag))
			require.ErrorIs(t, lease.Release(t.Context()), leasehold.ErrLost)
		},
		"lost, and then released": func(t *testing.T, _ *faultStore, lease *leasehold.Lease, replace func()) {
			replace()
			_ = lease.Renew(t.Context())
			_ = lease.Release(t.Context())
		},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			store := newFaultStore(leasehold.NewMemStore())
			var ends []leasehold.EventKind
			lease := acquire(t, newLock(t, store, leasehold.WithManualRenewal(),
				onEvent(func(e leasehold.Event) { ends = append(ends, e.Kind) },
					leasehold.EventReleased, leasehold.EventLost)))
			end(t, store, lease, func() {
				admin := newLock(t, store.real)
				require.NoError(t, admin.Break(t.Context(), 1))
				_ = acquire(t, admin)
			})
			require.Len(t, ends, 1, "%v", ends)
		})
	}
}

// The release comes while the commit is under way: the lease is over, and the payload is there.
func TestACommitBesideAReleaseMayHaveLanded(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		lease := acquire(t, newLock(t, store, leasehold.WithManualRenewal()))
		store.next(fault{op: "put", apply: true, delay: time.Second})
		committed := make(chan error)
		go func() { committed <- lease.Commit(t.Context(), []byte("landed")) }()
		synctest.Wait()
		require.NoError(t, lease.Release(t.Context()))
		require.ErrorIs(t, <-committed, leasehold.ErrReleased)
		require.Equal(t, "landed", string(stored(t, store).Payload))
	})
}

// The answer comes when the lease is over.
func TestARenewalThatIsAnsweredTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newBrokenClock()
		store := newFaultStore(leasehold.NewMemStore())
		lease := acquire(t, newLock(t, store, withClock(c), leasehold.WithManualRenewal()))
		time.Sleep(11 * time.Second)
		store.next(fault{op: "put", apply: true, delay: 2 * time.Second})
		require.ErrorIs(t, lease.Renew(t.Context()), leasehold.ErrLost)
		lease = acquire(t, newLock(t, newFaultStore(leasehold.NewMemStore()), leasehold.WithManualRenewal()))
		require.NoError(t, lease.Release(t.Context()))
		require.ErrorIs(t, lease.Commit(t.Context(), nil), leasehold.ErrReleased)
	})
}

// The last renewal has landed, but its answer was lost. Its own Lock stays out for as long as
// others do.
func TestAnAbandonedLeaseAfterARenewalWithoutAnAnswer(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		l := newLock(t, store, leasehold.WithManualRenewal())
		lease := acquire(t, l)
		time.Sleep(8 * time.Second)
		renewWithoutAnswer(t, store, lease)
		lease.Abandon()
		time.Sleep(10 * time.Second)
		_, err := l.TryAcquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrHeld)
		time.Sleep(6 * time.Second)
		require.EqualValues(t, 2, acquire(t, l).Token())
	})
}

// A renewal finds, when the lease has been abandoned meanwhile, that the one before it has landed.
// It would prolong the term if it wrote again.
func TestARenewalDoesNotWriteAgainAfterAbandon(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		l := newLock(t, store, leasehold.WithManualRenewal())
		lease := acquire(t, l)
		time.Sleep(4 * time.Second)
		renewWithoutAnswer(t, store, lease)
		landed, err := l.Inspect(t.Context())
		require.NoError(t, err)
		store.next(fault{op: "get", apply: true, delay: time.Second})
		done := make(chan error)
		go func() { done <- lease.Renew(t.Context()) }()
		synctest.Wait()
		lease.Abandon()
		require.ErrorIs(t, <-done, leasehold.ErrReleased)
		rec, err := l.Inspect(t.Context())
		require.NoError(t, err)
		require.Equal(t, landed, rec)
	})
}

// A renewal is under way when the lease is abandoned, and reads something else in the place of the
// record.
func TestAWrongReadDoesNotFreeAnAbandonedLease(t *testing.T) {
	for _, wrong := range []error{leasehold.ErrCorruptRecord, leasehold.ErrNotExist} {
		onFaultStore(t, func(t *testing.T, store *faultStore) {
			l := newLock(t, store, leasehold.WithManualRenewal())
			lease := acquire(t, l)
			store.next(fault{
				op:    "put",
				err:   leasehold.ErrPreconditionFailed,
				delay: time.Second,
			}, fault{op: "get", err: wrong})
			done := make(chan error)
			go func() { done <- lease.Renew(t.Context()) }()
			synctest.Wait()
			lease.Abandon()
			require.Error(t, <-done)
			_, err := l.TryAcquire(t.Context())
			require.ErrorIs(t, err, leasehold.ErrHeld)
			time.Sleep(16 * time.Second)
			require.EqualValues(t, 2, acquire(t, l).Token())
		})
	}
}

// Whatever ends the function, only Release frees a lease that was abandoned in it.
func TestAbandonInAFunction(t *testing.T) {
	work := errors.New("work goes on")
	for name, run := range map[string]func(ctx context.Context, l *leasehold.Lock,
		abandon func(context.Context, *leasehold.Lease) error) error{
		"Lock.Do": func(ctx context.Context, l *leasehold.Lock,
			abandon func(context.Context, *leasehold.Lease) error) error {
			return l.Do(ctx, abandon)
		},
		"Lease.Do": func(ctx context.Context, l *leasehold.Lock,
			abandon func(context.Context, *leasehold.Lease) error) error {
			lease, err := l.TryAcquire(ctx)
			if err != nil {
				return err
			}
			return lease.Do(ctx, abandon)
		},
		"a panic": func(ctx context.Context, l *leasehold.Lock,
			abandon func(context.Context, *leasehold.Lease) error) (err error) {
			defer func() { err = recover().(error) }()
			return l.Do(ctx, func(ctx context.Context, lease *leasehold.Lease) error { panic(abandon(ctx, lease)) })
		},
		"RunOnce": func(ctx context.Context, l *leasehold.Lock,
			abandon func(context.Context, *leasehold.Lease) error) (err error) {
			e, _ := leasehold.NewElector(l, leasehold.Callbacks{
				OnStartedLeading: func(ctx context.Context, lease *leasehold.Lease) { err = abandon(ctx, lease) },
			})
			return errors.Join(e.RunOnce(ctx), err)
		},
		"Resign": func(ctx context.Context, l *leasehold.Lock,
			abandon func(context.Context, *leasehold.Lease) error) (err error) {
			var e *leasehold.Elector
			e, _ = leasehold.NewElector(l, leasehold.Callbacks{
				OnStartedLeading: func(ctx context.Context, lease *leasehold.Lease) {
					over, cancel := context.WithCancel(ctx)
					cancel()
					_ = e.Resign(over)
					err = abandon(ctx, lease)
				},
			})
			return errors.Join(e.RunOnce(ctx), err)
		},
		"the end of ctx": func(ctx context.Context, l *leasehold.Lock,
			abandon func(context.Context, *leasehold.Lease) error) error {
			ctx, cancel := context.WithCancel(ctx)
			return l.Do(ctx, func(ctx context.Context, lease *leasehold.Lease) error {
				cancel()
				return abandon(ctx, lease)
			})
		},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			store := leasehold.NewMemStore()
			lock := newLock(t, store)
			var lease *leasehold.Lease
			err := run(t.Context(), lock, func(ctx context.Context, given *leasehold.Lease) error {
				time.Sleep(time.Second)
				lease = given
				lease.Abandon()
				<-ctx.Done()
				return work
			})
			require.ErrorIs(t, err, work)
			require.NotErrorIs(t, err, leasehold.ErrLost)
			rec, err := lock.Inspect(t.Context())
			require.NoError(t, err)
			require.False(t, rec.Released(), "only Release frees an abandoned lease")
			_, err = lock.TryAcquire(t.Context())
			require.ErrorIs(t, err, leasehold.ErrHeld)
			require.NoError(t, lease.Release(t.Context()))
			require.NoError(t, acquire(t, newLock(t, store)).Release(t.Context()))
		})
	}
}

// A release that was asked for goes on at the end of Do, whatever was called besides.
func TestAReleaseThatHasFailedGoesOnAfterAbandon(t *testing.T) {
	for name, end := range map[string]func(ctx context.Context, lease *leasehold.Lease) error{
		"Release, then Abandon": func(ctx context.Context, lease *leasehold.Lease) error {
			err := lease.Release(ctx)
			lease.Abandon()
			return err
		},
		"Abandon, then Release": func(ctx context.Context, lease *leasehold.Lease) error {
			lease.Abandon()
			return lease.Release(ctx)
		},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			store := newFaultStore(leasehold.NewMemStore())
			lock := newLock(t, store)
			require.NoError(t, lock.Do(t.Context(), func(ctx context.Context, lease *leasehold.Lease) error {
				over, cancel := context.WithCancel(ctx)
				cancel()
				store.next(fault{op: "put", err: errInjected})
				require.ErrorIs(t, end(over, lease), errInjected)
				return nil
			}))
			rec, err := lock.Inspect(t.Context())
			require.NoError(t, err)
			require.True(t, rec.Released())
		})
	}
}

// Lease.Do begun at the moment of Release: it must be refused, or keep the next term of the Lock
// out.
func TestStressDoAgainstRelease(t *testing.T) {
	end := time.Now().Add(seconds(t))
	lock, err := leasehold.NewLock(leasehold.NewMemStore(), key, leasehold.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	var s section
	rounds, ran := 0, atomic.Int64{}
	for ; time.Now().Before(end); rounds++ {
		lease, err := lock.TryAcquire(context.Background())
		if err != nil {
			runtime.Gosched()
			continue
		}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				_ = lease.Do(context.Background(), func(context.Context, *leasehold.Lease) error {
					s.enter()
					defer s.leave()
					ran.Add(1)
					time.Sleep(20 * time.Microsecond)
					return nil
				})
			})
		}
		_ = lease.Release(context.Background())
		next, err := lock.TryAcquire(context.Background())
		if err == nil {
			s.enter()
			time.Sleep(20 * time.Microsecond)
			s.leave()
			_ = next.Release(context.Background())
		}
		wg.Wait()
	}
	t.Log(rounds, "rounds", ran.Load(), "functions")
	require.Zero(t, s.overlaps.Load())
}

// Locks acquired at the same moment are not renewed at the same moment, because servers refuse
// storms of requests.
func TestLocksTakenTogetherAreNotRenewedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const locks = 500
		mem, began := leasehold.NewMemStore(), time.Now()
		var mu sync.Mutex
		renewals := map[time.Duration]int{}
		var leases []*leasehold.Lease
		for i := range locks {
			l, err := leasehold.NewLock(mem, fmt.Sprint("locks/", i),
				leasehold.WithObserver(func(_ context.Context, e leasehold.Event) {
					if e.Kind == leasehold.EventRenewed {
						mu.Lock()
						defer mu.Unlock()
						renewals[time.Since(began).Truncate(100*time.Millisecond)]++
					}
				}))
			require.NoError(t, err)
			leases = append(leases, acquire(t, l))
		}
		time.Sleep(time.Minute)
		most := 0
		mu.Lock()
		for _, n := range renewals {
			most = max(most, n)
		}
		mu.Unlock()
		t.Logf("%d renewals in the busiest tenth of a second, %d on average", most, locks/50)
		require.LessOrEqual(t, most, locks/10)
		for _, lease := range leases {
			require.NoError(t, lease.Release(t.Context()))
		}
	})
}

// The example of virtual time is a test that passes.
func TestExampleOfVirtualTime(t *testing.T) { synctest.Test(t, failover) }
