//go:build linux || darwin || freebsd

package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/storeapi"
)

const (
	limit = 64 << 10
	key   = "locks/a"
	file  = "locks%2fa.object"
)

// permanent checks the text of an error that no retry can fix.
func permanent(t *testing.T, err error, texts ...string) {
	t.Helper()
	require.ErrorIs(t, err, storeapi.ErrPermanent)
	for _, text := range texts {
		require.ErrorContains(t, err, text)
	}
}

// passing checks an error that may pass by itself, and that no caller takes for an answer.
func passing(t *testing.T, err error, texts ...string) {
	t.Helper()
	require.Error(t, err)
	require.False(t, storeapi.Permanent(err) || storeapi.Refused(err), err)
	for _, text := range texts {
		require.ErrorContains(t, err, text)
	}
}

// leftovers are the files of a directory that are not objects, and not its lock file.
func leftovers(t *testing.T, path string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(path)
	require.NoError(t, err)
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), suffix) && e.Name() != lockName {
			names = append(names, e.Name())
		}
	}
	return names
}

func TestDirectoriesThatCannotWork(t *testing.T) {
	base := t.TempDir()
	at := func(name string) string { return filepath.Join(base, name) }
	require.NoError(t, os.WriteFile(at("file"), nil, 0o600))
	require.NoError(t, os.Symlink("loop", at("loop")))
	require.NoError(t, syscall.Mkfifo(at("fifo"), 0o600))
	for path, text := range map[string]string{
		"":                             "the directory has no name",
		at("missing"):                  "create the directory",
		at("file"):                     "file is not a directory (give the path of a directory)",
		at("file/below"):               "correct the path",
		at("loop"):                     "correct the path",
		at("fifo"):                     "fifo is not a directory",
		at(strings.Repeat("long", 99)): "correct the path",
	} {
		d := New(path, limit)
		permanent(t, d.Validate(), text)
		_, err := d.Get(t.Context(), key)
		permanent(t, err, text)
		_, err = d.PutIfNoneMatch(t.Context(), key, nil)
		permanent(t, err, text)
		_, err = d.PutIfMatch(t.Context(), key, nil, "x")
		permanent(t, err, text)
		permanent(t, d.DeleteIfMatch(t.Context(), key, "x"), text)
	}
}

// A link to a directory is as good as the directory, and a later change of the working directory
// changes nothing.
func TestPathsOfDirectories(t *testing.T) {
	base := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(base, "real"), 0o700))
	require.NoError(t, os.Symlink("real", filepath.Join(base, "link")))
	t.Chdir(base)
	relative := New("link", limit)
	t.Chdir("/")
	etag, err := relative.PutIfNoneMatch(t.Context(), key, []byte("body"))
	require.NoError(t, err)
	o, err := New(filepath.Join(base, "real"), limit).Get(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, etag, o.ETag)
}

// A directory that is gone is an error, never a missing object.
func TestDirectoryIsRemoved(t *testing.T) {
	path := t.TempDir()
	d := New(path, limit)
	etag, err := d.PutIfNoneMatch(t.Context(), key, nil)
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(path))
	_, err = d.Get(t.Context(), key)
	permanent(t, err, "create the directory")
	_, err = d.PutIfMatch(t.Context(), key, nil, etag)
	permanent(t, err, "create the directory")
}

func TestKeysThatAreRefused(t *testing.T) {
	d := New(t.TempDir(), limit)
	for _, key := range []string{"", "/a", "a/", "a/../b", "a\nb", "a\x00", "\xff", `a\b`, strings.Repeat("k", 1025)} {
		_, err := d.Get(t.Context(), key)
		permanent(t, err, "use a path such as")
		_, err = d.PutIfNoneMatch(t.Context(), key, nil)
		permanent(t, err, "use a path such as")
	}
	longest := strings.Repeat("\u2028", 341)
	etag, err := d.PutIfNoneMatch(t.Context(), longest, bytes.Repeat([]byte("x"), limit))
	require.NoError(t, err)
	o, err := d.Get(t.Context(), longest)
	require.NoError(t, err)
	require.Equal(t, etag, o.ETag)
	require.Len(t, o.Body, limit)
}

