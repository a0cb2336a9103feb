package testserver

import "syscall"

// childAttr makes the kernel kill the server when the test binary ends, for whatever reason.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// actAs makes a program run as another user.
func actAs(attr *syscall.SysProcAttr, uid, gid int) {
	attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}
