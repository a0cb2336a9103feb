package leasehold

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/internal/canary"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/ctxmutex"
	"github.com/leasehold-go/leasehold/internal/lockerr"
	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// ErrHeld says that somebody holds the lock. The error is a [*HeldError], or wraps one.
var ErrHeld = errors.New("lock is held")

// HeldError says who holds the lock. It matches [ErrHeld].
type HeldError struct {
	Record Record        // of the holder, or of the last term seen, if other candidates were faster; only a Key if there was none
	Wait   time.Duration // from the time of the error until the lock can be taken, unless it is renewed before
}

// Error names the holder, its token, and for how long it holds the lock. The errors that wrap it name the key.
func (e *HeldError) Error() string {
	if e.creating() {
		return fmt.Sprintf("%v: another candidate is creating it", ErrHeld)
	}
	if e.Record.Released() {
		return fmt.Sprintf("%v: its last term, by %q with token %d, has only just been released", ErrHeld, e.Record.Holder, e.Record.Token)
	}
	return fmt.Sprintf("%v by %q with token %d, for %v unless renewed", ErrHeld, e.Record.Holder, e.Record.Token, e.Wait.Round(time.Millisecond))
}

// creating reports whether nobody has held the lock yet.
func (e *HeldError) creating() bool { return e.Record.Token == 0 && e.Record.Released() }

// Unwrap returns [ErrHeld].
func (e *HeldError) Unwrap() error { return ErrHeld }

// Lock is one lock: one object of a [Store]. It is made by [NewLock] and is safe for concurrent use. Of all goroutines and
// processes that use the same key, at most one holds a valid [Lease]. A Lock must not be copied.
type Lock struct {
	*register
	acquiring ctxmutex.Mutex       // locked while a try is under way
	canary    *canary.Canary       // tries the store's conditions; nil if they are known
	term      atomic.Pointer[term] // the last term held
}

// NewLock returns the lock of one key of a store. It refuses a store, a key or options that cannot work. It sends no request.
func NewLock(s Store, key string, opts ...Option) (*Lock, error) {
	info := Describe(s)
	if info.Err != nil {
		return nil, fmt.Errorf("leasehold: %w", info.Err)
	}
	if why := storeapi.BadKey(key); why != "" {
		return nil, fmt.Errorf("leasehold: key %.80q %s: use a path such as \"locks/my-service\"", key, why)
	}
	o, err := newOptions(info.MinTTL, opts)
	if err != nil {
		return nil, err
	}
	return &Lock{register: newRegister(s, key, o), acquiring: ctxmutex.New(), canary: canaryOf(s, info)}, nil
}

// Key returns the lock's key.
func (l *Lock) Key() string {
	if l.made() != nil {
		return ""
	}
	return l.key
}

// Identity returns the name under which this lock's holder appears in the record.
func (l *Lock) Identity() string {
	if l.made() != nil {
		return ""
	}
	return l.identity
}

// made refuses a Lock that NewLock has not made.
func (l *Lock) made() error {
	switch {
	case l == nil:
		return errors.New("leasehold: lock is nil")
	case l.register == nil:
		return errors.New("leasehold: this Lock was not made by NewLock")
	}
	return nil
}

// TryAcquire tries once. If the lock is held, or another candidate is faster, the error matches [ErrHeld] and wraps a
// [*HeldError]. Other errors match [ErrPermanent] or ctx's error, or are temporary.
//
// ctx bounds the call, not the lease: its values are kept, its deadline and cancellation are not. If ctx ends while a write
// is under way, the call waits for the answer and releases what it has acquired, within the time of one attempt: see [WithTTL]. If that
// fails, the error says so. A call waits until a try of another goroutine on the same Lock is over.
func (l *Lock) TryAcquire(ctx context.Context) (*Lease, error) {
	if err := l.made(); err != nil {
		return nil, err
	}
	return l.renewed(l.try(ctx, context.WithoutCancel(ctx)))
}

// Acquire waits until it has the lock or ctx ends. If ctx ends, the error matches both ctx's error and the last error that stood
// in the way, such as [ErrHeld]. Acquire reads the lock about once per poll interval ([WithPollInterval]), and also when the lease
// that it waits for can expire, and after [Lock.Wake]. While the store fails, it tries again after pauses that grow up to the TTL, or
// to 30 s if that is shorter. It returns at once with an error that waiting cannot fix (those named at [Lock.TryAcquire]), or if ctx
// belongs to a lease of this same lock. It uses ctx as TryAcquire does.
func (l *Lock) Acquire(ctx context.Context) (*Lease, error) {
	if err := l.made(); err != nil {
		return nil, err
	}
	return l.renewed(l.campaign(ctx, context.WithoutCancel(ctx), storeapi.Permanent))
}

