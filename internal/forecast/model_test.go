package forecast_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/forecast"
)

const (
	ttl   = 15 * time.Second
	renew = ttl / 3
	poll  = ttl / 5
)

// takeover is a model of a holder that crashes after a candidate has watched it for a while. The
// wall clock of the holder is off by any amount. It returns the time from the last renewal to the
// takeover, in TTLs, and how many reads and renewals there were.
func takeover(r *rand.Rand, watch time.Duration) (took float64, reads, renewals int) {
	delay := func() time.Duration { return time.Millisecond + time.Duration(r.Int64N(int64(20*time.Millisecond))) }
	uniform := func(most time.Duration) time.Duration { return time.Duration(r.Int64N(int64(most))) }
	wall := time.Unix(r.Int64N(2_000_000_000), 0)
	start := uniform(4 * renew)
	crash := start + watch + uniform(3*renew)
	sent, landed := []time.Duration{0}, []time.Duration{delay()}
	for next := renew - uniform(renew/2); next < crash; next += renew - uniform(renew/20) {
		sent, landed = append(sent, next), append(landed, next+delay())
	}
	var f forecast.Renewals
	seen, firstSeen, readBefore := -1, time.Duration(0), start
	for now := start; ; {
		before := now
		now += delay()
		latest := max(len(landed)-1, 0)
		for landed[latest] > now && latest > 0 {
			latest--
		}
		now += delay()
		reads++
		if latest != seen {
			f.Saw(forecast.Write{
				Token:    1,
				First:    latest == 0,
				At:       wall.Add(sent[latest]),
				Earliest: readBefore,
				Latest:   now,
			})
			seen, firstSeen = latest, now
		}
		readBefore = before
		if now > crash && seen == len(sent)-1 {
			free := firstSeen + ttl*102/100 + delay() + delay()
			return (free - sent[seen]).Seconds() / ttl.Seconds(), reads, len(sent)
		}
		wait := f.Wait(now, poll, r.Float64())
		if wait == 0 {
			wait = poll*9/10 + uniform(poll/5)
		}
		now += wait
	}
}

// The sooner a candidate reads after each renewal, the sooner it takes over. 1.02 is the least,
// because of the drift allowance.
func TestReadsComeSoonAfterRenewals(t *testing.T) {
	for _, c := range []struct {
		watch       time.Duration
		median, p99 float64
		reads       float64 // per renewal
	}{
		{ttl, 1.045, 1.12, 2.05}, {2 * ttl, 1.04, 1.07, 2.05}, {20 * ttl, 1.04, 1.06, 2.05},
	} {
		t.Run(fmt.Sprint(c.watch), func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			var took []float64
			reads, renewals := 0, 0
			for range 5000 {
				d, n, m := takeover(r, c.watch)
				took, reads, renewals = append(took, d), reads+n, renewals+m
			}
			slices.Sort(took)
			perRenewal := float64(reads) / float64(renewals)
			t.Logf("median %.3f, p99 %.3f, longest %.3f TTL; %.2f reads per renewal", took[len(took)/2],
				took[len(took)*99/100], took[len(took)-1], perRenewal)
			require.LessOrEqual(t, took[len(took)/2], c.median)
			require.LessOrEqual(t, took[len(took)*99/100], c.p99)
			require.LessOrEqual(t, perRenewal, c.reads)
		})
	}
}
