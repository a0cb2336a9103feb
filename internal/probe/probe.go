// Package probe is how leasehold asks a server whether it enforces the conditions of writes: with
// writes that it must refuse, on a separate object. What is asked is up to each check. Other
// processes may ask with the same object at the same time, so a refusal that they have caused does
// not count, and the check begins again.
package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// NoVersion is an ETag that no object has.
const NoVersion = `"0123456789abcdef0123456789abcdef"`

// Near is the key of a probe's object in the same folder as key, because permissions are often
// given by prefix.
func Near(key, name string) string {
	return key[:strings.LastIndex(key, "/")+1] + storeapi.OwnNames + name
}

// Writes are the writing methods of a leasehold.Store.
type Writes interface {
	PutIfNoneMatch(ctx context.Context, key string, body []byte) (etag string, err error)
	PutIfMatch(ctx context.Context, key string, body []byte, etag string) (newETag string, err error)
}

// Put writes over the version of an ETag, or creates an object if that is empty.
func Put(ctx context.Context, s Writes, key string, body []byte, over string) (etag string, err error) {
	if over == "" {
		return s.PutIfNoneMatch(ctx, key, body)
	}
	return s.PutIfMatch(ctx, key, body, over)
}

// Tries bounds what is done again because other processes ask with the same object.
const Tries = 12

// ErrDisturbed says that the object is not as the check has left it.
var ErrDisturbed = errors.New("the object of the check is not as it was written: other processes check with it all " +
	"the time, or a cache or proxy in front of the server keeps or changes answers")

// Undisturbed runs a check until no other process has come in between, which the check reports as
// ErrDisturbed. The pauses are random, so that processes that began together do not stay in step.
func Undisturbed(ctx context.Context, check func() error) error {
	for try := 1; ; try++ {
		err := check()
		if !errors.Is(err, ErrDisturbed) || try == Tries {
			return err
		}
		pause := 10 * time.Millisecond << min(try, 5)
		if err := storeapi.Pause(ctx, pause/2+rand.N(pause)); err != nil {
			return err
		}
	}
}

// Refused reports whether err is the refusal of a conditional write, or a conflict with another
// write that is under way.
func Refused(err error) bool { return storeapi.Refused(err) || errors.Is(err, storeapi.ErrConflict) }

// Disturbed marks the refusal of a write that must not be refused. Other errors stay as they are.
// The result does not match the error of the refusal, which would speak of an object of the user.
func Disturbed(err error) error {
	if Refused(err) {
		return fmt.Errorf("%w: %s", ErrDisturbed, err.Error())
	}
	return err
}

// Unsafe is the error of a server that has done what it must not do. It matches
// storeapi.ErrUnsafeStore.
func Unsafe(format string, args ...any) error {
	return &storeapi.Error{Kind: storeapi.ErrUnsafeStore, Cause: fmt.Errorf(format, args...)}
}

// ErrNotOwn is the error of an object that another program has written at a probe's key. It matches
// storeapi.ErrPermanent.
var ErrNotOwn = error(&storeapi.Error{Kind: storeapi.ErrPermanent, Cause: errors.New("not the probe's own object")})

// Mark is how a kind of probe knows its objects, which it may overwrite and remove.
type Mark struct {
	Begins string // all bodies
	Whose  string // "a check's"
	Hint   string // what to do about another object at its place; may be empty
}

// Own returns an error that matches ErrNotOwn if the object at key, which has this body, is not a
// probe's of this kind.
func (m Mark) Own(key string, body []byte) error {
	if bytes.HasPrefix(body, []byte(m.Begins)) {
		return nil
	}
	return &storeapi.Error{
		Kind: ErrNotOwn, Cause: fmt.Errorf("the object %q is not %s own", key, m.Whose), Hint: m.Hint,
	}
}
