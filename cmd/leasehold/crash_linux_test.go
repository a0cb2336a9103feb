package main_test

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/faultproxy"
)

// free waits until the term of that token is released, and returns when that was seen, by
// monotonic.
func (p place) free(token uint64) time.Duration {
	p.t.Helper()
	lock := p.lock()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		r, err := lock.Inspect(p.t.Context())
		require.NoError(p.t, err)
		require.Equal(p.t, token, r.Token)
		if r.Released() {
			return monotonic()
		}
		require.True(p.t, time.Now().Before(end), "the lock is not released")
	}
}

// ended waits until a process is no longer there, or is only to be reaped.
func ended(t testing.TB, pid int) {
	t.Helper()
	require.Eventually(t, func() bool { return !lives(pid) }, 20*time.Second, time.Millisecond, "%d lives on", pid)
}

func lives(pid int) bool { return syscall.Kill(pid, 0) == nil && !zombie(pid) }

// The lock of a leasehold that was killed is free when nothing of the command has lived for the
// time of --crash-drain, although the lease would last for an hour.
func TestTheLockOfAKilledLeaseholdIsReleased(t *testing.T) {
	inBothWays(t, func(t *testing.T, way func(*exec.Cmd)) {
		const drain = 700 * time.Millisecond
		p := newPlace(t)
		s, life := p.alive(way, "--ttl", "1h", "--crash-drain", drain.String(), "--holder", "eve", "--metadata", "a=b")
		guard := onlyChild(t, s.Process.Pid)
		require.NoError(t, s.Process.Signal(syscall.SIGKILL))
		released := p.free(1)
		require.Greater(t, released, life.last(t)+drain, "released too early")
		r, err := p.lock().Inspect(t.Context())
		require.NoError(t, err)
		require.Equal(t, "eve", r.Holder)
		require.Equal(t, map[string]string{"a": "b"}, r.Metadata)
		ended(t, guard)
		_ = s.wait(t)
		require.Equal(t, 1, strings.Count(s.stderr.String(), "\n"), "%s", &s.stderr)
		require.Contains(t, s.stderr.String(), "leasehold was killed: the guard releases the lock")
		lease, err := p.lock().TryAcquire(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 2, lease.Token())
		require.NoError(t, lease.Release(t.Context()))
	})
}

// The term that is released is the one in force.
func TestTheLockOfAKilledElectIsReleased(t *testing.T) {
	p := newPlace(t)
	s := start(t, p.command("elect", "--ttl", "1h", "--crash-drain", "0", p.url, "--", "sh", "-c",
		"[ $LEASEHOLD_TOKEN = 3 ] && echo ready && exec sleep 600"))
	_, err := io.ReadFull(s.out, make([]byte, len("ready\n")))
	require.NoError(t, err, "%s", &s.stderr)
	require.NoError(t, s.Process.Signal(syscall.SIGKILL))
	p.free(3)
}

// Nothing is released while something of the command lives, even if that cannot be killed.
func TestNothingIsReleasedWhileSomethingLives(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can make a process that leasehold may not kill")
	}
	p, life, dir := newPlace(t), newLiving(t), nobodysDir(t)
	immune := filepath.Join(dir, "immune")
	self, err := os.ReadFile(os.Args[0])
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(immune, self, 0o755))
	require.NoError(t, os.Chmod(immune, 0o755|os.ModeSetuid))
	p.dir, p.url = dir, "file://"+dir+"/a"
	cmd := p.command("run", "--ttl", "1h", "--crash-drain", "0", p.url, "--", immune)
	cmd.Env = append(append(cmd.Env, life.environ()...), "LIFE_IMMUNE=1")
	asNobody(t)(cmd)
	s := start(t, cmd)
	require.True(t, life.begun(t, s), "%s", &s.stderr)
	require.NoError(t, s.Process.Signal(syscall.SIGKILL))
	before := life.last(t)
	require.Never(t, func() bool {
		r, err := p.lock().Inspect(t.Context())
		return err != nil || r.Released()
	}, 2*time.Second, 10*time.Millisecond, "released although the command lives")
	require.Greater(t, life.last(t), before+time.Second, "the command has not lived on")
	require.NoError(t, os.Remove(life.path)) // it ends
	p.free(1)
}

// nobodysDir is a directory of the user nobody, and a program there may be setuid.
func nobodysDir(t *testing.T) string {
	dir, err := os.MkdirTemp("", "leasehold-nobody-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chown(dir, 65534, 65534))
	return dir
}

func TestTheLockOfAKilledLeaseholdIsKept(t *testing.T) {
	for name, c := range map[string]struct {
		flags []string
		then  func(t *testing.T, guard int)
	}{
		"--on-crash keep": {[]string{"--on-crash", "keep"}, func(*testing.T, int) {}},
		"the guard is killed": {[]string{"--crash-drain", "3s"}, func(t *testing.T, guard int) {
			require.NoError(t, syscall.Kill(guard, syscall.SIGKILL))
		}},
		"the guard is stopped for a TTL": {[]string{"--crash-drain", "2s"}, func(t *testing.T, guard int) {
			require.NoError(t, syscall.Kill(guard, syscall.SIGSTOP))
			time.Sleep(4 * time.Second) // the TTL
			require.NoError(t, syscall.Kill(guard, syscall.SIGCONT))
		}},
		"the drain is longer than what is left": {[]string{"--crash-drain", "3999ms"}, func(*testing.T, int) {}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBothWays(t, func(t *testing.T, way func(*exec.Cmd)) {
				p := newPlace(t)
				s, life := p.alive(way, append([]string{"--ttl", "4s"}, c.flags...)...)
				guard := onlyChild(t, s.Process.Pid)
				require.NoError(t, s.Process.Signal(syscall.SIGKILL))
				life.ends(t)
				c.then(t, guard)
				ended(t, guard)
				r, err := p.lock().Inspect(t.Context())
				require.NoError(t, err)
				require.EqualValues(t, 1, r.Token)
				require.False(t, r.Released())
			})
		})
	}
}

