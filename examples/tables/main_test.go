package main

import (
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/testkit/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(main, m) }

func TestUsage(t *testing.T) { exampletest.Usage(t, "tables", run, "-locks 1", "-ttl 0s") }

func TestInMemory(t *testing.T) {
	out := exampletest.InBubble(t, run, "-ttl", "15s")
	numbers := func(pattern string) (ns []float64) {
		t.Helper()
		found := regexp.MustCompile(pattern).FindAllStringSubmatch(out, -1)
		require.Len(t, found, 1, "%s in\n%s", pattern, out)
		for _, s := range found[0][1:] {
			n, err := strconv.ParseFloat(s, 64)
			require.NoError(t, err)
			ns = append(ns, n)
		}
		return ns
	}
	taken := numbers(`ada  HOLDS 10000 locks after \d+ms, with (\d+) PUT and (\d+) GET\n`)
	require.LessOrEqual(t, taken[0], 3.0)
	require.LessOrEqual(t, taken[1], 3.0)
	require.LessOrEqual(t, numbers(`10000 requests that hold and 10000 that wait, in (\d+) KB\n`)[0], 600.0)
	holding := numbers(`ada  has sent (\d+) PUT and (\d+) GET in 3 TTLs, while it held\n`)
	require.InDelta(t, 9, holding[0], 1)
	require.LessOrEqual(t, holding[1], 4.0)
	waiting := numbers(`bob  has sent (\d+) PUT and (\d+) GET in 3 TTLs, while it waited\n`)
	require.InDelta(t, 9, waiting[0], 1)
	require.Less(t, waiting[1], 50.0)

	// After the cut not before the safety margin is over, and within a TTL and a bit; after a
	// hand-over within a poll interval.
	ended := numbers(`ada  has ended all its functions (\S+) TTL after the cut`)[0]
	led := numbers(`bob and cyd HOLD all 10000 locks (\S+) TTL after the cut\n`)[0]
	require.LessOrEqual(t, ended, 0.8)
	require.GreaterOrEqual(t, led, ended+0.2)
	require.LessOrEqual(t, led, 1.2)
	require.LessOrEqual(t, numbers(`bob  has HANDED OVER 5000 locks with (\d+) PUT of the table`)[0], 2.0)
	require.LessOrEqual(t, numbers(`cyd  HOLDS all 10000 locks (\S+) TTL after bob was told to stop`)[0], 0.4)
	require.Contains(t, out, "TTL, at most 3 at once\n")
	require.Contains(t, out, "25000 leases of 10000 locks, and 12 leases of the semaphore.\n")
}

func TestOnServers(t *testing.T) { exampletest.OnServers(t, 1, run, "-locks", "300") }