// Whatever stands under the name of an object exists: it is neither missing nor overwritten, but it
// can be repaired.
func TestFilesThatAreNotObjects(t *testing.T) {
	other := encode(header{Key: "locks/b", ETag: `"x"`}, []byte("{}"))
	for text, data := range map[string][]byte{
		"it is empty":                        {},
		"it does not begin with":             []byte(`{"expires_at":0,"token":7}`),
		"its checksum is wrong":              other[:len(other)-1],
		`it is the object "locks/b" under`:   other,
		"it is larger than 65536 bytes":      encode(header{Key: key, ETag: `"x"`}, make([]byte, limit+1)),
		"it is larger than 65536 bytes (ins": encode(header{Key: key, ETag: `"x"`}, make([]byte, 1<<20)),
		"it has no ETag":                     encode(header{Key: key}, nil),
		"its second line: unexpected": fmt.Appendf(nil, "%s%08x\n%s", magic,
			crc32.Checksum([]byte("{\n"), castagnoli), "{\n"),
	} {
		path := t.TempDir()
		d := New(path, limit)
		require.NoError(t, os.WriteFile(filepath.Join(path, file), data, 0o600))
		o, err := d.Get(t.Context(), key)
		require.ErrorIs(t, err, storeapi.ErrCorruptRecord)
		require.ErrorContains(t, err, fmt.Sprintf("reading %q in directory %q: the file %s is not an object of "+
			"leasehold: %s", key, path, file, text))
		require.NotErrorIs(t, err, storeapi.ErrNotExist)
		_, err = d.PutIfNoneMatch(t.Context(), key, nil)
		require.ErrorIs(t, err, storeapi.ErrPreconditionFailed)
		_, err = d.PutIfMatch(t.Context(), key, nil, `"x"`)
		require.ErrorIs(t, err, storeapi.ErrPreconditionFailed)
		left, err := os.ReadFile(filepath.Join(path, file))
		require.NoError(t, err)
		require.Equal(t, data, left)
		etag, err := d.PutIfMatch(t.Context(), key, []byte("repaired"), o.ETag)
		require.NoError(t, err)
		o, err = d.Get(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, etag, o.ETag)
		require.Empty(t, leftovers(t, path))
	}
}

func TestThingsThatAreNotFiles(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"a directory":              func(path string) error { return os.Mkdir(path, 0o700) },
		"a named pipe":             func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a link to nothing":        func(path string) error { return os.Symlink("nothing", path) },
		"a link out of the place":  func(path string) error { return os.Symlink("/etc/hosts", path) },
		"a link to another object": func(path string) error { return os.Symlink("b.object", path) },
	} {
		path := t.TempDir()
		d := New(path, limit)
		_, err := d.PutIfNoneMatch(t.Context(), "b", nil)
		require.NoError(t, err)
		require.NoError(t, put(filepath.Join(path, file)))
		const text = "is not a regular file but "
		_, err = d.Get(t.Context(), key)
		permanent(t, err, text, "move it away")
		_, err = d.PutIfNoneMatch(t.Context(), key, nil)
		permanent(t, err, text)
		_, err = d.PutIfMatch(t.Context(), key, nil, "x")
		permanent(t, err, text)
		permanent(t, d.DeleteIfMatch(t.Context(), key, "x"), text)
		require.Empty(t, leftovers(t, path), name)
	}
}

// The lock of the directory keeps writers out, not readers, and a writer waits for it no longer
// than its context lasts.
func TestAnotherProcessHasLockedTheDirectory(t *testing.T) {
	path := t.TempDir()
	d := New(path, limit)
	etag, err := d.PutIfNoneMatch(t.Context(), key, []byte("first"))
	require.NoError(t, err)
	other, err := os.OpenFile(filepath.Join(path, lockName), os.O_WRONLY, 0) // as another process has it
	require.NoError(t, err)
	defer other.Close()
	locked, err := tryLock(other)
	require.NoError(t, err)
	require.True(t, locked)

	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = d.PutIfMatch(ctx, key, []byte("second"), etag)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	passing(t, err, "another process has locked the directory, and may be stopped: lslocks shows it")
	require.ErrorIs(t, d.DeleteIfMatch(ctx, key, etag), context.DeadlineExceeded)
	o, err := d.Get(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, "first", string(o.Body))

	var wg sync.WaitGroup
	wg.Go(func() { etag, err = d.PutIfMatch(t.Context(), key, []byte("third"), etag) })
	unlock(other)
	wg.Wait()
	require.NoError(t, err)
	o, err = d.Get(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, "third", string(o.Body))
	for len(d.calls) > 0 {
		time.Sleep(time.Millisecond)
	}
	require.Empty(t, leftovers(t, path)) // of the writer that gave up
}

// A file is on the disk before it gets its name, and the name is on the disk before the write has
// succeeded.
func TestOrderOfAWrite(t *testing.T) {
	path := t.TempDir()
	d := New(path, limit)
	var order []string
	d.sync = func(f *os.File) error {
		info, err := f.Stat()
		require.NoError(t, err)
		entries, err := os.ReadDir(path)
		require.NoError(t, err)
		var names []string
		for _, e := range entries {
			if e.Name() == lockName {
				continue
			}
			if strings.HasPrefix(e.Name(), tempPrefix) {
				names = append(names, "temporary")
			} else {
				names = append(names, e.Name())
			}
		}
		order = append(order, fmt.Sprintf("directory %v, of %v", info.IsDir(), names))
		return f.Sync()
	}
	etag, err := d.PutIfNoneMatch(t.Context(), key, []byte("body"))
	require.NoError(t, err)
	require.Equal(t, []string{"directory false, of [temporary]", "directory true, of [" + file + "]"}, order)
	order = nil
	_, err = d.Get(t.Context(), key)
	require.NoError(t, err)
	require.Empty(t, order)
	require.NoError(t, d.DeleteIfMatch(t.Context(), key, etag))
	require.Equal(t, []string{"directory true, of []"}, order)
}

