package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// The command fails if one test fails, or one package does not build, and shows why. It runs all
// others.
func TestFailuresAreTold(t *testing.T) {
	program := filepath.Join(t.TempDir(), "alltests")
	out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)

	dir := t.TempDir()
	for name, body := range map[string]string{
		"go.mod": "module example\n\ngo 1.26\n",
		"good/good_test.go": "package good\n\nimport \"testing\"\n\nfunc TestGood(t *testing.T) {}\n\nfunc " +
			"TestSkipped(t *testing.T) { t.Skip() }\n",
		"bad/bad_test.go": "package bad\n\nimport \"testing\"\n\nfunc TestBad(t *testing.T) { t.Run(\"part\", " +
			"func(t *testing.T) { t.Error(\"this is why\") }) }\n",
		"late/late_test.go": "package late\n\nimport \"testing\"\n\nfunc TestLate(t *testing.T) { go panic(\"after " +
			"all\"); select {} }\n",
		"flaky/flaky_test.go": `package flaky

import (
	"os"
	"testing"
)

func TestFlaky(t *testing.T) {
	if os.Mkdir("ran", 0o755) == nil {
		t.Fatal("by chance")
	}
}
`,
		"none/none_test.go": "package none\n\nfunc TestNone(t *testing.T) {}\n",
		"stuck/stuck_test.go": "package stuck\n\nimport (\n\t\"testing\"\n\t\"time\"\n)\n\nfunc TestStuck(t " +
			"*testing.T) { neverEnds() }\n\nfunc neverEnds() { time.Sleep(time.Hour) }\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(body), 0o644))
	}
	t.Setenv("LEASEHOLD_SIZE", "")
	run := func(patterns ...string) (string, error) {
		cmd := exec.Command(program, patterns...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=0")
		var all bytes.Buffer
		cmd.Stdout, cmd.Stderr = &all, &all
		err := cmd.Run()
		return all.String(), err
	}

	text, err := run("./good")
	require.NoError(t, err, text)
	require.Contains(t, text, "\n1 passed, 0 failed, 1 skipped\n")
	require.Regexp(t, `slowest packages:\n +0\.\ds  example/good\nslowest tests:\n +0\.\ds  example/good Test`, text)

	text, err = run("./bad", "./late", "./flaky", "./none", "./good")
	require.Error(t, err, text)
	for _, want := range []string{"this is why", "panic: after all", "undefined: testing",
		"FAILED: example/bad TestBad/part\n", "ok ", "example/good"} {
		require.Contains(t, text, want)
	}

	// What fails by chance is told, and fails nothing at short size alone.
	require.NoError(t, os.Remove(filepath.Join(dir, "flaky", "ran")))
	text, err = run("./flaky")
	require.NoError(t, err, text)
	require.Contains(t, text, "by chance")
	require.Contains(t, text, "\nFLAKY: example/flaky TestFlaky\n")
	require.NoError(t, os.Remove(filepath.Join(dir, "flaky", "ran")))
	t.Setenv("LEASEHOLD_SIZE", "full")
	text, err = run("./flaky")
	require.Error(t, err, text)
	require.Contains(t, text, "FAILED: example/flaky TestFlaky\n")

	// What fails again has failed.
	t.Setenv("LEASEHOLD_SIZE", "")
	text, err = run("./late")
	require.Error(t, err, text)
	require.Contains(t, text, "FAILED: example/late\n")
	if runtime.GOOS != "linux" {
		return
	}

	// The goroutines of a test that hangs are shown.
	t.Setenv("LEASEHOLD_SIZE", "full") // so that it does not run again
	text, err = run("-patience=2s", "./stuck")
	require.Error(t, err, text)
	const stopped = `(?s) TestStuck \(\ds\)\nstopped example/stuck: none.*stuck\.neverEnds\(.*FAILED: example/stuck\n`
	require.Regexp(t, stopped, text)
}

// A package is stopped for its silence, and not for the time that it takes.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancelCause(t.Context())
		done := make(chan struct{})
		b := newBoard(2)
		defer close(done)
		go b.beat(done, 20*time.Second, stop)
		for range 10 {
			b.see(event{Action: "output", Package: "slow", Output: "a round"})
			b.see(event{Action: "start", Package: "other"})
			time.Sleep(19 * time.Second)
		}
		b.see(event{Action: "pass", Package: "other"})
		require.NoError(t, ctx.Err())
		time.Sleep(2 * time.Second)
		require.ErrorContains(t, context.Cause(ctx), "stopped slow: none of its tests")
	})
}
