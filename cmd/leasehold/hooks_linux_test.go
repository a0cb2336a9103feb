package main_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// readLine waits until a file has a whole line, and returns it.
func readLine(t *testing.T, path string) (line string) {
	t.Helper()
	require.Eventually(t, func() bool {
		body, _ := os.ReadFile(path)
		line = strings.TrimSuffix(string(body), "\n")
		return line != string(body)
	}, time.Minute, 10*time.Millisecond, "%s", path)
	return line
}

// A command for new leaders that hangs does not keep the campaign from ending, whichever signal
// ends it, and does not live on.
func TestElectEndsWhileACommandForNewLeadersHangs(t *testing.T) {
	for name, c := range map[string]struct {
		hook string
		sig  syscall.Signal
	}{
		"asleep": {
			`trap 'echo asked >asked; exit' TERM; echo $$ >pid; while :; do sleep 0.05; done`,
			syscall.SIGTERM,
		},
		"deaf":                {`trap '' TERM INT; echo $$ >pid; while :; do sleep 0.05; done`, syscall.SIGINT},
		"waiting for a child": {`sh -c 'echo $$ >pid; while :; do sleep 0.05; done'; true`, syscall.SIGQUIT},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			cmd := p.command("elect", "--on-new-leader", c.hook, p.url, "--", "sh", "-c",
				"echo ready; while :; do sleep 0.05; done")
			cmd.Dir = p.dir
			s, _ := ready(t, cmd)
			pid, err := strconv.Atoi(readLine(t, filepath.Join(p.dir, "pid")))
			require.NoError(t, err)
			t.Cleanup(func() {
				if t.Failed() {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			})
			require.NoError(t, s.Process.Signal(c.sig))
			select {
			case <-s.ended:
			case <-time.After(40 * time.Second):
				require.Fail(t, "elect does not end")
			}
			require.Equal(t, 0, s.wait(t), "%s", &s.stderr)
			require.Eventually(t, func() bool {
				return syscall.Kill(pid, 0) == syscall.ESRCH
			}, 15*time.Second, 10*time.Millisecond)
			if name == "asleep" {
				require.Equal(t, "asked", readLine(t, filepath.Join(p.dir, "asked")), "SIGTERM came first")
			}
			r, err := p.lock().Inspect(t.Context())
			require.NoError(t, err)
			require.True(t, r.Released())
		})
	}
}

// parent is the parent of a process; 0 if there is no such process, dead or alive.
func parent(pid int) int {
	stat, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(f) < 2 {
		return 0
	}
	number, _ := strconv.Atoi(f[1])
	return number
}

// Processes whose parents have ended become children of leasehold. When they end, nothing is left
// of them.
func TestOrphansLeaveNoZombies(t *testing.T) {
	p := newPlace(t)
	hook := `while [ ! -e started ]; do sleep 0.05; done
sh -c 'echo $$ >pid; while [ ! -e go ]; do sleep 0.05; done' & true`
	cmd := p.command("elect", "--on-new-leader", hook, p.url, "--", "sh", "-c", "echo ready; while :; do sleep "+
		"0.05; done")
	cmd.Dir = p.dir
	s, _ := ready(t, cmd)
	require.NoError(t, os.WriteFile(p.dir+"/started", nil, 0o600))
	orphan, err := strconv.Atoi(readLine(t, p.dir+"/pid"))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		return parent(orphan) == s.Process.Pid
	}, time.Minute, 10*time.Millisecond, "leasehold has it")
	require.NoError(t, os.WriteFile(p.dir+"/go", nil, 0o600))
	require.Eventually(t, func() bool {
		return parent(orphan) == 0
	}, 30*time.Second, 10*time.Millisecond, "it stays as a zombie")
	require.NoError(t, s.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 0, s.wait(t), "%s", &s.stderr)
	require.Empty(t, s.stderr.String())
}
