package leasehold

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Store is a set of linearizable registers: one object per key, changed only by conditional writes.
//
// Implementations must be safe for concurrent use, must honour ctx, and must not retry a conditional write on their own:
// a retry of a write that has landed answers "precondition failed" to its own success. Every error that is not one of the
// sentinels named below is taken as ambiguous: the request may have been carried out, or may still be.
// Errors that no retry can heal also match [ErrPermanent].
//
// Package storetest checks an implementation; [CheckStore] probes one at run time.
// A Store that needs leases of a certain length has a method MinTTL() time.Duration: see [WithTTL].
type Store interface {
	// Get reads one object. It returns [ErrNotExist] if there is none, and an error that matches [ErrCorruptRecord],
	// with the ETag filled in, for one larger than [MaxObjectSize].
	Get(ctx context.Context, key string) (Object, error)
	// PutIfNoneMatch creates an object and returns its ETag. It returns [ErrPreconditionFailed] if the key exists.
	PutIfNoneMatch(ctx context.Context, key string, body []byte) (etag string, err error)
	// PutIfMatch replaces the version that etag names and returns the new ETag.
	// It returns [ErrPreconditionFailed] if the object has changed and [ErrNotExist] if it is gone; a lock understands
	// stores that say ErrPreconditionFailed for both.
	PutIfMatch(ctx context.Context, key string, body []byte, etag string) (newETag string, err error)
	// DeleteIfMatch removes the version that etag names, with the errors of PutIfMatch. Locks never call it,
	// for several servers ignore the condition; it is for housekeeping.
	DeleteIfMatch(ctx context.Context, key, etag string) error
}

// Object is one version of a stored object.
type Object struct {
	Body []byte
	ETag string // names the version; opaque, never empty, given back verbatim
	// Age is a lower bound, by the store's own clock alone, of the time since this version was written; 0 if unknown.
	Age time.Duration
}

// MaxObjectSize is the largest lock object that is read or written, in bytes.
const MaxObjectSize = 64 << 10

var (
	// ErrNotExist says that the store has no object of that key.
	ErrNotExist = errors.New("leasehold: no such object")
	// ErrPreconditionFailed says that a conditional write was refused because the object has changed, or exists.
	ErrPreconditionFailed = errors.New("leasehold: precondition failed")
	// ErrPermanent marks store errors that no retry can heal: no such bucket, access denied, a key the store refuses.
	// Acquiring ends at once with such an error; its message names the missing permission or setting.
	ErrPermanent = errors.New("leasehold: permanent store error")
	// ErrUnsafeStore says that the store ignores or lacks conditional writes, so that no lock can be built on it.
	ErrUnsafeStore = errors.New("leasehold: store does not enforce conditional writes")

	// errConflict says that a conditional write met another one under way (409 of S3): to be tried again.
	errConflict = errors.New("conflicting write under way")
)

// checkKey refuses keys that stores read differently from one another.
func checkKey(key string) error {
	bad := func(why string) error {
		return fmt.Errorf("leasehold: key %.80q %s: use a path such as \"locks/my-service\"", key, why)
	}
	switch {
	case key == "":
		return bad("is empty")
	case len(key) > 1024:
		return bad("is longer than 1024 bytes, the limit of S3")
	case !utf8.ValidString(key):
		return bad("is not valid UTF-8")
	}
	if strings.ContainsFunc(key, unicode.IsControl) {
		return bad("has a control character")
	}
	if strings.Contains(key, `\`) {
		return bad("has a backslash, which some servers take for a slash")
	}
	for segment := range strings.SplitSeq(key, "/") {
		switch segment {
		case "":
			return bad("has an empty path segment")
		case ".", "..":
			return bad(`has a path segment "." or ".."`)
		}
	}
	return nil
}
