// Package observertest runs the same scenarios with each observer of locks: otellock and promlock.
package observertest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/testopt"
	"github.com/leasehold-go/leasehold/locktable"
)

// Key is the key of a lock.
const Key = "locks/reports"

// Process is a program with its own observer and its own connection to the store. Get takes 20 ms,
// PutIfMatch 50 ms.
type Process struct {
	leasehold.Store
	t       *testing.T
	observe func(context.Context, leasehold.Event)
	fail    atomic.Pointer[error]

	// Metrics returns what the observer exports of a key: one sorted line a series, such as
	// "leader: 1" or "lost expired: 0", without the common prefix, the key and "_total".
	Metrics func(key string) []string
}

// NewProcess returns a process whose locks report to observe.
func NewProcess(t *testing.T, s leasehold.Store, observe func(context.Context, leasehold.Event),
	metrics func(key string) []string) *Process {
	return &Process{Store: s, t: t, observe: observe, Metrics: metrics}
}

// Describe says that the store is a known one, which a lock need not try.
func (*Process) Describe() leasehold.StoreInfo { return leasehold.StoreInfo{Conditional: true} }

// Lock returns a lock of the process.
func (p *Process) Lock(key, holder string) *leasehold.Lock {
	p.t.Helper()
	l, err := leasehold.NewLock(p, key, leasehold.WithObserver(p.observe), leasehold.WithHolder(holder))
	require.NoError(p.t, err)
	return l
}

// Elect runs an elector until stop is called.
func (p *Process) Elect(holder string) (stop func()) {
	p.t.Helper()
	e, err := leasehold.NewElector(p.Lock(Key, holder), leasehold.Callbacks{})
	require.NoError(p.t, err)
	ctx, cancel := context.WithCancel(p.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	synctest.Wait()
	return func() {
		p.t.Helper()
		cancel()
		require.NoError(p.t, <-ended)
	}
}

// Cut makes reads and replacements fail with err, until Mend.
func (p *Process) Cut(err error) { p.fail.Store(&err) }

// Mend ends what Cut began.
func (p *Process) Mend() { p.fail.Store(nil) }

func (p *Process) Get(ctx context.Context, key string) (leasehold.Object, error) {
	if err := p.fail.Load(); err != nil {
		return leasehold.Object{}, *err
	}
	time.Sleep(20 * time.Millisecond)
	return p.Store.Get(ctx, key)
}

func (p *Process) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	if err := p.fail.Load(); err != nil {
		return "", *err
	}
	time.Sleep(50 * time.Millisecond)
	return p.Store.PutIfMatch(ctx, key, body, etag)
}

// RunTable has one member use a table, whose events go to observe, until stop.
func RunTable(t *testing.T, s leasehold.Store, observe func(context.Context, locktable.Event)) (
	table *locktable.Table, stop func(),
) {
	t.Helper()
	table, err := locktable.New(s, Key, locktable.WithObserver(observe))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- table.Run(ctx) }()
	return table, func() {
		t.Helper()
		cancel()
		require.NoError(t, <-ended)
	}
}

// Table plays scenes of a table in virtual time: a lease and a candidate that waits, a release, and
// the end of the table by hand. After each one, has looks whether a metric has this value: of the
// table, of "acquisitions", or of refused writes.
func Table(t *testing.T, s leasehold.Store, observe func(context.Context, locktable.Event), has func(string, int)) {
	table, stop := RunTable(t, s, observe)
	a, err := table.All(table.Lock("a"), table.Lock("b")).Acquire(t.Context())
	require.NoError(t, err)
	_, err = table.Lock("a").TryAcquire(t.Context())
	require.ErrorIs(t, err, leasehold.ErrHeld)
	waiting := make(chan error, 1)
	go func() {
		b, err := table.Lock("b").Acquire(t.Context())
		if err == nil {
			<-b.Context().Done() // by hand
		}
		waiting <- err
	}()
	look := func(leases, held, waiting, members, lost int) {
		t.Helper()
		for name, value := range map[string]int{
			"leases": leases, "held": held, "waiting": waiting, "members": members, "lost": lost,
		} {
			has(name, value)
		}
	}
	time.Sleep(time.Second) // a member lets others write first
	look(1, 1, 1, 1, 0)
	require.NoError(t, a.Release(t.Context()))
	time.Sleep(time.Second)
	look(1, 1, 0, 1, 0)
	has("acquisitions", 2)

	obj, err := s.Get(t.Context(), Key)
	require.NoError(t, err)
	has("size", len(obj.Body))
	require.NoError(t, s.DeleteIfMatch(t.Context(), Key, obj.ETag))
	c, err := table.Lock("c").Acquire(t.Context()) // whose write is refused
	require.NoError(t, err)
	require.NoError(t, <-waiting)
	synctest.Wait() // a call may return before the observer has heard of it
	look(1, 1, 0, 1, 1)
	has("refused", 1)
	require.NoError(t, c.Release(t.Context()))
	stop()
	look(0, 0, 0, 0, 1)
}

