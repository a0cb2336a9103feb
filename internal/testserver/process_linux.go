package testserver

import "syscall"

// childAttr has the kernel kill the server when the test binary dies, however it dies.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
