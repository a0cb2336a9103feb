package leasehold

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// TryAcquire returns a lease if the lock can be taken now, and does not wait for a running holder.
// If the holder has renewed within its TTL, or another candidate is faster, the error matches
// [ErrHeld] and wraps a [*HeldError]. Other errors match [ErrPermanent] or ctx's error, or are
// temporary.
//
// TryAcquire does wait for the lock of a holder that seems to have crashed, so that a program that
// tries once, in a new process each time, gets that lock. A holder seems to have crashed if its
// record says so by the wall clocks of the two machines, give or take [WithSkewAllowance].
// TryAcquire then watches the lock, as [Lock.Acquire] does. Once it has seen no change for the
// holder's TTL, it takes the lock. After any change it returns ErrHeld. If ctx's deadline is too
// early for that, TryAcquire returns ErrHeld at once, and the HeldError says how long it would
// take. A wrong clock can delay one of these two answers, but never decides which process has the
// lock.
//
// If the store refuses to create an object that it does not have, another candidate may be creating
// it, and TryAcquire watches in the same way. After a TTL the error no longer matches ErrHeld.
//
// ctx bounds the call, not the lease: the lease's context has the values of ctx, but neither its
// deadline nor its cancellation. If ctx ends while a write is under way, the call waits for the
// answer and releases what it has acquired, within the time of one attempt: see [WithTTL]. If the
// release fails, the error says so. A call waits until a try of another goroutine on the same Lock
// has ended.
func (l *Lock) TryAcquire(ctx context.Context) (*Lease, error) {
	if err := l.made(); err != nil {
		return nil, err
	}
	parent := context.WithoutCancel(ctx)
	lease, err := l.try(ctx, parent, nil)
	if held, ok := errors.AsType[*HeldError](err); ok && held.worthWatching(ctx) {
		lease, err = l.campaign(ctx, parent, l.outlasted(held), nil)
	}
	return l.renewed(lease, err)
}

// Acquire waits until it has the lock, and returns its lease. If ctx ends first, the error matches
// both ctx's error and the last error that kept it from the lock, such as [ErrHeld]. A deadline
// within the holder's TTL is too early for the lock of a crashed holder: the [*HeldError] says so,
// and how long it takes. Acquire uses ctx as [Lock.TryAcquire] does.
//
// Acquire reads the lock about once per poll interval ([WithPollInterval]), when the lease that it
// waits for can expire, and after [Lock.Wake]. While the store fails, Acquire tries again after
// pauses that grow up to the TTL, or to 30 s if that is shorter. While it waits it may try the
// store: see [StoreInfo]. A process that takes the lock again and again, with hardly a pause,
// leaves turns to others: after 15 poll intervals, Acquire and Do wait for 1.6 of them.
//
// Acquire returns at once with an error that waiting cannot fix (one that matches [ErrPermanent]),
// or if ctx belongs to a lease of this same lock. If the client has never reached the store,
// because the host is unknown or the credentials cannot be fetched yet, Acquire waits until ctx's
// deadline, or for one to two TTLs if ctx has none.
func (l *Lock) Acquire(ctx context.Context) (*Lease, error) {
	if err := l.made(); err != nil {
		return nil, err
	}
	return l.renewed(l.campaign(ctx, context.WithoutCancel(ctx), storeapi.Permanent, nil))
}

