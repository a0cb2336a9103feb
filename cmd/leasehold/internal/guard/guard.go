// Package guard runs a command under a lease, and sees to it that the command, and all that it has
// started, is dead before anyone else can hold the lock. A [Supervisor] does so in leasehold's own
// process, and the guard in another one, which continues if leasehold is stopped or killed. A
// [Lease] says until when the command may run: the package knows no store. If leasehold is killed,
// the guard calls a function of the program that releases the lock, once nothing of the command is
// left.
//
// A program that uses it calls [Main] at once if [Wanted] says so.
package guard

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/exit"
)

// The guard is a process between leasehold and the command. It starts the command, and ends it,
// with all that it has started, at a time that leasehold sets. Either may be stopped or killed at
// any moment: the guard needs nothing from leasehold but the times that both share, and a clock. It
// is leasehold's own program, started with guardArg.
//
// leasehold writes a line into a socket before it starts the guard: the note for the function that
// releases the lock, which neither the arguments nor the environment of the guard may have, because
// the command sees both. Later it writes a byte whenever it has changed the times. The guard
// answers with lines:
//
//	started PID ERRNO  the number says why it is not in its control group, 0 if it is or has none
//	failed ERRNO       the command cannot be started
//	late               it was not started, because its time has passed
//	stopped SIGNAL     the command is stopped
//	stuck PID          may not be killed
//	exited STATUS ENDED    its wait status, and 1 if the guard had ended it; nothing is left
const guardArg = "__guard"

// Wanted reports whether a Supervisor has started this process to be its guard: then it must call
// Main with the arguments from number 2 on, and do nothing else.
func Wanted() bool { return len(os.Args) > 1 && os.Args[1] == guardArg }

func init() {
	if Wanted() {
		// the command's parent death signal comes when the thread ends that started it: only the
		// main thread lasts
		runtime.LockOSThread()
	}
}

// The signals that leasehold has to do with, for Catch. These lists never change.
var (
	// ToGroup are passed on to the whole process group of the command: they ask all processes to
	// end.
	ToGroup = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}
	// ToCommand are passed on to the command alone, because by default they kill.
	ToCommand = []os.Signal{syscall.SIGUSR1, syscall.SIGUSR2}
	// Unharmed must not end or stop leasehold and the guard while the command runs.
	Unharmed = []os.Signal{syscall.SIGTSTP, syscall.SIGPIPE}
)

// Catch receives signals instead of the system's default. Signals that were ignored at the start
// stay ignored, even in the command.
func Catch(c chan<- os.Signal, lists ...[]os.Signal) {
	for _, list := range lists {
		for _, s := range list {
			if !signal.Ignored(s) {
				signal.Notify(c, s)
			}
		}
	}
}

type guard struct {
	talk     *os.File
	times    times
	alarm    *alarm
	goneAt   int64         // when leasehold has ended
	pid      int           // of the command, and of its process group
	grace    time.Duration // of processes that the command has left running
	leftAt   int64         // when to kill processes that the command has left running
	termSent bool
	killing  bool
	ended    bool // by a signal of the guard, while the command ran
	exited   bool
	reaped   bool
	status   unix.WaitStatus
	cgroup   cgroup
	refused  map[int]int // how often a process may not be sent a signal
}

