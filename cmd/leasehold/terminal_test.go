//go:build linux

package main_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/leasehold-go/leasehold"
)

// terminal is a terminal, and a person at it.
type terminal struct {
	t      *testing.T
	master *os.File
	shell  *exec.Cmd
	mu     sync.Mutex
	screen strings.Builder
	ended  chan struct{} // closed when no process has the terminal any more
}

// startOnTerminal starts a command as the first one of a new terminal, and returns its other end.
func startOnTerminal(t *testing.T, cmd *exec.Cmd) (master int) {
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	require.NoError(t, err)
	slave, err := os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	defer slave.Close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, cmd.Start())
	return master
}

// onRawTerminal starts a command as the first one of a new terminal, which hangUp takes away.
// Nobody reads what is written there.
func onRawTerminal(t *testing.T, cmd *exec.Cmd) (hangUp func()) {
	master := startOnTerminal(t, cmd)
	hangUp = sync.OnceFunc(func() { unix.Close(master) })
	t.Cleanup(func() {
		hangUp()
		killSession(cmd.Process.Pid)
	})
	return hangUp
}

// onTerminal starts a command as the first one of a new terminal.
func onTerminal(t *testing.T, cmd *exec.Cmd) *terminal {
	master := os.NewFile(uintptr(startOnTerminal(t, cmd)), "/dev/ptmx")
	done := make(chan struct{})
	term := &terminal{t: t, master: master, shell: cmd, ended: done}
	go func() {
		defer close(done)
		for buf := make([]byte, 1024); ; {
			n, err := master.Read(buf)
			if err != nil {
				return
			}
			term.mu.Lock()
			term.screen.Write(buf[:n])
			term.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
			_ = cmd.Wait()
		}
		killSession(cmd.Process.Pid)
		master.Close()
		<-done
	})
	return term
}

// killSession kills what is left of a session. While it lives, a read from its terminal does not
// end.
func killSession(session int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if of, err := unix.Getsid(pid); err == nil && of == session {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}

func (m *terminal) shows() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.screen.String()
}

func (m *terminal) waitFor(text string) {
	m.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !strings.Contains(m.shows(), text) {
		if time.Now().After(deadline) {
			require.Fail(m.t, "not shown: "+text, m.shows())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (m *terminal) types(keys string) {
	_, err := io.WriteString(m.master, keys)
	require.NoError(m.t, err)
}

const ctrlC, ctrlZ = "\x03", "\x1a"

// A shell script runs the program, which is what a person does who types a command.
func (b bucket) atTerminal(t *testing.T, key, command string) *terminal {
	cmd := exec.CommandContext(t.Context(), "bash", "-c",
		fmt.Sprintf(`%s run '%s' -- %s; echo "code $?"; read -r rest && echo "shell got $rest"`, program,
			b.url(key), command))
	cmd.Env = b.environ()
	return onTerminal(t, cmd)
}

func TestACommandReadsFromTheTerminal(t *testing.T) {
	b := newBucket(t)
	term := b.atTerminal(t, "locks/read", `bash -c 'echo ready; read -r line; echo "command got $line"; `+
		`read -r line; echo "then $line"; exit 4'`)
	term.waitFor("ready")
	term.types("one\n")
	term.waitFor("command got one")
	term.types(ctrlZ) // does not suspend it
	term.waitFor("not suspended")
	term.types("two\n")
	term.waitFor("then two")
	term.waitFor("code 4")
	term.types("three\n") // the shell has the terminal again
	term.waitFor("shell got three")
	require.NoError(t, term.shell.Wait())
}

func TestCtrlCAtTheTerminal(t *testing.T) {
	b := newBucket(t)
	for name, command := range map[string]string{
		"that has not read": `bash -c 'trap "echo interrupted; exit 5" INT; echo ready; while :; do sleep 0.05; done'`,
		"that is reading":   `bash -c 'trap "echo interrupted; exit 5" INT; read -r line; echo ready; read -r line'`,
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "bash", "-c",
				fmt.Sprintf(`trap : INT; %s run '%s' -- %s; echo "code $?"`, program, b.url("locks/c"), command))
			cmd.Env = b.environ()
			term := onTerminal(t, cmd)
			term.types("line\n")
			term.waitFor("ready")
			term.types(ctrlC)
			term.waitFor("interrupted")
			term.waitFor("code 5")
			_ = term.shell.Wait() // the shell may have ended by the signal, too
		})
	}
}

// Before the command has read from the terminal, Ctrl-Z reaches leasehold.
func TestCtrlZBeforeTheCommandReads(t *testing.T) {
	b := newBucket(t)
	cmd := b.command("run", b.url("locks/z"), "--", "bash", "-c",
		`echo ready; while [ ! -e "$DONE" ]; do sleep 0.05; done; exit 6`)
	done := t.TempDir() + "/done"
	cmd.Env = append(cmd.Env, "DONE="+done)
	term := onTerminal(t, cmd)
	term.waitFor("ready")
	term.types(ctrlZ)
	term.waitFor("not suspended")
	require.NoError(t, os.WriteFile(done, nil, 0o600))
	require.Error(t, cmd.Wait())
	require.Equal(t, 6, cmd.ProcessState.ExitCode())
}

