package leasehold

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/internal/clock"
)

// get reads the object once, within the attempt's deadline.
func (l *Lock) get(ctx context.Context) (Object, error) {
	ctx, cancel := context.WithTimeout(ctx, l.o.attempt)
	defer cancel()
	began := l.o.clock.Now()
	obj, err := l.store.Get(ctx, l.key)
	return obj, l.answered("get", began, err)
}

// put writes rec over version v once. It is not cut off by the caller's ctx, only by the attempt's own deadline:
// an answer that comes too late leaves a stray lock behind.
func (l *Lock) put(ctx context.Context, v *version, rec Record) (etag string, err error) {
	body, err := rec.encode()
	if err == nil && len(body) > MaxObjectSize {
		err = fmt.Errorf("%w: %d bytes, limit %d: shorten metadata or payload", errTooLarge, len(body), MaxObjectSize)
	}
	if err != nil {
		return "", fmt.Errorf("%w: lock %q: %w", ErrPermanent, l.key, err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.o.attempt)
	defer cancel()
	began := l.o.clock.Now()
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
	return etag, l.answered(op, began, err)
}

// answered reports one request and says in its error which lock it was for.
func (l *Lock) answered(op string, began clock.Reading, err error) error {
	now := l.o.clock.Now()
	if err == nil || errors.Is(err, ErrNotExist) || errors.Is(err, ErrPreconditionFailed) {
		l.reply.Store(int64(now.Mono))
	}
	l.emit(Event{Kind: EventRequest, Op: op, Duration: now.Mono - began.Mono, Err: err})
	if err != nil {
		return fmt.Errorf("lock %q: %s: %w", l.key, op, err)
	}
	return nil
}

func (l *Lock) emit(e Event) {
	e.Key = l.key
	l.o.observe(e)
}

var errTooLarge = errors.New("record is too large")

// jitter is d ±10 %.
func (l *Lock) jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.9 + 0.2*l.o.clock.Rand()))
}

// backoff is the pause after one more failure in a row: doubling from a fraction of the poll interval up to the TTL.
func (l *Lock) backoff(failures *int) time.Duration {
	base := min(l.o.poll/4, time.Second)
	*failures = min(*failures+1, 16)
	return l.jitter(min(base<<(*failures-1), max(l.o.ttl, l.o.poll)))
}

// permanent reports whether waiting cannot heal err.
func permanent(err error) bool {
	return errors.Is(err, ErrPermanent) || errors.Is(err, ErrUnsafeStore) || errors.Is(err, ErrCorruptRecord)
}