// A store that hangs or refuses costs time until the lease is over, and nothing else: the command
// is dead at once, nobody waits for the guard, and the lock is free as after any crash.
func TestAKilledLeaseholdAndAStoreThatFails(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	for name, fault := range map[string]faultproxy.Fault{
		"hangs":   {Kind: faultproxy.Refuse, Before: time.Hour},
		"refuses": {Kind: faultproxy.Refuse},
		"denies":  {Kind: faultproxy.Answer, Status: 403},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const ttl = 6 * time.Second
			s, proxy, failing := killedBehind(t, b, name, fault, "--ttl", ttl.String())
			guard := onlyChild(t, s.Process.Pid)
			failing.Store(true)
			require.NoError(t, s.Process.Signal(syscall.SIGKILL))
			killed, requests := time.Now(), proxy.Count(http.MethodGet)
			_, err := io.ReadAll(s.out)
			require.NoError(t, err)
			<-s.ended // also standard error is closed
			if name != "denies" {
				require.True(t, lives(guard), "it does not try, or keeps the output open meanwhile")
			}
			ended(t, guard)
			require.Less(t, time.Since(killed), ttl+time.Second)
			require.Greater(t, proxy.Count(http.MethodGet), requests)
			lease, err := b.lock("locks/"+name, leasehold.WithTTL(ttl)).Acquire(soon(t))
			require.NoError(t, err)
			require.EqualValues(t, 2, lease.Token())
			require.NoError(t, lease.Release(t.Context()))
		})
	}
}

// killedBehind starts the program behind a proxy that has the fault when the flag is set.
func killedBehind(t *testing.T, b bucket, name string, fault faultproxy.Fault,
	flags ...string) (*started, *faultproxy.Proxy, *atomic.Bool) {
	failing := new(atomic.Bool)
	proxy := faultproxy.Start(t, b.server.Endpoint, func(*http.Request) faultproxy.Fault {
		if failing.Load() {
			return fault
		}
		return faultproxy.Fault{}
	})
	s, _ := ready(t, b.command(append(append([]string{"run"}, flags...), b.urlAt(proxy.URL(), "locks/"+name), "--",
		"sh", "-c", "echo ready; exec sleep 600")...))
	return s, proxy, failing
}

// The guard tries again while the store cannot be reached.
func TestTheStoreComesBackAfterAKill(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	s, _, failing := killedBehind(t, b, "back", faultproxy.Fault{Kind: faultproxy.Refuse}, "--ttl", "10m")
	failing.Store(true)
	require.NoError(t, s.Process.Signal(syscall.SIGKILL))
	time.Sleep(3 * time.Second) // the drain, and some tries
	failing.Store(false)
	lease, err := b.lock("locks/back").Acquire(soon(t))
	require.NoError(t, err)
	require.EqualValues(t, 2, lease.Token())
	require.NoError(t, lease.Release(t.Context()))
}

// A renewal of the dead leasehold that lands late does not bring its term back.
func TestALateRenewalOfAKilledLeasehold(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	s, proxy, failing := killedBehind(t, b, "late", faultproxy.Fault{Kind: faultproxy.Ghost, Before: 4 * time.Second},
		"--ttl", "15s", "--crash-drain", "0")
	failing.Store(true)
	sent := proxy.Count(http.MethodPut)
	require.Eventually(t, func() bool { return proxy.Count(http.MethodPut) > sent }, 20*time.Second, time.Millisecond)
	require.NoError(t, s.Process.Signal(syscall.SIGKILL))
	failing.Store(false)
	lease, err := b.lock("locks/late").Acquire(soon(t))
	require.NoError(t, err)
	require.EqualValues(t, 2, lease.Token())
	time.Sleep(5 * time.Second) // the renewal has landed, or was refused
	require.NoError(t, lease.Renew(t.Context()))
	require.NoError(t, lease.Release(t.Context()))
}

// Neither the environment of the command nor that of the guard, nor what either can list of the
// other, has the handle.
func TestTheCommandDoesNotSeeTheHandle(t *testing.T) {
	p := newPlace(t)
	r := finish(t, p.command("run", p.url, "--", "sh", "-c",
		`env; cat /proc/$PPID/environ /proc/$PPID/cmdline | tr '\0' '\n'; ls -l /proc/$$/fd`))
	require.Equal(t, 0, r.code, "%s", r.stderr)
	require.Contains(t, r.out, "\n__guard\n")
	require.NotRegexp(t, regexp.MustCompile(`[0-9]-[A-Z2-7]{26}`), r.out)
	require.NotContains(t, r.out, "socket:")
}
