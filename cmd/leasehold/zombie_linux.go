package main

import "golang.org/x/sys/unix"

// zombie reports whether a process has ended, and its parent has not asked for its exit code: a
// process 1 that does not reap never asks. The pidfd becomes readable when all threads have ended.
// The state in /proc does not suffice: it is the main thread's, which may end before the others.
func zombie(pid int) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	ready, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return err == nil && ready > 0
}
