package leasehold_test

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

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"cmp"
	"math/rand/v2"
	"os"
	"sync/atomic"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/bubble"
	"github.com/leasehold-go/leasehold/internal/testkit/testctx"
	"github.com/leasehold-go/leasehold/internal/testkit/testlog"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// journal records callbacks in the order they come.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

func (j *journal) take() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	lines := j.lines
	j.lines = nil
	return lines
}

// candidate is an elector with its own way to the store, run in the background.
type candidate struct {
	*leasehold.Elector
	store  *faultStore
	cancel context.CancelFunc
	ended  chan error
	log    *journal
}

func newCandidate(t *testing.T, name string, s leasehold.Store, j *journal, opts ...leasehold.Option) *candidate {
	t.Helper()
	c := &candidate{store: newFaultStore(s), ended: make(chan error, 1), log: j}
	e, err := leasehold.NewElector(newLock(t, c.store, append([]leasehold.Option{leasehold.WithHolder(name)},
		opts...)...), leasehold.Callbacks{
		OnStartedLeading: func(ctx context.Context, lease *leasehold.Lease) {
			j.add("%s started %d", name, lease.Token())
			<-ctx.Done()
			j.add("%s returned", name)
		},
		OnStoppedLeading: func(cause error) {
			switch {
			case errors.Is(cause, leasehold.ErrLost):
				j.add("%s stopped: lost", name)
			case errors.Is(cause, leasehold.ErrReleased):
				j.add("%s stopped: resigned", name)
			default:
				j.add("%s stopped: %v", name, cause)
			}
		},
		OnNewLeader: func(r leasehold.Record) { j.add("%s sees %s %d", name, r.Holder, r.Token) },
	})
	require.NoError(t, err)
	c.Elector = e
	return c
}

func (c *candidate) start(t *testing.T) *candidate {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c.cancel = cancel
	go func() { c.ended <- c.Run(ctx) }()
	synctest.Wait()
	return c
}

func (c *candidate) stop(t *testing.T) {
	t.Helper()
	c.cancel()
	require.NoError(t, <-c.ended)
}

// running runs an elector until stop, which returns what Run does.
func running(t *testing.T, e interface {
	Run(ctx context.Context) error
}) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}
}

func TestElectorLeadsAndHandsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, j := leasehold.NewMemStore(), new(journal)
		alice := newCandidate(t, "alice", mem, j).start(t)
		bob := newCandidate(t, "bob", mem, j).start(t)
		require.Equal(t, []string{"alice sees alice 1", "alice started 1", "bob sees alice 1"}, j.take())
		require.True(t, alice.IsLeader())
		require.False(t, bob.IsLeader())
		for _, asked := range []*candidate{alice, bob} {
			leader, ok := asked.Leader()
			require.True(t, ok)
			require.Equal(t, "alice", leader.Holder)
		}

		time.Sleep(time.Hour)
		require.Empty(t, j.take(), "nothing happens while all is well")
		leader, _ := alice.Leader()
		require.Less(t, time.Since(leader.RenewedAt), 6*time.Second, "as it stands in the store")
		alice.stop(t)
		leader, ok := alice.Leader()
		require.True(t, ok)
		require.True(t, leader.Released())
		stopped := time.Now()
		require.False(t, alice.IsLeader())
		require.Equal(t, []string{"alice returned", "alice stopped: context canceled"}, j.take())
		for !bob.IsLeader() {
			time.Sleep(10 * time.Millisecond)
		}
		require.LessOrEqual(t, time.Since(stopped), 3300*time.Millisecond, "one poll interval")
		require.Equal(t, []string{"bob sees bob 2", "bob started 2"}, j.take())
		bob.stop(t)
	})
}

func TestElectorCampaignsAgainAfterALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, j := leasehold.NewMemStore(), new(journal)
		alice := newCandidate(t, "alice", mem, j).start(t)
		bob := newCandidate(t, "bob", mem, j).start(t)
		j.take()
		alice.store.down.Store(true)
		time.Sleep(30 * time.Second)
		require.Equal(t, []string{"alice returned", "alice stopped: lost", "bob sees bob 2", "bob started 2"}, j.take())
		alice.store.down.Store(false)
		time.Sleep(30 * time.Second)
		require.Equal(t, []string{"alice sees bob 2"}, j.take())
		bob.stop(t)
		time.Sleep(5 * time.Second)
		require.Equal(t, []string{"bob returned", "bob stopped: context canceled", "alice sees alice 3",
			"alice started 3"}, j.take())
		alice.stop(t)
	})
}

func TestElectorAloneLeadsAgainAsSoonAsTheStoreIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := new(journal)
		alice := newCandidate(t, "alice", leasehold.NewMemStore(), j).start(t)
		j.take()
		alice.store.down.Store(true)
		time.Sleep(15 * time.Second) // 12 for the lease, and a renewal under way then
		require.Equal(t, []string{"alice returned", "alice stopped: lost"}, j.take())
		alice.store.down.Store(false)
		time.Sleep(6 * time.Second)
		require.Equal(t, []string{"alice sees alice 2", "alice started 2"}, j.take(),
			"its own leftover record does not keep it waiting")
		alice.stop(t)
	})
}

func TestResignLetsAnotherLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, j := leasehold.NewMemStore(), new(journal)
		alice := newCandidate(t, "alice", mem, j).start(t)
		bob := newCandidate(t, "bob", mem, j).start(t)
		require.NoError(t, bob.Resign(t.Context()), "who does not lead has nothing to resign")
		j.take()
		require.NoError(t, alice.Resign(t.Context()))
		require.Equal(t, []string{"alice returned", "alice stopped: resigned"}, j.take())
		time.Sleep(time.Minute)
		require.True(t, bob.IsLeader())
		require.Equal(t, []string{"bob sees bob 2", "bob started 2", "alice sees bob 2"}, j.take())
		bob.stop(t)
		alice.stop(t)
	})
}

// The callback of a term cannot wait for its own end, and need not build a context that has ended.
func TestResignUnderTheContextOfTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e *leasehold.Elector
		resigned := make(chan error, 1)
		e, err := leasehold.NewElector(newLock(t, leasehold.NewMemStore()), leasehold.Callbacks{
			OnStartedLeading: func(ctx context.Context, _ *leasehold.Lease) {
				ctx, cancel := context.WithTimeout(ctx, time.Hour)
				defer cancel()
				resigned <- e.Resign(ctx)
				<-ctx.Done()
			},
		})
		require.NoError(t, err)
		began := time.Now()
		require.NoError(t, e.RunOnce(t.Context()))
		require.NoError(t, <-resigned)
		require.Equal(t, began, time.Now())
	})
}

func TestResignedElectorLeadsAgainIfNobodyElseWants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alice := newCandidate(t, "alice", leasehold.NewMemStore(), new(journal)).start(t)
		require.NoError(t, alice.Resign(t.Context()))
		time.Sleep(5 * time.Second)
		require.False(t, alice.IsLeader(), "cooling off")
		time.Sleep(2 * time.Second)
		require.True(t, alice.IsLeader())
		alice.stop(t)
	})
}

// Found by the simulation, world 331,084.
func TestElectorGoesOnAfterAReleaseThatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alice := newCandidate(t, "alice", leasehold.NewMemStore(), new(journal)).start(t)
		alice.store.down.Store(true)
		require.NoError(t, alice.Resign(t.Context()))
		alice.store.down.Store(false)
		time.Sleep(15 * time.Second)
		require.True(t, alice.IsLeader())
		alice.stop(t)
	})
}

// The lock is never released while the callback runs, however long it takes to notice.
func TestSlowCallbackKeepsTheLockUntilItReturns(t *testing.T) {
	onMemStore(t, func(t *testing.T, mem leasehold.Store) {
		winding := make(chan struct{})
		var order journal
		e, err := leasehold.NewElector(newLock(t, mem), leasehold.Callbacks{
			OnStartedLeading: func(ctx context.Context, lease *leasehold.Lease) {
				<-ctx.Done()
				close(winding)
				time.Sleep(14 * time.Second) // longer than what was left of the lease
				order.add("returned, lease valid: %v", lease.Valid())
			},
			OnStoppedLeading: func(error) {
				rec, err := newLock(t, mem).Inspect(t.Context())
				order.add("stopped, released: %v %v", rec.Released(), err)
			},
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- e.Run(ctx) }()
		synctest.Wait()
		cancel()
		<-winding
		require.False(t, e.IsLeader(), "stepping down")
		time.Sleep(13 * time.Second)
		_, err = newLock(t, mem).TryAcquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrHeld, "renewed while the callback winds down")
		require.NoError(t, <-ended)
		require.Equal(t, []string{"returned, lease valid: true", "stopped, released: true <nil>"}, order.take())
	})
}

func TestCallbackThatNeverReturnsIsReportedAndLosesTheLock(t *testing.T) {
	onMemStore(t, func(t *testing.T, mem leasehold.Store) {
		stuck := make(chan struct{})
		var overruns journal
		var e *leasehold.Elector
		lock := newLock(t, mem,
			onEvent(func(e leasehold.Event) { overruns.add("overrun of %d", e.Token) }, leasehold.EventOverrun))
		e, err := leasehold.NewElector(lock, leasehold.Callbacks{
			OnStartedLeading: func(context.Context, *leasehold.Lease) { <-stuck },
			OnStoppedLeading: func(cause error) { overruns.add("stopped") },
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- e.Run(ctx) }()
		synctest.Wait()
		require.NoError(t, e.Check(nil))
		cancel()
		patience, giveUp := context.WithTimeout(t.Context(), time.Minute)
		defer giveUp()
		next, err := newLock(t, mem).Acquire(patience)
		require.NoError(t, err, "renewals stop after one TTL")
		require.Equal(t, []string{"overrun of 1"}, overruns.take())
		require.ErrorContains(t, e.Check(nil), "OnStartedLeading still runs")
		require.ErrorContains(t, lock.Check(nil), "a function still runs although its lease (token 1) has ended")
		close(stuck)
		require.NoError(t, <-ended)
		require.Equal(t, []string{"stopped"}, overruns.take())
		require.True(t, next.Valid(), "the late end touches nothing")
		require.NoError(t, next.Release(t.Context()))
	})
}

func TestCallbackThatReturnsEarlyLeavesTheElectorLeading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stopped := 0
		e, err := leasehold.NewElector(newLock(t, leasehold.NewMemStore()), leasehold.Callbacks{
			OnStartedLeading: func(context.Context, *leasehold.Lease) {},
			OnStoppedLeading: func(error) { stopped++ },
		})
		require.NoError(t, err)
		stop := running(t, e)
		time.Sleep(time.Hour)
		require.True(t, e.IsLeader())
		require.Zero(t, stopped)
		require.NoError(t, stop())
		require.Equal(t, 1, stopped)
	})
}

