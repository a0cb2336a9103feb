package clock

import (
	"syscall"
	"time"
	"unsafe"
)

const clockBoottime = 7 // CLOCK_BOOTTIME of linux/time.h

// boottime reads CLOCK_BOOTTIME, because Go's monotonic clock is CLOCK_MONOTONIC, which stops
// during a suspend (golang/go#24595).
func boottime(mono time.Duration) time.Duration {
	var ts syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0)
	if errno != 0 {
		return mono
	}
	return time.Duration(ts.Nano())
}
