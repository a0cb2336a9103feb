package docs_test

import (
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
)

// Each warning and each error in a log has a row on operations.md, and each row is for a message
// that exists. A row may quote the beginning of a long message, up to " …".
func TestMessagesOnThePage(t *testing.T) {
	logged := make(map[string]string) // the place of each message
	for _, file := range shipped(t) {
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range parsed.Decls {
			ast.Inspect(d, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				for _, text := range alerting(d, call) {
					logged[text] = set.Position(call.Pos()).String()
				}
				return true
			})
		}
	}
	require.Greater(t, len(logged), 40, "too few messages are found")
	page, err := os.ReadFile("operations.md")
	require.NoError(t, err)
	_, section, ok := strings.Cut(string(page), "\n## Messages\n")
	require.True(t, ok)
	section, _, _ = strings.Cut(section, "\n## ")
	var rows []string
	for _, row := range regexp.MustCompile("(?m)^\\| (`.*?) \\| ").FindAllStringSubmatch(section, -1) {
		for _, quoted := range regexp.MustCompile("`(.*?)`").FindAllStringSubmatch(row[1], -1) {
			rows = append(rows, quoted[1])
		}
	}
	require.NotEmpty(t, rows)
	for _, row := range rows {
		is := func(text string) bool { return text == row }
		if beginning, cut := strings.CutSuffix(row, " …"); cut {
			is = func(text string) bool { return strings.HasPrefix(text, beginning) }
		}
		found := slices.DeleteFunc(slices.Sorted(maps.Keys(logged)), func(text string) bool { return !is(text) })
		assert.Len(t, found, 1, "operations.md has a row for %q", row)
		for _, text := range found {
			delete(logged, text)
		}
	}
	for text, place := range logged {
		assert.Fail(t, "operations.md has no row for a message", "%s: %s", place, text)
	}
}

// alerting returns the texts that call may log at level Warn or Error. A level that only the run
// decides counts. in is the declaration around call.
func alerting(in ast.Decl, call *ast.CallExpr) []string {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return nil
	}
	of, _ := f.X.(*ast.Ident)
	text := -1 // which argument is the message
	switch name := f.Sel.Name; {
	case name == "Warn", name == "Error" && len(call.Args) > 0 && (of == nil || of.Name != "http"):
		text = 0
	case name == "WarnContext", name == "ErrorContext":
		text = 1
	case (name == "Log" || name == "LogAttrs") && len(call.Args) > 2:
		level, _ := call.Args[1].(*ast.SelectorExpr)
		if level == nil || level.Sel.Name != "LevelInfo" && level.Sel.Name != "LevelDebug" {
			text = 2
		}
	case name == "NewLogLogger": // what net/http says of a proxy
		return []string{"httputil: …"}
	}
	if text < 0 {
		return nil
	}
	return texts(in, call.Args[text])
}

// texts are the values that e may have: a string with "…" for what is not constant, or those that
// are assigned to a variable in the same declaration.
func texts(in ast.Decl, e ast.Expr) (list []string) {
	switch e := e.(type) {
	case *ast.BasicLit:
		return []string{constant.StringVal(constant.MakeFromLiteral(e.Value, e.Kind, 0))}
	case *ast.ParenExpr:
		return texts(in, e.X)
	case *ast.BinaryExpr:
		for _, left := range texts(in, e.X) {
			for _, right := range texts(in, e.Y) {
				list = append(list, left+right)
			}
		}
	case *ast.Ident:
		ast.Inspect(in, func(n ast.Node) bool {
			if set, ok := n.(*ast.AssignStmt); ok && len(set.Lhs) == 1 {
				if to, ok := set.Lhs[0].(*ast.Ident); ok && to.Name == e.Name {
					list = append(list, texts(in, set.Rhs[0])...)
				}
			}
			return true
		})
	}
	if list == nil {
		list = []string{"…"}
	}
	return list
}

// What the runbook of operations.md says of tokens: a copy of the lock object keeps them, and so
// does a record that an operator writes.
func TestTokensOfTheRunbook(t *testing.T) {
	const key = "locks/report"
	page, err := os.ReadFile("operations.md")
	require.NoError(t, err)
	record := regexp.MustCompile("`({\"expires_at\".*?})`").FindStringSubmatch(string(page))
	require.NotNil(t, record)
	next := func(store leasehold.Store) uint64 {
		lock, err := leasehold.NewLock(store, key)
		require.NoError(t, err)
		lease, err := lock.TryAcquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, lease.Release(t.Context()))
		return lease.Token()
	}
	store, other, restored := leasehold.NewMemStore(), leasehold.NewMemStore(), leasehold.NewMemStore()
	require.EqualValues(t, 1, next(store))
	require.EqualValues(t, 2, next(store))
	object, err := store.Get(t.Context(), key)
	require.NoError(t, err)
	_, err = other.PutIfNoneMatch(t.Context(), key, object.Body)
	require.NoError(t, err)
	require.EqualValues(t, 3, next(other))
	_, err = restored.PutIfNoneMatch(t.Context(), key, []byte(strings.Replace(record[1], "N", "41", 1)))
	require.NoError(t, err)
	require.EqualValues(t, 42, next(restored))
}
