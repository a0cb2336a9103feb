package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A mutant runs with a change of its code, of its row, or of a test that must catch it.
func TestMutantsOfAChange(t *testing.T) {
	m := mutant{"no margin", []edit{{"lock.go", "a", "b"}}, []string{worlds, "./internal/mutants -run ^TestMutantsOfAChange$"}, 1}
	rows := `	{"no margin", []edit{{"lock.go"`
	t.Chdir("../..")
	require.Empty(t, reason(m, []string{"README.md", "lease.go"}, rows))
	require.Contains(t, reason(m, []string{"lease.go", "lock.go"}, rows), "lock.go has changed")
	require.Equal(t, "it is new", reason(m, nil, `	{"no margin at all", []edit`))
	require.Contains(t, reason(m, []string{"internal/mutants/since_test.go"}, rows), "TestMutantsOfAChange")
	require.Empty(t, reason(m, []string{"internal/mutants/table_test.go"}, rows))
}
