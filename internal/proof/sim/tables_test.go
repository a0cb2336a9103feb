package sim_test

import (
	"sync"
	"testing"

	"github.com/leasehold-go/leasehold/internal/proof/sim"
	"github.com/leasehold-go/leasehold/internal/testkit/testsize"
)

// TestTableSeeds runs TABLES worlds (default 60, or 1,000 at full size) in which members share a
// table of locks, starting at seed SEED (default 1), and reports the first that fails.
func TestTableSeeds(t *testing.T) {
	var mu sync.Mutex
	var total sim.Stats
	eachSeed(t, env(t, "TABLES", testsize.Pick[uint64](60, 1000)), func(t *testing.T, seed uint64) (report string) {
		cfg := sim.NewTableConfig(seed)
		out := sim.RunTables(t, cfg, false)
		if len(out.Violations) > 0 {
			return sim.TableReport(t, cfg, out)
		}
		mu.Lock()
		defer mu.Unlock()
		total.Add(out.Stats)
		return ""
	})
	t.Logf("%d worlds, %.0f virtual hours, %d requests, %d leases, %d writes: %v", total.Runs, total.Virtual.Hours(),
		total.Requests, total.Terms, total.Writes, total.Faults)
	checkSituations(t, sim.TableSituations, total.Runs, total.Situations)
}
