package locktable_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/testctx"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
	"github.com/leasehold-go/leasehold/locktable"
)

const key = "tables/test"

var silent = slog.New(slog.DiscardHandler)

// through is a store that is before another one, which is its Store.
type through = teststore.Store

// counting counts requests, and lets a test change them.
type counting struct {
	*through
	instant  bool // answers take no time
	mu       sync.Mutex
	requests map[string]int
	before   func(op, key string) error // the request fails with this, and is not carried out
	after    func(op, key string) error // a write fails with this, although it was carried out
}

func newCounting() *counting { return alone(leasehold.NewMemStore()) }

// alone is a store with faults of its own for one member.
func alone(store leasehold.Store) *counting {
	c := &counting{requests: make(map[string]int)}
	c.through = teststore.New(store, c.answer)
	c.Info = leasehold.StoreInfo{MinTTL: time.Millisecond, Conditional: true} // nothing needs to try it
	return c
}

// onStore runs a test in virtual time, on a store of its own.
func onStore(t *testing.T, f func(t *testing.T, store *counting)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newCounting()) })
}

func (c *counting) answer(ctx context.Context, r teststore.Request) (o leasehold.Object, err error) {
	op := string(r.Op)
	if r.Puts() {
		op = "put"
	}
	if !c.instant {
		time.Sleep(5 * time.Millisecond) // in virtual time
	}
	c.mu.Lock()
	c.requests[op+" "+r.Key]++
	before := c.before
	c.mu.Unlock()
	if before != nil {
		if err := before(op, r.Key); err != nil {
			return o, err
		}
	}
	o, err = r.Send(ctx)
	c.mu.Lock()
	after := c.after
	c.mu.Unlock()
	if r.Puts() && err == nil && after != nil {
		err = after(op, r.Key)
	}
	return o, err
}

// set changes before and after.
func (c *counting) set(before, after func(op, key string) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.before, c.after = before, after
}

// forget begins to count anew.
func (c *counting) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.requests)
}

func (c *counting) count(op string) int { return c.countOf(op, key) }

func (c *counting) countOf(op, key string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests[op+" "+key]
}

// looks is how often members' objects were read.
func (c *counting) looks() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for of, times := range c.requests {
		if strings.HasPrefix(of, "get "+key+".members/") {
			n += times
		}
	}
	return n
}

// member is one process that runs a table.
type member struct {
	*locktable.Table
	stop  func() error // ends Run gracefully, and returns its error
	fails bool         // Run may
}

func start(t *testing.T, store leasehold.Store, opts ...locktable.Option) *member {
	t.Helper()
	tab, err := locktable.New(store, key, append([]locktable.Option{locktable.WithLogger(silent)}, opts...)...)
	require.NoError(t, err)
	return run(t, tab)
}

// run runs a table until the end of the test, or until stop.
func run(t *testing.T, tab *locktable.Table) *member {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan struct{})
	var err error
	go func() {
		defer close(ran)
		err = tab.Run(ctx)
	}()
	m := &member{Table: tab}
	m.stop = func() error { // two may wait: a mutex between them would stop the bubble's clock
		cancel()
		<-ran
		return err
	}
	t.Cleanup(func() {
		if err := m.stop(); !m.fails {
			assert.NoError(t, err)
		}
	})
	return m
}

// soon ends a call that waits although it should not.
func soon(t *testing.T) context.Context { return testctx.Within(t, 10*time.Minute) }

// queue returns what b gets, and comes back once b stands in line for the lock.
func queue(t *testing.T, b *member, name string) chan *locktable.Lease {
	t.Helper()
	got := make(chan *locktable.Lease, 1)
	go func() { got <- acquire(t, b.Lock(name)) }()
	within(t, ttl, "b stands in line", func() bool { return len(inspect(t, b).Waiting) == 1 })
	return got
}

// acquire acquires a lock and keeps the lease from the garbage collector.
func acquire(t *testing.T, l *locktable.Lock) *locktable.Lease {
	t.Helper()
	lease, err := l.Acquire(soon(t))
	require.NoError(t, err)
	require.True(t, lease.Valid())
	t.Cleanup(func() { runtime.KeepAlive(lease) })
	return lease
}

