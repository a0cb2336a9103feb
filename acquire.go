package leasehold

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/ctxmutex"
	"github.com/leasehold-go/leasehold/internal/handle"
	"github.com/leasehold-go/leasehold/internal/lockerr"
	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// ErrHeld says that somebody holds the lock. The error is a [*HeldError], or wraps one.
var ErrHeld = errors.New("lock is held")

// HeldError says who holds the lock. It matches [ErrHeld].
type HeldError struct {
	// of the holder, or of the last term seen, if other candidates were faster; only a Key if there
	// was none
	Record Record
	Wait   time.Duration // from the time of the error until the lock can be taken, unless it is renewed before
	// SeemsGone says that the holder has not renewed for its TTL, by its wall clock and this
	// machine's, give or take [WithSkewAllowance]: it may have crashed. Whoever watches the lock
	// for Wait knows.
	SeemsGone bool

	silent  time.Duration // for so long it has not renewed, by wall clocks
	revived bool          // Record is no leader's, but an old one that has come back
}

// Error names the holder, its token, and for how long it holds the lock. The errors that wrap it
// name the key.
func (e *HeldError) Error() string {
	if e.creating() {
		return fmt.Sprintf("%v: another candidate is creating it", ErrHeld)
	}
	if e.revived {
		return fmt.Sprintf("%v: an old version with token %d has come back, as from a backup: a later term may go "+
			"on for %v",
			ErrHeld, e.Record.Token, e.Wait.Round(time.Millisecond))
	}
	if e.Record.Released() {
		return fmt.Sprintf("%v: its last term, by %q with token %d, has only just been released", ErrHeld,
			e.Record.Holder, e.Record.Token)
	}
	by := fmt.Sprintf("%v by %q with token %d", ErrHeld, e.Record.Holder, e.Record.Token)
	if !e.SeemsGone {
		return fmt.Sprintf("%s, for %v unless renewed", by, e.Wait.Round(time.Millisecond))
	}
	last := fmt.Sprintf("renewed it %v ago", e.silent.Round(time.Second))
	if e.silent < 0 {
		last = fmt.Sprintf("renewed it %v ahead of this machine's clock", -e.silent.Round(time.Second))
	}
	return fmt.Sprintf("%s, who last %s and seems to be gone: whoever watches the lock for %v can take it", by, last,
		e.Wait.Round(time.Millisecond))
}

// creating reports whether nobody has held the lock yet.
func (e *HeldError) creating() bool { return e.Record.Token == 0 && e.Record.Released() }

// Unwrap returns [ErrHeld].
func (e *HeldError) Unwrap() error { return ErrHeld }

// maxWritesPerTry bounds the conditional writes of one try. A second one is needed if the object
// has changed and is still free.
const maxWritesPerTry = 4

var (
	errTooLate     = errors.New("the acquisition took longer than the lease would have lasted")
	errResumedLate = errors.New("the renewal took longer than the lease would have lasted: try again")
)

// writeNewTerm writes a new term over version v. If others were faster, or the new term is over
// before it began, next is the version that is there now. So it is if the store is unsafe. settling
// outlasts ctx, and the write itself takes half of that time at most.
func (r *register) writeNewTerm(ctx, settling context.Context, v *version) (t *term, next *version, err error) {
	token, err := r.tokens.next(v.rec)
	if err != nil {
		return nil, nil, err
	}
	sent, secret := r.clock.Now(), handle.NewSecret() // validity counts from before the first byte is sent
	rec := Record{
		Key: r.key, Token: token, Holder: r.identity, TTL: r.ttl, Metadata: r.metadata, Payload: v.rec.Payload,
		AcquiredAt: sent.Time(), RenewedAt: sent.Time(), ExpiresAt: sent.Time().Add(r.ttl),
		ObjectID: v.rec.ObjectID, TermID: handle.TermID(r.key, secret),
	}
	if rec.ObjectID == "" {
		rec.ObjectID = newID()
	}
	r.sign(&rec)
	written, next, refusal := r.writeOver(ctx, settling, v, rec, sent)
	if written == nil {
		return nil, next, refusal
	}
	if ctx.Err() == nil && !r.tooLate(sent) {
		if unsafe := r.tryStore(ctx, written, storeapi.Refused(refusal)); unsafe != nil {
			return nil, written, unsafe
		}
	}
	if r.tooLate(sent) {
		return nil, written, errTooLate
	}
	return r.newTerm(written, sent, secret), nil, nil
}

