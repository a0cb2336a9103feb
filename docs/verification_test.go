package docs_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The table of verification.md has the very mutants that make mutants plants, in their order.
func TestTableHasEveryMutant(t *testing.T) {
	page, err := os.ReadFile("verification.md")
	require.NoError(t, err)
	_, table, _ := strings.Cut(string(page), "| mutant |")
	table, _, _ = strings.Cut(table, "\n\n")
	code, err := os.ReadFile("../internal/mutants/main.go")
	require.NoError(t, err)
	first := func(pattern, text string) (list []string) {
		for _, found := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			list = append(list, found[1])
		}
		return list
	}
	planted := first(`(?m)^\t\{"([^"]+)", \[\]edit`, string(code))
	require.Greater(t, len(planted), 100)
	require.Equal(t, append([]string{"---"}, planted...), first(`(?m)^\| ([^|]+) \|`, table))
}
