package leasehold_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/bubble"
	"github.com/leasehold-go/leasehold/internal/testkit/testctx"
)

// process returns a Store value of its own on the same objects, as another process would have.
func process(s leasehold.Store) *faultStore { return newFaultStore(s) }

// waiting returns the store of a candidate that waits for a lock, with a poll interval of an hour,
// and its result.
func waiting(t *testing.T, objects leasehold.Store, use func(ctx context.Context,
	l *leasehold.Lock)) (*faultStore, *leasehold.Lock) {
	t.Helper()
	store := process(objects)
	l := newLock(t, store, leasehold.WithPollInterval(time.Hour), leasehold.WithTTL(2*time.Hour))
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { use(ctx, l) })
	t.Cleanup(func() {
		cancel()
		done.Wait()
	})
	synctest.Wait()
	return store, l
}

func TestWakeMakesWhoeverWaitsReadNow(t *testing.T) {
	for name, use := range map[string]func(ctx context.Context, l *leasehold.Lock, led func(uint64)){
		"Acquire": func(ctx context.Context, l *leasehold.Lock, led func(uint64)) {
			if lease, err := l.Acquire(ctx); err == nil {
				led(lease.Token())
				_ = lease.Release(context.WithoutCancel(ctx))
			}
		},
		"Do": func(ctx context.Context, l *leasehold.Lock, led func(uint64)) {
			_ = l.Do(ctx, func(_ context.Context, lease *leasehold.Lease) error {
				led(lease.Token())
				return nil
			})
		},
		"Elector": func(ctx context.Context, l *leasehold.Lock, led func(uint64)) {
			e, err := leasehold.NewElector(l, leasehold.Callbacks{OnStartedLeading: func(_ context.Context,
				lease *leasehold.Lease) {
				led(lease.Token())
			}})
			if err == nil {
				_ = e.Run(ctx)
			}
		},
		"Watch": func(ctx context.Context, l *leasehold.Lock, led func(uint64)) {
			for status, err := range l.Watch(ctx) {
				if err == nil && status.State == leasehold.StateReleased {
					led(status.Record.Token + 1)
				}
			}
		},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			objects := leasehold.NewMemStore()
			holder := acquire(t, newLock(t, objects, leasehold.WithTTL(2*time.Hour)))
			led := make(chan uint64, 1)
			began := time.Now()
			store, l := waiting(t, objects, func(ctx context.Context, l *leasehold.Lock) {
				use(ctx, l, func(token uint64) { led <- token })
			})
			require.Equal(t, []string{"get"}, store.count())

			l.Wake() // too early
			synctest.Wait()
			require.Equal(t, []string{"get"}, store.count())
			require.NoError(t, holder.Release(t.Context()))
			synctest.Wait()
			require.Empty(t, store.count(), "another process: nothing tells it of the release")
			l.Wake()
			require.EqualValues(t, 2, <-led)
			require.Equal(t, began, time.Now(), "virtual time: it did not wait for its next poll")
		})
	}
}

func TestWakeReachesElectors(t *testing.T) {
	onMemStore(t, func(t *testing.T, objects leasehold.Store) {
		holder := acquire(t, newLock(t, objects))
		candidate := make(chan *leasehold.Lock, 1)
		led := make(chan struct{})
		waiting(t, objects, func(ctx context.Context, l *leasehold.Lock) {
			e, err := leasehold.NewElector(l, leasehold.Callbacks{OnStartedLeading: func(context.Context,
				*leasehold.Lease) {
				close(led)
			}})
			if err != nil {
				t.Error(err)
				return
			}
			candidate <- l
			_ = e.Run(ctx)
		})
		require.NoError(t, holder.Release(t.Context()))
		began := time.Now()
		(<-candidate).Wake()
		<-led
		require.Equal(t, began, time.Now())
	})
}

