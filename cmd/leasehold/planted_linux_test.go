package main_test

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
)

// plants are what goes wrong in the planted program, at a place that nothing from outside reaches
// in time. PLANT names one.
var plants = []struct{ file, before, code string }{
	{"run.go", "	defer c.waiting.stopped()\n", `
	if os.Getenv("PLANT") == "lost before its time" {
		_ = lock.Break(ctx, lease.Token())
		<-lease.Context().Done()
	}
`},
	{"internal/guard/supervise.go", "	becomeReaper()\n", `
	if os.Getenv("PLANT") == "late" {
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	}
`},
	{"internal/guard/supervise.go", "		s.stopped(syscall.Signal(number))\n", `
	if os.Getenv("PLANT") == "a panic" {
		panic("planted")
	}
`},
	{"../../internal/filestore/system_unix.go", "	err := again(func() error { return syscall.Flock(", `
	if os.Getenv("PLANT") == "a full disk" {
		return false, syscall.ENOSPC
	}
`},
	{"../../internal/filestore/network_linux.go", "	var s syscall.Statfs_t\n", `
	if os.Getenv("PLANT") == "a network file system" {
		return "NFS", nil
	}
`},
}

// planted is the program with the plants.
func planted(t *testing.T) string {
	dir := t.TempDir()
	overlay := struct{ Replace map[string]string }{make(map[string]string)}
	for _, p := range plants {
		original, err := filepath.Abs(p.file)
		require.NoError(t, err)
		changed, ok := overlay.Replace[original]
		if !ok {
			changed = original
		}
		body, err := os.ReadFile(changed)
		require.NoError(t, err)
		require.Equal(t, 1, strings.Count(string(body), p.before), "%s", p.before)
		body = []byte(strings.Replace(string(body), p.before, p.code+p.before, 1))
		overlay.Replace[original] = filepath.Join(dir, filepath.Base(p.file))
		require.NoError(t, os.WriteFile(overlay.Replace[original], body, 0o600))
	}
	list, err := json.Marshal(overlay)
	require.NoError(t, err)
	path := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(path, list, 0o600))
	out, err := exec.CommandContext(t.Context(), "go", "build", "-tags=disable_grpc_modules", "-overlay", path, "-o",
		filepath.Join(dir, "leasehold"), ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return filepath.Join(dir, "leasehold")
}

func TestRunWhenThingsGoWrongInside(t *testing.T) {
	t.Parallel()
	b, path := newBucket(t), planted(t)
	run := func(t *testing.T, plant string, env []string, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), path, append([]string{"run"}, args...)...)
		cmd.Env = append(append(b.environ(), "PLANT="+plant), env...)
		return cmd
	}

	t.Run("the lease is lost before the command is started", func(t *testing.T) {
		for _, plant := range []string{"lost before its time", "late"} {
			url := b.url("locks/" + strings.ReplaceAll(plant, " ", "-"))
			s := start(t, run(t, plant, nil, "--ttl", "3s", url, "--", "echo", "ran"))
			if plant == "late" { // it stops itself, and goes on when another has the lock
				next := b.lock("locks/late")
				for status, err := range next.Watch(soon(t)) {
					require.NoError(t, err)
					if status.State == leasehold.StateHeld {
						break
					}
				}
				lease, err := next.Acquire(soon(t))
				require.NoError(t, err)
				require.NoError(t, s.Process.Signal(syscall.SIGCONT))
				defer lease.Release(t.Context())
			}
			out, err := io.ReadAll(s.out)
			require.NoError(t, err)
			require.Equal(t, 79, s.wait(t), "%s", &s.stderr)
			require.Contains(t, s.stderr.String(), "leasehold: the command was ended or not started: lock ")
			require.Empty(t, out, "the command was not started")
		}
	})

	// What the command has started must be dead before the lock is released, whatever ends the
	// supervisor.
	t.Run("a panic", func(t *testing.T) {
		life := newLiving(t)
		s := start(t, run(t, "a panic", append(life.environ(), "LIFE_ESCAPES=1", "LIFE_DEAF=1"),
			b.url("locks/panic"), "--", os.Args[0]))
		require.True(t, life.begun(t, s), "%s", &s.stderr)
		waiting := make(chan time.Duration, 1)
		next := b.lock("locks/panic", leasehold.WithPollInterval(50*time.Millisecond))
		go func() {
			lease, err := next.Acquire(soon(t))
			if err == nil {
				waiting <- monotonic() - time.Since(lease.Record().AcquiredAt)
				_ = lease.Release(t.Context())
			}
			close(waiting)
		}()
		command := onlyChild(t, onlyChild(t, s.Process.Pid))
		require.NoError(t, syscall.Kill(command, syscall.SIGSTOP))
		led, ok := <-waiting
		require.True(t, ok)
		time.Sleep(20 * signEvery)
		require.Less(t, life.last(t), led, "the command lived after the next holder led")
		require.Equal(t, 70, s.wait(t), "%s", &s.stderr)
		require.Contains(t, s.stderr.String(), "leasehold: a bug: planted")
	})
}
