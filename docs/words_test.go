package docs_test

import (
	"bytes"
	"fmt"
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

const wordList = "testdata/words.txt"

// A rule of the word list, with the hits that are allowed still: on pages, in comments, in strings.
type wordRule struct {
	line    string // as the file has it, without the budgets
	pattern *regexp.Regexp
	budget  [3]int
}

// TestWords holds pages, comments and string literals of shipped code to the word list. Each rule
// has a budget, which is what was there, and may only fall: RENDER=1 writes a lower one, never a
// higher one.
func TestWords(t *testing.T) {
	t.Parallel()
	header, rules := readWordList(t)
	texts := prose(t)
	record, fallen := os.Getenv("RENDER") == "1", false
	for i, r := range rules {
		for kind, name := range []string{"pages", "comments", "strings"} {
			var hits []string
			for _, text := range texts[kind] {
				for _, at := range r.pattern.FindAllStringIndex(text.text, -1) {
					from, to := max(0, at[0]-30), min(len(text.text), at[1]+30)
					line := text.line + strings.Count(text.text[:at[0]], "\n")
					hits = append(hits, fmt.Sprintf("%s:%d: …%s…", text.file, line,
						strings.ReplaceAll(text.text[from:to], "\n", " ")))
				}
			}
			switch n := len(hits); {
			case n > r.budget[kind]:
				assert.Fail(t, "more hits of a word than its budget", "%s\n%s: %d hits, of which %d are allowed:\n%s",
					r.line, name, n, r.budget[kind], strings.Join(hits, "\n"))
			case n < r.budget[kind]:
				rules[i].budget[kind], fallen = n, true
			}
		}
	}
	if !fallen || t.Failed() {
		return
	}
	require.True(t, record, "fewer hits than %s allows: lower it by RENDER=1 go test -run TestWords ./docs", wordList)
	out := bytes.NewBufferString(header)
	for _, r := range rules {
		fmt.Fprintf(out, "%d\t%d\t%d\t%s\n", r.budget[0], r.budget[1], r.budget[2], r.line)
	}
	require.NoError(t, os.WriteFile(wordList, out.Bytes(), 0o644))
}

// readWordList returns the rules, and the lines of comment above them.
func readWordList(t *testing.T) (header string, rules []wordRule) {
	t.Helper()
	text, err := os.ReadFile(wordList)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			header += line
			continue
		}
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", 4)
		require.Len(t, fields, 4, line)
		pattern, instead, found := strings.Cut(fields[3], "\t")
		require.True(t, found && instead != "", line)
		r := wordRule{line: fields[3], pattern: regexp.MustCompile(pattern)}
		for i := range r.budget {
			r.budget[i], err = strconv.Atoi(fields[i])
			require.NoError(t, err, line)
		}
		rules = append(rules, r)
	}
	require.NotEmpty(t, rules)
	return header, rules
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
func prose(t *testing.T) [3][]passage {
	t.Helper()
	rendered := []string{
		"../docs/performance.md", "../docs/evidence/performance-tables.md", "../docs/evidence/mutants.md",
		"../docs/cli-reference.md",
	}
	var texts [3][]passage
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
			texts[0] = append(texts[0], passage{page, 1, string(text)})
		}
	}
	set := token.NewFileSet()
	for _, file := range shipped(t) {
		parsed, err := parser.ParseFile(set, file, nil, parser.ParseComments|parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, group := range parsed.Comments {
			texts[1] = append(texts[1], passage{file, set.Position(group.Pos()).Line, group.Text()})
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if s, ok := n.(*ast.BasicLit); ok && s.Kind == token.STRING {
				text, _ := strconv.Unquote(s.Value)
				texts[2] = append(texts[2], passage{file, set.Position(s.Pos()).Line, text})
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
