package guard

import (
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// times are until when the command may run, by bootTime in nanoseconds, in memory that leasehold
// shares with the guard. What leasehold writes there counts from then on, even if the guard was
// stopped at that time and however long. A socket would be full some day.
type times struct {
	memory []byte
	term   *atomic.Int64 // when to send SIGTERM
	kill   *atomic.Int64 // when to send SIGKILL
}

const timesSize = 16

// newTimes are new ones, and the file that names them for the guard. It is not closed when another
// program is started.
func newTimes() (t times, fd int, err error) {
	if fd, err = sharedFile(); err != nil {
		return t, fd, os.NewSyscallError("shared memory", err)
	}
	if err = unix.Ftruncate(fd, timesSize); err == nil {
		t, err = openTimes(fd)
	}
	if err != nil {
		unix.Close(fd)
	}
	return t, fd, os.NewSyscallError("shared memory", err)
}

func openTimes(fd int) (times, error) {
	memory, err := unix.Mmap(fd, 0, timesSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return times{}, err
	}
	two := (*[2]atomic.Int64)(unsafe.Pointer(unsafe.SliceData(memory))) // a mapping begins at a page
	return times{memory, &two[0], &two[1]}, nil
}

// set sets both. The guard may see the new time of one and the old time of the other, which is as
// good as the old times.
func (t times) set(term, kill int64) {
	t.kill.Store(kill)
	t.term.Store(term)
}

func (t times) get() (term, kill int64) { return t.term.Load(), t.kill.Load() }

func (t times) close() { _ = unix.Munmap(t.memory) }
