package main

import (
	"bytes"
	"regexp"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/examples/internal/exampletest"
	"github.com/leasehold-go/leasehold/internal/testserver"
)

func TestMain(m *testing.M) { exampletest.Main(main, func() int { return testserver.Main(m) }) }

func TestHelp(t *testing.T) { exampletest.Help(t, "sessions") }

func TestDeadEndpoint(t *testing.T) { exampletest.DeadEndpoint(t, "sessions") }

func TestInMemory(t *testing.T) {
	var out bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		require.NoError(t, run(t.Context(), []string{"-ttl", "15s"}, &out), "%s", &out)
	})
	number := func(pattern string) float64 {
		t.Helper()
		found := regexp.MustCompile(pattern).FindAllSubmatch(out.Bytes(), -1)
		require.Len(t, found, 1, "%s in\n%s", pattern, &out)
		n, err := strconv.ParseFloat(string(found[0][1]), 64)
		require.NoError(t, err)
		return n
	}
	require.InDelta(t, 9, number(`ada, which holds all locks, has sent (\d+) PUT and 0 GET`), 1)
	require.InDelta(t, 9, number(`bob, which waits for all locks, has sent (\d+) PUT and `), 1)
	require.Less(t, number(`bob, which waits for all locks, has sent \d+ PUT and (\d+) GET`), 40.0)
	require.EqualValues(t, 1, number(`ada  has stopped, with (\d+) PUT and 0 GET`))

	// After a release within a poll interval; after the loss not before the safety margin is over, and within a TTL and a bit.
	require.LessOrEqual(t, number(`bob  LEADS 1000 locks (\S+) TTL after ada was told to stop`), 0.4)
	ended := number(`bob  has ended all its functions (\S+) TTL after the cut`)
	taken := number(`ada  LEADS 1000 locks (\S+) TTL after the cut`)
	require.LessOrEqual(t, ended, 0.8)
	require.GreaterOrEqual(t, taken, ended+0.2)
	require.LessOrEqual(t, taken, 1.2)

	require.Contains(t, out.String(), "each renewed by itself          2628.00     420.48\n")
	require.Less(t, number(`under sessions, as counted +(\S+) `), 4.0)
	require.Less(t, number(`under sessions, as counted +\S+ +(\S+)\n`), 5.0)
	require.Contains(t, out.String(), "3000 terms of 1000 locks, ")
	require.Contains(t, out.String(), "Two leaders of one lock, or a token that did not rise by one: 0 times.")
}

func TestOnServers(t *testing.T) { exampletest.OnServers(t, 1, run, "-locks", "100") }

func TestBadInput(t *testing.T) {
	for _, args := range [][]string{{"-locks", "0"}, {"-ttl", "0s"}, {"-x"}} {
		require.Error(t, run(t.Context(), args, new(bytes.Buffer)), "%v", args)
	}
}
