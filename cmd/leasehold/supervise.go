package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// program is the command that run and elect start.
type program struct {
	path string
	args []string // from number 0 on
}

// findProgram looks for the command as a shell does, before a lock is taken.
func findProgram(args []string) (program, error) {
	path, err := exec.LookPath(args[0])
	switch {
	case err == nil:
		return program{path, args}, nil
	case errors.Is(err, exec.ErrDot):
		return program{}, fail(exitNotFound, "the command %q is in the current directory only: write ./%s",
			args[0], args[0])
	case errors.Is(err, syscall.EISDIR):
		return program{}, fail(exitCannotExec, "the command %q is a directory: name a program in it", args[0])
	case errors.Is(err, fs.ErrPermission):
		return program{}, fail(exitCannotExec, "the command %q cannot be executed: check its permissions", args[0])
	}
	return program{}, fail(exitNotFound, "there is no command %q: check its name and PATH", args[0])
}

// outcome is how a program ended.
type outcome struct {
	code   int            // as a shell has it
	signal syscall.Signal // that has ended it; 0 if it has exited
	lost   bool           // leasehold ended it, because the lease was lost
}

// theLease says until when the program may run.
type theLease interface {
	// Deadline is the time at which the lease ends. It moves on with each renewal.
	Deadline() time.Time
}

// supervisor runs a program under a lease.
type supervisor struct {
	program
	margin  time.Duration
	renewed <-chan struct{}  // after each renewal
	signals <-chan os.Signal // to pass on
	log     *slog.Logger

	lease        theLease
	env          []string // of the program, more than this process has
	times        times    // for the guard
	talk         *os.File // to the guard
	guard        *exec.Cmd
	cgroup       cgroup // of the program
	guardStopped bool
	pid          int // of the program; 0 until it is known
	early        []os.Signal
	terminal     bool             // the program has it
	wanted       <-chan time.Time // when to try again to give it the terminal
}

// forking is locked while a process is started, because the guard inherits a socket that nobody
// else may.
var forking sync.Mutex

// start starts another process than the guard. While a guard may be started, only this function may
// do that.
func start(cmd *exec.Cmd) error {
	forking.Lock()
	defer forking.Unlock()
	return cmd.Start()
}

// run starts the program under the lease, whose context is ctx, and returns when nothing of it is
// left. The program ends before anyone else can hold the lock:
//
//	the lease ends     SIGTERM
//	+ margin/2         SIGKILL
//	+ margin/2         others may lead
//
// The guard keeps these times even if this process is stopped or killed. If the guard is killed,
// this process ends the program. It also does so if it panics, because the lock is released then.
func (s *supervisor) run(ctx context.Context, lease theLease, env []string) (outcome, error) {
	s.lease, s.env, s.pid, s.early, s.terminal, s.wanted = lease, env, 0, nil, false, nil
	becomeReaper()
	var err error
	if s.cgroup, err = newCgroup(); err != nil {
		s.log.Info("the command has no control group of its own: see leasehold help guarantee", "err", err)
	}
	if err := s.startGuard(); err != nil {
		s.cgroup.remove()
		return outcome{}, fail(exitBug, "starting the guard process: %w", err)
	}
	over := false
	defer func() {
		s.talk.Close()
		s.times.close()
		_ = s.guard.Process.Kill() // it has nothing left to do, but may be stopped
		_ = s.guard.Wait()
		if !over {
			s.endAll()
		}
		s.cgroup.remove()
	}()
	defer s.takeTerminal()
	result, err := s.follow(ctx)
	over = true
	return result, err
}

// follow passes on what the lease, the guard and signals say, until the guard has told the end.
func (s *supervisor) follow(ctx context.Context) (outcome, error) {
	lines := make(chan string)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(s.talk); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	var backup <-chan time.Time
	renewed, done := s.renewed, ctx.Done()
	for {
		select {
		case <-renewed:
			s.extend()
			s.lookAtGuard()
		case <-done:
			killAt := s.lease.Deadline().Add(s.margin / 2)
			s.log.Warn("the lease is lost: the command is being ended",
				"cause", context.Cause(ctx), "killed_in", time.Until(killAt).Round(time.Millisecond))
			s.tell(0, onGuardsClock(func() time.Duration { return time.Until(killAt) }))
			backup, renewed, done = time.After(time.Until(killAt)+s.margin/8), nil, nil
		case <-backup: // the guard may be stopped
			s.killAll()
			backup = time.After(s.margin / 8)
		case sig := <-s.signals:
			s.pass(sig)
		case <-s.wanted:
			s.wantsTerminal()
		case line, ok := <-lines:
			if !ok {
				return s.withoutGuard(ctx)
			}
			if result, err, over := s.hear(line); over {
				return result, err
			}
		}
	}
}

