package gocronlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/gocronlock"
	"github.com/leasehold-go/leasehold/internal/testkit/testopt"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
)

const spacing = 30 * time.Second

func newLocker(t *testing.T, store leasehold.Store, opts ...leasehold.Option) *gocronlock.Locker {
	t.Helper()
	l, err := gocronlock.NewLocker(store, "jobs", spacing, opts...)
	require.NoError(t, err)
	return l
}

// skewed returns the locker of an instance whose wall clock is off.
func skewed(t *testing.T, store leasehold.Store, by time.Duration) *gocronlock.Locker {
	l := newLocker(t, store)
	l.SetClock(wrongClock{clockwork.NewRealClock(), by})
	return l
}

func TestNewLockerRefusesBadInput(t *testing.T) {
	mem := leasehold.NewMemStore()
	for want, create := range map[string]func() (*gocronlock.Locker, error){
		"store is nil":       func() (*gocronlock.Locker, error) { return gocronlock.NewLocker(nil, "jobs", spacing) },
		"empty path segment": func() (*gocronlock.Locker, error) { return gocronlock.NewLocker(mem, "jobs/", spacing) },
		"spacing 0s":         func() (*gocronlock.Locker, error) { return gocronlock.NewLocker(mem, "jobs", 0) },
		"spacing -1s": func() (*gocronlock.Locker, error) {
			return gocronlock.NewLocker(mem, "jobs", -time.Second)
		},
		"TTL -1s is below 1ms": func() (*gocronlock.Locker, error) {
			return gocronlock.NewLocker(mem, "jobs", spacing, leasehold.WithTTL(-time.Second))
		},
	} {
		l, err := create()
		require.ErrorContains(t, err, want)
		require.Nil(t, l)
	}
	_, err := newLocker(t, mem).Lock(t.Context(), "")
	require.ErrorContains(t, err, "no name")
}

func TestKeys(t *testing.T) {
	l := newLocker(t, leasehold.NewMemStore())
	names := []string{"backup", "main.main.func1", "github.com/x/pkg.(*T).Run-fm", "a/b", "a%2Fb", "..", ".", "%2E.",
		"%2E", "...", "a//b", `a\b`,
		"Zürich", "\xff", "a b", "a+b", "a?b#c", "tab\t", "x\x00", " ", "/"}
	seen := map[string]string{}
	for _, name := range names {
		key := l.Key(name)
		require.Empty(t, seen[key], "%q and %q", name, seen[key])
		seen[key] = name
		_, err := leasehold.NewLock(leasehold.NewMemStore(), key)
		require.NoError(t, err, name)
	}
	require.Equal(t, "jobs/github.com%2Fx%2Fpkg.%28%2AT%29.Run-fm", l.Key("github.com/x/pkg.(*T).Run-fm"))
}

func TestOneSlotOfManyInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, mem := t.Context(), leasehold.NewMemStore()
		// The clocks differ by up to nearly a minute. Each instance wakes when its own clock shows
		// the full minute.
		offsets := []time.Duration{0, 3 * time.Second, -3 * time.Second, 29 * time.Second, -29 * time.Second}
		var ran [10]atomic.Int64
		start := time.Now().Truncate(time.Minute).Add(2 * time.Minute)
		done := make(chan struct{})
		for _, off := range offsets {
			l := skewed(t, mem, off)
			go func() {
				defer func() { done <- struct{}{} }()
				for slot := range ran {
					time.Sleep(time.Until(start.Add(time.Duration(slot)*time.Minute - off)))
					lock, err := l.Lock(ctx, "job")
					if err != nil {
						if !errors.Is(err, gocronlock.ErrAlreadyRan) && !errors.Is(err, leasehold.ErrHeld) {
							t.Error(err)
						}
						continue
					}
					ran[slot].Add(1)
					// some runs end before the last clock shows the minute
					time.Sleep(time.Duration(slot) * time.Second)
					if err := lock.Unlock(ctx); err != nil {
						t.Error(err)
					}
				}
			}()
		}
		for range offsets {
			<-done
		}
		for slot := range ran {
			require.EqualValues(t, 1, ran[slot].Load(), "slot %d", slot)
		}
	})
}

