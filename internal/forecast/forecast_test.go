package forecast_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/forecast"
)

// Whatever times the records of a term claim, the waits stay within their bounds, and few are
// short.
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
	known, most := 0, 0
	for range 20_000 {
		var r forecast.Renewals
		now := time.Duration(rand.Int64N(math.MaxInt64 / 2))
		short := 0
		for range 40 {
			before := now
			now += time.Duration(rand.Int64N(int64(10 * time.Second)))
			r.Saw(forecast.Write{Token: 1, At: at(), Earliest: before, Latest: now})
			wait := r.Wait(now, poll, rand.Float64())
			if wait != 0 {
				known++
				require.GreaterOrEqual(t, wait, poll/50)
				require.LessOrEqual(t, wait, poll*3/2)
				if wait < poll*7/10 {
					short++
				}
			}
		}
		require.LessOrEqual(t, short, 12)
		most = max(most, short)
	}
	require.NotZero(t, known)
	require.NotZero(t, most)
}
