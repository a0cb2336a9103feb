package main_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
)

// renewedFor waits until the lease was renewed so long after its first renewal that is seen here.
func (p place) renewedFor(d time.Duration) {
	p.t.Helper()
	lock, first := p.lock(), time.Time{}
	for ctx := soon(p.t); ; time.Sleep(20 * time.Millisecond) {
		r, err := lock.Inspect(ctx)
		require.NoError(p.t, err)
		require.EqualValues(p.t, 1, r.Token)
		require.False(p.t, r.Released())
		if first.IsZero() {
			first = r.RenewedAt
		}
		if r.RenewedAt.Sub(first) > d {
			return
		}
	}
}

// alive starts the program with a command that gives signs of life, deaf to SIGTERM and with a
// child in a session of its own.
func (p place) alive(way func(*exec.Cmd), flags ...string) (*started, living) {
	life := newLiving(p.t)
	cmd := p.command(append(append([]string{"run"}, flags...), p.url, "--", os.Args[0])...)
	cmd.Env = append(append(cmd.Env, life.environ()...), "LIFE_ESCAPES=1", "LIFE_DEAF=1")
	way(cmd)
	s := start(p.t, cmd)
	require.True(p.t, life.begun(p.t, s), "%s", &s.stderr)
	return s, life
}

// ends waits until there are no more signs of life.
func (l living) ends(t testing.TB) {
	t.Helper()
	for end := time.Now().Add(15 * time.Second); ; {
		before := l.last(t)
		time.Sleep(40 * signEvery)
		if l.last(t) == before {
			return
		}
		require.True(t, time.Now().Before(end), "the command lives on")
	}
}

// The lease is renewed while the guard does not run. What the guard knew before that has run out
// when it goes on.
func TestAGuardThatWasStoppedKnowsTheLastRenewal(t *testing.T) {
	const ttl = 3 * time.Second
	p := newPlace(t)
	s, lines := ready(t, p.command("run", "--ttl", ttl.String(), p.url, "--", "sh", "-c",
		`trap 'exit 9' TERM; echo ready; while [ ! -e "`+p.dir+`/done" ]; do sleep 0.05; done; echo done`))
	guard := onlyChild(t, s.Process.Pid)
	require.NoError(t, syscall.Kill(guard, syscall.SIGSTOP))
	p.renewedFor(ttl + ttl/2)
	require.NoError(t, syscall.Kill(guard, syscall.SIGCONT))
	p.renewedFor(ttl / 2)
	require.NoError(t, os.WriteFile(p.dir+"/done", nil, 0o600))
	rest, err := io.ReadAll(lines)
	require.NoError(t, err)
	require.Equal(t, "done\n", string(rest), "%s", &s.stderr)
	require.Equal(t, 0, s.wait(t), "%s", &s.stderr)
}

// A guard that goes on after the lease has run out ends the command, also if leasehold is stopped
// still.
func TestGuardAndLeaseholdWereStopped(t *testing.T) {
	p := newPlace(t)
	s, life := p.alive(withoutCgroup, "--ttl", "2s")
	guard := onlyChild(t, s.Process.Pid)
	require.NoError(t, s.Process.Signal(syscall.SIGSTOP))
	require.NoError(t, syscall.Kill(guard, syscall.SIGSTOP))
	lease, err := p.lock(leasehold.WithTTL(2 * time.Second)).Acquire(soon(t))
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(guard, syscall.SIGCONT))
	life.ends(t)
	require.NoError(t, s.Process.Signal(syscall.SIGCONT))
	require.Equal(t, 79, s.wait(t), "%s", &s.stderr)
	require.NotContains(t, s.stderr.String(), "%!")
	require.NoError(t, lease.Release(t.Context()))
}

// If the lease is lost while the guard is stopped, leasehold ends the command itself.
func TestALeaseIsLostWhileTheGuardIsStopped(t *testing.T) {
	inBothWays(t, func(t *testing.T, way func(*exec.Cmd)) {
		p := newPlace(t)
		s, life := p.alive(way, "--ttl", "3s")
		require.NoError(t, syscall.Kill(onlyChild(t, s.Process.Pid), syscall.SIGSTOP))
		require.NoError(t, p.lock().Break(t.Context(), 1))
		life.ends(t)
		require.Equal(t, 79, s.wait(t), "%s", &s.stderr)
	})
}

// SIGTERM comes first, then SIGKILL, and only then may others lead, though leasehold does not run.
func TestLeaseholdIsStopped(t *testing.T) {
	inBothWays(t, leaseholdIsStopped)
}

