package locktable_test

import (
	"context"
	"log/slog"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/testkit/testlog"
	"github.com/leasehold-go/leasehold/internal/testkit/testopt"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
	"github.com/leasehold-go/leasehold/locktable"
)

// mute is the network of one process. When it is cut, a request waits for its deadline, as it does
// when its packets are dropped.
func mute(s leasehold.Store) (net leasehold.Store, cut *atomic.Bool) {
	cut = new(atomic.Bool)
	return teststore.Known(s, func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
		if r.Op != teststore.Delete {
			if cut.Load() {
				<-ctx.Done()
			}
			if err := ctx.Err(); err != nil {
				return leasehold.Object{}, err
			}
		}
		return r.Send(ctx)
	}), cut
}

// The log and Check say that a function still runs after the loss of its lease if one does, and
// only then: neither the safety margin of a lease without a function is one, nor a request that is
// under way. The member takes its object anew when the margin is over.
func TestOnlyAFunctionThatStillRunsIsReported(t *testing.T) {
	for name, c := range map[string]struct {
		margin time.Duration
		do     bool
	}{
		"a lease without a function":         {ttl / 5, false},
		"a margin shorter than any request":  {ttl / 100, false},
		"a function that does not return":    {ttl / 5, true},
		"such a function and a short margin": {ttl / 100, true},
	} {
		t.Run(name, func(t *testing.T) {
			for moment := range 8 { // so that a request is under way when the lease is lost
				for _, goesOn := range []bool{false, true} {
					synctest.Test(t, func(t *testing.T) {
						testReports(t, ttl+time.Duration(moment)*ttl/20, c.margin, c.do, goesOn)
					})
				}
			}
		})
	}
}

// testReports loses a term that has begun here, or that goes on from a handle.
func testReports(t *testing.T, after, margin time.Duration, do, goesOn bool) {
	store := newCounting()
	a, log := start(t, store), &testlog.Buffer{}
	net, cut := mute(store)
	acquire(t, a.Lock("other"))
	opts := []locktable.Option{
		locktable.WithSafetyMargin(margin),
		locktable.WithLogger(slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelError}))),
	}
	b := start(t, net, opts...)
	lease := acquire(t, b.Lock("x"))
	if goesOn {
		tab, err := locktable.Resume(net, detach(t, b), opts...)
		require.NoError(t, err)
		b = run(t, tab)
		lease = resumed(t, b)[0]
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _, _ = b.Lock("other").Acquire(ctx) }() // so it reads the table, and looks at a
	end := make(chan struct{})
	if do {
		go func() {
			_ = lease.Do(t.Context(), func(context.Context, *locktable.Lease) error {
				<-end
				return nil
			})
		}()
	}
	time.Sleep(after)
	cut.Store(true)
	<-lease.Context().Done()
	require.ErrorIs(t, context.Cause(lease.Context()), leasehold.ErrLost)
	reported := false
	for lost := time.Now(); time.Since(lost) < ttl; time.Sleep(ttl / 500) {
		synctest.Wait()
		if err := b.Check(nil); err != nil {
			require.ErrorContains(t, err, "still runs")
			reported = true
		}
	}
	close(end)
	cut.Store(false)
	require.Equal(t, do, reported, "by Check")
	if do {
		require.Contains(t, log.String(), "function still runs after lease")
	} else {
		require.Empty(t, log.String())
	}
	acquire(t, b.Lock("x"))
}

// A member whose store answers again at once takes its object anew only when the safety margin of
// the leases without a function is over.
func TestHealingWaitsForTheMargin(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		own := alone(store)
		var barred atomic.Bool // the heartbeat
		a := start(t, own)
		key := key + ".members/" + a.MemberName()
		own.set(func(op, of string) error {
			if barred.Load() && of == key {
				return errCut
			}
			return nil
		}, nil)
		lease := acquire(t, a.Lock("x"))
		barred.Store(true)
		<-lease.Context().Done()
		lost := time.Now()
		time.Sleep(100 * time.Millisecond) // for the last renewal
		puts := own.countOf("put", key)
		barred.Store(false)
		within(t, ttl, "its object is taken", func() bool { return own.countOf("put", key) > puts })
		require.GreaterOrEqual(t, time.Since(lost), ttl/5)
		acquire(t, a.Lock("y"))
	})
}

// Whichever look at the clock shows first that a lease has run out, the member takes a new term
// when the safety margin has passed, and can be ended.
func TestALeaseThatRunsOutAtAnyMoment(t *testing.T) {
	for n, leapt := 0, true; leapt; n++ {
		synctest.Test(t, func(t *testing.T) {
			var left atomic.Int64 // readings until the clock leaps ahead for good, as after a suspend
			left.Store(math.MaxInt64)
			m := start(t, newCounting(), testopt.WithTableClock(testopt.Clock(func(now *clock.Reading) {
				if left.Add(-1) < 0 {
					now.Boot += ttl
				}
			})))
			lease := acquire(t, m.Lock("x"))
			time.Sleep(2 * ttl)
			left.Store(int64(n))
			began := time.Now()
			next, err := m.Lock("y").Acquire(t.Context()) // the committer looks at once
			switch {
			case err != nil: // granted and lost
				require.ErrorIs(t, err, leasehold.ErrLost, "reading %d", n)
			case !lease.Valid() && next.Valid(): // in this order: under the next term
				require.GreaterOrEqual(t, time.Since(began), ttl/5, "reading %d: the margin has not passed", n)
			}
			if leapt = left.Load() < 0; !leapt { // the write needs fewer readings
				require.Greater(t, n, 40)
				return
			}
			time.Sleep(ttl / 2)
			require.False(t, lease.Valid())
			acquire(t, m.Lock("z"))
			require.NoError(t, m.stop())
			require.Less(t, time.Since(began), 3*ttl, "reading %d", n)
		})
	}
}
