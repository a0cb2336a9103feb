package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The root package stays small: its files, the names that a reader of its documentation must know, and its lines. A limit is raised only with
// a reason in the commit.
func TestSizeOfTheRoot(t *testing.T) {
	const (
		maxLines     = 3300 // the goal is 2,900
		maxFileLines = 400
		maxNames     = 95
	)
	files, err := filepath.Glob("../*.go")
	require.NoError(t, err)
	var names []string
	lines := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		n := strings.Count(string(text), "\n")
		assert.LessOrEqual(t, n, maxFileLines, file)
		lines += n
		parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range parsed.Decls {
			names = append(names, exported(d)...)
		}
	}
	t.Logf("%d lines in all, %d exported names", lines, len(names))
	assert.LessOrEqual(t, lines, maxLines)
	assert.LessOrEqual(t, len(names), maxNames, "%v", names)
}

// exported are the exported names that a declaration gives to a package; methods belong to their types.
func exported(d ast.Decl) (names []string) {
	add := func(id *ast.Ident) {
		if id.IsExported() {
			names = append(names, id.Name)
		}
	}
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			add(d.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				add(spec.Name)
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					add(name)
				}
			}
		}
	}
	return names
}

// Each file of the root stands on the map of CONTRIBUTING, and each directory with code; and nothing stands there that is gone.
func TestTheMapIsTrue(t *testing.T) {
	page, err := os.ReadFile("../CONTRIBUTING.md")
	require.NoError(t, err)
	_, text, ok := strings.Cut(string(page), "\n## The map\n")
	require.True(t, ok)
	text, _, _ = strings.Cut(text, "\n## ")
	files, err := filepath.Glob("../*.go")
	require.NoError(t, err)
	for _, file := range files {
		if name := filepath.Base(file); !strings.HasSuffix(name, "_test.go") {
			assert.True(t, strings.Contains(text, "`"+name+"`"), "not on the map: %s", file)
		}
	}
	for i, quoted := range strings.Split(text, "`") {
		if i%2 == 0 || strings.ContainsAny(quoted, " *") || !strings.HasSuffix(quoted, "/") && !strings.HasSuffix(quoted, ".go") {
			continue
		}
		_, here := os.Stat(filepath.Join("..", quoted))
		_, command := os.Stat(filepath.Join("../cmd/leasehold", quoted))
		assert.True(t, here == nil || command == nil, "on the map, and gone: %s", quoted)
	}
	dirs, err := filepath.Glob("../internal/*")
	require.NoError(t, err)
	for _, dir := range dirs {
		assert.True(t, strings.Contains(text, "`internal/"+filepath.Base(dir)+"`"), "not on the map: %s", dir)
	}
}