// Who frees a lock hands it to the first who waits, in the same write.
func TestHandOver(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		a, b := start(t, store), start(t, store)
		first := acquire(t, a.Lock("x"))
		got := make(chan *locktable.Lease)
		go func() { got <- acquire(t, b.Lock("x")) }()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		puts := store.count("put")
		_, err := b.Lock("x").TryAcquire(soon(t))
		require.ErrorIs(t, err, leasehold.ErrHeld)
		require.ErrorContains(t, err, fmt.Sprintf("%q", a.MemberName()))
		require.NoError(t, first.Release(t.Context()))
		require.False(t, first.Valid())
		require.ErrorIs(t, context.Cause(first.Context()), leasehold.ErrReleased)
		b.Wake()
		second := <-got
		require.Greater(t, second.Token(), first.Token())
		require.LessOrEqual(t, store.count("put")-puts, 2) // the first one is refused, because another has asked since
		require.NoError(t, second.Release(t.Context()))
		a.stop()
		b.stop()
		state := inspect(t, a)
		require.Empty(t, state.Members)
		require.Empty(t, state.Held)
		for _, m := range []*member{a, b} { // nothing is left of them
			_, err := store.Store.Get(t.Context(), key+".members/"+m.MemberName())
			require.ErrorIs(t, err, leasehold.ErrNotExist)
		}
	})
}

// Ten thousand locks cost a handful of requests, and nothing but the heartbeat at rest.
func TestTenThousandAtOnce(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		a := start(t, store)
		own := key + ".members/" + a.MemberName()
		time.Sleep(time.Second)
		gets, puts := store.count("get"), store.count("put")
		var group sync.WaitGroup
		leases := make([]*locktable.Lease, 10_000)
		for i := range leases {
			group.Go(func() { leases[i] = acquire(t, a.Lock(fmt.Sprintf("tenant-%05d", i))) })
		}
		group.Wait()
		t.Logf("%d GET and %d PUT", store.count("get")-gets, store.count("put")-puts)
		require.LessOrEqual(t, store.count("get")-gets, 2)
		require.LessOrEqual(t, store.count("put")-puts, 2)
		state := inspect(t, a)
		require.Len(t, state.Held, 10_000)
		t.Logf("%d bytes", state.Size)
		require.LessOrEqual(t, state.Size, 500_000)
		puts = store.count("put")
		beats := store.countOf("put", own)
		time.Sleep(time.Hour)
		require.Equal(t, puts, store.count("put"))
		require.InDelta(t, time.Hour/(ttl/3), store.countOf("put", own)-beats, 40)
		require.True(t, leases[9_999].Valid())
		beats, deletes := store.countOf("put", own), store.countOf("delete", own)
		a.stop()
		require.Equal(t, puts+1, store.count("put"))
		require.Equal(t, 1, store.countOf("put", own)-beats)
		require.Equal(t, 1, store.countOf("delete", own)-deletes)
	})
}

// A dead member's locks go to others once its term is proven over.
func TestDeadMember(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		cable := newCable(store)
		a := start(t, cable)
		first := acquire(t, a.Lock("x"))
		b := start(t, store)
		began := time.Now()
		cable.cut(true)
		got := make(chan *locktable.Lease, 1)
		go func() { got <- acquire(t, b.Lock("x")) }()
		within(t, ttl, "it is lost", func() bool { return !first.Valid() })
		time.Sleep(100 * time.Millisecond)
		// with the term, not when the margin is over
		require.ErrorIs(t, context.Cause(first.Context()), leasehold.ErrLost)
		second := <-got
		require.Greater(t, second.Token(), first.Token())
		require.Less(t, time.Since(began), 20*time.Second)
		cable.cut(false)
		time.Sleep(time.Minute)
		third := acquire(t, a.Lock("y")) // it has healed
		require.Greater(t, third.Token(), second.Token())
		require.NoError(t, a.Check(nil))
	})
}

// newCable returns the network of processes that may be cut off. It takes no time.
func newCable(store leasehold.Store) *counting {
	c := alone(store)
	c.instant = true
	return c
}

// cut lets all requests fail, or none.
func (c *counting) cut(off bool) {
	if !off {
		c.set(nil, nil)
		return
	}
	c.set(func(string, string) error { return errCut }, nil)
}

var (
	errCut    = errors.New("no route")
	errDenied = fmt.Errorf("%w: AccessDenied", leasehold.ErrPermanent)
)

