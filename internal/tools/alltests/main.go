// Command alltests runs the tests of all modules of the workspace side by side, because most of
// their time is waiting for leases to run out. It prints a line for each package that ends, a line
// every ten seconds about what is running, the output of each test that fails, and in the end what
// took longest and which tests did not run for want of a server. At short size it runs what has
// failed a second time, so that chance does not stop a change; what passes only then is named FLAKY
// in the last lines.
//
// A package may take as long as it needs, because a busy machine is no fault of it. Once its tests
// neither start, nor print, nor end for too long, it is stopped, and shows its goroutines.
//
// gotestsum 1.13.0 cannot replace this program. It prints nothing until a package has ended, runs
// nothing again after a panic, and does not report which skipped tests need a server. It runs one
// go test, where alltests runs two side by side, one of them with the race detector.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/leasehold-go/leasehold/internal/testkit/testsize"
)

const (
	module  = "github.com/leasehold-go/leasehold"
	silence = 10 * time.Second // no terminal is silent for longer
	most    = 15               // lines of what took longest; failures that may be chance
)

// withoutRace are the directories whose tests start programs, render pages or run on one goroutine.
// Their code is tested with the race detector where it is defined.
var withoutRace = []string{"itest", "cmd", "bench", "docs", "examples", "azblobstore", "internal/tools",
	"internal/proof/invariant", "internal/proof/mutants"}

// first are the packages that take longest, so they start first.
var first = []string{"itest", "cmd/leasehold", "", "gcsstore", "k8slock", "internal/proof/sim", "gocronlock"}

func main() {
	short := flag.Bool("short", false, "leave out the tests that need a server")
	at := flag.Int("p", 2, "packages that are tested at once with the race detector, and as many without it")
	// Several times what the slowest test takes on two busy cores. By night tests are longer.
	patience := flag.Duration("patience", testsize.Pick(10*time.Minute, time.Hour),
		"stop a package once none of its tests has started, printed or ended for this time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *short, *at, *patience, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "alltests:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, short bool, at int, patience time.Duration, patterns []string) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)

	packages, err := list(patterns)
	if err != nil {
		return err
	}
	skipped, err := os.CreateTemp("", "leasehold-skipped")
	if err != nil {
		return err
	}
	defer os.Remove(skipped.Name())
	defer skipped.Close()
	// By default a program with the race detector sleeps for a second at its end, and some tests
	// start theirs fifty times.
	if err := errors.Join(os.Setenv("LEASEHOLD_SKIPPED", skipped.Name()),
		os.Setenv("GORACE", cmp.Or(os.Getenv("GORACE"), "atexit_sleep_ms=50"))); err != nil {
		return err
	}

	if testsize.Full() { // by night nothing waits for it, so each package has the machine for itself
		at = 1
	}
	args := []string{"test", "-json", fmt.Sprint("-p=", at), "-timeout=0", "-vet=off"} // "make lint" vets
	if short {
		args = append(args, "-short")
	}
	race := haveRace()
	if !race {
		fmt.Println("no C compiler: testing without -race")
	}
	var plain, raced []string
	for _, p := range packages {
		if race && !slices.ContainsFunc(withoutRace, func(d string) bool {
			return dir(p) == d || strings.HasPrefix(dir(p), d+"/")
		}) {
			raced = append(raced, p)
		} else {
			plain = append(plain, p)
		}
	}

	b := newBoard(len(packages))
	done := make(chan struct{})
	go b.beat(done, patience, stop)
	var wg sync.WaitGroup
	errs := make([]error, 2)
	start := func(i int, packages []string, flags ...string) {
		if len(packages) > 0 {
			wg.Go(func() { errs[i] = b.test(ctx, slices.Concat(args, flags, packages)) })
		}
	}
	start(0, plain)
	if testsize.Full() {
		wg.Wait()
	}
	start(1, raced, "-race")
	wg.Wait()
	err = errors.Join(errs...)
	if err != nil && ctx.Err() == nil && !testsize.Full() {
		err = b.again(err, func(pkg, pattern string) error {
			flags := []string{"-count=1", "-run=" + pattern, pkg}
			if slices.Contains(raced, pkg) {
				flags = append([]string{"-race"}, flags...)
			}
			return b.test(ctx, slices.Concat(args, flags))
		})
	}
	close(done)

	b.summary()
	body, failed := os.ReadFile(skipped.Name())
	if names := strings.Fields(string(body)); len(names) > 0 {
		slices.Sort(names)
		fmt.Println("NOT RUN, for want of a Docker engine, Azurite, the Ceph gateway, nginx, HAProxy, z3, root or a "+
			"control group:",
			strings.Join(slices.Compact(names), " "))
	}
	return errors.Join(err, failed, context.Cause(ctx))
}