// A change that comes after the object was read, and whose wake-up comes before the wait begins,
// must not be missed.
func TestAWakeUpDuringTheReadIsNotLost(t *testing.T) {
	onMemStore(t, func(t *testing.T, objects leasehold.Store) {
		holder := acquire(t, newLock(t, objects))
		store := process(objects)
		l := newLock(t, store, leasehold.WithPollInterval(time.Hour), leasehold.WithTTL(2*time.Hour))
		// the reply is on its way when the lock is released
		store.next(fault{op: "get", apply: true, delay: 5 * time.Second})
		time.AfterFunc(time.Second, func() {
			_ = holder.Release(context.Background())
			l.Wake()
		})
		began := time.Now()
		lease, err := l.Acquire(t.Context())
		require.NoError(t, err)
		require.Equal(t, 5*time.Second, time.Since(began))
		require.NoError(t, lease.Release(t.Context()))
	})
}

func TestAMillionWakeUpsAreFewReads(t *testing.T) {
	onMemStore(t, func(t *testing.T, objects leasehold.Store) {
		holder := acquire(t, newLock(t, objects, leasehold.WithTTL(2*time.Hour)))
		led := make(chan time.Time, 1)
		store, l := waiting(t, objects, func(ctx context.Context, l *leasehold.Lock) {
			if lease, err := l.Acquire(ctx); err == nil {
				led <- time.Now()
				_ = lease.Release(context.WithoutCancel(ctx))
			}
		})
		for range 1_000_000 / 100 {
			for range 100 {
				l.Wake()
				synctest.Wait()
			}
			time.Sleep(360 * time.Millisecond) // 10,000 times: an hour, the poll interval
		}
		reads := len(store.count())
		require.LessOrEqual(t, reads, 1+10+10+1, "the first read, ten at once, ten in the interval, and the poll")
		require.GreaterOrEqual(t, reads, 1+10+9, "and that many are allowed")

		require.NoError(t, holder.Release(t.Context()))
		released := time.Now()
		l.Wake() // merged with others, but not lost
		require.LessOrEqual(t, (<-led).Sub(released), 6*time.Minute, "a tenth of the poll interval")
	})
}

func TestUnusedWakeUpsDoNotAddUp(t *testing.T) {
	onMemStore(t, func(t *testing.T, objects leasehold.Store) {
		acquire(t, newLock(t, objects, leasehold.WithTTL(8*time.Hour)))
		store, l := waiting(t, objects, func(ctx context.Context, l *leasehold.Lock) { _, _ = l.Acquire(ctx) })
		time.Sleep(5 * time.Hour)
		store.count()
		for range 100 {
			l.Wake()
			synctest.Wait()
		}
		require.Len(t, store.count(), 10)
	})
}

func TestWakeWhenNobodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := process(leasehold.NewMemStore())
		l := newLock(t, store)
		l.Wake()
		lease := acquire(t, l)
		store.count()
		for range 100 {
			l.Wake()
		}
		synctest.Wait()
		require.Empty(t, store.count())
		require.NoError(t, lease.Release(t.Context()))

		other := acquire(t, newLock(t, process(store)))
		led := make(chan struct{})
		go func() {
			if lease, err := l.Acquire(t.Context()); err == nil {
				_ = lease.Release(t.Context())
			}
			close(led)
		}()
		synctest.Wait()
		require.NoError(t, other.Release(t.Context()))
		began := time.Now()
		l.Wake()
		<-led
		require.Equal(t, began, time.Now(), "those wake-ups have used up nothing")
	})
	(*leasehold.Lock)(nil).Wake()
	new(leasehold.Lock).Wake()
}

func TestWakeUpsOfACandidateThatBacksOffAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := process(leasehold.NewMemStore())
		for range 1000 {
			store.next(fault{op: "get", err: errors.New("503")})
		}
		l := newLock(t, store)
		ctx := testctx.Within(t, 30*time.Second)
		go func() {
			for ctx.Err() == nil {
				l.Wake()
				time.Sleep(time.Millisecond)
			}
		}()
		_, err := l.Acquire(ctx)
		require.ErrorContains(t, err, "503")
		require.Less(t, len(store.count()), 10+10*10+10, "ten at once, ten per poll interval, and the tries without "+
			"a wake-up")
		time.Sleep(time.Second)
	})
}

