package leasehold

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/handle"
	"github.com/leasehold-go/leasehold/internal/lockerr"
	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// maxUnconfirmed bounds the writes of unknown outcome that a term remembers. Only a long TTL has
// time for as many.
const maxUnconfirmed = 64

// startRenewing renews until the term ends. Each renewal runs on the goroutine of a timer. A lease
// at rest has no goroutine.
func (t *term) startRenewing() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lock.manual || t.renewal != nil {
		return
	}
	// Locks that were taken together are not renewed together.
	t.renewal = t.lock.clock.AfterFunc(t.untilRenewal(2), t.renewNext)
}

// stopRenewingAfterTTL begins to wind down. A function that does not return must not hold the lock
// forever.
func (t *term) stopRenewingAfterTTL() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.renewUntil = t.lock.clock.Now().Mono + t.lock.ttl
}

// renewNext makes one attempt and sets the timer for the next one.
func (t *term) renewNext() {
	t.mu.Lock()
	over, ctx := t.state != held || t.lock.clock.Now().Mono >= t.renewUntil, t.ctx
	t.mu.Unlock()
	switch {
	case over:
		return
	case t.forgotten.Load():
		t.lock.log.Warn("lease dropped without Release", "key", t.lock.key, "token", t.token,
			"free_after", t.lock.ttl)
		return
	}
	err := t.renew(inBackground(ctx), func(*Record) {})
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.state != held:
	case err == nil:
		t.failures = 0
		t.renewal.Reset(t.untilRenewal(20))
	default:
		t.renewal.Reset(t.retryDelay(&t.failures, t.remaining()))
	}
}

// untilRenewal is the renew interval, shortened at random by up to 1/part of it, so that the
// renewals of many locks do not stay in step. The caller holds t.mu.
func (t *term) untilRenewal(part float64) time.Duration {
	interval := time.Duration(float64(t.lock.renew) * (1 - t.lock.clock.Rand()/part))
	return max(interval-(t.lock.clock.Now().Mono-t.sent.Mono), 0)
}

// retryDelay is the pause after one more failed write in a row. The less of the lease remains, the
// shorter it is, so that a short outage does not end the lease.
func (t *term) retryDelay(failures *int, remaining time.Duration) time.Duration {
	first := min(t.lock.attempt/8, maxFirstPause)
	return clock.Backoff(t.lock.clock, failures, first, max(min(t.lock.renew/2, remaining/4, maxBackoff), first))
}

// retry repeats a write of the term until the write succeeds, its error is final, the term ends, or
// ctx ends. remaining is the time that the write has left.
func (t *term) retry(ctx context.Context, remaining func() time.Duration, write func() error,
	final func(error) bool) error {
	for failures := 0; ; {
		err := write()
		if err == nil || ended(err) || final(err) {
			return err
		}
		switch sleepErr := t.lock.clock.Sleep(ctx, t.retryDelay(&failures, remaining())); {
		case sleepErr == nil:
		case errors.Is(err, sleepErr):
			return err
		default:
			return fmt.Errorf("%w: %w", sleepErr, err)
		}
	}
}

// renewNow renews until it succeeds, with a record changed by edit.
func (t *term) renewNow(ctx context.Context, edit func(*Record)) error {
	return t.lock.named(t.retry(ctx, t.validFor,
		func() error { return t.renew(ctx, edit) },
		func(err error) bool { return errors.Is(err, errTooLarge) }))
}

