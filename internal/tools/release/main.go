// Command release makes the commit and the tags of a release of all published modules. It does not
// push. First it makes them in a clone, and proves that a module outside the repository can get and
// build every published module, and that the programs can be built for every system. If that fails,
// or if the texts say that the version is not published, the repository is as it was.
//
//	release VERSION    the commit and the tags
//	release -check     only the proof, for the work tree as it is, with a made-up version
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

const root = "github.com/leasehold-go/leasehold"

// unpublished says of a module's directory that no program imports it: it gets no tag.
var unpublished = regexp.MustCompile(`^(bench|itest)$`)

// A major version above 1 would need another module path.
var valid = regexp.MustCompile(`^v[01]\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$`)

// checked is the version of a release that is only checked. Every real one is later.
const checked = "v0.0.0-check"

// before is what a text says while there is no published version, or not yet this one.
var before = regexp.MustCompile(`(?i)not\s+yet\s+published|once\s+a\s+version\s+is\s+published|\(unreleased\)`)

func main() {
	check := flag.Bool("check", false, "prove a release of the work tree as it is, and leave no trace")
	flag.Parse()
	for _, name := range []string{"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"} { // set within a git hook
		_ = os.Unsetenv(name)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, ".", flag.Arg(0), *check); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, dir, version string, check bool) error {
	repo := place{ctx: ctx, dir: dir, out: out}
	if check {
		version = checked
	}
	top, err := repo.run("git", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	repo.dir = strings.TrimSpace(top)
	start, err := repo.run("git", "rev-parse", "HEAD")
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	clone, err := repo.clone(filepath.Join(tmp, "clone"))
	if err != nil {
		return err
	}
	mods, err := clone.modules()
	if err != nil {
		return err
	}
	if !check {
		if err := repo.refuse(mods, version); err != nil {
			return err
		}
	}

	if err := clone.setVersion(mods, version); err != nil {
		return err
	}
	proxy := filepath.Join(tmp, "proxy")
	// A checksum in a go.sum changes the checksum of that module, which others may require: one
	// round for each generation.
	for round := 0; ; round++ {
		if round > len(mods) {
			return errors.New("published modules require each other in a circle, so their go.sum cannot have right " +
				"checksums")
		}
		if err := clone.tag(mods, version); err != nil {
			return err
		}
		sums, err := clone.publish(proxy, mods, version)
		if err != nil {
			return err
		}
		if changed, err := clone.writeSums(mods, sums); err != nil {
			return err
		} else if !changed {
			break
		}
	}
	if err := clone.prove(tmp, proxy, mods, version); err != nil {
		return err
	}
	if err := clone.update(tmp, proxy, mods, version); err != nil {
		return err
	}
	if check {
		return nil
	}
	// These programs are thrown away: those to publish are built from the commit that the user's
	// name and hooks make.
	if err := clone.all([]string{"git", "update-ref", "--no-deref", "HEAD", "refs/tags/" + version}); err != nil {
		return err
	}
	if said, err := clone.run("go", "run", "./internal/tools/binaries", "-version", version,
		filepath.Join(tmp, "programs")); err != nil {
		return fmt.Errorf("building the programs: %w\n%s", err, said)
	}

	if now, err := repo.run("git", "rev-parse", "HEAD"); err != nil || now != start {
		return errors.Join(errors.New("HEAD has moved (try again)"), err)
	}
	if err := repo.refuse(mods, version); err != nil {
		return err
	}
	return repo.take(clone, mods, version)
}

// module is a module of the workspace.
type module struct {
	dir     string // relative to the repository
	path    string
	require []string // the published siblings that it requires
}

func (m module) published() bool { return !unpublished.MatchString(m.dir) }

func (m module) tag(version string) string { return path.Join(m.dir, version) }

// place is a directory to run commands in, what to add to their environment, and where to say how
// far the release is.
type place struct {
	ctx context.Context
	dir string
	env []string
	out io.Writer
}

// run returns the standard output of a command. An error has what the command said.
func (p place) run(name string, args ...string) (string, error) {
	cmd := exec.CommandContext(p.ctx, name, args...)
	cmd.Dir, cmd.Env = p.dir, append(os.Environ(), p.env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err,
			strings.TrimSpace(cmp.Or(stderr.String(), string(out))))
	}
	return string(out), err
}

