package main_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// sockets are those that a process has open.
func sockets(t *testing.T, pid int) (found []string) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		if at, err := os.Readlink(file); err == nil && strings.HasPrefix(at, "socket:") {
			found = append(found, at)
		}
	}
	return found
}

// Neither the guard nor the command has the socket of --listen. So a leasehold that is started
// again can listen there, although the guard of the one that was killed is still there, and those
// who wait get the lock after --crash-drain and a poll at most.
func TestTheSocketOfAKilledLeasehold(t *testing.T) {
	inBothWays(t, func(t *testing.T, way func(*exec.Cmd)) {
		const drain = 3 * time.Second
		p, addr := newPlace(t), freeAddr(t)
		s, life := p.alive(way, "--listen", addr, "--ttl", "1h", "--crash-drain", drain.String())
		guard := onlyChild(t, s.Process.Pid)
		own := sockets(t, s.Process.Pid)
		require.NotEmpty(t, own)
		for _, other := range []int{guard, onlyChild(t, guard)} {
			for _, socket := range sockets(t, other) {
				require.NotContains(t, own, socket)
			}
		}
		next := start(t, p.command("run", "--listen", freeAddr(t), p.url, "--", "true"))
		require.NoError(t, s.Process.Signal(syscall.SIGKILL))
		killed := time.Now()
		life.ends(t)
		ended(t, s.Process.Pid)
		l, err := net.Listen("tcp", addr)
		require.NoError(t, err)
		require.NoError(t, l.Close())
		require.True(t, lives(guard), "it has gone before")
		require.Zero(t, next.wait(t), "%s", &next.stderr)
		require.Greater(t, time.Since(killed), drain)
		require.Less(t, time.Since(killed), drain+12*time.Second) // a poll is 6 s
	})
}

// Ports that need a privilege. A network namespace of its own has the default of the system.
func TestListenAtAPortThatNeedsAPrivilege(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can make a network namespace")
	}
	cmd := exec.CommandContext(t.Context(), program, "run", "--listen", ":80", "--advertise", "http://10.0.0.7",
		"file:///tmp/a", "--", "true")
	cmd.Env = plainEnviron()
	asNobody(t)(cmd)
	cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNET
	finish(t, cmd).complains(t, 64, `--listen ":80": listen tcp :80: bind: permission denied (choose another`)
}