func TestPanicInACallbackReleasesTheLockAndGoesOn(t *testing.T) {
	boom := errors.New("boom")
	for name, cb := range map[string]leasehold.Callbacks{
		"started":    {OnStartedLeading: func(context.Context, *leasehold.Lease) { panic(boom) }},
		"new leader": {OnNewLeader: func(leasehold.Record) { panic(boom) }},
		"stopped": {
			OnStartedLeading: func(_ context.Context, lease *leasehold.Lease) {
				_ = lease.Release(context.Background())
			},
			OnStoppedLeading: func(error) { panic(boom) },
		},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			mem := leasehold.NewMemStore()
			e, err := leasehold.NewElector(newLock(t, mem), cb)
			require.NoError(t, err)
			func() {
				defer func() {
					thrown, _ := recover().(error)
					require.ErrorIs(t, thrown, boom)
				}()
				_ = e.Run(t.Context())
			}()
			rec, err := newLock(t, mem).Inspect(t.Context())
			require.NoError(t, err)
			require.True(t, rec.Released())
			require.False(t, e.IsLeader())
		})
	}
}

func TestRunOnceEndsWithItsTerm(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		e, err := leasehold.NewElector(newLock(t, store), leasehold.Callbacks{})
		require.NoError(t, err)
		go func() {
			time.Sleep(time.Minute)
			_ = e.Resign(t.Context())
		}()
		require.NoError(t, e.RunOnce(t.Context()))
		go func() {
			time.Sleep(time.Minute)
			store.down.Store(true)
		}()
		require.ErrorIs(t, e.RunOnce(t.Context()), leasehold.ErrLost)
	})
}

func TestSecondRunAtTheSameTimeIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alice := newCandidate(t, "alice", leasehold.NewMemStore(), new(journal)).start(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour) // or a second Run that is no error would never end
		defer cancel()
		require.ErrorContains(t, alice.Run(ctx), "already running")
		alice.stop(t)
		alice.start(t)
		require.True(t, alice.IsLeader(), "but it can run again")
		alice.stop(t)
	})
}

func TestRunEndsAtOnceOnErrorsThatCannotHeal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		denied := fmt.Errorf("%w: access denied", leasehold.ErrPermanent)
		alice := newCandidate(t, "alice", leasehold.NewMemStore(), new(journal))
		alice.store.next(fault{op: "get", err: denied})
		require.ErrorIs(t, alice.Run(t.Context()), leasehold.ErrPermanent)

		alice.start(t)
		require.True(t, alice.IsLeader())
		for range 100 {
			alice.store.next(fault{op: "put", err: denied})
		}
		time.Sleep(20 * time.Second)
		require.False(t, alice.IsLeader())
		select {
		case err := <-alice.ended:
			t.Fatalf("what has worked once can heal, but Run ended: %v", err)
		default:
		}
		alice.cancel()
		<-alice.ended
	})
}

func TestCheckFailsWhenTheStoreIsSilentForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, j := leasehold.NewMemStore(), new(journal)
		alice := newCandidate(t, "alice", mem, j)
		require.NoError(t, alice.Check(nil), "not running")
		alice.start(t)
		bob := newCandidate(t, "bob", mem, j).start(t)
		waits := newLock(t, bob.store)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _, _ = waits.Acquire(ctx) }()
		time.Sleep(time.Hour)
		require.NoError(t, alice.Check(nil))
		require.NoError(t, bob.Check(nil), "a follower is healthy")
		require.NoError(t, waits.Check(nil), "so is who waits")
		bob.store.down.Store(true)
		time.Sleep(25 * time.Second)
		require.NoError(t, bob.Check(nil))
		require.NoError(t, waits.Check(nil))
		time.Sleep(10 * time.Second)
		require.ErrorContains(t, bob.Check(nil), "no answer from the store")
		require.ErrorContains(t, waits.Check(nil), "no answer from the store")
		bob.store.down.Store(false)
		time.Sleep(20 * time.Second)
		require.NoError(t, bob.Check(nil))
		require.NoError(t, waits.Check(nil))
		cancel()
		bob.stop(t)
		alice.stop(t)
	})
}

// bubbled counts the goroutines of the test's bubble.
func bubbled() int {
	stacks := make([]byte, 1<<20)
	return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "synctest bubble")
}

func TestOneGoroutineWhileLeadingNoneAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := leasehold.NewElector(newLock(t, leasehold.NewMemStore()), leasehold.Callbacks{
			OnStartedLeading: func(ctx context.Context, _ *leasehold.Lease) { <-ctx.Done() },
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		before := bubbled()
		var ended error
		go func() { ended = e.Run(ctx) }()
		for range 10 {
			time.Sleep(time.Minute)
			synctest.Wait()
			require.True(t, e.IsLeader())
			require.Equal(t, 1, bubbled()-before)
		}
		cancel()
		synctest.Wait()
		require.NoError(t, ended)
		require.Equal(t, before, bubbled())
	})
}

func TestManyGoroutinesMayAskAnElector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, j := leasehold.NewMemStore(), new(journal)
		alice := newCandidate(t, "alice", mem, j).start(t)
		bob := newCandidate(t, "bob", mem, j).start(t)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 200 {
					require.False(t, alice.IsLeader() && bob.IsLeader())
					_, _ = alice.Leader()
					_ = bob.Check(nil)
					time.Sleep(100 * time.Millisecond)
				}
			})
		}
		for range 5 {
			time.Sleep(4 * time.Second)
			_ = alice.Resign(t.Context())
			_ = bob.Resign(t.Context())
		}
		wg.Wait()
		alice.stop(t)
		bob.stop(t)
	})
}

func TestLeaderBeforeAnyIsSeen(t *testing.T) {
	e, err := leasehold.NewElector(newLock(t, leasehold.NewMemStore()), leasehold.Callbacks{})
	require.NoError(t, err)
	_, seen := e.Leader()
	require.False(t, seen)
}

func TestRunReturnsTheErrorOfItsLastRelease(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		e, err := leasehold.NewElector(newLock(t, store, leasehold.WithLogger(slog.New(slog.DiscardHandler))),
			leasehold.Callbacks{})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, func() {
			for range 100 {
				store.next(fault{op: "put", err: errInjected})
			}
			cancel()
		})
		require.ErrorIs(t, e.Run(ctx), errInjected)
	})
}

// An elector that has found the lock held knows that its settings are right, so a permanent error
// may pass.
func TestRunGoesOnAfterItHasFoundTheLockHeld(t *testing.T) {
	onMemStore(t, func(t *testing.T, mem leasehold.Store) {
		held := acquire(t, newLock(t, mem))
		store := newFaultStore(mem)
		e, err := leasehold.NewElector(newLock(t, store, leasehold.WithLogger(slog.New(slog.DiscardHandler))),
			leasehold.Callbacks{})
		require.NoError(t, err)
		stop := running(t, e)
		synctest.Wait()
		for range 3 {
			store.next(fault{op: "get", err: fmt.Errorf("%w: access denied", leasehold.ErrPermanent)})
		}
		time.Sleep(30 * time.Second)
		require.NoError(t, held.Release(t.Context()))
		time.Sleep(30 * time.Second)
		require.True(t, e.IsLeader())
		require.NoError(t, stop())
	})
}

func TestLeaderAfterTheOwnTerm(t *testing.T) {
	onMemStore(t, func(t *testing.T, mem leasehold.Store) {
		e, err := leasehold.NewElector(newLock(t, newFaultStore(mem)), leasehold.Callbacks{})
		require.NoError(t, err)
		stop := running(t, e)
		synctest.Wait()
		require.True(t, e.IsLeader())
		require.NoError(t, e.Resign(t.Context()))
		next := acquire(t, newLock(t, mem, leasehold.WithHolder("next")))
		time.Sleep(time.Minute)
		r, seen := e.Leader()
		require.True(t, seen)
		require.Equal(t, "next", r.Holder)
		require.NoError(t, stop())
		require.NoError(t, next.Release(t.Context()))
	})
}

// A callback that returns early cannot leave Lease.Do running under a lease that the elector
// releases.
func TestAnElectorsLeaseRefusesDo(t *testing.T) {
	onMemStore(t, func(t *testing.T, mem leasehold.Store) {
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
		stop := running(t, e)
		time.Sleep(time.Second)
		other := newLock(t, mem)
		otherCtx, end := context.WithCancel(t.Context())
		wg.Go(func() { _ = other.Do(otherCtx, work) })
		time.Sleep(3 * time.Second)
		require.NoError(t, stop())
		time.Sleep(10 * time.Second)
		end()
		wg.Wait()
		require.ErrorContains(t, doErr, "has its function already")
		require.Zero(t, s.overlaps.Load(), "another process's function ran beside one under Lease.Do")
	})
}

// The same with two electors of one Lock.
func TestAnElectorsLeaseRefusesDoBesideASibling(t *testing.T) {
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
		stop := running(t, e)
		time.Sleep(time.Second)
		otherCtx, end := context.WithCancel(t.Context())
		wg.Go(func() { _ = lock.Do(otherCtx, work) })
		time.Sleep(time.Second)
		require.NoError(t, stop())
		time.Sleep(10 * time.Second)
		end()
		wg.Wait()
		require.Zero(t, s.overlaps.Load())
	})
}

