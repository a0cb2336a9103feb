package main

import (
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/testkit/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(main, m) }

func TestUsage(t *testing.T) { exampletest.Usage(t, "failover", run, "-ttl 0s -key=") }

func TestInMemory(t *testing.T) {
	out := exampletest.InBubble(t, run, "-ttl", "10s")
	require.Contains(t, out, "A lease lasts one TTL, 10s,")
	require.Contains(t, out, "Two leaders at once: in 0 of ")
	require.Contains(t, out, "Fencing tokens of the terms: [1 2 3 4].")

	// A takeover counts from the last renewal: it never takes less than a TTL and the allowance for
	// clock drift.
	waits := regexp.MustCompile(
		`LEADS .+: (\d\.\d\d) TTL after \w+'s last renewal, so the lease had expired`).FindAllStringSubmatch(out, -1)
	require.Len(t, waits, 2, "%s", out)
	for _, wait := range waits {
		ttls, err := strconv.ParseFloat(wait[1], 64)
		require.NoError(t, err)
		require.GreaterOrEqual(t, ttls, 1.02, "%s", out)
	}
	require.Regexp(t, `LEADS \(token 4\): \d\.\d\d TTL after \w+'s release`, out)
	require.Contains(t, out, "stops leading: its lease ended 0.80 TTL after the last renewal,")
}

func TestOnServers(t *testing.T) { exampletest.OnServers(t, 1, run, "-ttl", "4s") }
