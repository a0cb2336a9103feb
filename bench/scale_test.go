package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/bench/report"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/testkit/fakes3"
	"github.com/leasehold-go/leasehold/internal/testkit/testopt"
)

// stores returns new stores: one that needs nothing, and the real SDK with its signing and parsing,
// with a server in this process.
func stores() map[string]leasehold.Store {
	return map[string]leasehold.Store{
		report.OnMemStore: leasehold.NewMemStore(),
		report.OnSDK: leasehold.NewS3Store(fakes3.NewClient(fakes3.Transport{Handler: &fakes3.Server{}}),
			fakes3.Bucket),
	}
}

func measureScale(t *testing.T, n size) (electors []report.Electors, memory []report.Memory) {
	for _, count := range n.electors {
		for _, on := range []string{report.OnMemStore, report.OnSDK} {
			var weighed [][]report.Memory
			for range max(min(n.weighings, 1000/count), 1) { // the process's own fluctuation matters for few electors
				weighed = append(weighed, append(weighWaiting(t, on, count, n), weighLeaders(t, on, count, n)))
			}
			for state := range weighed[0] {
				memory = append(memory, medianWeight(weighed, state))
			}
			electors = append(electors, watchElectors(t, on, count, n.watch))
		}
	}
	return electors, memory
}

// medianWeight is the weighing of one state whose sum is the median one.
func medianWeight(weighed [][]report.Memory, state int) report.Memory {
	slices.SortFunc(weighed, func(a, b []report.Memory) int { return cmp.Compare(a[state].Bytes(), b[state].Bytes()) })
	return weighed[len(weighed)/2][state]
}

// crowd is many electors in one process, each with its own lock and the default settings.
type crowd struct {
	t       *testing.T
	store   leasehold.Store
	count   int
	leading atomic.Int64
	running sync.WaitGroup
	stop    context.CancelFunc
}

func (c *crowd) lock(i int, opts ...leasehold.Option) *leasehold.Lock {
	l, err := leasehold.NewLock(c.store, fmt.Sprint("scale/", i),
		append(opts, leasehold.WithLogger(slog.New(slog.DiscardHandler)))...)
	require.NoError(c.t, err)
	return l
}

// create makes every object, so that its bytes do not count as an elector's.
func (c *crowd) create() {
	for i := range c.count {
		require.NoError(c.t, c.lock(i).Do(c.t.Context(), func(context.Context, *leasehold.Lease) error { return nil }))
	}
}

func (c *crowd) start(opts func(i int) []leasehold.Option) {
	ctx, stop := context.WithCancel(c.t.Context())
	c.stop = stop
	for i := range c.count {
		e, err := leasehold.NewElector(c.lock(i, opts(i)...),
			leasehold.Callbacks{OnStartedLeading: func(ctx context.Context, _ *leasehold.Lease) {
				c.leading.Add(1)
				<-ctx.Done()
			}})
		require.NoError(c.t, err)
		c.running.Go(func() { _ = e.Run(ctx) })
	}
}

func (c *crowd) end() {
	c.stop()
	c.running.Wait()
}

// untilAllLead waits.
func (c *crowd) untilAllLead() {
	began := time.Now()
	for c.leading.Load() < int64(c.count) {
		require.Less(c.t, time.Since(began), time.Minute)
		time.Sleep(time.Millisecond)
	}
}

// scales weighs what a crowd adds to the process.
type scales struct {
	memory     runtime.MemStats
	goroutines int
}

func weigh() (s scales) {
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&s.memory)
	s.goroutines = runtime.NumGoroutine()
	return s
}

// rest waits, and then until no requests are under way, each of which has a goroutine.
func (c *crowd) rest(before scales, d time.Duration) {
	for end := time.Now().Add(d + 30*time.Second); ; time.Sleep(time.Millisecond) {
		if time.Sleep(d); runtime.NumGoroutine()-before.goroutines <= c.count || time.Now().After(end) {
			return
		}
		d = 0
	}
}

func (s scales) since(before scales, on, state string, count int) report.Memory {
	each := func(after, before uint64) float64 { return (float64(after) - float64(before)) / float64(count) }
	return report.Memory{
		Store: on, Electors: count, State: state, Goroutines: float64(s.goroutines-before.goroutines) / float64(count),
		Heap:   each(s.memory.HeapAlloc, before.memory.HeapAlloc),
		Stacks: each(s.memory.StackInuse, before.memory.StackInuse),
	}
}

func noOptions(int) []leasehold.Option { return nil }

func weighLeaders(t *testing.T, on string, count int, n size) report.Memory {
	c := &crowd{t: t, store: stores()[on], count: count}
	c.create()
	before := weigh()
	c.start(noOptions)
	c.untilAllLead()
	c.rest(before, n.rest) // until each has renewed
	m := weigh().since(before, on, report.Leads, count)
	c.end()
	return m
}

// weighWaiting has the electors find their locks held, and later free.
func weighWaiting(t *testing.T, on string, count int, n size) []report.Memory {
	c := &crowd{t: t, store: stores()[on], count: count}
	var holders []*leasehold.Lease
	for i := range count {
		lease, err := c.lock(i, leasehold.WithTTL(time.Hour), leasehold.WithManualRenewal()).TryAcquire(t.Context())
		require.NoError(t, err)
		holders = append(holders, lease)
	}
	before := weigh()
	c.start(noOptions)
	c.rest(before, n.rest) // until each has read twice
	require.Zero(t, c.leading.Load())
	list := []report.Memory{weigh().since(before, on, report.Waits, count)}
	for i, lease := range holders { // by another Lock, so that the holder's own memory stays as it is
		require.NoError(t, c.lock(i).Break(t.Context(), lease.Token()))
	}
	c.untilAllLead()
	c.rest(before, n.rest)
	list = append(list, weigh().since(before, on, report.HasWaited, count))
	c.end()
	runtime.KeepAlive(holders)
	return list
}

