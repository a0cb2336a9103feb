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

// The exit code tells the end of the command from that of the lease.
func TestExitCodesOfRun(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		code   int
	}{
		"success":              {"exit 0", 0},
		"failure":              {"exit 3", 3},
		"a code of leasehold":  {"exit 79", 79},
		"killed":               {"kill -9 $$", 128 + 9},
		"terminated":           {"kill $$", 128 + 15},
		"its process group":    {"kill -15 -$$", 128 + 15},
		"its lease was broken": {`leasehold break --token "$LEASEHOLD_TOKEN" "$URL" >/dev/null; while :; do sleep 0.05; done`, 79},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			require.NoError(t, os.Symlink(program, p.dir+"/leasehold"))
			cmd := p.command("run", "--ttl", "3s", p.url, "--", "sh", "-c", c.script)
			cmd.Env = append(cmd.Env, "PATH="+p.dir+":"+os.Getenv("PATH"), "URL="+p.url)
			r := finish(t, cmd)
			require.Equal(t, c.code, r.code, "%s", r.stderr)
			require.Equal(t, name == "its lease was broken", strings.Contains(r.stderr, "\nleasehold: the command was ended"), "%s", r.stderr)
			record, err := p.lock().Inspect(t.Context())
			require.NoError(t, err)
			require.True(t, record.Released())
		})
	}
}

// Signals that ask everybody to end reach the command and what it has started. The others reach the command alone.
func TestSignalsGoToTheCommandOrToItsGroup(t *testing.T) {
	for sig, all := range map[syscall.Signal]bool{ // a shell starts its children deaf to SIGINT and SIGQUIT
		syscall.SIGINT: false, syscall.SIGTERM: true, syscall.SIGHUP: true, syscall.SIGQUIT: false, syscall.SIGUSR1: false, syscall.SIGUSR2: false,
	} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			const loop = `while [ ! -e done ]; do sleep 0.05; done`
			cmd := p.command("run", p.url, "--", "bash", "-c", fmt.Sprintf(
				`bash -c 'trap "echo child >>got" %[1]d; echo >child; %[2]s' & trap 'echo command >>got' %[1]d; while [ ! -e child ]; do sleep 0.05; done; echo ready; %[2]s; wait; exit 3`, sig, loop))
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
