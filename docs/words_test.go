package docs_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestWords holds pages, comments and string literals of shipped code to the word list.
func TestWords(t *testing.T) {
	t.Parallel()
	list, err := os.ReadFile("testdata/words.txt")
	require.NoError(t, err)
	texts := prose(t)
	for rule := range strings.Lines(string(list)) {
		if strings.HasPrefix(rule, "#") {
			continue
		}
		pattern, instead, found := strings.Cut(strings.TrimSpace(rule), "\t")
		require.True(t, found && instead != "", rule)
		for _, text := range texts {
			for _, at := range regexp.MustCompile(pattern).FindAllStringIndex(text.text, -1) {
				from, to := max(0, at[0]-30), min(len(text.text), at[1]+30)
				line := text.line + strings.Count(text.text[:at[0]], "\n")
				assert.Fail(t, "a word of the list", "%s:%d: …%s…: write %s", text.file, line,
					strings.ReplaceAll(text.text[from:to], "\n", " "), instead)
			}
		}
	}
}

// A passage is text that people read, and where it begins.
type passage struct {
	file string
	line int
	text string
}

var (
	codeBlock = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	codeMark  = regexp.MustCompile("`[^`\n]+`")
	linkTo    = regexp.MustCompile(`\]\([^)\n]+\)`)
)

// prose returns what people read: pages that are kept by hand, comments, and string literals.
func prose(t *testing.T) (texts []passage) {
	t.Helper()
	rendered := []string{
		"../docs/performance.md", "../docs/evidence/performance-tables.md", "../docs/evidence/mutants.md",
		"../docs/cli-reference.md",
	}
	for _, glob := range []string{"../*.md", "*.md", "*/*.md", "../*/README.md"} {
		pages, err := filepath.Glob(glob)
		require.NoError(t, err)
		for _, page := range pages {
			page = filepath.Join("../docs", page)
			if slices.Contains(rendered, page) {
				continue
			}
			text, err := os.ReadFile(page)
			require.NoError(t, err)
			for _, cut := range []*regexp.Regexp{codeBlock, codeMark, linkTo} {
				text = cut.ReplaceAllFunc(text, func(b []byte) []byte {
					return append([]byte("`"), bytes.Repeat([]byte("\n"), bytes.Count(b, []byte("\n")))...)
				})
			}
			texts = append(texts, passage{page, 1, string(text)})
		}
	}
	set := token.NewFileSet()
	for _, file := range shipped(t) {
		parsed, err := parser.ParseFile(set, file, nil, parser.ParseComments|parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, group := range parsed.Comments {
			texts = append(texts, passage{file, set.Position(group.Pos()).Line, group.Text()})
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if s, ok := n.(*ast.BasicLit); ok && s.Kind == token.STRING {
				text, _ := strconv.Unquote(s.Value)
				texts = append(texts, passage{file, set.Position(s.Pos()).Line, text})
			}
			_, isImport := n.(*ast.ImportSpec)
			return !isImport
		})
	}
	return texts
}

var unshipped = regexp.MustCompile(`(^|/)(bench|examples|itest|storetest|internal/(proof|testkit|tools))/|_test\.go$`)

// shipped returns the Go files that users import or run.
func shipped(t *testing.T) []string {
	t.Helper()
	files := goFiles(t)
	return slices.DeleteFunc(files, func(file string) bool { return unshipped.MatchString(filepath.ToSlash(file)) })
}
