package guard

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
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

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/exit"
)

// Program is the command that a Supervisor starts. FindProgram makes one.
type Program struct {
	path string
	args []string // from number 0 on
}

// FindProgram looks for the command as a shell does, before a lock is taken. The first of args is
// its name or path, and it gets all of them. The error is of the code exit.NotFound or
// exit.CannotExec.
func FindProgram(args []string) (Program, error) {
	if why := unfitProc(); why != "" {
		return Program{}, exit.Errorf(exit.Config, "%s", why)
	}
	path, err := exec.LookPath(args[0])
	switch {
	case err == nil:
		return Program{path, args}, nil
	case errors.Is(err, exec.ErrDot):
		return Program{}, exit.Errorf(exit.NotFound, "the command %q is in the current directory only (write ./%s)",
			args[0], args[0])
	case errors.Is(err, syscall.EISDIR):
		return Program{}, exit.Errorf(exit.CannotExec, "the command %q is a directory (name a program in it)", args[0])
	case errors.Is(err, fs.ErrPermission):
		return Program{}, exit.Errorf(exit.CannotExec, "the command %q cannot be executed (check its permissions)",
			args[0])
	}
	return Program{}, exit.Errorf(exit.NotFound, "there is no command %q (check its name and PATH)", args[0])
}

// Outcome is how a program ended.
type Outcome struct {
	Code   int            // as a shell has it
	Signal syscall.Signal // that has ended it; 0 if it has exited
	Lost   bool           // leasehold ended it, because the lease was lost
	HungUp bool           // it had the terminal, which has gone
}

// Lease says until when the program may run. It is safe for concurrent use.
type Lease interface {
	// Deadline is the time at which the lease ends. Each renewal moves it.
	Deadline() time.Time
}

