package sim_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/proof/sim"
)

func TestSituationThatIsNoLongerReached(t *testing.T) {
	table := sim.Situations{{"frequent", "it happens", 200}, {"rare", "it happens now and then", 20}}
	require.Empty(t, table.Missing(10_000, sim.Reached{200, 20}))
	require.Equal(t, []string{"rare: in 19 of 10000 worlds, not in 20: it happens now and then"},
		table.Missing(10_000, sim.Reached{200, 19}))
	require.Equal(t, []string{"frequent: in 0 of 500 worlds, not in 10: it happens"},
		table.Missing(500, sim.Reached{0, 0}), "by 500 worlds the rare one may be missing")
	require.Empty(t, table.Missing(199, sim.Reached{0, 0}), "chance")
	require.Len(t, table.Missing(2_000, sim.Reached{0, 0}), 2)
}

func TestEachSituationIsNamedAndDue(t *testing.T) {
	for _, table := range []sim.Situations{
		sim.LockSituations, sim.CreateOnlySituations, sim.TableSituations, sim.FencedSituations,
	} {
		names := make(map[string]bool)
		for _, s := range table {
			require.NotEmpty(t, s.What, s.Name)
			require.False(t, names[s.Name], s.Name)
			require.NotEmpty(t, table.Missing(10_000, make(sim.Reached, len(table))), s.Name)
			require.GreaterOrEqual(t, s.Least, 5, s.Name)
			names[s.Name] = true
		}
	}
}
