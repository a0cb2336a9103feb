package main

import (
	"bytes"
	"regexp"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/examples/internal/exampletest"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
)

func TestMain(m *testing.M) { exampletest.Main(main, func() int { return testserver.Main(m) }) }

func TestHelp(t *testing.T) { exampletest.Help(t, "failover") }

func TestDeadEndpoint(t *testing.T) { exampletest.DeadEndpoint(t, "failover") }

func TestInMemory(t *testing.T) {
	var out bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		require.NoError(t, run(t.Context(), []string{"-ttl", "10s"}, &out), "%s", &out)
	})
	require.Contains(t, out.String(), "A lease lasts one TTL, 10s,")
	require.Contains(t, out.String(), "Two leaders at once: in 0 of ")
	require.Contains(t, out.String(), "Fencing tokens of the terms: [1 2 3 4].")

	// A takeover counts from the last renewal: it never takes less than a TTL and the allowance for
	// clock drift.
	waits := regexp.MustCompile(
		`LEADS .+: (\d\.\d\d) TTL after \w+'s last renewal, so the lease had expired`).FindAllStringSubmatch(
		out.String(), -1)
	require.Len(t, waits, 2, "%s", &out)
	for _, wait := range waits {
		ttls, err := strconv.ParseFloat(wait[1], 64)
		require.NoError(t, err)
		require.GreaterOrEqual(t, ttls, 1.02, "%s", &out)
	}
	require.Regexp(t, `LEADS \(token 4\): \d\.\d\d TTL after \w+'s release`, out.String())
	require.Contains(t, out.String(), "stops leading: its lease ended 0.80 TTL after the last renewal,")
}

func TestOnServers(t *testing.T) { exampletest.OnServers(t, 1, run, "-ttl", "4s") }

func TestBadInput(t *testing.T) {
	for _, args := range [][]string{{"-ttl", "0s", "-key", ""}, {"-x"}} {
		require.Error(t, run(t.Context(), args, new(bytes.Buffer)), "%v", args)
	}
}
