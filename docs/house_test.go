package docs_test

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The map of CONTRIBUTING has each file of the root, and each uses what is below it there: the
// files of the API first, then acquisition, term, observation, decision, and at the bottom records
// and stores. The uses that run upwards are few.
func TestTheRootRunsDownwards(t *testing.T) {
	const maxUpwards = 8 // names of the one file that the other uses
	page, err := os.ReadFile("../CONTRIBUTING.md")
	require.NoError(t, err)
	_, text, _ := strings.Cut(string(page), "\n## The map\n")
	text, _, _ = strings.Cut(text, "\n| package |")
	floor := make(map[string]int)
	set := token.NewFileSet()
	var files []*ast.File
	for _, row := range regexp.MustCompile("(?m)^\\| `.*? \\|").FindAllString(text, -1) {
		for _, name := range regexp.MustCompile(`[a-z0-9]+\.go`).FindAllString(row, -1) {
			file, err := parser.ParseFile(set, "../"+name, nil, 0)
			require.NoError(t, err)
			floor[name] = len(floor)
			files = append(files, file)
		}
	}
	here, err := filepath.Glob("../*.go")
	require.NoError(t, err)
	for _, path := range here {
		name := filepath.Base(path)
		_, ok := floor[name]
		assert.True(t, ok || strings.HasSuffix(name, "_test.go"), "not on the map: %s", name)
	}
	info := types.Info{Uses: make(map[*ast.Ident]types.Object)}
	// what other packages have is not asked for
	others := types.Config{Importer: emptyImporter{}, Error: func(error) {}}
	root, _ := others.Check("leasehold", set, files, &info)
	upwards := make(map[string]bool)
	for id, of := range info.Uses {
		v, _ := of.(*types.Var)
		if of.Pkg() != root || v != nil && !v.IsField() && v.Parent() != root.Scope() {
			continue
		}
		from, to := filepath.Base(set.Position(id.Pos()).Filename), filepath.Base(set.Position(of.Pos()).Filename)
		if floor[to] < floor[from] {
			upwards[from+" uses "+of.Name()+" of "+to] = true
		}
	}
	assert.LessOrEqual(t, len(upwards), maxUpwards, "%v", upwards)
	assert.NotEmpty(t, upwards, "none is found, so nothing is counted")
}

// Whoever writes over a version that it does not hold asks decide first. A term holds the version
// that it wrote last, and a trial of the store sends what must be refused.
func TestWhoWritesOverAVersion(t *testing.T) {
	set := token.NewFileSet()
	calls := make(map[string]map[string]bool) // by the name of the function that is called
	files, err := filepath.Glob("../*.go")
	require.NoError(t, err)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(set, file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range parsed.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				call, _ := n.(*ast.CallExpr)
				if call == nil {
					return true
				}
				if of, ok := call.Fun.(*ast.SelectorExpr); ok {
					if calls[of.Sel.Name] == nil {
						calls[of.Sel.Name] = make(map[string]bool)
					}
					calls[of.Sel.Name][f.Name.Name] = true
				}
				return true
			})
		}
	}
	by := func(name string) []string { return slices.Sorted(maps.Keys(calls[name])) }
	require.Equal(t, []string{"write"}, by("PutIfMatch"))
	require.Equal(t, []string{"put", "trial"}, by("write"))
	require.Equal(t, []string{"putOnce", "renew", "writeOver", "writeRelease", "writeReleased"}, by("put"),
		"renew and writeRelease are of a term")
	require.Equal(t, []string{"writeNewTerm", "writeResumed"}, by("writeOver"))
	for _, name := range []string{"writeNewTerm", "writeResumed", "writeReleased", "giveBack"} {
		for _, caller := range by(name) {
			asks := calls["decide"][caller] || calls["leftover"][caller] && calls["decide"]["leftover"]
			require.True(t, asks || caller == "try", "%s calls %s and does not ask decide", caller, name)
		}
	}
}

type emptyImporter struct{}

func (emptyImporter) Import(path string) (*types.Package, error) {
	p := types.NewPackage(path, filepath.Base(path))
	p.MarkComplete()
	return p, nil
}

// The map of CONTRIBUTING has each package, with the first sentence of its comment. RENDER=1 writes
// this table.
func TestTheMapIsTrue(t *testing.T) {
	const name, header = "../CONTRIBUTING.md", "| package | what belongs there |\n| --- | --- |\n"
	says := make(map[string]string) // by the directory of the package
	for _, path := range goFiles(t) {
		dir := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), "../")
		if strings.HasSuffix(path, "_test.go") || dir == ".." || strings.Contains(dir, "testdata") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.PackageClauseOnly|parser.ParseComments)
		require.NoError(t, err)
		if says[dir] == "" {
			says[dir] = new(doc.Package).Synopsis(file.Doc.Text())
		}
	}
	var rows strings.Builder
	for _, dir := range slices.Sorted(maps.Keys(says)) {
		assert.NotEmpty(t, says[dir], "%s has no package comment", dir)
		what := regexp.MustCompile(`^(Package|Command) \w+ |\.$`).ReplaceAllString(says[dir], "")
		what = regexp.MustCompile(`\[([\w.]+)\]`).ReplaceAllString(what, "$1")
		fmt.Fprintf(&rows, "| `%s` | %s |\n", dir, what)
	}
	page, err := os.ReadFile(name)
	require.NoError(t, err)
	before, after, ok := strings.Cut(string(page), header)
	require.True(t, ok)
	had, after, ok := strings.Cut(after, "\n\n")
	require.True(t, ok)
	if os.Getenv("RENDER") == "1" {
		rendered := before + header + rows.String() + "\n" + after
		require.NoError(t, os.WriteFile(name, []byte(rendered), 0o644))
		return
	}
	assert.Equal(t, rows.String(), had+"\n", "RENDER=1 go test -run TestTheMapIsTrue ./docs writes it")
}

