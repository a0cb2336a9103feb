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

// The root package stays small: its files, its functions, the names that a reader of its documentation must know, and its lines. A limit is
// raised only with a reason in the commit.
func TestSizeOfTheRoot(t *testing.T) {
	const (
		maxLines     = 3225 // the goal is 2,900
		maxFileLines = 400
		maxLong      = 4   // functions of over 50 lines
		maxNames     = 108 // with methods; the goal is 105
		maxFields    = 41  // the goal is 32
	)
	files, err := filepath.Glob("../*.go")
	require.NoError(t, err)
	var names, fields, long []string
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
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, file, text, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range parsed.Decls {
			n, f := exported(d)
			names, fields = append(names, n...), append(fields, f...)
			if f, ok := d.(*ast.FuncDecl); ok && set.Position(f.End()).Line-set.Position(f.Pos()).Line >= 50 {
				long = append(long, f.Name.Name)
			}
		}
	}
	t.Logf("%d lines in all, %d exported names, %d exported fields, long functions %v", lines, len(names), len(fields), long)
	assert.LessOrEqual(t, lines, maxLines)
	assert.LessOrEqual(t, len(long), maxLong, "%v", long)
	assert.LessOrEqual(t, len(names), maxNames, "%v", names)
	assert.LessOrEqual(t, len(fields), maxFields, "%v", fields)
}

// exported are the exported names and fields that a declaration gives to a package.
func exported(d ast.Decl) (names, fields []string) {
	add := func(to *[]string, ids ...*ast.Ident) {
		for _, id := range ids {
			if id.IsExported() {
				*to = append(*to, id.Name)
			}
		}
	}
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv != nil {
			of := d.Recv.List[0].Type
			if p, ok := of.(*ast.StarExpr); ok {
				of = p.X
			}
			if !of.(*ast.Ident).IsExported() {
				return nil, nil
			}
		}
		add(&names, d.Name)
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				add(&names, spec.Name)
				if s, ok := spec.Type.(*ast.StructType); ok && spec.Name.IsExported() {
					for _, f := range s.Fields.List {
						add(&fields, f.Names...)
					}
				}
			case *ast.ValueSpec:
				add(&names, spec.Names...)
			}
		}
	}
	return names, fields
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
