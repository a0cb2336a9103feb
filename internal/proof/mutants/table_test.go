package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A row that is read is written as it was, and what is no row is refused.
func TestRowsAreKept(t *testing.T) {
	require.NoError(t, badRow)
	byFile := make(map[string][]string)
	for _, m := range mutants {
		byFile[m.file] = append(byFile[m.file], m.row())
	}
	for name, rows := range byFile {
		text, err := rowFiles.ReadFile("rows/" + name)
		require.NoError(t, err)
		require.Equal(t, string(text), strings.Join(rows, "\n"), name)
	}
	for _, text := range []string{
		"", "no margin\nby search\nin a.go\n-a\n", "## no margin", "## no margin\npromise x\n",
		"## no margin\nby search\n-a\n+b\n", "## no margin\nin a.go\n+b\n-a\n", "## no margin\nin a.go\nby search\n",
		"## no margin\nby search\nin a.go\n-a\n\n\n",
	} {
		_, err := parse(text)
		require.ErrorContains(t, err, "no line of a row", "%q", text)
	}
}

// The page is what the rows say. "go run ./internal/proof/mutants -only ~ -record" writes it.
func TestPageOfMutants(t *testing.T) {
	text, err := os.ReadFile("../../../docs/evidence/mutants.md")
	require.NoError(t, err)
	require.Equal(t, page(mutants), string(text))
}

// Each mutant changes code that is there exactly once, into code that builds, and has checks that
// must catch it and exist. A mutant that does not build any more, or has lost its tests, is a gap
// that would not show before somebody runs it.
func TestMutantsCanBePlanted(t *testing.T) {
	code := loaded(t)
	names := make(map[string]bool)
	t.Chdir("../../..")
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			require.False(t, names[m.name], "two mutants have this name")
			names[m.name] = true
			require.NotEmpty(t, m.by)
			require.NotEmpty(t, m.edits)
			for _, c := range m.by {
				pkg, names := testsThatCatch(c.name)
				exists := names == nil || slices.ContainsFunc(testsOf(t, pkg), names.MatchString)
				require.True(t, exists, "there are no tests %s", c.name)
			}
			changed := make(map[string][]byte)
			for _, e := range m.edits {
				body, ok := changed[e.file]
				if !ok {
					var err error
					body, err = os.ReadFile(e.file)
					require.NoError(t, err)
				}
				planted, err := e.plant(body)
				require.NoError(t, err)
				changed[e.file] = planted
			}
			require.NoError(t, code.builds(changed))
		})
	}
}

// A mutant that does not build is found, whatever the reason.
func TestMutantsThatDoNotBuild(t *testing.T) {
	code := loaded(t)
	body, err := os.ReadFile("../../bell/bell.go")
	require.NoError(t, err)
	for name, c := range map[string]struct{ old, new, want string }{
		"no Go":                {"func New(", "func (", "expected"},
		"an unused variable":   {"func New() Bell {", "func New() Bell {\n\tunused := 1\n", "declared and not used"},
		"an unused import":     {"import (", "import (\n\t\"os\"", "imported and not used"},
		"another type":         {"func New() Bell {", "func New() Bell {\n\tvar _ int = \"text\"\n", "cannot use"},
		"a name that is gone":  {"func New(", "func Made(", "New"},
		"a changed signature":  {"func New() ", "func New(int) ", "New"},
		"nothing, which is Go": {"func New() Bell {", "func New() Bell {\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, 1, bytes.Count(body, []byte(c.old)))
			changed := bytes.Replace(body, []byte(c.old), []byte(c.new), 1)
			err := code.builds(map[string][]byte{"internal/bell/bell.go": changed})
			if c.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.want)
			}
		})
	}
}

// testsOf are the tests of a package, whose files are read once.
func testsOf(t *testing.T, pkg string) []string {
	t.Helper()
	if tests, ok := tests[pkg]; ok {
		return tests
	}
	files, err := filepath.Glob(filepath.Join(pkg, "*_test.go"))
	require.NoError(t, err)
	for _, file := range files {
		tests[pkg] = append(tests[pkg], testsIn(file)...)
	}
	return tests[pkg]
}

var tests = make(map[string][]string)

// workspace type-checks packages with changed files, without a build of its own.
type workspace struct {
	set      *token.FileSet
	packages map[string]*source // by directory
	importer types.Importer
}

// source is a package as it stands.
type source struct {
	path      string
	files     map[string]*ast.File // without the bodies of functions
	elsewhere []string             // files of other systems
	functions map[string]string    // and methods: the signature of each
}

// loaded are the packages that mutants change. What these import is compiled once, by the go
// command, and stays in its cache.
func loaded(t *testing.T) *workspace {
	t.Helper()
	if code == nil {
		code = load(t)
	}
	return code
}

var code *workspace

