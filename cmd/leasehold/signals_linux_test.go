package main_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// inDirectory runs a command under a lock in a new directory.
func inDirectory(t *testing.T, command ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), program, append([]string{"run", "file://" + t.TempDir() + "/a", "--"},
		command...)...)
	cmd.Env = plainEnviron()
	return cmd
}

// SIGUSR1 and SIGUSR2 kill by default, so they go to the command alone. The others go to all that
// it has started.
func TestSignalsReachTheCommandOrAllOfIt(t *testing.T) {
	for sig, all := range map[syscall.Signal]bool{
		syscall.SIGUSR1: false,
		syscall.SIGUSR2: false,
		syscall.SIGTERM: true,
		syscall.SIGHUP:  true,
	} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			s := start(t, inDirectory(t, "bash", "-c", fmt.Sprintf(`
trap 'caught=1' %[1]d
bash -c 'trap "echo child; exit" %[1]d; echo up; while :; do sleep 0.02; done' &
while [ ! "$caught" ]; do sleep 0.02; done
for ((i = 0; i < 500 && %[2]d; i++)); do kill -0 $! || exit 5; sleep 0.02; done 2>&-
exit 6`, sig, map[bool]int{true: 1}[all])))
			lines := bufio.NewReader(s.out)
			line, err := lines.ReadString('\n')
			require.NoError(t, err)
			require.Equal(t, "up\n", line)
			require.NoError(t, s.Process.Signal(sig))
			rest, err := io.ReadAll(lines)
			require.NoError(t, err)
			require.Equal(t, all, strings.Contains(string(rest), "child\n"), "%q", rest)
			require.Equal(t, map[bool]int{true: 5, false: 6}[all], s.wait(t), "%s", &s.stderr)
		})
	}
}

// What a double fork has put into a session of its own is dead before the lock is free.
func TestADoubleForkIsEndedWithTheCommand(t *testing.T) {
	life := newLiving(t)
	cmd := inDirectory(t, "sh", "-c",
		`(setsid "$0" &); while [ "$(od -An -tu8 -j8 -N8 "$LIFE_FILE" | tr -d ' ')" = 0 ]; do sleep 0.05; done; exit 5`,
		os.Args[0])
	cmd.Env = append(append(cmd.Env, life.environ()...), "LIFE_ESCAPES=1")
	s := start(t, cmd)
	require.Equal(t, 5, s.wait(t), "%s", &s.stderr)
	ended := monotonic()
	time.Sleep(20 * signEvery) // what still lives gives a sign meanwhile
	require.Less(t, life.last(t), ended)
}

// The exit code is the command's, also where leasehold has the same one, and 128+n for signal n.
func TestExitCodesArePassedOn(t *testing.T) {
	for script, code := range map[string]int{
		"exit 0": 0, "exit 64": 64, "exit 79": 79, "exit 255": 255,
		"kill -TERM $$": 128 + 15, "kill -KILL $$": 128 + 9, "kill -USR1 $$": 128 + 10,
	} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			r := finish(t, inDirectory(t, "sh", "-c", script))
			require.Equal(t, code, r.code, "%s", r.stderr)
			require.Empty(t, r.stderr)
		})
	}
}
