package sim_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/proof/sim"
)

func TestSituationThatIsNoLongerReached(t *testing.T) {
	table := sim.Situations{{"frequent", "it happens", 200}, {"rare", "it happens now and then", 20}}
	in := func(frequent, rare int) map[string]int { return map[string]int{"frequent": frequent, "rare": rare} }
	require.Empty(t, table.Missing(10_000, in(200, 20)))
	require.Equal(t, []string{"rare: in 19 of 10000 worlds, not in 20: it happens now and then"},
		table.Missing(10_000, in(200, 19)))
	require.Equal(t, []string{"frequent: in 0 of 500 worlds, not in 10: it happens"},
		table.Missing(500, nil), "by 500 worlds the rare one may be missing")
	require.Empty(t, table.Missing(199, nil), "chance")
	require.Len(t, table.Missing(2_000, nil), 2)
}

func TestEachSituationIsNamedAndDue(t *testing.T) {
	require.Len(t, sim.SituationsOf, 4)
	for kind, table := range sim.SituationsOf {
		require.NotEmpty(t, table, kind)
		for _, s := range table {
			require.NotEmpty(t, s.Name, s.What)
			require.NotEmpty(t, s.What, s.Name)
			require.GreaterOrEqual(t, s.Least, 5, s.Name)
		}
	}
}