// Readers share, a writer waits for them, and later readers wait behind the writer.
func TestSharedLocksAndSemaphores(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		a, b := start(t, store), start(t, store)
		r1, r2 := acquire(t, a.Shared("s")), acquire(t, b.Shared("s"))
		order := make(chan string, 4)
		var writer *locktable.Lease
		go func() { writer = acquire(t, a.Lock("s")); order <- "writer" }()
		time.Sleep(10 * time.Second)
		go func() { acquire(t, b.Shared("s")); order <- "reader" }()
		time.Sleep(10 * time.Second)
		require.Empty(t, order)
		require.NoError(t, r1.Release(t.Context()))
		time.Sleep(10 * time.Second)
		require.Empty(t, order)
		require.NoError(t, r2.Release(t.Context()))
		require.Equal(t, "writer", <-order)
		time.Sleep(10 * time.Second)
		require.Empty(t, order)
		require.NoError(t, writer.Release(t.Context()))
		require.Equal(t, "reader", <-order)

		s1, s2 := acquire(t, a.Semaphore("gpu", 3).Slots(2)), acquire(t, b.Semaphore("gpu", 3))
		_, err := a.Semaphore("gpu", 3).TryAcquire(soon(t))
		require.ErrorIs(t, err, leasehold.ErrHeld)
		_, err = a.Lock("gpu").TryAcquire(soon(t))
		require.ErrorContains(t, err, "gpu")
		require.NotErrorIs(t, err, leasehold.ErrHeld)
		require.NoError(t, s1.Release(t.Context()))
		require.NoError(t, s2.Release(t.Context()))
		acquire(t, a.All(a.Semaphore("gpu", 4).Slots(4), a.Lock("x"), a.Shared("y")))
		_, err = b.All(b.Shared("x"), b.Lock("z")).TryAcquire(soon(t))
		require.ErrorIs(t, err, leasehold.ErrHeld)
		acquire(t, b.Lock("z"))
	})
}

// Each waiter gets its turn, in the order of the table.
func TestFirstComeFirstServed(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		var members []*member
		for range 5 {
			members = append(members, start(t, store))
		}
		lease := acquire(t, members[0].Lock("x"))
		order := make(chan int, len(members))
		for i, m := range members {
			time.Sleep(5 * time.Second)
			go func() {
				next := acquire(t, m.Lock("x"))
				order <- i
				assert.NoError(t, next.Release(t.Context()))
			}()
		}
		time.Sleep(5 * time.Second)
		require.NoError(t, lease.Release(t.Context()))
		for want := range members {
			require.Equal(t, want, <-order)
		}
		time.Sleep(time.Minute)
	})
}

// Do keeps the lock until its function has returned, and hands it over then, also when Run ends
// meanwhile.
func TestRunEndsWhileAFunctionRuns(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		a, b := start(t, store), start(t, store)
		started, finish := make(chan struct{}), make(chan struct{})
		end := sync.OnceFunc(func() { close(finish) })
		t.Cleanup(end)
		ended := make(chan error, 1)
		go func() {
			ended <- a.Lock("x").Do(t.Context(), func(ctx context.Context, lease *locktable.Lease) error {
				close(started)
				<-ctx.Done()
				<-finish
				assert.True(t, lease.Valid())
				return nil
			})
		}()
		<-started
		idle := acquire(t, a.Lock("y"))
		go a.stop()
		within(t, ttl, "the lease without a function ends", func() bool { return idle.Context().Err() != nil })
		acquire(t, b.Lock("y")) // not held back by the function
		_, err := b.Lock("x").TryAcquire(soon(t))
		require.ErrorIs(t, err, leasehold.ErrHeld)
		end()
		require.NoError(t, <-ended)
		acquire(t, b.Lock("x"))
		a.stop()
		_, err = a.Lock("z").Acquire(t.Context())
		require.ErrorIs(t, err, locktable.ErrNotRunning)
	})
}

