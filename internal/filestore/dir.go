// Package filestore keeps small objects as files of one directory, for all processes of one
// machine. A conditional write is a check and a rename under the advisory lock of the directory.
package filestore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// Dir is a directory of objects. It is safe for concurrent use.
type Dir struct {
	path  string
	wrong error // why it can never work
	limit int   // of a body, in bytes
	sync  func(*os.File) error

	calls chan struct{} // has a place for each call under way, even if its caller has given up
	swept atomic.Bool

	mu     sync.Mutex        // guards onDisk
	onDisk map[string]string // for each key, the ETag of a version that no power loss undoes
}

// maxCalls bounds the threads that a disk can hold up that does not answer.
const maxCalls = 64

// maxOnDisk bounds the memory of what is on the disk: 1 MiB with short keys. What is forgotten is
// synced once more.
const maxOnDisk = 4096

// New returns the directory of a path, which it does not touch. limit is the size of the largest
// body, in bytes.
func New(path string, limit int) *Dir {
	d := &Dir{
		path:   path,
		limit:  limit,
		sync:   (*os.File).Sync,
		calls:  make(chan struct{}, maxCalls),
		onDisk: map[string]string{},
	}
	switch {
	case !supported:
		d.wrong = bad("files do not work as a store on this system: it works on Linux, macOS and FreeBSD")
	case path == "":
		d.wrong = bad("the directory has no name (pass its path; if an environment variable has it, set that)")
	default:
		var err error
		// so that a later change of the working directory changes nothing
		if d.path, err = filepath.Abs(path); err != nil {
			d.wrong = &storeapi.Error{
				Doing: fmt.Sprintf("finding directory %q", path),
				Kind:  storeapi.ErrPermanent,
				Cause: err,
			}
		}
	}
	return d
}

func bad(format string, args ...any) error {
	return &storeapi.Error{Kind: storeapi.ErrPermanent, Cause: fmt.Errorf(format, args...)}
}

// Object has the fields of leasehold.Object.
type Object struct {
	Body []byte
	ETag string
	Age  time.Duration
}

// Validate returns an error if the directory cannot be used: it is missing, is not a directory, may
// not be read, or is on a network.
func (d *Dir) Validate() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err := d.do(ctx, fmt.Sprintf("opening directory %q", d.path), func(*call) (Object, error) {
		return Object{}, nil
	})
	return err
}

// Get reads an object. If its file is not one that a Dir has written, the error matches
// storeapi.ErrCorruptRecord, and the ETag, which is made of the content, is filled in. So is the
// Body, with what the file has of one, unless it is too large.
func (d *Dir) Get(ctx context.Context, key string) (Object, error) {
	return d.about(ctx, "reading", key, func(c *call) (Object, error) {
		o, err := c.read()
		// The caller acts on what it reads, so a version must not be lost any more, whichever
		// process has written it.
		if err == nil && d.isOnDisk(key, o.ETag) {
			return o, nil
		}
		if err == nil || errors.Is(err, storeapi.ErrNotExist) || o.ETag != "" {
			if err := d.sync(c.self); err != nil {
				return Object{}, c.unsynced(err)
			}
		}
		if err == nil {
			d.setOnDisk(key, o.ETag)
		}
		return o, err
	})
}

func (d *Dir) isOnDisk(key, etag string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.onDisk[key] == etag
}

func (d *Dir) setOnDisk(key, etag string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.onDisk) >= maxOnDisk {
		clear(d.onDisk)
	}
	d.onDisk[key] = etag
}

// PutIfNoneMatch writes an object that does not exist yet.
func (d *Dir) PutIfNoneMatch(ctx context.Context, key string, body []byte) (etag string, err error) {
	return d.write(ctx, key, body, func(etag string) error {
		if etag != "" {
			return fmt.Errorf("%w: it exists", storeapi.ErrPreconditionFailed)
		}
		return nil
	})
}

// PutIfMatch writes over the version that etag names.
func (d *Dir) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (newETag string, err error) {
	return d.write(ctx, key, body, matches(etag))
}

// DeleteIfMatch removes the version that etag names.
func (d *Dir) DeleteIfMatch(ctx context.Context, key, etag string) error {
	_, err := d.about(ctx, "deleting", key, func(c *call) (Object, error) {
		return Object{}, c.change(matches(etag), func() error { return c.root.Remove(c.file) })
	})
	return err
}

// A condition allows or refuses a write over the version that etag names. It is "" if there is
// none.
type condition func(etag string) error

func matches(want string) condition {
	return func(etag string) error {
		switch etag {
		case "":
			return storeapi.ErrNotExist
		case want:
			return nil
		}
		return fmt.Errorf("%w: it has changed", storeapi.ErrPreconditionFailed)
	}
}

