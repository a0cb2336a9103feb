package locktable_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/tables"
	"github.com/leasehold-go/leasehold/internal/testkit/bubble"
	"github.com/leasehold-go/leasehold/internal/testkit/testctx"
	"github.com/leasehold-go/leasehold/internal/testkit/testopt"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
	"github.com/leasehold-go/leasehold/locktable"
)

// on makes requests of one kind on the table's object fail.
func on(op string, err error) func(op, of string) error { return onKey(op, key, err) }

// onKey makes them fail on another object.
func onKey(op, object string, err error) func(op, of string) error {
	return func(o, of string) error {
		if of == object && (op == "" || o == op) {
			return err
		}
		return nil
	}
}

// A member that cannot write the table goes on trying. It keeps what nobody waits for, and does not
// block others for ever: its term ends, and they evict it. A store that refuses a condition which
// holds is as good as one that refuses all.
func TestMemberThatMayNotWriteTheTable(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		says string
		puts int // of a call that waits for four TTLs, at least
	}{
		"not allowed":        {errDenied, "AccessDenied", 2},
		"refused every time": {leasehold.ErrPreconditionFailed, "the store refuses a condition that holds", 10},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			store := newCounting()
			refused := alone(store)
			a, b := start(t, refused), start(t, store)
			lease := acquire(t, a.Lock("x"))
			refused.set(on("put", c.err), nil)
			puts := refused.count("put")
			_, err := a.Lock("y").Acquire(testctx.Within(t, 4*ttl))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, c.says)
			require.ErrorIs(t, a.Check(nil), c.err)
			require.GreaterOrEqual(t, refused.count("put")-puts, c.puts)
			require.True(t, lease.Valid(), "nobody waits for what is to be dropped")

			require.ErrorIs(t, lease.Release(testctx.Within(t, time.Second)), context.DeadlineExceeded)
			began := time.Now()
			acquire(t, b.Lock("x"))
			require.Less(t, time.Since(began), 5*ttl)
			refused.set(nil, nil)
			acquire(t, a.Lock("y"))
		})
	}
}

// A member whose committer hangs, in a store that ignores its context or in an observer, keeps its
// lock and moves nothing: Check says so.
func TestCheckOfAMemberThatHangs(t *testing.T) {
	for name, inStore := range map[string]bool{"in the store": true, "in an observer": false} {
		bubble.Run(t, name, func(t *testing.T) {
			store, hang := newCounting(), make(chan struct{})
			a := start(t, store, locktable.WithObserver(func(_ context.Context, e locktable.Event) {
				if !inStore && e.Kind == locktable.EventReleased {
					<-hang
				}
			}))
			lease := acquire(t, a.Lock("x"))
			time.Sleep(10 * ttl)
			require.NoError(t, a.Check(nil))
			if inStore {
				store.set(func(_, of string) error {
					if of == key {
						<-hang
					}
					return nil
				}, nil)
			}
			released := make(chan error, 1)
			go func() { released <- lease.Release(context.Background()) }()
			time.Sleep(2*ttl - time.Second)
			require.NoError(t, a.Check(nil))
			time.Sleep(2 * time.Second)
			require.ErrorContains(t, a.Check(nil), "for 31s, a request of the table, or an observer, has not returned")
			close(hang)
			require.NoError(t, <-released)
			synctest.Wait()
			require.NoError(t, a.Check(nil))
		})
	}
}

// A member whose looks hang never finds out that a holder is dead: Check says so.
func TestCheckOfALookThatHangs(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		hang, deaf := make(chan struct{}), alone(store)
		goOn := sync.OnceFunc(func() { close(hang) })
		defer goOn()
		a, b := start(t, store), start(t, deaf)
		acquire(t, a.Lock("x"))
		deaf.set(func(_, of string) error {
			if of == key+".members/"+a.MemberName() {
				<-hang
			}
			return nil
		}, nil)
		go func() { _, _ = b.Lock("x").Acquire(testctx.Within(t, 9*ttl)) }()
		time.Sleep(2 * ttl)
		require.NoError(t, b.Check(nil))
		time.Sleep(ttl)
		require.ErrorContains(t, b.Check(nil), "a request for a member's object has not returned")
		goOn()
		time.Sleep(time.Second)
		require.NoError(t, b.Check(nil))
	})
}

