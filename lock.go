package leasehold

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

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
	offered, keep := l.takeOffer()
	v, body := cmp.Or(offered, l.ownLatest()), []byte(nil) // needs no read
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
			if v == offered && !storeapi.Refused(err) {
				keep() // a busy store is not a reason to give it up
			}
			return nil, stray, err
		}
		unchanged := next.same(v)
		if stray = nil; !unchanged || !v.free { // its holder's word counts for a version, whoever has read that
			v = next
		}
		if l.leftover(v) {
			stray = v
		}
		switch {
		case errors.Is(err, ErrUnsafeStore):
			return nil, stray, err
		case ctx.Err() != nil:
			return nil, stray, lockerr.EndOf(ctx)
		case round < maxWritesPerTry:
		case unchanged:
			keep()
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
	l.turns.Began(l.clock.Now().Mono, l.poll)
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
	if held, ok := errors.AsType[*HeldError](err); err == nil || ok && held.Wait > 0 {
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