// wrapped is a Store that Go cannot compare, and unequal is one that is not equal to itself.
type (
	wrapped struct {
		leasehold.Store
		_ func()
	}
	unequal struct {
		leasehold.Store
		is float64
	}
)

func TestLocksOfOneProcessWakeEachOther(t *testing.T) {
	mem := leasehold.NewMemStore()
	for name, c := range map[string]struct {
		same  bool
		store leasehold.Store
	}{
		"one Lock":                              {true, mem},
		"two Locks":                             {false, mem},
		"one Lock, a store without comparison":  {true, wrapped{Store: mem}},
		"two Locks, a store without comparison": {false, wrapped{Store: mem}},
		"two Locks, a store unlike itself":      {false, unequal{mem, math.NaN()}},
	} {
		same, store := c.same, c.store
		bubble.Run(t, name, func(t *testing.T) {
			opts := []leasehold.Option{leasehold.WithPollInterval(time.Hour), leasehold.WithTTL(2 * time.Hour)}
			first := newLock(t, store, opts...)
			second := first
			if !same {
				second = newLock(t, store, opts...)
			}
			other, err := leasehold.NewLock(store, "another key", opts...)
			require.NoError(t, err)
			held := acquire(t, first)
			require.NoError(t, acquire(t, other).Release(t.Context()))
			began := time.Now()
			time.AfterFunc(time.Minute, func() { _ = held.Release(context.Background()) })
			lease, err := second.Acquire(t.Context())
			require.NoError(t, err)
			require.Equal(t, time.Minute, time.Since(began))
			require.NoError(t, lease.Release(t.Context()))
		})
	}
}

// inLine starts a candidate of each lock, one after the other, which puts its number into the
// result once it leads.
func inLine(t *testing.T, locks ...*leasehold.Lock) (
	leads chan int, leases []*leasehold.Lease, cancel []context.CancelFunc,
) {
	t.Helper()
	leads, leases = make(chan int, len(locks)), make([]*leasehold.Lease, len(locks))
	var all sync.WaitGroup
	for i, l := range locks {
		ctx, stop := context.WithCancel(t.Context())
		cancel = append(cancel, stop)
		all.Go(func() {
			lease, err := l.Acquire(ctx)
			if err == nil {
				leases[i] = lease
				leads <- i
			}
		})
		synctest.Wait()
	}
	t.Cleanup(func() {
		for _, stop := range cancel {
			stop()
		}
		all.Wait()
	})
	return leads, leases, cancel
}

// hourly are locks of one process that poll once an hour.
func hourly(t *testing.T, store leasehold.Store, n int) (locks []*leasehold.Lock) {
	t.Helper()
	for range n {
		locks = append(locks, newLock(t, store, leasehold.WithPollInterval(time.Hour), leasehold.WithTTL(2*time.Hour),
			leasehold.WithManualRenewal()))
	}
	return locks
}

// A release does not make all candidates of its process read.
func TestAReleaseCostsOneReadHoweverManyWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 100
		store := process(leasehold.NewMemStore())
		locks := hourly(t, store, n+1)
		held := acquire(t, locks[n])
		leads, leases, _ := inLine(t, locks[:n]...)
		store.count()
		began := time.Now()
		for i := range n {
			require.NoError(t, held.Release(t.Context()))
			require.Equal(t, i, <-leads, "in the order in which they came")
			held = leases[i]
			require.Len(t, store.count(), 3, "the release, a read, the acquisition")
		}
		require.Equal(t, began, time.Now())
		require.NoError(t, held.Release(t.Context()))
	})
}

