package guard

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// If leasehold is stopped between the look at the lease and that at the guard's clock, the guard
// must not get the time in which it was stopped.
func TestTheGuardsTimeCountsFromBeforeTheLeaseIsAsked(t *testing.T) {
	deadline := time.Now().Add(time.Hour)
	got := onGuardsClock(func() time.Duration {
		left := time.Until(deadline)
		time.Sleep(50 * time.Millisecond) // it is stopped
		return left
	})
	left := time.Until(deadline)
	latest := bootTime() + int64(left) // the clock is read later: never too early
	require.LessOrEqual(t, got, latest)
	require.Greater(t, got, latest-int64(time.Minute))
}