// Who waits in the table and cannot read it any more may be granted what it waits for. Its term
// ends, so that others go on.
func TestAGrantThatCannotBeRead(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		deaf := alone(store)
		a, b, c := start(t, store), start(t, deaf), start(t, store)
		lease := acquire(t, a.Lock("x"))
		go func() { _, _ = b.Lock("x").Acquire(soon(t)) }()
		within(t, ttl, "b stands in line", func() bool { return len(inspect(t, a).Waiting) == 1 })
		deaf.set(on("get", errCut), nil)
		b.fails = true
		require.NoError(t, lease.Release(t.Context()))
		began := time.Now()
		acquire(t, c.Lock("x"))
		require.Less(t, time.Since(began), 6*ttl)
	})
}

func inspect(t *testing.T, m *member) locktable.State {
	t.Helper()
	state, err := m.Inspect(t.Context())
	require.NoError(t, err)
	return state
}

// Who removes a holder by hand forgets to grant what is free then.
func TestAnEditThatGrantsNothing(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		a, b := start(t, store), start(t, store)
		acquire(t, a.Lock("x"))
		got := queue(t, b, "x")
		rewrite(t, store, func(tab *tables.Table) {
			dropHeld(tab)
			tab.Revision, tab.Nonce = tab.Revision+1, "by hand"
		})
		within(t, 2*ttl, "b holds it", func() bool { return len(got) == 1 })
	})
}

// A call that does not wait in line does not wait for a store that is gone, either.
func TestTryAcquireWithoutAStore(t *testing.T) {
	for name, op := range map[string]string{"no read": "", "no write": "put"} {
		bubble.Run(t, name, func(t *testing.T) {
			store := newCounting()
			a := start(t, store)
			lease := acquire(t, a.Lock("x"))
			store.set(on(op, errCut), nil)
			began := time.Now()
			_, err := a.Lock("y").TryAcquire(soon(t))
			require.ErrorIs(t, err, errCut)
			require.NotErrorIs(t, err, leasehold.ErrHeld)
			require.Less(t, time.Since(began), 5*time.Second)
			require.True(t, lease.Valid())
			store.set(nil, nil)
		})
	}
}

// Do returns soon after its context has ended, whatever the TTL is.
func TestDoWithoutAStore(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		a := start(t, store, locktable.WithTTL(time.Hour))
		ctx, cancel := context.WithCancel(t.Context())
		var ended time.Time
		err := a.Lock("x").Do(ctx, func(ctx context.Context, _ *locktable.Lease) error {
			store.set(on("put", errCut), nil)
			cancel()
			<-ctx.Done()
			ended = time.Now()
			return nil
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.LessOrEqual(t, time.Since(ended), 31*time.Second)
		store.set(nil, nil)
	})
}

// After an outage, the table is used again within a poll interval. After a refusal for good, once
// in half a minute is enough.
func TestPausesAfterFailures(t *testing.T) {
	for name, c := range map[string]struct {
		err         error
		least, most int // requests in nine minutes
	}{
		"an outage": {errCut, 150, 400},
		"a refusal": {errDenied, 20, 100},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			store := newCounting()
			a := start(t, store)
			acquire(t, a.Lock("x"))
			store.set(on("put", c.err), nil)
			got := make(chan *locktable.Lease, 1)
			go func() { got <- acquire(t, a.Lock("y")) }()
			before := store.count("put")
			time.Sleep(9 * time.Minute)
			puts := store.count("put") - before
			require.GreaterOrEqual(t, puts, c.least)
			require.LessOrEqual(t, puts, c.most)
			store.set(nil, nil)
			limit := ttl
			if errors.Is(c.err, leasehold.ErrPermanent) {
				limit = 30 * time.Second
			}
			within(t, limit/3+limit/2, "y is held", func() bool { return len(got) == 1 })
		})
	}
}

// A call that would wait for the lease it runs under is refused, however deep it is.
func TestACallUnderItsOwnLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := start(t, newCounting())
		err := a.Lock("x").Do(t.Context(), func(ctx context.Context, _ *locktable.Lease) error {
			return a.Lock("y").Do(ctx, func(ctx context.Context, _ *locktable.Lease) error {
				ctx, cancel := context.WithTimeout(ctx, time.Minute)
				defer cancel()
				_, err := a.Lock("x").Acquire(ctx)
				return err
			})
		})
		require.ErrorIs(t, err, leasehold.ErrHeld)
		require.ErrorContains(t, err, "would wait for itself")

		// Also under leases that were acquired one beside the other.
		x, gpu := acquire(t, a.Lock("x")), acquire(t, a.Semaphore("gpu", 2))
		require.NoError(t, x.Do(soon(t), func(ctx context.Context, _ *locktable.Lease) error {
			return gpu.Do(ctx, func(ctx context.Context, _ *locktable.Lease) error {
				_, err := a.Lock("x").Acquire(ctx)
				require.ErrorContains(t, err, "would wait for itself")
				_, err = a.Semaphore("gpu", 2).Acquire(ctx)
				return err
			})
		}))
		own := acquire(t, a.Semaphore("cpu", 2))
		require.NoError(t, own.Do(own.Context(), func(ctx context.Context, _ *locktable.Lease) error {
			_, err := a.Semaphore("cpu", 2).Acquire(ctx) // its slot counts once, though both contexts have it
			return err
		}))
	})
}