func load(t *testing.T) *workspace {
	t.Helper()
	args := []string{"list", "-export", "-deps", "-json=ImportPath,Dir,GoFiles,IgnoredGoFiles,Export,Error"}
	for _, m := range mutants {
		for _, e := range m.edits {
			if dir := "./" + path.Dir(e.file); isGo(e.file) && !slices.Contains(args, dir) && !foreign(dir) {
				args = append(args, dir)
			}
		}
	}
	root, err := filepath.Abs("../../..")
	require.NoError(t, err)
	list := exec.Command("go", args...)
	list.Dir, list.Stderr = root, os.Stderr
	out, err := list.Output()
	require.NoError(t, err)
	w, exports := &workspace{set: token.NewFileSet(), packages: make(map[string]*source)}, make(map[string]string)
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath, Dir, Export string
			GoFiles, IgnoredGoFiles []string
			Error                   *struct{ Err string }
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
		require.Nil(t, p.Error)
		exports[p.ImportPath] = p.Export
		dir, err := filepath.Rel(root, p.Dir)
		require.NoError(t, err)
		if !slices.Contains(args, "./"+filepath.ToSlash(dir)) {
			continue
		}
		s := &source{path: p.ImportPath, files: make(map[string]*ast.File)}
		for _, file := range p.IgnoredGoFiles {
			s.elsewhere = append(s.elsewhere, path.Join(filepath.ToSlash(dir), file))
		}
		for _, file := range p.GoFiles {
			name := path.Join(filepath.ToSlash(dir), file)
			s.files[name], err = parser.ParseFile(w.set, filepath.Join(root, name), nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			for _, d := range s.files[name].Decls {
				if f, ok := d.(*ast.FuncDecl); ok {
					f.Body = nil
				}
			}
		}
		w.packages[filepath.ToSlash(dir)] = s
	}
	w.importer = importer.ForCompiler(w.set, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	for _, s := range w.packages {
		checked, err := w.check(s, s.files, nil)
		require.NoError(t, err)
		s.functions = functions(checked)
	}
	return w
}

func isGo(file string) bool { return path.Ext(file) == ".go" }

// foreign reports whether a package cannot be built on this system: the command speaks of signals.
func foreign(dir string) bool {
	return runtime.GOOS == "windows" && strings.HasPrefix(path.Clean(dir), "cmd/")
}

// builds returns nil if the code is Go with these files changed. It does not look at tests and at
// other packages. They build as before because no function has another signature.
func (w *workspace) builds(changed map[string][]byte) error {
	byPackage := make(map[string][]string)
	for name := range changed {
		if isGo(name) {
			byPackage[path.Dir(name)] = append(byPackage[path.Dir(name)], name)
		}
	}
	for dir, names := range byPackage {
		s, ok := w.packages[dir]
		switch {
		case ok:
		case foreign(dir):
			continue
		default:
			return fmt.Errorf("no package in %s", dir)
		}
		files := maps.Clone(s.files)
		for _, name := range names {
			file, err := parser.ParseFile(w.set, name, changed[name], parser.SkipObjectResolution)
			switch {
			case err != nil:
				return err
			case files[name] != nil:
				files[name] = file
			case !slices.Contains(s.elsewhere, name):
				return fmt.Errorf("%s is a test, which nothing checks", name)
			}
		}
		checked, err := w.check(s, files, changed)
		if err != nil {
			return err
		}
		now := functions(checked)
		for name, signature := range s.functions {
			if now[name] != signature {
				return fmt.Errorf("%s of %s is %q, and was %q: tests or other packages may not build",
					name, dir, now[name], signature)
			}
		}
	}
	return nil
}

// check returns the first error in what has changed. The other files lack the bodies of their
// functions, which saves most of the time, and use not all that they import.
func (w *workspace) check(s *source, files map[string]*ast.File, changed map[string][]byte) (*types.Package, error) {
	var first error
	config := types.Config{Importer: w.importer, Sizes: types.SizesFor("gc", runtime.GOARCH), Error: func(err error) {
		var at types.Error
		if errors.As(err, &at) && changed[at.Fset.Position(at.Pos).Filename] != nil && first == nil {
			first = err
		}
	}}
	checked, _ := config.Check(s.path, w.set, slices.Collect(maps.Values(files)), nil)
	return checked, first
}

// functions are the signatures of a package's functions and methods.
func functions(p *types.Package) map[string]string {
	in := make(map[string]string)
	add := func(f *types.Func) {
		in[f.FullName()] = strings.TrimPrefix(types.TypeString(f.Type(), types.RelativeTo(p)), "func")
	}
	for _, name := range p.Scope().Names() {
		switch o := p.Scope().Lookup(name).(type) {
		case *types.Func:
			add(o)
		case *types.TypeName:
			if named, ok := o.Type().(*types.Named); ok {
				for m := range named.Methods() {
					add(m)
				}
			}
		}
	}
	return in
}
