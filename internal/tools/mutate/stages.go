package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// slow is what takes too long for the fast tests.
const slow = 200 * time.Millisecond

type outcome string

const (
	survived outcome = "survived"
	killed   outcome = "killed"
	timedOut outcome = "timed out"
)

// stage is a run of a test binary. A later stage of the same kind contains an earlier one.
type stage struct {
	name, kind, dir, env string
	args                 []string
	limit                time.Duration
}

// run runs the stage with the mutant n on, or without one if n is 0.
func (s *stage) run(ctx context.Context, n int) (outcome, []byte) {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.args[0], s.args[1:]...)
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), fmt.Sprint("MUT=", n), s.env)
	cmd.WaitDelay = time.Second // should a child hold the output
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		return survived, out
	case ctx.Err() != nil:
		return timedOut, out
	}
	return killed, out
}

// try runs the stages until one fails. A mutant that hangs in one and fails in none has timed out.
func try(ctx context.Context, stages []*stage, n int) (result outcome, where string, out []byte) {
	result = survived
	hung := make(map[string]bool)
	for _, s := range stages {
		if hung[s.kind] {
			continue // it would hang again
		}
		switch r, o := s.run(ctx, n); r {
		case killed:
			return killed, s.name, o
		case timedOut:
			result, where, out, hung[s.kind] = timedOut, s.name, o, true
		}
	}
	return result, where, out
}

// prepare builds the test binaries of the code in dir. It runs all stages without a mutant, for their time limits and the slow tests.
func prepare(ctx context.Context, dir string) ([]*stage, error) {
	root, sim, worlds := filepath.Join(dir, "root.test"), filepath.Join(dir, "sim.test"), filepath.Join(dir, "internal", "sim")
	for binary, pkg := range map[string]string{root: dir, sim: worlds} {
		if out, err := command(pkg, "go", "test", "-c", "-vet=off", "-o", binary, ".").CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%w\n%s", err, out)
		}
	}
	few := &stage{name: "30 worlds", kind: "worlds", dir: worlds, env: "SEEDS=30", args: []string{sim, "-test.run=^TestSeeds$"}}
	many := &stage{name: "300 worlds", kind: "worlds", dir: worlds, env: "SEEDS=300", args: few.args}
	all := &stage{name: "all short tests", kind: "tests", dir: dir, args: []string{root, "-test.short", "-test.failfast", "-test.v"}}
	fast := &stage{name: "fast tests", kind: "tests", dir: dir}
	for _, s := range []*stage{all, fast, few, many} {
		out, err := s.measure(ctx)
		if err != nil {
			return nil, err
		}
		if s == all {
			fast.args = append(slices.Clone(all.args), "-test.skip="+slowTests(out))
		}
	}
	return []*stage{few, fast, many, all}, nil
}

// measure runs the stage without a mutant, and sets its time limit.
func (s *stage) measure(ctx context.Context) (out []byte, err error) {
	began := time.Now()
	s.limit = 10 * time.Minute
	result, out := s.run(ctx, 0)
	if result != survived {
		return nil, fmt.Errorf("%s, without a mutant: %s\n%s", s.name, result, out)
	}
	s.limit = 5*time.Since(began) + 5*time.Second // several run at the same time
	return out, nil
}

var passed = regexp.MustCompile(`(?m)^--- PASS: (\w+) \((\S+)\)$`)

// slowTests is a pattern of those in the output of -test.v.
func slowTests(out []byte) string {
	var names []string
	for _, m := range passed.FindAllStringSubmatch(string(out), -1) {
		if took, err := time.ParseDuration(m[2]); err == nil && took > slow {
			names = append(names, m[1])
		}
	}
	return "^(" + strings.Join(names, "|") + ")$"
}
