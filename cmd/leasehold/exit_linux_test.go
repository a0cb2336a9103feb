package main_test

import (
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// leasehold ends by the signal that has ended its command, or leasehold while it waits, and leaves
// no core file. Any other end of the command is an exit code.
func TestEndsByTheSignalOfItsCommand(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGABRT,
		syscall.SIGKILL, syscall.SIGSEGV,
		syscall.SIGPIPE, syscall.SIGTERM, syscall.SIGUSR1} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			cmd := p.command("run", p.url, "--", "sh", "-c", fmt.Sprintf("ulimit -c 0; kill -%d $$", sig))
			cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-c", `ulimit -c unlimited; exec "$0" "$@"`, program},
				cmd.Args[1:]...)
			cmd.Dir = p.dir
			r := finish(t, cmd)
			status := cmd.ProcessState.Sys().(syscall.WaitStatus)
			require.True(t, status.Signaled(), "%v: %s", cmd.ProcessState, r.stderr)
			require.Equal(t, sig, status.Signal())
			require.False(t, status.CoreDump())
			require.Empty(t, r.stderr)
			record, err := p.lock().Inspect(t.Context())
			require.NoError(t, err)
			require.True(t, record.Released())
		})
	}
	t.Run("while it waits", func(t *testing.T) {
		p := newPlace(t)
		lease, err := p.lock().Acquire(t.Context())
		require.NoError(t, err)
		defer lease.Release(t.Context())
		cmd := p.command("run", "-v", p.url, "--", "true")
		log, err := cmd.StderrPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		_, err = log.Read(make([]byte, 1))
		require.NoError(t, err)
		require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
		require.Error(t, cmd.Wait())
		require.Equal(t, syscall.SIGINT, cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
	})
	t.Run("an exit code that looks like one", func(t *testing.T) {
		p := newPlace(t)
		cmd := p.command("run", p.url, "--", "sh", "-c", "exit 130")
		finish(t, cmd)
		require.Equal(t, 130, cmd.ProcessState.ExitCode())
	})
}

// A command that is stopped ends by the signal that leasehold is sent.
func TestASignalReachesAStoppedCommand(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP} {
		p := newPlace(t)
		s, _ := ready(t, p.command("run", p.url, "--", "sh", "-c", "echo ready; while :; do sleep 0.05; done"))
		require.NoError(t, syscall.Kill(-onlyChild(t, onlyChild(t, s.Process.Pid)), syscall.SIGSTOP))
		require.NoError(t, s.Process.Signal(sig))
		require.Equal(t, 128+int(sig), s.wait(t), "%s", &s.stderr)
	}
}

// Signals that ask everybody to end reach the command and what it has started. The others reach the
// command alone.
func TestSignalsGoToTheCommandOrToItsGroup(t *testing.T) {
	for sig, all := range map[syscall.Signal]bool{ // a shell starts its children deaf to SIGINT and SIGQUIT
		syscall.SIGINT: false, syscall.SIGTERM: true, syscall.SIGHUP: true, syscall.SIGQUIT: false,
		syscall.SIGUSR1: false, syscall.SIGUSR2: false,
	} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			const loop = `while [ ! -e done ]; do sleep 0.05; done`
			cmd := p.command("run", p.url, "--", "bash", "-c", fmt.Sprintf(
				`bash -c 'trap "echo child >>got" %[1]d; echo >child; %[2]s' & trap 'echo command >>got' %[1]d
while [ ! -e child ]; do sleep 0.05; done; echo ready; %[2]s; wait; exit 3`, sig, loop))
			cmd.Dir = p.dir
			s, lines := ready(t, cmd)
			require.NoError(t, s.Process.Signal(sig))
			got := func() string {
				body, _ := os.ReadFile(p.dir + "/got")
				return string(body)
			}
			require.Eventually(t, func() bool {
				return strings.Contains(got(), "command") && (!all || strings.Contains(got(), "child"))
			}, 30*time.Second, 10*time.Millisecond)
			require.NoError(t, os.WriteFile(p.dir+"/done", nil, 0o600))
			_, err := io.ReadAll(lines)
			require.NoError(t, err)
			require.Equal(t, 3, s.wait(t), "%s", &s.stderr)
			require.Equal(t, all, strings.Contains(got(), "child"), "%s", got())
		})
	}
}