// list returns the packages with tests that the patterns name, by default the packages of the whole
// workspace. What takes longest comes first.
func list(patterns []string) ([]string, error) {
	if len(patterns) == 0 {
		out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}/...").Output()
		if err != nil {
			return nil, fmt.Errorf("listing the modules: %w", err)
		}
		patterns = strings.Fields(string(out))
	}
	cmd := exec.Command("go", append([]string{"list", "-f", "{{if or .TestGoFiles " +
		".XTestGoFiles}}{{.ImportPath}}{{end}}"}, patterns...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("listing the packages: %w", err)
	}
	packages := strings.Fields(string(out))
	if len(packages) == 0 {
		return nil, fmt.Errorf("no package in %q has tests", patterns)
	}
	place := func(p string) int {
		if i := slices.Index(first, dir(p)); i >= 0 {
			return i
		}
		return len(first)
	}
	slices.SortStableFunc(packages, func(a, b string) int { return place(a) - place(b) })
	return packages, nil
}

// dir is the directory of a package below the root.
func dir(importPath string) string {
	return strings.TrimPrefix(strings.TrimPrefix(importPath, module), "/")
}

// haveRace reports whether the race detector can be built, which needs a C compiler.
func haveRace() bool {
	out, err := exec.Command("go", "env", "CC").Output()
	if err != nil {
		return false
	}
	_, err = exec.LookPath(strings.TrimSpace(string(out)))
	return err == nil && os.Getenv("CGO_ENABLED") != "0"
}

// event is what "go test -json" reports: see "go doc test2json".
type event struct {
	Action, Package, Test, Output, ImportPath, FailedBuild string
	Elapsed                                                float64
}

type key struct{ pkg, test string }

func (k key) String() string { return strings.TrimSpace(cmp.Or(dir(k.pkg), ".") + " " + k.test) }

// board is what is known of all tests. Its methods are safe for concurrent use.
type board struct {
	mu       sync.Mutex
	began    time.Time
	told     time.Time // when a line was last printed
	packages int
	done     int
	running  map[key]time.Time
	heard    map[string]time.Time // when a package that is running last reported anything
	output   map[key][]string     // of tests that have not passed
	took     map[key]float64
	passed   int
	failed   []key
	flaky    []key           // failed at first, and passed when run again
	broken   map[string]bool // packages that do not build
	cut      map[string]bool // packages that ended before all their tests had run
	skipped  int
}

func newBoard(packages int) *board {
	now := time.Now()
	return &board{began: now, told: now, packages: packages, running: map[key]time.Time{},
		heard: map[string]time.Time{}, output: map[key][]string{}, took: map[key]float64{},
		broken: map[string]bool{}, cut: map[string]bool{}}
}

// test runs "go test" and returns its error.
func (b *board) test(ctx context.Context, args []string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	if !slices.Contains(args, "-race") { // as the servers, the linter and the published program are compiled
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // so that the go command stops its tests
	cmd.WaitDelay = 10 * time.Second
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	lines := bufio.NewReader(pipe)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil {
				e = event{Action: "output", Output: string(line)}
			}
			b.see(e)
		}
		if err != nil {
			break
		}
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("go test: %w", err)
	}
	return nil
}