// renew makes one attempt, with a record changed by edit.
func (t *term) renew(ctx context.Context, edit func(*Record)) error {
	if err := t.writing.Lock(ctx); err != nil {
		return err
	}
	defer t.writing.Unlock()
	if err := t.whyOver(); err != nil {
		return err
	}
	began := t.lock.clock.Now()
	settling, settled := outlast(ctx, t.lock.attempt)
	err := t.put(settling, edit)
	settled()
	if over := t.whyOver(); over != nil { // the answer came too late
		err = over
	}
	e := t.event(EventRenewed, err)
	now := t.lock.clock.Now().Mono
	e.Duration = now - began.Mono
	t.mu.Lock()
	e.Remaining = t.remaining()
	if err != nil && !ended(err) {
		t.failure = err
	}
	failures, worthLogging := t.failing.Note(err, now, t.lock.renew)
	t.mu.Unlock()
	switch {
	case err == nil:
		t.lock.emit(ctx, e)
		if worthLogging {
			t.lock.log.WarnContext(ctx, "renewals succeed again", "key", t.lock.key, "token", t.token,
				"failures", failures)
		}
	case !ended(err):
		e.Kind = EventRenewFailed
		t.lock.emit(ctx, e)
		if worthLogging {
			t.lock.log.WarnContext(ctx, "renewal failed",
				"key", t.lock.key, "token", t.token, "failures", failures, "valid_for", e.Remaining, "err", err)
		}
	}
	return err
}

// put writes the term's record, changed by edit, over the version that it knows. The caller has
// locked t.writing. If it turns out that an earlier write of unknown outcome has landed, however
// long ago, put writes again over that one.
func (t *term) put(ctx context.Context, edit func(*Record)) error {
	for {
		done, err := t.putOnce(ctx, edit)
		if done || err != nil {
			return err
		}
		if over := t.whyOver(); over != nil && !t.isReleasing() {
			return over
		}
	}
}

// putOnce sends one write. done says that this write has landed, or an earlier release, after which
// there is nothing to write. Neither done nor an error means that an earlier renewal has landed.
func (t *term) putOnce(ctx context.Context, edit func(*Record)) (done bool, err error) {
	sent := t.lock.clock.Now() // validity counts from before the first byte is sent
	t.mu.Lock()
	base, rec := t.stored, t.stored.rec
	t.lock.renewed(&rec, sent, t.former)
	edit(&rec)
	t.lock.sign(&rec)
	t.unconfirmed = append(t.unconfirmed, write{rec, sent})
	if len(t.unconfirmed) > maxUnconfirmed { // in a long outage; the first may be an acquisition
		t.unconfirmed = slices.Delete(t.unconfirmed, 1, maxUnconfirmed/2)
	}
	t.mu.Unlock()

	etag, err := t.lock.put(ctx, rec, base.etag)
	switch {
	case err == nil:
		t.landed(ctx, etag, write{rec, sent})
		return true, nil
	case storeapi.Refused(err), errors.Is(err, ErrConflict):
		return t.reconcile(ctx, base, rec, err)
	}
	return false, err // the outcome is unknown; the next attempt, over the same version, shows it
}

// reconcile finds out what is in the store after a write of rec over base was refused. It has the
// results of putOnce.
func (t *term) reconcile(ctx context.Context, base *version, rec Record, refusal error) (done bool, err error) {
	l := t.lock
	v, err := l.read(ctx)
	switch {
	case errors.Is(err, ErrCorruptRecord):
		return false, t.replaced(fmt.Errorf("%w: %w", errOverwritten, err))
	case err != nil:
		return false, fmt.Errorf("a write was refused (%v), and reading the object back failed: %w", refusal, err)
	case v.same(base):
		return false, lockerr.OutcomeUnknown(refusal)
	case !v.exists:
		return false, t.replaced(errDeleted)
	}
	t.mu.Lock()
	what, ours := t.finds(v.rec, rec.Nonce)
	switch what {
	case foundStored:
		t.stored = v
	case foundEarlier:
		now := *v
		now.rec = t.stored.rec // the next write has what was last confirmed
		t.stored = &now
	}
	t.mu.Unlock()
	switch what {
	case foundStored:
		l.canary.Doubt() // or one of the writes that try the store was carried out
		return false, errTorn
	case foundEarlier:
		l.canary.Doubt()
		return false, errWentBack
	case foundFollower:
		t.become(released)
		return false, errNothingToRelease
	case foundResumed:
		return false, t.replaced(fmt.Errorf("%w by %q, which has resumed the term", errTakenOver, v.rec.Holder))
	case foundBroken:
		return false, t.replaced(errBroken)
	case foundOther:
		return false, t.replaced(fmt.Errorf("%w by %q with token %d", errTakenOver, v.rec.Holder, v.rec.Token))
	}
	t.landed(ctx, v.etag, ours)
	if ours.rec.Nonce == rec.Nonce && storeapi.Refused(refusal) {
		if rec.Released() {
			l.canary.Doubt() // a write over a release could be carried out over a later term
		} else if unsafe := l.tryStore(ctx, v, true); unsafe != nil {
			return false, t.replaced(unsafe)
		}
	}
	return ours.rec.Nonce == rec.Nonce || ours.rec.Released(), nil
}

