package leasehold_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/testkit/bubble"
	"github.com/leasehold-go/leasehold/internal/testkit/testctx"
	"github.com/leasehold-go/leasehold/internal/testkit/testopt"
)

var quiet = leasehold.WithLogger(slog.New(slog.DiscardHandler))

// visit asks once as a process does that knows nothing yet, and says how long that took.
func visit(t *testing.T, ctx context.Context, s leasehold.Store,
	opts ...leasehold.Option) (*leasehold.Lease, time.Duration, error) {
	t.Helper()
	began := time.Now()
	lease, err := newcomer(t, s, opts...).TryAcquire(ctx)
	return lease, time.Since(began), err
}

// A program that asks once a day, in a new process each time, gets the lock of a holder that has
// crashed. It needs the holder's TTL for it, and no clock that is right.
func TestAVisitorOutlastsAHolderThatIsGone(t *testing.T) {
	for name, shift := range map[string]time.Duration{
		"clocks that agree":           0,
		"the holder's clock is slow":  -48 * time.Hour,
		"the holder's clock is ahead": 48 * time.Hour,
	} {
		bubble.Run(t, name, func(t *testing.T) {
			store := leasehold.NewMemStore()
			acquire(t, newLock(t, store)).Abandon()
			rec := stored(t, store)
			for _, at := range []*time.Time{&rec.ExpiresAt, &rec.RenewedAt, &rec.AcquiredAt} {
				*at = at.Add(shift)
			}
			overwrite(t, store, rec)
			time.Sleep(24 * time.Hour)
			lease, took, err := visit(t, t.Context(), store)
			require.NoError(t, err)
			require.EqualValues(t, 2, lease.Token())
			require.GreaterOrEqual(t, took, 15300*time.Millisecond, "a TTL and the drift")
			require.Less(t, took, 18*time.Second)
			require.NoError(t, lease.Release(t.Context()))
		})
	}
}

// A visitor of a lock whose holder lives is told at once, for one read. If the clocks say that the
// holder is gone, it is told at the next renewal.
func TestAVisitorWaitsForNobodyWhoLives(t *testing.T) {
	for _, shift := range []time.Duration{0, 4 * time.Second, -4 * time.Second, time.Hour, -time.Hour} {
		bubble.Run(t, shift.String(), func(t *testing.T) {
			store := newFaultStore(leasehold.NewMemStore())
			wall := newBrokenClock()
			wall.move(clock.Reading{Wall: shift})
			holder, err := newLock(t, store.real, withClock(wall)).Acquire(t.Context())
			require.NoError(t, err)
			for range 20 {
				time.Sleep(4100 * time.Millisecond)
				store.count()
				_, took, err := visit(t, testctx.Within(t, 10*time.Minute), store)
				held, ok := errors.AsType[*leasehold.HeldError](err)
				require.True(t, ok, "%v", err)
				require.True(t, holder.Valid())
				if shift.Abs() < 5*time.Second {
					require.Zero(t, took)
					require.False(t, held.SeemsGone)
					require.Equal(t, []string{"get"}, store.count())
				} else {
					require.Less(t, took, 5*time.Second+4500*time.Millisecond, "a renewal, and a poll")
				}
			}
			require.NoError(t, holder.Release(t.Context()))
		})
	}
}

// Who has less time than it takes is told at once how long it takes.
func TestAVisitorInAHurryIsToldHowLongItTakes(t *testing.T) {
	onMemStore(t, func(t *testing.T, store leasehold.Store) {
		acquire(t, newLock(t, store, leasehold.WithHolder("ada"))).Abandon()
		time.Sleep(3 * time.Hour)
		_, took, err := visit(t, testctx.Within(t, 10*time.Second), store)
		held, ok := errors.AsType[*leasehold.HeldError](err)
		require.True(t, ok, "%v", err)
		require.Zero(t, took)
		require.True(t, held.SeemsGone)
		require.Equal(t, 15300*time.Millisecond, held.Wait)
		require.ErrorContains(t, err, `lock is held by "ada" with token 1, which last renewed it 3h0m0s ago and seems `+
			`to have crashed: a candidate that watches the lock for 15.3s can take it`)

		_, err = newcomer(t, store).Acquire(testctx.Within(t, 10*time.Second))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		held, ok = errors.AsType[*leasehold.HeldError](err)
		require.True(t, ok, "%v", err)
		require.True(t, held.SeemsGone)
		require.Less(t, held.Wait, 9*time.Second, "of which a part has passed")
		require.ErrorContains(t, err, "which last renewed it 3h0m")

		lease, _, err := visit(t, testctx.Within(t, 20*time.Second), store)
		require.NoError(t, err)
		require.NoError(t, lease.Release(t.Context()))
	})
}