// Arguments that cannot work are refused before any request, with a text that says what to do.
func TestBadInput(t *testing.T) {
	store := newCounting()
	for name, c := range map[string]struct {
		key  string
		opts []locktable.Option
		want string
	}{
		"no key":     {"", nil, "key"},
		"nil option": {key, []locktable.Option{nil}, "Option is nil"},
		"slash":      {key, []locktable.Option{locktable.WithMemberName("a/b")}, "slash"},
		"tiny":       {key, []locktable.Option{locktable.WithMaxSize(5)}, "WithMaxSize: 5"},
		"huge":       {key, []locktable.Option{locktable.WithMaxSize(1 << 30)}, "WithMaxSize"},
		"TTL":        {key, []locktable.Option{locktable.WithTTL(-1)}, "TTL"},
		"poll":       {key, []locktable.Option{locktable.WithPollInterval(0)}, "poll interval 0s is below"},
		"margin":     {key, []locktable.Option{locktable.WithSafetyMargin(0)}, "safety margin 0s is below"},
		"no name":    {key, []locktable.Option{locktable.WithMemberName("")}, "WithMemberName: the name is empty"},
		"too long": {
			key, []locktable.Option{locktable.WithMemberName(strings.Repeat("x", 2000))}, "longer than 1024",
		},
	} {
		_, err := locktable.New(store, c.key, c.opts...)
		require.ErrorContains(t, err, c.want, name)
	}
	_, err := locktable.New(nil, key)
	require.ErrorContains(t, err, "nil")
	tab, err := locktable.New(store, key)
	require.NoError(t, err)
	other, err := locktable.New(store, key)
	require.NoError(t, err)
	require.Regexp(t, `^[-.0-9A-Za-z]+-[0-9]+-[a-z2-7]{12}$`, tab.MemberName(), "machine, process, and what is its own")
	require.NotEqual(t, tab.MemberName(), other.MemberName())
	for want, l := range map[string]*locktable.Lock{
		"is empty":        tab.Lock(""),
		"twice":           tab.All(tab.Lock("a"), tab.Shared("a")),
		"at least 1":      tab.Semaphore("a", 0),
		"has -1 slots":    tab.Semaphore("a", -1).Slots(2),
		"0 slots are not": tab.Semaphore("a", 3).Slots(0),
		"no semaphore":    tab.Lock("a").Slots(2),
		"another":         tab.All(other.Lock("a")),
		"Lock is nil":     tab.All(nil),
		"without a claim": tab.All(),
		"capacity 3":      tab.Semaphore("a", 3).Slots(4),
	} {
		_, err := l.Acquire(t.Context())
		require.ErrorContains(t, err, want)
	}
	require.Empty(t, store.requests)
}

// A lock is no semaphore, and a semaphore no lock, while somebody uses it.
func TestALockIsNoSemaphore(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		a, b := start(t, store), start(t, store)
		lease := acquire(t, a.Semaphore("gpu", 8))
		for _, other := range []*locktable.Lock{b.Lock("gpu"), b.All(b.Lock("free"), b.Shared("gpu"))} {
			_, err := other.Acquire(soon(t))
			require.ErrorIs(t, err, locktable.ErrCapacity)
			require.ErrorContains(t, err, `"gpu" is used as a semaphore now`)
			_, err = other.TryAcquire(soon(t))
			require.ErrorIs(t, err, locktable.ErrCapacity)
		}
		require.NoError(t, lease.Release(t.Context()))
		acquire(t, b.Lock("gpu"))
	})
}

// A deployment that changes the capacity needs no pause: each release of the program counts by its
// own number, and nobody with the larger one passes whoever waits with the smaller.
func TestTheCapacityChangesDuringADeployment(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		before, after := start(t, store), start(t, store)
		first, second := acquire(t, before.Semaphore("gpu", 2)), acquire(t, before.Semaphore("gpu", 2))
		third := acquire(t, after.Semaphore("gpu", 3))
		old := make(chan *locktable.Lease)
		go func() { old <- acquire(t, before.Semaphore("gpu", 2)) }()
		time.Sleep(10 * time.Second)
		_, err := after.Semaphore("gpu", 4).TryAcquire(soon(t))
		require.ErrorIs(t, err, leasehold.ErrHeld, "one with the smaller number waits in front")
		require.NoError(t, first.Release(t.Context()))
		require.NoError(t, second.Release(t.Context()))
		require.NoError(t, (<-old).Release(t.Context()))
		require.NoError(t, third.Release(t.Context()))
	})
}

// TryAcquire refuses by nothing older than the call.
func TestTryAcquireLooksAgain(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		a, b := start(t, store), start(t, store)
		for range 5 {
			lease := acquire(t, a.Lock("x"))
			began := time.Now()
			_, err := b.Lock("x").TryAcquire(soon(t))
			require.ErrorIs(t, err, leasehold.ErrHeld)
			require.Less(t, time.Since(began), time.Second) // it does not wait in line
			require.NoError(t, lease.Release(t.Context()))
			lease, err = b.Lock("x").TryAcquire(soon(t))
			require.NoError(t, err)
			require.NoError(t, lease.Release(t.Context()))
		}
		state := inspect(t, a)
		require.Empty(t, state.Waiting)
	})
}