// A loss while the function winds down is told by the error of RunOnce.
func TestRunOnceTellsALossWhileWindingDown(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
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

// While a sibling overruns, no request is sent, which is not the fault of the store.
func TestCheckOfAnElectorWhoseSiblingOverruns(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		lock := newLock(t, store, leasehold.WithLogger(slog.New(slog.DiscardHandler)))
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
		stop := running(t, e)
		store.down.Store(true)
		time.Sleep(15 * time.Second)
		store.down.Store(false)
		store.count()
		time.Sleep(50 * time.Second)
		n := len(store.count())
		err = e.Check(nil)
		_ = stop()
		time.Sleep(2 * time.Minute)
		t.Logf("%d requests in 50 s; Check: %v", n, err)
		require.NoError(t, err)
	})
}

// The end of ctx hides no store that has never answered.
func TestRunTellsThatTheStoreNeverAnswered(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		store.down.Store(true)
		e, err := leasehold.NewElector(newLock(t, store), leasehold.Callbacks{})
		require.NoError(t, err)
		ctx := testctx.Within(t, 2*time.Second)
		require.Error(t, e.Run(ctx))
	})
}

// Reads succeed, writes are denied: Run never ends, Check is healthy.
func TestRunWithReadOnlyCredentials(t *testing.T) {
	onMemStore(t, func(t *testing.T, mem leasehold.Store) {
		denied := errors.New("access denied")
		store := teststore.Known(mem, nil)
		store.Fail(errors.Join(leasehold.ErrPermanent, denied), teststore.Create)
		_, err := newLock(t, store, quiet).Acquire(t.Context())
		require.ErrorIs(t, err, denied, "Acquire ends at once")
		e, err := leasehold.NewElector(newLock(t, store, quiet), leasehold.Callbacks{})
		require.NoError(t, err)
		require.ErrorIs(t, e.Run(testctx.Within(t, time.Hour)), denied, "so does Run")
	})
}

// runtime.Goexit in an observer, such as t.FailNow in a test, ends the goroutine of Run.
func TestGoexitInAnObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		e, err := leasehold.NewElector(newLock(t, leasehold.NewMemStore(),
			leasehold.WithObserver(func(_ context.Context, e leasehold.Event) {
				if n++; n == 1 {
					runtime.Goexit()
				}
			})), leasehold.Callbacks{})
		require.NoError(t, err)
		ctx := testctx.Within(t, time.Second)
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

// While OnNewLeader or OnStoppedLeading runs, an elector neither leads nor campaigns, nor sends a
// request. That is no fault of the store. If it lasts for longer than two TTLs, the callback hangs.
func TestCheckDuringACallback(t *testing.T) {
	for _, name := range []string{"OnNewLeader", "OnNewLeader of its own term", "OnStoppedLeading"} {
		bubble.Run(t, name, func(t *testing.T) {
			mem := leasehold.NewMemStore()
			silent := leasehold.WithLogger(slog.New(slog.DiscardHandler))
			hangs := make(chan struct{})
			e, err := leasehold.NewElector(newLock(t, mem, silent), leasehold.Callbacks{
				OnNewLeader: func(leasehold.Record) {
					if name != "OnStoppedLeading" {
						<-hangs
					}
				},
				OnStoppedLeading: func(error) { <-hangs },
			})
			require.NoError(t, err)
			if name == "OnNewLeader" {
				acquire(t, newLock(t, mem))
			}
			stop := running(t, e)
			synctest.Wait()
			if name == "OnStoppedLeading" {
				over, stop := context.WithCancel(t.Context())
				stop()
				_ = e.Resign(over) // only asks
				synctest.Wait()
			}
			time.Sleep(30 * time.Second)
			require.NoError(t, e.Check(nil), "it may take its time")
			time.Sleep(time.Second)
			require.ErrorContains(t, e.Check(nil), strings.Fields(name)[0]+" has not returned for 31s")
			if name == "OnNewLeader of its own term" {
				remove(t, mem) // so that the term is lost
				time.Sleep(10 * time.Second)
				require.ErrorContains(t, e.Check(nil),
					"OnNewLeader still runs although its lease (token 1) has ended")
			}
			close(hangs)
			synctest.Wait()
			require.NoError(t, e.Check(nil))
			require.NoError(t, stop())
		})
	}
}

// A release that hangs is no reason to be content: the elector stands still.
func TestCheckDuringAReleaseThatHangs(t *testing.T) {
	onMemStore(t, func(t *testing.T, mem leasehold.Store) {
		var deaf atomic.Bool // the store answers no write, and does not honour ctx
		hears := make(chan struct{})
		store := teststore.New(mem, func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
			if r.Op == teststore.Update && deaf.Load() {
				<-hears
			}
			return r.Send(ctx)
		})
		e, err := leasehold.NewElector(newLock(t, store), leasehold.Callbacks{})
		require.NoError(t, err)
		stop := running(t, e)
		time.Sleep(time.Minute)
		deaf.Store(true)
		over, end := context.WithCancel(t.Context())
		end()
		_ = e.Resign(over) // only asks
		time.Sleep(20 * time.Second)
		require.NoError(t, e.Check(nil))
		time.Sleep(20 * time.Second)
		require.ErrorContains(t, e.Check(nil), "the request is still under way")
		deaf.Store(false)
		close(hears)
		synctest.Wait()
		require.NoError(t, e.Check(nil))
		require.NoError(t, stop())
	})
}

