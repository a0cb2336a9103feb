package main_test

import (
	"bufio"
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

// taken is a lock that acquire has taken for a second.
func taken(t *testing.T) (p place, handleFile string) {
	t.Helper()
	p = newPlace(t)
	handleFile = filepath.Join(p.dir, "handle")
	offline(t, "acquire", "--ttl", "1s", "--handle-file", handleFile, p.url).succeeds(t)
	return p, handleFile
}

// holds starts hold, and returns when it has renewed for the first time.
func holds(t *testing.T, p place, args ...string) *started {
	t.Helper()
	s := start(t, p.command(append([]string{"hold"}, args...)...))
	line, err := bufio.NewReader(s.out).ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, line, ": renewing token 1 until ")
	return s
}

func TestHoldRenewsUntilTheRelease(t *testing.T) {
	t.Parallel()
	p, file := taken(t)
	s := holds(t, p, "--handle-file", file)
	first, err := p.lock().Inspect(t.Context())
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		r, err := p.lock().Inspect(t.Context())
		return err == nil && r.ExpiresAt.Sub(first.ExpiresAt) > 2*time.Second
	}, hangs, 10*time.Millisecond)
	offline(t, "run", "-n", p.url, "--", "true").complains(t, 75, "held by")
	offline(t, "renew", "--handle-file", file).succeeds(t) // a step may still ask
	offline(t, "release", "--handle-file", file).succeeds(t)
	require.Equal(t, 0, s.wait(t), "%s", &s.stderr)
	require.Empty(t, s.stderr.String())
	offline(t, "hold", "--handle-file", file).succeeds(t) // there is nothing to hold any more
}

func TestHoldSaysThatTheLeaseIsLost(t *testing.T) {
	t.Parallel()
	p, file := taken(t)
	s := holds(t, p, "--handle-file", file)
	offline(t, "break", "--yes", "--token", "1", p.url) // and another is faster than the next renewal
	lease, err := p.lock(leasehold.WithHolder("another")).Acquire(t.Context())
	require.NoError(t, err)
	if code := s.wait(t); code != 0 { // 0 if it has seen that the term was ended before there was a next one
		require.Equal(t, 79, code)
		require.Contains(t, s.stderr.String(), `taken over by "another" with token 2`)
	}
	offline(t, "hold", "--handle-file", file).complains(t, 79, `taken over by "another" with token 2`)
	require.NoError(t, lease.Release(t.Context()))
}

// Nothing that was forgotten holds a lock for ever.
func TestHoldEnds(t *testing.T) {
	t.Run("after the time of --for", func(t *testing.T) {
		t.Parallel()
		p, file := taken(t)
		s := holds(t, p, "--for", "1500ms", "--handle-file", file)
		require.Equal(t, 79, s.wait(t), "%s", &s.stderr)
		require.Contains(t, s.stderr.String(), "stopped renewing the lock \"a\", because --for 1.5s has passed "+
			"(it expires at ")
	})
	t.Run("with the process of --while", func(t *testing.T) {
		t.Parallel()
		p, file := taken(t)
		step := exec.CommandContext(t.Context(), "sleep", "1h")
		require.NoError(t, step.Start())
		s := holds(t, p, "--while", strconv.Itoa(step.Process.Pid), "--handle-file", file)
		require.NoError(t, step.Process.Kill())
		_ = step.Wait()
		require.Equal(t, 0, s.wait(t), "%s", &s.stderr)
		r, err := p.lock().Inspect(t.Context())
		require.NoError(t, err)
		require.False(t, r.Released(), "what the process has started may still be at work: the lock is free "+
			"after the TTL")
		offline(t, "hold", "--while", strconv.Itoa(step.Process.Pid), "--handle-file", file).complains(t, 64,
			"there is no such process")
	})
	t.Run("at a signal", func(t *testing.T) {
		t.Parallel()
		p, file := taken(t)
		s := holds(t, p, "--handle-file", file)
		require.NoError(t, s.Process.Signal(syscall.SIGTERM))
		s.wait(t)
		r, err := p.lock().Inspect(t.Context())
		require.NoError(t, err)
		require.False(t, r.Released())
	})
	t.Run("not with the shell that has started it", func(t *testing.T) {
		t.Parallel()
		p, file := taken(t)
		step := exec.CommandContext(t.Context(), "bash", "-ec", program+
			` hold --handle-file "$0" >"$0.log" 2>&1 & echo $!`, file)
		step.Env = plainEnviron()
		out, err := step.Output()
		require.NoError(t, err)
		pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
		require.NoError(t, err)
		t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
		first, err := p.lock().Inspect(t.Context())
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			r, err := p.lock().Inspect(t.Context())
			return err == nil && r.ExpiresAt.Sub(first.ExpiresAt) > 2*time.Second
		}, hangs, 10*time.Millisecond)
		offline(t, "release", "--handle-file", file).succeeds(t)
		require.Eventually(t, func() bool {
			return syscall.Kill(pid, 0) != nil || zombie(pid)
		}, hangs, 10*time.Millisecond)
		said, err := os.ReadFile(file + ".log")
		require.NoError(t, err)
		require.Equal(t, 1, strings.Count(string(said), "\n"), "%s", said)
	})
}

