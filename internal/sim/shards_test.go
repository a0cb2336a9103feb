package sim_test

import (
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/sim"
)

// TestShardSeeds runs SHARDS worlds in which members divide shards (default SEEDS, or else 100), starting at seed SEED (default 1), and
// reports the first that fails.
func TestShardSeeds(t *testing.T) {
	var mu sync.Mutex
	var total sim.Stats
	began, told := time.Now(), time.Now()
	eachSeed(t, env(t, "SHARDS", env(t, "SEEDS", 100)), func(t *testing.T, seed uint64) (report string) {
		cfg := sim.NewShardConfig(seed)
		out := sim.RunShards(t, cfg, false)
		if len(out.Violations) > 0 {
			return sim.ShardReport(t, cfg, out)
		}
		mu.Lock()
		defer mu.Unlock()
		total.Add(out.Stats)
		if time.Since(told) > time.Minute {
			told = time.Now()
			t.Logf("%d worlds in %v", total.Runs, time.Since(began).Round(time.Second))
		}
		return ""
	})
	t.Logf("%d worlds, %.0f virtual hours, in %v: %d requests, %d writes, %d owners of shards; %v", total.Runs, total.Virtual.Hours(),
		time.Since(began).Round(time.Millisecond), total.Requests, total.Writes, total.Terms, total.Faults)
}