// Do waits for the lock as [Lock.Acquire] does, and runs fn under it as [Lease.Do] does, with the errors of both. The end of ctx
// ends the wait, and fn's context descends from ctx.
func (l *Lock) Do(ctx context.Context, fn func(ctx context.Context, lease *Lease) error) error {
	if err := l.made(); err != nil {
		return err
	}
	lease, err := l.campaign(ctx, ctx, storeapi.Permanent)
	if err != nil {
		return l.named(err)
	}
	return lease.do(lease.ctx, ctx, fn)
}

// renewed is the result of an acquisition for the user: a lease that renews itself, or an error that names the lock.
func (l *Lock) renewed(lease *Lease, err error) (*Lease, error) {
	if err != nil {
		return nil, l.named(err)
	}
	lease.t.startRenewing()
	return lease, nil
}

// campaign tries until it has the lock, ctx ends, or stop says that an error is final. The lease's context descends from parent.
func (l *Lock) campaign(ctx, parent context.Context, stop func(error) bool) (*Lease, error) {
	if lease, ok := ctx.Value(leaseKey{l.register}).(*Lease); ok && ctx.Err() == nil && lease.t.blocks() > 0 {
		return nil, fmt.Errorf("ctx belongs to the lease with token %d of this same lock, so the call would wait for itself: "+
			"use that lease instead of acquiring the lock again", lease.Token())
	}
	defer l.wait()()
	var last error
	failures := 0
	for {
		woken := l.bell.Listen()
		lease, err := l.try(ctx, parent)
		if err == nil {
			return lease, nil
		}
		if ctx.Err() == nil {
			last = err
			if stop(err) {
				return nil, err
			}
		}
		var wait time.Duration
		if held, ok := errors.AsType[*HeldError](err); ok {
			spread := time.Duration(l.clock.Rand() * float64(min(l.poll, l.ttl)) / 50) // of the candidates that wait for the same lease
			failures, wait = 0, min(l.untilNextRead(), held.Wait+spread)
		} else {
			if ctx.Err() == nil {
				l.log.WarnContext(ctx, "acquiring the lock failed, will retry", "key", l.key, "err", err)
			}
			wait = l.backoff(&failures)
		}
		if clock.Wait(ctx, l.clock, wait, woken) != nil {
			return nil, lockerr.WaitEnded(ctx, last, err)
		}
	}
}

// backoff is the pause after one more failed try in a row: from a fraction of the poll interval up to the TTL.
func (l *Lock) backoff(failures *int) time.Duration {
	return clock.Backoff(l.clock, failures, min(l.poll/4, maxFirstPause), min(max(l.ttl, l.poll), maxBackoff))
}

// maxWritesPerTry bounds the conditional writes of one try. A second one is needed if the object has changed and is still free.
const maxWritesPerTry = 4

// try is the protocol: read, decide, one conditional write. The lease's context descends from parent.
func (l *Lock) try(ctx, parent context.Context) (*Lease, error) {
	if l.acquiring.Lock(ctx) != nil {
		return nil, lockerr.EndOf(ctx)
	}
	defer l.acquiring.Unlock()
	if held := l.heldByUs(); held != nil {
		return nil, held
	}
	settling, settled := outlast(ctx, l.attempt)
	defer settled()
	began := l.clock.Now()
	v := l.ownLatest() // needs no read
	if v == nil {
		var err error
		if v, err = l.read(ctx); err != nil {
			return nil, err
		}
	}
	for round, late := 1, false; ; round++ { // late: v is what the last round has written
		verdict := l.decide(l.observed(v))
		if !verdict.free {
			l.warnOfTwin(ctx, v.rec)
			return nil, l.heldError(v.rec, verdict.wait)
		}
		t, next, err := l.writeNewTerm(ctx, settling, v)
		switch {
		case t != nil:
			t.start(parent)
			lease := newLease(t)
			l.term.Store(t)
			l.emit(ctx, Event{Kind: EventAcquired, Token: t.token, Holder: l.identity, Duration: l.clock.Now().Mono - began.Mono})
			l.log.InfoContext(ctx, "lock acquired", "key", l.key, "token", t.token, "was", verdict.reason)
			if err := t.tryStore(ctx, l.canary); err != nil {
				return nil, err
			}
			if ctx.Err() != nil { // nobody waits for it any more
				return nil, l.cutOff(ctx, nil, t.free(ctx, settling, false))
			}
			return lease, nil
		case next == nil && late:
			return nil, l.cutOff(ctx, err, l.writeReleased(settling, v))
		case next == nil:
			return nil, err
		case errors.Is(err, errTooLate) && (ctx.Err() != nil || round == maxWritesPerTry):
			return nil, l.cutOff(ctx, err, l.writeReleased(settling, next))
		case ctx.Err() != nil:
			return nil, lockerr.EndOf(ctx)
		case round == maxWritesPerTry:
			return nil, l.heldError(next.rec, l.decide(l.observed(next)).wait)
		}
		v, late = next, errors.Is(err, errTooLate)
	}
}

