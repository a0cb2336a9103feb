package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/bench/report"
	"github.com/leasehold-go/leasehold/internal/testkit/fakes3"
)

// count counts the requests of leasehold and the allocations of a renewal, against a server in this
// process.
func count(t *testing.T) (c report.Counts) {
	sent := new(atomic.Int64)
	server := &fakes3.Server{RandomETags: true}
	process := func() leasehold.Store { // a client of its own, so it has not tried the server yet
		return leasehold.NewS3Store(fakes3.NewClient(counted{fakes3.Transport{Handler: server}, sent}), fakes3.Bucket)
	}
	lock := func(s leasehold.Store) *leasehold.Lock {
		quiet := leasehold.WithLogger(slog.New(slog.DiscardHandler))
		l, err := leasehold.NewLock(s, "ours", leasehold.WithManualRenewal(), quiet)
		require.NoError(t, err)
		return l
	}
	requests := func(do func() error) int {
		before := sent.Load()
		require.NoError(t, do())
		return int(sent.Load() - before)
	}
	ctx := context.WithoutCancel(t.Context()) // as that of a renewal in the background
	var lease *leasehold.Lease
	acquire := func(l *leasehold.Lock) func() error {
		return func() (err error) { lease, err = l.TryAcquire(ctx); return err }
	}
	release := func() error { return lease.Release(ctx) }
	require.NoError(t, acquire(lock(process()))())
	require.NoError(t, release()) // the lock is there
	store := process()
	c.First = requests(acquire(lock(store)))
	require.NoError(t, release())
	known := lock(store)
	c.Acquire = requests(acquire(known))
	c.Release = requests(release)
	c.Warm = requests(acquire(known))
	c.Renew = requests(func() error { return lease.Renew(ctx) })
	c.Poll = requests(func() error {
		_, err := lock(process()).TryAcquire(ctx)
		return held(err)
	})
	c.Trial = requests(func() error {
		waiting, cancel := context.WithTimeout(ctx, time.Second) // which is less than a poll interval
		defer cancel()
		_, err := lock(process()).Acquire(waiting)
		return held(err)
	}) - c.Poll
	c.RenewAllocs, c.PutAllocs = countAllocs(ctx, t, store, lease)
	require.NoError(t, release())
	return c
}

// held is nil if err says that the lock is held.
func held(err error) error {
	if errors.Is(err, leasehold.ErrHeld) {
		return nil
	}
	return fmt.Errorf("it is not held: %w", err)
}

// countAllocs counts the allocations of a renewal, and of the bare PUT.
func countAllocs(ctx context.Context, t *testing.T, store leasehold.Store,
	lease *leasehold.Lease) (renew, put float64) {
	etag, err := store.PutIfNoneMatch(ctx, "raw", make([]byte, 250))
	require.NoError(t, err)
	renew = testing.AllocsPerRun(500, func() { require.NoError(t, lease.Renew(ctx)) })
	put = testing.AllocsPerRun(500, func() {
		etag, err = store.PutIfMatch(ctx, "raw", make([]byte, 250), etag)
		require.NoError(t, err)
	})
	return renew, put
}

// The page states what is counted here. BENCH_ONLY=counts writes it there.
func TestCountsAreThoseOfThePage(t *testing.T) {
	d, err := report.Read("../docs/performance.json")
	require.NoError(t, err)
	now := count(t)
	if !raceEnabled { // which allocates
		require.InDelta(t, d.Counts.RenewAllocs-d.Counts.PutAllocs, now.RenewAllocs-now.PutAllocs, 1)
	}
	now.RenewAllocs, now.PutAllocs = d.Counts.RenewAllocs, d.Counts.PutAllocs
	require.Equal(t, d.Counts, now)
}

// raceEnabled reports whether the race detector runs.
var raceEnabled bool