// If the directory cannot be synced, the outcome of the write is unknown. It is not read before it
// is sure to stay, because the writer would act on it.
func TestDirectoryCannotBeSynced(t *testing.T) {
	d := New(t.TempDir(), limit)
	etag, err := d.PutIfNoneMatch(t.Context(), key, []byte("first"))
	require.NoError(t, err)
	d.sync = func(f *os.File) error {
		if info, err := f.Stat(); err != nil || info.IsDir() {
			return errors.Join(err, syscall.EROFS)
		}
		return f.Sync()
	}
	_, err = d.PutIfMatch(t.Context(), key, []byte("second"), etag)
	passing(t, err, "a power loss may undo the last write")
	_, err = d.Get(t.Context(), key)
	passing(t, err, "a power loss may undo the last write")
	synced := 0
	d.sync = func(f *os.File) error { synced++; return f.Sync() }
	o, err := d.Get(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, "second", string(o.Body))
	require.Equal(t, 1, synced)
}

// countSyncs counts how often d syncs its directory from now on.
func countSyncs(d *Dir) *atomic.Int64 {
	var n atomic.Int64
	d.sync = func(f *os.File) error {
		info, err := f.Stat()
		if err == nil && info.IsDir() {
			n.Add(1)
		}
		return errors.Join(err, f.Sync())
	}
	return &n
}

// A write that failed before it changed anything makes no later read slower.
func TestReadsAfterAFailedRename(t *testing.T) {
	path := t.TempDir()
	d := New(path, limit)
	etag, err := d.PutIfNoneMatch(t.Context(), key, nil)
	require.NoError(t, err)
	d.sync = func(*os.File) error { return os.Remove(filepath.Join(path, leftovers(t, path)[0])) }
	_, err = d.PutIfMatch(t.Context(), key, []byte("second"), etag)
	passing(t, err, "no such file")
	syncs := countSyncs(d)
	for range 3 {
		o, err := d.Get(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, etag, o.ETag)
	}
	require.Zero(t, syncs.Load())
}

// What another process has written is on the disk before it is answered, and is synced once.
func TestVersionsOfAnotherProcessAreOnTheDisk(t *testing.T) {
	path := t.TempDir()
	reader, writer := New(path, limit), New(path, limit)
	writer.sync = func(f *os.File) error { // it is killed between the rename and the sync
		info, err := f.Stat()
		require.NoError(t, err)
		if info.IsDir() {
			return syscall.EIO
		}
		return f.Sync()
	}
	reader.sync = func(*os.File) error { return syscall.EIO }
	_, err := reader.Get(t.Context(), key)
	passing(t, err, "a power loss may undo the last write") // which may have been a deletion
	_, err = writer.PutIfNoneMatch(t.Context(), key, []byte("first"))
	require.Error(t, err)
	_, err = reader.Get(t.Context(), key)
	passing(t, err, "a power loss may undo the last write")

	syncs := countSyncs(reader)
	for range 3 {
		o, err := reader.Get(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, "first", string(o.Body))
	}
	require.EqualValues(t, 1, syncs.Load())
	o, err := reader.Get(t.Context(), key)
	require.NoError(t, err)
	_, err = writer.PutIfMatch(t.Context(), key, []byte("second"), o.ETag)
	require.Error(t, err)
	for range 3 {
		o, err = reader.Get(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, "second", string(o.Body))
	}
	require.EqualValues(t, 2, syncs.Load())
}

// The memory of what is on the disk is bounded, however many objects there are.
func TestMemoryOfADirectoryIsBounded(t *testing.T) {
	d := New(t.TempDir(), limit)
	for i := range 3 * maxOnDisk {
		d.setOnDisk(fmt.Sprint(i), "x")
		require.True(t, d.isOnDisk(fmt.Sprint(i), "x"))
		require.LessOrEqual(t, len(d.onDisk), maxOnDisk)
	}
}

