package main_test

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// child waits until a process has a child that is none of the others, and returns it.
func child(t *testing.T, parentOf int, others ...int) (pid int) {
	t.Helper()
	require.Eventually(t, func() bool {
		lists, _ := filepath.Glob("/proc/" + strconv.Itoa(parentOf) + "/task/*/children")
		for _, list := range lists {
			body, _ := os.ReadFile(list)
			for _, text := range strings.Fields(string(body)) {
				if pid, _ = strconv.Atoi(text); pid != 0 && !slices.Contains(others, pid) {
					return true
				}
			}
		}
		return false
	}, time.Minute, 10*time.Millisecond)
	return pid
}

// number is the number in a file, once it is there. The process of that number is killed at the end
// of the test.
func number(t *testing.T, path string) int {
	t.Helper()
	pid, err := strconv.Atoi(readLine(t, path))
	require.NoError(t, err)
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	return pid
}

// A script may start something beside leasehold before it becomes leasehold. That lives on, even if
// leasehold has to end the command in place of its guard.
func TestASidecarLivesOn(t *testing.T) {
	for name, c := range map[string]struct {
		sig  syscall.Signal
		code int
	}{"the guard is killed": {syscall.SIGKILL, 70}, "the guard is stopped": {syscall.SIGSTOP, 79}} {
		t.Run(name, func(t *testing.T) {
			inBothWays(t, func(t *testing.T, way func(*exec.Cmd)) {
				p := newPlace(t)
				cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c",
					`sh -c 'while :; do sleep 0.05; done' >/dev/null 2>&1 & echo $! >"$DIR/sidecar"; exec "$@"`, "sh",
					program, "run", "--ttl", "3s", p.url, "--", "sh", "-c",
					`setsid sh -c 'echo $$ >"$DIR/left"; while :; do sleep 0.05; done' & echo ready; `+
						`while :; do sleep 0.05; done`)
				cmd.Env = append(plainEnviron(), "DIR="+p.dir)
				way(cmd)
				s, _ := ready(t, cmd)
				sidecar, left := number(t, p.dir+"/sidecar"), number(t, p.dir+"/left")
				guard := child(t, s.Process.Pid, sidecar)
				require.NoError(t, syscall.Kill(guard, c.sig))
				if c.sig == syscall.SIGSTOP {
					t.Cleanup(func() { _ = syscall.Kill(guard, syscall.SIGKILL) })
					require.NoError(t, p.lock().Break(t.Context(), 1))
				}
				require.Equal(t, c.code, s.wait(t), "%s", &s.stderr)
				require.True(t, lives(sidecar), "it was not started under the lock")
				require.False(t, lives(left), "it was started under the lock")
			})
		})
	}
}

// The command for new leaders, and what it leaves running, are not of the command that leads: the
// one gets SIGTERM, and time, the other lives on.
func TestTheCommandForNewLeadersIsAskedToEnd(t *testing.T) {
	p := newPlace(t)
	cmd := p.command("elect", "--on-new-leader",
		`setsid sh -c 'echo $$ >orphan; while :; do sleep 0.05; done' >/dev/null 2>&1 & `+
			`sh -c 'trap "echo asked >asked; exit" TERM; echo $$ >hook; while :; do sleep 0.05; done'`,
		p.url, "--", "sh", "-c", "echo ready; while :; do sleep 0.05; done")
	cmd.Dir = p.dir
	withoutCgroup(cmd)
	s, _ := ready(t, cmd)
	hook, orphan := number(t, p.dir+"/hook"), number(t, p.dir+"/orphan")
	require.NoError(t, syscall.Kill(child(t, s.Process.Pid, parent(hook)), syscall.SIGKILL))
	require.Equal(t, 70, s.wait(t), "%s", &s.stderr)
	require.Equal(t, "asked", readLine(t, p.dir+"/asked"))
	ended(t, hook)
	require.True(t, lives(orphan))
}

// Who waits for the end of a file that leasehold was given, such as a lock of flock(1), waits for
// the command, and not for the guard.
func TestTheGuardKeepsNoFileOfTheCaller(t *testing.T) {
	p := newPlace(t)
	read, write, err := os.Pipe()
	require.NoError(t, err)
	defer read.Close()
	cmd := p.command("run", "--ttl", "1h", "--crash-drain", "30m", p.url, "--", "sh", "-c",
		"echo begun >&3; echo ready; while :; do sleep 0.05; done")
	cmd.ExtraFiles = []*os.File{write}
	s, _ := ready(t, cmd)
	write.Close()
	guard := onlyChild(t, s.Process.Pid)
	t.Cleanup(func() { _ = syscall.Kill(guard, syscall.SIGKILL) })
	require.NoError(t, s.Process.Kill())
	require.NoError(t, read.SetReadDeadline(time.Now().Add(20*time.Second)))
	said, err := io.ReadAll(read)
	require.NoError(t, err, "the guard has it")
	require.Equal(t, "begun\n", string(said))
	require.True(t, lives(guard))
}

