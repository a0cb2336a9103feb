//go:build linux || darwin || freebsd

package filestore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// become changes the user and the group of this process. args begin with their numbers.
func become(args []string) error {
	user, err1 := strconv.Atoi(args[0])
	group, err2 := strconv.Atoi(args[1])
	return errors.Join(err1, err2, syscall.Setgroups(nil), syscall.Setgid(group), syscall.Setuid(user))
}

// locksProcess locks all that it may open of the directory, says how much that is, and keeps it
// until its standard input ends.
func locksProcess(path string, args []string) error {
	if err := become(args); err != nil {
		return err
	}
	said := ""
	for _, name := range []string{".", lockName} {
		f, err := os.OpenFile(filepath.Join(path, name), os.O_RDONLY, 0)
		if err != nil {
			f, err = os.OpenFile(filepath.Join(path, name), os.O_WRONLY, 0)
		}
		if err != nil {
			continue
		}
		defer f.Close()
		if locked, err := tryLock(f); err != nil || !locked {
			return fmt.Errorf("%s is locked by another: %w", name, err)
		}
		said += name + " "
	}
	fmt.Println(said)
	_, _ = os.Stdin.Read(make([]byte, 1))
	return nil
}

// writeProcess writes over the object, as another user, with the umask 077.
func writeProcess(path string, args []string) error {
	if err := become(args); err != nil {
		return err
	}
	syscall.Umask(0o077)
	d := New(path, limit)
	o, err := d.Get(context.Background(), key)
	if err == nil {
		_, err = d.PutIfMatch(context.Background(), key, []byte("again"), o.ETag)
	}
	return err
}

// sharedDir is a directory that other users can reach, with the object.
func sharedDir(t *testing.T, mode os.FileMode, user, group int) (path string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can become other users")
	}
	base, err := os.MkdirTemp("", "leasehold") // not t.TempDir, which only its owner may enter
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(base) })
	require.NoError(t, os.Chmod(base, 0o755))
	path = filepath.Join(base, "locks")
	require.NoError(t, os.Mkdir(path, 0o700))
	require.NoError(t, os.Chown(path, user, group))
	require.NoError(t, os.Chmod(path, mode))
	_, err = New(path, limit).PutIfNoneMatch(t.Context(), key, nil)
	require.NoError(t, err)
	require.NoError(t, os.Chmod(filepath.Join(path, file), 0o644))
	return path
}

// overwrite writes over the object, with some time.
func overwrite(t *testing.T, d *Dir) error {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	o, err := d.Get(ctx, key)
	require.NoError(t, err)
	_, err = d.PutIfMatch(ctx, key, []byte("written"), o.ETag)
	return err
}

// Whoever may only read a directory keeps no writer out, whatever he locks.
func TestAReaderKeepsNobodyOut(t *testing.T) {
	path := sharedDir(t, 0o755, 0, 0)
	reader := process(t, "locks", path, "65534", "65534")
	stdin, err := reader.StdinPipe()
	require.NoError(t, err)
	stdout, err := reader.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, reader.Start())
	said := make([]byte, 9)
	n, err := stdout.Read(said)
	require.NoError(t, err)
	require.NoError(t, overwrite(t, New(path, limit)))
	require.Equal(t, ". \n", string(said[:n]))
	require.NoError(t, stdin.Close())
	require.NoError(t, reader.Wait())
}

// Those who may write the directory can lock it, whatever their umask is and whoever was first. The
// others cannot open its lock file.
func TestTheLockFileIsForWriters(t *testing.T) {
	const owner, member, group, other = "65001", "65002", "65010", "65003"
	for _, c := range []struct {
		dir, file os.FileMode
		writers   [][]string
	}{
		{0o755, 0o600, [][]string{{owner, owner}, {"0", "0"}}},
		{0o775, 0o660, [][]string{{member, group}, {owner, group}, {"0", "0"}}},
		{0o775 | os.ModeSetgid, 0o660, [][]string{{member, group}, {owner, group}, {"0", "0"}}},
		{0o777, 0o666, [][]string{{member, group}, {other, other}, {owner, owner}, {"0", "0"}}},
	} {
		for first := range c.writers {
			path := sharedDir(t, c.dir, 65001, 65010)
			require.NoError(t, os.Remove(filepath.Join(path, lockName)))
			for i := range c.writers {
				w := c.writers[(first+i)%len(c.writers)]
				require.NoError(t, process(t, "write", path, w...).Run(), "%v: user and group %v", c.dir, w)
			}
			info, err := os.Lstat(filepath.Join(path, lockName))
			require.NoError(t, err)
			require.Equal(t, c.file, info.Mode(), c.dir)
			said, err := process(t, "locks", path, other, other).Output()
			require.NoError(t, err)
			require.Equal(t, map[bool]string{false: ". \n", true: ". " + lockName + " \n"}[c.file == 0o666],
				string(said))
			require.Empty(t, leftovers(t, path))
		}
	}
}

