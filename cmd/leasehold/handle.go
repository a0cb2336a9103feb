package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold-go/leasehold/internal/tables"
)

// handle names a term for a process that did not begin it: the URL of the lock, "#term=", and the
// handle of its lease; or the URL of a table of locks, "#member=", and the handle of a member. Its
// text is a URL, so it can be used wherever a URL can.
type handle struct {
	at    place.Location
	term  string         // of Lease.Handle, or of Table.Detach; a secret
	table *tables.Handle // what term says of a member; nil of a lock
}

// What parts the URL of a handle from the rest.
const (
	termMark   = "#term="
	memberMark = "#member="
)

const handleEnv = "LEASEHOLD_HANDLE"

func (h handle) String() string {
	if h.table != nil {
		return h.at.String() + memberMark + h.term
	}
	return h.at.String() + termMark + h.term
}

var (
	wholeHandle = regexp.MustCompile(`^term=([1-9][0-9]*-[A-Z2-7]{26})$`)
	// The hash of its secret was in the metadata of the record, and not the ID of the term.
	oldHandle = regexp.MustCompile(`^[1-9][0-9]*-[A-Z2-7]{26}$`)
)

func parseHandle(text string) (handle, error) {
	url, fragment, ok := strings.Cut(text, "#")
	if !ok {
		return handle{}, exit.Errorf(exit.Usage, "%q is not a handle (pass what acquire has printed)",
			place.WithoutSecrets(url))
	}
	at, err := place.ParseLock(url)
	whole := wholeHandle.FindStringSubmatch(fragment)
	if of, ok := strings.CutPrefix("#"+fragment, memberMark); ok && err == nil {
		return memberHandle(at, of)
	}
	switch {
	case err == nil && oldHandle.MatchString(fragment):
		return handle{}, exit.Errorf(exit.Usage, "the handle of %q is from an earlier version of leasehold (release "+
			"the lock with that version, or with leasehold break, then acquire it again)", place.WithoutSecrets(url))
	case err != nil || whole == nil:
		return handle{}, exit.Errorf(exit.Usage, "the handle of %q is not complete (pass what acquire has printed)",
			place.WithoutSecrets(url))
	}
	return handle{at: at, term: whole[1]}, nil
}

// withHandle is the RunE of a command that does something to the term of the given handle.
func (a *app) withHandle(given *givenHandle, do func(ctx context.Context, cmd *cobra.Command, h handle,
	store *place.Store) error) func(*cobra.Command, []string) error {
	return a.action(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
		if given.text == "" { // as --if-held allows
			return nil
		}
		h, err := parseHandle(given.text)
		if err != nil {
			return err
		}
		store, err := h.at.Open(ctx)
		if err != nil {
			return err
		}
		defer store.Close()
		return do(ctx, cmd, h, store)
	})
}

// report prints what was done to the term, if there was no error.
func (a *app) report(h handle, done string, r leasehold.Record, err error) error {
	if err != nil {
		return err
	}
	r.Token = h.token(r)
	text := fmt.Sprintf("%v: %s token %d", h.at, done, r.Token)
	if !r.Released() {
		text += " until " + r.ExpiresAt.Format(dateTime)
	}
	return a.print(show(h.at, r, 0), text)
}

// shortestTTL is the shortest TTL of a term that is continued, whatever its record says.
const shortestTTL = time.Second

// tryResume continues the term. Its record keeps the name and the metadata of the holder, and the
// TTL unless a longer one is given. found is the record as it was before.
func (h handle) tryResume(ctx context.Context, store *place.Store,
	ttl time.Duration) (lease *leasehold.Lease, found leasehold.Record, err error) {
	h = h.own()
	version := &readOnce{Store: store}
	reader, err := newLock(version, h.at.Key, []leasehold.Option{
		leasehold.WithTTL(max(cmp.Or(ttl, defaultTTL), shortestTTL)),
	})
	if err != nil {
		return nil, found, err
	}
	found, _ = reader.Inspect(ctx) // Resume says what is wrong with it
	opts := []leasehold.Option{
		leasehold.WithTTL(max(cmp.Or(ttl, found.TTL, defaultTTL), shortestTTL)), leasehold.WithMetadata(found.Metadata),
		leasehold.WithManualRenewal(), leasehold.WithLogger(slog.New(slog.DiscardHandler)),
	}
	if found.Holder != "" {
		opts = append(opts, leasehold.WithHolder(found.Holder))
	}
	lock, err := newLock(version, h.at.Key, opts)
	if err != nil {
		return nil, found, err
	}
	lease, err = lock.Resume(ctx, h.term)
	return lease, found, err
}

