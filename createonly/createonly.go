package createonly

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// Objects is a bucket in which objects are created, read, listed and deleted, and never replaced.
// Each method sends one request. The client below Create must not repeat a request: if the first
// try succeeded, the second one would fail because the object exists. Implementations must be safe
// for concurrent use and honour ctx.
//
// If an implementation is also a [leasehold.Describer], [Store.Describe] passes its description on.
type Objects interface {
	// Create writes an object. It returns an error that matches [leasehold.ErrPreconditionFailed]
	// if the object exists, and any other error if it is not known whether the object was written.
	Create(ctx context.Context, name string, body []byte) error
	// Get reads an object. The error matches [leasehold.ErrNotExist] if there is no object, and
	// [leasehold.ErrCorruptRecord] if the object is larger than [leasehold.MaxObjectSize].
	Get(ctx context.Context, name string) ([]byte, error)
	// List returns all names that begin with prefix, in any order. If there are more than [Listed]
	// names, it may return only the first Listed names in the order of their bytes. It must show
	// every object whose create had returned before List was called.
	List(ctx context.Context, prefix string) ([]string, error)
	// Delete removes an object, whether it exists or not.
	Delete(ctx context.Context, name string) error
}

// Keep is the number of newest versions of a key that are never deleted. It must be the same in all
// programs that share a key.
const Keep = 16

// Listed is the number of names up to which [Objects.List] must return all names: the size of a
// page of S3.
const Listed = 1000

const (
	sweeps    = 4 // deletes after a write: one is due, and others may have been lost
	sweepTime = 10 * time.Second
	readTries = 4 // each but the last meets Keep writes of others
)

// Store is a [leasehold.Store] in a bucket in which objects can only be created. It is safe for
// concurrent use. The package documentation says how it works and what it requires of the server.
//
// An ETag consists of the version's number and hashes of its key and body. PutIfMatch and
// DeleteIfMatch return [leasehold.ErrPreconditionFailed] for a missing object too. A deleted key
// keeps its last versions and a tombstone.
type Store struct {
	objects Objects
	cannot  sync.Once // says that old versions are not deleted
}

var _ leasehold.Describer = (*Store)(nil)

// New returns a store on objects, such as an [S3]. It sends no request. [Store.Describe],
// [leasehold.NewLock] and every method report objects that cannot work.
func New(objects Objects) *Store { return &Store{objects: objects} }

// Describe returns the description of the [Objects], with TellsAge false, because a Store never
// reports ages. If there are no Objects, Err matches [leasehold.ErrPermanent]. It sends no request.
func (s *Store) Describe() leasehold.StoreInfo {
	if s == nil || storeapi.IsNil(s.objects) {
		return leasehold.StoreInfo{Err: fmt.Errorf("%w: the create-only store has no objects (make one with New "+
			"and NewS3)", leasehold.ErrPermanent)}
	}
	var info leasehold.StoreInfo
	if d, ok := s.objects.(leasehold.Describer); ok {
		info = d.Describe()
	}
	info.TellsAge = false
	return info
}

// Get implements [leasehold.Store]. Age is always 0.
func (s *Store) Get(ctx context.Context, key string) (leasehold.Object, error) {
	n, body, err := s.current(ctx, key)
	switch {
	case errors.Is(err, leasehold.ErrCorruptRecord):
		return leasehold.Object{ETag: formatETag(key, n, nil)}, err
	case err != nil:
		return leasehold.Object{}, err
	case n == 0 || isTombstone(body):
		return leasehold.Object{}, fmt.Errorf("reading %q: %w", key, leasehold.ErrNotExist)
	}
	return leasehold.Object{Body: body, ETag: formatETag(key, n, body)}, nil
}

// PutIfNoneMatch implements [leasehold.Store]. If the key exists, it tries to create the highest
// version once more, which the server must refuse. So the store detects a server that overwrites.
func (s *Store) PutIfNoneMatch(ctx context.Context, key string, body []byte) (etag string, err error) {
	if err := checkBody(key, body); err != nil {
		return "", err
	}
	n, now, err := s.current(ctx, key)
	corrupt := errors.Is(err, leasehold.ErrCorruptRecord)
	if err != nil && !corrupt {
		return "", err
	}
	if n > 0 && (corrupt || !isTombstone(now)) {
		return s.write(ctx, key, n-1, body) // it is there, so the server must refuse this
	}
	return s.write(ctx, key, n, body)
}

// PutIfMatch implements [leasehold.Store].
func (s *Store) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (newETag string, err error) {
	if err := checkBody(key, body); err != nil {
		return "", err
	}
	return s.replace(ctx, key, etag, body)
}

// DeleteIfMatch implements [leasehold.Store]. It writes a tombstone.
func (s *Store) DeleteIfMatch(ctx context.Context, key, etag string) error {
	_, err := s.replace(ctx, key, etag, tombstone)
	return err
}