// logged has f called while slog.Default writes to the result.
func logged(t *testing.T, f func()) string {
	t.Helper()
	var text testlog.Buffer
	testlog.Default(t, &text)
	f()
	return text.Take()
}

func TestFailuresAreTold(t *testing.T) {
	away := errors.New("connection refused")
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		var e *leasehold.Elector
		var errRun, errAcquire, errCheck error
		var checked sync.WaitGroup
		text := logged(t, func() {
			for range 1000 {
				store.next(fault{op: "get", err: away})
			}
			lock := newLock(t, store)
			var err error
			e, err = leasehold.NewElector(lock, leasehold.Callbacks{})
			require.NoError(t, err)
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("the user's own cause"))
			defer cancel()
			checked.Go(func() {
				time.Sleep(31 * time.Second)
				errCheck = e.Check(nil)
			})
			errRun = e.Run(ctx)
			checked.Wait()
			waiting, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			_, errAcquire = lock.Acquire(waiting)
		})
		require.Contains(t, text, "acquiring the lock failed")
		require.Contains(t, text, "connection refused")
		require.ErrorIs(t, errCheck, away)
		require.ErrorIs(t, errRun, away, "the store never answered")
		require.ErrorIs(t, errRun, context.DeadlineExceeded)
		require.ErrorIs(t, errAcquire, away)
		require.Equal(t, `leasehold: lock "locks/test": waiting: context deadline exceeded: connection refused`,
			errAcquire.Error())

		require.Empty(t, logged(t, func() {
			store.next(fault{op: "get", err: away})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := newLock(t, store, leasehold.WithLogger(slog.New(slog.DiscardHandler))).Acquire(ctx)
			require.Error(t, err)
		}), "a nil logger is silent")
		store.mu.Lock()
		store.plan = nil
		store.mu.Unlock()
		require.Empty(t, logged(t, func() {
			require.NoError(t, acquire(t, newLock(t, store)).Release(t.Context()))
		}), "nothing went wrong")
	})
}

func TestTheEndOfItsContextIsNoErrorOfRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, holder := range []bool{false, true} {
			store := leasehold.NewMemStore()
			if holder {
				acquire(t, newLock(t, store, leasehold.WithManualRenewal()))
			}
			e, err := leasehold.NewElector(newLock(t, store), leasehold.Callbacks{})
			require.NoError(t, err)
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(5*time.Second, func() { cancel(errors.New("terminated signal received")) })
			require.NoError(t, e.Run(ctx))
		}
	})
}

func TestRunEndsOnACorruptRecordBeforeTheFirstGoodAnswer(t *testing.T) {
	onMemStore(t, func(t *testing.T, store leasehold.Store) {
		etag, err := store.PutIfNoneMatch(t.Context(), key, []byte(`{"expires_at": -1}`))
		require.NoError(t, err)
		e, err := leasehold.NewElector(newLock(t, store), leasehold.Callbacks{})
		require.NoError(t, err)
		require.ErrorIs(t, e.Run(t.Context()), leasehold.ErrCorruptRecord)

		require.NoError(t, newLock(t, store).Break(t.Context(), 7))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- e.Run(ctx) }()
		time.Sleep(time.Minute)
		require.True(t, e.IsLeader())
		o, err := store.Get(t.Context(), key)
		require.NoError(t, err)
		require.NotEqual(t, etag, o.ETag)
		_, err = store.PutIfMatch(t.Context(), key, []byte("<html>"), o.ETag)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		require.False(t, e.IsLeader())
		require.ErrorIs(t, e.Check(nil), leasehold.ErrCorruptRecord)
		select {
		case err := <-done:
			t.Fatalf("Run ended: %v", err)
		default:
		}
		cancel()
		<-done
	})
}

func TestRunReportsAReleaseOfACutOffAcquisitionThatFailed(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		e, err := leasehold.NewElector(newLock(t, store), leasehold.Callbacks{})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		store.next(fault{op: "put", apply: true, delay: time.Second}, fault{op: "put", err: errInjected})
		time.AfterFunc(500*time.Millisecond, cancel)
		require.ErrorIs(t, e.Run(ctx), errInjected)
	})
}

func TestCheckIsHealthyWhileAnElectorRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := leasehold.NewElector(newLock(t, leasehold.NewMemStore(), leasehold.WithPollInterval(30*time.Second)),
			leasehold.Callbacks{})
		require.NoError(t, err)
		stop := running(t, e)
		synctest.Wait()
		for range 20 { // every other rest is longer than the two poll intervals after which silence is a fault
			require.NoError(t, e.Resign(t.Context()))
			for range 70 {
				time.Sleep(time.Second)
				require.NoError(t, e.Check(nil))
			}
		}
		require.NoError(t, stop())
	})
}

func TestACallbackThatReleasesRestsAsAfterResign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		terms := 0
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		e, err := leasehold.NewElector(newLock(t, leasehold.NewMemStore()), leasehold.Callbacks{
			OnStartedLeading: func(ctx context.Context, lease *leasehold.Lease) {
				if terms++; terms > 100 {
					cancel() // it spins, and no time passes
				}
				_ = lease.Release(ctx)
			},
		})
		require.NoError(t, err)
		require.NoError(t, e.Run(ctx))
		require.InDelta(t, 10, terms, 2, "one term every two poll intervals")
	})
}

