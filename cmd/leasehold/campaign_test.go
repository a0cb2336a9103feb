package main

import (
	"bytes"
	"context"
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