// readOnce is a store for an Inspect and one Resume, which begins with what Inspect has read, or
// with its error.
type readOnce struct {
	leasehold.Store
	object leasehold.Object
	err    error
	reads  int
}

func (v *readOnce) Get(ctx context.Context, key string) (leasehold.Object, error) {
	switch v.reads++; v.reads {
	case 1:
		v.object, v.err = v.Store.Get(ctx, key)
	case 2: // of Resume
	default:
		return v.Store.Get(ctx, key)
	}
	return v.object, v.err
}

func (v *readOnce) Describe() leasehold.StoreInfo { return leasehold.Describe(v.Store) }

// final reports whether it is of no use to try again.
func final(err error) bool {
	return errors.Is(err, leasehold.ErrLost) || errors.Is(err, leasehold.ErrReleased) ||
		errors.Is(err, leasehold.ErrPermanent) || errors.As(err, new(*exit.Error))
}

const (
	// retryFor bounds the tries to renew or release.
	retryFor = 30 * time.Second
	// maxPause is the longest pause between two of them.
	maxPause = 5 * time.Second
)

// resume is tryResume, again and again while failures may pass.
func (h handle) resume(ctx context.Context, store *place.Store,
	ttl time.Duration) (lease *leasehold.Lease, found leasehold.Record, err error) {
	ctx, cancel := context.WithTimeout(ctx, retryFor)
	defer cancel()
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, maxPause) {
		lease, found, err = h.tryResume(ctx, store, ttl)
		switch {
		case err == nil:
			return lease, found, nil
		case errors.Is(err, leasehold.ErrLost), errors.Is(err, leasehold.ErrReleased):
			return nil, found, fmt.Errorf("%w (acquire the lock again)", err)
		case final(err):
			return nil, found, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, found, err
		}
	}
}

// renew renews the lease once, for its TTL unless a positive one is given.
func (h handle) renew(ctx context.Context, store *place.Store, ttl time.Duration) (leasehold.Record, error) {
	lease, found, err := h.resume(ctx, store, ttl)
	if err != nil {
		return found, err
	}
	lease.Abandon() // any process that has the handle may continue
	return lease.Record(), nil
}

// release releases the lock, by two writes, of which the first one is a renewal.
func (h handle) release(ctx context.Context, store *place.Store) (leasehold.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, retryFor)
	defer cancel()
	if h.table != nil {
		return leasehold.Record{Holder: h.table.Member.Name}, h.leave(ctx, store)
	}
	var own *leasehold.Record // of a release whose outcome is not known
	for {
		lease, found, err := h.resume(ctx, store, 0)
		switch {
		case own != nil && errors.Is(err, leasehold.ErrLost): // after the release, or a TTL after the renewal
			own.ExpiresAt = time.Time{}
			return *own, nil
		case errors.Is(err, leasehold.ErrReleased):
			found.ExpiresAt = time.Time{} // it may have been released since it was read
			return found, nil
		case err != nil:
			return found, err
		}
		err = lease.Release(ctx)
		record := lease.Record()
		if err == nil || ctx.Err() != nil || final(err) && !errors.Is(err, leasehold.ErrLost) {
			return record, err
		}
		// The store has failed for a TTL. Or between the two writes, hold has renewed the lease, or
		// a candidate has taken the lock.
		if own = nil; !final(err) {
			own = &record
		}
	}
}

