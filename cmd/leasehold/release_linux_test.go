package main_test

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
)

// lockDirectory keeps everybody from writing in a directory of locks, as a process does that is
// stopped in the middle of a write.
func lockDirectory(t *testing.T, dir string) {
	locked, err := os.OpenFile(filepath.Join(dir, ".leasehold-lock"), os.O_WRONLY|os.O_CREATE, 0o600)
	require.NoError(t, err)
	t.Cleanup(func() { locked.Close() })
	require.NoError(t, syscall.Flock(int(locked.Fd()), syscall.LOCK_EX))
}

// A command has ended, and the lock cannot be released. A signal then ends the tries, which else go
// on until the lease would have ended.
func TestASignalEndsTheTriesToRelease(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), program, "run", "--ttl", "1h", "file://"+dir+"/a", "--",
		"sh", "-c", "echo up; read line; exit 7")
	cmd.Env = plainEnviron()
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	s := start(t, cmd)
	line, err := bufio.NewReader(s.out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "up\n", line)
	lockDirectory(t, dir)
	require.NoError(t, in.Close())
	select {
	case <-s.ended:
		require.Fail(t, "it does not try to release the lock", "%s", &s.stderr)
	case <-time.After(2 * time.Second):
	}
	require.NoError(t, s.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 7, s.wait(t), "%s", &s.stderr)
	require.Contains(t, s.stderr.String(), "releasing failed after the command had ended")
}

// The handle cannot be written, and the lock cannot be released. No signal ends the tries of
// acquire, so they end by themselves long before the lease does.
func TestAHandleThatCannotBeWrittenHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	read, full, err := os.Pipe()
	require.NoError(t, err)
	defer read.Close()
	defer full.Close()
	for { // until nothing more can be written
		require.NoError(t, full.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
		if _, err := full.Write(make([]byte, 4<<10)); err != nil {
			break
		}
	}
	cmd := exec.CommandContext(t.Context(), program, "acquire", "--ttl", "1h", "file://"+dir+"/a")
	cmd.Env = plainEnviron()
	cmd.Stdout = full
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	lock, err := leasehold.NewLock(leasehold.NewFileStore(dir), "a")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		r, err := lock.Inspect(t.Context())
		return err == nil && !r.Released()
	}, hangs, 10*time.Millisecond)
	lockDirectory(t, dir)
	require.NoError(t, full.Close())
	require.NoError(t, read.Close())
	select {
	case <-ended:
		require.Equal(t, 74, cmd.ProcessState.ExitCode(), "%s", &stderr)
	case <-time.After(hangs):
		_ = cmd.Process.Kill()
		<-ended
		require.Fail(t, "it does not end")
	}
}