var errTooLate = errors.New("the acquisition took longer than the lease would have lasted")

// writeNewTerm writes a new term over version v. If others were faster, or the new term is over before it began, next is the
// version that is there now. settling outlasts ctx, and the write itself takes half of that time at most.
func (l *Lock) writeNewTerm(ctx, settling context.Context, v *version) (t *term, next *version, err error) {
	token, err := l.tokens.next(v.rec)
	if err != nil {
		return nil, nil, err
	}
	sent := l.clock.Now() // validity counts from before the first byte is sent
	rec := Record{
		Key: l.key, Token: token, Holder: l.identity, TTL: l.ttl, Metadata: l.metadata, Payload: v.rec.Payload,
		AcquiredAt: sent.Time(), RenewedAt: sent.Time(), ExpiresAt: sent.Time().Add(l.ttl),
		ObjectID: v.rec.ObjectID, TermID: newID(),
	}
	if rec.ObjectID == "" {
		rec.ObjectID = newID()
	}
	l.sign(&rec)
	writing, answered := outlast(ctx, l.attempt/2)
	etag, err := l.put(writing, rec, v.etag)
	answered()
	if err != nil {
		if storeapi.Permanent(err) {
			return nil, nil, err
		}
		// Whatever the answer was, only the nonce tells whether the write has landed.
		now, readErr := l.read(settling)
		switch {
		case readErr != nil && storeapi.Refused(err):
			l.memory.disprove(v)
			return nil, nil, readErr
		case readErr != nil:
			return nil, nil, fmt.Errorf("%w (and reading the object back failed: %w)", err, readErr)
		case now.exists && l.landed(rec, now.rec):
			etag = now.etag
		case !now.same(v):
			return nil, now, err
		case errors.Is(err, storeapi.ErrConflict): // another write is under way
			_ = l.clock.Sleep(ctx, clock.Jitter(l.clock, min(l.attempt/16, maxConflictPause)))
			return nil, now, err
		case !v.exists && errors.Is(err, ErrPreconditionFailed) && l.memory.createRefused(sent.Mono, 2*max(l.ttl, l.poll)) < l.ttl:
			// Azure refuses a create while another's is still going up, and until that has ended answers 404 to reads. A store that
			// goes on so for a TTL is broken.
			return nil, nil, l.heldError(v.rec, l.poll)
		default:
			return nil, nil, lockerr.OutcomeUnknown(err)
		}
	}
	written := &version{exists: true, etag: etag, rec: rec, readBefore: sent.Mono, readAfter: l.clock.Now().Mono}
	l.remember(ctx, written)
	if l.clock.Now().Elapsed(sent) >= l.ttl-l.margin {
		return nil, written, errTooLate
	}
	return &term{lock: l.register, token: token, stored: written, sent: sent, writing: ctxmutex.New(), forgotten: new(atomic.Bool)}, nil, nil
}

// cutOff is the error of an acquisition that is given back because ctx has ended or, if it has not, because of why. leftover
// is the error of giving it back.
func (l *Lock) cutOff(ctx context.Context, why, leftover error) error {
	if ctx.Err() != nil {
		why = lockerr.EndOf(ctx)
	}
	if leftover == nil {
		return why
	}
	l.log.WarnContext(ctx, "an acquisition came too late and could not be released: the lock is free when its TTL has passed",
		"key", l.key, "err", leftover)
	return fmt.Errorf("%w: %w", why, lockerr.Left(leftover))
}

// writeReleased replaces v by its record, released.
func (l *Lock) writeReleased(ctx context.Context, v *version) error {
	rec := v.rec
	markReleased(&rec)
	l.sign(&rec)
	_, err := l.put(ctx, rec, v.etag)
	return err
}

func (l *Lock) heldError(rec Record, wait time.Duration) error {
	rec.Key = l.key // if there is none
	return &HeldError{Record: rec.clone(), Wait: wait}
}

// heldByUs returns an error while a term of this Lock keeps other goroutines out.
func (l *Lock) heldByUs() error {
	t := l.term.Load()
	if t == nil {
		return nil
	}
	wait := t.blocks()
	if wait <= 0 {
		return nil
	}
	return l.heldError(*t.record(), wait)
}

// warnOfTwin warns of another process with this one's identity. Nonces tell the two apart, but it confuses people.
func (l *Lock) warnOfTwin(ctx context.Context, rec Record) {
	if rec.Holder == l.identity && !l.wrote(rec) {
		l.log.WarnContext(ctx, "another candidate, another Lock of this process or an earlier run holds the lock under the same identity: "+
			"give each candidate its own name, or see WithReclaim", "key", l.key, "identity", rec.Holder, "token", rec.Token)
	}
}
