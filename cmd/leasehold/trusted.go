package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/exit"
)

// openTrusted opens a file for reading that only this user, or root, can have written. A handle
// names the place to which leasehold sends credentials, so a file that another user has put into a
// shared directory, such as /tmp, must not be read. A pipe of this user is as good as a file.
func openTrusted(path string) (*os.File, error) {
	link, err := os.Lstat(path) // before it is opened, which would wait for the writer of a named pipe
	if err != nil {
		return nil, err
	}
	if err := trusted(link); err != nil {
		return nil, exit.Errorf(exit.Usage, "%s %w", path, err)
	}
	flags := os.O_RDONLY
	if link.Mode().IsRegular() { // a link or a pipe may have come in its place
		flags |= syscall.O_NOFOLLOW | syscall.O_NONBLOCK
	}
	file, err := os.OpenFile(path, flags, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil {
		if err = trusted(info); err != nil {
			err = exit.Errorf(exit.Usage, "%s %w", path, err)
		}
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// trusted is an error if another user may have written the file, or made the link to it.
func trusted(info fs.FileInfo) error {
	const why = "and a handle decides where your credentials are sent (give the file that acquire has written for you)"
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return errors.New("has an unknown owner")
	}
	if owner := int(stat.Uid); owner != os.Geteuid() && owner != 0 {
		return fmt.Errorf("belongs to another user (%d), %s", owner, why)
	}
	written := info.Mode().IsRegular() || info.Mode()&fs.ModeNamedPipe != 0 // a terminal is of its group, too
	if written && info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("may be written by others (mode %v), %s", info.Mode().Perm(), why)
	}
	return nil
}
