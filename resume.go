package leasehold

import (
	"context"
	"fmt"

	"github.com/leasehold-go/leasehold/internal/handle"
	"github.com/leasehold-go/leasehold/internal/lockerr"
	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// Resume continues a term that another process began, by its [Lease.Handle]. It reads the lock and
// renews the lease once. The new lease has the token, the payload and the start of the term. The
// record gets the holder, TTL and metadata of this Lock. An expired term can be resumed as long as
// no candidate has taken the lock.
//
// Stop the other process first, for example by [Lease.Abandon]: the lease that wrote the version
// that Resume replaces must have ended, or its TTL must have passed. Otherwise that process notices
// the loss only at its next renewal. Before that renewal, a later term may begin: after a release
// or a hand-over of the resumed term, or when a successor of this process reclaims it
// ([WithReclaim]).
//
// If several calls have the same handle, each of them may succeed, and the last one has the lease.
// If the TTL of this Lock is shorter than the TTL of the previous lease, the record keeps the
// longer TTL until the previous lease must have ended. If an old version of the object is restored,
// a Lock that has seen no later term resumes the term of that version, even if another process
// holds the lock.
//
// The error matches
//
//   - [ErrLost] if the term cannot continue: the lock was taken over, its object was deleted, the
//     handle is of another lock or has a wrong secret, or a foreign client began the term
//   - [ErrReleased] if the term was released or broken
//   - [ErrHeld] while a term of this Lock keeps others out, or a foreign client has the lock
//   - [ErrPermanent] if the handle is incomplete; no request was sent
//
// After these errors nothing was written. After any other error, the renewal may have landed or may
// land later, and the other process then loses its lease. Resume may be called again.
//
// Resume treats ctx as [Lock.TryAcquire] does, but releases nothing: if the renewal has landed when
// ctx ends, Resume succeeds.
func (l *Lock) Resume(ctx context.Context, text string) (*Lease, error) {
	if err := l.made(); err != nil {
		return nil, err
	}
	h, err := handle.Parse(text)
	if err != nil {
		return nil, l.named(err)
	}
	return l.renewed(l.resume(ctx, h))
}

func (l *Lock) resume(ctx context.Context, h handle.Handle) (*Lease, error) {
	return l.alone(ctx, context.WithoutCancel(ctx), func(a *acquisition) (*Lease, error) { return a.goOn(h) })
}

// goOn is race for the term of a handle.
func (a *acquisition) goOn(h handle.Handle) (*Lease, error) {
	v, err := a.read(a.ctx)
	var failure error
	for round := 1; err == nil; round++ {
		seen := a.observed(v)
		seen.asks, seen.handle = heir, h
		verdict := a.decide(seen)
		if !verdict.free {
			lost := verdict.lost
			if lost == nil {
				lost = a.notFree(v, verdict)
			}
			if failure != nil && !storeapi.Refused(failure) { // it may have landed before what is there now
				lost = fmt.Errorf("resuming token %d: %w; then: %s", h.Token, failure, lost.Error())
			}
			return nil, lost
		}
		t, next, err := a.writeResumed(a.ctx, a.settling, v, h)
		failure = err
		switch {
		case t != nil:
			return a.begin(t, "resumed"), nil
		case a.ctx.Err() != nil:
			return nil, fmt.Errorf("%w: %w", lockerr.EndOf(a.ctx), failure)
		case next == nil:
			return nil, failure
		case round == maxWritesPerTry:
			return nil, fmt.Errorf("resuming token %d: the term was renewed before each of %d writes "+
				"(stop the process that holds it, then try again): %w", h.Token, round, lockerr.OutcomeUnknown(failure))
		}
		v = next
	}
	return nil, err
}