// replace writes over the version that etag names, if it exists. Its number would be enough if no
// objects were deleted by hand: after that, numbers start again, and a process that was overlooked
// must not write over the new versions.
func (s *Store) replace(ctx context.Context, key, etag string, body []byte) (newETag string, err error) {
	if err := s.usable(key); err != nil {
		return "", err
	}
	n, err := parseETag(key, etag)
	if err != nil {
		return "", err
	}
	there, err := s.objects.Get(ctx, name(key, n))
	if errors.Is(err, leasehold.ErrCorruptRecord) {
		there, err = nil, nil // as in the ETag that Get has returned
	}
	switch {
	case errors.Is(err, leasehold.ErrNotExist):
		return "", fmt.Errorf("writing %q: version %d is no longer there: %w", key, n, leasehold.ErrPreconditionFailed)
	case err != nil:
		return "", fmt.Errorf("reading version %d of %q before a write: %w", n, key, unknown(err))
	case formatETag(key, n, there) != etag:
		return "", fmt.Errorf("writing %q: version %d is another one than was read: %w", key, n,
			leasehold.ErrPreconditionFailed)
	}
	return s.write(ctx, key, n, body)
}

func checkBody(key string, body []byte) error {
	switch {
	case len(body) > leasehold.MaxObjectSize:
		return storeapi.TooLarge(fmt.Sprintf("writing %q", key), len(body), leasehold.MaxObjectSize)
	case isTombstone(body):
		return fmt.Errorf("writing %q: %w: this body marks a deleted object (write another body)", key,
			leasehold.ErrPermanent)
	}
	return nil
}

// write creates version n+1 of key. The package documentation has the rule by which it counts.
func (s *Store) write(ctx context.Context, key string, n uint64, body []byte) (etag string, err error) {
	if err := s.usable(key); err != nil {
		return "", err
	}
	n++
	if err := s.objects.Create(ctx, name(key, n), body); err != nil {
		if errors.Is(err, leasehold.ErrPreconditionFailed) {
			return "", fmt.Errorf("writing %q: version %d exists: %w", key, n, err)
		}
		return "", fmt.Errorf("writing version %d of %q: %w", n, key, unknown(err))
	}
	versions, err := s.versions(ctx, key)
	if err != nil { // of a LIST, so whatever it is, it does not say that the write has failed
		return "", fmt.Errorf("version %d of %q is written, but it is not known whether it counts: %w", n, key,
			passing(err))
	}
	switch err := shows(key, versions, n); {
	case err != nil:
		return "", fmt.Errorf("writing %q: %w", key, err)
	case versions[0] >= n+Keep:
		return "", fmt.Errorf("version %d of %q is written, but it is known to count only below version %d, and the "+
			"highest is now %d: its writer was too slow", n, key, n+Keep, versions[0])
	}
	s.sweep(ctx, key, versions, sweeps)
	return formatETag(key, n, body), nil
}

// current returns the highest version of key and its body. n is 0 if there has never been a
// version. If the body is too large, the error matches [leasehold.ErrCorruptRecord], and n is set.
func (s *Store) current(ctx context.Context, key string) (n uint64, body []byte, err error) {
	versions, err := s.versions(ctx, key)
	if err != nil {
		return 0, nil, fmt.Errorf("listing the versions of %q: %w", key, err)
	}
	if len(versions) == 0 {
		return 0, nil, nil
	}
	for range readTries {
		n = versions[0]
		body, err := s.objects.Get(ctx, name(key, n))
		if err != nil && !errors.Is(err, leasehold.ErrNotExist) {
			return n, nil, fmt.Errorf("reading version %d of %q: %w", n, key, unknown(err))
		}
		var listErr error
		if versions, listErr = s.after(ctx, key, n); listErr != nil {
			return 0, nil, fmt.Errorf("reading %q: %w", key, listErr)
		}
		if versions[0] < n+Keep { // so version n has been there all the time
			if err != nil {
				return n, nil, fmt.Errorf("LIST shows version %d of %q, but reading it fails: %w", n, key, unknown(err))
			}
			return n, body, nil
		}
	}
	return 0, nil, fmt.Errorf("reading %q: during each of %d tries others have written %d versions or more", key,
		readTries, Keep)
}

// after lists the versions of key for a caller that has seen version n. It returns an error if LIST
// shows neither n nor a later one.
func (s *Store) after(ctx context.Context, key string, n uint64) ([]uint64, error) {
	versions, err := s.versions(ctx, key)
	if err == nil {
		err = shows(key, versions, n)
	}
	return versions, err
}

// shows returns an error if versions, of a LIST after version n was seen, end before it. It is
// final, even after a create of n: on such a server, reading n back would prove nothing.
func shows(key string, versions []uint64, n uint64) error {
	if len(versions) == 0 || versions[0] < n {
		return fmt.Errorf("%w: LIST does not show version %d of %q, which exists "+
			"(use a server whose LIST is strongly consistent, and delete no object of a lock)",
			leasehold.ErrUnsafeStore, n, key)
	}
	return nil
}

