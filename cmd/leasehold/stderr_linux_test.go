package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// fullPipe is a pipe that nobody reads, and into which not one more byte fits.
func fullPipe(t *testing.T) *os.File {
	t.Helper()
	read, write, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = read.Close()
		_ = write.Close()
	})
	fd := int(write.Fd())
	require.NoError(t, unix.SetNonblock(fd, true))
	for filler := make([]byte, 4096); len(filler) > 0; {
		if _, err := unix.Write(fd, filler); err != nil {
			filler = filler[:len(filler)/2]
		}
	}
	require.NoError(t, unix.SetNonblock(fd, false))
	return write
}

// A command goes on for as long as it likes, and leasehold ends with it, although nobody reads what
// leasehold says.
func TestNobodyReadsStandardError(t *testing.T) {
	for _, name := range []string{"run", "elect"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file := filepath.Join(dir, "worked")
			cmd := exec.CommandContext(t.Context(), program, name, "--verbose", "--ttl", "2s", "file://"+dir+"/x", "--",
				"sh", "-c", `exec 2>&-; for i in 1 2 3 4 5; do sleep 1; echo $i >>"$0"; done; exec sleep 100`, file)
			cmd.Env, cmd.Stderr = plainEnviron(), fullPipe(t)
			require.NoError(t, cmd.Start())
			require.Eventually(t, func() bool {
				body, _ := os.ReadFile(file)
				return strings.Join(strings.Fields(string(body)), " ") == "1 2 3 4 5"
			}, hangs, 10*time.Millisecond)
			require.NoError(t, cmd.Process.Signal(unix.SIGTERM))
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			select {
			case <-ended:
			case <-time.After(hangs):
				_ = cmd.Process.Kill()
				t.Fatal("it does not end")
			}
		})
	}
}

// The guard of a leasehold that was killed releases the lock, although nobody reads what it says.
func TestNobodyReadsWhatTheGuardSays(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	url, file := "file://"+dir+"/x", filepath.Join(dir, "started")
	cmd := exec.CommandContext(t.Context(), program, "run", "--ttl", "10m", "--crash-drain", "1s", url, "--",
		"sh", "-c", `exec 2>&-; touch "$0"; sleep 100`, file)
	cmd.Env, cmd.Stderr = plainEnviron(), fullPipe(t)
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool {
		_, err := os.Stat(file)
		return err == nil
	}, hangs, 10*time.Millisecond)
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	r := offline(t, "run", "--wait", "1m", url, "--", "true")
	require.Zero(t, r.code, "%s", r.stderr)
}

// In a PID namespace without a /proc of its own, the guard could not find what the command has
// started. Nothing is sent then.
func TestTheProcOfAnotherNamespace(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can make a PID namespace")
	}
	dir := t.TempDir()
	for _, name := range []string{"run", "elect"} {
		cmd := exec.CommandContext(t.Context(), "unshare", "--pid", "--fork", program, name,
			"file://"+dir+"/x", "--", "true")
		cmd.Env = plainEnviron()
		finish(t, cmd).complains(t, 78, "another PID namespace")
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
	cmd := exec.CommandContext(t.Context(), "unshare", "--pid", "--fork", "--mount-proc", program, "run",
		"file://"+dir+"/x", "--", "true")
	cmd.Env = plainEnviron()
	finish(t, cmd).succeeds(t)
}