// Do runs fn while it holds the lock: it waits for the lock as [Lock.Acquire] does, and runs fn as
// [Lease.Do] does, with the errors of both. The end of ctx ends the wait, and fn's context descends
// from ctx.
func (l *Lock) Do(ctx context.Context, fn func(ctx context.Context, lease *Lease) error) error {
	if err := l.made(); err != nil {
		return err
	}
	lease, err := l.campaign(ctx, ctx, storeapi.Permanent, nil)
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

// campaign tries until it has the lock, ctx ends, or final reports true for an error. Before that,
// found, which may be nil, gets the holder of the lock. The lease's context descends from parent.
func (l *Lock) campaign(
	ctx, parent context.Context, final func(error) bool, found func(*HeldError),
) (*Lease, error) {
	if lease, ok := ctx.Value(leaseKey{l.register}).(*Lease); ok && ctx.Err() == nil && lease.t.blocks() > 0 {
		return nil, fmt.Errorf("ctx belongs to the lease with token %d of this same lock, so the call would wait for "+
			"itself (use that lease instead of acquiring the lock again)", lease.Token())
	}
	began := l.clock.Now().Mono
	if !l.bell.Queued() {
		l.waits.Store(int64(began))
	}
	waiting := newWaiter(ctx)
	defer waiting.leave()
	line := l.wait(true)
	defer line.Leave() // first, so that the next in line need not wait for a trial that ends
	var last error
	for failures := 0; ; {
		if rest := l.rest(); rest > 0 && l.clock.Sleep(waiting.ctx, rest) != nil {
			return nil, waiting.ended(ctx, last, nil)
		}
		woken := line.Listen()
		lease, err := l.try(ctx, parent, waiting)
		line.Looked(l.leavesToOthers(err))
		if err == nil {
			return lease, nil
		}
		held, ok := errors.AsType[*HeldError](err)
		if ctx.Err() == nil {
			last = err
			if ok && found != nil {
				found(held)
			}
			if final(err) && !l.mayPass(ctx, began, err) {
				return nil, err
			}
		}
		var wait time.Duration
		if ok && held.Wait > 0 {
			// Candidates that wait for one lease try again within 2 % of a poll of each other.
			spread := time.Duration(l.clock.Rand() * float64(min(l.poll, l.ttl)) / 50)
			failures, wait = 0, min(l.untilNextRead(), held.Wait+spread)
		} else {
			wait = l.backoff(&failures)
			if ctx.Err() == nil {
				l.log.WarnContext(ctx, "acquiring the lock failed", "key", l.key, "retry_in", wait, "err", err)
			}
		}
		if clock.Wait(waiting.ctx, l.clock, wait, woken) != nil {
			return nil, waiting.ended(ctx, last, err)
		}
	}
}

// leavesToOthers reports whether a try that has ended with err must pass its wake-up on, because
// another Lock of this process may succeed.
func (l *Lock) leavesToOthers(err error) bool {
	_, held := errors.AsType[*HeldError](err)
	switch {
	case err == nil:
		return false // the others wait for this lease now
	case !held:
		return true // what failed here may succeed there
	case l.heldByUs() != nil:
		return true // it was refused for this Lock's own term
	}
	return l.place().Store == nil // Stores that cannot be compared share a line, so theirs may be another lock
}

// mayPass reports whether a wait that began then is to continue although the client has never
// reached the store. It continues until ctx's deadline, or for a TTL if ctx has none.
func (l *Lock) mayPass(ctx context.Context, began time.Duration, err error) bool {
	_, limited := ctx.Deadline()
	return errors.Is(err, ErrUnsent) && (limited || l.clock.Now().Mono-began < l.ttl)
}

// backoff is the pause after one more failed try in a row: from a fraction of the poll interval up
// to the TTL.
func (l *Lock) backoff(failures *int) time.Duration {
	limit := min(l.ttl, maxBackoff)
	return clock.Backoff(l.clock, failures, min(l.poll/4, maxFirstPause, limit), limit)
}

// rest is how long this Lock still leaves the lock to other processes. Its next acquisition needs
// no read and so would come before each of theirs.
func (l *Lock) rest() time.Duration {
	if l.ownLatest() == nil {
		return 0
	}
	return l.turns.Rest(l.clock.Now().Mono, l.poll)
}

// outlasted says for a campaign which errors are final for a lock that was found so: errors that
// show a running holder or candidate, and all errors once the store has failed for longer than the
// watch takes.
func (l *Lock) outlasted(found *HeldError) func(error) bool {
	limit := found.Wait
	if found.creating() {
		limit = l.ttl
	}
	end := l.clock.Now().Mono + limit + l.poll
	return func(err error) bool {
		held, ok := errors.AsType[*HeldError](err)
		if !ok {
			return storeapi.Permanent(err) || l.clock.Now().Mono >= end
		}
		now, then := held.Record, found.Record
		return !held.SeemsGone && !held.creating() || now.Nonce != then.Nonce || now.Token != then.Token ||
			!now.ExpiresAt.Equal(then.ExpiresAt)
	}
}
