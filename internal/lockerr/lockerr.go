// Package lockerr says what the errors of a lock are about: which lock, why a wait has ended, and
// what was left behind.
package lockerr

import (
	"context"
	"errors"
	"fmt"

	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// named is an error of one lock. Its text begins with the name of package leasehold, which is
// nowhere else in it.
type named struct {
	key string
	err error
}

func (e *named) Error() string { return fmt.Sprintf("leasehold: lock %q: %v", e.key, e.err) }
func (e *named) Unwrap() error { return e.err }

// Named is err with the key of the lock, because the user may have many locks.
func Named(key string, err error) error {
	if _, ok := err.(*named); ok || err == nil {
		return err
	}
	return &named{key, err}
}

// Bare is err as part of an error that will be named.
func Bare(err error) error {
	if n, ok := err.(*named); ok {
		return n.err
	}
	return err
}

// Leftover is why an acquisition that came too late could not be released.
type Leftover struct{ error }

// Left makes a Leftover of err.
func Left(err error) *Leftover { return &Leftover{Bare(err)} }

// Error says what was left behind.
func (e *Leftover) Error() string {
	return fmt.Sprintf("it could not be released, so the lock is free when its TTL has passed: %v", e.error)
}

func (e *Leftover) Unwrap() error { return e.error }

// EndOf is why ctx has ended: its error, and its cause if that says more.
func EndOf(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return err
	}
	return fmt.Errorf("%w (%w)", err, Bare(cause))
}

// WaitEnded is the error of a wait that ctx has ended. last, which may be nil, is the error of the
// last try before that, and err the error of the try that ctx cut off.
func WaitEnded(ctx context.Context, last, err error) error {
	ended := fmt.Errorf("waiting: %w", EndOf(ctx))
	if last != nil {
		ended = fmt.Errorf("%w: %w", ended, last)
	}
	if leftover, ok := errors.AsType[*Leftover](err); ok && !errors.Is(last, leftover) {
		ended = fmt.Errorf("%w: %w", ended, leftover)
	}
	return ended
}

// OutcomeUnknown is err without a sentinel that says "refused". A store that refuses a write
// although the object has not changed may still carry it out.
func OutcomeUnknown(err error) error {
	if storeapi.Refused(err) || errors.Is(err, storeapi.ErrConflict) {
		return fmt.Errorf("the store refused a write although the object had not changed: %v", err)
	}
	return err
}
