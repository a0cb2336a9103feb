package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// A mutant runs with a change of its code, of its row, or of a test that must catch it.
func TestMutantsOfAChange(t *testing.T) {
	by := []string{worlds, "./internal/proof/mutants -run ^TestMutantsOfAChange$"}
	m := mutant{"no margin", []edit{{"lock.go", "a", "b"}}, by, 1}
	t.Chdir("../../..")
	require.Empty(t, reason(m, []string{"README.md", "lease.go"}, "row", "row"))
	require.Contains(t, reason(m, []string{"lease.go", "lock.go"}, "row", "row"), "lock.go has changed")
	require.Equal(t, "it is new", reason(m, nil, "", "row"))
	require.Equal(t, "its row has changed", reason(m, nil, "row", "another row"))
	require.Contains(t, reason(m, []string{"internal/proof/mutants/since_test.go"}, "row", "row"),
		"TestMutantsOfAChange")
	require.Empty(t, reason(m, []string{"internal/proof/mutants/table_test.go"}, "row", "row"))
}

// A row that is broken into other lines says the same. Each row of the table is read.
func TestRowsOfTheTable(t *testing.T) {
	read := func(row string) map[string]string {
		all, err := rows([]byte("package main\nvar mutants = []mutant{\n" + row + "\n}\n"))
		require.NoError(t, err)
		return all
	}
	one := read(`{"no margin", []edit{{"lock.go", "a", "b"}, {"x.go", "c", "d"}}, []string{worlds}, 1},
	{"another", []edit{{"x", "a", "b"}}, []string{worlds}, 0},`)
	require.Len(t, one, 2)
	lines := read("{\n\"no margin\",\n[]edit{{\"lock.go\", `a`, `b`},\n{\"x.go\", `c`, " +
		"`d`}},\n[]string{worlds},\n1,\n},")
	require.Equal(t, one["no margin"], lines["no margin"])
	for _, other := range []string{
		`{"no margin", []edit{{"lock.go", "a", "b"}, {"x.go", "c", "e"}}, []string{worlds}, 1},`,
		`{"no margin", []edit{{"lock.go", "a", "b"}, {"x.go", "c", "d"}}, []string{search}, 1},`,
		`{"no margin", []edit{{"lock.go", "a", "b"}, {"x.go", "c", "d"}}, []string{worlds}, 2},`,
	} {
		require.NotEqual(t, one["no margin"], read(other)["no margin"])
	}

	table, err := os.ReadFile("table.go")
	require.NoError(t, err)
	now, err := rows(table)
	require.NoError(t, err)
	require.Len(t, now, len(mutants))
	for _, m := range mutants {
		require.NotEmpty(t, now[m.name])
	}
}
