package testserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// startWithin bounds the wait for a server to answer; it takes well under a second on an idle machine.
const startWithin = 60 * time.Second

// Process is a server on a loopback port with a data directory of its own. Its methods may be called concurrently.
type Process struct {
	Addr string // 127.0.0.1:port

	name   string
	path   string
	dir    string // holds the data, the log and whatever the server keeps in its home
	args   []string
	env    []string
	health string // URL path that answers 200 once the server is ready

	mu     sync.Mutex
	cmd    *exec.Cmd     // nil while the server is down
	exited chan struct{} // closed when cmd has been waited for
}

// launch starts a server from its program and waits until it answers.
func launch(k *kind, path string) (*Process, error) {
	dir, err := os.MkdirTemp("", "leasehold-"+k.name+"-")
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o755); err != nil {
		return nil, err
	}
	// A free port can be taken by someone else before the server binds it; then the server exits and we try another.
	var errs []error
	for range 3 {
		addr, err := freeAddr()
		if err != nil {
			return nil, err
		}
		p := &Process{Addr: addr, name: k.name, path: path, dir: dir, args: k.args(addr, data), env: k.env, health: k.health}
		if err = p.Restart(); err == nil {
			return p, nil
		}
		errs = append(errs, fmt.Errorf("%w\n%s", err, p.Log()))
	}
	os.RemoveAll(dir)
	return nil, errors.Join(errs...)
}

func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// Restart starts the server again on the same port with the same data, killing it first if it runs,
// and returns when it answers.
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
		// The death signal of Linux is tied to the thread that started the child, not to the process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // killed, as a rule
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
			return fmt.Errorf("testserver: %s exited before it answered", p.name)
		case <-ctx.Done():
			return fmt.Errorf("testserver: %s did not answer on %s within %s", p.name, p.Addr, startWithin)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Kill ends the server at once, as a crash would, and returns when it is gone. The data stays.
func (p *Process) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kill()
}

func (p *Process) kill() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill() // an error says that it is gone already
	<-p.exited
	p.cmd = nil
}

// Log is the end of what the server has written so far.
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

// logOnFailure shows the server's log in the output of a test that fails.
func (p *Process) logOnFailure(tb testing.TB) {
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("log of %s:\n%s", p.name, p.Log())
		}
	})
}
