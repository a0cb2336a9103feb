package leasehold

import (
	"cmp"
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

// maxWritesPerTry bounds the conditional writes of one try. A second one is needed if the object
// has changed and is still free.
const maxWritesPerTry = 4

var (
	errTooLate     = errors.New("the acquisition took longer than the lease would have lasted")
	errResumedLate = errors.New("the renewal took longer than the lease would have lasted (try again)")
)

// acquisition is one try of a Lock to get a lease. No other goroutine of the Lock acquires or leads
// at the same time.
type acquisition struct {
	*Lock
	ctx      context.Context // of the caller
	settling context.Context // outlasts ctx, so that what was sent is settled
	parent   context.Context // of the lease's context
	began    time.Duration   // monotonic time
	// stray is an unreleased version that this Lock has written and with which no term begins: the
	// write came too late, or landed after it had been given up. Nil if there is none.
	stray *version
}

// alone begins an acquisition once it is this goroutine's turn, and runs get.
func (l *Lock) alone(ctx, parent context.Context, get func(*acquisition) (*Lease, error)) (*Lease, error) {
	if l.acquiring.Lock(ctx) != nil {
		return nil, lockerr.EndOf(ctx)
	}
	defer l.acquiring.Unlock()
	if held := l.heldByUs(); held != nil {
		return nil, held
	}
	settling, settled := outlast(ctx, l.attempt)
	defer settled()
	return get(&acquisition{Lock: l, ctx: ctx, settling: settling, parent: parent, began: l.clock.Now().Mono})
}

// try is one acquisition, by w if it waits. If no lease comes of it, what it has written is given
// back.
func (l *Lock) try(ctx, parent context.Context, w *waiter) (*Lease, error) {
	return l.alone(ctx, parent, func(a *acquisition) (*Lease, error) {
		lease, err := a.race(w)
		if a.stray != nil {
			err = l.cutOff(ctx, err, l.giveBack(a.settling, a.stray))
		}
		if ctx.Err() == nil {
			l.tried(err)
		}
		return lease, err
	})
}

// race is the protocol: read, decide, one conditional write; and again if the object has changed
// and is still free.
func (a *acquisition) race(w *waiter) (*Lease, error) {
	offered, keep := a.takeOffer()
	v, body := cmp.Or(offered, a.ownLatest()), []byte(nil) // needs no read
	if v == nil {
		var err error
		if v, body, err = a.look(a.ctx); err != nil {
			return nil, err
		}
	}
	for round := 1; ; round++ {
		verdict := a.decide(a.observed(v))
		if !verdict.free {
			a.warnOfTwin(a.ctx, v.rec)
			if body != nil && round == 1 && !verdict.revived {
				w.tryStore(a.register, v, body)
			}
			return nil, a.notFree(v, verdict)
		}
		t, next, err := a.writeNewTerm(a.ctx, a.settling, v)
		switch {
		case t != nil:
			a.stray = nil
			lease := a.begin(t, verdict.reason)
			if a.ctx.Err() != nil { // the caller has given up
				return nil, a.cutOff(a.ctx, nil, t.free(a.ctx, a.settling, false))
			}
			return lease, nil
		case next == nil:
			if v == offered && !storeapi.Refused(err) {
				keep() // a busy store is not a reason to give it up
			}
			return nil, err
		}
		unchanged := next.same(v)
		if a.stray = nil; !unchanged || !v.free { // a read does not take back what the holder has signed
			v = next
		}
		if a.leftover(v) {
			a.stray = v
		}
		switch {
		case errors.Is(err, ErrUnsafeStore):
			return nil, err
		case a.ctx.Err() != nil:
			return nil, lockerr.EndOf(a.ctx)
		case round < maxWritesPerTry:
		case unchanged:
			keep()
			return nil, a.refusedInVain(v, err)
		case a.stray != nil:
			return nil, lockerr.OutcomeUnknown(err)
		default:
			return nil, a.notFree(v, a.decide(a.observed(v)))
		}
	}
}

// begin starts t, the one term of this Lock from now on. was says why it was allowed.
func (a *acquisition) begin(t *term, was string) *Lease {
	lease, now := newLease(t.start(a.parent), t), a.clock.Now().Mono
	a.term.Store(t)
	a.turns.Began(now, a.poll)
	a.emit(a.ctx, Event{Kind: EventAcquired, Token: t.token, Holder: a.holder, Duration: now - a.began})
	a.log.InfoContext(a.ctx, "lock acquired", "key", a.key, "token", t.token, "was", was)
	return lease
}

// writeNewTerm writes a new term over version v. If others were faster, or the new term ended
// before it began, or the store is unsafe, next is the version that is in the store now. settling
// outlasts ctx, and the write itself takes half of that time at most.
func (r *register) writeNewTerm(ctx, settling context.Context, v *version) (t *term, next *version, err error) {
	token, err := r.tokens.next(v.rec)
	if err != nil {
		return nil, nil, err
	}
	sent, secret := r.clock.Now(), handle.NewSecret() // validity counts from before the first byte is sent
	rec := Record{
		Key: r.key, Token: token, Holder: r.holder, TTL: r.ttl, Metadata: r.metadata, Payload: v.rec.Payload,
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

// writeResumed renews the term of v, which the handle names. If another write has landed since v
// was read, next is the version that is in the store now.
func (r *register) writeResumed(ctx, settling context.Context, v *version,
	h handle.Handle) (t *term, next *version, err error) {
	sent, rec := r.clock.Now(), v.rec // validity counts from before the first byte is sent
	rec.Holder, rec.Metadata = r.holder, r.metadata
	former := formerLease{v.rec.TTL, v.readAfter - v.age + r.withDrift(v.rec.TTL)}
	r.renewed(&rec, sent, former)
	// Until the term continues here, this Lock does not own this write and may not replace it at
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

// tooLate reports whether a lease that counts from then would have ended.
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
		// Whatever the answer was, only the nonce shows whether the write has landed.
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
	// 404 to reads. A store that does so for a TTL is broken.
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
	r.log.WarnContext(ctx, "releasing a late acquisition failed", "key", r.key, "free_after", r.ttl, "err", leftover)
	return fmt.Errorf("%w: %w", why, lockerr.Left(leftover))
}

// leftover reports whether v is an acquisition of this Lock that is not released, and with which no
// term has begun. A term releases its own record, or leaves it to expire.
func (l *Lock) leftover(v *version) bool {
	seen, t := l.observed(v), l.term.Load()
	seen.asks = undoer
	return l.decide(seen).free && (t == nil || t.token != v.rec.Token)
}

// giveBack releases v, a leftover. It returns nil once nothing unreleased of this Lock is in the
// store.
func (l *Lock) giveBack(ctx context.Context, v *version) error {
	for round := 1; ; round++ {
		err := l.writeReleased(ctx, v)
		switch conflict := errors.Is(err, ErrConflict); {
		case err == nil:
			return nil
		case !conflict && !storeapi.Refused(err), round == maxWritesPerTry:
			return lockerr.OutcomeUnknown(err)
		case conflict:
			_ = l.letPass(ctx)
		}
		now, readErr := l.read(ctx)
		switch {
		case readErr != nil:
			return fmt.Errorf("%w (and reading the object back failed: %w)", lockerr.OutcomeUnknown(err), readErr)
		case !l.leftover(now):
			return nil
		}
		v = now
	}
}

// warnOfTwin warns of another process with this one's holder name. Nonces show which of the two
// wrote a record, but the name does not.
func (l *Lock) warnOfTwin(ctx context.Context, rec Record) {
	if rec.Holder == l.holder && !rec.Released() && !l.memory.owns(rec) {
		l.log.WarnContext(ctx, "another holder has this candidate's name", "key", l.key, "holder", rec.Holder,
			"token", rec.Token, "hint", "give each candidate a unique name, unless this one has restarted")
	}
}
