package leasehold

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/ctxmutex"
	"github.com/leasehold-go/leasehold/internal/lockerr"
	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// Lock is one lock: one object of a [Store]. It is made by [NewLock] and is safe for concurrent
// use. Of all goroutines and processes that use the same key, at most one holds a valid [Lease]. A
// Lock must not be copied.
type Lock struct {
	*register
	acquiring ctxmutex.Mutex       // locked while a try is under way
	term      atomic.Pointer[term] // the last term held
	failing   atomic.Pointer[failing]
}

// NewLock returns the lock of one key of a store. It refuses a store, a key or options that cannot
// work. It sends no request.
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
	return &Lock{register: newRegister(s, key, o, canaryOf(s, info)), acquiring: ctxmutex.New()}, nil
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

// TryAcquire tries once. If the lock is held, or another candidate is faster, the error matches
// [ErrHeld] and wraps a [*HeldError]. Other errors match [ErrPermanent] or ctx's error, or are
// temporary.
//
// A HeldError with token 0 says that the store refuses to create the object, though it has none:
// another candidate may be creating it. If that lasts for a TTL, the error no longer matches
// ErrHeld. A caller that tries only once should try again before it relies on the answer.
//
// ctx bounds the call, not the lease: its values are kept, its deadline and cancellation are not.
// If ctx ends while a write is under way, the call waits for the answer and releases what it has
// acquired, within the time of one attempt: see [WithTTL]. If that fails, the error says so. A call
// waits until a try of another goroutine on the same Lock is over.
func (l *Lock) TryAcquire(ctx context.Context) (*Lease, error) {
	if err := l.made(); err != nil {
		return nil, err
	}
	return l.renewed(l.try(ctx, context.WithoutCancel(ctx), nil))
}

// Acquire waits until it has the lock or ctx ends. If ctx ends, the error matches both ctx's error
// and the last error that stood in the way, such as [ErrHeld]. Acquire reads the lock about once
// per poll interval ([WithPollInterval]), and also when the lease that it waits for can expire, and
// after [Lock.Wake]. While the store fails, it tries again after pauses that grow up to the TTL, or
// to 30 s if that is shorter. It returns at once with an error that waiting cannot fix (those named
// at [Lock.TryAcquire]), or if ctx belongs to a lease of this same lock. A client that has never
// reached the store, because the host is unknown or credentials could not be had, may do so soon:
// that is waited for until ctx's deadline, or for a TTL if ctx has none. While Acquire waits it may
// try the store: see [StoreInfo]. It uses ctx as TryAcquire does.
func (l *Lock) Acquire(ctx context.Context) (*Lease, error) {
	if err := l.made(); err != nil {
		return nil, err
	}
	return l.renewed(l.campaign(ctx, context.WithoutCancel(ctx), storeapi.Permanent))
}

// Do waits for the lock as [Lock.Acquire] does, and runs fn under it as [Lease.Do] does, with the
// errors of both. The end of ctx ends the wait, and fn's context descends from ctx.
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

// renewed is the result of an acquisition for the user: a lease that renews itself, or an error
// that names the lock.
func (l *Lock) renewed(lease *Lease, err error) (*Lease, error) {
	if err != nil {
		return nil, l.named(err)
	}
	lease.t.startRenewing()
	return lease, nil
}

// campaign tries until it has the lock, ctx ends, or stop says that an error is final. The lease's
// context descends from parent.
func (l *Lock) campaign(ctx, parent context.Context, stop func(error) bool) (*Lease, error) {
	if lease, ok := ctx.Value(leaseKey{l.register}).(*Lease); ok && ctx.Err() == nil && lease.t.blocks() > 0 {
		return nil, fmt.Errorf("ctx belongs to the lease with token %d of this same lock, so the call would wait for "+
			"itself: "+
			"use that lease instead of acquiring the lock again", lease.Token())
	}
	waiting := newWaiter(ctx)
	defer waiting.leave()
	line := l.wait(true)
	defer line.Leave() // first, so that the next in line need not wait for a trial that ends
	var last error
	failures, began := 0, l.clock.Now().Mono
	for {
		woken := line.Listen()
		lease, err := l.try(ctx, parent, waiting)
		line.Looked(l.leavesToOthers(err))
		if err == nil {
			return lease, nil
		}
		if ctx.Err() == nil {
			last = err
			if stop(err) && !l.mayPass(ctx, began, err) {
				return nil, err
			}
		}
		var wait time.Duration
		if held, ok := errors.AsType[*HeldError](err); ok {
			// of the candidates that wait for the same lease
			spread := time.Duration(l.clock.Rand() * float64(min(l.poll, l.ttl)) / 50)
			failures, wait = 0, min(l.untilNextRead(), held.Wait+spread)
		} else {
			if ctx.Err() == nil {
				l.log.WarnContext(ctx, "acquiring the lock failed, will retry", "key", l.key, "err", err)
			}
			wait = l.backoff(&failures)
		}
		if clock.Wait(waiting.ctx, l.clock, wait, woken) != nil {
			if unsafe := waiting.unsafe(); unsafe != nil {
				return nil, unsafe
			}
			return nil, lockerr.WaitEnded(ctx, last, err)
		}
	}
}

// leavesToOthers reports whether another Lock of this process may get what a try has not got, which
// has ended with err.
func (l *Lock) leavesToOthers(err error) bool {
	_, held := errors.AsType[*HeldError](err)
	return err != nil && (!held || l.heldByUs() != nil || l.place().store == nil)
}