func leaseholdIsStopped(t *testing.T, way func(*exec.Cmd)) {
	p := newPlace(t)
	life := newLiving(t)
	cmd := p.command("run", "--ttl", "3s", p.url, "--", "bash", "-c", `trap 'echo term' TERM; `+os.Args[0]+
		` & echo ready; while :; do sleep 0.05; done`)
	cmd.Env = append(append(cmd.Env, life.environ()...), "LIFE_ESCAPES=1", "LIFE_DEAF=1")
	way(cmd)
	s, lines := ready(t, cmd)
	require.True(t, life.begun(t, s), "%s", &s.stderr)
	require.NoError(t, s.Process.Signal(syscall.SIGSTOP))
	said := make(chan string, 1)
	go func() {
		line, _ := lines.ReadString('\n')
		said <- line
	}()
	select {
	case line := <-said:
		require.Equal(t, "term\n", line)
	case <-time.After(20 * time.Second):
		require.Fail(t, "no SIGTERM")
	}
	signed := life.last(t)
	require.Eventually(t, func() bool {
		return life.last(t) > signed
	}, time.Minute, signEvery, "it has time between the two signals")
	lease, err := p.lock(leasehold.WithTTL(3 * time.Second)).Acquire(soon(t))
	require.NoError(t, err)
	led := monotonic() - time.Since(lease.Record().AcquiredAt)
	time.Sleep(20 * signEvery)
	require.Less(t, life.last(t), led, "the command lived after the next holder led")
	require.NoError(t, s.Process.Signal(syscall.SIGCONT))
	require.Equal(t, 79, s.wait(t), "%s", &s.stderr)
	require.NoError(t, lease.Release(t.Context()))
}

// Whichever of the two is killed, the command and what it has started die at once, although the
// lease would last for an hour.
func TestLeaseholdOrItsGuardIsKilled(t *testing.T) {
	for name, kill := range map[string]func(t *testing.T, leasehold, guard int){
		"leasehold": func(t *testing.T, leasehold, _ int) {
			require.NoError(t, syscall.Kill(leasehold, syscall.SIGKILL))
		},
		"the guard": func(t *testing.T, _, guard int) { require.NoError(t, syscall.Kill(guard, syscall.SIGKILL)) },
		"leasehold, and the guard was stopped": func(t *testing.T, leasehold, guard int) {
			require.NoError(t, syscall.Kill(guard, syscall.SIGSTOP))
			require.NoError(t, syscall.Kill(leasehold, syscall.SIGKILL))
			require.NoError(t, syscall.Kill(guard, syscall.SIGCONT))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBothWays(t, func(t *testing.T, way func(*exec.Cmd)) {
				p := newPlace(t)
				s, life := p.alive(way, "--ttl", "1h")
				kill(t, s.Process.Pid, onlyChild(t, s.Process.Pid))
				life.ends(t)
				_ = s.wait(t)
				p.free(1)
			})
		})
	}
}

// If both are killed, nobody is left to kill the command: the system does.
func TestLeaseholdAndItsGuardAreKilled(t *testing.T) {
	p := newPlace(t)
	s, lines := ready(t, p.command("run", "--ttl", "1h", p.url, "--", "bash", "-c", "echo ready; exec sleep 60"))
	guard := onlyChild(t, s.Process.Pid)
	// stopped first, so that neither sees the other's end
	for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
		require.NoError(t, s.Process.Signal(sig))
		require.NoError(t, syscall.Kill(guard, sig))
	}
	atEnd(t, lines)
}

// atEnd waits until all who could write there have ended.
func atEnd(t *testing.T, lines *bufio.Reader) {
	t.Helper()
	over := make(chan error, 1)
	go func() {
		_, err := io.ReadAll(lines)
		over <- err
	}()
	select {
	case err := <-over:
		require.NoError(t, err)
	case <-time.After(15 * time.Second):
		require.Fail(t, "the command lives on")
	}
}

// The guard can be told from leasehold in a list of processes, and nobody else can start one.
func TestTheGuardHasAName(t *testing.T) {
	p := newPlace(t)
	s, _ := ready(t, p.command("run", p.url, "--", "sh", "-c", "echo ready; while :; do sleep 0.05; done"))
	name, err := os.ReadFile("/proc/" + strconv.Itoa(onlyChild(t, s.Process.Pid)) + "/comm")
	require.NoError(t, err)
	require.Equal(t, "leasehold-guard\n", string(name))
	for _, args := range [][]string{{"__guard"}, {"__guard", "x"}, {"__guard", "1", "2", "3", "true"},
		{"__guard", "0", "0", "0", "/bin/true", "true"}} {
		offline(t, args...).complains(t, 64, "see leasehold help")
	}
}