// What happens while a visitor watches a holder that seems gone.
func TestWhatAVisitorSees(t *testing.T) {
	for name, c := range map[string]struct {
		after  time.Duration
		happen func(t *testing.T, store *faultStore, lease *leasehold.Lease)
		err    error
		takes  time.Duration // at most
	}{
		"the holder releases it": {5 * time.Second, func(t *testing.T, _ *faultStore, lease *leasehold.Lease) {
			require.NoError(t, lease.Release(t.Context()))
		}, nil, 10 * time.Second},
		"another takes it": {5 * time.Second, func(t *testing.T, store *faultStore, lease *leasehold.Lease) {
			require.NoError(t, lease.Release(t.Context()))
			acquire(t, newLock(t, store.real))
		}, leasehold.ErrHeld, 10 * time.Second},
		"the store fails for a while": {2 * time.Second, func(_ *testing.T, store *faultStore, _ *leasehold.Lease) {
			store.down.Store(true)
			time.AfterFunc(10*time.Second, func() { store.down.Store(false) })
		}, nil, 25 * time.Second},
		"the store fails": {2 * time.Second, func(_ *testing.T, store *faultStore, _ *leasehold.Lease) {
			store.down.Store(true)
		}, context.DeadlineExceeded, 45 * time.Second},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			store := newFaultStore(leasehold.NewMemStore())
			lease := acquire(t, newLock(t, store.real))
			lease.Abandon()
			time.Sleep(time.Hour)
			time.AfterFunc(c.after, func() { c.happen(t, store, lease) })
			got, took, err := visit(t, testctx.Within(t, time.Minute), store, quiet)
			require.ErrorIs(t, err, c.err)
			require.Less(t, took, c.takes)
			if err == nil {
				require.NoError(t, got.Release(t.Context()))
			}
			synctest.Wait()
		})
	}
}

// A lock that another is creating is waited for in the same way.
func TestAVisitorWaitsForACreate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := creating()
		time.AfterFunc(4*time.Second, func() { store.Fail(nil) })
		lease, took, err := visit(t, t.Context(), store)
		require.NoError(t, err)
		require.Less(t, took, 8*time.Second)
		require.NoError(t, lease.Release(t.Context()))
	})
	synctest.Test(t, func(t *testing.T) {
		_, took, err := visit(t, t.Context(), creating(), quiet)
		require.NotErrorIs(t, err, leasehold.ErrHeld, "no create takes so long")
		require.ErrorContains(t, err, "refused a write although the object had not changed")
		require.Less(t, took, 35*time.Second)
	})
}

// Who takes a lock again and again lets the others have it. Who is alone loses a tenth at most.
func TestALoopLeavesTurnsToOthers(t *testing.T) {
	const term, duration = 90 * time.Millisecond, 90 * time.Second
	for _, processes := range []int{1, 2, 5} {
		bubble.Run(t, fmt.Sprint(processes), func(t *testing.T) {
			store, ctx := leasehold.NewMemStore(), testctx.Within(t, duration)
			var mu sync.Mutex
			var all sync.WaitGroup
			var last, row, longest, sum int
			terms := make([]int, processes)
			for process := range processes {
				all.Go(func() {
					lock := newcomer(t, store, leasehold.WithTTL(time.Second))
					for ctx.Err() == nil {
						_ = lock.Do(ctx, func(context.Context, *leasehold.Lease) error {
							mu.Lock()
							defer mu.Unlock()
							if row++; last != process {
								last, row = process, 1
							}
							terms[process]++
							longest, sum = max(longest, row), sum+1
							time.Sleep(term)
							return nil
						})
					}
				})
			}
			all.Wait()
			for _, n := range terms {
				require.Greater(t, time.Duration(n)*term, duration/time.Duration(processes)/4)
			}
			require.Greater(t, time.Duration(sum)*term, duration*9/10)
			require.True(t, processes == 1 || longest <= 36, "%d terms in a row, more than 15 poll intervals", longest)
		})
	}
}

