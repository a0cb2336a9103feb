package locktable_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/locktable"
)

// inUse is how many bytes of the heap are reachable.
func inUse() float64 {
	var m runtime.MemStats
	for range 3 { // so that what has a cleanup is gone, too
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// A held lease takes less than 512 bytes of the heap, and a request that waits less than 1 KiB, the
// rows of both in the table included. What is the
// caller's does not count: goroutines that wait, names, and the object in the store.
func TestMemory(t *testing.T) {
	const locks, mostHeld, mostWaiting = 10_000, 512, 1024
	store := newCounting()
	store.instant = true
	a, b := start(t, store), start(t, store)
	acquire(t, b.Lock("joined"))
	acquire(t, a.Lock("joined too"))
	names := make([]string, locks)
	for i := range names {
		names[i] = fmt.Sprintf("tenant-%05d", i)
	}
	ctx, cancel := context.WithCancel(t.Context())
	// weigh is what a lock takes of the heap once all are asked for, by goroutines that were there
	// before, and ready says that it is so.
	weigh := func(m *member, ready func() bool) (each float64, leases []*locktable.Lease, wait func()) {
		begin := make(chan struct{})
		leases = make([]*locktable.Lease, locks)
		var all, there sync.WaitGroup
		there.Add(locks)
		for i := range locks {
			all.Go(func() {
				there.Done()
				<-begin
				leases[i], _ = m.Lock(names[i]).Acquire(ctx)
			})
		}
		there.Wait()
		before, size := inUse(), inspect(t, a).Size
		close(begin)
		for !ready() {
			time.Sleep(time.Millisecond)
		}
		after := inUse()
		for range 60 { // a version of the table may be on its way through the committer
			time.Sleep(10 * time.Millisecond)
			after = min(after, inUse())
		}
		return (after - before - float64(inspect(t, a).Size-size)) / locks, leases, all.Wait
	}
	held, leases, wait := weigh(a, func() bool { return len(inspect(t, a).Held) == locks+2 })
	wait()
	waits, _, wait := weigh(b, func() bool { return len(inspect(t, a).Waiting) == locks })
	t.Logf("a held lease takes %.0f bytes, a request that waits %.0f", held, waits)
	require.Less(t, held, float64(mostHeld))
	require.Less(t, waits, float64(mostWaiting))
	require.Greater(t, held, 50.0, "something was measured")
	require.Greater(t, waits, 50.0, "something was measured")
	cancel()
	wait()
	runtime.KeepAlive(leases)
}
