//go:build !linux

package guard

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// bootTime is the time of a clock that all processes share and that is never set.
func bootTime() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(clockMonotonic, &t)
	return t.Nano()
}

// becomeReaper does nothing here: what leaves the process group of the command is not found.
func becomeReaper() {}

// ReapOrphans does nothing here, because orphans go to process 1, which reaps them.
func ReapOrphans() {}

// Raise ends this process by a signal, but for those that make the runtime write what its
// goroutines do.
func Raise(s syscall.Signal) {
	switch s {
	case unix.SIGHUP, unix.SIGINT, unix.SIGTERM, unix.SIGKILL, unix.SIGPIPE, unix.SIGALRM, unix.SIGUSR1, unix.SIGUSR2:
		signal.Reset(s)
		_ = unix.Kill(os.Getpid(), s)
		time.Sleep(time.Second)
	}
}

// unfitProc is "", because nothing here needs /proc.
func unfitProc() string { return "" }

// nameProcess does nothing here: the process has the name of the program.
func nameProcess(string) {}

// dupTo makes another number name the same file.
func dupTo(from, to int) error { return unix.Dup2(from, to) }

// sharedFile is a file that has no name any more.
func sharedFile() (int, error) {
	f, err := os.CreateTemp("", "leasehold-times-")
	if err != nil {
		return -1, err
	}
	defer f.Close()
	defer os.Remove(f.Name())
	return unix.Dup(int(f.Fd())) // which, unlike f, another program inherits
}

func commandAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// alarm sends to C about when bootTime reaches the time that was set last.
type alarm struct {
	C     chan struct{}
	timer *time.Timer
}

func newAlarm() *alarm {
	a := &alarm{C: make(chan struct{}, 1)}
	a.timer = time.AfterFunc(time.Hour, func() {
		select {
		case a.C <- struct{}{}:
		default:
		}
	})
	return a
}

// set looks again soon, because the timer may stand still while the machine sleeps.
func (a *alarm) set(at int64) {
	a.timer.Reset(max(min(time.Duration(at-bootTime()), 100*time.Millisecond), 0))
}

// cgroup is the control group of a command, which only Linux has.
type cgroup string

func newCgroup() (cgroup, error) { return "", errors.ErrUnsupported }

func (c cgroup) start(string, []string) (int, error) { return 0, errors.ErrUnsupported }
func (c cgroup) kill()                               {}
func (c cgroup) populated() bool                     { return false }
func (c cgroup) remove()                             {}

// await reports each change of the command's state, and reaps it.
func (g *guard) await(changes chan<- change) {
	for {
		var status unix.WaitStatus
		switch _, err := unix.Wait4(g.pid, &status, unix.WUNTRACED, nil); {
		case err == unix.EINTR:
		case err != nil:
			return
		case status.Stopped():
			changes <- change{stopped: status.StopSignal()}
		default:
			g.status = status
			changes <- change{}
			return
		}
	}
}

// reap does nothing here, because await has done it. No other process group gets the number while a
// process of this one runs.
func (g *guard) reap() {}

// stopped is false, because it is not known here.
func stopped(int) bool { return false }

// startedBy is true: here a process group is found by its number alone.
func startedBy(int, ...int) bool { return true }

// remaining is the process group if any process of it runs.
func remaining(group int, _ string) []process {
	if unix.Kill(-group, 0) == unix.ESRCH {
		return nil
	}
	return []process{{pid: -group, group: group}}
}

func (p process) send(s unix.Signal) error { return unix.Kill(p.pid, s) }

// childless is true: without a reaper, what is left need not be a child.
func childless() bool { return true }
