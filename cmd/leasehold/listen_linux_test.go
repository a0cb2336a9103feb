package main_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
)

// sockets are those that a process has open.
func sockets(t *testing.T, pid int) (found []string) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		if at, err := os.Readlink(file); err == nil && strings.HasPrefix(at, "socket:") {
			found = append(found, at)
		}
	}
	return found
}

// Neither the guard nor the command has the socket of --listen. So a leasehold that is started
// again can listen there, although the guard of the one that was killed is still there, and those
// who wait get the lock after --crash-drain and a poll at most.
func TestTheSocketOfAKilledLeasehold(t *testing.T) {
	inBothWays(t, func(t *testing.T, way func(*exec.Cmd)) {
		const drain = 3 * time.Second
		p, addr := newPlace(t), testserver.FreeAddr(t)
		s, life := p.alive(way, "--listen", addr, "--ttl", "1h", "--crash-drain", drain.String())
		guard := onlyChild(t, s.Process.Pid)
		own := sockets(t, s.Process.Pid)
		require.NotEmpty(t, own)
		for _, other := range []int{guard, onlyChild(t, guard)} {
			for _, socket := range sockets(t, other) {
				require.NotContains(t, own, socket)
			}
		}
		next := start(t, p.command("run", "--listen", testserver.FreeAddr(t), p.url, "--", "true"))
		require.NoError(t, s.Process.Signal(syscall.SIGKILL))
		killed := time.Now()
		life.ends(t)
		ended(t, s.Process.Pid)
		l, err := net.Listen("tcp", addr)
		require.NoError(t, err)
		require.NoError(t, l.Close())
		require.True(t, lives(guard), "it has gone before")
		require.Zero(t, next.wait(t), "%s", &next.stderr)
		require.Greater(t, time.Since(killed), drain)
		require.Less(t, time.Since(killed), drain+12*time.Second) // a poll is 6 s
	})
}

// flood opens connections to a server, and returns what closes them.
func flood(t *testing.T, addr string, n int) (end func()) {
	t.Helper()
	var all []net.Conn
	end = func() {
		for _, c := range all {
			c.Close()
		}
	}
	t.Cleanup(end)
	for range n {
		c, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		all = append(all, c)
	}
	return end
}

// A flood of connections leaves files for what renews the lease, and keeps no health check out.
func TestAFloodOfConnections(t *testing.T) {
	t.Parallel()
	p, addr := newPlace(t), testserver.FreeAddr(t)
	s, _ := ready(t, p.command("run", "--listen", addr, p.url, "--", "sh", "-c", "echo ready; exec sleep 600"))
	before := len(sockets(t, s.Process.Pid))
	end := flood(t, addr, 600)
	most := 0
	for range 100 {
		most = max(most, len(sockets(t, s.Process.Pid))-before)
		time.Sleep(10 * time.Millisecond)
	}
	require.Greater(t, most, 100, "there was no flood")
	require.LessOrEqual(t, most, 500+1) // and one that is about to be closed
	for _, path := range []string{"/leader", "/healthz"} {
		status, text := answer("http://" + addr + path)
		require.Equal(t, 200, status, "a newcomer must be let in at once, and not after some tries: %s", text)
	}
	end()
	began := time.Now()
	for range 600 { // busy ones, whose request never ends
		c, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		_, _ = io.WriteString(c, "POST /leader HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n") // may be closed
	}
	s.answers(t, "http://"+addr+"/healthz", 200)
	require.Less(t, time.Since(began), 8*time.Second, "it has waited for their bodies")
	s.answers(t, "http://"+addr+"/leader", 200)
}

// Whoever reaches --admin takes few files from what renews the lease, and keeps no operator out.
func TestAFloodOfOperators(t *testing.T) {
	t.Parallel()
	p, addr, admin := newPlace(t), testserver.FreeAddr(t), testserver.FreeAddr(t)
	s, _ := ready(t, p.command("elect", "--listen", addr, "--admin", admin, p.url, "--", "sh", "-c",
		"echo ready; exec sleep 600"))
	before := len(sockets(t, s.Process.Pid))
	defer flood(t, admin, 200)()
	most := 0
	for range 100 {
		most = max(most, len(sockets(t, s.Process.Pid))-before)
		time.Sleep(10 * time.Millisecond)
	}
	require.Greater(t, most, 10, "there was no flood")
	require.LessOrEqual(t, most, 20+1)
	status, text := asksFor(t, "POST", "http://"+admin+"/handover?to=x", nil)
	require.Equal(t, 404, status, text)
}