// Main runs the guard, and returns the exit code of its process. The arguments are FD of the
// socket, FD of the times, GRACE in nanoseconds, CGROUP of the command, its PATH, and its arguments
// from number 0 on.
//
// If leasehold was killed, Main calls release with the note of [Supervisor.Run] when nothing of the
// command is left, and waits for it until the lease ends, which is the deadline of ctx.
func Main(args []string, release func(ctx context.Context, note []byte)) int {
	var numbers [3]int64
	for i := range numbers {
		var err error
		if len(args) < 6 {
			err = strconv.ErrSyntax
		} else {
			numbers[i], err = strconv.ParseInt(args[i], 10, 64)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "leasehold: only leasehold itself starts %s (see leasehold help)\n", guardArg)
			return exit.Usage
		}
	}
	nameProcess("leasehold-guard")
	socket, memory, grace := int(numbers[0]), int(numbers[1]), time.Duration(numbers[2])
	unix.CloseOnExec(socket)
	t, err := openTimes(memory)
	if err != nil {
		fmt.Fprintf(os.Stderr, "leasehold: the guard process cannot read its times: %v (see leasehold help)\n", err)
		return exit.Usage
	}
	unix.Close(memory)
	g := &guard{
		talk: os.NewFile(uintptr(socket), "leasehold"), times: t, goneAt: math.MaxInt64,
		grace: grace, leftAt: math.MaxInt64, cgroup: cgroup(args[3]), refused: make(map[int]int),
	}
	note, _ := bufio.NewReader(g.talk).ReadBytes('\n') // and bytes for listen, which watch does not need to begin
	becomeReaper()
	ReserveThreads(guardThreads)
	Catch(make(chan os.Signal, 1), ToGroup, ToCommand, Unharmed)
	if term, _ := t.get(); bootTime() >= term {
		g.say("late")
		return 0
	}
	outside, err := g.start(args[4], args[5:])
	if err != nil {
		errno, _ := errors.AsType[syscall.Errno](err)
		g.say("failed %d", int(errno))
		return 0
	}
	closeInherited()
	g.say("started %d %d", g.pid, int(outside))
	g.alarm = newAlarm()
	if alone := g.watch(); alone && len(note) > 1 {
		g.release(release, note)
	}
	return 0
}

// release releases the lock, because leasehold has ended and nothing of the command is left. It
// returns when the lease ends, even if do hangs.
func (g *guard) release(do func(ctx context.Context, note []byte), note []byte) {
	_, killAt := g.times.get()
	end := killAt + int64(g.grace) // others may lead
	now := bootTime()
	if now >= end {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(end-now))
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		do(ctx, note)
	}()
	for bootTime() < end {
		g.alarm.set(end)
		select {
		case <-done:
			return
		case <-g.alarm.C:
		}
	}
}

// Detach closes standard files of the guard, so that no reader of the command's output waits for
// the guard.
func Detach(files ...*os.File) {
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(null)
	for _, f := range files {
		_ = dupTo(null, int(f.Fd()))
	}
}

