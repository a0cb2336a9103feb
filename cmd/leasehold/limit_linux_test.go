package main_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
)

// A command that uses up all processes that its user may have takes none from leasehold and the
// guard: they have their threads before it starts.
func TestTheCommandUsesUpAllProcesses(t *testing.T) {
	if os.Getuid() != 0 {
		testserver.Missing(t, "root", fmt.Errorf("needs root, to be a user who has no other processes"))
	}
	const ttl = 3 * time.Second
	for i := range 4 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			dir, err := os.MkdirTemp("", "leasehold-limit-")
			require.NoError(t, err)
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			require.NoError(t, os.Chmod(dir, 0o777))
			p := place{t, dir, "file://" + dir + "/a"}
			cmd := p.command("run", "--ttl", ttl.String(), p.url, "--", "sh", "-c",
				`(while :; do sleep 100 & done) 2>&-; echo ready; read -r line; exit 5`)
			asNobody(t)(cmd)
			cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(71000 + os.Getpid()%10000*4 + i), Gid: 65534}
			cmd.Path, cmd.Args = "/bin/bash", append([]string{"bash", "-c", `ulimit -u 90; exec "$0" "$@"`, cmd.Path},
				cmd.Args[1:]...)
			stdin, err := cmd.StdinPipe()
			require.NoError(t, err)
			s, lines := ready(t, cmd)
			guard := onlyChild(t, s.Process.Pid)
			require.GreaterOrEqual(t, threads(t, guard), 11)
			require.GreaterOrEqual(t, threads(t, s.Process.Pid), 18)
			p.renewedFor(2 * ttl)
			if i == 3 { // nor from the guard what it needs to free the lock
				require.NoError(t, s.Process.Signal(syscall.SIGKILL))
				p.free(1)
				return
			}
			require.NoError(t, stdin.Close())
			_, err = io.ReadAll(lines)
			require.NoError(t, err)
			require.Equal(t, 5, s.wait(t), "%s", &s.stderr)
		})
	}
}

func threads(t *testing.T, pid int) int {
	all, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	require.NoError(t, err)
	return len(all)
}
