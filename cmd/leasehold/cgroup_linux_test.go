package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
)

// wrapped makes the test binary start a command under other circumstances: see actAsWrapper.
func wrapped(cmd *exec.Cmd, circumstances string) {
	cmd.Args = append([]string{os.Args[0], cmd.Path}, cmd.Args[1:]...)
	cmd.Path = os.Args[0]
	cmd.Env = append(cmd.Env, "LEASEHOLD_TEST_WRAPPER="+circumstances)
}

// actAsWrapper goes on as the program in its arguments: where control groups are read-only, as in a
// container, or in a control group.
func actAsWrapper(circumstances string) {
	check := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	check(os.Unsetenv("LEASEHOLD_TEST_WRAPPER"))
	if circumstances != "read-only" {
		check(os.WriteFile(circumstances+"/cgroup.procs", []byte("0"), 0))
	} else {
		runtime.LockOSThread() // another thread would still be in the mount namespace of the machine
		check(unix.Unshare(unix.CLONE_NEWNS))
		check(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		check(err)
		for _, found := range regexp.MustCompile(
			`(?m)^\S+ \S+ \S+ \S+ (\S+) .* - cgroup2 `).FindAllStringSubmatch(string(mounts), -1) {
			check(unix.Mount("", found[1], "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
		}
	}
	if user, err := strconv.Atoi(os.Getenv("LEASEHOLD_TEST_USER")); err == nil {
		check(syscall.Setgid(user))
		check(syscall.Setuid(user))
	}
	check(unix.Exec(os.Args[1], os.Args[1:], os.Environ()))
}

// withoutCgroup keeps leasehold from making a control group.
func withoutCgroup(cmd *exec.Cmd) {
	if os.Getuid() == 0 {
		wrapped(cmd, "read-only")
	}
}

// withCgroup leaves a command as it is, and skips the test where leasehold may make no control
// group.
func withCgroup(t testing.TB) func(*exec.Cmd) {
	if _, why := ownCgroup(); why != nil {
		testserver.Missing(t, "cgroup", why)
	}
	return func(*exec.Cmd) {}
}

// ownCgroup is the directory of the control group of this process, if control groups can be made in
// it.
var ownCgroup = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "leasehold-own-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	out, err := exec.Command(program, "run", "-v", "file://"+dir+"/a", "--", "true").CombinedOutput()
	if err != nil {
		return "", err
	}
	path := cgroupIn(string(out))
	if path == "" {
		return "", fmt.Errorf("no control group can be made: %s", out)
	}
	return filepath.Dir(path), nil
})

// cgroupIn is the directory of the control group that a log speaks of.
func cgroupIn(log string) string {
	found := regexp.MustCompile(`the command has a separate control group" path=(\S+)`).FindStringSubmatch(log)
	if found == nil {
		return ""
	}
	return found[1]
}

// inBothWays tests a command that has a control group, and one that has none.
func inBothWays(t *testing.T, test func(t *testing.T, way func(*exec.Cmd))) {
	t.Run("in a control group", func(t *testing.T) { test(t, withCgroup(t)) })
	t.Run("without", func(t *testing.T) { test(t, withoutCgroup) })
}

// cgroups are the directories of the control groups that a leasehold has made there.
func cgroups(t *testing.T, below string, pid int) []string {
	found, err := filepath.Glob(fmt.Sprintf("%s/leasehold-%d-*", below, pid))
	require.NoError(t, err)
	return found
}

// oneCgroup is the one that it has now.
func oneCgroup(t *testing.T, pid int) string {
	own, err := ownCgroup()
	require.NoError(t, err)
	found := cgroups(t, own, pid)
	require.Len(t, found, 1)
	return found[0]
}

// gone waits until a directory is no longer there.
func gone(t *testing.T, path string) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, err := os.Stat(path)
		return os.IsNotExist(err)
	}, 20*time.Second, 10*time.Millisecond, "%s was not removed", path)
}