// closeInherited closes the files above standard error that this process was given for the command,
// which has its own copies by now: a process that waits for their end, such as for the lock of the
// caller's flock(1), must not wait for the guard. Files that this process has opened itself have
// the flag FD_CLOEXEC.
func closeInherited() {
	dir, err := os.Open("/dev/fd")
	if err != nil {
		return
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil || fd <= 2 {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
}

// start starts the command: in its control group, or if the system refuses that, outside.
func (g *guard) start(path string, args []string) (outside syscall.Errno, err error) {
	if g.cgroup != "" {
		if g.pid, err = g.cgroup.start(path, args); err == nil {
			return 0, nil
		}
		g.cgroup.remove()
		g.cgroup = ""
		outside, _ = errors.AsType[syscall.Errno](err)
	}
	g.pid, err = forkExec(path, args, commandAttr())
	return outside, err
}

// forkExec starts a program. As execvp(3) does, and so env, timeout and flock, it starts /bin/sh
// for a script without a first line that names its interpreter.
func forkExec(path string, args []string, attr *syscall.SysProcAttr) (pid int, err error) {
	start := func(path string, args []string) (int, error) {
		return syscall.ForkExec(path, args, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: attr})
	}
	if pid, err = start(path, args); errors.Is(err, syscall.ENOEXEC) && isText(path) {
		return start("/bin/sh", append([]string{"sh", path}, args[1:]...))
	}
	return pid, err
}

// isText reports whether a file may be a script, as shells find out: a program of another machine
// has zeros at its beginning.
func isText(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	first := make([]byte, 256)
	n, err := f.Read(first)
	return (err == nil || errors.Is(err, io.EOF)) && !bytes.Contains(first[:n], []byte{0})
}

func (g *guard) say(format string, args ...any) {
	_, _ = fmt.Fprintf(g.talk, format+"\n", args...) // if leasehold has ended, listen finds out
}

// listen reports each change of the times, and ends when leasehold does.
func (g *guard) listen(changed chan<- struct{}) {
	defer close(changed)
	for buf := make([]byte, 64); ; {
		if _, err := g.talk.Read(buf); err != nil {
			return
		}
		changed <- struct{}{}
	}
}

// change is one of the command's state: a signal has stopped it, or else it has ended.
type change struct{ stopped syscall.Signal }

// watch returns when nothing of the command is left. alone says that leasehold had ended before
// that could be reported.
func (g *guard) watch() (alone bool) {
	changed := make(chan struct{})
	go g.listen(changed)
	changes := make(chan change)
	go g.await(changes)
	pause := int64(time.Millisecond) // between two looks for processes that are left
	for {
		now := bootTime() // before the times: if this process is stopped in between, the new times count
		termAt, killAt := g.times.get()
		termAt, killAt = min(termAt, g.goneAt), min(killAt, g.goneAt, g.leftAt)
		next := min(termAt, killAt)
		switch {
		case now >= killAt:
			g.ended = g.ended || !g.exited
			if !g.killing {
				g.killing, pause = true, int64(time.Millisecond)
			}
			g.signal(unix.SIGKILL)
			next = math.MaxInt64
		case now >= termAt && !g.termSent:
			g.ended = g.ended || !g.exited
			g.terminate()
			next = killAt
		case g.termSent:
			next = killAt
		}
		if g.exited || g.killing {
			next = min(next, now+pause)
			pause = min(2*pause, int64(100*time.Millisecond))
		}
		g.alarm.set(next)
		select {
		case _, ok := <-changed:
			if !ok { // leasehold has ended
				changed, g.goneAt = nil, now
			}
		case c := <-changes:
			if c.stopped != 0 {
				g.say("stopped %d", int(c.stopped))
				break
			}
			g.exited, g.leftAt = true, bootTime()+int64(g.grace)
			if !g.termSent {
				g.terminate()
			}
		case <-g.alarm.C:
		}
		if g.exited && g.over() {
			g.cgroup.remove()
			return g.report() != nil
		}
	}
}

// over reports whether nothing of the command is left, which has ended. It is reaped at the end. A
// look at the processes cannot prove that none is left: see childless.
func (g *guard) over() bool {
	if g.cgroup.populated() || len(remaining(g.pid, "")) > 0 {
		return false
	}
	if !g.reaped {
		g.reap()
	}
	return childless()
}

// report reports how the command has ended. It returns an error if leasehold has ended.
func (g *guard) report() error {
	ended := 0
	if g.ended {
		ended = 1
	}
	_, err := fmt.Fprintf(g.talk, "exited %d %d\n", int(g.status), ended)
	return err
}

func (g *guard) terminate() {
	g.termSent = true
	g.signal(unix.SIGTERM)
	g.signal(unix.SIGCONT) // one that is stopped must be able to end
}

// signal sends a signal to everything that the command has started. What is in its control group
// gets SIGKILL from the system; the search finds what has left it.
func (g *guard) signal(s unix.Signal) {
	if s == unix.SIGKILL {
		g.cgroup.kill()
	}
	if !g.reaped {
		_ = unix.Kill(-g.pid, s) // before the search, which takes time
	}
	for _, pid := range sendAll(g.pid, "", s, !g.reaped) {
		if g.refused[pid]++; g.refused[pid] == refusals {
			g.say("stuck %d", pid)
		}
	}
}

// refusals are how often a process must have refused a signal to be stuck: the control group may be
// about to kill it.
const refusals = 8

// process is one of the machine. A negative pid is a whole process group.
type process struct {
	pid, parent, group int
	state              string // a letter
	dead               bool   // but not reaped yet
	started            string // when
}

// sendAll sends a signal to everything that is remaining, but for the process group if that has had
// it. It returns those that may not be sent one.
func sendAll(group int, mark string, s unix.Signal, groupHasIt bool) (refused []int) {
	for _, p := range remaining(group, mark) {
		send := s
		if groupHasIt && p.group == group {
			send = 0
		}
		if errors.Is(p.send(send), unix.EPERM) {
			refused = append(refused, p.pid)
		}
	}
	return refused
}