// watchElectors measures how punctual the renewals of a crowd are.
func watchElectors(t *testing.T, on string, count int, watch time.Duration) report.Electors {
	c := &crowd{t: t, store: stores()[on], count: count}
	c.create()
	result := report.Electors{Store: on, Electors: count}
	var lost atomic.Int64
	var watching atomic.Bool
	var mu sync.Mutex
	var begun, landed []float64
	busy := make([]int, 6000) // requests in each tenth of a second
	start := time.Now()
	c.start(func(int) []leasehold.Option {
		punctual := &punctual{Clock: clock.System, renewed: func(begin, end time.Duration) {
			if watching.Load() {
				mu.Lock()
				begun, landed = append(begun, begin.Seconds()), append(landed, end.Seconds())
				mu.Unlock()
			}
		}}
		return []leasehold.Option{testopt.WithClock(punctual),
			leasehold.WithObserver(func(_ context.Context, e leasehold.Event) {
				switch e.Kind {
				case leasehold.EventRequest:
					mu.Lock()
					busy[min(int(time.Since(start)/(100*time.Millisecond)), len(busy)-1)]++
					mu.Unlock()
				case leasehold.EventRenewed:
					punctual.renewals.Add(1)
				case leasehold.EventLost:
					lost.Add(1)
				}
			})}
	})
	c.untilAllLead()
	result.Startup = time.Since(start).Seconds()
	mu.Lock()
	for _, n := range busy[:int(result.Startup*10)+2] {
		result.Burst = max(result.Burst, n)
	}
	mu.Unlock()
	runtime.GC()
	watching.Store(true)
	cpuBefore, from := cpuTime(), time.Now()
	time.Sleep(watch)
	result.CPU = (cpuTime() - cpuBefore).Seconds() / time.Since(from).Seconds() / float64(count)
	watching.Store(false)
	result.Lost = int(lost.Load())
	c.end()
	mu.Lock()
	defer mu.Unlock()
	result.Renewals, result.Begun, result.Landed = len(begun), report.NewSample(begun), report.NewSample(landed)
	return result
}

// punctual is a lock's clock that compares the times for which timers were set with the times at
// which they fired.
type punctual struct {
	clock.Clock
	renewals atomic.Int64
	renewed  func(begun, landed time.Duration) // after the renewal was due
}

type punctualTimer struct {
	clock.Timer
	c   *punctual
	due atomic.Int64 // by the monotonic clock
}

func (c *punctual) AfterFunc(d time.Duration, f func()) clock.Timer {
	timer := &punctualTimer{c: c}
	timer.due.Store(int64(c.Now().Mono + d))
	timer.Timer = c.Clock.AfterFunc(d, func() {
		due, fired, before := time.Duration(timer.due.Load()), c.Now().Mono, c.renewals.Load()
		f()
		if c.renewals.Load() > before { // it was the timer of a renewal
			c.renewed(fired-due, c.Now().Mono-due)
		}
	})
	return timer
}

func (t *punctualTimer) Reset(d time.Duration) bool {
	t.due.Store(int64(t.c.Now().Mono + d))
	return t.Timer.Reset(d)
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestElectorsShareAPool runs many electors on one client whose transport opens few connections.
func TestElectorsShareAPool(t *testing.T) {
	var conns atomic.Int64
	p := newPlaceOnMinIO(t, func(o *s3.Options) {
		o.HTTPClient = &http.Client{Transport: &http.Transport{
			MaxConnsPerHost:     8,
			MaxIdleConnsPerHost: 8,
			DialContext:         countDials(&conns),
		}}
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	var leading atomic.Int64
	const electors = 100
	var renewals [electors]atomic.Int64
	for i := range electors {
		lock, err := leasehold.NewLock(leasehold.NewS3Store(p.client, p.bucket), fmt.Sprint("pool/", i),
			leasehold.WithTTL(30*time.Second),
			leasehold.WithRenewInterval(2*time.Second),
			leasehold.WithObserver(func(_ context.Context, e leasehold.Event) {
				if e.Kind == leasehold.EventRenewed {
					renewals[i].Add(1)
				}
			}))
		require.NoError(t, err)
		e, err := leasehold.NewElector(lock, leasehold.Callbacks{OnStartedLeading: func(ctx context.Context,
			lease *leasehold.Lease) {
			leading.Add(1)
			<-ctx.Done()
			if errors.Is(context.Cause(lease.Context()), leasehold.ErrLost) {
				t.Error(context.Cause(lease.Context()))
			}
		}})
		require.NoError(t, err)
		running.Go(func() { _ = e.Run(ctx) })
	}
	require.Eventually(t, func() bool { // 50 renewals a second, each over one of 8 connections
		for i := range renewals {
			if renewals[i].Load() < 3 {
				return false
			}
		}
		return true
	}, time.Minute, 10*time.Millisecond)
	cancel()
	running.Wait()
	require.EqualValues(t, electors, leading.Load(), "no elector may lead twice")
	require.LessOrEqual(t, conns.Load(), int64(16), "8 connections at a time, plus a few that were closed")
}
