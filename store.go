package leasehold

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// Store is a set of linearizable registers: one object per key, changed only by conditional writes.
//
// Implementations must be safe for concurrent use, must honour ctx, and must not retry a
// conditional write on their own. If the first try succeeded, the retry would fail with
// "precondition failed" although the write is theirs.
//
// Every error that is not one of the sentinels named below counts as ambiguous: the request may
// have been carried out, or may still be. [ErrConflict], which any write may return, is ambiguous
// too. It says that another write was under way. Errors that no retry can fix also match
// [ErrPermanent]. Error texts begin with what was being done, without the name of this package.
//
// Package storetest tests an implementation, and package storehttp is for authors of one over HTTP.
// [CheckStore] checks a Store at run time. A Store may also be a [Describer].
type Store interface {
	// Get reads one object. It returns [ErrNotExist] if there is none, and an error that matches
	// [ErrCorruptRecord], with the ETag filled in, if the object is larger than [MaxObjectSize].
	// Body and ETag belong to one version. An ETag older than the body does no harm, because the
	// next conditional write fails. A body older than the ETag can lead to two leaders.
	Get(ctx context.Context, key string) (Object, error)
	// PutIfNoneMatch creates an object and returns its ETag. It returns [ErrPreconditionFailed] if
	// the key exists.
	PutIfNoneMatch(ctx context.Context, key string, body []byte) (etag string, err error)
	// PutIfMatch replaces the version that etag names and returns the new ETag. It returns
	// [ErrPreconditionFailed] if the object has changed, and [ErrNotExist] if there is none any
	// more. A store may return ErrPreconditionFailed for both.
	PutIfMatch(ctx context.Context, key string, body []byte, etag string) (newETag string, err error)
	// DeleteIfMatch removes the version that etag names, with the errors of PutIfMatch. It is for
	// housekeeping. Locks never call DeleteIfMatch, because several servers ignore the condition.
	DeleteIfMatch(ctx context.Context, key, etag string) error
}

// StoreInfo is what a [Store] reports about itself. A zero field means that it is not known.
type StoreInfo struct {
	// Err is why the store cannot work at all. [NewLock] and [CheckStore] refuse the store with
	// this error, before any request.
	Err error
	// MinTTL is the shortest TTL of the store's locks: see [WithTTL]. 0 means 1 s.
	MinTTL time.Duration
	// TellsAge says that the store's clock is trusted, so Get reports [Object].Age. [CheckStore]
	// then measures the ages.
	TellsAge bool
	// Conditional says that every server behind this store is known to enforce conditional writes.
	// If Conditional is false, a process tries the store once, with two writes that must be
	// refused: an update of a version that does not exist, and a create over the lock's object. The
	// body of both is the object's body plus white space. A candidate sends them while it waits.
	// Otherwise the first acquisition sends them before it returns a lease. If the store carries
	// one out, the call fails with [ErrUnsafeStore].
	Conditional bool
}

// Describer is a [Store] that reports its limits and guarantees.
type Describer interface{ Describe() StoreInfo }

// Describe returns what s reports about itself. It returns the zero StoreInfo if s is not a
// [Describer], and a StoreInfo with Err if s is nil. A Store that wraps another one should be a
// Describer and return Describe of the wrapped Store.
func Describe(s Store) StoreInfo {
	if s == nil {
		return StoreInfo{Err: errors.New("store is nil")}
	}
	if v := reflect.ValueOf(s); v.Kind() == reflect.Pointer && v.IsNil() {
		return StoreInfo{Err: fmt.Errorf("store is a nil %T (make one with its constructor)", s)}
	}
	if d, ok := s.(Describer); ok {
		return d.Describe()
	}
	return StoreInfo{}
}

// Object is one version of a stored object.
type Object struct {
	Body []byte
	ETag string // names the version; opaque, never empty, passed back verbatim
	// Age is a lower bound, by the store's own clock alone, of the time since this version was
	// written. Age is 0 unless the user trusts that clock ([WithServerClock]), or all processes
	// share it ([NewFileStore]). A lock uses the Age of the first reply that shows a version. It
	// never takes a version to be older than the time since its own last read of another version.
	Age time.Duration
}

// MaxObjectSize is the size of the largest object that a [Store] reads or writes, in bytes: 1 MiB.
// A lock object is smaller, because its record has 64 KiB at most.
const MaxObjectSize = 1 << 20

var (
	// ErrNotExist says that the store has no object of that key.
	ErrNotExist = storeapi.ErrNotExist
	// ErrPreconditionFailed says that a conditional write was refused because the object has
	// changed, or exists.
	ErrPreconditionFailed = storeapi.ErrPreconditionFailed
	// ErrConflict says that a conditional write met another write that was under way (409 of S3).
	// The store may or may not have carried it out. A lock pauses, reads the object, and then
	// decides.
	ErrConflict = storeapi.ErrConflict
	// ErrPermanent marks errors that no retry can fix: no such bucket, access denied, a key that
	// the store refuses. Errors that match [ErrUnsafeStore] or [ErrCorruptRecord] match it too. An
	// acquisition ends at once with such an error. The text says what to do.
	ErrPermanent = storeapi.ErrPermanent
	// ErrUnsent says that the client could not send a request, for a reason that may be temporary:
	// a machine that has just started has no DNS yet, or gets its credentials later than its
	// network. A store returns ErrUnsent only until the server has answered for the first time. The
	// error matches [ErrPermanent] too, for callers that do not wait. [Lock.Acquire] and
	// [Lock.Watch] do wait.
	ErrUnsent = storeapi.ErrUnsent
	// ErrUnsafeStore says that the store, in its present configuration, is not safe for locks or
	// fenced writes. It ignores or lacks conditional writes, reports wrong ages, drops the metadata
	// of objects, or has a cache that answers its reads.
	ErrUnsafeStore = storeapi.ErrUnsafeStore
)