// RunOnce in a loop rests as Run does, so that a candidate that waits gets the term.
func TestRunOnceRestsAfterAResign(t *testing.T) {
	onMemStore(t, func(t *testing.T, objects leasehold.Store) {
		var terms atomic.Int64
		var resigned atomic.Pointer[time.Time]
		e, err := leasehold.NewElector(newLock(t, process(objects)), leasehold.Callbacks{
			OnStartedLeading: func(context.Context, *leasehold.Lease) { terms.Add(1) },
			OnStoppedLeading: func(error) { now := time.Now(); resigned.Store(&now) },
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer func() { cancel(); running.Wait() }()
		running.Go(func() {
			for ctx.Err() == nil {
				if err := e.RunOnce(ctx); err != nil {
					t.Error(err)
				}
			}
		})
		synctest.Wait()
		other := newLock(t, process(objects))
		led := make(chan *leasehold.Lease, 1)
		running.Go(func() {
			if lease, err := other.Acquire(ctx); err == nil {
				led <- lease
			}
		})
		synctest.Wait()
		require.NoError(t, e.Resign(ctx))
		select {
		case lease := <-led:
			require.NoError(t, lease.Release(t.Context()))
		case <-time.After(5 * time.Second):
			require.Fail(t, "the candidate does not lead")
		}
		synctest.Wait()
		require.EqualValues(t, 1, terms.Load())
		time.Sleep(time.Minute)
		synctest.Wait()
		require.EqualValues(t, 2, terms.Load(), "once it has rested it leads again")

		require.NoError(t, e.Resign(ctx))
		time.Sleep(5 * time.Second)
		synctest.Wait()
		require.EqualValues(t, 2, terms.Load())
		require.NoError(t, e.Check(nil))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.EqualValues(t, 3, terms.Load())
		require.Less(t, time.Since(*resigned.Load()), 8*time.Second, "two poll intervals")
	})
}

// Work of a former term that resigns, too late, does not end the present one.
func TestResignUnderTheContextOfAFormerTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // guards terms
		var terms []context.Context
		term := func(i int) context.Context {
			mu.Lock()
			defer mu.Unlock()
			require.Greater(t, len(terms), i)
			return terms[i]
		}
		e, err := leasehold.NewElector(newLock(t, leasehold.NewMemStore()), leasehold.Callbacks{
			OnStartedLeading: func(ctx context.Context, _ *leasehold.Lease) {
				mu.Lock()
				defer mu.Unlock()
				terms = append(terms, ctx)
			},
		})
		require.NoError(t, err)
		defer running(t, e)()
		synctest.Wait()
		require.NoError(t, e.Resign(term(0)))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.True(t, e.IsLeader())
		require.NoError(t, e.Resign(term(0)))
		require.NoError(t, e.Resign(context.WithoutCancel(term(0))))
		require.True(t, e.IsLeader())
		require.NoError(t, e.Resign(term(1)))
		require.False(t, e.IsLeader())
	})
}

func TestNeverStoppedWithoutStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started, stopped := 0, 0
		e, err := leasehold.NewElector(newLock(t, leasehold.NewMemStore()), leasehold.Callbacks{
			OnNewLeader:      func(leasehold.Record) { panic("boom") },
			OnStartedLeading: func(context.Context, *leasehold.Lease) { started++ },
			OnStoppedLeading: func(error) { stopped++ },
		})
		require.NoError(t, err)
		require.PanicsWithValue(t, "boom", func() { _ = e.Run(t.Context()) }, "the callback's own value")
		require.Zero(t, started)
		require.Zero(t, stopped)
	})
}

// seconds is for how long to go on: STRESS, or half a second.
func seconds(t *testing.T) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(cmp.Or(os.Getenv("STRESS"), "500ms"))
	require.NoError(t, err)
	return d
}

var errShaky = errors.New("shaky")

// shaky fails, loses replies and delays at random.
func shaky(ctx context.Context, r teststore.Request) (none leasehold.Object, err error) {
	unended := context.WithoutCancel(ctx)
	if rand.IntN(20) == 0 {
		return none, errShaky
	}
	if rand.IntN(60) == 0 { // hangs
		if rand.IntN(2) == 0 {
			_, _ = r.Send(unended)
		}
		<-ctx.Done()
		return none, ctx.Err()
	}
	time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond)
	got, err := r.Send(unended)
	if rand.IntN(20) == 0 {
		return none, errShaky
	}
	return got, err
}

// Everything at once, for the race detector: three Locks, each with electors and goroutines of
// every kind.
func TestStressEverything(t *testing.T) {
	everything(t, seconds(t), true)
}

// The same in virtual time, which makes many more terms.
func TestStressEverythingVirtually(t *testing.T) {
	virtual := 10 * seconds(t)
	synctest.Test(t, func(t *testing.T) { everything(t, virtual, false) })
}

