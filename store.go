package leasehold

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/internal/storeapi"
	"github.com/leasehold-go/leasehold/internal/wire"
)

// Store is a set of linearizable registers: one object per key, changed only by conditional writes.
//
// Implementations must be safe for concurrent use, must honour ctx, and must not retry a conditional write on their own:
// a retry of a write that has landed answers "precondition failed" to its own success. Every error that is not one of the
// sentinels named below is taken as ambiguous: the request may have been carried out, or may still be.
// Errors that no retry can heal also match [ErrPermanent]. Error texts begin with what was being done, without the name
// of this package.
//
// Package storetest checks an implementation; [CheckStore] probes one at run time. A Store may have these methods too:
//   - MinTTL() time.Duration is the shortest lease that it allows: see [WithTTL].
//   - Validate() error says why it cannot work at all. [NewLock] and [CheckStore] refuse a Store whose Validate returns
//     an error, before any request.
//   - TellsAge() bool says that its user trusts its clock, so that Get tells [Object].Age. CheckStore then measures it.
type Store interface {
	// Get reads one object. It returns [ErrNotExist] if there is none, and an error that matches [ErrCorruptRecord],
	// with the ETag filled in, for one larger than [MaxObjectSize]. Body and ETag belong to one version. An ETag older than
	// the body does no harm, because the next conditional write fails; a body older than the ETag can lead to two leaders.
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
	// Age is a lower bound, by the store's own clock alone, of the time since this version was written. It is 0 unless the
	// user trusts that clock: see [WithServerClock]. A lock uses only the first reply that shows a version, and never takes a
	// version for older than its own looks allow.
	Age time.Duration
}

// MaxObjectSize is the size of the largest lock object that is read or written, in bytes: 64 KiB.
const MaxObjectSize = wire.MaxSize

var (
	// ErrNotExist says that the store has no object of that key.
	ErrNotExist = storeapi.ErrNotExist
	// ErrPreconditionFailed says that a conditional write was refused because the object has changed, or exists.
	ErrPreconditionFailed = storeapi.ErrPreconditionFailed
	// ErrPermanent marks store errors that no retry can heal: no such bucket, access denied, a key the store refuses.
	// Acquiring ends at once with such an error; its message names the missing permission or setting.
	ErrPermanent = storeapi.ErrPermanent
	// ErrUnsafeStore says that the store ignores or lacks conditional writes, or tells ages that are wrong, so that no lock
	// can be built on it as it is set up.
	ErrUnsafeStore = storeapi.ErrUnsafeStore
)
