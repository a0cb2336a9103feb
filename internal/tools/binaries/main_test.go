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

// The program is built for all systems, that for this one runs, and the file of checksums is right.
// This takes minutes, because nothing else is compiled with -trimpath. A release builds them, too.
func TestBuild(t *testing.T) {
	if !testsize.Full() {
		t.Skip("it compiles the program and all that it imports")
	}
	t.Chdir(filepath.Join("..", "..", ".."))
	dir, here := t.TempDir(), runtime.GOOS+"/"+runtime.GOARCH
	require.NoError(t, build(dir, nil, ""))
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

// What a release has beside the programs is right, and is the same when it is made again.
func TestPack(t *testing.T) {
	if !testsize.Full() || runtime.GOOS != "linux" {
		t.Skip("it builds two tools, which takes minutes: set LEASEHOLD_SIZE=full to run it on Linux")
	}
	t.Chdir(filepath.Join("..", "..", ".."))
	dir := t.TempDir()
	program, err := compile(dir, "linux/"+runtime.GOARCH)
	require.NoError(t, err)
	files, err := pack(dir, []string{program}, "v0.1.0-rc.1")
	require.NoError(t, err)
	deb := filepath.Join(dir, "leasehold_0.1.0-rc.1_"+runtime.GOARCH+".deb")
	require.Equal(t, []string{program + ".cdx.json", deb}, files)
	var before [2]string
	for i, file := range files {
		body, err := os.ReadFile(file)
		require.NoError(t, err)
		before[i] = string(body)
	}
	require.Contains(t, before[0], `"bomFormat": "CycloneDX"`)
	require.Contains(t, before[0], "pkg:golang/github.com/aws/aws-sdk-go-v2/service/s3@")
	require.Contains(t, before[0], "pkg:golang/std@")
	if _, err := exec.LookPath("dpkg-deb"); err == nil {
		fields, err := output("dpkg-deb", "--field", deb, "Package", "Version", "Architecture")
		require.NoError(t, err)
		require.Equal(t, "Package: leasehold\nVersion: 0.1.0~rc.1\nArchitecture: "+runtime.GOARCH+"\n", fields)
		_, err = output("dpkg-deb", "--extract", deb, filepath.Join(dir, "root"))
		require.NoError(t, err)
		said, err := output(filepath.Join(dir, "root", "usr", "bin", "leasehold"), "--version")
		require.NoError(t, err)
		want, err := output(program, "--version")
		require.NoError(t, err)
		require.Equal(t, want, said)
		for _, file := range []string{"man/man1/leasehold.1", "doc/leasehold/copyright",
			"zsh/vendor-completions/_leasehold",
			"bash-completion/completions/leasehold", "fish/vendor_completions.d/leasehold.fish"} {
			require.FileExists(t, filepath.Join(dir, "root", "usr", "share", file))
		}
	}
	_, err = pack(dir, []string{program}, "v0.1.0-rc.1")
	require.NoError(t, err)
	for i, file := range files {
		body, err := os.ReadFile(file)
		require.NoError(t, err)
		require.True(t, before[i] == string(body), "%s differs when it is made again", file)
	}
}

// A program that needs the system's loader is refused.
func TestStatic(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil || runtime.GOOS != "linux" {
		t.Skip("needs a C compiler on Linux")
	}
	source, program := filepath.Join(t.TempDir(), "a.c"), filepath.Join(t.TempDir(), "a")
	require.NoError(t, os.WriteFile(source, []byte("int main(void) { return 0; }\n"), 0o600))
	require.NoError(t, exec.CommandContext(t.Context(), "gcc", "-o", program, source).Run())
	require.ErrorContains(t, static(program), "not static")
}