// Without /proc, nothing is taken.
func TestThereIsNoProc(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can hide /proc")
	}
	p := newPlace(t)
	for _, args := range [][]string{{"run"}, {"elect"}, {"run", "--slots", "2"}} {
		cmd := exec.CommandContext(t.Context(), "unshare", append(append([]string{"--mount", "sh", "-c",
			`mount -t tmpfs none /proc && exec "$@"`, "sh", program}, args...), p.url, "--", "true")...)
		cmd.Env = plainEnviron()
		finish(t, cmd).complains(t, 78, "there is no /proc")
	}
	files, err := os.ReadDir(p.dir)
	require.NoError(t, err)
	require.Empty(t, files)
}

// A script without a first line for its interpreter runs as below env, timeout and flock.
func TestAScriptWithoutAnInterpreter(t *testing.T) {
	inBothWays(t, func(t *testing.T, way func(*exec.Cmd)) {
		p := newPlace(t)
		script := filepath.Join(t.TempDir(), "script")
		require.NoError(t, os.WriteFile(script, []byte("echo \"$0 $1 $LEASEHOLD_TOKEN\"\nexit 7\n"), 0o700))
		cmd := p.command("run", p.url, "--", script, "argument")
		way(cmd)
		r := finish(t, cmd)
		require.Equal(t, 7, r.code, "%s", r.stderr)
		require.Equal(t, script+" argument 1\n", r.out)
		require.NoError(t, os.WriteFile(script, []byte{0x7f, 'E', 'L', 'F', 0, 0, 0}, 0o700))
		cmd = p.command("run", p.url, "--", script)
		way(cmd)
		finish(t, cmd).complains(t, 126,
			"it is neither a script nor a program for this kind of machine: exec format error")
	})
}

// When its terminal has gone, elect ends, and does not start its command again without one.
func TestElectEndsWithItsTerminal(t *testing.T) {
	const loops = `echo $$ >>begun; while :; do sleep 0.05; done`
	elect := `echo $$ >pid; exec "$PROGRAM" elect --ttl 3s "$URL" -- sh -c "$COMMAND"`
	below := `sh -c '` + elect + `'; true`
	for name, c := range map[string]struct{ shell, command string }{
		"and is the first of it":            {elect, loops},
		"and a shell has started it":        {below, loops},
		"and its command had it":            {below, `echo $$ >>begun; read line; sleep 0.2; exit 3`},
		"and its command ends by SIGHUP":    {below, `echo $$ >>begun; read line; kill -HUP $$`},
		"and its command has caught SIGHUP": {elect, `trap 'sleep 0.2; exit 0' HUP; ` + loops},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", c.shell)
			cmd.Dir = p.dir
			cmd.Env = append(plainEnviron(), "PROGRAM="+program, "URL="+p.url, "COMMAND="+c.command)
			hangUp := onRawTerminal(t, cmd)
			pid := number(t, p.dir+"/pid")
			command := number(t, p.dir+"/begun")
			if strings.Contains(c.command, "read") {
				require.Eventually(t, func() bool { // it has the terminal
					group, err := foreground(command)
					return err == nil && group == command
				}, time.Minute, 10*time.Millisecond)
			}
			hangUp()
			ended(t, pid)
			_ = cmd.Wait()
			begun, err := os.ReadFile(p.dir + "/begun")
			require.NoError(t, err)
			require.Equal(t, strconv.Itoa(command)+"\n", string(begun))
			r, err := p.lock().Inspect(t.Context())
			require.NoError(t, err)
			require.True(t, r.Released())
		})
	}
}

// foreground is the process group in the foreground of a process's terminal.
func foreground(pid int) (int, error) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if err != nil || len(f) < 6 {
		return 0, errors.Join(err, errors.New("no such process"))
	}
	return strconv.Atoi(f[5])
}

// SIGHUP does not end a campaign that has no terminal, or still has it: daemons read their settings
// again.
func TestElectPassesSIGHUPOnWithoutATerminal(t *testing.T) {
	p := newPlace(t)
	cmd := p.command("elect", "--ttl", "2s", p.url, "--", "sh", "-c",
		`trap 'echo again' HUP; trap exit USR1; echo ready; while :; do sleep 0.05; done`)
	s, lines := ready(t, cmd)
	for _, say := range []struct {
		sig  syscall.Signal
		want string
	}{{syscall.SIGHUP, "again\n"}, {syscall.SIGHUP, "again\n"}, {syscall.SIGUSR1, "ready\n"}} { // as the next term says
		require.NoError(t, s.Process.Signal(say.sig))
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, say.want, line)
	}
	require.NoError(t, s.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 0, s.wait(t), "%s", &s.stderr)
}
