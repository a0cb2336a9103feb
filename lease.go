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

// Lease is one term of a [Lock]: the right to act, until a deadline that renewals move. Release it
// when you are done. It renews itself in the background until it is released or lost, or until both
// the Lease and its context have become unreachable. A context derived from the lease's keeps it
// reachable; a goroutine that waits for its Done channel, and for nothing else, does not. It is
// safe for concurrent use.
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
	// Neither t nor its timers refer to lease. Once nothing else does, nobody can act under it. The
	// cleanup must not refer to t, from which an observer may lead to lease.
	runtime.AddCleanup(lease, func(forgotten *atomic.Bool) { forgotten.Store(true) }, t.forgotten)
	return lease
}

// Token returns the fencing token of this term. It is constant for the term and higher than the
// token of every earlier term.
func (le *Lease) Token() uint64 { return le.t.token }

// Handle returns the name of this term for [Lock.Resume], by which another process goes on with it.
// It is constant for the term, and for one key alone. It has a secret, hashed in [Record].TermID:
// whoever has the handle can renew and release the lease, and whoever reads the object cannot.
//
// Stop acting before you hand the handle on: [Lease.Abandon] ends the lease here and leaves the
// lock held. A lease that goes on after another process has resumed the term is lost at its next
// renewal.
func (le *Lease) Handle() string {
	return handle.Handle{Token: le.t.token, Secret: le.t.secret}.String()
}

// Context returns a context that ends before anyone else can hold the lock, as long as this process
// runs at all. Its context.Cause then matches [ErrLost] or [ErrReleased]; under [Lock.Do] and
// [Elector.Run] it may also be the cause of their ctx. After a suspend of the machine, it ends
// within a fifth of the TTL after waking; [Lease.Valid] knows at once.
func (le *Lease) Context() context.Context { return le.ctx }

// Valid reports whether the holder may act now. It sends no request but looks at all clocks: it is
// false if the monotonic clock, plus what the wall clock and, on Linux, CLOCK_BOOTTIME have counted
// beyond it, says that the lease has run out. Once false it stays false.
func (le *Lease) Valid() bool { return le.t.valid() }

// Deadline returns the time until which the lease is valid unless renewed: the TTL minus the safety
// margin, counted from before the last renewal was sent. After the end of the lease it is never
// later than that end.
func (le *Lease) Deadline() time.Time { return le.t.deadline() }

// Record returns the record of this term as last written.
func (le *Lease) Record() Record { return le.t.record().clone() }

// Renew extends the lease now, besides the renewals in the background, and so confirms it with the
// store. Call it before any step that must not run twice. It retries temporary errors until ctx or
// the lease ends. The error matches [ErrLost], [ErrReleased] or ctx's error.
func (le *Lease) Renew(ctx context.Context) error {
	return le.t.renewNow(ctx, func(*Record) {})
}

// Commit writes a small state into the lock object itself, in one request that also renews the
// lease. It succeeds only if this term goes on, and no former leader's commit can ever follow. The
// payload, 32 KiB at most, is kept by release and takeover. Anyone can read it as [Record].Payload,
// through [Lock.Inspect], [Lock.Watch] or [Lease.Record]. Commit retries as [Lease.Renew] does, and
// has the same errors. After an error that matches [ErrLost], [ErrReleased] or ctx's error, the
// last attempt may have landed, or may land later. Only the next write tells: a later successful
// Commit or Renew of this term, or the acquisition of the next term, whose record has the payload
// that is final.
func (le *Lease) Commit(ctx context.Context, payload []byte) error {
	if len(payload) > wire.MaxPayload {
		return le.t.lock.named(fmt.Errorf("payload of %d bytes is over the limit of %d", len(payload), wire.MaxPayload))
	}
	payload = bytes.Clone(payload)
	return le.t.renewNow(ctx, func(r *Record) { r.Payload = payload })
}

// Release ends the lease: first its context, then the record, which keeps the token. Releasing
// twice does no harm. On a lost lease it changes nothing and returns an error that matches
// [ErrLost]. It retries temporary errors until ctx ends or the lease would have ended. Even if ctx
// has ended already, it makes one attempt, within the time that [WithTTL] names, so that `defer
// lease.Release(ctx)` is right. With a leaderhttp.Peer on the lock it takes up to a second longer.
// After any other error the lock becomes free when the TTL has passed.
func (le *Lease) Release(ctx context.Context) error { return le.t.lock.named(le.t.release(ctx, true)) }

// Abandon ends the lease without freeing the lock, and sends no request. The lease's context ends
// with [ErrReleased], and nobody, not even this Lock, can take over before the TTL has passed,
// except with [WithReclaim] another process of the same holder name. It is for a process that stops
// leading while work of the term may still be running. Release may follow when that work has
// stopped, and nothing else frees the lock before: neither the end of Do nor that of [Elector.Run].
// On a lease that is over, Abandon does nothing.
func (le *Lease) Abandon() { le.t.abandon() }

// Do runs fn under the lease on this goroutine, then releases the lease. The context of fn descends
// from ctx, and ends early if the lease is lost. fn must then return, because somebody else may
// soon hold the lock. After the end of ctx, while fn winds down, the lease is still renewed, for
// one TTL at most. Unless you call Release yourself, the lease is not released before fn has
// returned, and until then no other goroutine of this Lock gets the next term. A lease that was
// abandoned is not released at all. If fn panics, the lease is released and the panic goes on.
// While the release fails, Do tries again until the lease would have ended, and for 30 s at most
// after the end of ctx.
//
// Do returns fn's error unchanged if nothing else went wrong. If the lease was lost while fn ran,
// the error matches [ErrLost] and fn's error, and its text has them in this order; likewise if
// releasing failed. Do refuses, without calling fn, a lease that is over, that an [Elector] leads
// by, or on which Do was called before.
func (le *Lease) Do(ctx context.Context, fn func(ctx context.Context, lease *Lease) error) error {
	caller := ctx
	ctx, cancel := context.WithCancelCause(context.WithValue(ctx, leaseKey{le.t.lock}, le))
	defer cancel(nil)
	defer context.AfterFunc(le.ctx, func() { cancel(context.Cause(le.ctx)) })()
	return le.do(ctx, caller, fn)
}

// do is Do with a context that ends with the lease's besides that of the caller.
func (le *Lease) do(ctx, caller context.Context, fn func(context.Context, *Lease) error) (err error) {
	t := le.t
	if err := t.startGuarding(); err != nil {
		return t.lock.named(err)
	}
	t.startRenewing()
	stop := context.AfterFunc(ctx, t.stopRenewingAfterTTL)
	defer func() { // also if fn panics
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
