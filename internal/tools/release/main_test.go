package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/testkit/testsize"
)

// repository is a small one of this repository's shape. child shows that the checksum of a module
// that has siblings in its own go.sum is right.
var repository = map[string]string{
	".gitignore":   "/generated.go\n",
	"CHANGELOG.md": "# Changelog\n\n## v0.3.0 (2026-03-01)\n\n## v0.2.0-rc.1\n\n## v0.1.0 (2026-01-31)\n",
	"README.md":    "# leasehold\n",
	"internal/tools/binaries/main.go": `package main

import (
	"os"
	"os/exec"
	"strings"
)

func main() {
	if len(os.Args) != 4 || os.Args[1] != "-version" {
		panic(os.Args)
	}
	if _, err := os.Stat("broken"); err == nil {
		println("undefined: unix.CLOCK_MONOTONIC")
		os.Exit(1)
	}
	if meanwhile, err := os.ReadFile("meanwhile.sh"); err == nil {
		origin, _ := exec.Command("git", "remote", "get-url", "origin").Output()
		sh := exec.Command("sh", "-ec", string(meanwhile))
		sh.Dir = strings.TrimSpace(string(origin))
		if out, err := sh.CombinedOutput(); err != nil {
			panic(string(out))
		}
	}
}
`,
	"go.mod":              "module " + root + "\n\ngo 1.26.0\n",
	"lock.go":             "package leasehold\n\nconst Name = \"leasehold\"\n",
	"cmd/tool/main.go":    "package main\n\nimport \"" + root + "\"\n\nfunc main() { println(leasehold.Name) }\n",
	"adapter/go.mod":      "module " + root + "/adapter\n\ngo 1.26.0\n",
	"adapter/adapter.go":  "package adapter\n\nimport \"" + root + "\"\n\nconst Name = leasehold.Name\n",
	"child/go.mod":        "module " + root + "/child\n\ngo 1.26.0\n",
	"child/child.go":      "package child\n\nimport \"" + root + "/adapter\"\n\nconst Name = adapter.Name\n",
	"itest/go.mod":        "module " + root + "/itest\n\ngo 1.26.0\n",
	"itest/itest.go":      "package itest\n",
	"itest/child_test.go": "package itest\n\nimport \"" + root + "/child\"\n\nvar _ = child.Name\n",
	"bench/go.mod":        "module " + root + "/bench\n\ngo 1.26.0\n",
	"bench/bench.go":      "package bench\n",
	"go.work":             "go 1.26.0\n\nuse (\n\t.\n\t./adapter\n\t./bench\n\t./child\n\t./itest\n)\n",
}