// Errors of a context match its error, and the cause that says more.
func TestErrorsOfAContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := start(t, newCounting())
		lease := acquire(t, a.Lock("x"))
		shutdown := errors.New("the process shuts down")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(shutdown) })
		_, err := a.Lock("x").Acquire(ctx)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, shutdown)
		require.ErrorIs(t, err, leasehold.ErrHeld)
		require.NoError(t, lease.Release(t.Context()))
		_, err = new(locktable.Lock).Acquire(t.Context())
		require.ErrorContains(t, err, "Table.Lock")
	})
}

// diary is an observer of what happens to leases.
type diary struct {
	mu     sync.Mutex
	events []string
	also   func()
}

func (d *diary) note(_ context.Context, e locktable.Event) {
	if e.Kind == locktable.EventRead || e.Kind == locktable.EventWrite {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events = append(d.events, string(e.Kind)+" "+strings.Join(e.Locks, ","))
	if d.also != nil {
		d.also()
	}
}

func (d *diary) all() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := slices.Clone(d.events)
	slices.Sort(all)
	return all
}

// All contexts have ended before an observer, which may be slow, hears of the loss.
func TestContextsEndBeforeTheObserverHears(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		var d diary
		a := start(t, store, locktable.WithObserver(d.note))
		x, y := acquire(t, a.Lock("x")), acquire(t, a.Lock("y"))
		var causes []error
		d.mu.Lock()
		d.also = func() { causes = append(causes, context.Cause(x.Context()), context.Cause(y.Context())) }
		d.mu.Unlock()
		store.set(func(string, string) error { return errCut }, nil)
		time.Sleep(ttl)
		synctest.Wait()
		require.Equal(t, []string{"acquired x", "acquired y", "lost x", "lost y"}, d.all())
		require.Len(t, causes, 4)
		for _, cause := range causes {
			require.ErrorIs(t, cause, leasehold.ErrLost)
		}
		store.set(nil, nil)
	})
}

// Who has seen a lease begin sees it end, also if its release could not be written before the term
// was over.
func TestTheEndOfEachLeaseIsTold(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		var d diary
		a := start(t, store, locktable.WithObserver(d.note))
		x := acquire(t, a.Lock("x"))
		store.set(func(string, string) error { return errCut }, nil)
		require.ErrorIs(t, x.Release(soon(t)), leasehold.ErrLost)
		store.set(nil, nil)
		acquire(t, a.Lock("y"))
		require.Equal(t, []string{"acquired x", "acquired y", "lost x"}, d.all())
	})
}

// No function begins under a lease whose term has run out while the process was stopped.
func TestDoAfterAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asleep atomic.Int64
		a := start(t, newCounting(), testopt.WithTableClock(testopt.Stopped(&asleep)))
		lease := acquire(t, a.Lock("x"))
		asleep.Store(int64(time.Hour))
		err := lease.Do(t.Context(), func(context.Context, *locktable.Lease) error {
			t.Error("it runs")
			return nil
		})
		require.ErrorIs(t, err, leasehold.ErrLost)
		require.False(t, lease.Valid())
	})
}

// Of many requests at once for which there is not enough room, the last ones fail, and not all.
func TestManyRequestsForALittleRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := start(t, newCounting(), locktable.WithMaxSize(8<<10))
		time.Sleep(time.Second)
		var all sync.WaitGroup
		var held, full atomic.Int64
		for i := range 1000 {
			all.Go(func() {
				lease, err := a.Lock(fmt.Sprintf("a-rather-long-name-of-a-lock-%d", i)).Acquire(soon(t))
				switch {
				case err == nil:
					held.Add(1)
					t.Cleanup(func() { runtime.KeepAlive(lease) })
				case errors.Is(err, locktable.ErrFull):
					full.Add(1)
				}
			})
		}
		all.Wait()
		require.EqualValues(t, 1000, held.Load()+full.Load())
		require.Greater(t, held.Load(), int64(100))
		size := inspect(t, a).Size
		require.LessOrEqual(t, size, 8<<10)
		require.Greater(t, size, 7<<10)
	})
}