// startGuard starts this program again.
func (s *supervisor) startGuard() error {
	self := "/proc/self/exe" // also if the file was replaced since
	if _, err := os.Stat(self); err != nil {
		if self, err = os.Executable(); err != nil {
			return err
		}
	}
	forking.Lock()
	defer forking.Unlock()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(pair[1])
	unix.CloseOnExec(pair[0])
	_ = unix.SetNonblock(pair[0], true)
	s.talk = os.NewFile(uintptr(pair[0]), "guard")
	shared, fd, err := newTimes()
	if err != nil {
		s.talk.Close()
		return err
	}
	defer unix.Close(fd)
	s.times = shared
	s.extend()
	// The guard finds these files at their numbers, not from 3 on, because the command may have
	// been given other files there.
	s.guard = &exec.Cmd{
		Path: self,
		Args: append([]string{"leasehold", guardArg, strconv.Itoa(pair[1]), strconv.Itoa(fd),
			strconv.FormatInt(int64(s.margin/2), 10), string(s.cgroup), s.path}, s.args...),
		Env: append(os.Environ(), s.env...), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		// so that what stops leasehold from a terminal does not stop the guard
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	if err := s.guard.Start(); err != nil {
		s.talk.Close()
		s.times.close()
		return err
	}
	return nil
}

// extend gives the program the time until which the lease is valid now.
func (s *supervisor) extend() {
	valid := onGuardsClock(func() time.Duration { return time.Until(s.lease.Deadline()) })
	s.tell(valid, valid+int64(s.margin/2))
}

// onGuardsClock is the time, on the clock of the guard, until which something is left. If this
// process is stopped after one clock and before the other, the guard gets less.
func onGuardsClock(left func() time.Duration) int64 {
	now := bootTime()
	return now + int64(left())
}

// tell sets the times of the guard, and wakes it. It never waits: a socket that is full has bytes
// enough to wake the guard.
func (s *supervisor) tell(termAt, killAt int64) {
	s.times.set(termAt, killAt)
	if conn, err := s.talk.SyscallConn(); err == nil {
		_ = conn.Write(func(fd uintptr) bool {
			_, _ = unix.Write(int(fd), []byte{'\n'})
			return true
		})
	}
}

// lookAtGuard tells if the guard has been stopped.
func (s *supervisor) lookAtGuard() {
	was := s.guardStopped
	if s.guardStopped = stopped(s.guard.Process.Pid); s.guardStopped && !was {
		s.log.Warn("the guard process is stopped: let it go on with kill -CONT; "+
			"until then only leasehold itself can end the command in time", "pid", s.guard.Process.Pid)
	}
}

// hear understands a line of the guard.
func (s *supervisor) hear(line string) (result outcome, err error, over bool) {
	var word string
	var number, second int
	_, _ = fmt.Sscan(line, &word, &number, &second)
	switch word {
	case "started":
		s.pid = number
		s.startedOutside(syscall.Errno(second))
		for _, sig := range s.early {
			s.pass(sig)
		}
	case "failed":
		code := exitCannotExec
		if syscall.Errno(number) == syscall.ENOENT {
			code = exitNotFound
		}
		return result, fail(code, "starting %s: %s%w", s.path, missing(s.path, code), syscall.Errno(number)), true
	case "late":
		return outcome{code: exitLost, lost: true}, nil, true
	case "stopped":
		s.stopped(syscall.Signal(number))
	case "stuck":
		s.log.Error("a process that the command has started may not be killed: the lock is held until it ends",
			"pid", number)
	case "exited":
		status := unix.WaitStatus(number)
		result.code, result.lost = status.ExitStatus(), second == 1
		if status.Signaled() {
			result.signal = status.Signal()
			result.code = exitSignal + int(result.signal)
		}
		return result, nil, true
	}
	return result, nil, false
}

// missing says what is missing if the system does not find a program that is there.
func missing(path string, code int) string {
	file, err := os.Open(path)
	if err != nil || code != exitNotFound {
		return ""
	}
	defer file.Close()
	first, _ := bufio.NewReader(io.LimitReader(file, 256)).ReadString('\n')
	script, ok := strings.CutPrefix(first, "#!")
	if !ok {
		return "the loader that it names is missing, as for a program that was built for another system: "
	}
	name, _, _ := strings.Cut(strings.Trim(script, " \t\n"), " ")
	return fmt.Sprintf("the interpreter %q of its first line is missing: ", name)
}

// startedOutside says whether the program is in its control group.
func (s *supervisor) startedOutside(refused syscall.Errno) {
	switch {
	case refused != 0:
		s.cgroup = ""
		s.log.Info("the command has no control group of its own: see leasehold help guarantee", "err", refused)
	case s.cgroup != "":
		s.log.Info("the command has a control group of its own", "path", string(s.cgroup))
	}
}

// pass passes a signal on to the program.
func (s *supervisor) pass(sig os.Signal) {
	number, _ := sig.(syscall.Signal)
	switch number {
	case syscall.SIGPIPE:
		return
	case syscall.SIGTSTP:
		s.log.Warn("not suspended, because the lock would be lost")
		return
	}
	switch {
	case s.pid == 0:
		s.early = append(s.early, sig)
	case number == syscall.SIGUSR1, number == syscall.SIGUSR2:
		s.send(s.pid, number)
	default:
		s.send(-s.pid, number)
		s.send(-s.pid, unix.SIGCONT) // one that is stopped must be able to end
	}
}

// stopped handles a program that has been stopped: it wants the terminal, or the terminal has
// stopped it.
func (s *supervisor) stopped(by syscall.Signal) {
	switch {
	case by == syscall.SIGTTIN, by == syscall.SIGTTOU:
		if s.wantsTerminal(); s.wanted != nil {
			s.log.Warn("the command is stopped, because it wants to use the terminal, but leasehold runs in the " +
				"background: " +
				"it holds the lock until leasehold is in the foreground (fg in a shell), or ended")
		}
		return
	case by == syscall.SIGTSTP && s.terminal:
		s.log.Warn("not suspended, because the lock would be lost")
	default:
		return
	}
	s.send(-s.pid, unix.SIGCONT)
}

// wantsTerminal lets a program go on that was stopped because it wants to use the terminal, once
// leasehold is in the foreground. No signal tells that, since a shell sends SIGCONT only to what is
// stopped. If the terminal has gone, nobody can bring the program there: it gets SIGHUP, as the
// system sends it to those who are stopped and have lost their shell.
func (s *supervisor) wantsTerminal() {
	s.wanted = nil
	switch err := s.giveTerminal(); err {
	case nil:
		s.send(-s.pid, unix.SIGCONT)
	case errBackground:
		s.wanted = time.After(200 * time.Millisecond)
	default:
		s.log.Warn("the command was stopped to wait for a terminal that has gone: it gets SIGHUP", "err", err)
		s.send(-s.pid, unix.SIGHUP)
		s.send(-s.pid, unix.SIGCONT)
	}
}

var errBackground = errors.New("leasehold runs in the background")

// giveTerminal makes the program's process group that of the foreground. Until the program wants to
// read from the terminal, it is leasehold's own group, so that a Ctrl-C reaches everything that the
// shell has started with leasehold, such as a script or a pager.
func (s *supervisor) giveTerminal() error {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer tty.Close()
	foreground, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	switch {
	case err != nil:
		return err
	case foreground == s.pid:
	case foreground != unix.Getpgrp():
		return errBackground
	default:
		if err := unix.IoctlSetPointerInt(int(tty.Fd()), unix.TIOCSPGRP, s.pid); err != nil {
			return err
		}
	}
	s.terminal = true
	return nil
}

// takeTerminal makes leasehold's process group that of the foreground again.
func (s *supervisor) takeTerminal() {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if !s.terminal || err != nil {
		return
	}
	defer tty.Close()
	signal.Ignore(syscall.SIGTTOU) // which the system sends to those in the background that do this
	defer signal.Reset(syscall.SIGTTOU)
	_ = unix.IoctlSetPointerInt(int(tty.Fd()), unix.TIOCSPGRP, unix.Getpgrp())
	s.terminal = false
}

// killAll kills the program and the guard.
func (s *supervisor) killAll() {
	s.cgroup.kill()
	s.send(-s.pid, unix.SIGKILL)
	sendAll(s.group(), unix.SIGKILL, false)
	_ = s.guard.Process.Kill()
}

// send sends a signal to the program, or to its process group, unless the number may be another's
// by now: the program is the guard's child until nothing is left of it, or this process's if the
// guard has been killed.
func (s *supervisor) send(to int, sig unix.Signal) {
	if s.pid != 0 && startedBy(s.pid, s.guard.Process.Pid, os.Getpid()) {
		_ = unix.Kill(to, sig)
	}
}

// group is the process group of the program; one that cannot be if it is not known.
func (s *supervisor) group() int { return cmp.Or(s.pid, math.MaxInt32) }

// withoutGuard ends the program after the guard has been killed.
func (s *supervisor) withoutGuard(ctx context.Context) (outcome, error) {
	lost := ctx.Err() != nil
	if !lost {
		s.log.Error("the guard process was killed: the command is being ended")
	}
	_ = s.guard.Wait() // what it has started is now this process's
	s.endAll()
	if lost || ctx.Err() != nil {
		return outcome{code: exitLost, lost: true}, nil
	}
	return outcome{}, fail(exitBug, "the guard process was killed, so the command was ended")
}

// endAll kills the program, and all that it has started, after the guard has ended. It returns when
// nothing is left.
func (s *supervisor) endAll() {
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		s.killAll()
		if childless() && len(remaining(s.group())) == 0 && !s.cgroup.populated() {
			return
		}
		time.Sleep(wait)
	}
}
