package leasehold

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/internal/bell"
	"github.com/leasehold-go/leasehold/internal/canary"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/lockerr"
	"github.com/leasehold-go/leasehold/internal/storeapi"
	"github.com/leasehold-go/leasehold/internal/turns"
	"github.com/leasehold-go/leasehold/internal/wire"
)

// register is this process's view of one lock object: its requests, and what they have shown.
type register struct {
	*options
	store        Store
	key          string
	tokens       tokens
	memory       memory
	bell         bell.Bell             // rung when the lock may have become free
	lastAnswered atomic.Int64          // monotonic time of the last answer of the store that made sense
	failure      atomic.Pointer[error] // of the last request, if it failed
	existed      atomic.Bool           // a record was seen, so an object that is missing was deleted
	canary       *canary.Canary        // tries the store's conditions; nil if they are known
	turns        turns.Turns           // of this Lock, one after the other
	handovers
}

func newRegister(s Store, key string, o *options, known *canary.Canary) *register {
	r := &register{options: o, store: s, key: key, bell: bell.New(), canary: known}
	r.lastAnswered.Store(math.MinInt64)
	return r
}

// get reads the object once, within the time of one attempt.
func (r *register) get(ctx context.Context) (Object, error) {
	ctx, cancel := context.WithTimeout(ctx, r.attempt)
	defer cancel()
	began := r.clock.Now()
	obj, err := r.store.Get(ctx, r.key)
	return obj, r.answer(ctx, "get", began, obj.ETag, err)
}

var errTooLarge = errors.New("record is too large")

// outlast returns a context that ends d after ctx has. A write that is cut off may leave a stray
// lock behind, so what is under way when the caller's ctx ends has that time to be answered and
// settled.
func outlast(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if ctx.Done() == nil { // it never ends: a renewal in the background
		return ctx, func() {}
	}
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(d, cancel)
		context.AfterFunc(lasting, func() { timer.Stop() })
	})
	return lasting, func() { stop(); cancel() }
}

// put writes rec once, over the version of that ETag, or creates the object if there is none. It
// takes the time of one attempt. ctx must outlast the caller's context.
func (r *register) put(ctx context.Context, rec Record, over string) (etag string, err error) {
	body, err := rec.MarshalJSON()
	if err == nil && len(body) > wire.MaxSize {
		err = fmt.Errorf("%w: %d bytes exceed the limit of %d (shorten metadata or payload)", errTooLarge,
			len(body), wire.MaxSize)
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrPermanent, err)
	}
	return r.write(ctx, body, over)
}

// write is put of a record that is already encoded.
func (r *register) write(ctx context.Context, body []byte, over string) (etag string, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.attempt)
	defer cancel()
	began := r.clock.Now()
	op := "update"
	if over == "" {
		op = "create"
		etag, err = r.store.PutIfNoneMatch(ctx, r.key, body)
	} else {
		etag, err = r.store.PutIfMatch(ctx, r.key, body, over)
	}
	return etag, r.answer(ctx, op, began, etag, err)
}

// letPass is the pause after a 409, which says that another write is under way.
func (r *register) letPass(ctx context.Context) error {
	return r.clock.Sleep(ctx, clock.Jitter(r.clock, min(r.attempt/16, maxConflictPause)))
}

// answer returns the error of one request. It notifies the observer, and notes for Check how the
// request has ended.
func (r *register) answer(ctx context.Context, op string, began clock.Reading, etag string, err error) error {
	if err == nil && etag == "" {
		err = errors.New("the store's answer has no ETag")
	}
	now := r.clock.Now().Mono
	switch {
	case storeapi.Refused(err), err == nil && op != "get": // a read has yet to be understood
		r.succeeded(now)
	case err != nil:
		r.failure.Store(&err)
	}
	r.emit(ctx, Event{Kind: EventRequest, Op: op, Duration: now - began.Mono, Err: err})
	return err
}

// succeeded notes that the store has given an answer that makes sense.
func (r *register) succeeded(now time.Duration) {
	r.lastAnswered.Store(int64(now))
	r.failure.Store(nil)
}

func (r *register) emit(ctx context.Context, e Event) {
	if ctx.Value(background{}) != nil {
		ctx = context.Background()
	}
	e.Key = r.key
	r.observe(ctx, e)
}

// background is the key of a value in the contexts of renewals that no call has asked for.
type background struct{}

// inBackground is ctx without its end, for renewals that no call has asked for.
func inBackground(ctx context.Context) context.Context {
	return context.WithValue(context.WithoutCancel(ctx), background{}, true)
}

// named is err with the key, because the user may have many locks.
func (r *register) named(err error) error { return lockerr.Named(r.key, err) }
