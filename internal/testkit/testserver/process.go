package testserver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// startWithin bounds the wait for a server's first answer, which takes well under a second on an
// idle machine.
const startWithin = 60 * time.Second

// Process is a server on a loopback port with its own data directory. Its methods are safe for
// concurrent use.
type Process struct {
	Addr string // 127.0.0.1:port

	name   string
	path   string
	dir    string // has the data, the log and what the server writes to its home directory
	args   []string
	env    []string
	health string // URL path that returns 200 when the server is ready

	mu     sync.Mutex
	cmd    *exec.Cmd     // nil while the server is down
	exited chan struct{} // closed when cmd has been waited for
}

// launch starts a server, with more environment variables than its kind has, and waits until it is
// ready.
func launch(k *kind, path string, env ...string) (*Process, error) {
	dir, err := os.MkdirTemp("", "leasehold-"+k.name+"-")
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o755); err != nil {
		return nil, err
	}
	// Another process may take the free port before the server binds it. Then the server exits, and
	// another port is tried.
	var errs []error
	for range 3 {
		addr, err := freeAddr()
		if err != nil {
			return nil, err
		}
		p := &Process{
			Addr:   addr,
			name:   k.name,
			path:   path,
			dir:    dir,
			args:   k.args(addr, data),
			env:    slices.Concat(k.env, env),
			health: k.health,
		}
		if err = p.Restart(); err == nil {
			return p, nil
		}
		errs = append(errs, fmt.Errorf("%w\n%s", err, p.Log()))
	}
	os.RemoveAll(dir)
	return nil, errors.Join(errs...)
}

// reserved are listeners that keep the ports of this process from all other test processes.
var reserved struct {
	mu        sync.Mutex
	listeners []net.Listener
}

// Systems give ports from 32768 on to those who ask for any.
const firstPort, lastPort = 16384, 32767

// freeAddr returns a loopback address at which nobody listens, and whose port neither a test that
// asks for any nor another test process gets as long as this one runs. MinIO shares its port with
// any other server that asks for the same one, and each of the two then answers some of the other's
// requests.
func freeAddr() (string, error) {
	reserved.mu.Lock()
	defer reserved.mu.Unlock()
	for try := 1; ; try++ {
		port := firstPort + rand.N(lastPort-firstPort+1)
		addr := fmt.Sprintf("127.0.0.1:%d", port)
		claim, err := net.Listen("tcp", fmt.Sprintf("127.0.0.2:%d", port))
		if err == nil || runtime.GOOS != "linux" { // other systems have no such address
			var probe net.Listener
			if probe, err = net.Listen("tcp", addr); err == nil {
				if claim != nil {
					reserved.listeners = append(reserved.listeners, claim)
				}
				return addr, probe.Close()
			}
		}
		if claim != nil {
			claim.Close()
		}
		if try == 20 {
			return "", err
		}
	}
}

// FreeAddr returns a loopback address at which nobody listens, for a server of the test, or for
// none: no other test gets it.
func FreeAddr(tb testing.TB) string {
	tb.Helper()
	addr, err := freeAddr()
	if err != nil {
		tb.Fatal(err)
	}
	return addr
}

// Restart kills the server if it runs, starts it again on the same port with the same data, and
// returns when it is ready.
func (p *Process) Restart() error {
	p.Kill()
	p.mu.Lock()
	defer p.mu.Unlock()
	log, err := os.OpenFile(filepath.Join(p.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(p.path, p.args...)
	cmd.Dir = p.dir
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.dir, "TMPDIR=" + p.dir}, p.env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = childAttr()

	started, exited := make(chan error), make(chan struct{})
	go func() {
		// Linux sends the parent death signal when the thread that started the child ends, not when
		// its process ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // usually an error, because it was killed
		}
		close(exited)
	}()
	if err := <-started; err != nil {
		return err
	}
	p.cmd, p.exited = cmd, exited
	if err := p.waitReady(); err != nil {
		p.kill()
		return err
	}
	return nil
}

func (p *Process) waitReady() error {
	ctx, cancel := context.WithTimeout(context.Background(), startWithin)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.Addr+p.health, nil)
		if err != nil {
			return err
		}
		if resp, err := client.Do(req); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-p.exited:
			return fmt.Errorf("testserver: %s exited before it was ready", p.name)
		case <-ctx.Done():
			return fmt.Errorf("testserver: %s on %s was not ready within %s", p.name, p.Addr, startWithin)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Kill kills the server, as in a crash, and returns when its process has ended. The data stays.
func (p *Process) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kill()
}

func (p *Process) kill() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill() // an error means that it has already ended
	<-p.exited
	p.cmd = nil
}

// Log returns the end of the server's output so far.
func (p *Process) Log() string {
	log, err := os.ReadFile(filepath.Join(p.dir, "log"))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(tail(log)))
}

// close kills the server and removes its data.
func (p *Process) close() {
	p.Kill()
	os.RemoveAll(p.dir)
}

// logOnFailure adds the server's log to the output of a test that fails.
func (p *Process) logOnFailure(tb testing.TB) {
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("log of %s:\n%s", p.name, p.Log())
		}
	})
}
