package sim_test

import (
	"testing"

	"github.com/leasehold-go/leasehold/internal/proof/sim"
	"github.com/leasehold-go/leasehold/internal/testkit/testsize"
)

// TestFencedSeeds runs FENCED worlds of fenced writes (default 50, or 200 at full size), from
// number SEED on, and shows the first that goes wrong.
func TestFencedSeeds(t *testing.T) {
	total := worlds(t, env(t, "FENCED", testsize.Pick[uint64](50, 200)), "fenced writes",
		func(seed uint64) sim.Scenario { return sim.NewFencedConfig(seed) })
	if total.Fenced == 0 || total.Events["a write of unknown outcome"] == 0 || total.Events["a step counted"] == 0 {
		t.Errorf("too tame: %+v", total)
	}
}
