package filestore

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/leasehold-go/leasehold/internal/clock"
)

// lockName is the file that writers lock. It is not the directory itself, because every user who
// may read that can lock it, and so block all writers. No object's file has such a name.
const lockName = ".leasehold-lock"

// lock takes the lock of the directory, and returns the open file that has it. Locks of flock(2)
// belong to an open file, so goroutines exclude each other as processes do, and the kernel unlocks
// what a killed process has locked.
func (c *call) lock() (*os.File, error) {
	for failures := 0; ; {
		f, err := c.openLock()
		if err != nil {
			return nil, err
		}
		for {
			c.locking.Store(true)
			locked, err := tryLock(f)
			if err == nil && !locked { // flock(2) does not know contexts
				err = clock.System.Sleep(c.ctx, clock.Backoff(clock.System, &failures, 50*time.Microsecond,
					5*time.Millisecond))
			} else {
				c.locking.Store(false)
			}
			if err != nil {
				_ = f.Close()
				return nil, c.failed(err)
			}
			if locked {
				break
			}
		}
		if c.isLock(f) {
			return f, nil
		}
		c.release(f) // it was removed or replaced since
	}
}

// release does not rely on Close, because a child process that is about to be started may have
// inherited the open file.
func (c *call) release(f *os.File) {
	unlock(f)
	_ = f.Close()
}

// isLock reports whether an open file is the one that others find.
func (c *call) isLock(f *os.File) bool {
	is, err1 := f.Stat()
	named, err2 := c.root.Lstat(lockName)
	return err1 == nil && err2 == nil && os.SameFile(is, named)
}

// openLock opens the lock file, which it makes if there is none.
func (c *call) openLock() (*os.File, error) {
	for {
		switch info, err := c.root.Lstat(lockName); { // before it is opened, which may wait, or follow a link
		case errors.Is(err, fs.ErrNotExist):
			if err := c.makeLock(); err != nil {
				return nil, c.failed(err)
			}
			continue
		case err != nil:
			return nil, c.failed(err)
		case !info.Mode().IsRegular():
			return nil, c.permanent(fmt.Errorf("%s is not a regular file but %v", lockName, info.Mode().Type()),
				"move it away")
		}
		f, err := c.root.OpenFile(lockName, os.O_WRONLY|nonBlock, 0)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case errors.Is(err, fs.ErrPermission):
			return nil, c.permanent(err, "everyone who uses the locks needs write permission for this file, which its "+
				"owner's next write gives to all who may write the directory; or give it with chmod and chgrp")
		case err != nil:
			return nil, c.failed(err)
		}
		if err := c.checkLock(f); err != nil {
			_ = f.Close()
			return nil, err
		}
		return f, nil
	}
}

// makeLock makes the lock file. It gets its name when it has its mode, or others would be refused.
func (c *call) makeLock() error {
	temp := tempPrefix + rand.Text() + tempSuffix
	f, err := c.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	defer func() { _ = c.root.Remove(temp) }()
	dir, err := c.self.Stat()
	if err == nil {
		err = giveAccess(f, dir, lockMode(dir))
	}
	if err != nil {
		return err
	}
	if err = c.root.Link(temp, lockName); err != nil && !errors.Is(err, fs.ErrExist) {
		// a file system without links, which has no modes either
		f, err = c.root.OpenFile(lockName, os.O_WRONLY|os.O_CREATE, 0o600)
		if err == nil {
			err = f.Close()
		}
		return err
	}
	return nil
}

// lockMode lets only users who may write the directory open the lock file.
func lockMode(dir fs.FileInfo) fs.FileMode {
	write := dir.Mode().Perm() & 0o022
	return 0o600 | write | write<<1
}

// checkLock refuses a lock file of a user who may not write the directory, because that user could
// block all writers. Its owner, and root, give it the mode that the directory has by now.
func (c *call) checkLock(f *os.File) error {
	dir, err1 := c.self.Stat()
	is, err2 := f.Stat()
	if err := errors.Join(err1, err2); err != nil {
		return c.failed(err)
	}
	if is.Mode().Perm() != lockMode(dir) || owner(is) != owner(dir) {
		_ = giveAccess(f, dir, lockMode(dir))
		if is, err2 = f.Stat(); err2 != nil {
			return c.failed(err2)
		}
	}
	if err := checkOwner(owner(is), owner(dir), os.Geteuid(), dir.Mode().Perm()); err != nil {
		return c.permanent(err, "remove it while no process uses the directory")
	}
	return nil
}

// checkOwner is an error if the owner of the lock file may not write a directory of this owner and
// mode, and is not the user of this process.
func checkOwner(owner, dir, self int, mode fs.FileMode) error {
	if owner == 0 || owner == dir || owner == self || mode&0o022 != 0 {
		return nil
	}
	return fmt.Errorf("the lock file %s belongs to user %d, which may not write the directory, and could block all "+
		"writers", lockName, owner)
}