// A script that is interrupted ends, as it does without leasehold: it does not go on with its next
// line.
func TestCtrlCEndsAScript(t *testing.T) {
	b := newBucket(t)
	held, err := b.lock("locks/held").Acquire(t.Context())
	require.NoError(t, err)
	defer held.Release(t.Context())
	for name, c := range map[string]struct{ key, shows string }{
		"whose command runs":    {"locks/script", "ready"},
		"that waits for a lock": {"locks/held", "the lock is held by another"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "bash", "-c",
				fmt.Sprintf(`%s run -v '%s' -- sh -c 'echo ready; while :; do sleep 0.05; done'; echo next "line"`,
					program, b.url(c.key)))
			cmd.Env = b.environ()
			term := onTerminal(t, cmd)
			term.waitFor(c.shows)
			term.types(ctrlC)
			require.Error(t, term.shell.Wait())
			require.Equal(t, 128+2, shellCode(term.shell.ProcessState), "%s", term.shows())
			require.NotContains(t, term.shows(), "next line")
		})
	}
}

// interactive is a shell with job control that has started a command in the background, which wants
// to read from the terminal.
func interactive(t *testing.T, p place) *terminal {
	cmd := exec.CommandContext(t.Context(), "bash", "--norc", "--noprofile", "-i")
	cmd.Env = append(plainEnviron(), "PS1=$ ", "HISTFILE=")
	term := onTerminal(t, cmd)
	term.types(program + " run " + p.url + ` -- bash -c 'read -r line; echo "command got $line"; read -r line' &` +
		"\n")
	term.waitFor("the command is stopped: it waits for the terminal")
	return term
}

func TestACommandIsBroughtToTheForeground(t *testing.T) {
	term := interactive(t, newPlace(t))
	term.types("fg\n")
	term.types("one\n")
	term.waitFor("command got one")
	term.types("two\n")
	term.types("echo shell got \"it back\"\n")
	term.waitFor("shell got it back")
}

// A command that waits for a terminal that has gone does not hold the lock for ever.
func TestTheTerminalOfAStoppedCommandHasGone(t *testing.T) {
	p := newPlace(t)
	term := interactive(t, p)
	require.NoError(t, term.shell.Process.Kill()) // so that it cannot send SIGHUP to its jobs
	require.Eventually(t, func() bool {
		r, err := p.lock().Inspect(t.Context())
		return err == nil && r.Released()
	}, time.Minute, 50*time.Millisecond)
}

// Who looks on hears why nothing happens, also without --wait. TestRunWithoutWaitAfterACrash shows
// that a log does not.
func TestNoWaitAfterACrashAtATerminal(t *testing.T) {
	b := newBucket(t)
	b.crashed("locks/crash")
	term := onTerminal(t, b.command("run", "--no-wait", b.url("locks/crash"), "--", "echo", "got it"))
	term.waitFor("the lock is held by another")
	term.waitFor("got it")
	require.NoError(t, term.shell.Wait(), "%s", term.shows())
}

func TestBreakAsksAtATerminal(t *testing.T) {
	b := newBucket(t)
	lease, err := b.lock("locks/ask").Acquire(t.Context())
	require.NoError(t, err)
	defer lease.Release(t.Context())
	for _, c := range []struct {
		answer string
		code   int
	}{{"\n", 64}, {"n\n", 64}, {"y\n", 0}} {
		cmd := b.command("break", b.url("locks/ask"), "--token", "1")
		term := onTerminal(t, cmd)
		term.waitFor("by force? [y/N]")
		term.types(c.answer)
		_ = cmd.Wait()
		require.Equal(t, c.code, cmd.ProcessState.ExitCode(), "%q: %s", c.answer, term.shows())
		rec, err := b.lock("locks/ask").Inspect(t.Context())
		require.NoError(t, err)
		require.Equal(t, c.code == 0, rec.Released())
	}

	old := time.Now().Add(-20 * time.Minute)
	p := newPlace(t)
	p.record("a", leasehold.Record{Token: 3, Holder: "gone", TTL: time.Minute, Nonce: "x", AcquiredAt: old,
		RenewedAt: old, ExpiresAt: old.Add(time.Minute)})
	ended := onTerminal(t, p.command("break", p.url, "--token", "3"))
	ended.waitFor("by force? [y/N]")
	ended.types("n\n")
	_ = ended.shell.Wait()
	require.Regexp(t, `is expired: gone, token 3, has not renewed it, and its lease ended at 20`, ended.shows())
	require.NotContains(t, ended.shows(), "held by")

	held, err := b.lock("locks/yes").Acquire(t.Context())
	require.NoError(t, err)
	defer held.Release(t.Context())
	cmd := b.command("break", "--yes", b.url("locks/yes"), "--token", "1")
	term := onTerminal(t, cmd)
	term.types("n\n")
	require.NoError(t, cmd.Wait(), "%s", term.shows())
	require.NotContains(t, term.shows(), "by force?")
}
