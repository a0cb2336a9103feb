package locktable_test

import (
	"bytes"
	"context"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/testkit/testopt"
	"github.com/leasehold-go/leasehold/locktable"
)

// mute is the network of one process. When it is cut, a request waits for its deadline, as it does
// when its packets are dropped.
type mute struct {
	leasehold.Store
	cut atomic.Bool
}

func (m *mute) Describe() leasehold.StoreInfo { return leasehold.Describe(m.Store) }

func (m *mute) wait(ctx context.Context) error {
	if m.cut.Load() {
		<-ctx.Done()
	}
	return ctx.Err()
}

func (m *mute) Get(ctx context.Context, k string) (leasehold.Object, error) {
	if err := m.wait(ctx); err != nil {
		return leasehold.Object{}, err
	}
	return m.Store.Get(ctx, k)
}

func (m *mute) PutIfMatch(ctx context.Context, k string, body []byte, etag string) (string, error) {
	if err := m.wait(ctx); err != nil {
		return "", err
	}
	return m.Store.PutIfMatch(ctx, k, body, etag)
}

func (m *mute) PutIfNoneMatch(ctx context.Context, k string, body []byte) (string, error) {
	if err := m.wait(ctx); err != nil {
		return "", err
	}
	return m.Store.PutIfNoneMatch(ctx, k, body)
}

// logOf is a log of records of level ERROR.
type logOf struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logOf) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logOf) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
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
	a, net, log := start(t, store), &mute{Store: store}, &logOf{}
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
	net.cut.Store(true)
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
	net.cut.Store(false)
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

// leaping is a clock that leaps ahead for good at one of its readings, as after a suspend.
type leaping struct {
	clock.Clock
	left atomic.Int64 // readings until then; none if it is negative
}

func (c *leaping) Now() clock.Reading {
	r := c.Clock.Now()
	if c.left.Load() >= 0 && c.left.Add(-1) < 0 {
		c.left.Store(math.MinInt64)
	}
	if c.left.Load() == math.MinInt64 {
		r.Boot += ttl
	}
	return r
}

// Whichever look at the clock shows first that a lease has run out, the member takes a new term
// when the safety margin has passed, and can be ended.
func TestALeaseThatRunsOutAtAnyMoment(t *testing.T) {
	for n, leapt := 0, true; leapt; n++ {
		synctest.Test(t, func(t *testing.T) {
			c := &leaping{Clock: clock.System}
			c.left.Store(-1)
			m := start(t, newCounting(), testopt.WithTableClock(c))
			lease := acquire(t, m.Lock("x"))
			time.Sleep(2 * ttl)
			c.left.Store(int64(n))
			began := time.Now()
			next, err := m.Lock("y").Acquire(t.Context()) // the committer looks at once
			switch {
			case err != nil: // granted and lost
				require.ErrorIs(t, err, leasehold.ErrLost, "reading %d", n)
			case !lease.Valid() && next.Valid(): // in this order: under the next term
				require.GreaterOrEqual(t, time.Since(began), ttl/5, "reading %d: the margin has not passed", n)
			}
			if leapt = c.left.Load() < 0; !leapt { // the write needs fewer readings
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