// versions lists the versions of key, the highest first: all that are kept, and all or some of the
// others that still exist. If one that is kept is missing, it returns an error.
//
// One LIST cannot prove that a version is missing, because it need not show a single instant. A
// second one that shows the same highest version can: the highest was then the same while the first
// one ran, so no version that it had to show was deleted in that time.
func (s *Store) versions(ctx context.Context, key string) ([]uint64, error) {
	if err := s.usable(key); err != nil {
		return nil, err
	}
	swept := false
	for before := uint64(0); ; {
		names, err := s.objects.List(ctx, prefix(key))
		if err != nil {
			return nil, unknown(err)
		}
		versions, err := parseNames(key, names)
		if err != nil {
			return nil, err
		}
		if unordered(names) {
			if !swept { // a version that is old compared with any other is old compared with the highest
				s.sweep(ctx, key, versions, max(sweeps, len(names)-Listed+1))
				swept = true
				if ctx.Err() == nil {
					continue
				}
			}
			return nil, fmt.Errorf("%w: more than %d versions have not been deleted, and LIST is not in the order of "+
				"names, so it may not show the highest (delete the oldest objects that begin with %q, and see why "+
				"they are not deleted)", leasehold.ErrUnsafeStore, Listed, prefix(key))
		}
		gap := missing(versions)
		switch {
		case gap == 0:
			return versions, nil
		case versions[0] == before:
			return nil, fmt.Errorf("%w: version %d is missing, but %d is there: objects of this key were deleted by "+
				"hand or by a lifecycle rule, so exclusion is not certain (stop all that use it, then delete all "+
				"objects that begin with %q: tokens start again)",
				leasehold.ErrPermanent, gap, versions[0], prefix(key))
		}
		before = versions[0]
	}
}

// missing returns the highest version that must be there and is not, or 0.
func missing(versions []uint64) uint64 {
	for i := range versions {
		next := versions[0] - uint64(i)
		if versions[i] != next {
			return next
		}
		if i == Keep-1 || next == 1 {
			return 0
		}
	}
	if len(versions) == 0 {
		return 0
	}
	return versions[0] - uint64(len(versions))
}

// sweep deletes up to most versions that are not needed any more, in the background. Later writes
// repeat the deletes that are lost. If more than 2*Keep versions exist, sweep waits for its
// deletes, because a process that ends after its write ends them too, and it says once why they
// fail.
func (s *Store) sweep(ctx context.Context, key string, versions []uint64, most int) {
	var old []uint64
	for _, n := range versions {
		if n+Keep <= versions[0] && len(old) < most {
			old = append(old, n)
		}
	}
	if len(old) == 0 {
		return
	}
	pile := len(versions) > 2*Keep
	failed := func(err error) {
		if pile || errors.Is(err, leasehold.ErrPermanent) {
			s.cannot.Do(func() {
				slog.Warn("old versions of a lock are not deleted", "key", key,
					"versions", len(versions), "err", err)
			})
		}
	}
	late := fmt.Errorf("a DELETE has not ended after %v", sweepTime)
	sweeping, done := context.WithTimeout(context.WithoutCancel(ctx), sweepTime)
	go func() {
		defer done()
		defer context.AfterFunc(sweeping, func() { failed(late) })() // whether Delete heeds it or not
		for _, n := range old {
			if err := s.objects.Delete(sweeping, name(key, n)); err != nil {
				if sweeping.Err() != nil {
					err = late
				}
				failed(err)
				return
			}
		}
	}()
	if pile {
		select {
		case <-sweeping.Done():
		case <-ctx.Done():
		}
	}
}

// usable returns why no request can be sent.
func (s *Store) usable(key string) error {
	if info := s.Describe(); info.Err != nil {
		return info.Err
	}
	if strings.Contains("/"+key+"/", prefix("")) {
		return fmt.Errorf("%w: key %.80q has a part that leasehold itself writes (use another)", leasehold.ErrPermanent,
			key)
	}
	if why := storeapi.BadKey(key); why != "" && key != "" && len(key) <= maxName {
		return fmt.Errorf("%w: key %.80q %s (use another)", leasehold.ErrPermanent, key, why)
	}
	if key == "" || len(name(key, 1)) > maxName {
		return fmt.Errorf("%w: key %.80q has %d bytes (use 1 to %d)", leasehold.ErrPermanent, key, len(key),
			maxName-len(name("", 1)))
	}
	return nil
}

// unknown hides that a request for one object was refused, because that says nothing about the key.
func unknown(err error) error {
	if errors.Is(err, leasehold.ErrNotExist) || errors.Is(err, leasehold.ErrPreconditionFailed) {
		return errors.New(err.Error())
	}
	return err
}

// passing hides that err cannot pass.
func passing(err error) error {
	if errors.Is(err, leasehold.ErrPermanent) {
		return errors.New(err.Error())
	}
	return err
}

// tombstone is the body of a version that represents a deleted object.
var tombstone = []byte("leasehold: deleted here, and kept so that version numbers do not start again\n")

func isTombstone(body []byte) bool { return bytes.Equal(body, tombstone) }
