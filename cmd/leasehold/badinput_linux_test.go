package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A directory on a disk that is full, or on a network, is refused in one line that says what to do.
// testdata/script/badinput.txt has all else that is wrong.
func TestBadInput(t *testing.T) {
	full, onFull := fullDisk(t)
	network, onNetwork := networkFS(t)
	for _, c := range []struct {
		dir, says string
		code      int
		with      func(*exec.Cmd)
	}{
		{full, "free some space", 69, onFull},
		{network, "use a directory on a local file system", 78, onNetwork},
	} {
		cmd := place{t: t}.command("run", "-n", "file://"+c.dir+"/a", "--", "true")
		if c.with != nil {
			c.with(cmd)
		}
		finish(t, cmd).complains(t, c.code, c.says)
	}
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
	require.Regexp(t, "^leasehold: the command was ended or not started: lock \"a\": lease lost .token 1.: broken by "+
		"an administrator .see leasehold help guarantee.$", lines[len(lines)-1])
}
