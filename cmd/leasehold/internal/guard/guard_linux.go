package guard

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// bootTime is the time of a clock that all processes share, that is never set, and that counts a
// suspend of the machine.
func bootTime() int64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	}
	return t.Nano()
}

// becomeReaper makes this process the parent of everything below it that loses its own, so that
// what has left the process group of the command is still found.
func becomeReaper() {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
}

// Raise ends this process by a signal, if the system lets it, without a core file.
func Raise(s syscall.Signal) {
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	runtime.LockOSThread()
	var byDefault [8]uint64 // struct sigaction; signal.Reset leaves some signals to the runtime
	const maskSize = 8
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s),
		uintptr(unsafe.Pointer(&byDefault)), 0, maskSize, 0, 0)
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), s)
}

// nameProcess gives this process, whose program was /proc/self/exe, the name that ps and killall
// know it by: at most 15 bytes.
func nameProcess(name string) { _ = os.WriteFile("/proc/self/comm", []byte(name), 0) }

// dupTo makes another number name the same file.
func dupTo(from, to int) error { return unix.Dup3(from, to, 0) }

// sharedFile is a file in memory, which also is there where no directory can be written.
func sharedFile() (int, error) { return unix.MemfdCreate("leasehold-times", 0) }

// commandAttr gives the command a separate process group, and kills it if the guard is killed.
func commandAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// alarm sends to C when bootTime reaches the time that was set last, even after a suspend.
type alarm struct {
	C  chan struct{}
	fd int
}

func newAlarm() *alarm {
	a := &alarm{C: make(chan struct{}, 1)}
	var err error
	if a.fd, err = unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC); err != nil {
		a.fd = -1
		go a.tick()
		return a
	}
	go a.listen()
	return a
}

func (a *alarm) set(at int64) {
	if a.fd >= 0 {
		_ = unix.TimerfdSettime(a.fd, unix.TFD_TIMER_ABSTIME,
			&unix.ItimerSpec{Value: unix.NsecToTimespec(max(at, 1))}, nil)
	}
}

func (a *alarm) listen() {
	for buf := make([]byte, 8); ; {
		if _, err := unix.Read(a.fd, buf); err != nil && err != unix.EINTR {
			a.tick()
		}
		a.ring()
	}
}

// tick is for kernels without the timer.
func (a *alarm) tick() {
	for range time.Tick(20 * time.Millisecond) {
		a.ring()
	}
}

func (a *alarm) ring() {
	select {
	case a.C <- struct{}{}:
	default:
	}
}

// unfitProc says why /proc does not serve the guard: it is not there, or shows the processes of
// another PID namespace than this one's, by other numbers.
func unfitProc() string {
	self, err := os.Readlink("/proc/self")
	switch {
	case err != nil:
		return "there is no /proc, without which the guard process cannot be started, nor find what the command " +
			"leaves running (mount -t proc proc /proc)"
	case self != strconv.Itoa(os.Getpid()):
		return "/proc shows the processes of another PID namespace, so what the command leaves running could not be " +
			"found and ended in time (add --mount-proc to unshare)"
	}
	return ""
}

// processes are the processes of this machine that run, or that are dead and not reaped, as far as
// this process may see them.
func processes(dead bool) (all []process) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if p, ok := look(pid); ok && p.dead == dead {
			all = append(all, p)
		}
	}
	return all
}

// look reads /proc/PID/stat: pid (name) state parent group, and so on. The name may have anything
// in it. The state is the main thread's, which may have ended while other threads run.
func look(pid int) (process, bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if err != nil || len(f) < 20 {
		return process{}, false
	}
	parent, _ := strconv.Atoi(f[1])
	group, _ := strconv.Atoi(f[2])
	threads, _ := strconv.Atoi(f[17]) // a dead main thread counts until the process is reaped
	return process{pid, parent, group, f[0], (f[0] == "Z" || f[0] == "X") && threads < 2, f[19]}, true
}

