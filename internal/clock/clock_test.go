package clock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/clock"
)

func TestReadingsAdvanceTogether(t *testing.T) {
	a := clock.System.Now()
	for clock.System.Now().Mono-a.Mono < 5*time.Millisecond {
	}
	b := clock.System.Now()
	require.Greater(t, b.Wall, a.Wall)
	require.InDelta(t, b.Mono-a.Mono, b.Boot-a.Boot, float64(5*time.Millisecond),
		"CLOCK_BOOTTIME runs at the rate of CLOCK_MONOTONIC")
}

func TestElapsedIsTheMostThatTheClocksAllow(t *testing.T) {
	start := clock.Reading{Mono: 10, Wall: 1000, Boot: 20}
	require.Equal(t, time.Duration(7), clock.Reading{Mono: 17, Wall: 1000, Boot: 20}.Elapsed(start))
	require.Equal(t, time.Duration(8), clock.Reading{Mono: 10, Wall: 1008, Boot: 20}.Elapsed(start))
	require.Equal(t, time.Duration(9), clock.Reading{Mono: 10, Wall: 1, Boot: 29}.Elapsed(start),
		"a wall clock set back hides nothing")
	require.Equal(t, time.Duration(17), clock.Reading{Mono: 12, Wall: 1010, Boot: 29}.Elapsed(start),
		"2, plus suspends of 8 and 7, each counted by one clock only")
}

// Three attempts that hang fit between a renewal that is due and the end of the lease.
func TestAttempt(t *testing.T) {
	for _, c := range []struct{ ttl, margin, renew, want time.Duration }{
		{15 * time.Second, 3 * time.Second, 5 * time.Second, 7 * time.Second / 3},
		{30 * time.Second, 10 * time.Second, 10 * time.Second, 10 * time.Second / 3},
		{24 * time.Hour, time.Hour, time.Hour, 10 * time.Second},
		{time.Millisecond, time.Millisecond / 5, time.Millisecond / 3, time.Millisecond},
	} {
		require.Equal(t, c.want, clock.Attempt(c.ttl, c.margin, c.renew))
	}
}

func TestSleepEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		require.ErrorIs(t, clock.System.Sleep(ctx, time.Hour), context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(began))
		require.ErrorIs(t, clock.System.Sleep(ctx, 0), context.DeadlineExceeded,
			"an ended context is an error even if there is nothing to wait for")
		require.NoError(t, clock.System.Sleep(t.Context(), time.Minute))
	})
}