// What is in the control group dies with the command, and the directory is removed: whoever ends,
// and also if the command has made control groups itself.
func TestTheControlGroupIsEmptiedAndRemoved(t *testing.T) {
	withCgroup(t)
	for name, end := range map[string]func(t *testing.T, leasehold, guard int){
		"the command ends": func(t *testing.T, _, guard int) {
			require.NoError(t, syscall.Kill(onlyChild(t, guard), syscall.SIGTERM))
		},
		"leasehold is killed": func(t *testing.T, leasehold, _ int) {
			require.NoError(t, syscall.Kill(leasehold, syscall.SIGKILL))
		},
		"the guard is killed": func(t *testing.T, _, guard int) {
			require.NoError(t, syscall.Kill(guard, syscall.SIGKILL))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			s, _ := ready(t, p.command("run", "--margin", "1s", p.url, "--", "sh", "-c", `trap 'exit 1' TERM
cd "$(sed -n 's/^0:://p' /proc/self/cgroup | sed "s|^|$0|")" && mkdir -p a/b || exit 2
sh -c 'trap "" TERM; echo 0 >a/b/cgroup.procs; exec sleep 60' & echo ready; while :; do sleep 0.05; done`,
				mountOfCgroups(t)))
			dir := oneCgroup(t, s.Process.Pid)
			require.DirExists(t, dir+"/a/b")
			stranger := exec.CommandContext(t.Context(), "sleep", "60") // no child of the command's
			require.NoError(t, stranger.Start())
			require.NoError(t, os.WriteFile(dir+"/cgroup.procs", []byte(strconv.Itoa(stranger.Process.Pid)), 0))
			end(t, s.Process.Pid, onlyChild(t, s.Process.Pid))
			require.ErrorContains(t, stranger.Wait(), "killed")
			gone(t, dir)
			s.wait(t)
		})
	}
}

// mountOfCgroups is what stands before the name that /proc/self/cgroup has.
func mountOfCgroups(t *testing.T) string {
	own, err := ownCgroup()
	require.NoError(t, err)
	list, err := os.ReadFile("/proc/self/cgroup")
	require.NoError(t, err)
	name := regexp.MustCompile(`(?m)^0::(.*)$`).FindStringSubmatch(string(list))[1]
	return strings.TrimSuffix(own, strings.TrimSuffix(name, "/"))
}

// A process of the command that has left its control group is found all the same.
func TestACommandLeavesItsControlGroup(t *testing.T) {
	withCgroup(t)
	own, err := ownCgroup()
	require.NoError(t, err)
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			p, life := newPlace(t), newLiving(t)
			cmd := p.command("run", "--ttl", "4s", p.url, "--", "sh", "-c",
				`echo 0 >"$1/cgroup.procs" && exec "$0"`, os.Args[0], own)
			cmd.Env = append(append(cmd.Env, life.environ()...), "LIFE_ESCAPES=1", "LIFE_DEAF=1")
			s := start(t, cmd)
			require.True(t, life.begun(t, s), "%s", &s.stderr)
			dir := oneCgroup(t, s.Process.Pid)
			require.NoError(t, s.Process.Signal(sig))
			lease, err := p.lock(leasehold.WithTTL(4 * time.Second)).Acquire(soon(t))
			require.NoError(t, err)
			led := monotonic() - time.Since(lease.Record().AcquiredAt)
			time.Sleep(20 * signEvery)
			require.Less(t, life.last(t), led, "the command lived after the next holder led")
			gone(t, dir)
			_ = s.Process.Signal(syscall.SIGCONT)
			s.wait(t)
		})
	}
}

// A run below a run has a control group in that of the other, which ends both.
func TestRunBelowARun(t *testing.T) {
	inBothWays(t, func(t *testing.T, way func(*exec.Cmd)) {
		p, inner, life := newPlace(t), newPlace(t), newLiving(t)
		cmd := p.command("run", "--ttl", "4s", p.url, "--", program, "run", inner.url, "--", os.Args[0])
		cmd.Env = append(append(cmd.Env, life.environ()...), "LIFE_ESCAPES=1", "LIFE_DEAF=1")
		way(cmd)
		s := start(t, cmd)
		require.True(t, life.begun(t, s), "%s", &s.stderr)
		var dir string
		if own, err := ownCgroup(); err == nil && cmd.Path == program {
			dir = oneCgroup(t, s.Process.Pid)
			within, err := filepath.Glob(dir + "/leasehold-*")
			require.NoError(t, err)
			require.Len(t, within, 1, "in %s", own)
		}
		require.NoError(t, s.Process.Kill())
		life.ends(t)
		if dir != "" {
			gone(t, dir)
		}
	})
}

