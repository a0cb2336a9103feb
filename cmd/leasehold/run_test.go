package main_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
)

func TestRunPassesOnWhatACommandNeeds(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	cmd := b.command("run", "--holder", "me", b.url("locks/a"), "--", "sh", "-c",
		`cat; echo "$LEASEHOLD_KEY $LEASEHOLD_TOKEN $LEASEHOLD_HOLDER"; echo err >&2; cat <&3; exit 42`)
	cmd.Stdin = strings.NewReader("standard input\n")
	path := filepath.Join(t.TempDir(), "three")
	require.NoError(t, os.WriteFile(path, []byte("file three\n"), 0o600))
	extra, err := os.Open(path)
	require.NoError(t, err)
	defer extra.Close()
	cmd.ExtraFiles = []*os.File{extra} // such as the pipe of make's jobserver
	r := finish(t, cmd)
	require.Equal(t, 42, r.code)
	require.Equal(t, "standard input\nlocks/a 1 me\nfile three\n", r.out)
	require.Equal(t, "err\n", r.stderr)

	rec, err := b.lock("locks/a").Inspect(t.Context())
	require.NoError(t, err)
	require.True(t, rec.Released())
	require.EqualValues(t, 1, rec.Token)
}

// A job that never waits still gets the lock of a holder that is gone.
func TestRunWithoutWaitAfterACrash(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	b.crashed("locks/crash")
	r := b.run("run", "--no-wait", b.url("locks/crash"), "--", "sh", "-c", "echo $LEASEHOLD_TOKEN")
	require.Equal(t, 0, r.code, "%s", r.stderr)
	require.Equal(t, "8\n", r.out)
	require.Empty(t, r.stderr, "cron sends no mail")
}

// crashed puts a lock there whose holder is gone for an hour.
func (b bucket) crashed(key string) {
	old := time.Now().Add(-time.Hour)
	body, err := leasehold.Record{
		Token: 7, Holder: "gone", TTL: 2 * time.Second, Nonce: "x", AcquiredAt: old, RenewedAt: old,
		ExpiresAt: old.Add(2 * time.Second),
	}.MarshalJSON()
	require.NoError(b.t, err)
	b.putObject(key, string(body))
}

// ready runs the program with a shell script that prints a line first, and returns when it has.
func ready(t *testing.T, cmd *exec.Cmd) (*started, *bufio.Reader) {
	s := start(t, cmd)
	lines := bufio.NewReader(s.out)
	line, err := lines.ReadString('\n')
	require.NoError(t, err, "%s", &s.stderr)
	require.Equal(t, "ready\n", line)
	return s, lines
}

func TestRunPassesSignalsOn(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT,
		syscall.SIGUSR1, syscall.SIGUSR2} {
		t.Run(sig.String(), func(t *testing.T) {
			url := b.url("locks/" + strconv.Itoa(int(sig)))
			script := fmt.Sprintf(`trap 'echo got; exit 3' %d; echo ready; while :; do sleep 0.05; done`, sig)
			s, lines := ready(t, b.command("run", url, "--", "sh", "-c", script))
			require.NoError(t, s.Process.Signal(sig))
			rest, err := io.ReadAll(lines)
			require.NoError(t, err)
			require.Equal(t, "got\n", string(rest))
			require.Equal(t, 3, s.wait(t), "%s", &s.stderr)
			b.run("run", "-n", url, "--", "true").succeeds(t)
		})
	}
}

// A command that takes its time to end keeps the lock until then.
func TestRunRenewsUntilTheCommandHasEnded(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	url := b.url("locks/slow")
	s, _ := ready(t, b.command("run", "--ttl", "6s", url, "--", "sh", "-c",
		`trap 'sleep 8; exit 4' TERM; echo ready; while :; do sleep 0.05; done`))
	require.NoError(t, s.Process.Signal(syscall.SIGTERM))
	began := time.Now()
	lease, err := b.lock("locks/slow").Acquire(soon(t))
	require.NoError(t, err)
	require.Greater(t, time.Since(began), 7*time.Second)
	require.NoError(t, lease.Release(t.Context()))
	require.Equal(t, 4, s.wait(t), "%s", &s.stderr)
}

func TestRunInterruptedWhileWaiting(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	lease, err := b.lock("locks/wait", leasehold.WithHolder("another")).Acquire(t.Context())
	require.NoError(t, err)
	defer lease.Release(t.Context())
	cmd := b.command("run", "-v", b.url("locks/wait"), "--", "echo", "ran")
	log, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(log).ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, line, "another")
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.Error(t, cmd.Wait())
	require.Equal(t, 128+15, shellCode(cmd.ProcessState))
}

// What the command leaves running is ended before the lock is released, whether it stays in the
// process group or leaves it.
func TestRunEndsWhatIsLeft(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	for _, escapes := range []string{"", "1"} {
		life := newLiving(t)
		cmd := b.command("run", b.url("locks/left"), "--", "sh", "-c", os.Args[0]+
			` & while [ "$(od -An -tu8 -j8 -N8 "$LIFE_FILE" | tr -d ' ')" = 0 ]; do sleep 0.05; done; exit 5`)
		cmd.Env = append(append(cmd.Env, life.environ()...), "LIFE_ESCAPES="+escapes)
		s := start(t, cmd)
		require.Equal(t, 5, s.wait(t), "%s", &s.stderr)
		released := monotonic()
		time.Sleep(20 * signEvery)
		require.Less(t, life.last(t), released)
	}
}

func TestRunWithClosedFiles(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	out := filepath.Join(t.TempDir(), "out")
	script := fmt.Sprintf(`"$0" "$@" <&- >&- 2>&-; echo $? >%s`, out)
	for _, c := range [][]string{
		{"run", b.url("locks/closed"), "--", "sh", "-c", "exit 6"},
		{"run", b.url("locks/closed"), "--", "no-such-command"},
	} {
		cmd := exec.CommandContext(t.Context(), "sh", append([]string{"-c", script, program}, c...)...)
		cmd.Env = b.environ()
		require.NoError(t, cmd.Run())
		code, err := os.ReadFile(out)
		require.NoError(t, err)
		require.Equal(t, map[string]string{"sh": "6\n", "no-such-command": "127\n"}[c[3]], string(code))
	}
}

// nohup's command stays deaf to SIGHUP.
func TestRunKeepsIgnoredSignalsIgnored(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	cmd := exec.CommandContext(t.Context(), "sh", append([]string{"-c", `trap '' HUP; exec "$0" "$@"`, program},
		"run", b.url("locks/nohup"), "--", "sh", "-c", "kill -HUP $$; echo alive")...)
	cmd.Env = b.environ()
	r := finish(t, cmd)
	require.Equal(t, "alive\n", r.out)
	require.Equal(t, 0, r.code)
}

// A log line that nobody reads does not end the command.
func TestRunWithABrokenPipe(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	cmd := b.command("run", "--ttl", "4s", "-v", b.url("locks/pipe"), "--", "sh", "-c", "sleep 5; exit 7")
	read, write, err := os.Pipe()
	require.NoError(t, err)
	cmd.Stderr = write
	require.NoError(t, cmd.Start())
	write.Close()
	read.Close()
	require.Error(t, cmd.Wait())
	require.Equal(t, 7, cmd.ProcessState.ExitCode())
}
