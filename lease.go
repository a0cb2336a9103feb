package leasehold

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/internal/wire"
)

var (
	// ErrLost says that a lease has ended against its holder's will: not renewed in time, taken over, or its object
	// deleted, overwritten or broken by an administrator. The text says which.
	ErrLost = errors.New("lease lost")
	// ErrReleased says that a lease has ended because its holder released it.
	ErrReleased = errors.New("lease released")
)

// Lease is one term of a [Lock]: the right to act, until a deadline that renewals move. Release it when you are done. It renews
// itself in the background until it is released or lost, or until both the Lease and its context have become unreachable; a
// context derived from the lease's keeps it reachable. It is safe for concurrent use.
type Lease struct {
	t   *term
	ctx context.Context // its value leaseKey is the lease, so that who holds either keeps both
}

// leaseKey is the key under which the context of a lease of this lock has the lease.
type leaseKey struct{ lock *Lock }

// Token returns the fencing token of this term: constant for the term, and higher than that of every term before it.
func (le *Lease) Token() uint64 { return le.t.token }

// Context returns a context that ends before anyone else can hold the lock, as long as this process runs at all. Its
// context.Cause then matches [ErrLost] or [ErrReleased]; under [Lock.Do] and [Elector.Run] it may also be that of their ctx.
// After a suspend of the whole machine it ends within a fifth of the TTL of waking; [Lease.Valid] knows at once.
func (le *Lease) Context() context.Context { return le.ctx }

// Valid reports whether the holder may act now. It looks at all clocks, without a request: false if the monotonic
// clock, with what the wall clock or, on Linux, CLOCK_BOOTTIME have counted beyond it, says that the lease has run out.
// Once false it stays false.
func (le *Lease) Valid() bool { return le.t.valid() }

// Deadline returns until when the lease is valid unless renewed: the TTL minus the safety margin, counted from before the last
// renewal was sent. Once the lease has ended it is the time at which it ended, or earlier.
func (le *Lease) Deadline() time.Time { return le.t.deadline() }

// Record returns the record of this term as last written.
func (le *Lease) Record() Record { return le.t.record().clone() }

// Renew extends the lease now, whatever the background does, and so confirms it with the store. Call it before any step that
// must not run twice. It retries what may pass until ctx ends or the lease does. The error matches [ErrLost], [ErrReleased]
// or ctx's error.
func (le *Lease) Renew(ctx context.Context) error {
	return le.t.renewNow(ctx, func(*Record) {})
}

// Commit puts a small state of the leader's into the lock object itself, in one request that also renews the lease. It
// succeeds only if this term goes on, and no former leader's commit can ever follow. The payload, 32 KiB at most, is
// kept by release and takeover. Everybody reads it as [Record].Payload, through [Lock.Inspect], [Lock.Watch] or
// [Lease.Record]. Commit retries as [Lease.Renew] does, with its errors. After one that matches [ErrLost] or ctx's error the
// last attempt may have landed, or may land later. Only the next write tells: a later successful Commit or Renew of this
// term, or the acquisition of the next term, whose record has the payload that stands for good.
func (le *Lease) Commit(ctx context.Context, payload []byte) error {
	if len(payload) > wire.MaxPayload {
		return le.t.lock.named(fmt.Errorf("payload of %d bytes is over %d", len(payload), wire.MaxPayload))
	}
	payload = bytes.Clone(payload)
	return le.t.renewNow(ctx, func(r *Record) { r.Payload = payload })
}

// Release ends the lease: first its context, then the record, which keeps the token. Releasing twice does no harm.
// On a lost lease it touches nothing and returns an error that matches [ErrLost]. It retries what may pass until ctx ends
// or the lease would have; one attempt, bounded by a fraction of the TTL, is made even if ctx has ended already, so
// that `defer lease.Release(ctx)` is right. After another error the lock becomes free when the TTL has passed.
func (le *Lease) Release(ctx context.Context) error { return le.t.lock.named(le.t.release(ctx)) }

// Abandon ends the lease without freeing the lock, and sends no request: its context ends with [ErrReleased], and nobody, this
// Lock included, can take over before the TTL has passed. It is for a process that stops leading while work of the term may still
// be running; Release may follow when that has stopped. On a lease that is over it does nothing.
func (le *Lease) Abandon() { le.t.abandon() }

// Do runs fn under the lease on this goroutine, then releases it. The context of fn descends from ctx, and ends early if the
// lease is lost; fn must then return, because soon after somebody else may hold the lock. While fn winds down after the end of
// ctx, the lease is still renewed, for at most one TTL. Unless you call Release yourself, it is not released before fn has
// returned, and until then no other goroutine of this Lock gets the next term. If fn panics the lease is released and the panic
// goes on.
//
// Do returns fn's error as it is, if nothing else went wrong. If the lease was lost while fn ran, the error matches [ErrLost]
// and fn's error, in this order; likewise if releasing failed. A lease that is over, that an [Elector] leads by, or on which Do was
// called before, is refused without a call of fn.
func (le *Lease) Do(ctx context.Context, fn func(ctx context.Context, lease *Lease) error) error {
	ctx, cancel := context.WithCancelCause(context.WithValue(ctx, leaseKey{le.t.lock}, le))
	defer cancel(nil)
	defer context.AfterFunc(le.ctx, func() { cancel(context.Cause(le.ctx)) })()
	return le.do(ctx, fn)
}

// do is Do with a context that ends with the lease's.
func (le *Lease) do(ctx context.Context, fn func(context.Context, *Lease) error) (err error) {
	t := le.t
	if err := t.startGuarding(); err != nil {
		return t.lock.named(err)
	}
	t.startRenewing()
	stop := context.AfterFunc(ctx, t.stopRenewingAfterTTL)
	defer func() { // also when fn panics
		stop()
		t.functionEnded(returned)
		wentWrong := t.whyOver()
		releaseErr := t.releaseAfterFunction(ctx)
		if !errors.Is(wentWrong, ErrLost) {
			wentWrong = t.lock.named(releaseErr)
		}
		switch {
		case wentWrong == nil:
		case err == nil:
			err = wentWrong
		default:
			err = errors.Join(wentWrong, err)
		}
	}()
	return fn(ctx, le)
}