// all runs commands until one fails.
func (p place) all(cmds ...[]string) error {
	for _, cmd := range cmds {
		if _, err := p.run(cmd[0], cmd[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// refuse returns why the repository cannot be released as version.
func (p place) refuse(mods []module, version string) error {
	if info, err := os.Stat(filepath.Join(p.dir, ".git")); err != nil {
		return err
	} else if !info.IsDir() {
		return fmt.Errorf("%s is a linked worktree, where go cannot give a program its version: release in the "+
			"repository or a clone", p.dir)
	}
	if !valid.MatchString(version) {
		return fmt.Errorf("%q is not a version such as v0.1.0 or v1.2.3-rc.1 (make release VERSION=v0.1.0)", version)
	}
	for _, m := range mods {
		if !m.published() {
			continue
		}
		if out, err := p.run("git", "tag", "--list", m.tag(version)); err != nil {
			return err
		} else if out != "" {
			return fmt.Errorf("%s is already tagged", m.tag(version))
		}
	}
	if out, err := p.run("git", "status", "--porcelain"); err != nil {
		return err
	} else if out != "" {
		return fmt.Errorf("the work tree is not clean (commit or remove):\n%s", strings.TrimRight(out, "\n"))
	}
	return p.refuseTexts(version)
}

// refuseTexts returns why the texts of the repository would be wrong in the release.
func (p place) refuseTexts(version string) error {
	changes, err := os.ReadFile(filepath.Join(p.dir, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	if !regexp.MustCompile(`(?m)^## ` + regexp.QuoteMeta(version) + `( |$)`).Match(changes) {
		return fmt.Errorf("CHANGELOG.md has no heading for %s: add one such as \"## %s (2026-01-31)\"",
			version, version)
	}
	pages, err := p.run("git", "ls-files", "-z", "--", "*.md")
	if err != nil {
		return err
	}
	for page := range strings.SplitSeq(strings.TrimRight(pages, "\x00"), "\x00") {
		body, err := os.ReadFile(filepath.Join(p.dir, page))
		if err != nil {
			return err
		}
		if at := before.Find(body); at != nil {
			return fmt.Errorf("%s says %q: write what holds once %s is published, and in CHANGELOG.md its date", page,
				strings.Join(strings.Fields(string(at)), " "), version)
		}
	}
	return nil
}

// clone makes a clone that has the work tree as it is, with changes that are not committed, in its
// index and its files.
func (p place) clone(dir string) (place, error) {
	c := place{ctx: p.ctx, dir: dir, env: []string{"GOWORK=" + filepath.Join(dir, "go.work")}, out: p.out}
	if _, err := p.run("git", "clone", "--quiet", "--shared", "--no-checkout", p.dir, dir); err != nil {
		return c, err
	}
	return c, c.all(
		[]string{"git", "read-tree", "HEAD"},
		[]string{"git", "--work-tree=" + p.dir, "add", "--all", p.dir},
		[]string{"git", "checkout-index", "--all"},
	)
}

// modules returns the modules of the workspace.
func (p place) modules() ([]module, error) {
	var work struct{ Use []struct{ DiskPath string } }
	if err := p.json(&work, "go", "work", "edit", "-json"); err != nil {
		return nil, err
	}
	var mods []module
	for _, use := range work.Use {
		var file struct {
			Module  struct{ Path string }
			Require []struct{ Path string }
		}
		if err := p.json(&file, "go", "mod", "edit", "-json", path.Join(use.DiskPath, "go.mod")); err != nil {
			return nil, err
		}
		m := module{dir: path.Clean(use.DiskPath), path: file.Module.Path}
		for _, r := range file.Require {
			m.require = append(m.require, r.Path)
		}
		mods = append(mods, m)
	}
	for i, m := range mods {
		mods[i].require = nil
		for _, path := range m.require {
			j := slices.IndexFunc(mods, func(m module) bool { return m.path == path })
			switch {
			case j < 0:
			case mods[j].published():
				mods[i].require = append(mods[i].require, path)
			case m.published():
				return nil, fmt.Errorf("%s requires %s, which is not published", m.path, path)
			}
		}
	}
	return mods, nil
}

func (p place) json(v any, name string, args ...string) error {
	out, err := p.run(name, args...)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(out), v)
}

// setVersion makes every module require its published siblings at version. Nothing else may change
// by that.
func (p place) setVersion(mods []module, version string) error {
	for _, m := range mods {
		for _, path := range m.require {
			if _, err := p.run("go", "mod", "edit", "-require="+path+"@"+version,
				filepath.Join(m.dir, "go.mod")); err != nil {
				return err
			}
		}
	}
	// Without the checksums of the last release there is nothing to tidy in a go.sum, and its lines
	// keep their order.
	if _, err := p.writeSums(mods, nil); err != nil {
		return err
	}
	if _, err := p.run("internal/tools/tidy.sh"); err != nil {
		return err
	}
	diff, err := p.run("git", "diff", "--unified=0", "--", "*go.mod", "*go.sum")
	if err != nil {
		return err
	}
	var file, untidy string
	for line := range strings.Lines(diff) {
		sign, rest := line[:1], strings.TrimSpace(line[1:])
		switch {
		case strings.HasPrefix(line, "+++ b/"):
			file = strings.TrimPrefix(rest, "++ b/")
		case !strings.Contains("+-", sign), strings.HasPrefix(line, "--- "):
		case rest == "", rest == "require (", rest == ")":
		case strings.Contains(rest, root) && (sign == "-" || strings.Contains(rest, " "+version)):
		default:
			untidy += "\n" + file + ": " + sign + rest
		}
	}
	if untidy != "" {
		return fmt.Errorf("the modules are not tidy (run make tidy):%s", untidy)
	}
	return nil
}

// tag commits the files as they are, and tags the commit for every published module.
func (p place) tag(mods []module, version string) error {
	if _, err := p.run("git", "add", "--all"); err != nil {
		return err
	}
	tree, err := p.run("git", "write-tree")
	if err != nil {
		return err
	}
	commit, err := p.run("git", "-c", "user.name=release", "-c", "user.email=release@localhost",
		"commit-tree", "-p", "HEAD", "-m", "Release "+version, strings.TrimSpace(tree))
	if err != nil {
		return err
	}
	for _, m := range mods {
		if m.published() {
			if _, err := p.run("git", "update-ref", "refs/tags/"+m.tag(version),
				strings.TrimSpace(commit)); err != nil {
				return err
			}
		}
	}
	return nil
}

// publish fills a new module cache in dir from the tags of version, and returns the lines for
// go.sum of each module.
func (p place) publish(dir string, mods []module, version string) (map[string][]string, error) {
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	var list []string
	for _, m := range mods {
		if m.published() {
			list = append(list, m.path+"@"+version)
		}
	}
	return p.download(dir, list)
}

// download adds versions of modules to a module cache from their tags, as go and every module proxy
// do it. The part of the cache in cache/download is a file-system module proxy. It returns the
// lines for go.sum of each module.
func (p place) download(dir string, list []string) (map[string][]string, error) {
	n, err := strconv.Atoi(cmp.Or(os.Getenv("GIT_CONFIG_COUNT"), "0"))
	if err != nil {
		return nil, fmt.Errorf("GIT_CONFIG_COUNT: %w", err)
	}
	q := place{ctx: p.ctx, dir: filepath.Dir(p.dir), env: []string{
		"GOWORK=off", "GOFLAGS=-modcacherw", "GOMODCACHE=" + dir,
		"GOPROXY=direct", "GOSUMDB=off", "GOVCS=*:git",
		// for git, the clone is where the module path says
		fmt.Sprintf("GIT_CONFIG_COUNT=%d", n+1),
		fmt.Sprintf("GIT_CONFIG_KEY_%d=url.%s.insteadOf", n, p.dir),
		fmt.Sprintf("GIT_CONFIG_VALUE_%d=https://%s", n, root),
	}}
	out, failed := q.run("go", append([]string{"mod", "download", "-json"}, list...)...)
	sums := map[string][]string{}
	for dec := json.NewDecoder(strings.NewReader(out)); ; {
		var got struct{ Path, Version, Sum, GoModSum, Error string }
		if err := dec.Decode(&got); errors.Is(err, io.EOF) {
			return sums, failed
		} else if err != nil {
			return nil, errors.Join(failed, err)
		} else if got.Error != "" {
			return nil, fmt.Errorf("module %s: %s", got.Path, got.Error)
		}
		sums[got.Path] = []string{
			got.Path + " " + got.Version + " " + got.Sum + "\n",
			got.Path + " " + got.Version + "/go.mod " + got.GoModSum + "\n",
		}
	}
}

// writeSums makes sums the checksums of siblings in every go.sum, so that a module of the release
// builds without the workspace, and says whether that has changed a file.
func (p place) writeSums(mods []module, sums map[string][]string) (changed bool, err error) {
	for _, m := range mods {
		file := filepath.Join(p.dir, m.dir, "go.sum")
		body, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return false, err
		}
		lines := slices.Collect(strings.Lines(string(body)))
		for _, path := range m.require {
			lines = slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(line, path+" ") })
			at := slices.IndexFunc(lines, func(line string) bool { return line > path })
			if at < 0 {
				at = len(lines)
			}
			lines = slices.Insert(lines, at, sums[path]...)
		}
		if want := strings.Join(lines, ""); want != string(body) {
			changed = true
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				return false, err
			}
		}
	}
	return changed, nil
}

// outside is a place for modules of users, which get this project's modules from the file-system
// proxy.
func (p place) outside(tmp, proxy string) (place, error) {
	var env struct{ GOPROXY, GOMODCACHE, GONOSUMDB string }
	err := p.json(&env, "go", "env", "-json", "GOPROXY", "GOMODCACHE", "GONOSUMDB")
	// A separate module cache, so that nothing of an unpublished version stays. What others have
	// published comes from the developer's cache, if it is there.
	return place{ctx: p.ctx, env: []string{
		"GOWORK=off", "GOMODCACHE=" + filepath.Join(tmp, "mod"), "GOBIN=" + filepath.Join(tmp, "bin"),
		// -trimpath: so that the build cache serves every temporary directory
		"GOFLAGS=-modcacherw -trimpath -buildvcs=false",
		"GOPROXY=file://" + filepath.Join(proxy, "cache/download") + ",file://" +
			filepath.Join(env.GOMODCACHE, "cache/download") + "," + env.GOPROXY,
		"GOPRIVATE=", "GONOPROXY=", "GONOSUMDB=" + strings.TrimPrefix(env.GONOSUMDB+","+root, ","),
	}}, err
}

// prove builds every published module as its users do, and loads every module as its developers do.
func (p place) prove(tmp, proxy string, mods []module, version string) error {
	outside, err := p.outside(tmp, proxy)
	if err != nil {
		return err
	}
	for _, m := range mods {
		inside := place{ctx: p.ctx, dir: filepath.Join(p.dir, m.dir), env: p.env}
		if _, err := inside.run("go", "list", "-test", "-deps", "./..."); err != nil {
			return fmt.Errorf("%s in the workspace: %w", m.path, err)
		}
		if !m.published() {
			continue
		}
		inside.env = outside.env
		if _, err := inside.run("go", "list", "-test", "-deps", "./..."); err != nil {
			return fmt.Errorf("%s without the workspace: %w", m.path, err)
		}
		outside.dir = filepath.Join(tmp, "outside", m.dir)
		sums, err := os.ReadFile(filepath.Join(inside.dir, "go.sum"))
		if err != nil {
			return err
		}
		said, err := outside.use(m, version, sums)
		if err != nil {
			return fmt.Errorf("%s from outside: %w", m.path, err)
		}
		fmt.Fprintf(p.out, "%s@%s: %s\n", m.path, version, said)
	}
	return nil
}

// use makes a module that imports every package of m, builds it, and installs the programs of m,
// examples too.
func (p place) use(m module, version string, sums []byte) (string, error) {
	programs, packages, err := p.start([]module{m}, sums, m.path+"@"+version)
	if err != nil {
		return "", err
	}
	if err := p.all([]string{"go", "mod", "tidy"}, []string{"go", "build"}); err != nil {
		return "", err
	}
	body, err := os.ReadFile(filepath.Join(p.dir, "go.sum"))
	if err != nil {
		return "", err
	}
	if len(programs) > 0 {
		p.env = append(slices.Clone(p.env), "GOSUMDB=off") // these very modules were checked against go.sum just now
		args := []string{"install"}
		for _, program := range programs {
			args = append(args, program+"@"+version)
		}
		if _, err := p.run("go", args...); err != nil {
			return "", err
		}
	}
	if m.dir == "cmd/leasehold" {
		bin, err := p.run("go", "env", "GOBIN")
		if err != nil {
			return "", err
		}
		said, err := p.run(filepath.Join(strings.TrimSpace(bin), "leasehold"), "--version")
		if err != nil {
			return "", err
		}
		if said != "leasehold "+version+"\n" {
			return "", fmt.Errorf("the command that go install builds says %q, and not that it is %s", said, version)
		}
	}
	return fmt.Sprintf("packages: %d, programs: %d, lines in a user's go.sum: %d", packages, len(programs),
		strings.Count(string(body), "\n")), nil
}

// start makes a module that gets these versions, and imports every package of the modules. It
// returns their programs and the number of the packages.
func (p place) start(of []module, sums []byte, versions ...string) (programs []string, packages int, err error) {
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		return nil, 0, err
	}
	// What the repository knows already need not be looked up in the checksum database.
	if err := os.WriteFile(filepath.Join(p.dir, "go.sum"), sums, 0o644); err != nil {
		return nil, 0, err
	}
	if err := p.all(
		[]string{"go", "mod", "init", "example.com/outside"},
		append([]string{"go", "get"}, versions...),
	); err != nil {
		return nil, 0, err
	}
	args := []string{"list", "-find", "-f", "{{if .GoFiles}}{{.Module.Path}} {{.Name}} {{.ImportPath}}{{end}}"}
	var paths []string
	for _, m := range of {
		args, paths = append(args, m.path+"/..."), append(paths, m.path)
	}
	list, err := p.run("go", args...)
	if err != nil {
		return nil, 0, err
	}
	code := "package outside\n"
	for line := range strings.Lines(list) {
		f := strings.Fields(line)
		switch {
		case !slices.Contains(paths, f[0]), slices.Contains(strings.Split(f[2], "/"), "internal"):
		case f[1] == "main":
			programs = append(programs, f[2])
		default:
			code += fmt.Sprintf("\nimport _ %q\n", f[2])
			packages++
		}
	}
	return programs, packages, os.WriteFile(filepath.Join(p.dir, "outside.go"), []byte(code), 0o644)
}