// writeResumed renews the term of v, which the handle names. If something else has been written
// meanwhile, next is the version that is there now.
func (r *register) writeResumed(ctx, settling context.Context, v *version,
	h handle.Handle) (t *term, next *version, err error) {
	sent, rec := r.clock.Now(), v.rec // validity counts from before the first byte is sent
	rec.Holder, rec.Metadata = r.identity, r.metadata
	former := formerLease{v.rec.TTL, v.readAfter - v.age + r.withDrift(v.rec.TTL)}
	r.renewed(&rec, sent, former)
	// Until the term goes on here, this write is not one that this Lock owns and may replace at
	// once. If it lands after Resume has failed, the process that had the term may still act under
	// it.
	rec.Nonce = r.process.NewNonce()
	written, next, err := r.writeOver(ctx, settling, v, rec, sent)
	switch {
	case written == nil:
		return nil, next, err
	case r.tooLate(sent):
		return nil, nil, errResumedLate
	}
	r.memory.sends(rec)
	t = r.newTerm(written, sent, h.Secret)
	t.former = former
	return t, nil, nil
}

// tooLate reports whether a lease that counts from then would be over.
func (r *register) tooLate(sent clock.Reading) bool {
	return r.clock.Now().Elapsed(sent) >= r.ttl-r.margin
}

func (r *register) newTerm(written *version, sent clock.Reading, secret string) *term {
	return &term{
		lock: r, token: written.rec.Token, secret: secret, stored: written, sent: sent,
		writing: ctxmutex.New(), forgotten: new(atomic.Bool),
	}
}

// writeOver sends rec over v, once, and finds out what that has done. If rec is in the store,
// written is its version, and err is nil, or a refusal that was not true. Else next is the version
// that is there now, if that is known and another write may follow.
func (r *register) writeOver(
	ctx, settling context.Context, v *version, rec Record, sent clock.Reading,
) (written, next *version, err error) {
	writing, answered := outlast(ctx, r.attempt/2)
	etag, err := r.put(writing, rec, v.etag)
	answered()
	if err != nil {
		if storeapi.Permanent(err) {
			return nil, nil, err
		}
		// Whatever the answer was, only the nonce tells whether the write has landed.
		now, readErr := r.read(settling)
		switch {
		case readErr != nil && storeapi.Refused(err):
			r.memory.disprove(v)
			return nil, nil, readErr
		case readErr != nil:
			return nil, nil, fmt.Errorf("%w (and reading the object back failed: %w)", err, readErr)
		case now.exists && sameWrite(rec, now.rec):
			etag = now.etag
		case !now.same(v):
			return nil, now, err
		case errors.Is(err, ErrConflict):
			_ = r.letPass(ctx)
			return nil, now, err
		default:
			return nil, nil, r.refusedInVain(v, err)
		}
	}
	written = &version{exists: true, etag: etag, rec: rec, readBefore: sent.Mono, readAfter: r.clock.Now().Mono}
	r.remember(ctx, written)
	return written, nil, err
}

// refusedInVain is the error of an acquisition that has failed with err although v is still there.
func (r *register) refusedInVain(v *version, err error) error {
	if refused := errors.Is(err, ErrPreconditionFailed) || errors.Is(err, ErrConflict); v.exists || !refused {
		return lockerr.OutcomeUnknown(err)
	}
	r.memory.createRefused(r.clock.Now().Mono, 2*max(r.ttl, r.poll), err)
	return r.notFree(v, verdict{wait: r.poll})
}

// notFree is the error of a try that found v, which may not be replaced.
func (r *register) notFree(v *version, why verdict) error {
	// Azure refuses a create while another's is still going up, and until that has ended answers
	// 404 to reads. A store that goes on so for a TTL is broken.
	if err := r.memory.refusesFor(r.ttl); !v.exists && err != nil {
		return lockerr.OutcomeUnknown(err)
	}
	return r.heldVersion(v, why)
}

// writeReleased replaces v by its record, released.
func (r *register) writeReleased(ctx context.Context, v *version) error {
	rec := v.rec
	markReleased(&rec)
	r.sign(&rec)
	_, err := r.put(ctx, rec, v.etag)
	return err
}

// cutOff is the error of an acquisition that was undone: the end of ctx, or else why. leftover says
// that undoing it has failed.
func (r *register) cutOff(ctx context.Context, why, leftover error) error {
	if ctx.Err() != nil && !errors.Is(why, ErrUnsafeStore) {
		why = lockerr.EndOf(ctx)
	}
	if leftover == nil {
		return why
	}
	r.log.WarnContext(ctx, "an acquisition came too late and could not be released: the lock is free when its TTL "+
		"has passed",
		"key", r.key, "err", leftover)
	return fmt.Errorf("%w: %w", why, lockerr.Left(leftover))
}

func (r *register) heldError(rec Record, wait time.Duration) error {
	return r.heldVersion(&version{rec: rec}, verdict{wait: wait})
}

// heldVersion is the error of a version that may not be taken.
func (r *register) heldVersion(v *version, why verdict) error {
	rec := v.rec.clone()
	rec.Key = r.key // if there is none
	return &HeldError{Record: rec, Wait: why.wait, SeemsGone: why.gone, silent: why.silent, revived: why.revived}
}
