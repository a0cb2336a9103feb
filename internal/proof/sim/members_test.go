package sim_test

import (
	"sync"
	"testing"

	"github.com/leasehold-go/leasehold/internal/proof/sim"
	"github.com/leasehold-go/leasehold/internal/testkit/testsize"
)

// TestMemberSeeds runs MEMBERS worlds (default 80, or 1,000 at full size) in which members judge
// one another, starting at seed SEED (default 1), and reports the first that fails.
func TestMemberSeeds(t *testing.T) {
	var mu sync.Mutex
	var total sim.Stats
	eachSeed(t, env(t, "MEMBERS", testsize.Pick[uint64](80, 1000)), func(t *testing.T, seed uint64) (report string) {
		cfg := sim.NewMemberConfig(seed)
		out := sim.RunMembers(t, cfg, false)
		if len(out.Violations) > 0 {
			return sim.MemberReport(t, cfg, out)
		}
		mu.Lock()
		defer mu.Unlock()
		total.Add(out.Stats)
		return ""
	})
	t.Logf("%d worlds, %.0f virtual hours, %d requests, %d writes: %v", total.Runs, total.Virtual.Hours(),
		total.Requests, total.Writes, total.Faults)
	if total.Runs < 80 || t.Failed() {
		return
	}
	for _, seen := range []string{
		"over: a later term of its object has begun",
		"over: it was released",
		"over: it was not renewed for its TTL",
		"over: its object has shown another term for its TTL",
		"over: another object has been in its place for its TTL",
		"look: its object cannot be read",
	} {
		if total.Faults[seen] == 0 {
			t.Errorf("no world has %q", seen)
		}
	}
}