// mayPass reports whether a wait that began then is to go on although the client has never reached
// the store. It goes on until ctx's deadline, or for a TTL if that has none.
func (l *Lock) mayPass(ctx context.Context, began time.Duration, err error) bool {
	_, limited := ctx.Deadline()
	return errors.Is(err, ErrUnsent) && (limited || l.clock.Now().Mono-began < l.ttl)
}

// backoff is the pause after one more failed try in a row: from a fraction of the poll interval up
// to the TTL.
func (l *Lock) backoff(failures *int) time.Duration {
	return clock.Backoff(l.clock, failures, min(l.poll/4, maxFirstPause), min(max(l.ttl, l.poll), maxBackoff))
}

// try is one acquisition, by w if it waits. The lease's context descends from parent. Whatever the
// reason for which no lease comes of it, what it has written is given back.
func (l *Lock) try(ctx, parent context.Context, w *waiter) (*Lease, error) {
	if l.acquiring.Lock(ctx) != nil {
		return nil, lockerr.EndOf(ctx)
	}
	defer l.acquiring.Unlock()
	if held := l.heldByUs(); held != nil {
		return nil, held
	}
	settling, settled := outlast(ctx, l.attempt)
	defer settled()
	lease, stray, err := l.race(ctx, settling, parent, w)
	if stray != nil {
		err = l.cutOff(ctx, err, l.giveBack(settling, stray))
	}
	if ctx.Err() == nil {
		l.tried(err)
	}
	return lease, err
}

// race is the protocol: read, decide, one conditional write; and again if the object has changed
// and is still free. stray is an unreleased version that this Lock has written and with which no
// term begins: the write came too late, or landed after it had been given up.
func (l *Lock) race(ctx, settling, parent context.Context, w *waiter) (lease *Lease, stray *version, err error) {
	began := l.clock.Now().Mono
	v, body := l.ownLatest(), []byte(nil) // needs no read
	if v == nil {
		if v, body, err = l.look(ctx); err != nil {
			return nil, nil, err
		}
	}
	for round := 1; ; round++ {
		verdict := l.decide(l.observed(v))
		if !verdict.free {
			l.warnOfTwin(ctx, v.rec)
			if body != nil && round == 1 && !verdict.revived {
				w.tryStore(l.register, v, body)
			}
			return nil, stray, l.notFree(v, verdict)
		}
		t, next, err := l.writeNewTerm(ctx, settling, v)
		switch {
		case t != nil:
			lease = newLease(t.start(parent), t)
			l.begin(ctx, lease, l.clock.Now().Mono-began, verdict.reason)
			if ctx.Err() != nil { // nobody waits for it any more
				return nil, nil, l.cutOff(ctx, nil, t.free(ctx, settling, false))
			}
			return lease, nil, nil
		case next == nil:
			return nil, stray, err
		}
		unchanged := next.same(v)
		if v, stray = next, nil; l.leftover(v) {
			stray = v
		}
		switch {
		case errors.Is(err, ErrUnsafeStore):
			return nil, stray, err
		case ctx.Err() != nil:
			return nil, stray, lockerr.EndOf(ctx)
		case round < maxWritesPerTry:
		case unchanged:
			return nil, stray, l.refusedInVain(v, err)
		case stray != nil:
			return nil, stray, lockerr.OutcomeUnknown(err)
		default:
			return nil, nil, l.notFree(v, l.decide(l.observed(v)))
		}
	}
}

// begin makes the term of lease the one of this Lock. The acquisition took so long, and was says
// why it was allowed.
func (l *Lock) begin(ctx context.Context, lease *Lease, took time.Duration, was string) {
	t := lease.t
	l.term.Store(t)
	l.emit(ctx, Event{Kind: EventAcquired, Token: t.token, Holder: l.identity, Duration: took})
	l.log.InfoContext(ctx, "lock acquired", "key", l.key, "token", t.token, "was", was)
}

// failing are tries that have failed in a row, other than because the lock was held.
type failing struct {
	since time.Duration // monotonic time of the first failure
	last  error
}

// tried notes for Elector.Check how a try has ended.
func (l *Lock) tried(err error) {
	if err == nil || errors.Is(err, ErrHeld) {
		l.failing.Store(nil)
		return
	}
	now := &failing{l.clock.Now().Mono, err}
	if before := l.failing.Load(); before != nil {
		now.since = before.since
	}
	l.failing.Store(now)
}

// leftover reports whether v is an acquisition of this Lock that is not released, and with which no
// term has begun. A term frees its own record, or leaves it to run out.
func (l *Lock) leftover(v *version) bool {
	t := l.term.Load()
	return v.exists && !v.rec.Released() && l.memory.owns(v.rec) && !l.tokens.revived(v.rec) &&
		(t == nil || t.token != v.rec.Token)
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

// warnOfTwin warns of another process with this one's identity. Nonces tell the two apart, but it
// confuses people.
func (l *Lock) warnOfTwin(ctx context.Context, rec Record) {
	if rec.Holder == l.identity && !rec.Released() && !l.memory.owns(rec) {
		l.log.WarnContext(ctx, "another candidate, another Lock of this process or an earlier run holds the lock "+
			"under the same identity: "+
			"give each candidate its own name, or see WithReclaim", "key", l.key, "identity",
			rec.Holder, "token", rec.Token)
	}
}