// A lease that nothing refers to any more is freed.
func TestForgottenLease(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		a := start(t, store)
		func() {
			_, err := a.Lock("x").Acquire(t.Context())
			require.NoError(t, err)
		}()
		kept := acquire(t, a.Lock("y"))
		for range 100 {
			runtime.GC()
			time.Sleep(10 * time.Second)
			state := inspect(t, a)
			if len(state.Held) == 1 {
				require.True(t, kept.Valid())
				return
			}
		}
		t.Error("it is still held")
	})
}

// A member that waits reads the table once per poll interval, whatever it waits for. At rest there
// is one read in a few TTLs.
func TestReads(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		holder, idle := start(t, store), alone(store)
		acquire(t, holder.All(holder.Lock("x"), holder.Lock("y")))
		b := start(t, idle)
		for _, name := range []string{"x", "y", "x"} {
			go func() {
				if lease, err := b.Lock(name).Acquire(t.Context()); err == nil {
					_ = lease.Release(t.Context())
				}
			}()
		}
		time.Sleep(time.Minute)
		waiting, all := idle.count("get"), store.count("get")
		time.Sleep(20 * ttl)
		waiting, all = idle.count("get")-waiting, store.count("get")-all
		require.InDelta(t, 100, waiting, 10)
		require.InDelta(t, 5, all-waiting, 2)
	})
}

// In a crowd, a member is in the way of another again and again. That alone is no reason to look at
// it.
func TestACrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rounds = 200
		store := newCounting()
		crowd := []*member{start(t, store), start(t, store), start(t, store)}
		for _, m := range crowd {
			require.NoError(t, acquire(t, m.Shared("joined")).Release(soon(t)))
		}
		wake := func() {
			for _, m := range crowd {
				m.Wake()
			}
		}
		var all sync.WaitGroup
		began := time.Now()
		for _, m := range crowd {
			all.Go(func() {
				for range rounds {
					assert.NoError(t, m.Lock("x").Do(soon(t), func(context.Context, *locktable.Lease) error {
						time.Sleep(10 * time.Millisecond)
						return nil
					}))
					wake()
				}
			})
		}
		all.Wait()
		took := time.Since(began)
		looks := store.looks()
		t.Logf("%d hand-overs in %v: %v", 3*rounds, took, store.requests)
		require.LessOrEqual(t, looks, 6*(2+int(took/(2*time.Second))), "each looks at each other once per poll "+
			"interval at most")
		require.Less(t, took, 3*rounds*50*time.Millisecond, "a wake-up that was right costs nothing of the allowance")
	})
}

func TestAWakeUpDuringAReadIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newCounting()
		waiting := alone(store)
		slow := teststore.Known(waiting, func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
			obj, err := r.Send(ctx)
			if r.Op == teststore.Get {
				time.Sleep(100 * time.Millisecond) // the reply
			}
			return obj, err
		})
		a, b := start(t, store), start(t, slow)
		held := acquire(t, a.Lock("x"))
		granted := make(chan time.Time, 1)
		go func() {
			acquire(t, b.Lock("x"))
			granted <- time.Now()
		}()
		time.Sleep(time.Second)
		before := waiting.count("get")
		b.Wake()
		time.Sleep(20 * time.Millisecond)
		require.Equal(t, before+1, waiting.count("get"), "the read is under way")
		require.NoError(t, held.Release(soon(t)))
		freed := time.Now()
		b.Wake()
		require.Less(t, (<-granted).Sub(freed), 300*time.Millisecond)
	})
}

// Whatever the number of wake-ups, those that are wrong cause ten reads in a row, and then ten per
// poll interval.
func TestForgedWakeUps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newCounting()
		waiting := alone(store)
		a, b := start(t, store), start(t, waiting)
		acquire(t, a.Lock("x"))
		go func() { _, _ = b.Lock("x").Acquire(t.Context()) }()
		time.Sleep(time.Minute)
		before := waiting.count("get")
		for range 30_000 {
			b.Wake()
			time.Sleep(time.Millisecond)
		}
		reads := waiting.count("get") - before
		require.LessOrEqual(t, reads, 10+30/3*10+30/3*2)
		require.GreaterOrEqual(t, reads, 80)
	})
}
