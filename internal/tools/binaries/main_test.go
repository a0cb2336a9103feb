package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/testkit/testsize"
)

// The program that is published runs, and the file of checksums is right. At full size, it is built
// for all systems.
func TestBuild(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the program, which takes minutes once")
	}
	t.Chdir(filepath.Join("..", "..", ".."))
	dir, here := t.TempDir(), runtime.GOOS+"/"+runtime.GOARCH
	on := []string{here}
	if testsize.Full() {
		on = nil
	}
	require.NoError(t, build(dir, on, ""))
	file := "leasehold-" + runtime.GOOS + "-" + runtime.GOARCH
	sums, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	require.NoError(t, err)
	require.Regexp(t, "(?m)^[0-9a-f]{64}  "+file+"$", string(sums))
	if _, err := exec.LookPath("sha256sum"); err == nil {
		check := exec.CommandContext(t.Context(), "sha256sum", "-c", "SHA256SUMS")
		check.Dir = dir
		out, err := check.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(dir, file), "--version").CombinedOutput()
	require.NoError(t, err, "%s", out)
	if info, err := os.Stat(".git"); err == nil && info.IsDir() {
		commit, err := exec.CommandContext(t.Context(), "git", "rev-parse", "--short=12", "HEAD").Output()
		require.NoError(t, err)
		require.Regexp(t, `^leasehold v\d+\.\d+\.\d+(-.*`+strings.TrimSpace(string(commit))+
			`)?(\+dirty)?\n$`, string(out))
	}
	require.ErrorContains(t, build(dir, []string{here}, "v9.9.9"), "not v9.9.9: build it from that tag")
	require.ErrorContains(t, build(dir, []string{"linux"}, ""), "linux/amd64")
}

// A program that needs the system's loader is refused.
func TestStatic(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil || runtime.GOOS != "linux" {
		t.Skip("needs a C compiler on Linux")
	}
	source, program := filepath.Join(t.TempDir(), "a.c"), filepath.Join(t.TempDir(), "a")
	require.NoError(t, os.WriteFile(source, []byte("int main(void) { return 0; }\n"), 0o600))
	require.NoError(t, exec.CommandContext(t.Context(), "gcc", "-o", program, source).Run())
	require.ErrorContains(t, static("linux", program), "not static")
}
