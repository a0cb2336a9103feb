package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// onlyChild is the process that a process has started.
func onlyChild(t *testing.T, parent int) int {
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	require.NoError(t, err)
	var children string
	for _, list := range lists {
		body, err := os.ReadFile(list)
		require.NoError(t, err)
		children += string(body)
	}
	require.Len(t, strings.Fields(children), 1)
	var pid int
	_, err = fmt.Sscan(children, &pid)
	require.NoError(t, err)
	return pid
}

func TestRunWithoutItsGuard(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	life := newLiving(t)
	cmd := b.command("run", b.url("locks/guard"), "--", os.Args[0])
	cmd.Env = append(append(cmd.Env, life.environ()...), "LIFE_ESCAPES=1", "LIFE_DEAF=1")
	s := start(t, cmd)
	require.True(t, life.begun(t, s), "%s", &s.stderr)
	guard := onlyChild(t, s.Process.Pid)
	require.NoError(t, syscall.Kill(guard, syscall.SIGKILL))
	require.Equal(t, 70, s.wait(t), "%s", &s.stderr)
	ended := monotonic()
	time.Sleep(20 * signEvery)
	require.Less(t, life.last(t), ended)
	require.Contains(t, s.stderr.String(), "the guard process was killed")
	b.run("run", "-n", b.url("locks/guard"), "--", "true").succeeds(t)
}

// A guard that is stopped cannot keep the times. The supervisor does, if the lease is lost
// meanwhile.
func TestRunWithAStoppedGuard(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	life := newLiving(t)
	cmd := b.command("run", "--ttl", "5s", b.url("locks/stopped"), "--", os.Args[0])
	cmd.Env = append(append(cmd.Env, life.environ()...), "LIFE_ESCAPES=1", "LIFE_DEAF=1")
	s := start(t, cmd)
	require.True(t, life.begun(t, s), "%s", &s.stderr)
	guard := onlyChild(t, s.Process.Pid)
	require.NoError(t, syscall.Kill(guard, syscall.SIGSTOP))
	// if it still lives, it ends when it sees that leasehold is gone
	t.Cleanup(func() { _ = syscall.Kill(guard, syscall.SIGCONT) })
	before, err := b.lock("locks/stopped").Inspect(t.Context())
	require.NoError(t, err)
	require.Eventually(t, func() bool { // leasehold looks at it after each renewal
		r, err := b.lock("locks/stopped").Inspect(t.Context())
		return err == nil && r.RenewedAt.Sub(before.RenewedAt) > 3*time.Second
	}, time.Minute, 50*time.Millisecond)
	require.NoError(t, b.lock("locks/stopped").Break(t.Context(), 1))
	require.Equal(t, 79, s.wait(t), "%s", &s.stderr)
	require.Equal(t, 1, strings.Count(s.stderr.String(), "the guard process is stopped"), "%s", &s.stderr)
	ended := monotonic()
	time.Sleep(20 * signEvery)
	require.Less(t, life.last(t), ended)
}