// Where no control group can be made, or none with processes, the command runs without. The log
// says so, and no directory is left.
func TestNoControlGroupCanBeMade(t *testing.T) {
	withCgroup(t)
	if os.Getuid() != 0 {
		testserver.Missing(t, "root", fmt.Errorf("needs root"))
	}
	own, err := ownCgroup()
	require.NoError(t, err)
	for name, prepare := range map[string]func(t *testing.T, dir string){
		"threads": func(t *testing.T, dir string) {
			require.NoError(t, os.WriteFile(dir+"/cgroup.type", []byte("threaded"), 0))
		},
		"a limit of groups": func(t *testing.T, dir string) {
			require.NoError(t, os.WriteFile(dir+"/cgroup.max.descendants", []byte("0"), 0))
		},
		"read-only": func(*testing.T, string) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			dir := fmt.Sprintf("%s/test-%d-%s", own, os.Getpid(), strings.ReplaceAll(name, " ", "-"))
			require.NoError(t, os.Mkdir(dir, 0o755))
			t.Cleanup(func() { require.NoError(t, os.Remove(dir)) }) // it has no others in it
			prepare(t, dir)
			cmd := p.command("run", "-v", p.url, "--", "sh", "-c", "exit 7")
			if name == "read-only" {
				wrapped(cmd, name)
			} else {
				wrapped(cmd, dir)
			}
			r := finish(t, cmd)
			require.Equal(t, 7, r.code, "%s", r.stderr)
			require.Contains(t, r.stderr, "the command has no separate control group")
			require.NotContains(t, r.stderr, "the command has a control group")
		})
	}
}

// Who is given a part of the hierarchy needs no other rights. With fewer, the system refuses to
// start the command in its control group.
func TestAControlGroupInADelegatedPart(t *testing.T) {
	withCgroup(t)
	if os.Getuid() != 0 {
		testserver.Missing(t, "root", fmt.Errorf("needs root"))
	}
	t.Run("given", func(t *testing.T) {
		dir, r := delegated(t, "", "/cgroup.procs", "/cgroup.subtree_control", "/cgroup.threads")
		path := cgroupIn(r.stderr)
		require.Equal(t, dir, filepath.Dir(path), "%s", r.stderr)
		require.True(t, strings.HasSuffix(strings.TrimSuffix(r.out, "\n"), "/"+filepath.Base(dir)+"/"+
			filepath.Base(path)), "%s", r.out)
	})
	t.Run("given in part", func(t *testing.T) {
		dir, r := delegated(t, "")
		require.Contains(t, r.stderr, "the command has no separate control group")
		require.Contains(t, r.stderr, "permission denied")
		require.True(t, strings.HasSuffix(strings.TrimSuffix(r.out, "\n"), "/"+filepath.Base(dir)), "%s", r.out)
	})
}

// delegated runs a command that prints its control group, as somebody who owns some files of one.
// In the end there must be no other below that.
func delegated(t *testing.T, files ...string) (dir string, r result) {
	own, err := ownCgroup()
	require.NoError(t, err)
	dir = fmt.Sprintf("%s/test-%d-%d", own, os.Getpid(), len(files))
	require.NoError(t, os.Mkdir(dir, 0o755))
	t.Cleanup(func() { require.NoError(t, os.Remove(dir)) })
	for _, name := range files {
		require.NoError(t, os.Chown(dir+name, 65534, 65534))
	}
	place, err := os.MkdirTemp("", "leasehold-delegated-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(place) })
	require.NoError(t, os.Chmod(place, 0o777))
	cmd := newPlace(t).command("run", "-v", "file://"+place+"/a", "--", "sed", "-n", "s/^0:://p", "/proc/self/cgroup")
	asNobody(t)(cmd)
	// and not before it is in the group
	cmd.Env = append(cmd.Env, fmt.Sprint("LEASEHOLD_TEST_USER=", cmd.SysProcAttr.Credential.Uid))
	cmd.SysProcAttr = nil
	wrapped(cmd, dir)
	r = finish(t, cmd)
	require.Equal(t, 0, r.code, "%s", r.stderr)
	return dir, r
}
