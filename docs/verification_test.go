package docs_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// cells returns the cells of each line of the table of a page that begins with header, without
// those of the header itself.
func cells(t *testing.T, page, header string) (rows [][]string) {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	_, table, ok := strings.Cut(string(text), "\n"+header)
	require.True(t, ok, header)
	table, _, _ = strings.Cut(table, "\n\n")
	for _, line := range strings.Split(table, "\n")[2:] {
		row := strings.Split(strings.Trim(line, "|"), "|")
		for i := range row {
			row[i] = strings.TrimSpace(row[i])
		}
		rows = append(rows, row)
	}
	return rows
}

const columns = "simulation | search | real servers | tests |"

// A cell of the table of promises has its mark exactly if a mutant proves it: one that breaks the
// promise, and that the check of that column catches alone.
func TestEachCellHasAMutant(t *testing.T) {
	proven := make(map[string]bool)
	for _, row := range cells(t, "evidence/mutants.md", "| mutant | promise | "+columns) {
		for i, found := range row[2:] {
			if found != "" && found != "not run" {
				proven[row[1]+"/"+string(rune('0'+i))] = true
			}
		}
	}
	promises := cells(t, "evidence/README.md", "| | promise | "+columns)
	require.Greater(t, len(promises), 20)
	for _, row := range promises {
		require.Len(t, row, 6)
		for i, check := range row[2:] {
			want := ""
			if proven[row[0]+"/"+string(rune('0'+i))] {
				want = "✓"
			}
			require.Equal(t, want, check, "promise %s, column %d", row[0], i)
		}
	}
}
