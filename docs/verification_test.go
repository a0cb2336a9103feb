package docs_test

import (
	"os"
	"regexp"
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

// The table of mutants is what make mutants plants, in its order, with the promise that each would
// break, and with an entry in the column of each check that catches it.
func TestTableHasEveryMutant(t *testing.T) {
	code, err := os.ReadFile("../internal/proof/mutants/table.go")
	require.NoError(t, err)
	planted := regexp.MustCompile(
		`(?ms)^\t\{\s*"([^"]+)",\s+\[\]edit.*?\},\s+\[\]string\{([^}]*)\},\s+(\d+),?\s*\},$`).FindAllStringSubmatch(
		string(code), -1)
	require.Greater(t, len(planted), 140)
	rows := cells(t, "mutants.md", "| mutant | promise | "+columns)
	require.Len(t, rows, len(planted))
	for i, m := range planted {
		m[2] = strings.Join(strings.Fields(m[2]), " ")
		promise := strings.TrimPrefix(m[3], "0")
		require.Equal(t, []string{m[1], promise}, rows[i][:2])
		for j, pattern := range []string{`(^|, )(w|fencedW)orlds`, `search`, `"\./itest `,
			`"(\.|\./(?:[^i]|i[^t])\S*) -run`} {
			require.Equal(t, regexp.MustCompile(pattern).MatchString(m[2]), rows[i][2+j] != "",
				"%s: column %d", m[1], j)
		}
	}
}

// Each cell of the table of promises is filled exactly if a mutant proves it: one that breaks the
// promise, and that the check of that column catches alone.
func TestEachCellHasAMutant(t *testing.T) {
	proven := make(map[string]bool)
	for _, row := range cells(t, "mutants.md", "| mutant | promise | "+columns) {
		for i, found := range row[2:] {
			proven[row[1]+"/"+string(rune('0'+i))] = proven[row[1]+"/"+string(rune('0'+i))] || found != ""
		}
	}
	promises := cells(t, "verification.md", "| | promise | "+columns)
	require.Greater(t, len(promises), 20)
	for _, row := range promises {
		require.Len(t, row, 6)
		for i, check := range row[2:] {
			require.Equal(t, proven[row[0]+"/"+string(rune('0'+i))], check != "",
				"promise %s, column %d: %q", row[0], i, check)
		}
	}
}
