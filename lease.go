package leasehold

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/internal/handle"
	"github.com/leasehold-go/leasehold/internal/wire"
)

// Lease is one term of a [Lock]: the right to act under the lock until a deadline, which each
// renewal moves. Release it when you are done. A Lease renews itself in the background until it is
// released or lost, or until both the Lease and its context have become unreachable. A context
// derived from the lease's context keeps the Lease reachable. A goroutine that only waits for the
// Done channel does not. A Lease is safe for concurrent use.
type Lease struct {
	t   *term
	ctx context.Context // has the Lease as a value, so that either keeps both reachable
}

// leaseKey is the key under which the context of a lease of this lock has the Lease.
type leaseKey struct{ lock *register }

// newLease gives t, whose context is ctx, to its holder.
func newLease(ctx context.Context, t *term) *Lease {
	lease := &Lease{t: t}
	lease.ctx = context.WithValue(ctx, leaseKey{t.lock}, lease)
	// Neither t nor its timers refer to lease. Once nothing else does, no code can act under it.
	// The cleanup must not refer to t, from which an observer may lead to lease.
	runtime.AddCleanup(lease, func(forgotten *atomic.Bool) { forgotten.Store(true) }, t.forgotten)
	return lease
}

// Token returns the fencing token of this term. It is constant for the term and higher than the
// token of every earlier term.
func (le *Lease) Token() uint64 { return le.t.token }

// Handle returns a text with which another process can continue this term: see [Lock.Resume]. It is
// constant for the term, and valid for one key alone. The handle contains a secret, whose hash is
// in [Record].TermID. A process that has the handle can renew and release the lease. A process that
// only reads the object cannot.
//
// Stop acting under the lease before you pass the handle on: [Lease.Abandon] ends the lease in this
// process and leaves the lock held. A lease that has not ended when another process resumes the
// term is lost at its next renewal.
func (le *Lease) Handle() string {
	return handle.Handle{Token: le.t.token, Secret: le.t.secret}.String()
}

// Context returns a context that ends before another process can hold the lock, unless this process
// is paused at that moment. Its context.Cause then matches [ErrLost] or [ErrReleased]. Under
// [Lock.Do] and [Elector.Run] it may also be the cause of their ctx. After a suspend of the
// machine, the context of an expired lease ends within a fifth of the TTL after waking, but
// [Lease.Valid] is false at once.
func (le *Lease) Context() context.Context { return le.ctx }

// Valid reports whether the holder may act now. It sends no request, and reads all clocks: the
// monotonic clock, plus the time that the wall clock and, on Linux, CLOCK_BOOTTIME have counted
// beyond it. If the lease has expired by that sum, Valid is false. Once false it stays false.
func (le *Lease) Valid() bool { return le.t.valid() }

// Deadline returns the time until which the lease is valid unless renewed: the TTL minus the safety
// margin, counted from before the last renewal was sent. Once the lease has ended, Deadline is
// never later than that end.
func (le *Lease) Deadline() time.Time { return le.t.deadline() }

// Record returns the record of this term as last written.
func (le *Lease) Record() Record { return le.t.record().clone() }

// Renew extends the lease now, in addition to the renewals in the background, and so confirms the
// lease with the store. Call it before any step that must not run twice. Renew retries temporary
// errors until ctx or the lease ends. The error matches [ErrLost], [ErrReleased] or ctx's error.
func (le *Lease) Renew(ctx context.Context) error {
	return le.t.renewNow(ctx, func(*Record) {})
}

// Commit writes a small state into the lock object itself, in one request that also renews the
// lease. It succeeds only if this term has not ended, and no former leader's commit can succeed
// after it. The payload has 32 KiB at most. Releases and takeovers keep it. Every process can read
// it as [Record].Payload, through [Lock.Inspect], [Lock.Watch] or [Lease.Record].
//
// Commit retries as [Lease.Renew] does, and has the same errors. After an error that matches
// [ErrLost], [ErrReleased] or ctx's error, the last attempt may have landed, or may land later. The
// outcome is known after the next write: a later successful Commit or Renew of this term, or the
// acquisition of the next term, whose record has the final payload.
func (le *Lease) Commit(ctx context.Context, payload []byte) error {
	if len(payload) > wire.MaxPayload {
		return le.t.lock.named(fmt.Errorf("payload of %d bytes exceeds the limit of %d", len(payload), wire.MaxPayload))
	}
	payload = bytes.Clone(payload)
	return le.t.renewNow(ctx, func(r *Record) { r.Payload = payload })
}

