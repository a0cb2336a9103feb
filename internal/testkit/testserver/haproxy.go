package testserver

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// StartHAProxy starts HAProxy for one test and returns its URL. backend is the section of its
// backend, whose name is service. Debian's package is haproxy. Where that is not installed, the
// test is [Missing] haproxy.
func StartHAProxy(tb testing.TB, backend string) (url string) {
	tb.Helper()
	SkipIfShort(tb)
	program := debianProgram(tb, "haproxy", "haproxy")
	addr, err := freeAddr()
	if err != nil {
		tb.Fatal(err)
	}
	config := filepath.Join(tb.TempDir(), "haproxy.cfg")
	text := fmt.Sprintf(`global
	maxconn 100
defaults
	mode http
	timeout connect 1s
	timeout client 10s
	timeout server 10s
frontend all
	bind %s
	default_backend service
%s
`, addr, backend)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	run(tb, exec.Command(program, "-db", "-q", "-f", config))
	listens(tb, addr, func() []byte {
		out, _ := exec.Command(program, "-c", "-f", config).CombinedOutput()
		return out
	})
	return "http://" + addr
}

// debianProgram is the path of a program that a package of Debian installs, perhaps where only root
// has it in the PATH.
func debianProgram(tb testing.TB, name, pkg string) string {
	tb.Helper()
	program, err := exec.LookPath(name)
	if err != nil {
		if program = "/usr/sbin/" + name; !exists(program) {
			Missing(tb, name, fmt.Errorf("it needs %s, which apt-get install %s installs: %w", name, pkg, err))
		}
	}
	return program
}

// listens waits until a server listens at addr. why says why none does.
func listens(tb testing.TB, addr string, why func() []byte) {
	tb.Helper()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			_ = c.Close()
			return
		}
		if time.Since(began) > 10*time.Second {
			tb.Fatalf("testserver: no server listens: %v\n%s", err, why())
		}
	}
}