func TestRunsOfDifferentPhasesAreASpacingApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, mem := t.Context(), leasehold.NewMemStore()
		began := time.Now()
		var last time.Time
		runs := 0
		lockers := []*gocronlock.Locker{newLocker(t, mem), newLocker(t, mem), newLocker(t, mem)}
		for range 100 {
			for _, l := range lockers {
				if lock, err := l.Lock(ctx, "job"); err == nil {
					require.GreaterOrEqual(t, time.Since(last), spacing)
					last = time.Now()
					runs++
					require.NoError(t, lock.Unlock(ctx))
				} else {
					require.ErrorIs(t, err, gocronlock.ErrAlreadyRan)
				}
				time.Sleep(25 * time.Second)
			}
		}
		// the first call after the spacing comes after 50 s
		require.InDelta(t, float64(time.Since(began)/(50*time.Second)), runs, 2)
	})
}

func TestLongJobKeepsItsLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, mem := t.Context(), leasehold.NewMemStore()
		a, b := newLocker(t, mem), newLocker(t, mem)
		lock, err := a.Lock(ctx, "job")
		require.NoError(t, err)
		lease := a.Lease("job")
		require.NotNil(t, lease)
		require.Nil(t, b.Lease("job"))
		require.Nil(t, a.Lease("another"))
		for range 10 {
			time.Sleep(time.Minute)
			called := time.Now()
			_, err = b.Lock(ctx, "job")
			require.ErrorIs(t, err, leasehold.ErrHeld)
			require.Zero(t, time.Since(called), "nobody waits for a holder that lives")
			_, err = a.Lock(ctx, "job")
			require.ErrorIs(t, err, leasehold.ErrHeld, "the job does not overlap itself")
		}
		other, err := b.Lock(ctx, "another")
		require.NoError(t, err)
		require.NoError(t, other.Unlock(ctx))
		require.True(t, lease.Valid())
		require.NoError(t, lock.Unlock(ctx))
		require.False(t, lease.Valid())
		require.Nil(t, a.Lease("job"))
		require.NoError(t, lock.Unlock(ctx), "idempotent")
		lock, err = b.Lock(ctx, "job")
		require.NoError(t, err)
		require.Greater(t, b.Lease("job").Token(), lease.Token())
		require.NoError(t, lock.Unlock(ctx))
	})
}

func TestAfterACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, mem := t.Context(), leasehold.NewMemStore()
		l := newLocker(t, mem)
		crash(t, mem, l.Key("job"))
		time.Sleep(5 * 15 * time.Second)
		called := time.Now()
		lock, err := l.Lock(ctx, "job")
		require.NoError(t, err)
		require.InDelta(t, 15, time.Since(called).Seconds(), 1, "a TTL")
		require.Contains(t, string(l.Lease("job").Record().Payload), called.UTC().Format(time.RFC3339Nano),
			"the time of the slot")
		require.NoError(t, lock.Unlock(ctx))

		crash(t, mem, l.Key("slow"), leasehold.WithTTL(time.Minute))
		time.Sleep(5 * time.Minute)
		called = time.Now()
		_, err = l.Lock(ctx, "slow")
		require.ErrorIs(t, err, leasehold.ErrHeld)
		require.Zero(t, time.Since(called), "a wait over the spacing would reach into the next slot")
		time.Sleep(2 * time.Minute)
		lock, err = l.Lock(ctx, "slow")
		require.NoError(t, err)
		require.NoError(t, lock.Unlock(ctx))
	})
}

func TestRequestsPerRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, mem := t.Context(), leasehold.NewMemStore()
		stores := []*teststore.Store{teststore.New(mem, nil), teststore.New(mem, nil)}
		for _, s := range stores {
			s.Info.Conditional = true
		}
		lockers := []*gocronlock.Locker{newLocker(t, stores[0]), newLocker(t, stores[1])}
		requests := func(i int) [2]int {
			defer stores[i].Forget()
			return [2]int{stores[i].Sent(teststore.Get), stores[i].Sent(teststore.Puts...)}
		}
		for slot, first := range []int{0, 0, 1} {
			lock, err := lockers[first].Lock(ctx, "job")
			require.NoError(t, err)
			_, err = lockers[1-first].Lock(ctx, "job")
			require.ErrorIs(t, err, gocronlock.ErrAlreadyRan)
			require.NoError(t, lock.Unlock(ctx))
			reads := []int{2, 1, 2}[slot] // 1 if the previous run was its own
			require.Equal(t, [2]int{reads, 3}, requests(first), "the instance that runs the job")
			require.Equal(t, [2]int{1, 0}, requests(1-first), "the instance that is too late")
			time.Sleep(time.Minute)
		}
	})
}

// between runs hook after the first read has got its reply.
func between(s leasehold.Store, hook func()) leasehold.Store {
	first := sync.OnceFunc(hook)
	return teststore.New(s, func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
		if r.Op == teststore.Get {
			defer first()
		}
		return r.Send(ctx)
	})
}

func TestAnotherRunsTheSlotAfterTheFirstRead(t *testing.T) {
	ctx, mem := t.Context(), leasehold.NewMemStore()
	other := newLocker(t, mem)
	slow := newLocker(t, between(mem, func() {
		lock, err := other.Lock(ctx, "job")
		require.NoError(t, err)
		require.NoError(t, lock.Unlock(ctx))
	}))
	_, err := slow.Lock(ctx, "job")
	require.ErrorIs(t, err, gocronlock.ErrAlreadyRan)
	lock, err := leasehold.NewLock(mem, slow.Key("job"))
	require.NoError(t, err)
	rec, err := lock.Inspect(ctx)
	require.NoError(t, err)
	require.True(t, rec.Released(), "it released the lock")
}

func TestSlotIsTheTimeOfTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, mem := t.Context(), leasehold.NewMemStore()
		l := newLocker(t, between(mem, func() { time.Sleep(2 * time.Second) }))
		called := time.Now()
		lock, err := l.Lock(ctx, "job")
		require.NoError(t, err)
		require.Equal(t, 2*time.Second, time.Since(called))
		require.Contains(t, string(l.Lease("job").Record().Payload), called.UTC().Format(time.RFC3339Nano))
		require.NoError(t, lock.Unlock(ctx))
	})
}

func TestBrokenClockDoesNotStopAJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, mem := t.Context(), leasehold.NewMemStore()
		lock, err := skewed(t, mem, 365*24*time.Hour).Lock(ctx, "job")
		require.NoError(t, err)
		require.NoError(t, lock.Unlock(ctx))
		lock, err = newLocker(t, mem).Lock(ctx, "job")
		require.NoError(t, err)
		require.NoError(t, lock.Unlock(ctx))
	})
}

var errUnplugged = errors.New("unplugged")

func TestRunThatCannotBeNotedIsNotDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := teststore.New(testopt.NewMemStore(false, true), nil)
		store.Fail(errUnplugged, teststore.Update)
		l := newLocker(t, store)
		_, err := l.Lock(t.Context(), "job")
		require.ErrorIs(t, err, leasehold.ErrLost)
		require.ErrorIs(t, err, errUnplugged)
		require.Nil(t, l.Lease("job"))
		store.Fail(nil)
		time.Sleep(time.Minute)
		lock, err := newLocker(t, store).Lock(t.Context(), "job")
		require.NoError(t, err)
		require.NoError(t, lock.Unlock(t.Context()))
	})
}

func TestRunThatOutlivesItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, store := t.Context(), teststore.New(leasehold.NewMemStore(), nil)
		l := newLocker(t, store)
		stuck, err := l.Lock(ctx, "job")
		require.NoError(t, err)
		store.Fail(errUnplugged, teststore.Update)
		<-l.Lease("job").Context().Done()
		require.False(t, l.Lease("job").Valid())
		store.Fail(nil)
		time.Sleep(time.Minute)
		next, err := l.Lock(ctx, "job")
		require.NoError(t, err)
		require.ErrorIs(t, stuck.Unlock(ctx), leasehold.ErrLost)
		require.EqualValues(t, 2, l.Lease("job").Token())
		require.True(t, l.Lease("job").Valid())
		require.NoError(t, next.Unlock(ctx))
		require.Nil(t, l.Lease("job"))
	})
}

func TestObjectsOfOthersAreLeftAlone(t *testing.T) {
	ctx, mem := t.Context(), leasehold.NewMemStore()
	l := newLocker(t, mem)
	for i, payload := range []string{"my state", `{"began":""}`, `{}`, `[]`} {
		job := fmt.Sprint("job", i)
		other, err := leasehold.NewLock(mem, l.Key(job))
		require.NoError(t, err)
		require.NoError(t, other.Do(ctx, func(ctx context.Context, lease *leasehold.Lease) error {
			return lease.Commit(ctx, []byte(payload))
		}))
		_, err = l.Lock(ctx, job)
		require.ErrorContains(t, err, "another program uses this key", payload)
		rec, err := other.Inspect(ctx)
		require.NoError(t, err)
		require.Equal(t, payload, string(rec.Payload))
	}
}

func TestElector(t *testing.T) {
	require.Nil(t, gocronlock.NewElector(nil))
	_, err := gocron.NewScheduler(gocron.WithDistributedElector(gocronlock.NewElector(nil)))
	require.ErrorIs(t, err, gocron.ErrWithDistributedElectorNil)

	synctest.Test(t, func(t *testing.T) {
		mem := leasehold.NewMemStore()
		begin := func(name string) (gocron.Elector, context.CancelFunc) {
			lock, err := leasehold.NewLock(mem, "leader", leasehold.WithHolder(name))
			require.NoError(t, err)
			e, err := leasehold.NewElector(lock, leasehold.Callbacks{})
			require.NoError(t, err)
			isLeader := gocronlock.NewElector(e)
			require.ErrorIs(t, isLeader.IsLeader(t.Context()), gocronlock.ErrNotLeader)
			require.ErrorContains(t, isLeader.IsLeader(t.Context()), "no leader has been seen")
			ctx, cancel := context.WithCancel(t.Context())
			go e.Run(ctx)
			synctest.Wait()
			return isLeader, cancel
		}
		first, stop := begin("first")
		second, _ := begin("second")
		require.NoError(t, first.IsLeader(t.Context()))
		require.ErrorContains(t, second.IsLeader(t.Context()), `"first" with token 1`)
		stop()
		time.Sleep(time.Minute)
		require.NoError(t, second.IsLeader(t.Context()))
		require.ErrorIs(t, first.IsLeader(t.Context()), gocronlock.ErrNotLeader)
	})
}

func TestNilArgumentsAreRefused(t *testing.T) {
	_, err := gocronlock.NewLocker(nil, "jobs", time.Minute)
	require.ErrorContains(t, err, "store is nil")
	_, err = gocronlock.NewLocker(leasehold.NewMemStore(), "jobs", time.Minute, nil)
	require.ErrorContains(t, err, "Option is nil")
	l, err := gocronlock.NewLocker(leasehold.NewMemStore(), "jobs", time.Minute)
	require.NoError(t, err)
	require.PanicsWithValue(t, "gocronlock: the clock of SetClock is nil (pass the clock of gocron.WithClock, or "+
		"leave SetClock out for the wall clock)",
		func() { l.SetClock(nil) })
}
