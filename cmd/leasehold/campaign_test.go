package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
	"github.com/leasehold-go/leasehold/locktable"
)

// Who reads the log of a pipeline hears at once, and then every minute, whom it waits for. Without
// waiting there is nothing to hear.
func TestWhomOneWaitsForIsTold(t *testing.T) {
	for name, wait := range map[string]bool{"waits": true, "does not wait": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := place.NewStore(leasehold.NewMemStore(), nil, nil)
				holder, err := leasehold.NewLock(store, "a", leasehold.WithHolder("alice"))
				require.NoError(t, err)
				lease, err := holder.Acquire(t.Context())
				require.NoError(t, err)
				var said bytes.Buffer
				a := &app{log: slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelWarn}))}
				c := &campaign{ttl: defaultTTL, noWait: !wait}
				c.waitFlags(pflag.NewFlagSet("", pflag.ContinueOnError))
				c.noWait = !wait
				lock, err := c.lock(a, store, "a", nil)
				require.NoError(t, err)
				time.AfterFunc(150*time.Second, func() { _ = lease.Release(context.Background()) })
				got, err := acquire(t.Context(), c, a, lock.Key(), lock)
				if !wait {
					require.ErrorIs(t, err, leasehold.ErrHeld)
					require.Empty(t, said.String(), "the error says it")
					require.NoError(t, lease.Release(t.Context()))
					return
				}
				require.NoError(t, err)
				require.NoError(t, got.Release(t.Context()))
				lines := strings.Split(strings.TrimSpace(said.String()), "\n")
				require.Len(t, lines, 3, said.String())
				require.Contains(t, lines[0], `msg="the lock is held by another" key=a holder=alice token=1`)
				require.Contains(t, lines[1], `msg="still waiting for the lock" key=a for=1m0s holder=alice token=1`)
				require.Contains(t, lines[2], "for=2m0s")
			})
		})
	}
}

// While the store fails, hold goes on, and says whether the lease has run out.
func TestHoldGoesOnWhileTheStoreFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below := teststore.New(leasehold.NewMemStore(), nil)
		store := place.NewStore(below, nil, nil)
		lock, err := leasehold.NewLock(store, "a", leasehold.WithManualRenewal(), leasehold.WithTTL(time.Minute))
		require.NoError(t, err)
		lease, err := lock.Acquire(t.Context())
		require.NoError(t, err)
		h := handle{at: place.Location{Key: "a"}, term: lease.Handle()}
		var said bytes.Buffer
		a := &app{log: slog.New(slog.NewTextHandler(&said, nil))}
		below.Fail(errors.New("connection reset"), teststore.Get)
		last := lease.Record()
		for range 3 { // of 30 s each
			got, err := a.holdOnce(t.Context(), store, h, last)
			require.NoError(t, err)
			require.Equal(t, last, got)
		}
		require.Equal(t, 1, strings.Count(said.String(),
			`msg="renewal failed" key=a token=1`), said.String())
		require.Equal(t, 2, strings.Count(said.String(), `msg="lease expired and renewal failed"`),
			said.String())
		below.Fail(nil)
		got, err := a.holdOnce(t.Context(), store, h, last)
		require.NoError(t, err, "nobody else has had it")
		require.True(t, got.ExpiresAt.After(time.Now()))
		_, err = h.release(t.Context(), store)
		require.NoError(t, err)
		_, err = a.holdOnce(t.Context(), store, h, got)
		require.ErrorIs(t, err, leasehold.ErrReleased)
	})
}

// refusing is a lock of a table that crashed members have filled, until they have been watched.
type refusing struct{ why error }

func (l refusing) Acquire(ctx context.Context) (bool, error) {
	<-ctx.Done()
	return false, fmt.Errorf("locktable: waiting: %w: %w", ctx.Err(), l.why)
}

func (refusing) TryAcquire(context.Context) (bool, error) { return true, nil }

// At the end of --wait, crashed members that have filled a table, or used a name as another kind,
// are watched on, as a crashed holder is. If that takes too long, the message says why the table
// has refused, not that the store is silent.
func TestTheEndOfAWaitForATableThatRefuses(t *testing.T) {
	for _, kind := range []error{locktable.ErrFull, locktable.ErrCapacity} {
		synctest.Test(t, func(t *testing.T) {
			why := fmt.Errorf("%w: by whom", kind)
			c := &campaign{wait: time.Second}
			a := &app{log: slog.New(slog.DiscardHandler)}
			got, err := acquire(t.Context(), c, a, "k", refusing{why})
			require.NoError(t, err)
			require.True(t, got)
			err = c.gaveUp(time.Now(), fmt.Errorf("waiting: %w: %w", context.DeadlineExceeded, why))
			require.Equal(t, why, err)
		})
	}
}
