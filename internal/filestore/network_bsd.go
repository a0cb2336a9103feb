//go:build darwin || freebsd

package filestore

import (
	"os"
	"syscall"
)

const mntLocal = 0x1000 // MNT_LOCAL of sys/mount.h: the file system is stored locally

// networkFS names the network file system that a directory is on. It is "" if there is none.
func networkFS(dir *os.File) (string, error) {
	var s syscall.Statfs_t
	err := again(func() error { return syscall.Fstatfs(int(dir.Fd()), &s) })
	if err != nil || s.Flags&mntLocal != 0 {
		return "", os.NewSyscallError("fstatfs", err)
	}
	var name []byte
	for _, c := range s.Fstypename {
		if c == 0 {
			break
		}
		name = append(name, byte(c))
	}
	return "the network file system " + string(name), nil
}
