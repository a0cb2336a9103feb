package main_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// fullDisk is a directory on a file system that has no room. Where this test may not mount one, the
// program is changed to believe so.
func fullDisk(t *testing.T) (dir string, with func(*exec.Cmd)) {
	dir = t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4k"); err != nil {
		return dir, plantedWith(t, "a full disk", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	require.NoError(t, os.WriteFile(filepath.Join(dir, "other"), make([]byte, 4096), 0o600))
	return dir, nil
}

// networkFS is an empty directory that a FUSE of this process shows. Where this test may not mount
// one, the program is changed to believe so.
func networkFS(t *testing.T) (dir string, with func(*exec.Cmd)) {
	dir = t.TempDir()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err == nil {
		if err = unix.Mount("leasehold-test", dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV,
			fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)); err != nil {
			unix.Close(fd)
		}
	}
	if err != nil {
		return dir, plantedWith(t, "a network file system", err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		serveFUSE(fd)
	}()
	t.Cleanup(func() {
		_ = unix.Unmount(dir, unix.MNT_DETACH)
		<-served
		unix.Close(fd)
	})
	return dir, nil
}

func plantedWith(t *testing.T, plant string, why error) func(*exec.Cmd) {
	t.Logf("%s is planted, because it cannot be mounted: %v", plant, why)
	path := planted(t)
	return func(cmd *exec.Cmd) { cmd.Path, cmd.Env = path, append(cmd.Env, "PLANT="+plant) }
}

// serveFUSE answers the requests of linux/fuse.h about a directory with nothing in it, until it is
// unmounted.
func serveFUSE(fd int) {
	const lookup, forget, getattr, statfs, release, initialize, opendir, releasedir = 1, 2, 3, 17, 18, 26, 27, 29
	le := binary.LittleEndian
	attr := make([]byte, 104)
	le.PutUint64(attr[16:], 1)          // ino
	le.PutUint32(attr[16+60:], 0o40777) // mode
	le.PutUint32(attr[16+64:], 2)       // nlink
	le.PutUint32(attr[16+80:], 4096)    // blksize
	hello := make([]byte, 24)           // of minor version 12
	le.PutUint32(hello, 7)              // major
	le.PutUint32(hello[4:], 12)         // minor
	le.PutUint32(hello[20:], 4096)      // max_write
	for buf := make([]byte, 1<<17); ; {
		n, err := unix.Read(fd, buf)
		if err == unix.EINTR || err == unix.ENOENT {
			continue
		}
		if err != nil || n < 40 {
			return // unmounted
		}
		reply, errno := []byte(nil), unix.Errno(0)
		switch le.Uint32(buf[4:]) {
		case initialize:
			reply = hello
		case getattr:
			reply = attr
		case opendir:
			reply = make([]byte, 16)
		case statfs:
			reply = make([]byte, 80)
		case release, releasedir:
		case forget:
			continue
		case lookup:
			errno = unix.ENOENT
		default:
			errno = unix.ENOSYS
		}
		head := le.AppendUint32(nil, uint32(16+len(reply)))
		head = le.AppendUint32(head, uint32(-int32(errno)))
		head = append(head, buf[8:16]...) // unique
		_, _ = unix.Write(fd, append(head, reply...))
	}
}
