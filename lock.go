package leasehold

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/leasehold-go/leasehold/internal/ctxmutex"
	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// Lock is one lock, which is one object of a [Store]. [NewLock] makes it. It is safe for concurrent
// use. Of all goroutines and processes that use the same key, at most one holds a valid [Lease]. A
// Lock must not be copied.
type Lock struct {
	*register
	acquiring ctxmutex.Mutex       // locked while a try is under way
	term      atomic.Pointer[term] // the last term held
	failing   atomic.Pointer[failing]
	waits     atomic.Int64 // monotonic time since which a goroutine waits for the lock, if one does
}

// NewLock returns the lock with this key in a store. It sends no request. It refuses a key or
// options that cannot work, and a store with its [StoreInfo] Err.
func NewLock(s Store, key string, opts ...Option) (*Lock, error) {
	info := Describe(s)
	if info.Err != nil {
		return nil, fmt.Errorf("leasehold: %w", info.Err)
	}
	if why := storeapi.BadKey(key); why != "" {
		return nil, fmt.Errorf("leasehold: key %.80q %s (use a path such as \"locks/my-service\")", key, why)
	}
	o, err := newOptions(info.MinTTL, opts)
	if err != nil {
		return nil, err
	}
	return &Lock{register: newRegister(s, key, o, canaryOf(s, info)), acquiring: ctxmutex.New()}, nil
}

// Key returns the lock's key, or "" if [NewLock] did not make the lock.
func (l *Lock) Key() string {
	if l.made() != nil {
		return ""
	}
	return l.key
}

// Holder returns the name that this Lock writes into the record when it holds the lock: see
// [WithHolder]. It is "" if [NewLock] did not make the lock.
func (l *Lock) Holder() string {
	if l.made() != nil {
		return ""
	}
	return l.holder
}

// made returns an error for a Lock that NewLock has not made.
func (l *Lock) made() error {
	switch {
	case l == nil:
		return errors.New("leasehold: lock is nil")
	case l.register == nil:
		return errors.New("leasehold: this Lock was not made by NewLock")
	}
	return nil
}

// heldByUs returns an error while a term of this Lock keeps other goroutines out.
func (l *Lock) heldByUs() error {
	if t := l.term.Load(); t != nil {
		if wait := t.blocks(); wait > 0 {
			return l.heldVersion(&version{rec: *t.record()}, verdict{wait: wait})
		}
	}
	return nil
}