// Losses has a way to make a process lose the first term of a lock, for each cause of
// [leasehold.EventLost].
var Losses = map[string]func(t *testing.T, p *Process, key string){
	"expired": func(_ *testing.T, p *Process, _ string) {
		p.Cut(errors.New("taken over by a flood")) // the cause must not be guessed from this text
	},
	"deleted": func(t *testing.T, p *Process, key string) {
		o, err := p.Store.Get(t.Context(), key)
		require.NoError(t, err)
		require.NoError(t, p.DeleteIfMatch(t.Context(), key, o.ETag))
	},
	"corrupt": func(t *testing.T, p *Process, key string) {
		o, err := p.Store.Get(t.Context(), key)
		require.NoError(t, err)
		_, err = p.Store.PutIfMatch(t.Context(), key, []byte("not a record"), o.ETag)
		require.NoError(t, err)
	},
	"broken": func(t *testing.T, p *Process, key string) {
		l, err := leasehold.NewLock(p.Store, key)
		require.NoError(t, err)
		require.NoError(t, l.Break(t.Context(), 1))
	},
	"taken_over": func(t *testing.T, p *Process, key string) {
		l, err := leasehold.NewLock(p.Store, key, leasehold.WithManualRenewal(),
			leasehold.WithHolder("the lock object was deleted"))
		require.NoError(t, err)
		require.NoError(t, l.Break(t.Context(), 1))
		_, err = l.TryAcquire(t.Context())
		require.NoError(t, err)
	},
}

// Run runs every scenario in virtual time, with processes that watch returns.
func Run(t *testing.T, watch func(*testing.T, leasehold.Store) *Process) {
	scenario := func(name string, f func(*testing.T, func(leasehold.Store) *Process)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, func(s leasehold.Store) *Process { return watch(t, s) }) })
		})
	}
	scenario("another leader", anotherLeader)
	scenario("overrun", overrun)
	scenario("failed release", failedRelease)
	scenario("two locks of a key", twoLocksOfAKey)
	scenario("late release", lateRelease)
	scenario("many locks", manyLocks)
	for cause, lose := range Losses {
		for _, key := range []string{Key, "not renewed in time", "taken over by/broken by an administrator"} {
			scenario("lost/"+cause+"/"+key, func(t *testing.T, watch func(leasehold.Store) *Process) {
				lost(t, watch(leasehold.NewMemStore()), key, cause, lose)
			})
		}
	}
}

func anotherLeader(t *testing.T, watch func(leasehold.Store) *Process) {
	mem := leasehold.NewMemStore()
	alice, bob := watch(mem), watch(mem)
	require.Empty(t, bob.Metrics(Key))
	stopAlice := alice.Elect("alice")
	time.Sleep(time.Second)
	stopBob := bob.Elect("bob")
	time.Sleep(time.Second)
	require.Subset(t, bob.Metrics(Key), []string{"leader: 0", "token: 1", "transitions: 1"})

	stopAlice()
	time.Sleep(5 * time.Second)
	require.Subset(t, bob.Metrics(Key), []string{"leader: 1", "token: 2", "transitions: 2"})
	require.Subset(t, alice.Metrics(Key), []string{"leader: 0", "token: 1", "transitions: 1"})
	stopBob()
}

func lost(t *testing.T, alice *Process, key, cause string, lose func(*testing.T, *Process, string)) {
	lease, err := alice.Lock(key, "alice").TryAcquire(t.Context())
	require.NoError(t, err)
	want := map[string]int{"expired": 0, "taken_over": 0, "deleted": 0, "broken": 0, "corrupt": 0, "unsafe_store": 0}
	check := func(leader int) {
		t.Helper()
		lines := []string{fmt.Sprint("leader: ", leader)}
		for name, n := range want {
			lines = append(lines, fmt.Sprintf("lost %s: %d", name, n))
		}
		require.Subset(t, alice.Metrics(key), lines)
	}
	check(1) // with counters of 0: a counter that begins at 1 shows no increase
	lose(t, alice, key)
	<-lease.Context().Done()
	runtime.KeepAlive(lease)
	synctest.Wait()
	want[cause]++
	check(0)
}

