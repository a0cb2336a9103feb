// Package storeapi is what the stores of this module share: their errors, the rule for keys, and
// which ages are credible. The root package gives its sentinels to the user under its own name, and
// package storehttp the type of their errors.
package storeapi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
)

// The sentinels of the root package, which documents them.
var (
	ErrNotExist           = errors.New("no such object")
	ErrPreconditionFailed = errors.New("precondition failed")
	ErrConflict           = errors.New("conflicting write under way")
	ErrPermanent          = errors.New("permanent store error")
	ErrUnsent             = error(&permanent{"the request could not be sent"})
	ErrUnsafeStore        = error(&permanent{"the store is not safe for locks"})
	ErrCorruptRecord      = error(&permanent{"corrupt lock record"})
)

// permanent is a sentinel that matches ErrPermanent too.
type permanent struct{ text string }

func (p *permanent) Error() string      { return p.text }
func (*permanent) Is(target error) bool { return target == ErrPermanent }

// Error is an error of a store: what it was doing, the cause, and what to do about it. errors.Is
// matches Kind, which is not printed, and Cause. Package storehttp documents it for its users.
type Error struct {
	Doing string
	Kind  error // nil: it may pass by itself
	Cause error
	Hint  string
}

func (e *Error) Error() string {
	text := e.Cause.Error()
	if e.Doing != "" {
		text = e.Doing + ": " + text
	}
	switch {
	case e.Hint != "":
		text += " (" + e.Hint + ")"
	case unconnected(e.Cause):
		text += " (is the server running? check host and port of the endpoint, and the network)"
	}
	return text
}

// Advice returns the hint, for a program that shows it separately from the error, or "". Errors of
// other modules have it too.
func (e *Error) Advice() string { return e.Hint }

// unconnected reports whether there was no connection to a server, and not because the caller has
// ended the attempt. Systems have different errors for a port at which no server listens. A cause
// that is an Error itself has the hint in its text.
func unconnected(err error) bool {
	dial, ok := errors.AsType[*net.OpError](err)
	_, nested := errors.AsType[*Error](err)
	return ok && dial.Op == "dial" && !dial.Timeout() && !errors.Is(err, context.Canceled) && !nested
}

// Unwrap returns the kind, if there is one, and the cause.
func (e *Error) Unwrap() []error {
	if e.Kind == nil {
		return []error{e.Cause}
	}
	return []error{e.Kind, e.Cause}
}

// IsNil reports whether v is nil, or a nil pointer in an interface.
func IsNil(v any) bool {
	r := reflect.ValueOf(v)
	return !r.IsValid() || r.Kind() == reflect.Pointer && r.IsNil()
}

// Permanent reports whether waiting cannot fix err.
func Permanent(err error) bool { return errors.Is(err, ErrPermanent) }

// Refused reports whether err is a clean refusal of a conditional write.
func Refused(err error) bool {
	return errors.Is(err, ErrPreconditionFailed) || errors.Is(err, ErrNotExist)
}

// TooLarge is the error of a body that is not sent because of its size in bytes.
func TooLarge(doing string, size, limit int) error {
	return &Error{Doing: doing, Kind: ErrPermanent, Cause: fmt.Errorf("%d bytes exceed the limit of %d", size, limit)}
}
