// Command mutants plants classic mistakes of distributed locks in a copy of the code, one at a
// time, and runs the checks that must catch each, every check alone: the simulation, the exhaustive
// search, tests on real servers, or other tests. A mutant that a check lets pass is a gap and makes
// the command fail. So does a check that fails without a mutant.
package main

import (
	"bytes"
	"context"
	"encoding/json"
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
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/internal/testkit/testsize"
)

func main() {
	seeds := flag.Int("seeds", 4000, "number of simulated worlds for each mutant; a quarter as many of fenced writes")
	only := flag.String("only", "", "run only mutants whose name contains this text, or one of several with | "+
		"between them")
	changed := flag.Bool("changed", false, "run only mutants of what has changed since -base")
	base := flag.String("base", "", "a commit; by default the last one that has landed: see since.go")
	within := flag.Duration("within", 0, "leave mutants out, and name them, when this time is up; 0 is no limit")
	results := flag.String("results", "", "a file that keeps what was caught, so that a run that was ended goes on "+
		"where it was")
	passed := flag.Bool("passed", false, "all checks have just passed on this code, so they need not run without a "+
		"mutant first")
	keep := flag.Bool("record", false, "write what was found into the rows, and the page")
	flag.Parse()
	must(badRow)
	selected := slices.DeleteFunc(slices.Clone(mutants), func(m mutant) bool {
		return !slices.ContainsFunc(strings.Split(*only, "|"), func(text string) bool {
			return strings.Contains(m.name, text)
		})
	})
	if *changed {
		var err error
		selected, err = selectChanged(selected, *base)
		must(err)
	}
	found, ok := map[string]result(nil), true
	if len(selected) > 0 {
		found, ok = run(selected, *seeds, *within, *results, *passed)
	} else {
		fmt.Println("mutants: none to run")
	}
	if *keep {
		for i, m := range mutants {
			for j := range found[m.name].Found {
				mutants[i].by[j].found = found[m.name].Found[j]
			}
		}
		must(write(mutants))
	}
	if !ok {
		os.Exit(1)
	}
}

// result is what the checks of a mutant found.
type result struct {
	Name   string
	Found  []string
	Missed []string
}

// run runs mutants, two at a time, and returns what was found of each, and whether each was caught
// by each of its checks.
func run(selected []mutant, seeds int, within time.Duration, resultsFile string, passed bool) (
	done map[string]result, ok bool,
) {
	began := time.Now()
	done, record := earlier(resultsFile)
	selected = slices.Clone(selected)
	todo := slices.DeleteFunc(slices.Clone(selected), func(m mutant) bool { _, ok := done[m.name]; return ok })
	fmt.Fprintf(os.Stderr, "mutants: %d to run, %d of them done earlier\n", len(selected), len(selected)-len(todo))

	root, err := os.Getwd()
	must(err)
	dir, err := os.MkdirTemp("", "mutants")
	must(err)
	defer func() { _ = os.RemoveAll(dir) }()

	var mu sync.Mutex
	var left []string
	var broken []string
	var clean []string
	if !passed {
		clean = allChecks(todo)
	}
	jobs := make(chan func(r *runner))
	var wg sync.WaitGroup
	for i := range 2 {
		r := &runner{dir: filepath.Join(dir, fmt.Sprint(i)), seeds: seeds}
		must(copyCode(r.dir, root))
		wg.Go(func() {
			for job := range jobs {
				job(r)
			}
		})
	}
	var cleaned sync.WaitGroup
	for _, c := range clean {
		cleaned.Add(1)
		jobs <- func(r *runner) {
			defer cleaned.Done()
			if what, caught := r.run(c); caught || what != "" {
				mu.Lock()
				defer mu.Unlock()
				broken = append(broken, fmt.Sprintf("%s fails without a mutant: %s", c, what))
			}
		}
	}
	cleaned.Wait()
	if len(broken) == 0 {
		fmt.Fprintf(os.Stderr, "mutants: %4.0fs  all checks pass without a mutant\n", time.Since(began).Seconds())
		for i, m := range todo {
			jobs <- func(r *runner) {
				if within > 0 && time.Since(began) > within {
					mu.Lock()
					defer mu.Unlock()
					left = append(left, m.name)
					return
				}
				start := time.Now()
				found, missed := r.try(m)
				mu.Lock()
				defer mu.Unlock()
				done[m.name] = result{m.name, found, missed}
				record(done[m.name])
				verdict := "caught"
				if len(missed) > 0 {
					verdict = "MISSED"
				}
				fmt.Fprintf(os.Stderr, "mutants: %4.0fs  %d of %d  %s in %.1f s: %s\n", time.Since(began).Seconds(), i+
					1, len(todo), verdict, time.Since(start).Seconds(), m.name)
			}
		}
	}
	close(jobs)
	wg.Wait()

	gaps := broken
	caught := 0
	for _, m := range selected {
		r, ok := done[m.name]
		if !ok {
			continue
		}
		fmt.Printf("%s: %s\n", m.name, strings.Join(r.Found, ", "))
		gaps = append(gaps, r.Missed...)
		if len(r.Missed) == 0 {
			caught++
		}
	}
	if len(left) > 0 {
		fmt.Printf("%d mutants left to the nightly run, because %v were up: %s\n", len(left), within,
			strings.Join(left, "; "))
	}
	fmt.Printf("%d of %d mutants caught, in %.0f s\n", caught, len(selected), time.Since(began).Seconds())
	for _, g := range gaps {
		fmt.Fprintln(os.Stderr, "mutants:", g)
	}
	return done, len(gaps) == 0
}