// A request whose body never comes is given up. A handler refuses it at once. What net/http answers
// by itself has ten seconds.
func TestARequestThatNeverEnds(t *testing.T) {
	t.Parallel()
	p, addr := newPlace(t), testserver.FreeAddr(t)
	ready(t, p.command("run", "--listen", addr, p.url, "--", "sh", "-c", "echo ready; exec sleep 600"))
	for request, answer := range map[string]string{
		"GET /leader HTTP/1.1":                          "HTTP/1.1 413 ",
		"GET /healthz HTTP/1.1":                         "HTTP/1.1 413 ",
		"GET /.leasehold/wait?key=a&token=1 HTTP/1.1":   "HTTP/1.1 413 ",
		"GET /leader HTTP/1.1\r\nExpect: all of a body": "HTTP/1.1 417 ",
		"OPTIONS * HTTP/1.1":                            "",
	} {
		c, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		defer c.Close()
		_, err = fmt.Fprint(c, request, "\r\nHost: x\r\nContent-Length: 100\r\n\r\n")
		require.NoError(t, err)
		require.NoError(t, c.SetReadDeadline(time.Now().Add(hangs)))
		got, err := io.ReadAll(c)
		require.NoError(t, err, "%s: the connection stays open", request)
		require.True(t, strings.HasPrefix(string(got), answer), "%s: %q", request, got)
	}
}

// A client that asks on and on and reads no answer is given up.
func TestAClientThatReadsNoAnswer(t *testing.T) {
	t.Parallel()
	p, addr, admin := newPlace(t), testserver.FreeAddr(t), testserver.FreeAddr(t)
	ready(t, p.command("elect", "--listen", addr, "--admin", admin, p.url, "--", "sh", "-c",
		"echo ready; exec sleep 600"))
	var all sync.WaitGroup
	for _, at := range []string{addr, admin} {
		all.Go(func() {
			c, err := net.Dial("tcp", at)
			if !assert.NoError(t, err) {
				return
			}
			defer c.Close()
			assert.NoError(t, c.SetWriteDeadline(time.Now().Add(hangs)))
			requests := []byte(strings.Repeat("GET /x HTTP/1.1\r\nHost: x\r\n\r\n", 1000))
			for err == nil {
				_, err = c.Write(requests)
			}
			assert.NotErrorIs(t, err, os.ErrDeadlineExceeded, at)
		})
	}
	all.Wait()
}

// A server that has no file left for another connection tries again and again, and says so once.
func TestTheServerComplainsOnce(t *testing.T) {
	t.Parallel()
	p, addr := newPlace(t), testserver.FreeAddr(t)
	cmd := p.command("run", "--listen", addr, p.url, "--", "sh", "-c", "echo ready; exec sleep 600")
	cmd.Args = append([]string{"sh", "-c", `ulimit -n 100; exec "$0" "$@"`, program}, cmd.Args[1:]...)
	cmd.Path, _ = exec.LookPath("sh")
	s, _ := ready(t, cmd)
	complains := func() bool { return strings.Contains(s.stderr.String(), "too many open files") }
	end := func() {}
	for until := time.Now().Add(hangs); !complains() && time.Now().Before(until); time.Sleep(time.Second) {
		end() // what is left of a flood that the server has survived: it closes silent connections after 5 s
		end = flood(t, addr, 200)
	}
	require.True(t, complains(), "%s", &s.stderr)
	time.Sleep(time.Second) // it tries eight times
	end()
	s.answers(t, "http://"+addr+"/leader", 200)
	require.NoError(t, s.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 128+15, s.wait(t))
	require.Equal(t, 1, strings.Count(s.stderr.String(), "the server of --listen"), "%s", &s.stderr)
}

// Ports that need a privilege. A network namespace of its own has the default of the system.
func TestListenAtAPortThatNeedsAPrivilege(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can make a network namespace")
	}
	cmd := exec.CommandContext(t.Context(), program, "run", "--listen", ":80", "--advertise", "http://10.0.0.7",
		"file:///tmp/a", "--", "true")
	cmd.Env = plainEnviron()
	asNobody(t)(cmd)
	cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNET
	finish(t, cmd).complains(t, 64, `--listen ":80": listen tcp :80: bind: permission denied (choose another`)
}
