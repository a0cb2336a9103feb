package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Each mutant of the tiny program changes just what it should, and there is one of each kind.
func TestMutantsOfATinyProgram(t *testing.T) {
	t.Setenv("GOWORK", "off")
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("testdata/tiny")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module tiny\n\ngo 1.26.0\n"), 0o644))
	mutants, dropped, err := plant(dir)
	require.NoError(t, err)
	binary := filepath.Join(dir, "tiny.exe")
	out, err := command(dir, "go", "build", "-gcflags=-e", "-o", binary, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	program := &stage{dir: dir, args: []string{binary}, limit: time.Minute}
	lines := func(n int) []string {
		result, out := program.run(t.Context(), n)
		require.Equal(t, survived, result, "%s", out)
		return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	}
	original := lines(0)
	require.Equal(t, []string{
		"true", "[false true false true] [true true false false]", "[false true true false] [false true false false]",
		"0", "z z", "{45}", "true false",
	}, original)
	require.Equal(t, 2, dropped, "a panic that ends a function with a result, and && of a named type")
	var got []string
	for _, m := range mutants {
		if filepath.Base(m.pos.Filename) == "main.go" {
			continue
		}
		what := fmt.Sprintf("%d: %s", m.pos.Line, m.what)
		for i, line := range lines(m.n) {
			if line != original[i] {
				what += ": " + line
			}
		}
		got = append(got, what)
	}
	require.Equal(t, `
10: != -> ==: false
10: > -> >=: false
14: removed: {1}
16: < -> <=: [true true false true] [true true false false]
16: <= -> <: [false false false true] [true true false false]
16: > -> >=: [false true true true] [true true false false]
16: >= -> >: [false true false false] [true true false false]
18: && -> ||: [true true true false] [true true false false]
18: || -> &&: [false false true false] [false false false false]
18: && -> ||: [false true true false] [false true true false]
18: || -> &&: [false true false false] [false true false false]
18: != -> ==: [false true false false] [false true false false]
18: == -> !=: [false true true true] [false true false true]
20: flipped: 1
20: < -> <=: 1
23: negated: x x
25: && -> ||: y y
25: > -> >=: y z
34: removed: {44}
34: removed: {44}
35: removed: {1}
37: == -> !=: {5}
38: removed: {5}
40: < -> <=: {89}
41: removed: {12}
46: flipped: false false
46: flipped: true true`, "\n"+strings.Join(got, "\n"))
}
