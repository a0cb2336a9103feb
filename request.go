package leasehold

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// get reads the object once, within the attempt's deadline.
func (l *Lock) get(ctx context.Context) (Object, error) {
	ctx, cancel := context.WithTimeout(ctx, l.attempt)
	defer cancel()
	began := l.clock.Now()
	obj, err := l.store.Get(ctx, l.key)
	if err == nil && obj.ETag == "" {
		err = errors.New("the store gave no ETag for an object")
	}
	l.answered(ctx, "get", began, err)
	return obj, err
}

// put writes rec over version v once. It is not cut off by the caller's ctx, only by the attempt's own deadline:
// an answer that comes too late leaves a stray lock behind.
func (l *Lock) put(ctx context.Context, v *version, rec Record) (etag string, err error) {
	body, err := rec.MarshalJSON()
	if err == nil && len(body) > MaxObjectSize {
		err = fmt.Errorf("%w: %d bytes, limit %d: shorten metadata or payload", errTooLarge, len(body), MaxObjectSize)
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrPermanent, err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.attempt)
	defer cancel()
	began := l.clock.Now()
	op := "update"
	if v.exists {
		etag, err = l.store.PutIfMatch(ctx, l.key, body, v.etag)
	} else {
		op = "create"
		etag, err = l.store.PutIfNoneMatch(ctx, l.key, body)
	}
	if err == nil && etag == "" {
		err = errors.New("the store gave no ETag for a write")
	}
	l.answered(ctx, op, began, err)
	return etag, err
}

// answered reports one request.
func (l *Lock) answered(ctx context.Context, op string, began clock.Reading, err error) {
	now := l.clock.Now().Mono
	switch {
	case storeapi.Refused(err), err == nil && op != "get": // a read has yet to be understood
		l.succeeded(now)
	case err != nil:
		l.failed(err)
	}
	l.emit(ctx, Event{Kind: EventRequest, Op: op, Duration: now - began.Mono, Err: err})
}

// succeeded notes that the store has given an answer that makes sense.
func (l *Lock) succeeded(now time.Duration) {
	l.understood.Store(int64(now))
	l.mu.Lock()
	l.failure = nil
	l.mu.Unlock()
}

func (l *Lock) failed(err error) {
	l.mu.Lock()
	l.failure = err
	l.mu.Unlock()
}

// lastFailure is why there has been no answer since the last one that made sense.
func (l *Lock) lastFailure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failure
}

func (l *Lock) emit(ctx context.Context, e Event) {
	if ctx.Value(background{}) == nil {
		e.Context = ctx
	}
	e.Key = l.key
	l.observe(e)
}

// background is the key of a value that the contexts of a lease's own doings have.
type background struct{}

// inBackground is ctx without its end, for what a lease does by itself.
func inBackground(ctx context.Context) context.Context {
	return context.WithValue(context.WithoutCancel(ctx), background{}, true)
}

var errTooLarge = errors.New("record is too large")

// jitter is d ±10 %.
func (l *Lock) jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.9 + 0.2*l.clock.Rand()))
}

// backoff is the pause after one more failure in a row: doubling from a fraction of the poll interval up to the TTL.
func (l *Lock) backoff(failures *int) time.Duration {
	return l.double(failures, min(l.poll/4, time.Second), max(l.ttl, l.poll))
}

// double is first after the first failure in a row, twice as long after each further one, at most limit, ±10 %.
func (l *Lock) double(failures *int, first, limit time.Duration) time.Duration {
	*failures = min(*failures+1, 16)
	return l.jitter(min(first<<(*failures-1), limit))
}

// lockError says which lock an error is about. The package's name stands once, at its front.
type lockError struct {
	key string
	err error
}

func (e *lockError) Error() string {
	return "leasehold: lock " + strconv.Quote(e.key) + ": " + e.err.Error()
}
func (e *lockError) Unwrap() error { return e.err }

// named is err for the user, who may have many locks.
func (l *Lock) named(err error) error {
	switch err.(type) {
	case nil, *lockError, *HeldError, *waitError:
		return err
	}
	return &lockError{l.key, err}
}

// waitError is the error of a wait that its context ended.
type waitError struct {
	key      string
	ended    error // ctx's
	last     error // what stood in the way; may be nil
	leftover error // releasing what was acquired too late has failed; may be nil
}

func (e *waitError) Error() string {
	text := "waiting: " + e.ended.Error()
	for _, err := range []error{e.last, e.leftover} {
		if err != nil {
			text += ": " + bareText(err)
		}
	}
	return (&lockError{e.key, errors.New(text)}).Error()
}

func (e *waitError) Unwrap() []error {
	errs := []error{e.ended}
	for _, err := range []error{e.last, e.leftover} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// endOf is why ctx has ended: its error, and its cause if that says more.
func endOf(ctx context.Context) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); !errors.Is(cause, err) {
		err = &endError{err, cause}
	}
	return err
}

// endError is the end of a context, and its cause.
type endError struct{ err, cause error }

func (e *endError) Error() string   { return e.err.Error() + " (" + bareText(e.cause) + ")" }
func (e *endError) Unwrap() []error { return []error{e.err, e.cause} }

// bareText is err's text within that of an error that says which lock it is about.
func bareText(err error) string {
	switch err := err.(type) {
	case *HeldError:
		return err.text()
	case *lockError:
		return err.err.Error()
	}
	return err.Error()
}