// Release ends the lease and releases the lock: it ends the context first, then marks the record as
// released. The record keeps the token. Releasing twice does no harm. On a lost lease Release
// changes nothing and returns an error that matches [ErrLost]. After any other error, candidates
// can take the lock once the TTL has passed.
//
// Release retries temporary errors until ctx ends or the lease would have ended. Even if ctx has
// ended already, it makes one attempt, within the time that [WithTTL] names, so `defer
// lease.Release(ctx)` is right. With a leaderhttp.Peer on the lock, Release takes up to a second
// longer.
func (le *Lease) Release(ctx context.Context) error { return le.t.lock.named(le.t.release(ctx, true)) }

// Abandon ends the lease without releasing the lock, and sends no request. The lease's context ends
// with [ErrReleased]. No process, not even this Lock, can take over before the TTL has passed,
// except with [WithReclaim] another process of the same holder name. Abandon is for a process that
// stops leading while work of the term may still be running. Call Release when that work has
// stopped. Nothing else releases the lock before the TTL has passed: neither the end of Do nor the
// end of [Elector.Run]. On a lease that has ended, Abandon does nothing.
func (le *Lease) Abandon() { le.t.abandon() }

// Do runs fn under the lease on this goroutine, then releases the lease. The context of fn descends
// from ctx, and ends early if the lease is lost. fn must then return, because another process may
// soon hold the lock. After the end of ctx, while fn winds down, the lease is still renewed, for
// one TTL at most. Unless you call Release yourself, the lease is not released before fn has
// returned. Until then no other goroutine of this Lock gets the next term. Do does not release a
// lease that was abandoned. If fn panics, Do releases the lease and re-panics. If releasing fails,
// Do tries again until the lease would have ended. If ctx has ended, it tries for 30 s at most,
// which begin when fn has returned, or when ctx ends if that is later.
//
// Do returns fn's error unchanged if nothing else went wrong. If the lease was lost while fn ran,
// the error matches [ErrLost] and fn's error, and its text has them in this order. If releasing
// failed, the error joins both in the same way. Do refuses a lease that has ended, that belongs to
// an [Elector], or on which Do was called before. It then returns an error without calling fn.
func (le *Lease) Do(ctx context.Context, fn func(ctx context.Context, lease *Lease) error) error {
	caller := ctx
	ctx, cancel := context.WithCancelCause(context.WithValue(ctx, leaseKey{le.t.lock}, le))
	defer cancel(nil)
	defer context.AfterFunc(le.ctx, func() { cancel(context.Cause(le.ctx)) })()
	return le.do(ctx, caller, fn)
}

// do is Do. ctx ends with the lease's context and with the caller's.
func (le *Lease) do(ctx, caller context.Context, fn func(context.Context, *Lease) error) (err error) {
	t := le.t
	if err := t.startGuarding(); err != nil {
		return t.lock.named(err)
	}
	t.startRenewing()
	stop := context.AfterFunc(ctx, t.stopRenewingAfterTTL)
	defer func() { // even if fn panics
		stop()
		t.functionEnded(returned)
		parting, over := outlast(caller, maxParting)
		defer over()
		wentWrong := t.lock.named(t.release(parting, false)) // a loss, too
		_ = t.writing.Lock(context.WithoutCancel(ctx))       // after a loss a renewal may still be under way
		t.writing.Unlock()
		if wentWrong != nil && err != nil {
			wentWrong = errors.Join(wentWrong, err)
		}
		err = cmp.Or(wentWrong, err)
	}()
	return fn(ctx, le)
}
