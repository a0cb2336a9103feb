package main_test

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/faultproxy"
)

// Whatever is wrong leads to the exit code of the page, and to one line that says what to do. The
// tests beside it know more of each.
func TestBadInput(t *testing.T) {
	b := newBucket(t)
	denying := faultproxy.Start(t, b.server.Endpoint, func(*http.Request) faultproxy.Fault {
		return faultproxy.Fault{Kind: faultproxy.Answer, Status: http.StatusForbidden}
	})
	broken := faultproxy.Start(t, b.server.Endpoint, func(*http.Request) faultproxy.Fault {
		return faultproxy.Fault{Kind: faultproxy.Answer}
	})
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, nobody.Close())
	b.putObject("locks/page", "a page")
	lease, err := b.lock("locks/held", leasehold.WithHolder("another")).Acquire(t.Context())
	require.NoError(t, err)
	defer lease.Release(t.Context())
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	require.NoError(t, os.WriteFile(plain, nil, 0o600))
	closed := filepath.Join(dir, "closed")
	require.NoError(t, os.Mkdir(closed, 0))
	handle := b.run("acquire", b.url("locks/steps"))
	handle.succeeds(t)
	old := strings.TrimSpace(handle.out)
	b.run("release", old).succeeds(t)
	out, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer out.Close()
	missing := strings.Replace(b.url("locks/x"), "s3://", "s3://no-such-", 1)
	here := "file://" + dir + "/a"

	onlyMe := asNobody(t)
	full, onFull := fullDisk(t)
	network, onNetwork := networkFS(t)
	toFull := func(cmd *exec.Cmd) { cmd.Stdout = out }
	t.Run("each", func(t *testing.T) { // all of them, before what they need is gone
		for name, c := range map[string]struct {
			args []string
			code int
			says string // what to do
			with func(*exec.Cmd)
		}{
			"no URL": {
				[]string{"run", "report", "--", "true"},
				64,
				"write s3://bucket/key",
				nil,
			},
			"a wrong URL":        {[]string{"bench", "s3://bucket/"}, 64, "write s3://bucket/key", nil},
			"no such subcommand": {[]string{"frob"}, 64, "see leasehold help", nil},
			"no such flag": {
				[]string{"run", "--frob", here, "--", "true"},
				64,
				"see leasehold help",
				nil,
			},
			"a TTL that is too short": {
				[]string{"run", "--ttl", "1ms", here, "--", "true"},
				64,
				"is below 1s, the minimum",
				nil,
			},
			"a key that is too long": {
				[]string{"run", "file://" + dir + "/" + strings.Repeat("k", 1025), "--", "true"},
				64,
				"longer than 1024 bytes",
				nil,
			},
			"a handle that is not one": {[]string{"renew", "x"}, 64, "pass what acquire has printed", nil},
			"a handle cut off": {
				[]string{"release", old[:len(old)-1]},
				64,
				"pass what acquire has printed",
				nil,
			},
			"a handle of another's term": {[]string{"renew", old}, 79, "acquire the lock again", nil},
			"another token than the lock's": {
				[]string{"break", "--token", "9", b.url("locks/held")},
				64,
				"leasehold status shows the token",
				nil,
			},
			"a missing bucket": {
				[]string{"run", missing, "--", "true"},
				78,
				"create the bucket",
				nil,
			},
			"a missing directory": {
				[]string{"run", "file:///no/such/directory/x", "--", "true"},
				78,
				"create the directory",
				nil,
			},
			"a missing directory, list": {
				[]string{"list", "file:///no/such/directory/"},
				78,
				"create the directory",
				nil,
			},
			"a file for a directory": {
				[]string{"run", "file://" + plain + "/x", "--", "true"},
				78,
				"give the path of a directory",
				nil,
			},
			"an object that is no lock": {
				[]string{"run", b.url("locks/page"), "--", "true"},
				78,
				"corrupt lock, or none at all",
				nil,
			},
			"no permission in a bucket": {
				[]string{"run", b.urlAt(denying.URL(), "locks/x"), "--", "true"},
				77,
				"check the credentials",
				nil,
			},
			"no permission in a bucket, list": {
				[]string{"list", b.urlAt(denying.URL(), "locks/")},
				77,
				"check the credentials",
				nil,
			},
			"no permission in a directory": {
				[]string{"run", "-n", "file://" + closed + "/a", "--", "true"},
				77,
				"needs read, write and search permission",
				onlyMe,
			},
			"no permission in a directory, list": {
				[]string{"list", "file://" + closed + "/"},
				77,
				"needs read, write and search permission",
				onlyMe,
			},
			"nobody listens": {
				[]string{"status", b.urlAt("http://"+nobody.Addr().String(), "locks/x")},
				69,
				"is the server running?",
				nil,
			},
			"nobody answers": {
				[]string{"status", b.urlAt("http://"+silent.Addr().String(), "locks/x")},
				69,
				"is the server running?",
				nil,
			},
			"an error of the server": {
				[]string{"status", b.urlAt(broken.URL(), "locks/x")},
				69,
				"try again",
				nil,
			},
			"a lock that is held": {
				[]string{"run", "-n", b.url("locks/held"), "--", "true"},
				75,
				"try again",
				nil,
			},
			"no such command": {
				[]string{"run", here, "--", "no-such-command"},
				127,
				"check its name and PATH",
				nil,
			},
			"a command that is no program": {
				[]string{"run", here, "--", plain},
				126,
				"check its permissions",
				nil,
			},
			"a full standard output": {
				[]string{"status", b.url("locks/held")},
				74,
				"no space left on device",
				toFull,
			},
			"a full standard output, acquire": {
				[]string{"acquire", "file://" + dir + "/handle"},
				74,
				"no space left on device",
				toFull,
			},
			"no standard output, acquire": {
				[]string{"acquire", "file://" + dir + "/closed"},
				64,
				"the handle would be lost",
				closing("1"),
			},
			"a limit on files": {
				[]string{"run", "-n", "file://" + dir + "/limited", "--", "true"},
				69,
				"raise it (ulimit -f)",
				limited,
			},
			"a full disk": {
				[]string{"run", "-n", "file://" + full + "/a", "--", "true"},
				69,
				"free some space",
				onFull,
			},
			"a network file system": {
				[]string{"run", "-n", "file://" + network + "/a", "--", "true"},
				78,
				"use a directory on a local file system",
				onNetwork,
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				cmd := b.command(c.args...)
				if c.with != nil {
					c.with(cmd)
				}
				finish(t, cmd).complains(t, c.code, c.says)
			})
		}
	})
}