// Whoever has others in front looks after as many wake-ups, and not at each.
func TestAWakeUpIsForTheFirstInLine(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		var line []*member
		var reads []*counting
		lease := acquire(t, start(t, store).Lock("x"))
		for range 4 {
			of := alone(store)
			m := start(t, of, locktable.WithPollInterval(10*time.Minute))
			go func() {
				if lease, err := m.Lock("x").Acquire(soon(t)); err == nil {
					_ = lease.Release(soon(t))
				}
			}()
			within(t, ttl, "it stands in line", func() bool { return len(inspect(t, m).Waiting) == len(line)+1 })
			line, reads = append(line, m), append(reads, of)
		}
		for wakes, want := range [][]int{{1, 0, 0, 0}, {1, 1, 0, 0}, {1, 0, 1, 0}, {1, 1, 0, 1}} {
			var before []int
			for _, of := range reads {
				before = append(before, of.count("get"))
			}
			for _, m := range line {
				m.Wake()
			}
			time.Sleep(50 * time.Millisecond)
			for i, of := range reads {
				require.Equal(t, want[i], of.count("get")-before[i], "wake-up %d, place %d", wakes+1, i+1)
			}
		}
		require.NoError(t, lease.Release(soon(t)))
	})
}

// Of those that are in the way, four at most are looked at at the same time.
func TestLooksAtOnce(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		for range 12 {
			acquire(t, start(t, store).Shared("x"))
		}
		var under, most atomic.Int64
		m := start(t, teststore.Known(alone(store),
			func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
				if r.Op == teststore.Get && r.Key != key {
					n := under.Add(1)
					defer under.Add(-1)
					most.Store(max(most.Load(), n))
					time.Sleep(time.Second)
				}
				return r.Send(ctx)
			}))
		go func() { _, _ = m.Lock("x").Acquire(soon(t)) }()
		time.Sleep(2 * ttl)
		require.EqualValues(t, 4, most.Load())
	})
}

// A dead member's object may be read, and not be written. It is looked at once per poll, and not as
// fast as the store answers.
func TestADeadMemberThatCannotBeTaken(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		cable := newCable(store)
		a, b := start(t, cable), start(t, store)
		a.fails = true
		acquire(t, a.Lock("x"))
		cable.cut(true)
		object := key + ".members/" + a.MemberName()
		store.set(onKey("put", object, errDenied), nil)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var waiting sync.WaitGroup
		waiting.Go(func() { _, _ = b.Lock("x").Acquire(ctx) })
		time.Sleep(2 * ttl)
		for _, polls := range []int{4 * 5, 4 * 5} { // while somebody waits, and then
			store.forget()
			time.Sleep(4 * ttl)
			require.Less(t, store.countOf("get", object), 5*polls)
			cancel()
			waiting.Wait()
		}
		cable.cut(false)
		store.set(nil, nil)
		time.Sleep(4 * ttl)
	})
}

// Members that may read only their own objects look at each other now and then, and not at each
// poll.
func TestMembersThatMayNotBeRead(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		const members = 6
		for i := range members {
			m := start(t, private(store))
			acquire(t, m.Lock(fmt.Sprint(i)))
		}
		time.Sleep(20 * ttl)
		store.forget()
		const ttls = 20
		time.Sleep(ttls * ttl)
		require.Less(t, store.looks(), members*(members-1)*ttls*3/2)
	})
}

// private is a store that shows a process no member's object but the one that it has written.
func private(store leasehold.Store) leasehold.Store {
	var own atomic.Pointer[string]
	return teststore.Known(store, func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
		if r.Op == teststore.Create && r.Key != key {
			own.CompareAndSwap(nil, &r.Key)
		}
		o, err := r.Send(ctx)
		if own := own.Load(); r.Op == teststore.Get && own != nil && r.Key != *own && r.Key != key {
			return leasehold.Object{}, errDenied
		}
		return o, err
	})
}

// A server says of each write that another is under way. Whoever does not wait is told after two
// TTLs.
func TestTryAcquireWhileAllWritesConflict(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		m := start(t, store)
		acquire(t, m.Lock("x"))
		store.set(on("put", leasehold.ErrConflict), nil)
		began := time.Now()
		_, err := m.Lock("y").TryAcquire(soon(t))
		require.ErrorIs(t, err, leasehold.ErrConflict)
		require.Less(t, time.Since(began), 4*ttl)
		store.set(nil, nil)
		acquire(t, m.Lock("y"))
	})
}
