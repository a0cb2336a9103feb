package explore_test

import (
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/proof/explore"
)

// The two rates are as far apart as the options of the explored locks allow. Without the drift
// allowance or the safety margin, two leases would overlap.
const slow, fast = 0.9852, 1.0148

// raceEnabled reports whether the race detector runs. It makes the search five times slower and
// finds nothing more in it.
var raceEnabled bool

// TestAll walks every path of these small worlds. The long ones take minutes and run only if
// EXPLORE is "all".
func TestAll(t *testing.T) {
	for _, c := range []struct {
		name string
		explore.Config
		long bool
	}{
		{"no faults", explore.Config{}, false},
		{"no faults, ages reported", explore.Config{ReportsAge: true}, false},
		{"a suspend", explore.Config{Suspends: 1}, false},
		{"a suspend, ages reported", explore.Config{Suspends: 1, ReportsAge: true}, false},
		{"a fault", explore.Config{Faults: 1}, false},
		{"an abandoned lease", explore.Config{Abandons: 1}, false},
		{"an offer", explore.Config{Offers: 1}, false},
		{"an offer and a fault", explore.Config{Offers: 1, Faults: 1}, true},
		{"two offers, two terms each", explore.Config{Terms: 2, Offers: 2}, true},
		{"an offer and a suspend", explore.Config{Offers: 1, Suspends: 1}, true},
		{"a fault and an abandoned lease", explore.Config{Faults: 1, Abandons: 1}, true},
		{"a fault, ages reported", explore.Config{Faults: 1, ReportsAge: true}, true},
		{"a crash", explore.Config{Crashes: 1}, true},
		{"two terms each", explore.Config{Terms: 2}, true},
		{"a fault and a suspend", explore.Config{Faults: 1, Suspends: 1}, true},
		{"three clients", explore.Config{Rates: []float64{slow, fast, 1}}, true},
	} {
		if c.Terms == 0 {
			c.Terms = 1
		}
		if c.Rates == nil {
			c.Rates = []float64{slow, fast}
		}
		walk(t, c.name, c.long, c.Faults+c.Suspends+c.Offers > 0, func(t *testing.T, workers int) explore.Result {
			return explore.Search(t, c.Config, workers)
		})
	}
}

// TestTables walks every path of these small worlds of two members that share a table.
func TestTables(t *testing.T) {
	one, two := [][]string{{"x"}, {"x+y"}}, [][]string{{"x", "y"}, {"x+y"}}
	readers := [][]string{{"x/s", "y"}, {"x/s+y"}}
	for _, c := range []struct {
		name string
		explore.TableConfig
		long bool
	}{
		{"no faults", explore.TableConfig{Wants: two}, false},
		{"no faults, a lock shared", explore.TableConfig{Wants: readers}, false},
		{"a suspend", explore.TableConfig{Wants: one, Suspends: 1}, false},
		{"a crash", explore.TableConfig{Wants: one, Crashes: 1}, false},
		{"a fault", explore.TableConfig{Wants: one, Faults: 1}, false},
		{"a suspend, two requests", explore.TableConfig{Wants: two, Suspends: 1}, true},
		{"a crash, two requests", explore.TableConfig{Wants: two, Crashes: 1}, true},
		{"a fault, two requests", explore.TableConfig{Wants: two, Faults: 1}, true},
	} {
		walk(t, c.name, c.long, c.Faults+c.Crashes+c.Suspends > 0, func(t *testing.T, workers int) explore.Result {
			return explore.SearchTables(t, c.TableConfig, workers)
		})
	}
}

// walk walks every path of one small world.
func walk(t *testing.T, name string, long, faults bool, search func(*testing.T, int) explore.Result) {
	t.Run(name, func(t *testing.T) {
		if long && os.Getenv("EXPLORE") != "all" {
			t.Skip("takes minutes: set EXPLORE=all to run it")
		}
		if faults && raceEnabled {
			t.Skip("takes minutes under the race detector: run it without")
		}
		began := time.Now()
		r := search(t, runtime.GOMAXPROCS(0))
		t.Logf("%d paths, %d of them left out, %d states, in %v", r.Paths, r.Unrepeated, r.States,
			time.Since(began).Round(time.Millisecond))
		if r.Violation != "" {
			t.Fatalf("%s\n%s", r.Violation, strings.Join(r.Trace, "\n"))
		}
		require.NotZero(t, r.Terms, "nobody ever led or held a lock")
		require.LessOrEqual(t, r.Unrepeated*100, r.Paths, "paths that could not be walked a second time")
		require.Zero(t, r.Cut, "some paths were longer than the limit of steps")
	})
}
