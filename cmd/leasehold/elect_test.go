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

	"github.com/leasehold-go/leasehold"
)

func TestElectLeadsAgainAndAgain(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	url, log := b.url("leaders/a"), filepath.Join(t.TempDir(), "log")
	said := func() string {
		body, err := os.ReadFile(log)
		if !os.IsNotExist(err) {
			require.NoError(t, err)
		}
		return string(body)
	}
	waitFor := func(text string) {
		t.Helper()
		require.Eventually(t, func() bool {
			return strings.Contains(said(), text)
		}, time.Minute, 20*time.Millisecond, "%s in %s", text, log)
	}
	elect := func(name, script string) *started {
		return start(t, b.command("elect", "--ttl", "5s", "--holder", name, "--on-new-leader",
			fmt.Sprintf(`echo "%s sees $LEASEHOLD_HOLDER $LEASEHOLD_TOKEN" >>%s`, name, log), url,
			"--", "sh", "-c", strings.ReplaceAll(script, "LOG", log)))
	}
	const leader = `echo "$LEASEHOLD_HOLDER leads $LEASEHOLD_TOKEN" >>LOG
trap 'echo "$LEASEHOLD_HOLDER reloads" >>LOG' HUP
trap 'echo "$LEASEHOLD_HOLDER ends" >>LOG; exit 3' TERM
while :; do sleep 0.05; done`
	alice := elect("alice", leader)
	waitFor("alice leads 1\n")
	bob := elect("bob", leader)
	waitFor("alice sees alice 1\n")
	waitFor("bob sees alice 1\n")

	require.NoError(t, alice.Process.Signal(syscall.SIGHUP))
	waitFor("alice reloads\n")
	require.NoError(t, b.lock("leaders/a").Break(t.Context(), 1))
	waitFor("alice ends\n") // and then either of them leads
	require.Eventually(t, func() bool {
		return strings.Contains(said(), "leads 2\n")
	}, time.Minute, 20*time.Millisecond)

	require.NoError(t, alice.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 0, alice.wait(t), "%s", &alice.stderr)
	waitFor("bob leads ")
	require.NoError(t, bob.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 0, bob.wait(t), "%s", &bob.stderr)
	waitFor("bob ends\n")
	rec, err := b.lock("leaders/a").Inspect(t.Context())
	require.NoError(t, err)
	require.True(t, rec.Released())
}

// A command that ends by itself gives the others a chance, and comes again.
func TestElectWhenTheCommandEnds(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	log := filepath.Join(t.TempDir(), "log")
	s := start(t, b.command("elect", "--ttl", "4s", b.url("leaders/b"), "--", "sh", "-c",
		fmt.Sprintf(`echo $LEASEHOLD_TOKEN >>%s; exit 1`, log)))
	require.Eventually(t, func() bool {
		body, _ := os.ReadFile(log)
		return strings.HasPrefix(string(body), "1\n2\n3\n")
	}, time.Minute, 20*time.Millisecond)
	require.NoError(t, s.Process.Signal(syscall.SIGINT))
	require.Equal(t, 0, s.wait(t), "%s", &s.stderr)
}

func TestElectEndsWithItsErrors(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	b.run("elect", strings.Replace(b.url("x"), "s3://", "s3://no-such-", 1), "--", "true").complains(t,
		78, "create the bucket")
	b.run("elect", b.url("x"), "--", "no-such-command").complains(t, 127, "there is no command")
	broken := filepath.Join(t.TempDir(), "broken")
	require.NoError(t, os.WriteFile(broken, []byte{0, 1, 2}, 0o700))
	b.run("elect", b.url("x"), "--", broken).complains(t, 126, "exec format error")
	held, err := b.lock("leaders/held", leasehold.WithHolder("another")).Acquire(t.Context())
	require.NoError(t, err)
	s := start(t, b.command("elect", b.url("leaders/held"), "--", "echo", "ran"))
	time.Sleep(300 * time.Millisecond)
	require.NoError(t, s.Process.Signal(syscall.SIGTERM))
	code := s.wait(t)
	require.True(t, code == 0 || code == 128+15, "%d", code) // 128+15: it came before the signal was caught
	require.NoError(t, held.Release(t.Context()))
}
