package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/fakes3"
)

// crowd is what many electors in one process need, each with its own lock and the default TTL.
type crowd struct {
	store      string
	electors   int
	startup    float64 // seconds until all lead
	burst      int     // requests in the busiest tenth of a second of the start
	goroutines float64 // each
	heap       float64 // bytes each
	stacks     float64 // bytes each
	cpu        float64 // µs a second, each
	renewals   int
	late       float64 // seconds by which renewals were late (p99)
	lost       int
}

func measureScale(t *testing.T, n size) (list []crowd) {
	for _, electors := range n.electors {
		mem := leasehold.NewMemStore()
		list = append(list, gather(t, "MemStore", mem, electors, n.watch))
		// The real SDK, with its signing and parsing, and a server in this process, which needs CPU time as well.
		s := leasehold.NewS3Store(fakes3.NewClient(fakes3.Transport{Handler: &fakes3.Server{}}), fakes3.Bucket)
		list = append(list, gather(t, "S3Store, SDK, server in the process", s, electors, n.watch))
	}
	return list
}

func gather(t *testing.T, name string, store leasehold.Store, electors int, watch time.Duration) crowd {
	c := crowd{store: name, electors: electors}
	lock := func(i int, opts ...leasehold.Option) *leasehold.Lock {
		l, err := leasehold.NewLock(store, fmt.Sprint("scale/", i), opts...)
		require.NoError(t, err)
		return l
	}
	for i := range electors { // create every object first, so that its bytes do not count as an elector's
		require.NoError(t, lock(i).Do(t.Context(), func(context.Context, *leasehold.Lease) error { return nil }))
	}
	settle := func() (m runtime.MemStats, goroutines int) {
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m, runtime.NumGoroutine()
	}
	last := make([]time.Time, electors) // time of the last renewal
	before, goroutinesBefore := settle()

	var leading, lost, renewals atomic.Int64
	var mu sync.Mutex
	var late []float64
	busy := make([]int, 6000) // requests in each tenth of a second
	var watching atomic.Bool
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	began := time.Now()
	for i := range electors {
		last[i] = time.Now()
		l := lock(i, leasehold.WithObserver(func(e leasehold.Event) {
			switch e.Kind {
			case leasehold.EventRequest:
				mu.Lock()
				busy[min(int(time.Since(began)/(100*time.Millisecond)), len(busy)-1)]++
				mu.Unlock()
			case leasehold.EventAcquired:
				leading.Add(1)
				last[i] = time.Now()
			case leasehold.EventRenewed:
				now := time.Now()
				if renewals.Add(1); watching.Load() {
					mu.Lock()
					late = append(late, max(now.Sub(last[i])-5*time.Second, 0).Seconds()) // a renewal is due after 4.75 to 5 s
					mu.Unlock()
				}
				last[i] = now
			case leasehold.EventLost:
				lost.Add(1)
			}
		}))
		e, err := leasehold.NewElector(l, leasehold.Callbacks{OnStartedLeading: func(ctx context.Context, _ *leasehold.Lease) { <-ctx.Done() }})
		require.NoError(t, err)
		running.Go(func() { _ = e.Run(ctx) })
	}
	for leading.Load() < int64(electors) {
		require.Less(t, time.Since(began), time.Minute)
		time.Sleep(time.Millisecond)
	}
	c.startup = time.Since(began).Seconds()
	time.Sleep(min(watch, 6*time.Second)) // until each has renewed once
	mu.Lock()
	for _, n := range busy[:int(c.startup*10)+2] {
		c.burst = max(c.burst, n)
	}
	mu.Unlock()
	after, goroutines := settle()
	c.goroutines = float64(goroutines-goroutinesBefore) / float64(electors)
	c.heap = (float64(after.HeapAlloc) - float64(before.HeapAlloc)) / float64(electors)
	c.stacks = (float64(after.StackInuse) - float64(before.StackInuse)) / float64(electors)

	watching.Store(true)
	cpuBefore, from := cpuTime(), time.Now()
	time.Sleep(watch)
	c.cpu = float64((cpuTime() - cpuBefore).Microseconds()) / time.Since(from).Seconds() / float64(electors)
	c.renewals, c.lost = int(renewals.Load()), int(lost.Load())
	mu.Lock()
	if len(late) > 0 {
		c.late = quantile(late, 0.99)
	}
	mu.Unlock()
	cancel()
	running.Wait()
	return c
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
		o.HTTPClient = &http.Client{Transport: &http.Transport{MaxConnsPerHost: 8, MaxIdleConnsPerHost: 8, DialContext: countDials(&conns)}}
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	var leading atomic.Int64
	const electors = 100
	var renewals [electors]atomic.Int64
	for i := range electors {
		lock, err := leasehold.NewLock(leasehold.NewS3Store(p.client, p.bucket), fmt.Sprint("pool/", i), leasehold.WithTTL(30*time.Second),
			leasehold.WithRenewInterval(2*time.Second), leasehold.WithObserver(func(e leasehold.Event) {
				if e.Kind == leasehold.EventRenewed {
					renewals[i].Add(1)
				}
			}))
		require.NoError(t, err)
		e, err := leasehold.NewElector(lock, leasehold.Callbacks{OnStartedLeading: func(ctx context.Context, lease *leasehold.Lease) {
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