// checkOverwritten is an error if a handle of the lock at the given place may not be written over
// what the file has: the handle of another lock, which perhaps nothing else can release, or what is
// no handle at all. It contacts no store: the file would say which. h is what the file has of a
// lock at that place.
func checkOverwritten(path string, at place.Location) (h handle, err error) {
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
		return h, nil // newHandleFile says what is wrong with it
	}
	body, err := readHandle(path)
	if err != nil {
		if errors.As(err, new(*exit.Error)) {
			return h, err
		}
		return h, exit.Errorf(exit.Output, "reading --handle-file: %w (give another file)", err)
	}
	text := strings.TrimSpace(string(body))
	if text == "" {
		return h, nil
	}
	if h, err = parseHandle(text); err != nil {
		return h, exit.Errorf(exit.Usage, "--handle-file %q does not contain a handle, and was not changed (give the "+
			"path of a new file)", path)
	}
	if h.at.String() != at.String() { // an acquire of the same lock waits until that term has ended
		return h, exit.Errorf(exit.Usage, "--handle-file %q has the handle of another lock, %v (release it by "+
			"leasehold release --handle-file and remove the file, or give another file)", path, h.at)
	}
	return h, nil
}

// handleFile is the file of --handle-file. What an earlier acquire has written there stays until
// this one has the lock: it may be all that can release a lock.
type handleFile struct {
	*os.File        // in the directory of the file that the user names
	path     string // of that file
}

// newHandleFile makes a file that no other user can read. keep moves it to path.
func newHandleFile(path string) (*handleFile, error) {
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, exit.Errorf(exit.Output, "the file for the handle cannot be made: %w (give another --handle-file)",
			err)
	case info.IsDir():
		return nil, exit.Errorf(exit.Usage, "--handle-file %q is a directory (give the path of a file)", path)
	case !info.Mode().IsRegular(): // others may need a device, and read what goes into a pipe
		return nil, exit.Errorf(exit.Usage, "--handle-file %q is not a regular file, and was not changed (give the "+
			"path of a new file)", path)
	}
	temporary := filepath.Join(filepath.Dir(path), ".leasehold-handle-"+rand.Text())
	file, err := os.OpenFile(temporary, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, exit.Errorf(exit.Output, "the file for the handle cannot be made: %w (give another --handle-file)",
			err)
	}
	return &handleFile{file, path}, nil
}

// keep writes the handle.
func (f *handleFile) keep(h handle) error {
	_, err := fmt.Fprintln(f, h)
	if err == nil {
		err = f.Close() // some file systems report only here that the disk is full
	}
	if err == nil {
		err = os.Rename(f.Name(), f.path)
	}
	if err != nil {
		return exit.Errorf(exit.Output, "the handle cannot be written: %w (give another --handle-file)", err)
	}
	return nil
}

// remove removes what keep has not kept.
func (f *handleFile) remove() {
	_ = f.Close()
	_ = os.Remove(f.Name())
}

// givenHandle is the text of a handle, wherever it was given.
type givenHandle struct {
	text, file string
	ifHeld     bool // there may be none
}

func (g *givenHandle) fileFlag(flags *pflag.FlagSet) {
	flags.StringVar(&g.file, "handle-file", "", "`file` with the handle, which acquire has written")
}

// check finds the handle.
func (g *givenHandle) check(cmd *cobra.Command, args []string) error {
	none := "there is no handle (pass what acquire has printed, or set " + handleEnv + ")"
	switch {
	case len(args) > 1, len(args) == 1 && g.file != "":
		return exit.Errorf(exit.Usage, "%s takes one handle, not %d", cmd.Name(), max(len(args), 2))
	case len(args) == 1:
		g.text = args[0]
	case g.file != "":
		body, err := readHandle(g.file)
		switch {
		case errors.Is(err, fs.ErrNotExist) && g.ifHeld:
		case errors.Is(err, fs.ErrNotExist):
			return exit.Errorf(exit.Usage, "the handle cannot be read: %w (acquire has not taken the lock, or had "+
				"another --handle-file)", err)
		case errors.As(err, new(*exit.Error)):
			return err
		case err != nil:
			return exit.Errorf(exit.Usage, "the handle cannot be read: %w (give the --handle-file of acquire)", err)
		}
		g.text = strings.TrimSpace(string(body))
		none = fmt.Sprintf("--handle-file %q is empty (give the --handle-file of acquire)", g.file)
	default:
		g.text = os.Getenv(handleEnv)
	}
	if g.text == "" && !g.ifHeld {
		return exit.Errorf(exit.Usage, "%s", none)
	}
	return nil
}

// maxHandle bounds what is read of a file, which may be a device without end.
const maxHandle = 64 << 10

// readHandle reads a file, which may be a pipe.
func readHandle(path string) ([]byte, error) {
	file, err := openTrusted(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, maxHandle))
}