func TestMain(m *testing.M) {
	for name, value := range map[string]string{
		"GOPROXY": "off", "GOWORK": "", "GOFLAGS": "",
		"GIT_CONFIG_GLOBAL": os.DevNull, "GIT_CONFIG_SYSTEM": os.DevNull,
		"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@localhost", "GIT_COMMITTER_NAME": "a",
		"GIT_COMMITTER_EMAIL": "a@localhost",
	} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// fullOnly is for what takes many runs of the go command. A change to the release program shows in
// make release-check as well.
func fullOnly(t *testing.T) {
	t.Helper()
	if !testsize.Full() {
		t.Skip("set LEASEHOLD_SIZE=full to run it")
	}
}

// newRepository makes the repository with some files changed, tidies and commits it.
func newRepository(t *testing.T, change map[string]string) place {
	t.Helper()
	p := place{ctx: t.Context(), dir: t.TempDir()}
	script, err := os.ReadFile("../tidy.sh")
	require.NoError(t, err)
	p.write(t, "internal/tools/tidy.sh", string(script))
	for name, body := range repository {
		p.write(t, name, body)
	}
	for name, body := range change {
		p.write(t, name, body)
	}
	p.must(t, "git", "init", "--quiet")
	p.must(t, "internal/tools/tidy.sh")
	p.must(t, "git", "add", "--all")
	p.must(t, "git", "commit", "--quiet", "-m", "start")
	return p
}

func (p place) write(t *testing.T, name, body string) {
	t.Helper()
	name = filepath.Join(p.dir, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
	require.NoError(t, os.WriteFile(name, []byte(body), 0o755))
}

func (p place) read(t *testing.T, name string) string {
	t.Helper()
	body, err := os.ReadFile(filepath.Join(p.dir, name))
	require.NoError(t, err)
	return string(body)
}

func (p place) must(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := p.run(name, args...)
	require.NoError(t, err)
	return out
}

func (p place) release(t *testing.T, version string, check bool) error {
	return run(t.Context(), t.Output(), p.dir, version, check)
}

// state is all that a release that fails, or a check, must leave as it was.
func (p place) state(t *testing.T) string {
	return p.must(t, "git", "status", "--porcelain") + p.must(t, "git", "show-ref")
}

func TestRefuses(t *testing.T) {
	t.Parallel()
	p := newRepository(t, nil)
	linked := filepath.Join(t.TempDir(), "linked")
	p.must(t, "git", "worktree", "add", "--quiet", linked)
	require.ErrorContains(t, run(t.Context(), t.Output(), linked, "v0.1.0", false), "linked is a linked worktree")
	p.must(t, "git", "tag", "adapter/v0.3.0")
	for _, version := range []string{"", "0.1.0", "v0.1", "v2.0.0", "v01.0.0", "v0.1.0+x", "v0.1.0-",
		"v1.2.3.4", "latest"} {
		require.ErrorContains(t, p.release(t, version, false), `"`+version+`" is not a version`)
	}
	require.ErrorContains(t, p.release(t, "v0.3.0", false), "adapter/v0.3.0 is already tagged")
	p.write(t, "new.go", "package leasehold\n")
	require.ErrorContains(t, p.release(t, "v0.1.0", false), "the work tree is not clean (commit or "+
		"remove):\n?? new.go")
	require.Equal(t, "adapter/v0.3.0\n", p.must(t, "git", "tag"))
}

// A release whose own pages say that there is none is refused, before anything takes long.
func TestRefusesTextsOfBefore(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]map[string]string{
		"CHANGELOG.md has no heading for v0.1.0": {"CHANGELOG.md": "# Changelog\n\n## v0.1.00\n"},
		`CHANGELOG.md says "(unreleased)"`:       {"CHANGELOG.md": "# Changelog\n\n## v0.1.0 (unreleased)\n"},
		`docs/next.md says "(Unreleased)"`:       {"docs/next.md": "## Next (Unreleased)\n"},
		`README.md says "not yet published": write what holds once v0.1.0 is published`: {
			"README.md": "It is v0, not\nyet published.\n"},
		`docs/start.md says "Once a version is published"`: {"docs/start.md": "Once a version\nis published, …\n"},
	} {
		p := newRepository(t, change)
		before := p.state(t)
		require.ErrorContains(t, p.release(t, "v0.1.0", false), want)
		require.Equal(t, before, p.state(t))
	}
}

// The programs are built before there is a commit or a tag.
func TestProgramsThatDoNotBuildAreNotReleased(t *testing.T) {
	t.Parallel()
	p := newRepository(t, map[string]string{"broken": ""})
	before := p.state(t)
	err := p.release(t, "v0.1.0", false)
	require.ErrorContains(t, err, "building the programs")
	require.ErrorContains(t, err, "unix.CLOCK_MONOTONIC")
	require.Equal(t, before, p.state(t))
}

// What happens in the repository while the programs are built is seen, and is neither released nor
// lost.
func TestChangesMeanwhile(t *testing.T) {
	t.Parallel()
	fullOnly(t)
	for meanwhile, want := range map[string]string{
		"git commit --quiet --allow-empty -m meanwhile": "HEAD has moved (try again)",
		"echo package leasehold >new.go":                "the work tree is not clean (commit or remove):\n?? new.go",
		"git tag child/v0.1.0":                          "child/v0.1.0 is already tagged",
	} {
		p := newRepository(t, map[string]string{"meanwhile.sh": meanwhile})
		require.ErrorContains(t, p.release(t, "v0.1.0", false), want)
		require.NotContains(t, p.must(t, "git", "log", "--format=%s"), "Release")
		require.NotContains(t, p.must(t, "git", "tag"), "adapter/v0.1.0")
	}
}

func TestRelease(t *testing.T) {
	t.Parallel()
	p := newRepository(t, nil)
	before := p.state(t)
	p.write(t, ".git/hooks/pre-commit", "#!/bin/sh\necho no; exit 1\n")
	require.ErrorContains(t, p.release(t, "v0.1.0", false), "git commit")
	require.Equal(t, before, p.state(t))
	require.NoError(t, os.Remove(filepath.Join(p.dir, ".git/hooks/pre-commit")))

	for i, version := range []string{"v0.1.0", "v0.2.0-rc.1"} {
		require.NoError(t, p.release(t, version, false))
		require.Equal(t, "adapter/"+version+"\nchild/"+version+"\n"+version+"\n",
			p.must(t, "git", "tag", "--points-at", "HEAD"))
		require.Len(t, strings.Fields(p.must(t, "git", "rev-list", "HEAD")), i+2, "one commit a release")
		require.Empty(t, p.must(t, "git", "status", "--porcelain"))
		require.Contains(t, p.read(t, "child/go.mod"), root+"/adapter "+version)
		require.Contains(t, p.read(t, "child/go.sum"), root+"/adapter "+version+" h1:")
		require.Contains(t, p.read(t, "itest/go.mod"), root+"/child "+version)

		// development goes on, though nothing is pushed
		p.must(t, "internal/tools/tidy.sh", "-check")
		itest := place{ctx: t.Context(), dir: filepath.Join(p.dir, "itest")}
		itest.must(t, "go", "vet", "./...")
		require.Contains(t, itest.must(t, "go", "list", "-m", "all"), root+"/child") // reads the go.mod of each version
	}
	for _, name := range []string{"go.work", "adapter/go.sum", "child/go.mod", "child/go.sum", "itest/go.mod"} {
		require.NotContains(t, p.read(t, name), "v0.1.0", name)
	}
}

// A user may update the root alone. Before the first release that is shown with a root that is made
// up; after it, with the nested modules of the last one.
func TestTheModulesOfTheReleaseBeforeBuildWithTheNewRoot(t *testing.T) {
	t.Parallel()
	fullOnly(t)
	p := newRepository(t, map[string]string{
		"CHANGELOG.md": "## v0.2.0 (2026-04-01)\n\n## v0.1.1 (2026-03-01)\n\n## v0.1.0 (2026-02-01)\n"})
	says := func(version string, check bool, want string) {
		t.Helper()
		var said strings.Builder
		require.NoError(t, run(t.Context(), &said, p.dir, version, check))
		require.Contains(t, said.String(), want)
	}
	says("", true, "the nested modules of v0.0.0-check with the root of v0.999.0: 2 modules build\n")
	says("v0.1.0", false, "the nested modules of v0.1.0 with the root of v0.999.0: 2 modules build\n")
	p.must(t, "git", "commit", "--quiet", "--allow-empty", "-m", "no change of the API")
	says("", true, "the nested modules of v0.1.0 with the root of v0.999.0: 2 modules build\n")
	p.write(t, "lock.go", "package leasehold\n\nconst Title = \"leasehold\"\n")
	p.write(t, "cmd/tool/main.go", strings.Replace(repository["cmd/tool/main.go"], "Name", "Title", 1))
	p.write(t, "adapter/adapter.go", strings.Replace(repository["adapter/adapter.go"], "leasehold.Name",
		"leasehold.Title", 1))
	p.must(t, "git", "commit", "--quiet", "--all", "-m", "a change of the API")
	before := p.state(t)
	err := p.release(t, "v0.1.1", false)
	require.ErrorContains(t, err, "the nested modules of v0.1.0 with the root of v0.1.1: ")
	require.ErrorContains(t, err, "undefined: leasehold.Name")
	require.Equal(t, before, p.state(t))
	const may = "they do not build, so the next version must be one that may change the API"
	says("", true, may)
	says("v0.2.0", false, may)
}

// A release of a command that does not know its version is refused.
func TestTheInstalledCommandKnowsItsVersion(t *testing.T) {
	t.Parallel()
	fullOnly(t)
	for _, c := range []struct{ said, refused string }{
		{`"leasehold v0.0.0-check"`, ""},
		{`"leasehold (devel)"`, `says "leasehold (devel)\n", and not that it is v0.0.0-check`},
	} {
		p := newRepository(t, map[string]string{
			"cmd/leasehold/go.mod":  "module " + root + "/cmd/leasehold\n\ngo 1.26.0\n",
			"cmd/leasehold/main.go": "package main\n\nimport \"fmt\"\n\nfunc main() { fmt.Println(" + c.said + ") }\n",
			"go.work":               strings.Replace(repository["go.work"], ")", "\t./cmd/leasehold\n)", 1),
		})
		err := p.release(t, "", true)
		if c.refused == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, c.refused)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	fullOnly(t)
	p := newRepository(t, nil)
	p.write(t, "new.go", "package leasehold\n\nconst New = 1\n") // not committed, and checked all the same
	p.write(t, "adapter/adapter.go", "package adapter\n\nimport \""+root+"\"\n\nconst Name, New = leasehold.Name, "+
		"leasehold.New\n")
	before := p.state(t)
	require.NoError(t, p.release(t, "", true))
	require.Equal(t, before, p.state(t))
}

// Each of these mistakes goes unseen in the workspace, where everything builds.
func TestCheckFindsMistakes(t *testing.T) {
	t.Parallel()
	fullOnly(t)
	for name, c := range map[string]struct {
		change map[string]string
		plant  map[string]string // after the first commit: not tidied
		want   string
	}{
		"a require is missing": {
			plant: map[string]string{"go.work": strings.Replace(repository["go.work"], ")", "\t./third\n)", 1),
				"third/go.mod": "module example.com/third\n\ngo 1.26.0\n", "third/third.go": "package third\n",
				"adapter/more.go": "package adapter\n\nimport _ \"example.com/third\"\n"},
			want: "not tidy (run make tidy):\nadapter/go.mod: +example.com/third",
		},
		"the require of a sibling is missing": {
			plant: map[string]string{"adapter/go.mod": repository["adapter/go.mod"]},
			want:  "not tidy (run make tidy):\nadapter/go.mod: +require " + root,
		},
		"a published module needs an unpublished one": {
			change: map[string]string{"child/more.go": "package child\n\nimport _ \"" + root + "/bench\"\n"},
			want:   root + "/child requires " + root + "/bench, which is not published",
		},
		"published modules need each other": {
			change: map[string]string{"adapter/child_test.go": "package adapter_test\n\nimport _ \"" +
				root + "/child\"\n"},
			want: "require each other in a circle",
		},
		"a file is not committed": {
			plant: map[string]string{"generated.go": "package leasehold\n\nconst New = 1\n",
				"adapter/adapter.go": "package adapter\n\nimport \"" + root + "\"\n\nconst Name, New = " +
					"leasehold.Name, leasehold.New\n"},
			want: "undefined: leasehold.New",
		},
		"a module proxy refuses a file's name": {
			change: map[string]string{"adapter/aux.txt": ""},
			want:   "module " + root + "/adapter: create zip: aux.txt: malformed file path",
		},
		"go install refuses a replace": {
			change: map[string]string{"go.mod": repository["go.mod"] + "\nreplace example.com/third => ./third\n"},
			want:   "must not contain directives that would cause",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newRepository(t, c.change)
			for name, body := range c.plant {
				p.write(t, name, body)
			}
			build := exec.Command("go", "build", "./adapter", "./cmd/tool")
			build.Dir = p.dir
			out, err := build.CombinedOutput()
			require.NoError(t, err, "in the workspace: %s", out)
			before := p.state(t)
			require.ErrorContains(t, p.release(t, "", true), c.want)
			require.Equal(t, before, p.state(t))
		})
	}
}
