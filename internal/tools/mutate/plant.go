package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// support is what the code of the mutants calls.
const support = `package %s

import (
	"cmp"
	"os"
	"strconv"
)

var mutActive, _ = strconv.Atoi(os.Getenv("MUT"))

func mutOn(n int) bool { return n == mutActive }

func mutLess[T cmp.Ordered](orEqual bool, x, y T) bool { return x < y || orEqual && x == y }

func mutMore[T cmp.Ordered](orEqual bool, x, y T) bool { return x > y || orEqual && x == y }
`

var compileError = regexp.MustCompile(`(?m)^\./([^:\n]+):(\d+):`)

// plant writes all mutants of the package in dir into its files, except those that do not compile, and returns those that do.
func plant(dir string) (all []*mutant, dropped int, err error) {
	out, err := command(dir, "go", "list", "-f", `{{.Name}} {{join .GoFiles " "}}`, ".").Output()
	if err != nil {
		return nil, 0, err
	}
	pkg, names := strings.Fields(string(out))[0], strings.Fields(string(out))[1:]
	texts, mutants := make(map[string][]byte), make(map[string][]*mutant)
	next := 1
	for _, name := range names {
		if texts[name], mutants[name], err = find(filepath.Join(dir, name), next); err != nil {
			return nil, 0, err
		}
		next += len(mutants[name])
	}
	if err := os.WriteFile(filepath.Join(dir, "zz_mutate.go"), fmt.Appendf(nil, support, pkg), 0o644); err != nil {
		return nil, 0, err
	}
	for {
		for _, name := range names {
			if err := os.WriteFile(filepath.Join(dir, name), render(texts[name], mutants[name]), 0o644); err != nil {
				return nil, 0, err
			}
		}
		out, err := command(dir, "go", "build", "-gcflags=-e", "-o", os.DevNull, ".").CombinedOutput()
		if err == nil {
			for _, name := range names {
				all = append(all, mutants[name]...)
			}
			return all, next - 1 - len(all), nil
		}
		guilty := make(map[*mutant]bool)
		for _, found := range compileError.FindAllSubmatch(out, -1) {
			line, _ := strconv.Atoi(string(found[2]))
			for _, m := range suspects(mutants[string(found[1])], line) {
				guilty[m] = true
			}
		}
		if len(guilty) == 0 {
			return nil, 0, fmt.Errorf("the code does not build: %w\n%s", err, out)
		}
		for _, name := range names {
			mutants[name] = slices.DeleteFunc(mutants[name], func(m *mutant) bool { return guilty[m] })
		}
	}
}

// suspects are the mutants in the line of a compile error, or else in the nearest line above: a missing return is reported at the end of
// the function.
func suspects(mutants []*mutant, line int) (list []*mutant) {
	nearest := 0
	for _, m := range mutants {
		if m.pos.Line <= line {
			nearest = max(nearest, m.pos.Line)
		}
	}
	for _, m := range mutants {
		if m.pos.Line == nearest {
			list = append(list, m)
		}
	}
	return list
}

// render is the text with the mutants in it. Lines stay where they were.
func render(text []byte, mutants []*mutant) []byte {
	var edits []edit
	for _, m := range mutants {
		edits = append(edits, m.edits...)
	}
	slices.SortFunc(edits, func(a, b edit) int {
		nesting := a.n - b.n // outer ones begin first and end last
		if a.side < 0 {
			nesting = -nesting
		}
		return cmp.Or(a.at-b.at, a.side-b.side, nesting)
	})
	var out bytes.Buffer
	at := 0
	for _, e := range edits {
		out.Write(text[at:e.at])
		out.WriteString(e.text)
		at = e.at + e.cut
	}
	out.Write(text[at:])
	return out.Bytes()
}

func command(dir, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	return cmd
}