// see takes note of an event, and prints what people need to know at once.
func (b *board) see(e event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := key{cmp.Or(e.Package, e.ImportPath), e.Test}
	if e.Package != "" {
		b.heard[k.pkg] = time.Now()
	}
	switch e.Action {
	case "start", "run", "cont":
		b.running[k] = time.Now()
	case "pause":
		delete(b.running, k)
	case "output", "build-output":
		if strings.HasPrefix(e.Output, "=== ") {
			return
		}
		if strings.HasPrefix(e.Output, "panic: ") || strings.HasPrefix(e.Output, "fatal error: ") ||
			strings.HasPrefix(e.Output, "SIGQUIT: ") {
			b.cut[k.pkg] = true
		}
		b.output[k] = append(b.output[k], e.Output)
	case "build-fail":
		b.print(strings.Join(b.output[k], ""))
		delete(b.output, k)
	case "pass", "skip":
		b.end(e, k)
		if e.Test == "" && (e.Action == "pass" || e.Elapsed > 0) {
			note := ""
			if slices.ContainsFunc(b.output[k], func(s string) bool { return strings.Contains(s, "(cached)") }) {
				note = "  (cached)"
			}
			b.print(fmt.Sprintf("ok    %6.1fs  %s%s\n", e.Elapsed, k.pkg, note))
		}
		delete(b.output, k)
	case "fail":
		b.end(e, k)
		b.failed = append(b.failed, k)
		b.broken[k.pkg] = b.broken[k.pkg] || e.FailedBuild != ""
		text := strings.Join(b.output[k], "")
		if e.Test == "" {
			for other, lines := range b.output { // of tests that a panic or a time-out ended
				if other.pkg == k.pkg && other.test != "" {
					text += strings.Join(lines, "")
					delete(b.output, other)
				}
			}
		}
		b.print(text)
		delete(b.output, k)
		if e.Test == "" {
			b.print(fmt.Sprintf("FAIL  %6.1fs  %s\n", e.Elapsed, k.pkg))
		}
	}
}

// again runs what has failed a second time by run, which gets a package and the pattern of its
// tests. It returns err if something fails again, does not build, or if too much has failed.
func (b *board) again(err error, run func(pkg, pattern string) error) error {
	tests := make(map[string][]string)
	for _, k := range b.failed {
		name, _, _ := strings.Cut(k.test, "/")
		if !slices.Contains(tests[k.pkg], name) {
			tests[k.pkg] = append(tests[k.pkg], name)
		}
	}
	var n int
	for pkg, names := range tests {
		if n += len(names); n > most || b.broken[pkg] {
			return err
		}
	}
	before := b.failed
	b.failed = nil
	var errs []error
	for _, pkg := range slices.Sorted(maps.Keys(tests)) {
		names := slices.DeleteFunc(tests[pkg], func(name string) bool { return name == "" })
		pattern := "^(" + strings.Join(names, "|") + ")$"
		if len(names) == 0 || b.cut[pkg] { // it is not known which of its tests have run
			pattern = "."
		}
		fmt.Printf("again: %s %s\n", cmp.Or(dir(pkg), "."), pattern)
		errs = append(errs, run(pkg, pattern))
	}
	for _, k := range before {
		if !slices.ContainsFunc(b.failed, func(f key) bool { return f.pkg == k.pkg }) {
			b.flaky = append(b.flaky, k)
		}
	}
	return errors.Join(errs...)
}

// end takes note of the end of a test, or of a package where the event names no test.
func (b *board) end(e event, k key) {
	delete(b.running, k)
	b.took[k] = e.Elapsed
	switch {
	case e.Test == "":
		b.done++
		delete(b.heard, k.pkg)
		for other := range b.running {
			if other.pkg == k.pkg {
				delete(b.running, other)
			}
		}
	case e.Action == "pass":
		b.passed++
	case e.Action == "skip":
		b.skipped++
	}
}

