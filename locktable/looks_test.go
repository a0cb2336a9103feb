package locktable_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/testkit/testopt"
	"github.com/leasehold-go/leasehold/locktable"
)

// The log names a member whose clock is ahead, once. Nobody's health depends on it.
func TestTheLogTellsWhoseClockIsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasehold.NewMemStore()
		wrong := testopt.Clock(func(now *clock.Reading) { now.Wall += time.Minute })
		var log bytes.Buffer
		ahead := start(t, store, testopt.WithTableClock(wrong))
		right := start(t, store, locktable.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		lease := acquire(t, ahead.Lock("x"))
		acquire(t, right.Lock("y"))
		time.Sleep(20 * ttl)
		require.NoError(t, right.Check(nil))
		require.NoError(t, right.stop())
		require.Equal(t, 1, strings.Count(log.String(), "the clock of a member is ahead"), log.String())
		require.Contains(t, log.String(), "member="+ahead.MemberName())
		require.True(t, lease.Valid())
	})
}

// A full table makes a member look at all the others, for as long as it takes to suspect the dead.
func TestLooksAtAFullTableEnd(t *testing.T) {
	onStore(t, func(t *testing.T, store *counting) {
		size := locktable.WithMaxSize(4 << 10)
		holder, asks := start(t, store, size), start(t, store, size)
		fill(t, holder, 200)
		_, err := asks.Lock("another-" + wide(200, 0)).Acquire(t.Context())
		require.ErrorIs(t, err, locktable.ErrFull)
		looks := func(ttls time.Duration) int {
			store.forget()
			time.Sleep(ttls * ttl)
			return store.countOf("get", key+".members/"+holder.MemberName())
		}
		require.Greater(t, looks(2), 3)
		require.Less(t, looks(10), 10)
	})
}
