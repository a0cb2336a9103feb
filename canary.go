package leasehold

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/leasehold-go/leasehold/internal/canary"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/lockerr"
	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// The canary: some servers ignore the conditions of writes, and locks on them do not exclude anybody. So the first acquisition of a store
// in a process sends two writes that must be refused. They carry the bytes that the acquisition has just written, so nothing is lost if
// they are carried out.

// errIgnored says that a store has carried out a write whose condition did not hold. No waiting fixes that, also if the store has worked.
var errIgnored = errors.New("it has carried out a write whose condition did not hold")

// noVersion is an ETag that no object has.
const noVersion = `"0123456789abcdef0123456789abcdef"`

// canaryOf returns the canary of a store, or nil if the store is known to enforce its conditions. S3Stores of one client and bucket share
// one. A Store that is not a pointer has one for each Lock.
func canaryOf(s Store, info StoreInfo) *canary.Canary {
	if info.Conditional {
		return nil
	}
	if s3, ok := s.(*S3Store); ok && reflect.ValueOf(s3.objects.Client).Kind() == reflect.Pointer {
		return canary.Of(s3.objects.Client, s3.objects.Name)
	}
	return canary.Of(s, "")
}

// tryStore tries the store's conditions on the term, which has just been acquired. If the store ignores them, the term is given back. An
// answer that proves nothing is as good as a refusal, and the next acquisition asks again.
func (t *term) tryStore(ctx context.Context, known *canary.Canary) error {
	unsafe := known.Try(func() error { return t.ask(ctx, known) }, func(answered <-chan struct{}) {
		_ = clock.Wait(ctx, t.lock.clock, t.lock.attempt, answered)
	})
	if unsafe == nil {
		return nil
	}
	t.lock.log.ErrorContext(ctx, "the store is not safe for locks: the acquisition is given back", "key", t.lock.key, "token", t.token, "err", unsafe)
	if err := t.release(ctx, false); err != nil {
		return fmt.Errorf("%w: %w", unsafe, lockerr.Left(err))
	}
	return unsafe
}

// ask sends what has not been refused yet, within the time of one attempt. It does not renew the term. If a write is carried out, now or
// later, the next write of the term finds its own record under another ETag, and goes on with that.
func (t *term) ask(ctx context.Context, known *canary.Canary) error {
	_ = t.writing.Lock(context.WithoutCancel(ctx))
	defer t.writing.Unlock()
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.lock.attempt)
	defer cancel()
	for i, test := range []struct{ over, what string }{
		{noVersion, "an update of a version that does not exist"}, {"", "a create over an object that exists"},
	} {
		if known.Has(i) {
			continue
		}
		if ctx.Err() != nil { // nobody waits for it any more
			return nil
		}
		_, err := t.lock.put(limited, *t.record(), test.over)
		if err == nil && test.over == "" { // the object may have been deleted a moment ago, but not twice
			_, err = t.lock.put(limited, *t.record(), test.over)
		}
		switch {
		case err == nil:
			return &storeapi.Error{
				Doing: "trying the store's conditions with " + test.what,
				Kind:  ErrUnsafeStore, Cause: errIgnored, Hint: "use a server that enforces conditional writes: see docs/servers.md",
			}
		case errors.Is(err, ErrPreconditionFailed), test.over == "" && errors.Is(err, storeapi.ErrConflict): // as some servers refuse it
			known.Note(i)
		default:
			t.lock.log.InfoContext(ctx, "the store's conditions could not be tried: the next acquisition asks again", "key", t.lock.key, "err", err)
			return nil
		}
	}
	return nil
}
