package explore_test

import (
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/explore"
)

// The two rates are as far apart as the options of the explored locks allow. Without the drift allowance or the safety margin,
// two leases would overlap.
const slow, fast = 0.9852, 1.0148

// TestSessions walks every path of small worlds with sessions. The long ones run only if EXPLORE is "all".
func TestSessions(t *testing.T) {
	one, both := [][]string{{"1"}, {"1"}}, [][]string{{"12"}, {"12"}}
	for _, c := range []struct {
		name string
		explore.Sessions
		long bool
	}{
		{"no faults", explore.Sessions{Plans: one, Commit: true}, false},
		{"no faults, two locks", explore.Sessions{Plans: both, Narrow: true}, false},
		{"a fault of A's session", explore.Sessions{Plans: one, Faults: 1, Narrow: true}, false},
		{"A's session is deleted", explore.Sessions{Plans: one, Deletions: 1, Narrow: true}, false},
		{"A crashes", explore.Sessions{Plans: one, Crashes: 1, Narrow: true}, false},
		{"two locks, A crashes", explore.Sessions{Plans: both, Crashes: 1, Narrow: true}, false},
		{"A is suspended", explore.Sessions{Plans: one, Suspends: 1, Narrow: true}, false},
		{"two locks, a fault of A's session", explore.Sessions{Plans: both, Faults: 1, Narrow: true}, true},
		{"two locks, A is suspended", explore.Sessions{Plans: both, Suspends: 1, Narrow: true}, true},
		{"two locks from the beginning", explore.Sessions{Plans: both, Commit: true}, true},
		{"a session is deleted", explore.Sessions{Plans: one, Deletions: 1}, true},
		{"a slow request", explore.Sessions{Plans: one, Delays: 1}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.Faults+c.Suspends+c.Crashes+c.Deletions > 0 && raceEnabled {
				t.Skip("takes minutes under the race detector: run it without")
			}
			c.Rates, c.Poll, c.Steps = []float64{slow, fast}, 50*time.Second, 200
			run(t, c.Sessions, c.long)
		})
	}
}

// run searches, and skips what takes long unless it is wanted.
func run(t *testing.T, worlds explore.Worlds, long bool) {
	if long && os.Getenv("EXPLORE") != "all" {
		t.Skip("takes minutes: set EXPLORE=all to run it")
	}
	began := time.Now()
	r := explore.Search(t, worlds, runtime.GOMAXPROCS(0))
	t.Logf("%d paths, %d states, in %v", r.Paths, r.States, time.Since(began).Round(time.Millisecond))
	if r.Violation != "" {
		t.Fatalf("%s\n%s", r.Violation, strings.Join(r.Trace, "\n"))
	}
	require.NotZero(t, r.Terms, "no client ever led")
	require.Zero(t, r.Cut, "some paths were longer than the limit of steps")
}

// raceEnabled reports whether the race detector runs. It makes the search five times slower and finds nothing more in it.
var raceEnabled bool

// TestAll walks every path of these small worlds. The long ones take minutes and run only if EXPLORE is "all".
func TestAll(t *testing.T) {
	two := []float64{slow, fast}
	const steps = 80 // longer than any path
	for _, c := range []struct {
		name string
		explore.Config
		long bool
	}{
		{"no faults", explore.Config{Rates: two, Terms: 1, Steps: steps}, false},
		{"no faults, ages reported", explore.Config{Rates: two, Terms: 1, Steps: steps, ReportsAge: true}, false},
		{"a suspend", explore.Config{Rates: two, Terms: 1, Steps: steps, Suspends: 1}, false},
		{"a suspend, ages reported", explore.Config{Rates: two, Terms: 1, Steps: steps, Suspends: 1, ReportsAge: true}, false},
		{"a fault", explore.Config{Rates: two, Terms: 1, Steps: steps, Faults: 1}, false},
		{"a fault, ages reported", explore.Config{Rates: two, Terms: 1, Steps: steps, Faults: 1, ReportsAge: true}, true},
		{"a crash", explore.Config{Rates: two, Terms: 1, Steps: steps, Crashes: 1}, true},
		{"two terms each", explore.Config{Rates: two, Terms: 2, Steps: steps}, true},
		{"a fault and a suspend", explore.Config{Rates: two, Terms: 1, Steps: steps, Faults: 1, Suspends: 1}, true},
		{"three clients", explore.Config{Rates: []float64{slow, fast, 1}, Terms: 1, Steps: steps}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.Faults > 0 && raceEnabled {
				t.Skip("takes minutes under the race detector: run it without")
			}
			run(t, c.Config, c.long)
		})
	}
}