// The lock file gets the mode that the directory has got, by the next write of its owner or of
// root. That of a user who may no longer write the directory could keep everybody out.
func TestTheLockFileFollowsItsDirectory(t *testing.T) {
	path := sharedDir(t, 0o775, 65001, 65010)
	lock := filepath.Join(path, lockName)
	mode := func() os.FileMode {
		info, err := os.Lstat(lock)
		require.NoError(t, err)
		return info.Mode()
	}
	require.Equal(t, os.FileMode(0o660), mode())
	for dir, file := range map[os.FileMode]os.FileMode{0o755: 0o600, 0o777: 0o666} {
		require.NoError(t, os.Chmod(path, dir))
		require.NoError(t, process(t, "write", path, "65001", "65001").Run())
		require.Equal(t, file, mode())
	}
	require.NoError(t, os.Chmod(path, 0o755))
	require.NoError(t, os.Chown(lock, 65003, 65003))
	refused := process(t, "write", path, "65001", "65001")
	refused.Stderr = nil
	out, err := refused.Output()
	require.Error(t, err, string(out))
	require.NoError(t, overwrite(t, New(path, limit))) // root gives it to the directory's owner
	require.NoError(t, process(t, "write", path, "65001", "65001").Run())
	require.Equal(t, os.FileMode(0o600), mode())
	require.ErrorContains(t, checkOwner(65003, 65001, 65001, 0o755), "the lock file .leasehold-lock "+
		"belongs to user 65003, which may not write the directory, and could block all writers")
}

// Nothing but a file is taken for the lock file, and nobody waits for one that is a pipe.
func TestLockFilesThatAreNotFiles(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"a directory":        func(path string) error { return os.Mkdir(path, 0o700) },
		"a named pipe":       func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a link to nothing":  func(path string) error { return os.Symlink("nothing", path) },
		"a link to a file":   func(path string) error { return os.Symlink(file, path) },
		"a link out of here": func(path string) error { return os.Symlink("/etc/hosts", path) },
	} {
		path := t.TempDir()
		d := New(path, limit)
		_, err := d.PutIfNoneMatch(t.Context(), key, nil)
		require.NoError(t, err)
		require.NoError(t, os.Remove(filepath.Join(path, lockName)))
		require.NoError(t, put(filepath.Join(path, lockName)))
		permanent(t, overwrite(t, d), lockName+" is not a regular file but ", "move it away")
		require.Empty(t, leftovers(t, path), name)
	}
}

// A lock file that is removed or replaced is one that nobody finds: who has waited for it locks the
// one that others find.
func TestTheLockFileIsReplaced(t *testing.T) {
	path := t.TempDir()
	d := New(path, limit)
	_, err := d.PutIfNoneMatch(t.Context(), key, nil)
	require.NoError(t, err)
	lock := filepath.Join(path, lockName)
	open := func() *os.File {
		f, err := os.OpenFile(lock, os.O_WRONLY|os.O_CREATE, 0o600)
		require.NoError(t, err)
		t.Cleanup(func() { f.Close() })
		locked, err := tryLock(f)
		require.NoError(t, err)
		require.True(t, locked)
		return f
	}
	old := open()
	var wg sync.WaitGroup
	wg.Go(func() { err = overwrite(t, d) })
	for len(leftovers(t, path)) == 0 { // then it will wait for the old one
		time.Sleep(time.Millisecond)
	}
	time.Sleep(50 * time.Millisecond)
	require.NoError(t, os.Remove(lock))
	now := open()
	unlock(old)
	o, readErr := d.Get(t.Context(), key)
	for until := time.Now().Add(200 * time.Millisecond); time.Now().Before(until); time.Sleep(time.Millisecond) {
		o, readErr = d.Get(t.Context(), key)
	}
	require.NoError(t, readErr)
	require.Empty(t, o.Body) // it has not written
	unlock(now)
	wg.Wait()
	require.NoError(t, err)
}
