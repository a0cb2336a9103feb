package locktable_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/bubble"
	"github.com/leasehold-go/leasehold/internal/testkit/testctx"
	"github.com/leasehold-go/leasehold/internal/testkit/testsize"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
	"github.com/leasehold-go/leasehold/locktable"
)

var errTooMany = errors.New("429 Too Many Requests")

// distant is a store whose requests take a while, and that carries out one write of an object in
// so long, if it has a limit.
func distant(limit time.Duration) leasehold.Store {
	const takes = 100 * time.Millisecond
	var mu sync.Mutex
	wrote := make(map[string]time.Time)
	return teststore.Known(leasehold.NewMemStore(),
		func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
			time.Sleep(takes / 2)
			defer time.Sleep(takes / 2)
			if r.Op == teststore.Update && limit > 0 {
				mu.Lock()
				defer mu.Unlock()
				if time.Since(wrote[r.Key]) < limit {
					return leasehold.Object{}, errTooMany
				}
				wrote[r.Key] = time.Now()
			}
			return r.Send(ctx)
		})
}

// To lose a race is no failure, however many there are: in a crowd that writes all the time, nobody
// loses a lease, and nobody is told that the table cannot be written.
func TestACrowdThatWritesAllTheTime(t *testing.T) {
	for _, c := range []struct {
		name    string
		members int
		limit   time.Duration
	}{
		{"a request takes 100 ms", testsize.Pick(16, 64), 0},
		{"one write a second", testsize.Pick(6, 16), time.Second},
	} {
		bubble.Run(t, c.name, func(t *testing.T) {
			store := distant(c.limit)
			var lost, cycles atomic.Int64
			var quiet []*locktable.Lease
			var members []*member
			ctx, stop := context.WithTimeout(t.Context(), testsize.Pick(4*time.Minute, 10*time.Minute))
			defer stop()
			for i := range c.members {
				m := start(t, store, locktable.WithObserver(func(_ context.Context, e locktable.Event) {
					if e.Kind == locktable.EventLost {
						lost.Add(1)
					}
				}))
				members = append(members, m)
				quiet = append(quiet, acquire(t, m.Lock(fmt.Sprintf("quiet-%d", i))))
			}
			var all sync.WaitGroup
			for i, m := range members {
				all.Go(func() {
					for n := 0; ctx.Err() == nil; n++ {
						lease, err := m.Lock(fmt.Sprintf("busy-%d-%d", i, n)).Acquire(ctx)
						if err != nil {
							require.ErrorIs(t, err, context.DeadlineExceeded)
							return
						}
						time.Sleep(time.Duration(rand.Int64N(int64(time.Second))))
						_ = lease.Release(ctx)
						cycles.Add(1)
					}
				})
			}
			all.Wait()
			require.Zero(t, lost.Load())
			for i, lease := range quiet {
				require.True(t, lease.Valid())
				require.NoError(t, members[i].Check(nil))
			}
			t.Logf("%d members, %d cycles", c.members, cycles.Load())
			require.Greater(t, cycles.Load(), int64(2*c.members))
		})
	}
}

// Members that leave at the same time lose races, which is no reason for an error. Nothing of them
// stays.
func TestManyLeaveAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := distant(0)
		var members []*member
		for i := range 48 {
			m := start(t, store)
			acquire(t, m.Lock(fmt.Sprint(i)))
			members = append(members, m)
		}
		var all sync.WaitGroup
		for _, m := range members {
			all.Go(func() { require.NoError(t, m.stop()) })
		}
		all.Wait()
		for i := range members {
			late := start(t, store)
			lease := acquire(t, late.Lock(fmt.Sprint(i)))
			require.NoError(t, lease.Release(t.Context()))
			break
		}
	})
}

var errUnderWay = fmt.Errorf("%w: a write of the object is under way", leasehold.ErrConflict)

// busy is a store that says 409 to a write of the table while another one is under way.
func busy() leasehold.Store {
	var under atomic.Int32
	return teststore.Known(leasehold.NewMemStore(),
		func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
			if r.Op == teststore.Update && r.Key == key {
				defer under.Add(-1)
				if under.Add(1) > 1 {
					return leasehold.Object{}, errUnderWay
				}
				time.Sleep(50 * time.Millisecond)
			}
			return r.Send(ctx)
		})
}

// Who does not wait for others still gets a lock that is free, though the write is refused because
// another is under way.
func TestTryAcquireMeetsOtherWriters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := busy()
		var members []*member
		for range 6 {
			m := start(t, store)
			acquire(t, m.Lock("warm "+m.MemberName()))
			members = append(members, m)
		}
		var all sync.WaitGroup
		for i, m := range members {
			all.Go(func() {
				lease, err := m.Lock(fmt.Sprint(i)).TryAcquire(soon(t))
				require.NoError(t, err)
				require.NoError(t, lease.Release(t.Context()))
			})
		}
		all.Wait()
	})
}

// stuckLog is a log whose writer blocks.
type stuckLog struct {
	slog.Handler
	until <-chan struct{}
}

func (s stuckLog) Handle(ctx context.Context, r slog.Record) error {
	<-s.until
	return s.Handler.Handle(ctx, r)
}

// A log that blocks keeps no caller waiting, and no context alive. Here the committer is stuck in
// it, and the member's lease runs out.
func TestALogThatBlocks(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		cut := alone(store)
		until := make(chan struct{})
		a := start(t, cut, locktable.WithLogger(slog.New(stuckLog{silent.Handler(), until})))
		a.fails = true
		x, y := acquire(t, a.Lock("x")), acquire(t, a.Lock("y"))
		cut.set(func(string, string) error { return errLost }, nil)
		go func() { _ = x.Release(t.Context()) }() // cannot be written, and the log says so
		time.Sleep(time.Second)
		require.True(t, y.Valid())
		begun := time.Now()
		<-y.Context().Done()
		require.LessOrEqual(t, time.Since(begun), ttl)
		require.False(t, y.Valid())
		ctx := testctx.Within(t, time.Second)
		_, err := a.Lock("z").Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		close(until)
		cut.set(nil, nil)
	})
}
