package testserver

import "syscall"

// childAttr makes the kernel kill the server when the test binary ends, for whatever reason.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