// Whatever keeps the first in line from taking the lock that is free, the second has its turn at
// once.
func TestATurnIsPassedOn(t *testing.T) {
	const never = time.Hour
	for name, c := range map[string]struct {
		fault fault
		then  func(cancel context.CancelFunc)
	}{
		"its read fails":  {fault{op: "get", err: errInjected}, nil},
		"its write fails": {fault{op: "put", err: errInjected}, nil},
		"its ctx ends while its read hangs": {
			fault{op: "get", delay: never},
			func(cancel context.CancelFunc) { synctest.Wait(); cancel() },
		},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			store := process(leasehold.NewMemStore())
			locks := hourly(t, store, 3)
			held := acquire(t, locks[2])
			leads, leases, cancel := inLine(t, locks[:2]...)
			began := time.Now()
			if c.fault.op == "put" {
				store.next(fault{op: "put", apply: true}) // the release
			}
			store.next(c.fault)
			require.NoError(t, held.Release(t.Context()))
			if c.then != nil {
				c.then(cancel[0])
			}
			require.Equal(t, 1, <-leads)
			require.Equal(t, began, time.Now())
			require.NoError(t, leases[1].Release(t.Context()))
		})
	}
}

// The first in line waits for the answer to its read. The others do not wait for it.
func TestAReadThatHangsHoldsUpNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := process(leasehold.NewMemStore())
		held := acquire(t, newLock(t, store))
		leads, leases, _ := inLine(t, newLock(t, store), newLock(t, store))
		store.next(fault{op: "get", delay: time.Hour})
		require.NoError(t, held.Release(t.Context()))
		began := time.Now()
		require.Equal(t, 1, <-leads)
		require.Less(t, time.Since(began), 4500*time.Millisecond, "its own poll")
		require.NoError(t, leases[1].Release(t.Context()))
		require.Equal(t, 0, <-leads)
		require.NoError(t, leases[0].Release(t.Context()))
	})
}

// If another process was faster, one candidate finds it out, and the others go on waiting.
func TestATurnEndsIfAnotherProcessHasTheLock(t *testing.T) {
	onMemStore(t, func(t *testing.T, objects leasehold.Store) {
		store := process(objects)
		locks := hourly(t, store, 4)
		held := acquire(t, locks[3])
		inLine(t, locks[:3]...)
		store.count()
		store.next(fault{op: "put", apply: true, delay: time.Second})
		released := make(chan error)
		go func() { released <- held.Release(t.Context()) }()
		synctest.Wait()
		theirs := acquire(t, hourly(t, process(objects), 1)[0])
		require.NoError(t, <-released)
		synctest.Wait()
		require.Equal(t, []string{"put", "get"}, store.count())
		require.NoError(t, theirs.Release(t.Context()))
	})
}

// The lock is free for others, but not yet for the same Lock, which is first in line.
func TestATurnIsPassedOnByTheSameLockWhileItsFunctionRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := process(leasehold.NewMemStore())
		locks := hourly(t, store, 2)
		end := make(chan struct{})
		go func() {
			_ = locks[0].Do(t.Context(), func(ctx context.Context, lease *leasehold.Lease) error {
				<-end
				err := lease.Release(ctx)
				<-end
				return err
			})
		}()
		synctest.Wait()
		leads, leases, _ := inLine(t, locks...)
		began := time.Now()
		end <- struct{}{}
		require.Equal(t, 1, <-leads)
		require.Equal(t, began, time.Now())
		close(end)
		require.NoError(t, leases[1].Release(t.Context()))
		require.Equal(t, 0, <-leads)
		require.NoError(t, leases[0].Release(t.Context()))
	})
}

// A goroutine of the same Lock stays out until the function of the last term has returned, and then
// comes in at once.
func TestTheEndOfAFunctionWakesTheSameLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLock(t, leasehold.NewMemStore(), leasehold.WithPollInterval(time.Hour), leasehold.WithTTL(2*time.Hour))
		began := time.Now()
		go func() {
			_ = l.Do(t.Context(), func(ctx context.Context, lease *leasehold.Lease) error {
				err := lease.Release(ctx)
				time.Sleep(time.Minute)
				return err
			})
		}()
		synctest.Wait()
		lease, err := l.Acquire(t.Context())
		require.NoError(t, err)
		require.Equal(t, time.Minute, time.Since(began))
		require.NoError(t, lease.Release(t.Context()))
	})
}