func overrun(t *testing.T, watch func(leasehold.Store) *Process) {
	alice := watch(leasehold.NewMemStore())
	err := alice.Lock(Key, "alice").Do(t.Context(), func(context.Context, *leasehold.Lease) error {
		require.Contains(t, alice.Metrics(Key), "overruns: 0")
		alice.Cut(fmt.Errorf("%w: a proxy's mistake", leasehold.ErrPreconditionFailed))
		time.Sleep(time.Minute) // does not look at its context
		return nil
	})
	require.ErrorIs(t, err, leasehold.ErrLost)
	require.Subset(t, alice.Metrics(Key), []string{"overruns: 1", "lost expired: 1", "leader: 0"})
}

func failedRelease(t *testing.T, watch func(leasehold.Store) *Process) {
	mem := testopt.NewMemStore(false, true)
	alice, bob := watch(mem), watch(mem)
	lock := alice.Lock(Key, "alice")
	lease, err := lock.TryAcquire(t.Context())
	require.NoError(t, err)
	alice.Cut(errors.New("connection reset"))
	require.Error(t, lease.Release(t.Context()))
	require.Subset(t, alice.Metrics(Key), []string{"leader: 0", "lost expired: 0"},
		"although the record still names it")
	alice.Mend()
	time.Sleep(time.Minute)
	stopBob := bob.Elect("bob")
	time.Sleep(time.Second)
	_, err = lock.TryAcquire(t.Context())
	require.ErrorIs(t, err, leasehold.ErrHeld)
	require.Subset(t, alice.Metrics(Key), []string{"leader: 0", "token: 2", "transitions: 2"})

	stopBob()
	time.Sleep(time.Second)
	lease, err = lock.TryAcquire(t.Context())
	require.NoError(t, err)
	require.Subset(t, alice.Metrics(Key), []string{"leader: 1", "token: 3", "transitions: 3"})
	require.NoError(t, lease.Release(t.Context()))
}

func twoLocksOfAKey(t *testing.T, watch func(leasehold.Store) *Process) {
	alice := watch(leasehold.NewMemStore())
	stop := alice.Elect("alice")
	time.Sleep(time.Second)
	stopTwin := alice.Elect("twin")
	time.Sleep(time.Minute)
	require.Subset(t, alice.Metrics(Key), []string{"leader: 1", "token: 1", "transitions: 1"})
	stop()
	time.Sleep(time.Minute)
	require.Subset(t, alice.Metrics(Key), []string{"leader: 1", "token: 2", "transitions: 2"})
	stopTwin()
	require.Contains(t, alice.Metrics(Key), "leader: 0")
}

// lateRelease has another lock of the process acquire what one releases, before the one has
// reported its release.
func lateRelease(t *testing.T, watch func(leasehold.Store) *Process) {
	alice := watch(leasehold.NewMemStore())
	for _, e := range []leasehold.Event{
		{
			Kind:  leasehold.EventAcquired,
			Token: 1,
		}, {Kind: leasehold.EventAcquired, Token: 2}, {Kind: leasehold.EventReleased, Token: 1},
	} {
		e.Key = Key
		alice.observe(t.Context(), e)
	}
	require.Contains(t, alice.Metrics(Key), "leader: 1")
}

func manyLocks(t *testing.T, watch func(leasehold.Store) *Process) {
	alice := watch(leasehold.NewMemStore())
	var wg sync.WaitGroup
	for i := range 8 {
		key := fmt.Sprint("locks/", i)
		wg.Go(func() {
			err := alice.Lock(key, "alice").Do(t.Context(), func(context.Context, *leasehold.Lease) error {
				time.Sleep(time.Minute)
				assert.Contains(t, alice.Metrics(key), "leader: 1")
				return nil
			})
			assert.NoError(t, err)
		})
	}
	wg.Wait()
	for i := range 8 {
		require.Subset(t, alice.Metrics(fmt.Sprint("locks/", i)), []string{"leader: 0", "transitions: 1"})
	}
}
