// Command mutants plants classic mistakes of distributed locks in a copy of the code, one at a time, and runs the checks that must
// catch each, every check alone: the simulation, the exhaustive search, tests on real servers, or other tests. A mutant that a check
// lets pass is a gap and makes the command fail. So does a check that fails without a mutant.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// edit replaces one piece of code, which must occur exactly once.
type edit struct{ file, old, new string }

// mutant is a mistake.
type mutant struct {
	name    string
	edits   []edit
	by      []string // the checks that must each catch it alone: names of checks, or a package and a pattern of tests
	promise int      // in the table of docs/verification.md that it would break; 0 if none speaks of it
}

// Checks that are not just tests of a package.
const (
	worlds       = "simulation"
	fencedWorlds = "simulation of fenced writes"
	shardWorlds  = "simulation of shards"
	search       = "search"
)

// columns of the table, in which docs/verification.md shows the checks.
var columns = [...]string{"simulation", "search", "real servers", "tests"}

// column is the column of a check.
func column(check string) string {
	switch {
	case check == worlds, check == fencedWorlds, check == shardWorlds:
		return columns[0]
	case check == search:
		return columns[1]
	case strings.HasPrefix(check, "./itest "):
		return columns[2]
	}
	return columns[3]
}

func main() {
	seeds := flag.Int("seeds", 4000, "number of simulated worlds for each mutant; a quarter as many of fenced writes and of shards")
	only := flag.String("only", "", "run only mutants whose name contains this text")
	from := flag.String("from", "", "skip the mutants before the first whose name contains this text")
	flag.Parse()
	root, err := os.Getwd()
	check(err)
	dir, err := os.MkdirTemp("", "mutants")
	check(err)
	ok := false
	defer func() {
		_ = os.RemoveAll(dir)
		if !ok {
			os.Exit(1)
		}
	}()
	check(copyCode(dir, root))
	var selected []mutant
	for _, m := range mutants[max(0, slices.IndexFunc(mutants, func(m mutant) bool { return strings.Contains(m.name, *from) })):] {
		if strings.Contains(m.name, *only) {
			selected = append(selected, m)
		}
	}
	r := runner{dir: dir, seeds: *seeds}
	for _, c := range allChecks(selected) {
		if what, caught := r.run(c); caught {
			fmt.Fprintf(os.Stderr, "mutants: %s fails without a mutant: %s\n", c, what)
			return
		}
	}
	var gaps []string
	fmt.Printf("| mutant | promise | %s |\n| --- | --- | --- | --- | --- | --- |\n", strings.Join(columns[:], " | "))
	for _, m := range selected {
		cells, missed := r.try(m)
		gaps = append(gaps, missed...)
		promise := ""
		if m.promise > 0 {
			promise = fmt.Sprint(m.promise)
		}
		fmt.Printf("| %s | %s | %s |\n", m.name, promise, strings.Join(cells[:], " | "))
	}
	for _, g := range gaps {
		fmt.Fprintln(os.Stderr, "mutants:", g)
	}
	ok = len(gaps) == 0
}

// copyCode copies the workspace without what no check needs.
func copyCode(dir, root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case name == ".git" || name == ".bin" || name == "docs" && d.IsDir():
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case name == "readme_test.go" || name == "example_test.go": // they take long to build
			return nil
		case d.IsDir():
			return os.MkdirAll(filepath.Join(dir, name), 0o755)
		case !d.Type().IsRegular():
			return nil
		}
		body, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, name), body, 0o644)
	})
}

// allChecks are the checks of some mutants, with the tests of each package as one.
func allChecks(of []mutant) (checks []string) {
	patterns := make(map[string][]string)
	for _, m := range of {
		for _, c := range m.by {
			if pkg, pattern, ok := strings.Cut(c, " -run "); ok {
				patterns[pkg] = append(patterns[pkg], pattern)
			} else if !slices.Contains(checks, c) {
				checks = append(checks, c)
			}
		}
	}
	for pkg, list := range patterns {
		slices.Sort(list)
		checks = append(checks, pkg+" -run "+strings.Join(slices.Compact(list), "|"))
	}
	slices.Sort(checks)
	return checks
}

// runner runs checks in a copy of the code.
type runner struct {
	dir   string
	seeds int
}

// try plants the mutant, runs its checks, and restores the code. It returns what each column found, and which checks did not catch
// the mutant.
func (r *runner) try(m mutant) (cells [len(columns)]string, missed []string) {
	for _, e := range m.edits {
		path := filepath.Join(r.dir, e.file)
		body, err := os.ReadFile(path)
		check(err)
		if n := bytes.Count(body, []byte(e.old)); n != 1 {
			check(fmt.Errorf("mutant %q: the code to replace occurs %d times in %s, not once", m.name, n, e.file))
		}
		check(os.WriteFile(path, bytes.Replace(body, []byte(e.old), []byte(e.new), 1), 0o644))
		defer func() { check(os.WriteFile(path, body, 0o644)) }()
	}
	for _, c := range m.by {
		found, caught := r.run(c)
		if !caught {
			missed = append(missed, fmt.Sprintf("%q: %s did not catch it", m.name, c))
			found = "**nothing**"
		}
		i := slices.Index(columns[:], column(c))
		cells[i] = strings.TrimPrefix(cells[i]+", "+found, ", ")
	}
	return cells, missed
}

var (
	explored = regexp.MustCompile(`explore_test.go:\d+: ([a-zA-Z].*)`)
	after    = regexp.MustCompile(`after (\d+) worlds, seed`)
	failed   = regexp.MustCompile(`--- FAIL: (\w+)`)
)

// run runs a check, and returns what it found and whether it failed as it should. Tests that run out of time prove nothing.
func (r *runner) run(name string) (found string, caught bool) {
	env, args := "", strings.Fields(name)
	switch name {
	case worlds:
		env, args = fmt.Sprint("SEEDS=", r.seeds), []string{"./internal/sim", "-run", "TestSeeds"}
	case fencedWorlds:
		env, args = fmt.Sprint("FENCED=", r.seeds/4), []string{"./internal/sim", "-run", "TestFencedSeeds"}
	case shardWorlds:
		env, args = fmt.Sprint("SHARDS=", r.seeds/4), []string{"./internal/sim", "-run", "TestShardSeeds"}
	case search:
		args = []string{"./internal/explore", "-failfast", "-run", "TestAll|TestSessions/(no_faults|a_suspend|a_fault|A's_session|A_crashes)"}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-vet=off", "-count=1", "-timeout=10m"}, args...)...)
	cmd.Dir, cmd.Env = r.dir, append(os.Environ(), env)
	body, err := cmd.CombinedOutput()
	out := string(body)
	if err == nil {
		if strings.Contains(out, "no tests to run") {
			check(fmt.Errorf("there are no tests %s", name))
		}
		return "", false
	}
	tests := failed.FindAllStringSubmatch(out, -1)
	world, path := after.FindStringSubmatch(out), explored.FindStringSubmatch(out)
	switch {
	case strings.Contains(out, "[build failed]") || strings.Contains(out, "[setup failed]"):
		check(fmt.Errorf("%s does not build:\n%s", name, out))
	case strings.Contains(out, "test timed out"): // a deadlock in virtual time is found at once, and is a failure as any other
		return "hangs", false
	case column(name) == columns[0]:
		if world == nil {
			return "failed otherwise", false
		}
		return world[1], true
	case name == search:
		return "found", path != nil
	case tests == nil:
		check(errors.New(out))
	}
	found = "`" + tests[0][1] + "`"
	if len(tests) > 1 {
		found += fmt.Sprint(" +", len(tests)-1)
	}
	return found, true
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}