// take makes the commit and the tags of the clone in the repository, with the user's name, hooks
// and signature.
func (p place) take(clone place, mods []module, version string) error {
	if err := p.all(
		[]string{"git", "fetch", "--quiet", "--no-tags", clone.dir, "refs/tags/" + version},
		[]string{"git", "restore", "--source=FETCH_HEAD", "--staged", "--worktree", "."},
	); err != nil {
		return err
	}
	if _, err := p.run("git", "commit", "--quiet", "--allow-empty", "-m", "Release "+version); err != nil {
		_, undo := p.run("git", "restore", "--staged", "--worktree", ".")
		return errors.Join(err, undo)
	}
	if _, err := p.run("git", "diff", "--quiet", "FETCH_HEAD", "HEAD"); err != nil {
		return fmt.Errorf("a hook has changed the commit that was proven, so it got no tags (undo it with git reset "+
			"--hard HEAD^): %w", err)
	}
	// The root's tag starts .github/workflows/release.yml. It is pushed by itself, since GitHub
	// starts nothing where more than three tags are pushed at once.
	push := "git push --atomic origin HEAD"
	for _, m := range mods {
		if !m.published() {
			continue
		}
		if _, err := p.run("git", "tag", "--annotate", "-m", m.path+" "+version, m.tag(version)); err != nil {
			return err
		}
		if m.tag(version) != version {
			push += " " + m.tag(version)
		}
	}
	fmt.Fprintf(p.out, "Committed and tagged. To publish:\n%s\ngit push origin %s\n", push, version)
	return nil
}