// earlier reads the results of a run that was ended, and returns how to add to them. Mutants that
// were missed run again.
func earlier(file string) (done map[string]result, record func(result)) {
	done = make(map[string]result)
	if file == "" {
		return done, func(result) {}
	}
	body, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		must(err)
	}
	for line := range bytes.Lines(body) {
		var r result
		if json.Unmarshal(line, &r) == nil && len(r.Missed) == 0 {
			done[r.Name] = r
		}
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	must(err)
	return done, func(r result) {
		line, err := json.Marshal(r)
		must(err)
		_, err = f.Write(append(line, '\n'))
		must(err)
	}
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
		case name == ".git" || name == ".bin" || name == ".nightly":
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
			if pkg, pattern, ok := strings.Cut(c.name, " -run "); ok {
				patterns[pkg] = append(patterns[pkg], pattern)
			} else if !slices.Contains(checks, c.name) {
				checks = append(checks, c.name)
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
	built map[string]string // the test binary of a package, as long as the code stays as it is
}

// try plants the mutant, runs its checks, and restores the code. It returns what each check found,
// and which did not catch the mutant.
func (r *runner) try(m mutant) (found, missed []string) {
	r.built = nil
	defer func() { r.built = nil }()
	for _, e := range m.edits {
		path := filepath.Join(r.dir, e.file)
		body, err := os.ReadFile(path)
		must(err)
		planted, err := e.plant(body)
		if err != nil {
			must(fmt.Errorf("mutant %q: %w", m.name, err))
		}
		must(os.WriteFile(path, planted, 0o644))
		defer func() { must(os.WriteFile(path, body, 0o644)) }()
	}
	for _, c := range m.by {
		what, caught := r.run(c.name)
		if !caught {
			missed = append(missed, strings.TrimSuffix(fmt.Sprintf("%q: %s did not catch it: %s", m.name, c.name, what),
				": "))
			what = "**nothing**"
		}
		found = append(found, what)
	}
	return found, missed
}

// errBuild says that a mutant is no Go, so nothing can catch it.
var errBuild = errors.New("does not build")

var (
	explored = regexp.MustCompile(`explore_test.go:\d+: ([a-zA-Z].*)`)
	after    = regexp.MustCompile(`after (\d+) worlds, seed`)
	refused  = regexp.MustCompile(`trace: (?:(\w+)\[[\d, ]*\] is not a step of the protocol: (.*) does not hold|` +
		`\S+ (begins|writes) token \d+, (?:and no reason holds|of which it has neither))`)
	failed   = regexp.MustCompile(`(?:--- FAIL: |Fail in goroutine after )(\w+)`)
	panicked = regexp.MustCompile(`(?m)^panic: .*`)
)

// run runs a check, and returns what it found and whether it failed as it should. Tests that run
// out of time prove nothing.
func (r *runner) run(name string) (found string, caught bool) {
	env, pkg := "", "./internal/proof/sim"
	var args []string
	switch name {
	case worlds:
		env, args = fmt.Sprint("SEEDS=", r.seeds), []string{"-test.run=TestSeeds"}
	case fencedWorlds:
		env, args = fmt.Sprint("FENCED=", r.seeds/4), []string{"-test.run=TestFencedSeeds"}
	case search:
		pkg, args = "./internal/proof/explore", []string{"-test.failfast",
			"-test.run=TestAll/(no_faults|an_abandoned|a_suspend|a_fault)"}
	default:
		var pattern string
		pkg, pattern, _ = strings.Cut(name, " -run ")
		args = []string{"-test.run=" + pattern}
	}
	out, err := r.test(pkg, env, args)
	if err == nil {
		if strings.Contains(out, "no tests to run") {
			must(fmt.Errorf("there are no tests %s", name))
		}
		return "", false
	}
	if errors.Is(err, errBuild) {
		return fmt.Sprintf("%s %v: %s", pkg, err, out), false
	}
	found, caught, ok := judge(name, out)
	if !ok {
		must(fmt.Errorf("%s: %w\n%s", name, err, out))
	}
	return found, caught
}

// invariant is in the text of a panic by which locktable refuses to send a write.
const invariant = "an invariant would be broken"

// judge says what the output of a check that has failed tells: what it found, and whether that is a
// catch. It is not ok if nothing tells why the check has failed. A panic ends a process before it
// says which of its tests or worlds it was.
func judge(name, out string) (found string, caught, ok bool) {
	tests, panics := failed.FindAllStringSubmatch(out, -1), panicked.FindString(out)
	world, path := after.FindStringSubmatch(out), explored.FindStringSubmatch(out)
	switch {
	// a deadlock in virtual time is found at once, and is a failure as any other
	case strings.Contains(out, "test timed out"):
		return "hangs", false, true
	case world == nil && strings.Contains(panics, invariant):
		return "an invariant", true, true
	case column(name) == columns[0]:
		if world == nil {
			return "failed otherwise: " + out[max(0, len(out)-500):], false, true
		}
		found = world[1]
		switch step := refused.FindStringSubmatch(out); {
		case step == nil:
		case step[1] != "":
			found += fmt.Sprintf(": %s, `%s`", step[1], step[2])
		case step[3] == "begins":
			found += ": acquire"
		default:
			found += ": a write by whoever has no lease"
		}
		return found, true, true
	case column(name) == columns[1]:
		return "found", path != nil, true
	case tests == nil && panics != "":
		return "a panic", true, true
	case tests == nil:
		return "", false, false
	}
	found = "`" + tests[0][1] + "`"
	if len(tests) > 1 {
		found += fmt.Sprint(" +", len(tests)-1)
	}
	return found, true, true
}

// test builds the tests of a package, unless they are built, and runs some of them in the package's
// directory.
func (r *runner) test(pkg, env string, args []string) (out string, err error) {
	binary, ok := r.built[pkg]
	if !ok {
		binary = filepath.Join(r.dir, strings.NewReplacer(".", "", "/", "-").Replace(pkg)+".test")
		// -trimpath: both copies share the build cache
		build := exec.Command("go", "test", "-c", "-trimpath", "-vet=off", "-ldflags=-s -w", "-o", binary, pkg)
		build.Dir = r.dir
		if out, err := build.CombinedOutput(); err != nil {
			return string(out), errBuild
		}
		if r.built == nil {
			r.built = make(map[string]string)
		}
		r.built[pkg] = binary
	}
	limit := testsize.Pick(5*time.Minute, 15*time.Minute)
	ctx, cancel := context.WithTimeout(context.Background(), limit+time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, append([]string{"-test.timeout=" + limit.String()}, args...)...)
	cmd.Dir, cmd.Env = filepath.Join(r.dir, pkg), append(os.Environ(), env)
	if pkg != "./itest" { // whose tests take minutes at full size, and catch the same
		cmd.Env = append(cmd.Env, "LEASEHOLD_SIZE=full")
	}
	cmd.WaitDelay = 10 * time.Second
	body, err := cmd.CombinedOutput()
	return string(body), err
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}