func (d *Dir) write(ctx context.Context, key string, body []byte, allow condition) (string, error) {
	const doing = "writing"
	if len(body) > d.limit {
		return "", storeapi.TooLarge(d.doing(doing, key), len(body), d.limit)
	}
	etag := `"` + rand.Text() + `"`
	// here, because body is the caller's again once this returns
	data := encode(header{Key: key, ETag: etag, stamp: now()}, body)
	_, err := d.about(ctx, doing, key, func(c *call) (Object, error) { return Object{}, c.replace(data, allow) })
	if err != nil {
		return "", err
	}
	d.setOnDisk(key, etag)
	return etag, nil
}

func (d *Dir) doing(what, key string) string {
	return fmt.Sprintf("%s %q in directory %q", what, key, d.path)
}

// about is do for one key.
func (d *Dir) about(ctx context.Context, what, key string, f func(*call) (Object, error)) (Object, error) {
	if why := storeapi.BadKey(key); why != "" {
		return Object{}, bad("%s an object: key %.80q %s (use a path such as \"locks/my-service\")", what, key, why)
	}
	return d.do(ctx, d.doing(what, key), func(c *call) (Object, error) {
		c.key, c.file = key, FileName(key)
		return f(c)
	})
}

// do opens the directory and runs f. System calls on files cannot be cut off, so if ctx ends, f
// continues alone, and its outcome is unknown to the caller.
func (d *Dir) do(ctx context.Context, doing string, f func(*call) (Object, error)) (Object, error) {
	c := &call{dir: d, ctx: ctx, doing: doing}
	if ctx.Err() != nil {
		return Object{}, c.cutOff()
	}
	if d.wrong != nil {
		return Object{}, d.wrong
	}
	select {
	case d.calls <- struct{}{}:
	case <-ctx.Done():
		return Object{}, c.cutOff()
	}
	type result struct {
		o   Object
		err error
	}
	done := make(chan result, 1)
	go func() {
		defer func() { <-d.calls }()
		o, err := c.run(f)
		done <- result{o, err}
	}()
	select {
	case r := <-done:
		return r.o, r.err
	case <-ctx.Done():
		return Object{}, c.cutOff()
	}
}

// call is one call of a method of Dir.
type call struct {
	dir       *Dir
	ctx       context.Context
	doing     string // begins the text of errors
	key, file string
	locking   atomic.Bool // it waits for the lock, or has waited until its context ended

	root *os.Root // the directory as it was at the beginning of the call: what happens to its path changes nothing
	self *os.File // the same, to sync it
}

func (c *call) run(f func(*call) (Object, error)) (Object, error) {
	path := c.dir.path
	info, err := os.Stat(path) // before it is opened, which would wait for the writer of a named pipe
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Object{}, c.permanent(err, "create the directory, and give everyone who uses its locks read, write "+
			"and search permission")
	case err != nil:
		return Object{}, c.failed(err)
	case !info.IsDir():
		return Object{}, c.permanent(fmt.Errorf("%s is not a directory", path), "give the path of a directory")
	}
	if c.root, err = os.OpenRoot(path); err != nil {
		return Object{}, c.failed(err)
	}
	defer c.root.Close()
	if c.self, err = c.root.Open("."); err != nil {
		return Object{}, c.failed(err)
	}
	defer c.self.Close()
	switch network, err := networkFS(c.self); {
	case err != nil:
		return Object{}, c.failed(err)
	case network != "":
		return Object{}, c.permanent(fmt.Errorf("%s is on %s, whose locks may not reach other machines", path, network),
			"use a directory on a local file system, or a bucket for locks between machines")
	}
	return f(c)
}

// read reads the object. Renames are atomic, so a file is one version, and reading needs no lock.
func (c *call) read() (Object, error) {
	missing := &storeapi.Error{Doing: c.doing, Cause: storeapi.ErrNotExist}
	info, err := c.root.Lstat(c.file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Object{}, missing
	case err != nil:
		return Object{}, c.failed(err)
	case !info.Mode().IsRegular():
		return Object{}, c.permanent(fmt.Errorf("%s is not a regular file but %v", c.file, info.Mode().Type()),
			"move it away")
	}
	f, err := c.root.Open(c.file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Object{}, missing
	case err != nil:
		return Object{}, c.failed(err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, int64(c.dir.limit+maxHeader+1)))
	if err != nil {
		return Object{}, c.failed(err)
	}
	h, body, err := decode(data)
	switch {
	case len(data) > c.dir.limit+maxHeader, err == nil && len(body) > c.dir.limit:
		body, err = nil, fmt.Errorf("it is larger than %d bytes", c.dir.limit)
	case err == nil && h.Key != c.key:
		err = fmt.Errorf("it is the object %q under another name", h.Key)
	}
	if err != nil {
		return Object{ETag: contentETag(data), Body: body}, &storeapi.Error{
			Doing: c.doing, Kind: storeapi.ErrCorruptRecord,
			Cause: fmt.Errorf("the file %s is not an object of leasehold: %w", c.file, err),
			Hint:  "inspect the file; Lock.Break repairs it if it was a lock",
		}
	}
	return Object{Body: body, ETag: h.ETag, Age: h.age()}, nil
}

