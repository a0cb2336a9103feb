package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/place"
)

// takesNoWrites is a store that answers each write with a conflict.
type takesNoWrites struct {
	leasehold.Store
	conflicts atomic.Bool
}

func (s *takesNoWrites) PutIfNoneMatch(ctx context.Context, key string, body []byte) (string, error) {
	if s.conflicts.Load() {
		return "", fmt.Errorf("writing %q: %w", key, leasehold.ErrConflict)
	}
	return s.Store.PutIfNoneMatch(ctx, key, body)
}

func (s *takesNoWrites) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	if s.conflicts.Load() {
		return "", fmt.Errorf("writing %q: %w", key, leasehold.ErrConflict)
	}
	return s.Store.PutIfMatch(ctx, key, body, etag)
}

// A health check of "run" fails when that of "elect" does: also if the store answers, and yet lets
// nobody have the lock.
func TestTheHealthOfRunWhileNobodyCanLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := leasehold.NewMemStore()
		store := &takesNoWrites{Store: mem}
		store.conflicts.Store(true)
		a := &app{log: slog.New(slog.DiscardHandler)}
		waits := func(c *campaign) *leasehold.Lock {
			c.ttl = defaultTTL
			c.waitFlags(pflag.NewFlagSet("", pflag.ContinueOnError))
			lock, err := c.lock(a, place.NewStore(store, nil, nil), "a", nil)
			require.NoError(t, err)
			return lock
		}
		run := new(campaign)
		run.ttl = defaultTTL
		run.waiting = run.newWaiting()
		lock := waits(run)
		elector, err := leasehold.NewElector(waits(new(campaign)), leasehold.Callbacks{})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		got := make(chan *leasehold.Lease, 1)
		go func() { ended <- elector.Run(ctx) }()
		go func() {
			if lease, err := lock.Acquire(ctx); err == nil {
				got <- lease
			}
		}()
		healthy := func(want bool) {
			t.Helper()
			synctest.Wait()
			if want {
				require.NoError(t, elector.Check(nil))
				require.NoError(t, run.waiting.healthy(nil))
				return
			}
			require.Error(t, elector.Check(nil))
			require.ErrorIs(t, run.waiting.healthy(nil), leasehold.ErrConflict)
		}
		time.Sleep(time.Minute)
		healthy(true)
		time.Sleep(2 * time.Minute)
		healthy(false)

		other, err := leasehold.NewLock(mem, "a", leasehold.WithTTL(time.Minute))
		require.NoError(t, err)
		lease, err := other.Acquire(ctx)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		healthy(true)
		lease.Abandon()
		time.Sleep(4 * time.Minute)
		healthy(false)
		mine, err := other.Resume(ctx, lease.Handle()) // the same term goes on, so no other has begun
		require.NoError(t, err)
		time.Sleep(10 * time.Minute)
		healthy(true)

		store.conflicts.Store(false)
		require.NoError(t, mine.Release(ctx))
		time.Sleep(10 * time.Minute)
		healthy(true)
		cancel()
		require.NoError(t, <-ended)
		select {
		case lease := <-got:
			require.NoError(t, lease.Release(context.Background()))
		default:
		}
	})
}
