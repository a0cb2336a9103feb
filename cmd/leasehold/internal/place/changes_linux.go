package place

import (
	"bytes"
	"encoding/binary"
	"os"

	"golang.org/x/sys/unix"
)

// changes calls f after each change of one file of a directory, until stop. The system may refuse
// it, because it bounds the number of watches.
func changes(dir, file string, f func()) (stop func(), err error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init1", err)
	}
	events := os.NewFile(uintptr(fd), "inotify")
	// a write is the rename of a temporary file
	if _, err = unix.InotifyAddWatch(fd, dir, unix.IN_MOVED_TO|unix.IN_DELETE|unix.IN_ONLYDIR); err != nil {
		events.Close()
		return nil, os.NewSyscallError("inotify_add_watch", err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for buf := make([]byte, 64<<10); ; {
			n, err := events.Read(buf)
			if err != nil {
				return
			}
			if names(buf[:n], file) {
				f()
			}
		}
	}()
	return func() {
		events.Close()
		<-ended
	}, nil
}

// names reports whether any of these events is of a file, or says that events are missing.
func names(events []byte, file string) bool {
	for len(events) >= unix.SizeofInotifyEvent {
		mask, size := binary.NativeEndian.Uint32(events[4:]), binary.NativeEndian.Uint32(events[12:])
		events = events[unix.SizeofInotifyEvent:]
		name, _, _ := bytes.Cut(events[:size], []byte{0})
		if string(name) == file || mask&unix.IN_Q_OVERFLOW != 0 {
			return true
		}
		events = events[size:]
	}
	return false
}
