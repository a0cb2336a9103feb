package leasehold

import (
	"context"
	"fmt"

	"github.com/leasehold-go/leasehold/internal/lockerr"
)

// Resume continues a term that another process began, by its [Lease.Handle]. It reads the lock and
// renews the lease once. The new lease has the token, the payload and the start of the term. The
// record gets the holder, TTL and metadata of this Lock. An expired term can be resumed as long as
// nobody has taken the lock.
//
// The other process must have stopped acting under its lease, for example by [Lease.Abandon],
// because it notices the loss only at its next renewal. Before that, a later term may begin: after
// a release of the resumed term, or when a successor of this process reclaims it ([WithReclaim]).
// If several calls have the same handle, each of them may succeed, and the last one has the lease.
//
// The error matches
//
//   - [ErrLost] if the term cannot go on: the lock was taken over, its object was deleted, the
//     handle is of another lock or has a wrong secret, or a foreign client began the term
//   - [ErrReleased] if the term was released or broken
//   - [ErrHeld] while a term of this Lock keeps others out
//   - [ErrPermanent] if the handle was cut short; no request was sent
//
// After these errors nothing was written. After any other error, the renewal may have landed or may
// land later, and the other process then loses its lease. Resume may be called again.
//
// Resume treats ctx as [Lock.TryAcquire] does, but releases nothing: if the renewal has landed when
// ctx ends, Resume succeeds.
func (l *Lock) Resume(ctx context.Context, handle string) (*Lease, error) {
	if err := l.made(); err != nil {
		return nil, err
	}
	h, err := parseHandle(handle)
	if err != nil {
		return nil, l.named(err)
	}
	return l.renewed(l.resume(ctx, h))
}

func (l *Lock) resume(ctx context.Context, h handle) (*Lease, error) {
	if l.acquiring.Lock(ctx) != nil {
		return nil, lockerr.EndOf(ctx)
	}
	defer l.acquiring.Unlock()
	if held := l.heldByUs(); held != nil {
		return nil, held
	}
	settling, settled := outlast(ctx, l.attempt)
	defer settled()
	began := l.clock.Now().Mono
	v, err := l.read(ctx)
	for round := 1; err == nil; round++ {
		if err := h.whyNot(v, l.tokens.revived(v.rec)); err != nil {
			return nil, err
		}
		t, next, failure := l.writeResumed(ctx, settling, v, h)
		switch {
		case t != nil:
			lease := newLease(t.start(context.WithoutCancel(ctx)), t)
			l.begin(ctx, lease, l.clock.Now().Mono-began, "resumed")
			return lease, nil
		case ctx.Err() != nil:
			return nil, fmt.Errorf("%w: %w", lockerr.EndOf(ctx), failure)
		case next == nil:
			return nil, failure
		case round == maxWritesPerTry:
			return nil, fmt.Errorf("resuming token %d: the term was renewed before each of %d writes: "+
				"stop the process that holds it, then try again: %w", h.token, round, lockerr.OutcomeUnknown(failure))
		}
		v = next
	}
	return nil, err
}

// whyNot returns an error if v is not a version of the handle's term, or if that term is over.
// revived says that v is an old version that somebody has restored.
func (h handle) whyNot(v *version, revived bool) error {
	lost := func(format string, args ...any) error {
		return fmt.Errorf("%w (token %d): "+format, append([]any{ErrLost, h.token}, args...)...)
	}
	switch r := v.rec; {
	case !v.exists:
		return lost("%w, or the handle is of another lock", errDeleted)
	case r.Token > h.token && r.Released():
		return lost("%w by %q with token %d, who has released it", errTakenOver, r.Holder, r.Token)
	case r.Token > h.token:
		return lost("%w by %q with token %d", errTakenOver, r.Holder, r.Token)
	case r.Token < h.token:
		return lost("the lock has had %d terms: the handle is of another lock, or the object was made again", r.Token)
	case !isHash(r.TermID):
		return lost("the client of %q has given this term no secret, so it cannot be resumed", r.Holder)
	case r.TermID != termID(h.secret):
		return lost("the handle does not have the secret of this term: it is of another lock, or the object was " +
			"made again")
	case r.Released():
		return fmt.Errorf("%w (token %d)", ErrReleased, h.token)
	case revived:
		return lost("%w by a later term: an old version of the object has come back", errTakenOver)
	}
	return nil
}
