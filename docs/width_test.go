package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestWidthOfComments holds comments to 100 columns, with 4 for a tab. The linter lll holds code to
// 120. What an example prints is no prose, and neither a URL nor a directive can be broken.
func TestWidthOfComments(t *testing.T) {
	t.Parallel()
	for _, file := range goFiles(t) {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, file, text, parser.ParseComments|parser.SkipObjectResolution)
		require.NoError(t, err)
		lines := strings.Split(string(text), "\n")
		for _, group := range parsed.Comments {
			if strings.Contains(strings.ToLower(group.Text()), "output:\n") {
				continue
			}
			for _, c := range group.List {
				at := set.Position(c.Pos())
				if n := widthOfComment(lines[at.Line-1], c); n > 100 {
					assert.Fail(t, "a comment of over 100 columns", "%s:%d has %d", file, at.Line, n)
				}
			}
		}
	}
}

// widthOfComment is 0 for a comment behind code, and for one that cannot be broken.
func widthOfComment(line string, c *ast.Comment) int {
	alone := strings.HasPrefix(strings.TrimLeft(line, "\t "), c.Text)
	if !alone || len(strings.Fields(c.Text)) <= 2 || strings.HasPrefix(c.Text, "//go:") {
		return 0
	}
	return utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    "))
}
