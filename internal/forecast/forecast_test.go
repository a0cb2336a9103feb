package forecast_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/forecast"
)

// Whatever times a record claims, the wait stays within its bounds.
func TestWaitAfterAnyRecords(t *testing.T) {
	const poll = 3 * time.Second
	at := func() time.Time {
		switch rand.IntN(4) {
		case 0:
			return time.Unix(rand.Int64(), 0)
		case 1:
			return time.Unix(-rand.Int64(), 0)
		case 2:
			return time.Time{}
		}
		return time.Unix(1_700_000_000+rand.Int64N(100), rand.Int64N(1e9))
	}
	known := 0
	for range 20_000 {
		var r forecast.Renewals
		now := time.Duration(rand.Int64N(math.MaxInt64 / 2))
		for range 5 {
			before := now
			now += time.Duration(rand.Int64N(int64(10 * time.Second)))
			r.Saw(forecast.Write{Token: 1, At: at(), Earliest: before, Latest: now})
			wait := r.Wait(now, poll, rand.Float64())
			if wait != 0 {
				known++
				require.GreaterOrEqual(t, wait, poll*7/10)
				require.LessOrEqual(t, wait, poll*3/2)
			}
		}
	}
	require.NotZero(t, known)
}