// A disk that is full when the file is written leaves the object as it was.
func TestFileCannotBeSynced(t *testing.T) {
	path := t.TempDir()
	d := New(path, limit)
	etag, err := d.PutIfNoneMatch(t.Context(), key, []byte("first"))
	require.NoError(t, err)
	d.sync = func(*os.File) error { return syscall.ENOSPC }
	_, err = d.PutIfMatch(t.Context(), key, []byte("second"), etag)
	passing(t, err, "the disk or the quota is full: free some space")
	d.sync = (*os.File).Sync
	o, err := d.Get(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, Object{Body: []byte("first"), ETag: etag}, Object{Body: o.Body, ETag: o.ETag})
	require.Empty(t, leftovers(t, path))
}

// A file system that does not answer holds up a bounded number of threads, and nobody beyond its
// context.
func TestFileSystemDoesNotAnswer(t *testing.T) {
	path := t.TempDir()
	d := New(path, limit)
	answers := make(chan struct{})
	d.sync = func(f *os.File) error { <-answers; return f.Sync() }
	create := func() {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := d.PutIfNoneMatch(ctx, key, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		passing(t, err, "writing")
	}
	for len(d.calls) < maxCalls {
		create()
	}
	for range 3 {
		create()
	}
	for len(leftovers(t, path)) < maxCalls { // those that have begun
		time.Sleep(time.Millisecond)
	}
	create()
	require.Len(t, leftovers(t, path), maxCalls)
	close(answers)
	for len(d.calls) > 0 {
		time.Sleep(time.Millisecond)
	}
	files, err := filepath.Glob(filepath.Join(path, "*.object"))
	require.NoError(t, err)
	require.Empty(t, append(files, leftovers(t, path)...)) // nobody waited any more for what was not done yet
}

// Nothing that takes time happens under the lock, so a writer that is stopped while it waits for
// the disk keeps nobody out.
func TestAWriterThatWaitsForTheDiskKeepsNobodyOut(t *testing.T) {
	path := t.TempDir()
	slow, other := New(path, limit), New(path, limit)
	waits, answers, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	slow.sync = func(f *os.File) error {
		waits <- struct{}{}
		<-answers
		return f.Sync()
	}
	go func() {
		_, err := slow.PutIfNoneMatch(context.Background(), key, nil)
		done <- err
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, what := range []string{"file", "directory"} {
		<-waits
		_, err := other.PutIfNoneMatch(ctx, "locks/beside-the-"+what, nil)
		require.NoError(t, err)
		answers <- struct{}{}
	}
	require.NoError(t, <-done)
}

func TestTemporaryFilesOfKilledWritersAreRemoved(t *testing.T) {
	path := t.TempDir()
	old := time.Now().Add(-2 * time.Hour)
	for name, stays := range map[string]bool{
		".leasehold-OLD.tmp":   false,
		".leasehold-YOUNG.tmp": true,
		"old.object":           true,
		"notes.tmp":            true,
		".leasehold-x":         true,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(path, name), nil, 0o600))
		if !strings.Contains(name, "YOUNG") {
			require.NoError(t, os.Chtimes(filepath.Join(path, name), old, old))
		}
		defer func() {
			_, err := os.Lstat(filepath.Join(path, name))
			require.Equal(t, stays, !errors.Is(err, fs.ErrNotExist), name)
		}()
	}
	_, err := New(path, limit).PutIfNoneMatch(t.Context(), key, nil)
	require.NoError(t, err)
}

// A clock that is wrong can make another process remove a temporary file too early. The write has
// then failed, and says so.
func TestTemporaryFileIsGone(t *testing.T) {
	path := t.TempDir()
	d := New(path, limit)
	d.sync = func(*os.File) error { return os.Remove(filepath.Join(path, leftovers(t, path)[0])) }
	_, err := d.PutIfNoneMatch(t.Context(), key, nil)
	passing(t, err, "no such file")
	d.sync = (*os.File).Sync
	_, err = d.Get(t.Context(), key)
	require.ErrorIs(t, err, storeapi.ErrNotExist)
}

func TestErrorsOfTheFileSystem(t *testing.T) {
	for errno, kind := range map[syscall.Errno]error{
		syscall.ENOSPC: nil, syscall.EDQUOT: nil, syscall.EMFILE: nil, syscall.EIO: nil,
		syscall.ENOENT: nil, syscall.EFBIG: nil,
		syscall.EACCES: storeapi.ErrPermanent, syscall.EPERM: storeapi.ErrPermanent,
		syscall.EROFS:   storeapi.ErrPermanent,
		syscall.ENOTDIR: storeapi.ErrPermanent, syscall.ELOOP: storeapi.ErrPermanent,
		syscall.ENAMETOOLONG: storeapi.ErrPermanent,
		syscall.ENOSYS:       storeapi.ErrPermanent, syscall.ENOTSUP: storeapi.ErrPermanent,
	} {
		hint, got := classify(&fs.PathError{Op: "openat", Err: errno})
		require.Equal(t, kind, got, errno)
		require.Equal(t, errno != syscall.EIO && errno != syscall.ENOENT, hint != "", errno)
	}
}
