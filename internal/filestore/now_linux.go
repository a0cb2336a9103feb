package filestore

import (
	"os"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

const clockBoottime = 7 // CLOCK_BOOTTIME of linux/time.h

// now reads CLOCK_BOOTTIME, which is one clock for all processes between two starts of the machine,
// never steps, and counts a suspend. A time namespace may shift it, so its name has both. They are
// read each time, because a process that was frozen to disk may have been thawed in another one.
func now() stamp {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return stamp{}
	}
	namespace, err := os.Readlink("/proc/self/ns/time")
	if err != nil && !os.IsNotExist(err) { // a kernel before 5.6 has none
		return stamp{}
	}
	var ts syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0)
	if errno != 0 {
		return stamp{}
	}
	return stamp{strings.TrimSpace(string(boot)) + " " + namespace, time.Duration(ts.Nano())}
}

// TellsAge reports whether there is a clock for the age of objects.
func TellsAge() bool { return now().Clock != "" }
