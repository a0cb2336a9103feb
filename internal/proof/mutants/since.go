package main

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
)

// landing is how much older than HEAD the last landed commit is at least, where nothing says which
// one it is.
const landing = 6 * time.Hour

// selectChanged returns the mutants of what has changed since a commit: their code, their row in
// the table, or a test that must catch them. It tells which and why.
func selectChanged(all []mutant, base string) ([]mutant, error) {
	base, why, err := baseCommit(base)
	if err != nil {
		return nil, err
	}
	files, err := git("diff", "--name-only", base)
	if err != nil {
		return nil, err
	}
	before, err := rowsAt(base)
	if err != nil {
		return nil, err
	}
	fmt.Printf("mutants of what has changed since %s (%s); all others run in make nightly\n", base, why)
	changed := strings.Fields(files)
	var selected []mutant
	for _, m := range all {
		if because := reason(m, changed, before[m.name]); because != "" {
			fmt.Printf("  %s: %s\n", m.name, because)
			selected = append(selected, m)
		}
	}
	return selected, nil
}

// rowsAt are the mutants of a commit, by their names.
func rowsAt(commit string) (map[string]mutant, error) {
	names, err := git("ls-tree", "--name-only", commit, "internal/proof/mutants/rows/")
	if err != nil {
		return nil, err
	}
	all := make(map[string]mutant)
	for name := range strings.FieldsSeq(names) {
		text, err := git("show", commit+":"+name)
		if err != nil {
			return nil, err
		}
		some, err := parse(text)
		if err != nil {
			return nil, fmt.Errorf("%s at %s: %w", name, commit, err)
		}
		for _, m := range some {
			all[m.name] = m
		}
	}
	return all, nil
}

// reason tells why a mutant is to run, or nothing. before is its row at the commit.
func reason(m mutant, changed []string, before mutant) string {
	for _, e := range m.edits {
		if slices.Contains(changed, e.file) {
			return e.file + " has changed"
		}
	}
	sameCheck := func(a, b check) bool { return a.name == b.name } // whatever it found
	switch {
	case before.name == "":
		return "it is new"
	case before.promise != m.promise, !slices.Equal(before.edits, m.edits),
		!slices.EqualFunc(before.by, m.by, sameCheck):
		return "its row has changed"
	}
	for _, c := range m.by {
		pkg, matches := testsThatCatch(c.name)
		if matches == nil {
			continue
		}
		for _, file := range changed {
			if path.Dir(file) != path.Clean(pkg) || !strings.HasSuffix(file, "_test.go") {
				continue
			}
			for _, test := range testsIn(file) {
				if matches.MatchString(test) {
					return file + " has changed, which has " + test
				}
			}
		}
	}
	return ""
}

// testsIn are the tests in a file. A file that is gone has none.
func testsIn(file string) (tests []string) {
	body, _ := os.ReadFile(file)
	for _, f := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w+)`).FindAllSubmatch(body, -1) {
		tests = append(tests, string(f[1]))
	}
	return tests
}

// baseCommit returns the commit that changes are counted from: the one that is named; where HEAD
// has left origin/main, where it did so; else the last one that is older than HEAD by [landing].
func baseCommit(named string) (commit, why string, err error) {
	if named != "" {
		commit, err = git("rev-parse", "--verify", "--short", named+"^{commit}")
		return commit, named, err
	}
	head, err := git("rev-parse", "HEAD")
	if err != nil {
		return "", "", err
	}
	if left, err := git("merge-base", "HEAD", "origin/main"); err == nil && left != head {
		return left[:12], "where HEAD left origin/main", nil
	}
	date, err := git("log", "-1", "--format=%cI", "HEAD")
	if err != nil {
		return "", "", err
	}
	at, err := time.Parse(time.RFC3339, date)
	if err != nil {
		return "", "", err
	}
	commit, err = git("rev-list", "-1", "--abbrev-commit", "--before="+at.Add(-landing).Format(time.RFC3339), "HEAD")
	if err == nil && commit == "" {
		commit, err = git("rev-list", "--max-parents=0", "--abbrev-commit", "HEAD")
	}
	return commit, fmt.Sprintf("the last commit that is %v older than HEAD", landing), err
}

func git(args ...string) (string, error) {
	out, err := exec.Command("git", args...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}