func everything(t *testing.T, length time.Duration, real bool) {
	ctx, cancel := context.WithTimeout(context.Background(), length)
	defer cancel()
	mem := leasehold.NewMemStore()
	var leases sync.Map // *Lease -> Lock number
	var valid, terms, starts, stops atomic.Int64
	took := func(lease *leasehold.Lease) {
		terms.Add(1)
		if !lease.Valid() {
			return
		}
		leases.Range(func(k, _ any) bool {
			if other := k.(*leasehold.Lease); other != lease && other.Valid() && lease.Valid() {
				valid.Add(1)
			}
			return true
		})
		leases.Store(lease, true)
	}
	over := func(lease *leasehold.Lease) { leases.Delete(lease) }
	var wg sync.WaitGroup
	sections := make([]section, 3)
	store := teststore.New(mem, shaky)
	store.Info.MinTTL = time.Millisecond
	for i := range 3 {
		lock, err := leasehold.NewLock(store, key, withClock(newBrokenClock()),
			leasehold.WithLogger(slog.New(slog.DiscardHandler)), leasehold.WithTTL(60*time.Millisecond),
			leasehold.WithPollInterval(5*time.Millisecond),
			leasehold.WithHolder(fmt.Sprint("l", i)),
			leasehold.WithObserver(func(_ context.Context, _ leasehold.Event) {}))
		require.NoError(t, err)
		s := &sections[i]
		work := func(ctx context.Context, lease *leasehold.Lease) error {
			took(lease)
			defer over(lease)
			s.enter()
			defer s.leave()
			switch rand.IntN(6) {
			case 0:
				_ = lease.Commit(ctx, []byte("x"))
			case 1:
				_ = lease.Renew(ctx)
			case 2:
				_ = lease.Release(ctx)
				time.Sleep(time.Millisecond)
			case 3:
				select {
				case <-ctx.Done():
				case <-time.After(100 * time.Millisecond):
				}
				time.Sleep(5 * time.Millisecond)
			case 4:
				_ = lease.Do(ctx, nil)
				_ = lease.Record()
				_ = lease.Deadline()
			}
			time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
			return nil
		}
		for range 2 {
			var e *leasehold.Elector
			e, err = leasehold.NewElector(lock, leasehold.Callbacks{
				OnStartedLeading: func(ctx context.Context, lease *leasehold.Lease) {
					starts.Add(1)
					_ = work(ctx, lease)
					leases.Store(lease, true) // it leads on, for a while
					wg.Go(func() {
						time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond)
						over(lease)
						_ = e.Resign(ctx)
					})
				},
				OnStoppedLeading: func(error) { stops.Add(1) },
				OnNewLeader:      func(leasehold.Record) {},
			})
			require.NoError(t, err)
			wg.Go(func() {
				if err := e.Run(ctx); err != nil && !errors.Is(err, errShaky) &&
					!errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			})
			wg.Go(func() {
				for ctx.Err() == nil {
					_, _ = e.Leader()
					_ = e.IsLeader()
					_ = e.Check(nil)
					_, err := lock.Inspect(ctx)
					if err != nil && !errors.Is(err, errShaky) && !errors.Is(err, leasehold.ErrNotExist) &&
						!errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
					time.Sleep(10 * time.Millisecond)
				}
			})
		}
		wg.Go(func() {
			for ctx.Err() == nil {
				some, stop := context.WithTimeout(ctx, time.Duration(rand.IntN(100))*time.Millisecond)
				err := lock.Do(some, work)
				stop()
				if err != nil && (errors.Is(err, leasehold.ErrPreconditionFailed) ||
					errors.Is(err, leasehold.ErrPermanent)) {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			for ctx.Err() == nil {
				lease, err := lock.TryAcquire(ctx)
				if err != nil {
					if errors.Is(err, leasehold.ErrPreconditionFailed) {
						t.Error(err)
					}
					time.Sleep(2 * time.Millisecond)
					continue
				}
				switch rand.IntN(3) {
				case 0:
					_ = lease.Do(ctx, work)
				case 1:
					took(lease)
					time.Sleep(2 * time.Millisecond)
					over(lease)
					_ = lease.Release(ctx)
				case 2: // dropped, or lost
					took(lease)
					over(lease)
					if !real {
						_ = lease.Release(ctx)
					}
				}
			}
		})
		wg.Go(func() {
			for range lock.Watch(ctx) {
			}
		})
	}
	stop := make(chan struct{})
	go func() {
		for real {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				runtime.GC()
			}
		}
	}()
	wg.Wait()
	close(stop)
	t.Log(terms.Load(), "terms,", starts.Load(), "starts")
	require.Equal(t, starts.Load(), stops.Load())
	require.Zero(t, valid.Load(), "valid leases at once")
	for i := range sections {
		require.Zero(t, sections[i].overlaps.Load(), "functions of one Lock at once")
	}
}

// A Run that was stopped before its first request has no failure, whatever an earlier one had.
func TestAStoppedRunReturnsNoFailureOfAnEarlierOne(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		crash(store)
		e, err := leasehold.NewElector(newLock(t, store),
			leasehold.Callbacks{OnStartedLeading: func(context.Context, *leasehold.Lease) {}})
		require.NoError(t, err)
		ctx := testctx.Within(t, time.Minute)
		require.ErrorIs(t, e.Run(ctx), context.DeadlineExceeded, "the store has never answered")
		require.NoError(t, e.Run(ctx))
	})
}
