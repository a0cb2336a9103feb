//go:build linux || darwin || freebsd

package filestore

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"github.com/leasehold-go/leasehold/internal/storeapi"
)

const (
	supported = true
	nonBlock  = syscall.O_NONBLOCK
)

// tryLock reports whether it could lock an open file.
func tryLock(f *os.File) (bool, error) {
	err := again(func() error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) })
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, os.NewSyscallError("flock", err)
}

func unlock(f *os.File) {
	_ = again(func() error { return syscall.Flock(int(f.Fd()), syscall.LOCK_UN) })
}

// giveAccess gives a new file this mode, whatever the umask is, and the owner and group of another
// file as far as this process may: what root or a stricter umask has written must not keep out the
// others.
func giveAccess(f *os.File, like fs.FileInfo, mode fs.FileMode) error {
	is, err := f.Stat()
	if err != nil {
		return err
	}
	was, ok := like.Sys().(*syscall.Stat_t)
	if now, known := is.Sys().(*syscall.Stat_t); ok && known && (was.Uid != now.Uid || was.Gid != now.Gid) {
		if f.Chown(int(was.Uid), int(was.Gid)) != nil {
			_ = f.Chown(-1, int(was.Gid))
		}
	}
	if is.Mode().Perm() == mode { // even if the file system knows no modes
		return nil
	}
	return f.Chmod(mode)
}

// owner is the number of the user to whom a file belongs.
func owner(info fs.FileInfo) int {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return int(stat.Uid)
}

func again(f func() error) error {
	for {
		if err := f(); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// classify returns what to do about an error of a system call, and its kind. A full disk may pass.
func classify(err error) (hint string, kind error) {
	switch errno, _ := errors.AsType[syscall.Errno](err); errno {
	case syscall.ENOSPC, syscall.EDQUOT:
		return "the disk or the quota is full: free some space", nil
	case syscall.EFBIG:
		return "the limit on the size of files is too low: raise it (ulimit -f)", nil
	case syscall.EMFILE, syscall.ENFILE:
		return "too many files are open: raise the limit", nil
	case syscall.EACCES, syscall.EPERM:
		return "everyone who uses the locks needs read, write and search permission for the directory, which must " +
			"not be sticky, " +
			"and read permission for its files, which the umask of the others must grant", storeapi.ErrPermanent
	case syscall.EROFS:
		return "the file system is mounted read-only", storeapi.ErrPermanent
	case syscall.ENOTDIR, syscall.ELOOP, syscall.ENAMETOOLONG:
		return "correct the path of the directory", storeapi.ErrPermanent
	case syscall.ENOTSUP, syscall.ENOSYS, syscall.EINVAL:
		return "the file system cannot do what is needed: use a directory on another one", storeapi.ErrPermanent
	}
	return "", nil
}