// check asks a condition about the version that is there now.
func (c *call) check(allow condition) error {
	o, err := c.read()
	if err != nil && !errors.Is(err, storeapi.ErrNotExist) && o.ETag == "" {
		return err
	}
	if err := allow(o.ETag); err != nil {
		return &storeapi.Error{Doing: c.doing, Cause: err}
	}
	return nil
}

// replace writes data to the object's file. All that takes time comes before the lock or after it,
// so that a process that is stopped hardly ever keeps out the others.
func (c *call) replace(data []byte, allow condition) error {
	if c.dir.swept.CompareAndSwap(false, true) {
		c.sweep()
	}
	if err := c.check(allow); err != nil { // most refusals need no write
		return err
	}
	old, err := c.root.Lstat(c.file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return c.failed(err)
	}
	temp := tempPrefix + rand.Text() + tempSuffix
	defer func() { _ = c.root.Remove(temp) }() // fails after the rename
	if err := c.create(temp, data, old); err != nil {
		return c.failed(err)
	}
	return c.change(allow, func() error { return c.root.Rename(temp, c.file) })
}

// create writes a new file, to the disk. Every user who can read old, the file that it replaces,
// can read it. old may be nil.
func (c *call) create(name string, data []byte, old fs.FileInfo) error {
	f, err := c.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	if old != nil {
		err = giveAccess(f, old, old.Mode().Perm())
	}
	if err == nil {
		_, err = f.Write(data)
	}
	if err == nil {
		err = c.dir.sync(f)
	}
	return errors.Join(err, f.Close())
}

// change checks the condition and applies a change, which is a single system call, under the lock.
func (c *call) change(allow condition, apply func() error) error {
	lock, err := c.lock()
	if err != nil {
		return err
	}
	err = c.check(allow)
	if err == nil && c.ctx.Err() != nil { // the caller has given up
		err = c.cutOff()
	} else if err == nil {
		if err = apply(); err != nil {
			err = c.failed(err)
		}
	}
	c.release(lock)
	if err != nil {
		return err
	}
	if err := c.dir.sync(c.self); err != nil {
		return c.unsynced(err)
	}
	return nil
}

// No object's file has such a name.
const (
	tempPrefix = ".leasehold-"
	tempSuffix = ".tmp"
)

// sweep removes the temporary files of writers that were killed. A clock that is wrong does no
// harm: the rename of a removed file fails, and the write with it.
func (c *call) sweep() {
	names, _ := c.self.Readdirnames(-1)
	for _, name := range names {
		if strings.HasPrefix(name, tempPrefix) && strings.HasSuffix(name, tempSuffix) {
			if info, err := c.root.Lstat(name); err == nil && time.Since(info.ModTime()) > time.Hour {
				_ = c.root.Remove(name)
			}
		}
	}
}

// failed explains an error of the file system after which the object is unchanged.
func (c *call) failed(err error) error {
	if c.ctx.Err() != nil && errors.Is(err, c.ctx.Err()) {
		return c.cutOff()
	}
	hint, kind := classify(err)
	return &storeapi.Error{Doing: c.doing, Kind: kind, Cause: err, Hint: hint}
}

// unsynced is the error of a change that is there, though a power loss may undo it. It is never
// permanent, because that would say that nothing was changed.
func (c *call) unsynced(err error) error {
	return &storeapi.Error{Doing: c.doing, Cause: fmt.Errorf("a power loss may undo the last write: %w", err)}
}

func (c *call) permanent(err error, hint string) error {
	return &storeapi.Error{Doing: c.doing, Kind: storeapi.ErrPermanent, Cause: err, Hint: hint}
}

// cutOff is the error of a call whose context has ended.
func (c *call) cutOff() error {
	e := &storeapi.Error{Doing: c.doing, Cause: c.ctx.Err()}
	if c.locking.Load() {
		e.Hint = "another process has locked the directory, and may be stopped: lslocks shows it"
	}
	return e
}
