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
// conditional write on their own, because if the first try succeeded, the retry fails with
// "precondition failed" although the write is theirs.
//
// Every error that is not one of the sentinels named below is taken as ambiguous: the request may
// have been carried out, or may still be. So is [ErrConflict], which any write may return: it says
// that another write was under way. Errors that no retry can fix also match [ErrPermanent]. Error
// texts begin with what was being done, without the name of this package.
//
// Package storetest tests an implementation, and package storehttp is for authors of one over HTTP.
// [CheckStore] checks one at run time. A Store may also be a [Describer].
type Store interface {
	// Get reads one object. It returns [ErrNotExist] if there is none, and an error that matches
	// [ErrCorruptRecord], with the ETag filled in, if it is larger than [MaxObjectSize]. Body and
	// ETag belong to one version. An ETag older than the body does no harm, because the next
	// conditional write fails. A body older than the ETag can lead to two leaders.
	Get(ctx context.Context, key string) (Object, error)
	// PutIfNoneMatch creates an object and returns its ETag. It returns [ErrPreconditionFailed] if
	// the key exists.
	PutIfNoneMatch(ctx context.Context, key string, body []byte) (etag string, err error)
	// PutIfMatch replaces the version that etag names and returns the new ETag. It returns
	// [ErrPreconditionFailed] if the object has changed, and [ErrNotExist] if it is gone. A store
	// may return ErrPreconditionFailed for both.
	PutIfMatch(ctx context.Context, key string, body []byte, etag string) (newETag string, err error)
	// DeleteIfMatch removes the version that etag names, with the errors of PutIfMatch. It is for
	// housekeeping. Locks never call it, because several servers ignore the condition.
	DeleteIfMatch(ctx context.Context, key, etag string) error
}

// StoreInfo is what a [Store] reports about itself. A zero field means that it is not known.
type StoreInfo struct {
	// Err is why the store cannot work at all. [NewLock] and [CheckStore] refuse it with this
	// error, before any request.
	Err error
	// MinTTL is the shortest TTL of its locks: see [WithTTL]. If it is 0, that is 1 s.
	MinTTL time.Duration
	// TellsAge says that the store's clock is trusted, so that Get tells [Object].Age. [CheckStore]
	// then measures it.
	TellsAge bool
	// Conditional says that every server behind this store is known to enforce conditional writes.
	// If it is false, a process tries the store once, with two writes that must be refused: an
	// update of a version that does not exist, and a create over the lock's object. Their body is
	// what the object has, plus white space. A candidate sends them while it waits; otherwise the
	// first acquisition sends them before it returns a lease. If one of them is carried out, the
	// call fails with [ErrUnsafeStore].
	Conditional bool
}

// Describer is a [Store] that reports its limits and guarantees.
type Describer interface{ Describe() StoreInfo }

// Describe returns what s reports about itself: the zero StoreInfo if s is not a [Describer], and
// one with Err if s is nil. A Store that wraps another one passes this on.
func Describe(s Store) StoreInfo {
	if s == nil {
		return StoreInfo{Err: errors.New("store is nil")}
	}
	if v := reflect.ValueOf(s); v.Kind() == reflect.Pointer && v.IsNil() {
		return StoreInfo{Err: fmt.Errorf("store is a nil %T: make one with its constructor", s)}
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
	// written. It is 0 unless the user trusts that clock ([WithServerClock]), or all processes
	// share it ([NewFileStore]). A lock uses the Age of the first reply that shows a version, and
	// never takes a version to be older than the time since its own last read of another one.
	Age time.Duration
}

// MaxObjectSize is the size of the largest object that a [Store] reads or writes, in bytes: 1 MiB.
// A lock object is never that large: its record has 64 KiB at most.
const MaxObjectSize = 1 << 20

var (
	// ErrNotExist says that the store has no object of that key.
	ErrNotExist = storeapi.ErrNotExist
	// ErrPreconditionFailed says that a conditional write was refused because the object has
	// changed, or exists.
	ErrPreconditionFailed = storeapi.ErrPreconditionFailed
	// ErrConflict says that a conditional write met another one that was under way, so the store
	// has carried it out or has not: 409 of S3. A lock pauses, reads the object, and then decides.
	ErrConflict = storeapi.ErrConflict
	// ErrPermanent marks errors that no retry can fix: no such bucket, access denied, a key that
	// the store refuses. Errors that match [ErrUnsafeStore] or [ErrCorruptRecord] match it too.
	// Acquiring ends at once with such an error. Its text says what to do.
	ErrPermanent = storeapi.ErrPermanent
	// ErrUnsent says that this side has kept a request from being sent, in a way that may pass: a
	// machine that starts has no DNS yet, or credentials later than its network. A store returns it
	// until the server has answered for the first time. It matches [ErrPermanent] for those who do
	// not wait; [Lock.Acquire] and [Lock.Watch] wait.
	ErrUnsent = storeapi.ErrUnsent
	// ErrUnsafeStore says that the store, as it is set up, is not safe for locks or fenced writes:
	// it ignores or lacks conditional writes, tells ages that are wrong, drops the metadata of
	// objects, or a cache answers its reads.
	ErrUnsafeStore = storeapi.ErrUnsafeStore
)