// Several goroutines of one process are no other processes.
func TestGoroutinesThatTakeTurnsLeaveTurnsToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, ctx := leasehold.NewMemStore(), testctx.Within(t, 10*time.Minute)
		lock, done := newcomer(t, store), make(chan struct{})
		for range 3 {
			go func() {
				for ctx.Err() == nil {
					_ = lock.Do(ctx, func(context.Context, *leasehold.Lease) error {
						time.Sleep(2 * time.Second)
						return nil
					})
				}
				done <- struct{}{}
			}()
		}
		time.Sleep(time.Second)
		began := time.Now()
		lease, err := newcomer(t, store).Acquire(ctx)
		require.NoError(t, err)
		require.Less(t, time.Since(began), time.Minute)
		require.NoError(t, lease.Release(t.Context()))
		for range 3 {
			<-done
		}
	})
}

// Who takes a lock now and then has it at once.
func TestALockThatIsTakenNowAndThenNeedsNoRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock := newLock(t, leasehold.NewMemStore())
		for range 100 {
			time.Sleep(5 * time.Second)
			began := time.Now()
			lease, err := lock.Acquire(t.Context())
			require.NoError(t, err)
			require.Zero(t, time.Since(began))
			require.NoError(t, lease.Release(t.Context()))
		}
	})
}

// A store whose ETags never match is one that fails: Acquire backs off, and Check says so.
func TestALockThatIsFreeAndCannotBeTakenIsAFailure(t *testing.T) {
	onMemStore(t, func(t *testing.T, mem leasehold.Store) {
		require.NoError(t, acquire(t, newLock(t, mem)).Release(t.Context()))
		reads := 0
		store := reading(mem, func(_ context.Context, o *leasehold.Object) {
			reads++
			o.ETag += fmt.Sprint(reads) // shows a released record under another ETag each time
		})
		e, err := leasehold.NewElector(newLock(t, store, quiet), leasehold.Callbacks{})
		require.NoError(t, err)
		ctx := testctx.Within(t, 10*time.Minute)
		time.AfterFunc(9*time.Minute, func() { require.ErrorContains(t, e.Check(nil), "each acquisition has failed") })
		require.NoError(t, e.Run(ctx))
		require.Less(t, reads, 500)
	})
}

// Pauses after failures grow up to the TTL, whatever the poll interval is.
func TestPausesAfterFailuresGrowUpToTheTTL(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		var last time.Time
		var pause time.Duration
		store.see = func(context.Context) {
			if !last.IsZero() {
				pause = max(pause, time.Since(last))
			}
			last = time.Now()
		}
		store.down.Store(true)
		_, err := newLock(t, store, quiet, leasehold.WithTTL(2*time.Second),
			leasehold.WithPollInterval(time.Minute)).Acquire(testctx.Within(t, 10*time.Minute))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, pause, 3*time.Second, "the TTL, jitter and an attempt")
	})
}

// A restored version may have the ETag that it had. Who has looked away meanwhile sees it as new.
func TestAVersionThatWasOutOfSightIsNotOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := testopt.NewMemStore(true, false)
		holder := acquire(t, newLock(t, store))
		old := stored(t, store)
		seldom := newcomer(t, store)
		require.ErrorIs(t, tryAtOnce(t, seldom), leasehold.ErrHeld)
		time.Sleep(time.Minute)
		overwrite(t, store, old)
		require.True(t, holder.Valid())
		require.ErrorIs(t, tryAtOnce(t, seldom), leasehold.ErrHeld)
		require.ErrorIs(t, holder.Release(t.Context()), leasehold.ErrLost, "the version is not its own any more")
	})
}

// A release that is tried for the rest of a long TTL backs off, also if the lease has ended
// meanwhile by the clocks that count a suspend.
func TestAReleaseThatOutlastsASuspendBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, c := newFaultStore(leasehold.NewMemStore()), newBrokenClock()
		lease := acquire(t, newLock(t, store, quiet, withClock(c), leasehold.WithTTL(time.Hour)))
		store.count()
		store.down.Store(true)
		done := make(chan error)
		go func() { done <- lease.Release(t.Context()) }()
		time.Sleep(time.Second)
		c.suspend(70 * time.Minute)
		require.Error(t, <-done)
		require.Less(t, len(store.count()), 120, "it pauses for up to 30 s")
	})
}