// zombie reports whether a process has ended and nobody has waited for it.
func zombie(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && strings.Contains(string(stat), ") Z ")
}

// Exit codes of status for scripts.
func TestStatusByExitCode(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	now := time.Now()
	p.record("held", leasehold.Record{
		Token:     1,
		Holder:    "alice",
		TTL:       time.Hour,
		Nonce:     "x",
		RenewedAt: now,
		ExpiresAt: now.Add(time.Hour),
	})
	p.record("expired", leasehold.Record{
		Token:     1,
		Holder:    "alice",
		TTL:       time.Hour,
		Nonce:     "x",
		RenewedAt: now.Add(-2 * time.Hour),
		ExpiresAt: now.Add(-time.Hour),
	})
	p.record("released", leasehold.Record{Token: 1, Holder: "alice", Nonce: "x"})
	p.put("corrupt", []byte("x"))
	for _, c := range []struct {
		locks string
		code  int
	}{
		{"never-taken", 0}, {"released", 0}, {"held", 75}, {"expired", 75},
		{"released never-taken", 0}, {"held released", 75}, {"released held", 75},
		{"corrupt", 78}, {"held corrupt", 78}, {"corrupt held", 78},
	} {
		args := []string{"status", "--exit-code"}
		for name := range strings.FieldsSeq(c.locks) {
			args = append(args, "file://"+p.dir+"/"+name)
		}
		r := offline(t, args...)
		require.Equal(t, c.code, r.code, c.locks)
		require.Equal(t, len(args)-1, strings.Count(r.out, "\n"), "%s: a line for each, and the header", c.locks)
		if c.code == 78 {
			require.Contains(t, r.stderr, "corrupt")
		} else {
			require.Empty(t, r.stderr)
		}
		args[1] = "-v"
		require.Equal(t, 0, offline(t, args...).code, "without the flag: %s", c.locks)
	}
	offline(t, "status", "--exit-code", "file://"+p.dir+"/none/x").complains(t, 78, "create the directory")
}

// A process that has ended holds nothing, also if its parent never asks for its exit code.
func TestHoldEndsWithAZombie(t *testing.T) {
	t.Parallel()
	p, file := taken(t)
	job := exec.Command("sleep", "100")
	require.NoError(t, job.Start())
	t.Cleanup(func() { _ = job.Wait() }) // not before
	s := holds(t, p, "--handle-file", file, "--while", strconv.Itoa(job.Process.Pid))
	require.NoError(t, job.Process.Kill())
	require.Equal(t, 0, s.wait(t), "%s", &s.stderr)
	offline(t, "hold", "--handle-file", file, "--while", strconv.Itoa(job.Process.Pid)).complains(t, 64,
		"there is no such process")
}

// The process of another user, which may not be sent a signal, is one that lives.
func TestHoldWhileTheProcessOfAnotherUserLives(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	dir, err := os.MkdirTemp("", "handle") // where nobody can read it
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	file := filepath.Join(dir, "handle")
	finish(t, b.command("acquire", "--ttl", "1s", "--handle-file", file, b.url("locks/a"))).succeeds(t)
	if os.Getuid() == 0 {
		require.NoError(t, os.Chmod(dir, 0o755))
		require.NoError(t, os.Chown(file, 65534, 65534))
	}
	cmd := b.command("hold", "--for", "2s", "--while", "1", "--handle-file", file) // 1 is root's
	asNobody(t)(cmd)
	held := finish(t, cmd)
	held.complains(t, 79, "because --for 2s has passed")
	require.Contains(t, held.out, "renewing token 1 until ")
}