// send sends a signal to the process that was looked at, and to no later one of its number.
func (p process) send(s unix.Signal) error {
	fd, noFD := unix.PidfdOpen(p.pid, 0)
	if noFD == nil {
		defer unix.Close(fd)
	}
	if now, ok := look(p.pid); !ok || now.started != p.started {
		return unix.ESRCH
	}
	if noFD != nil { // an old kernel
		return unix.Kill(p.pid, s)
	}
	return unix.PidfdSendSignal(fd, s, nil, 0)
}

// stopped reports whether a process is stopped, by a signal or a debugger.
func stopped(pid int) bool {
	p, ok := look(pid)
	return ok && (p.state == "T" || p.state == "t")
}

// startedBy reports whether one of the parents has the process as its child, dead or alive.
func startedBy(pid int, parents ...int) bool {
	p, ok := look(pid)
	return ok && slices.Contains(parents, p.parent)
}

// await reports each change of the command's state. It reaps orphans, but not the command: until it
// is reaped, no other process or process group gets its PID.
func (g *guard) await(changes chan<- change) {
	for {
		switch pid, stopped, err := awaitChild(unix.P_ALL, 0, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT); {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return
		case pid != g.pid:
			_, _ = unix.Wait4(pid, nil, unix.WUNTRACED|unix.WNOHANG, nil)
		case stopped == 0:
			changes <- change{}
			return
		default:
			if pid, stopped, _ := awaitChild(unix.P_PID, pid, unix.WSTOPPED|unix.WNOHANG); pid != 0 {
				changes <- change{stopped: stopped}
			}
		}
	}
}

// reap reaps the command, which has ended.
func (g *guard) reap() {
	for {
		if _, err := unix.Wait4(g.pid, &g.status, 0, nil); err != unix.EINTR {
			break
		}
	}
	g.reaped = true
}

// awaitChild is waitid(2): the number of the child, 0 if there is none, and the signal that has
// stopped it, 0 if it has ended.
func awaitChild(kind, id, options int) (pid int, stopped syscall.Signal, err error) {
	var info unix.Siginfo
	if err := unix.Waitid(kind, id, &info, options, nil); err != nil {
		return 0, 0, err
	}
	child := (*struct {
		_   [3]int32 // number, error, code
		_   [0]uintptr
		pid int32
		_   uint32 // user
		how int32
	})(unsafe.Pointer(&info))
	const cldStopped = 5
	if max(info.Code, info.Errno) == cldStopped { // MIPS has them in the other order; the error is 0
		stopped = syscall.Signal(child.how)
	}
	return int(child.pid), stopped, nil
}

// remaining are the running descendants of this process. Processes that the command has left in its
// process group are among them, because this process is a reaper. With a mark, they are only the
// processes that are in the process group or have the mark in their environment, and the
// descendants of these: leasehold may have other children, such as the children of a script that
// has become leasehold by exec.
func remaining(group int, mark string) []process {
	self := os.Getpid()
	all := descendants(processes(false), func(p process) bool { return p.parent == self })
	if mark == "" {
		return all
	}
	return descendants(all, func(p process) bool { return p.group == group || p.marked(mark) })
}

// descendants are the processes of all that are a root, or descend from one.
func descendants(all []process, root func(process) bool) (found []process) {
	family := make(map[int]bool)
	for _, p := range all {
		if root(p) {
			family[p.pid] = true
		}
	}
	for more := true; more; { // a child may come before its parent
		more = false
		for _, p := range all {
			if family[p.parent] && !family[p.pid] {
				family[p.pid], more = true, true
			}
		}
	}
	for _, p := range all {
		if family[p.pid] {
			found = append(found, p)
		}
	}
	return found
}

// marked reports whether a process was started with a mark in its environment.
func (p process) marked(mark string) bool {
	environ, _ := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/environ")
	return strings.Contains(string(environ), mark)
}

// childless reports whether this process has no child, running or dead. Below a reaper there is
// nothing else then. A look at all processes cannot prove it: if a parent ends during the look, its
// child may have been read with that parent, which is no longer found.
func childless() bool {
	for {
		switch pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return true
		case pid == 0:
			return false
		}
	}
}
