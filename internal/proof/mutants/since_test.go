package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A mutant runs with a change of its code, of its row, or of a test that must catch it.
func TestMutantsOfAChange(t *testing.T) {
	m := mutant{
		name: "no margin", promise: 1, edits: []edit{{"lock.go", "a", "b"}},
		by: []check{{worlds, "12"}, {"./internal/proof/mutants -run ^TestMutantsOfAChange$", ""}},
	}
	t.Chdir("../../..")
	require.Empty(t, reason(m, []string{"README.md", "lease.go"}, m))
	require.Contains(t, reason(m, []string{"lease.go", "lock.go"}, m), "lock.go has changed")
	require.Equal(t, "it is new", reason(m, nil, mutant{}))
	require.Contains(t, reason(m, []string{"internal/proof/mutants/since_test.go"}, m), "TestMutantsOfAChange")
	require.Empty(t, reason(m, []string{"internal/proof/mutants/table_test.go"}, m))

	found := m
	found.by = []check{{worlds, "13"}, {m.by[1].name, "a panic"}}
	require.Empty(t, reason(m, nil, found), "it found something else")
	for _, change := range []func(*mutant){
		func(m *mutant) { m.promise = 2 },
		func(m *mutant) { m.by = m.by[:1] },
		func(m *mutant) { m.edits = []edit{{"lock.go", "a", "c"}} },
	} {
		other := m
		change(&other)
		require.Equal(t, "its row has changed", reason(m, nil, other))
	}
}