// A finding is what a term has found in the place of the version over which it wrote.
type finding uint8

const (
	foundOwn      finding = iota // a write of the term, of which no answer was known
	foundStored                  // the record that was confirmed last, under another ETag
	foundEarlier                 // one of the records before it
	foundFollower                // an earlier release, or an offer, may have landed, and another term has begun since
	foundResumed                 // the term continues elsewhere, or was released there
	foundBroken                  // Break has released the term
	foundOther                   // anything else: the term was taken over
)

// finds returns what a record is to the term, whose last write had this nonce, and which write of
// unknown outcome it is, if it is one. The caller holds t.mu.
func (t *term) finds(rec Record, last string) (what finding, own write) {
	isOf := func(r Record) bool { return sameWrite(r, rec) }
	i := slices.IndexFunc(t.unconfirmed, func(w write) bool { return isOf(w.rec) })
	released := func(w write) bool { return w.rec.Nonce != last && w.rec.Released() }
	switch {
	case isOf(t.stored.rec):
		return foundStored, write{}
	case slices.ContainsFunc(t.earlier[:], isOf):
		return foundEarlier, write{}
	case i >= 0:
		return foundOwn, t.unconfirmed[i]
	case t.offered && rec.Token > t.token || slices.ContainsFunc(t.unconfirmed, released):
		return foundFollower, write{}
	case t.resumedBy(rec):
		return foundResumed, write{}
	case rec.Token == t.token && rec.Released() && mayBeSame(rec.TermID, t.stored.rec.TermID):
		return foundBroken, write{}
	}
	return foundOther, write{}
}

// resumedBy reports whether rec, which this term has not written, says that the term continues in
// another process, or was released there. Break leaves the time of the last renewal as it is, and a
// release does not. The caller holds t.mu.
func (t *term) resumedBy(rec Record) bool {
	if rec.Token != t.token || rec.TermID != handle.TermID(t.lock.key, t.secret) {
		return false
	}
	renewed := func(r Record) bool { return r.RenewedAt.Sub(rec.RenewedAt).Abs() < time.Millisecond }
	return !rec.Released() || rec.Holder != t.lock.holder || !renewed(t.stored.rec) &&
		!slices.ContainsFunc(t.unconfirmed, func(w write) bool { return renewed(w.rec) })
}

// errWentBack says that an earlier version of this term has replaced its last one: from a backup,
// or by a trial of the store if it ignores conditions. The term continues with its last record.
var errWentBack = errors.New("an earlier version of this term has come back")

var errTorn = errors.New("the store has answered a read with the ETag of another version")

// landed notes that w is in the store, which settles every write before it.
func (t *term) landed(ctx context.Context, etag string, w write) {
	v := &version{exists: true, etag: etag, rec: w.rec, readBefore: w.sent.Mono, readAfter: t.lock.clock.Now().Mono}
	t.mu.Lock()
	was := t.stored.rec
	t.earlier = [...]Record{t.earlier[1], {Nonce: was.Nonce, Token: was.Token, ExpiresAt: was.ExpiresAt}}
	t.stored, t.sent, t.unconfirmed, t.failure = v, w.sent, nil, nil
	t.mu.Unlock()
	t.lock.remember(ctx, v)
}
