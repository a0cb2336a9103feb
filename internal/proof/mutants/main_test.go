package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A panic by an invariant is a catch of every check, though the process ends before a test is
// named. Any other panic is one of tests alone.
func TestWhatTheOutputOfACheckTells(t *testing.T) {
	const (
		tests  = "./locktable -run ^TestX$"
		breaks = "panic: locktable: table \"t\": an invariant would be broken, nothing was written: so\n\n" +
			"goroutine 7:\n"
		crashes = "panic: runtime error: index out of range [1]\n\ngoroutine 7:\n"
	)
	for _, c := range []struct {
		check, out, found string
		caught, ok        bool
	}{
		{tests, breaks, "an invariant", true, true},
		{worlds, breaks, "an invariant", true, true},
		{search, breaks, "an invariant", true, true},
		{worlds, "sim_test.go:9: after 17 worlds, seed 17", "17", true, true},
		{worlds, "sim_test.go:9: after 3 worlds, seed 3\n1.2s trace: act[2, 5] is not a step of the protocol: " +
			"(valid b) does not hold (code)", "3: act, `(valid b)`", true, true},
		{worlds, "after 3 worlds, seed 3\ntrace: node1 begins token 4, and no reason holds: acquireOwn[1] is not a " +
			"step of the protocol: (owns p v) does not hold (code)", "3: acquire", true, true},
		{tests, "--- FAIL: TestX (0.00s)\n" + crashes, "`TestX`", true, true},
		{tests, crashes, "a panic", true, true},
		{worlds, crashes, "failed otherwise: " + crashes, false, true},
		{search, crashes, "found", false, true},
		{tests, "panic: test timed out after 5m0s\n", "hangs", false, true},
		{tests, "exit status 3", "", false, false},
		{tests, "--- FAIL: TestX (0.00s)\n--- FAIL: TestY (0.00s)\n", "`TestX` +1", true, true},
	} {
		found, caught, ok := judge(c.check, c.out)
		require.Equal(t, c.found, found, c.out)
		require.Equal(t, c.caught, caught, c.out)
		require.Equal(t, c.ok, ok, c.out)
	}
}

// The tests on real servers are those of itest itself. What is below it has a module's dependencies
// and no server.
func TestColumnOfRealServers(t *testing.T) {
	require.Equal(t, "real servers", column("./itest -run ^TestContention$"))
	require.Equal(t, "tests", column("./itest/rules -run ^TestAlertsFire$"))
}
