package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/testkit/bubble"
	"github.com/leasehold-go/leasehold/internal/testkit/testopt"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
)

// An outage that ends before the lease does costs no lease, wherever in the TTL it begins.
func TestHoldOutlastsAnOutage(t *testing.T) {
	for _, ttl := range []time.Duration{20 * time.Second, 50 * time.Second, time.Minute, 75 * time.Second,
		89 * time.Second, 2 * time.Minute, 10 * time.Minute, time.Hour} {
		bubble.Run(t, ttl.String(), func(t *testing.T) {
			below := leasehold.NewMemStore()
			lock, err := leasehold.NewLock(below, "a", leasehold.WithManualRenewal(), leasehold.WithTTL(ttl))
			require.NoError(t, err)
			lease, err := lock.Acquire(t.Context())
			require.NoError(t, err)
			began := time.Now()
			from, until := ttl/3-time.Second, ttl-8*time.Second
			store := teststore.New(below, func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
				if at := time.Since(began); at > from && at < until {
					return leasehold.Object{}, errors.New("503 SlowDown")
				}
				return r.Send(ctx)
			})
			h := handle{at: place.Location{Key: "a"}, term: lease.Handle()}
			lease.Abandon()
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			held := make(chan error, 1)
			go func() {
				a := &app{log: slog.New(slog.DiscardHandler)}
				alive := func() bool { return true }
				held <- a.keepRenewing(ctx, h, place.NewStore(store, nil, nil), 24*time.Hour, alive)
			}()
			time.Sleep(ttl)
			r, err := lock.Inspect(t.Context())
			require.NoError(t, err)
			require.True(t, r.ExpiresAt.After(time.Now()), "TTL %v: the store works again for %v", ttl, ttl-until)
			stop()
			require.ErrorIs(t, <-held, context.Canceled)
		})
	}
}

// While the store fails, hold goes on, and says whether the lease has expired. It ends when the
// lock is released.
func TestHoldGoesOnWhileTheStoreFails(t *testing.T) {
	bubble.Run(t, "", func(t *testing.T) {
		below := teststore.New(leasehold.NewMemStore(), nil)
		store := place.NewStore(below, nil, nil)
		lock, err := leasehold.NewLock(store, "a", leasehold.WithManualRenewal(), leasehold.WithTTL(time.Minute))
		require.NoError(t, err)
		lease, err := lock.Acquire(t.Context())
		require.NoError(t, err)
		h := handle{at: place.Location{Key: "a"}, term: lease.Handle()}
		lease.Abandon()
		time.AfterFunc(10*time.Second, func() { below.Fail(errors.New("connection reset"), teststore.Get) })
		time.AfterFunc(2*time.Minute+time.Second, func() { below.Fail(nil) }) // after three renewals of 30 s each
		var released leasehold.Record
		time.AfterFunc(130*time.Second, func() { released, err = h.release(context.Background(), store) })
		var said bytes.Buffer
		a := &app{log: slog.New(slog.NewTextHandler(&said, nil))}
		require.NoError(t, a.keepRenewing(t.Context(), h, store, time.Hour, func() bool { return true }))
		require.NoError(t, err, "nobody else has had it")
		require.True(t, released.Released())
		require.Equal(t, 1, strings.Count(said.String(), `msg="renewal failed" key=a token=1`), said.String())
		require.Equal(t, 2, strings.Count(said.String(), `msg="lease expired and renewal failed"`), said.String())
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

// The lease is valid while hold starts, so an outage at that time is no reason to give it up.
func TestHoldBeginsInAnOutage(t *testing.T) {
	bubble.Run(t, "", func(t *testing.T) {
		h, below, store := anHour(t)
		began := time.Now()
		below.before = func() error {
			if time.Since(began) < 10*time.Minute {
				return errors.New("503 SlowDown")
			}
			return nil
		}
		ctx, stop := context.WithTimeout(t.Context(), 2*time.Hour)
		defer stop()
		var said bytes.Buffer
		a := &app{log: slog.New(slog.NewTextHandler(&said, nil))}
		err := a.keepRenewing(ctx, h, store, 24*time.Hour, func() bool { return true })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Contains(t, said.String(), `level=WARN msg="renewal failed" key=a`)
		lock, err := leasehold.NewLock(below, "a")
		require.NoError(t, err)
		r, err := lock.Inspect(t.Context())
		require.NoError(t, err)
		require.True(t, r.ExpiresAt.After(time.Now()))
	})
	bubble.Run(t, "that lasts", func(t *testing.T) {
		h, below, store := anHour(t)
		outage := errors.New("503 SlowDown")
		below.before = func() error { return outage }
		began := time.Now()
		a := &app{log: slog.New(slog.DiscardHandler)}
		err := a.keepRenewing(t.Context(), h, store, 5*time.Minute, func() bool { return true })
		require.ErrorIs(t, err, outage)
		require.WithinDuration(t, began.Add(5*time.Minute), time.Now(), retryFor)
		began = time.Now()
		err = a.keepRenewing(t.Context(), h, store, time.Hour, func() bool { return time.Since(began) < time.Minute })
		require.NoError(t, err, "as with the end of that process at any other time")
		require.WithinDuration(t, began.Add(time.Minute), time.Now(), retryFor)
	})
}