// Supervisor runs a program under a lease, again and again if need be, but one at a time. Its
// exported fields are set before the first Run.
type Supervisor struct {
	Program
	Margin  time.Duration    // between the end of the lease and the time when others may lead
	Renewed <-chan struct{}  // after each renewal
	Signals <-chan os.Signal // to pass on
	Log     *slog.Logger

	lease        Lease
	env          []string // of the program, more than this process has
	mark         string   // in the environment of the program
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

// forking is locked while a process is started, because the guard inherits a socket that no other
// process may have.
var forking sync.Mutex

// markName is a variable that the command and all that it starts have in their environment, unless
// they empty that. Below another leasehold it has the marks of both.
const markName = "LEASEHOLD_GUARD"

// Start starts another process than the guard. While a guard may be started, only this function may
// do that. It is safe for concurrent use.
func Start(cmd *exec.Cmd) error {
	forking.Lock()
	defer forking.Unlock()
	return cmd.Start()
}

// Run starts the program under the lease, whose context is ctx, and returns when nothing of it is
// left. The program gets env and the environment of this process. It ends before anyone else can
// hold the lock:
//
//	the lease ends     SIGTERM
//	+ margin/2         SIGKILL
//	+ margin/2         others may lead
//
// The guard keeps these times even if this process is stopped or killed. If the guard is killed,
// this process ends the program. It also does so if it panics, because the lock is released then.
//
// If this process is killed, the guard gives note, which has no line break, to the function of
// [Main]. An empty one says that there is nothing to do.
//
// An error says that the program has not run, or that the guard was killed, and has an exit code.
func (s *Supervisor) Run(ctx context.Context, lease Lease, env []string, note []byte) (Outcome, error) {
	s.lease, s.env, s.pid, s.early, s.terminal, s.wanted = lease, env, 0, nil, false, nil
	s.mark = "." + rand.Text()
	becomeReaper()
	var err error
	if s.cgroup, err = newCgroup(); err != nil {
		s.Log.Info(noCgroup, "err", err, "hint", helpGuarantee)
	}
	if err := s.startGuard(note); err != nil {
		s.cgroup.remove()
		return Outcome{}, exit.Errorf(exit.Bug, "starting the guard process: %w", err)
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
	result.HungUp = s.terminal && !HasTerminal()
	over = true
	return result, err
}

// follow passes on what the lease, the guard and signals say, until the guard has reported the end.
func (s *Supervisor) follow(ctx context.Context) (Outcome, error) {
	lines := make(chan string)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(s.talk); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	var backup <-chan time.Time
	renewed, done := s.Renewed, ctx.Done()
	for {
		select {
		case <-renewed:
			s.extend()
			s.lookAtGuard()
		case <-done:
			killAt := s.lease.Deadline().Add(s.Margin / 2)
			s.Log.Warn("the lease ends: ending the command",
				"cause", context.Cause(ctx), "killed_in", time.Until(killAt).Round(time.Millisecond))
			s.setTimes(0, onGuardsClock(func() time.Duration { return time.Until(killAt) }))
			backup, renewed, done = time.After(time.Until(killAt)+s.Margin/8), nil, nil
		case <-backup: // the guard may be stopped
			s.killAll()
			backup = time.After(s.Margin / 8)
		case sig := <-s.Signals:
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
func (s *Supervisor) startGuard(note []byte) error {
	self := "/proc/self/exe" // even if the file was replaced since
	if _, err := os.Stat(self); err != nil {
		if self, err = os.Executable(); err != nil {
			return err
		}
	}
	forking.Lock()
	defer forking.Unlock()
	syscall.ForkLock.RLock() // others than Start may start a process too, such as the SDKs for credentials
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(pair[0])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return err
	}
	defer unix.Close(pair[1])
	_ = unix.SetNonblock(pair[0], true)
	s.talk = os.NewFile(uintptr(pair[0]), "guard")
	shared, fd, err := newTimes()
	if err != nil {
		s.talk.Close()
		return err
	}
	defer unix.Close(fd)
	// before the guard and its command are there, so this process cannot be killed in between
	if n, _ := unix.Write(pair[0], append(note, '\n')); n <= len(note) {
		s.Log.Warn("the URL is too long for the guard process", "effect",
			"if leasehold is killed, the lock is free after its TTL")
	}
	s.times = shared
	s.extend()
	// The guard finds these files at their numbers, not from 3 on, because the command may have
	// been given other files there.
	s.guard = &exec.Cmd{
		Path: self,
		Args: append([]string{"leasehold", guardArg, strconv.Itoa(pair[1]), strconv.Itoa(fd),
			strconv.FormatInt(int64(s.Margin/2), 10), string(s.cgroup), s.path}, s.args...),
		Env:   append(append(os.Environ(), s.env...), markName+"="+os.Getenv(markName)+s.mark),
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
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
func (s *Supervisor) extend() {
	valid := onGuardsClock(func() time.Duration { return time.Until(s.lease.Deadline()) })
	s.setTimes(valid, valid+int64(s.Margin/2))
}

// onGuardsClock is the time, on the clock of the guard, until which something is left. If this
// process is stopped after one clock and before the other, the guard gets less.
func onGuardsClock(left func() time.Duration) int64 {
	now := bootTime()
	return now + int64(left())
}

// setTimes sets the times of the guard, and wakes it. It never waits: a full socket has enough
// bytes to wake the guard.
func (s *Supervisor) setTimes(termAt, killAt int64) {
	s.times.set(termAt, killAt)
	if conn, err := s.talk.SyscallConn(); err == nil {
		_ = conn.Write(func(fd uintptr) bool {
			_, _ = unix.Write(int(fd), []byte{'\n'})
			return true
		})
	}
}

// lookAtGuard logs if the guard has been stopped.
func (s *Supervisor) lookAtGuard() {
	was := s.guardStopped
	if s.guardStopped = stopped(s.guard.Process.Pid); s.guardStopped && !was {
		s.Log.Warn("the guard process is stopped", "pid", s.guard.Process.Pid, "hint", "continue it by kill -CONT",
			"effect", "only leasehold itself can end the command in time")
	}
}

// hear understands a line of the guard.
func (s *Supervisor) hear(line string) (result Outcome, err error, over bool) {
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
		code := exit.CannotExec
		if syscall.Errno(number) == syscall.ENOENT {
			code = exit.NotFound
		}
		why := missing(s.path, code)
		if syscall.Errno(number) == syscall.ENOEXEC {
			why = "it is neither a script nor a program for this kind of machine: "
		}
		return result, exit.Errorf(code, "starting %s: %s%w", s.path, why, syscall.Errno(number)), true
	case "late":
		return Outcome{Code: exit.Lost, Lost: true}, nil, true
	case "stopped":
		s.stopped(syscall.Signal(number))
	case "stuck":
		s.Log.Error("no permission to kill a process of the command", "pid", number,
			"effect", "the lock is held until it ends")
	case "exited":
		status := unix.WaitStatus(number)
		result.Code, result.Lost = status.ExitStatus(), second == 1
		if status.Signaled() {
			result.Signal = status.Signal()
			result.Code = exit.Signal + int(result.Signal)
		}
		return result, nil, true
	}
	return result, nil, false
}

// missing says what is missing if the system does not find a program that is there.
func missing(path string, code int) string {
	file, err := os.Open(path)
	if err != nil || code != exit.NotFound {
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

const (
	noCgroup      = "the command has no separate control group"
	helpGuarantee = "see leasehold help guarantee"
)

// startedOutside says whether the program is in its control group.
func (s *Supervisor) startedOutside(refused syscall.Errno) {
	switch {
	case refused != 0:
		s.cgroup = ""
		s.Log.Info(noCgroup, "err", refused, "hint", helpGuarantee)
	case s.cgroup != "":
		s.Log.Info("the command has a separate control group", "path", string(s.cgroup))
	}
}

func (s *Supervisor) notSuspended() { s.Log.Warn("not suspended: the lock would be lost") }

// pass passes a signal on to the program.
func (s *Supervisor) pass(sig os.Signal) {
	number, _ := sig.(syscall.Signal)
	switch number {
	case syscall.SIGPIPE:
		return
	case syscall.SIGTSTP:
		s.notSuspended()
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
func (s *Supervisor) stopped(by syscall.Signal) {
	switch {
	case by == syscall.SIGTTIN, by == syscall.SIGTTOU:
		if s.wantsTerminal(); s.wanted != nil {
			s.Log.Warn("the command is stopped: it waits for the terminal", "hint",
				"bring leasehold to the foreground (fg in a shell), or end it", "effect", "the lock is held")
		}
		return
	case by == syscall.SIGTSTP && s.terminal:
		s.notSuspended()
	default:
		return
	}
	s.send(-s.pid, unix.SIGCONT)
}

// wantsTerminal continues a program that was stopped because it wants to use the terminal, once
// leasehold is in the foreground. No signal reports that, since a shell sends SIGCONT only to
// stopped processes. If the terminal has gone, no shell can bring the program there: it gets
// SIGHUP, as the system sends it to stopped processes that have lost their shell.
func (s *Supervisor) wantsTerminal() {
	s.wanted = nil
	switch err := s.giveTerminal(); {
	case err == nil:
		s.send(-s.pid, unix.SIGCONT)
	case errors.Is(err, errBackground):
		s.wanted = time.After(200 * time.Millisecond)
	default:
		s.Log.Warn("the terminal has gone: the command gets SIGHUP", "err", err)
		s.send(-s.pid, unix.SIGHUP)
		s.send(-s.pid, unix.SIGCONT)
	}
}

var errBackground = errors.New("leasehold runs in the background")

// giveTerminal brings the program's process group to the foreground. Until the program wants to
// read from the terminal, leasehold's group is there, so that a Ctrl-C reaches everything that the
// shell has started with leasehold, such as a script or a pager.
func (s *Supervisor) giveTerminal() error {
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

// HasTerminal reports whether this process has a terminal that controls it, in the foreground or
// not.
func HasTerminal() bool {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	tty.Close()
	return true
}

// takeTerminal brings leasehold's process group to the foreground again.
func (s *Supervisor) takeTerminal() {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if !s.terminal || err != nil {
		return
	}
	defer tty.Close()
	signal.Ignore(syscall.SIGTTOU) // which the system sends to a process in the background that does this
	defer signal.Reset(syscall.SIGTTOU)
	_ = unix.IoctlSetPointerInt(int(tty.Fd()), unix.TIOCSPGRP, unix.Getpgrp())
	s.terminal = false
}

// killAll kills the program and the guard.
func (s *Supervisor) killAll() {
	s.cgroup.kill()
	s.send(-s.pid, unix.SIGKILL)
	sendAll(s.group(), s.mark, unix.SIGKILL, false)
	_ = s.guard.Process.Kill()
}

// send sends a signal to the program, or to its process group, unless the number may be another's
// by now: the program is the guard's child until nothing is left of it, or this process's if the
// guard has been killed.
func (s *Supervisor) send(to int, sig unix.Signal) {
	if s.pid != 0 && startedBy(s.pid, s.guard.Process.Pid, os.Getpid()) {
		_ = unix.Kill(to, sig)
	}
}

// group is the process group of the program; one that cannot be if it is not known.
func (s *Supervisor) group() int { return cmp.Or(s.pid, math.MaxInt32) }

// withoutGuard ends the program after the guard has been killed.
func (s *Supervisor) withoutGuard(ctx context.Context) (Outcome, error) {
	lost := ctx.Err() != nil
	if !lost {
		s.Log.Error("the guard process was killed: ending the command")
	}
	_ = s.guard.Wait() // what it has started is now this process's
	s.endAll()
	if lost || ctx.Err() != nil {
		return Outcome{Code: exit.Lost, Lost: true}, nil
	}
	return Outcome{}, exit.Errorf(exit.Bug, "the guard process was killed, so the command was ended")
}

// endAll kills the program, and all that it has started, after the guard has ended. It returns when
// nothing is left. A look may miss a process that is started during it by one that has ended since,
// so there are two looks. Other children of this process stay.
func (s *Supervisor) endAll() {
	for wait, looks := time.Millisecond, 0; ; wait = min(2*wait, 100*time.Millisecond) {
		s.killAll()
		if looks++; len(remaining(s.group(), s.mark)) > 0 || s.cgroup.populated() {
			looks = 0
		}
		if looks == 2 {
			return
		}
		time.Sleep(wait)
	}
}
