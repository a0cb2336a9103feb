package leasehold_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func read(t *testing.T, name string) string {
	t.Helper()
	body, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(body)
}

// blocks returns the code blocks of a language.
func blocks(page, language string) (list []string) {
	for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(page, -1) {
		list = append(list, m[1])
	}
	return list
}

// flat is code without its indentation.
func flat(code string) string {
	return regexp.MustCompile(`(?m)^\s+`).ReplaceAllString(code, "")
}

func TestReadmeCodeIsThatOfTheExamples(t *testing.T) {
	examples := flat(read(t, "example_test.go"))
	code := blocks(read(t, "README.md"), "go")
	require.Len(t, code, 3)
	for _, block := range code {
		require.Contains(t, examples, flat(block))
	}
}

func TestReadmeLinks(t *testing.T) {
	pages, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	for _, page := range append(pages, "README.md", "CONTRIBUTING.md", "CHANGELOG.md") {
		for _, m := range regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`).FindAllStringSubmatch(read(t, page), -1) {
			require.FileExists(t, filepath.Join(filepath.Dir(page), m[1]), "link in %s", page)
		}
	}
}

func TestReadmeOptions(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "options.go", nil, 0)
	require.NoError(t, err)
	page := read(t, "README.md")
	options := 0
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "With") {
			require.Contains(t, page, "\n| `"+f.Name.Name+"` | ", "the option table")
			options++
		}
	}
	require.Len(t, regexp.MustCompile("(?m)^\\| `With").FindAllString(page, -1), options)
	for name, def := range map[string]string{ // as newOptions sets them
		"WithTTL": "15 s", "WithRenewInterval": "TTL/3", "WithPollInterval": "TTL/5", "WithSafetyMargin": "TTL/5",
		"WithClockDrift": "0.02", "WithSkewAllowance": "5 s",
	} {
		require.Contains(t, page, "\n| `"+name+"` | "+def+" |")
	}
}

func TestReadmeCosts(t *testing.T) {
	const put, get = 0.005 / 1000, 0.0004 / 1000 // dollars
	page := read(t, "README.md")
	for _, ttl := range []float64{5, 15, 30, 60} {
		month := (730 * time.Hour).Seconds()
		puts, gets := month/(ttl/3), month/(ttl/6) // TestWaitingCandidateReadsTwicePerRenewal
		cost := func(candidates float64) float64 { return puts*put + (candidates-1)*gets*get }
		require.Contains(t, page, fmt.Sprintf("\n| %.0f s | %s | %s | $%.2f | $%.2f | $%.2f |\n",
			ttl, thousands(puts), thousands(gets), cost(1), cost(3), cost(10)))
	}
}

func thousands(f float64) string {
	s := fmt.Sprintf("%.0f", f)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func TestReadmeJSON(t *testing.T) {
	list := blocks(read(t, "README.md"), "json")
	require.Len(t, list, 2)
	for _, block := range list {
		require.True(t, json.Valid([]byte(block)), block)
	}
	for _, permission := range regexp.MustCompile(`s3:[A-Z]\w+`).FindAllString(list[1], -1) {
		require.True(t, strings.Contains(read(t, "s3store.go"), permission), permission)
	}
}