// What runs in a user's program does not use what only proves it: no file of a published package,
// tests apart, imports internal/proof or internal/testkit.
func TestTheProductUsesNoTestKit(t *testing.T) {
	for file, imported := range published(t) {
		assert.NotRegexp(t, `/leasehold/internal/(proof|testkit)/`, imported, file)
	}
}

// A module of a store or an adapter can be built with any later version of the root, whose internal
// packages may change. So it imports none of them, tests apart. The command is built with the root
// that its release names.
func TestModulesUseThePublicAPI(t *testing.T) {
	modules := 0
	for file, imported := range published(t) {
		dir, _, _ := strings.Cut(file, "/")
		if _, err := os.Stat("../" + dir + "/go.mod"); err == nil {
			modules++
			assert.NotRegexp(t, `/leasehold/internal/`, imported, file)
		}
	}
	assert.Greater(t, modules, 10, "too few files are found")
}

// published are the files of published packages, tests apart, with what they import.
func published(t *testing.T) map[string]string {
	unpublished := regexp.MustCompile(
		`^(bench|docs|examples|itest|internal/(proof|testkit|tools))/|/(examples|testdata)/`)
	files := make(map[string]string)
	for _, path := range goFiles(t) {
		name := filepath.ToSlash(strings.TrimPrefix(path, ".."+string(filepath.Separator)))
		if strings.HasSuffix(name, "_test.go") || unpublished.MatchString(name) {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		require.NoError(t, err)
		var imported []string
		for _, i := range file.Imports {
			imported = append(imported, i.Path.Value)
		}
		files[name] = strings.ReplaceAll(strings.Join(imported, "\n"), `"`, "/")
	}
	return files
}

// goFiles are the paths of all Go files of all modules.
func goFiles(t *testing.T) (files []string) {
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && len(d.Name()) > 2 && d.Name()[0] == '.':
			return fs.SkipDir
		case filepath.Ext(path) == ".go":
			files = append(files, path)
		}
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, len(files), 300, "too few files are found")
	return files
}

// The packages below the command run downwards. The guard uses nothing else of the project, so it
// knows no store: it is told until when the command may run.
func TestTheCommandRunsDownwards(t *testing.T) {
	const module, rooms = "github.com/leasehold-go/leasehold", "/cmd/leasehold/internal/"
	for name, below := range map[string][]string{
		"exit": nil, "guard": {"exit"}, "place": {"exit"}, "doctor": {"exit", "place"},
	} {
		files, err := filepath.Glob(".." + rooms + name + "/*.go")
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, path := range files {
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
			require.NoError(t, err)
			for _, i := range file.Imports {
				used, ours := strings.CutPrefix(strings.Trim(i.Path.Value, `"`), module)
				if room, ok := strings.CutPrefix(used, rooms); ok {
					assert.Contains(t, below, room, path)
				} else if ours {
					assert.NotEqual(t, "guard", name, path+" uses "+i.Path.Value)
				}
			}
		}
	}
}

// Each workflow builds with the latest patch of the version of Go that go.work names, because a
// program has the standard library in it, and its known faults. With go-version-file, setup-go
// would take the very version of go.work, which is the lowest that the code can do with.
func TestWorkflowsUseTheLatestPatch(t *testing.T) {
	work, err := os.ReadFile("../go.work")
	require.NoError(t, err)
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(work)
	require.NotNil(t, version)
	files, err := filepath.Glob("../.github/workflows/*.yml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, step := range strings.Split(string(text), "uses: actions/setup-go@")[1:] {
			step, _, _ = strings.Cut(step, "\n      - ")
			assert.Contains(t, step, `go-version: "`+string(version[1])+`"`, file)
			assert.Contains(t, step, "check-latest: true", file)
		}
	}
}

// Dependabot looks for updates of every module.
func TestDependabotKnowsEveryModule(t *testing.T) {
	text, err := os.ReadFile("../.github/dependabot.yml")
	require.NoError(t, err)
	modules := 0
	err = filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && len(d.Name()) > 2 && d.Name()[0] == '.':
			return fs.SkipDir
		case d.Name() == "go.mod":
			modules++
			dir := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), "..")
			assert.Contains(t, string(text), "\n      - /"+strings.TrimPrefix(dir, "/")+"\n")
		}
		return nil
	})
	require.NoError(t, err)
	assert.Greater(t, modules, 10, "too few modules are found")
}