func (b *board) print(text string) {
	b.told = time.Now()
	fmt.Print(text)
}

// beat reports every ten seconds what is running, and stops what has been silent for too long.
func (b *board) beat(done <-chan struct{}, patience time.Duration, stop context.CancelCauseFunc) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		b.mu.Lock()
		if time.Since(b.told) >= silence {
			b.print(b.status())
		}
		for pkg, at := range b.heard {
			if time.Since(at) < patience {
				continue
			}
			b.heard[pkg] = time.Now()
			why := fmt.Errorf("stopped %s: none of its tests has started, printed or ended for %v", pkg, patience)
			b.print(b.status() + why.Error() + "\n")
			if !quit(pkg) {
				stop(why)
			}
		}
		b.mu.Unlock()
	}
}

// quit ends the test program of a package by the signal that makes it print all goroutines, and by
// force if that is not enough. It reports whether it has found it, which takes Linux.
func quit(pkg string) (found bool) {
	programs, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, exe := range programs {
		info, err := buildinfo.ReadFile(exe)
		env, _ := os.ReadFile(filepath.Dir(exe) + "/environ")
		if err != nil || info.Path != pkg+".test" || !bytes.Contains(env, []byte(os.Getenv("LEASEHOLD_SKIPPED"))) {
			continue // another's; that file has another name in each run
		}
		id, _ := strconv.Atoi(filepath.Base(filepath.Dir(exe)))
		if p, err := os.FindProcess(id); err == nil && p.Signal(syscall.SIGQUIT) == nil {
			time.AfterFunc(silence, func() { _ = p.Kill() })
			found = true
		}
	}
	return found
}

// status is one line: the tests that have been running for longest, one or two for each package.
func (b *board) status() string {
	tests := make(map[string][]key)
	for k := range b.running {
		tests[k.pkg] = append(tests[k.pkg], k)
	}
	var parts []string
	for pkg, keys := range tests {
		slices.SortFunc(keys, func(x, y key) int { return b.running[x].Compare(b.running[y]) })
		keys = slices.DeleteFunc(keys, func(k key) bool { return k.test == "" && len(keys) > 1 })
		part := cmp.Or(dir(pkg), "the root package")
		if last := keys[0]; last.test != "" {
			part += fmt.Sprintf(" %s (%.0fs)", last.test, time.Since(b.running[last]).Seconds())
		}
		parts = append(parts, part)
	}
	slices.Sort(parts)
	what := "building"
	if len(parts) > 0 {
		what = "running " + strings.Join(parts, ", ")
	}
	return fmt.Sprintf("      %4.0fs  %d of %d packages done, %s\n", time.Since(b.began).Seconds(),
		b.done, b.packages, what)
}

// summary reports what took longest, what failed, and how many tests there were.
func (b *board) summary() {
	slowest := func(what string, of func(test string) bool) {
		keys := slices.DeleteFunc(slices.Collect(maps.Keys(b.took)), func(k key) bool { return !of(k.test) })
		slices.SortFunc(keys, func(x, y key) int { return cmp.Compare(b.took[y], b.took[x]) })
		fmt.Printf("slowest %s:\n", what)
		for _, k := range keys[:min(most, len(keys))] {
			fmt.Printf("      %6.1fs  %s\n", b.took[k], k)
		}
	}
	slowest("packages", func(test string) bool { return test == "" })
	slowest("tests", func(test string) bool { return test != "" && !strings.Contains(test, "/") })
	tell := func(what string, keys []key) {
		slices.SortFunc(keys, func(x, y key) int { return cmp.Compare(x.String(), y.String()) })
		for _, k := range slices.Compact(keys) {
			fmt.Println(what, k)
		}
	}
	tell("FLAKY:", b.flaky)
	tell("FAILED:", b.failed)
	fmt.Printf("%.0f s\n%d passed, %d failed, %d skipped\n", time.Since(b.began).Seconds(), b.passed,
		len(b.failed), b.skipped)
}