// A handle that cannot be written is of no use, so the lock is released again. The file that was
// there before stays.
func TestHandleFileOnAFullDisk(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	file := filepath.Join(t.TempDir(), "handle")
	b.run("acquire", "--handle-file", file, b.url("locks/a")).succeeds(t)
	before, err := os.ReadFile(file)
	require.NoError(t, err)
	b.run("release", strings.TrimSpace(string(before))).succeeds(t)
	full, onFull := fullDisk(t)
	if onFull == nil {
		onFull = func(*exec.Cmd) {}
	} else { // it could not be made, so no file may grow
		onFull = limited
	}
	for path, with := range map[string]func(*exec.Cmd){
		file:                          limited,
		filepath.Join(full, "handle"): onFull,
	} {
		cmd := b.command("acquire", "--handle-file", path, b.url("locks/a"))
		with(cmd)
		finish(t, cmd).complains(t, 74, "the handle cannot be written")
		left, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".leasehold-handle*"))
		require.NoError(t, err)
		require.Empty(t, left)
		b.run("run", "-n", b.url("locks/a"), "--", "true").succeeds(t)
	}
	after, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(before), string(after))
}

// closing closes one of the standard files.
func closing(file string) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) {
		cmd.Args = append([]string{"sh", "-c", `exec "$0" "$@" ` + file + ">&-", program}, cmd.Args[1:]...)
		cmd.Path, _ = exec.LookPath("sh")
	}
}

// limited lets no file grow.
func limited(cmd *exec.Cmd) {
	cmd.Args = append([]string{"sh", "-c", `trap '' XFSZ; ulimit -f 0; exec "$0" "$@"`, program}, cmd.Args[1:]...)
	cmd.Path, _ = exec.LookPath("sh")
}

// asNobody takes the rights of root, who may do everything, from a command.
func asNobody(t *testing.T) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) {
		if os.Getuid() != 0 {
			return
		}
		file, err := os.Open(program) // whose directory is root's own
		require.NoError(t, err)
		t.Cleanup(func() { file.Close() })
		cmd.ExtraFiles = []*os.File{file}
		cmd.Path = "/proc/self/fd/3"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
}

// Standard files that are closed are as good as /dev/null, except for acquire.
func TestClosedFiles(t *testing.T) {
	url := "file://" + t.TempDir() + "/a"
	for _, args := range [][]string{{"run", url, "--", "true"}, {"status", url},
		{"list", strings.TrimSuffix(url, "a")}, {"man"}} {
		for _, file := range []string{"0", "1", "2"} {
			cmd := bucket{t: t}.command(args...)
			cmd.Env = plainEnviron()
			closing(file)(cmd)
			finish(t, cmd).succeeds(t)
		}
	}
}

// A command that ignores SIGTERM is killed when its lease is lost.
func TestCommandThatIgnoresSIGTERM(t *testing.T) {
	url := "file://" + t.TempDir() + "/a"
	cmd := bucket{t: t}.command("run", "--ttl", "2s", url, "--", "sh", "-c", "trap '' TERM; echo ready; while :; do "+
		"sleep 0.05; done")
	cmd.Env = plainEnviron()
	s, _ := ready(t, cmd)
	offline(t, "break", "--token", "1", url).succeeds(t)
	require.Equal(t, 79, s.wait(t), "%s", &s.stderr)
	lines := strings.Split(strings.TrimSpace(s.stderr.String()), "\n")
	require.Equal(t, 1, strings.Count("\n"+s.stderr.String(), "\nleasehold: "))
	require.Regexp(t, "^leasehold: the command was ended, or not started, because its lease was lost: .*broken by an "+
		"administrator .see leasehold help guarantee.$", lines[len(lines)-1])
}
