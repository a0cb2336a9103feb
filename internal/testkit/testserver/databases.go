package testserver

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"
)

// Database is a server of Debian's packages, for peers of the bench.
type Database struct{ Addr, Version string }

// StartRedis starts a Redis for one test, in memory. An error says that it is not installed.
func StartRedis(tb testing.TB) (Database, error) {
	tb.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		return Database{}, fmt.Errorf("it needs Redis, which make databases installs: %w", err)
	}
	addr, host, port := freePort(tb)
	server := exec.Command(program, "--bind", host, "--port", port, "--save", "", "--appendonly", "no")
	server.Dir = tb.TempDir()
	said := logged(tb, server)
	run(tb, server)
	listens(tb, addr, said)
	return Database{addr, versionOf(tb, program)}, nil
}

// StartPostgres starts a PostgreSQL for one test, with separate data. Its user and its database are
// postgres, without a password. An error says that it is not installed.
func StartPostgres(tb testing.TB) (Database, error) {
	tb.Helper()
	installed, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(installed) == 0 {
		return Database{}, errors.New("it needs PostgreSQL, which make databases installs")
	}
	program := slices.Max(installed)
	dir, err := os.MkdirTemp("", "postgres") // another user cannot reach the directories of a test
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	attr := childAttr()
	if os.Geteuid() == 0 { // it refuses to run as root
		owner, err := user.Lookup("postgres")
		if err != nil {
			tb.Fatal(err)
		}
		uid, _ := strconv.Atoi(owner.Uid)
		gid, _ := strconv.Atoi(owner.Gid)
		if err := os.Chown(dir, uid, gid); err != nil {
			tb.Fatal(err)
		}
		actAs(attr, uid, gid)
	}
	data := filepath.Join(dir, "data")
	command := func(name string, args ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(filepath.Dir(program), name), append(args, "-D", data)...)
		cmd.Dir, cmd.SysProcAttr = dir, attr
		return cmd
	}
	if out, err := command("initdb", "-U", "postgres", "-A", "trust", "--no-sync", "--locale=C").
		CombinedOutput(); err != nil {
		tb.Fatalf("testserver: initdb: %v\n%s", err, tail(out))
	}
	addr, host, port := freePort(tb)
	server := command("postgres", "-h", host, "-p", port, "-c", "unix_socket_directories=", "-c", "max_connections=500")
	said := logged(tb, server)
	run(tb, server)
	// Killed, it would leave shared memory.
	tb.Cleanup(func() { _ = command("pg_ctl", "stop", "-m", "immediate").Run() })
	ready := filepath.Join(filepath.Dir(program), "pg_isready")
	for began := time.Now(); exec.Command(ready, "-h", host, "-p", port).Run() != nil; {
		time.Sleep(20 * time.Millisecond)
		if time.Since(began) > 30*time.Second {
			tb.Fatalf("testserver: PostgreSQL is not ready:\n%s", said())
		}
	}
	return Database{addr, versionOf(tb, program)}, nil
}

func freePort(tb testing.TB) (addr, host, port string) {
	tb.Helper()
	addr = FreeAddr(tb)
	host, port, _ = net.SplitHostPort(addr)
	return addr, host, port
}

// logged has a server write to a file, and returns a function that reads its end.
func logged(tb testing.TB, server *exec.Cmd) func() []byte {
	tb.Helper()
	log, err := os.Create(filepath.Join(tb.TempDir(), "log"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = log.Close() })
	server.Stdout, server.Stderr = log, log
	return func() []byte {
		said, _ := os.ReadFile(log.Name())
		return tail(said)
	}
}

// versionOf is what a program says with --version, such as "postgres (PostgreSQL) 15.14 (Debian)".
func versionOf(tb testing.TB, program string) string {
	tb.Helper()
	out, err := exec.Command(program, "--version").Output()
	found := regexp.MustCompile(`\d+(\.\d+)+`).Find(out)
	if err != nil || found == nil {
		tb.Fatalf("testserver: %s --version: %v: %s", program, err, out)
	}
	return string(found)
}
