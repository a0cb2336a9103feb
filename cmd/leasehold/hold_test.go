package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/testkit/bubble"
	"github.com/leasehold-go/leasehold/internal/testkit/testopt"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
)

var errOutage = errors.New("503 SlowDown")

// outage fails all requests between these times from now on.
func outage(from, until time.Duration) teststore.Do {
	began := time.Now()
	return func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
		if at := time.Since(began); at >= from && at < until {
			return leasehold.Object{}, errOutage
		}
		return r.Send(ctx)
	}
}

func always() bool { return true }

// An outage that ends before the lease does costs no lease, wherever in the TTL it begins, even
// while hold starts.
func TestHoldOutlastsAnOutage(t *testing.T) {
	for _, ttl := range []time.Duration{20 * time.Second, 50 * time.Second, time.Minute, 75 * time.Second,
		89 * time.Second, 2 * time.Minute, 10 * time.Minute, time.Hour} {
		for _, from := range []time.Duration{0, ttl/3 - time.Second} {
			bubble.Run(t, fmt.Sprintf("of a TTL of %v, from %v", ttl, from), func(t *testing.T) {
				h, below, store := term(t, ttl, outage(from, ttl-8*time.Second))
				ctx, stop := context.WithTimeout(t.Context(), ttl)
				defer stop()
				var said bytes.Buffer
				a := &app{log: slog.New(slog.NewTextHandler(&said, nil))}
				require.ErrorIs(t, a.keepRenewing(ctx, h, store, 24*time.Hour, always), context.DeadlineExceeded)
				lock, err := leasehold.NewLock(below, "a")
				require.NoError(t, err)
				r, err := lock.Inspect(t.Context())
				require.NoError(t, err)
				require.True(t, r.ExpiresAt.After(time.Now()))
				if ttl > time.Minute {
					require.Contains(t, said.String(), `level=WARN msg="renewal failed" key=a`)
				}
			})
		}
	}
}

// While the store fails, hold goes on, and says whether the lease has expired. It ends when the
// lock is released.
func TestHoldGoesOnWhileTheStoreFails(t *testing.T) {
	bubble.Run(t, "", func(t *testing.T) {
		h, _, store := term(t, time.Minute, outage(10*time.Second, 121*time.Second)) // three renewals of 30 s each
		var released leasehold.Record
		var err error
		time.AfterFunc(130*time.Second, func() { released, err = h.release(context.Background(), store) })
		var said bytes.Buffer
		a := &app{log: slog.New(slog.NewTextHandler(&said, nil))}
		require.NoError(t, a.keepRenewing(t.Context(), h, store, time.Hour, always))
		require.NoError(t, err, "nobody else has had it")
		require.True(t, released.Released())
		require.Equal(t, 1, strings.Count(said.String(), `msg="renewal failed" key=a token=1`), said.String())
		require.Equal(t, 2, strings.Count(said.String(), `msg="lease expired and renewal failed"`), said.String())
	})
}

// An outage that lasts ends hold no later than --for and --while do.
func TestHoldEndsInAnOutage(t *testing.T) {
	bubble.Run(t, "", func(t *testing.T) {
		h, _, store := term(t, time.Hour, outage(0, 24*time.Hour))
		began := time.Now()
		a := &app{log: slog.New(slog.DiscardHandler)}
		require.ErrorIs(t, a.keepRenewing(t.Context(), h, store, 5*time.Minute, always), errOutage)
		require.WithinDuration(t, began.Add(5*time.Minute), time.Now(), retryFor)
		began = time.Now()
		err := a.keepRenewing(t.Context(), h, store, time.Hour, func() bool { return time.Since(began) < time.Minute })
		require.NoError(t, err, "as with the end of that process at any other time")
		require.WithinDuration(t, began.Add(time.Minute), time.Now(), retryFor)
	})
}

// A suspend of the machine does not delay the next renewal. Of the clocks that may count it, one is
// enough.
func TestHoldRenewsAfterASuspend(t *testing.T) {
	for name, suspended := range map[string]func(*clock.Reading, time.Duration){
		"by CLOCK_BOOTTIME": func(now *clock.Reading, d time.Duration) { now.Boot += d },
		"by the wall clock": func(now *clock.Reading, d time.Duration) { now.Wall += d },
	} {
		bubble.Run(t, name, func(t *testing.T) {
			began := time.Now()
			c := testopt.Clock(func(now *clock.Reading) {
				if time.Since(began) >= time.Minute {
					suspended(now, 50*time.Minute)
				}
			})
			require.NoError(t, pause(t.Context(), c, 20*time.Minute, func() bool { return true }))
			require.LessOrEqual(t, time.Since(began), 61*time.Second)
		})
	}
}
