package leasehold

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/forecast"
	"github.com/leasehold-go/leasehold/internal/storeapi"
	"github.com/leasehold-go/leasehold/internal/wire"
)

// ErrHeld says that somebody holds the lock; the error is a [*HeldError].
var ErrHeld = errors.New("lock is held")

// HeldError says who holds the lock. It matches [ErrHeld].
type HeldError struct {
	Key    string
	Record Record        // the holder's; that of the term seen last, if others were faster
	Wait   time.Duration // from now until the lock can be taken, unless it is renewed before
}

// Error names the holder, its token, and until when it holds the lock.
func (e *HeldError) Error() string { return (&lockError{e.Key, errors.New(e.text())}).Error() }

func (e *HeldError) text() string {
	if e.Record.Released() {
		return fmt.Sprintf("%v: its last term, that of %q with token %d, has just been released", ErrHeld, e.Record.Holder, e.Record.Token)
	}
	return fmt.Sprintf("%v by %q with token %d, for %v unless renewed", ErrHeld, e.Record.Holder, e.Record.Token, e.Wait.Round(time.Millisecond))
}

// Unwrap returns [ErrHeld].
func (e *HeldError) Unwrap() error { return ErrHeld }

// Lock is one lock: one object of a [Store]. It is made by [NewLock] and is safe for concurrent use. Of all goroutines and
// processes that use the same key, at most one holds a valid [Lease]. A Lock must not be copied.
type Lock struct {
	*options
	store      Store
	key        string
	writer     *wire.Writer
	acquiring  chan struct{} // holds a token while an acquisition is under way: one at a time
	checked    bool          // WithStoreCheck is done; guarded by acquiring
	busy       atomic.Bool   // an acquisition is under way
	understood atomic.Int64  // monotonic time of the last answer of the store that made sense

	mu        sync.Mutex // guards what follows; never held over I/O
	last      *version   // the last version seen or written; nil if unknown
	renewals  forecast.Renewals
	highest   uint64 // the highest token seen: if the object is lost, tokens still go up
	announced Record // the last term announced by EventNewLeader: token, holder and time only
	term      *term  // the last term held
	failure   error  // of the last request, if it failed
}

// version is one version of the lock object, or its absence, as this Lock knows it.
type version struct {
	exists     bool
	etag       string
	rec        Record
	age        time.Duration // at readAfter it was at least so old
	readBefore time.Duration // this process's monotonic clock before the request that showed it
	readAfter  time.Duration // and after it
	disproved  bool          // the store has refused to replace it
}

func (v *version) same(w *version) bool { return v.exists == w.exists && v.etag == w.etag }

// NewLock returns the lock of one key of a store. It refuses a store, a key or options that cannot work; it sends no request.
func NewLock(s Store, key string, opts ...Option) (*Lock, error) {
	if s == nil {
		return nil, errors.New("leasehold: store is nil")
	}
	if v, ok := s.(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			return nil, fmt.Errorf("leasehold: %w", err)
		}
	}
	if err := checkKey(key); err != nil {
		return nil, err
	}
	o, err := newOptions(s, opts)
	if err != nil {
		return nil, err
	}
	l := &Lock{options: o, store: s, key: key, writer: wire.NewWriter(), acquiring: make(chan struct{}, 1)}
	l.understood.Store(math.MinInt64)
	l.enlist()
	return l, nil
}

// Key returns the lock's key.
func (l *Lock) Key() string { return l.key }

// Identity returns the name under which this lock's holder appears in the record.
func (l *Lock) Identity() string {
	if l.options == nil {
		return ""
	}
	return l.identity
}

// made refuses a Lock that NewLock has not made.
func (l *Lock) made() error {
	switch {
	case l == nil:
		return errors.New("leasehold: lock is nil")
	case l.options == nil:
		return errors.New("leasehold: this Lock was not made by NewLock")
	}
	return nil
}

// TryAcquire tries once. If the lock is held, or another candidate is faster, the error is a [*HeldError]. Other errors match
// [ErrCorruptRecord], [ErrPermanent] or [ErrUnsafeStore], or may pass by themselves.
//
// ctx bounds the call, not the lease: its values are kept, its deadline and cancellation are not. If ctx ends while a write
// is under way, the call waits for its reply, bounded by a fraction of the TTL, and releases what it has acquired; if that fails,
// the error says so. It waits for a try of another goroutine on the same Lock to end before it begins.
func (l *Lock) TryAcquire(ctx context.Context) (*Lease, error) {
	if err := l.made(); err != nil {
		return nil, err
	}
	return l.background(l.try(ctx, context.WithoutCancel(ctx)))
}

// Acquire waits until it has the lock or ctx ends. Then the error matches both ctx's error and the last error that stood in
// the way, such as [ErrHeld]. It reads the lock about once per poll interval ([WithPollInterval]) and when the lease it waits
// for can expire, backs off while the store fails, and ends at once with errors that waiting cannot fix, which are those of
// [Lock.TryAcquire], and if ctx belongs to a lease of this very lock. It uses ctx as TryAcquire does.
func (l *Lock) Acquire(ctx context.Context) (*Lease, error) {
	if err := l.made(); err != nil {
		return nil, err
	}
	return l.background(l.campaign(ctx, func() attempt { return l.try(ctx, context.WithoutCancel(ctx)) }, storeapi.Permanent))
}

// Do waits for the lock as [Lock.Acquire] does, and runs fn under it as [Lease.Do] does. ctx bounds both, and fn's context
// descends from it.
func (l *Lock) Do(ctx context.Context, fn func(ctx context.Context, lease *Lease) error) error {
	if err := l.made(); err != nil {
		return err
	}
	a := l.campaign(ctx, func() attempt { return l.try(ctx, ctx) }, storeapi.Permanent)
	if a.err != nil {
		return l.named(a.err)
	}
	return a.lease.do(a.lease.ctx, fn)
}

// attempt is the result of a try to acquire.
type attempt struct {
	lease    *Lease
	err      error
	leftover error // ctx ended during the acquisition, and releasing what it had acquired has failed
}

// background starts the lease's own renewals.
func (l *Lock) background(a attempt) (*Lease, error) {
	switch {
	case a.err == nil:
	case a.leftover != nil && !errors.Is(a.err, a.leftover):
		return nil, l.named(fmt.Errorf("%w: %w", a.err, a.leftover))
	default:
		return nil, l.named(a.err)
	}
	a.lease.t.startRenewing()
	return a.lease, nil
}

// campaign tries until the lock is taken, ctx ends, or stop says that an error is final.
func (l *Lock) campaign(ctx context.Context, try func() attempt, stop func(error) bool) attempt {
	if lease, ok := ctx.Value(leaseKey{l}).(*Lease); ok && ctx.Err() == nil && lease.t.blocks() > 0 {
		return attempt{err: fmt.Errorf("ctx is that of the lease with token %d of this very lock, so it would wait for itself: "+
			"use the lease instead of acquiring the lock again", lease.Token())}
	}
	var last error
	failures := 0
	for {
		a := try()
		if a.err == nil {
			return a
		}
		if ctx.Err() == nil {
			last = a.err
			if stop(a.err) {
				return a
			}
		}
		var wait time.Duration
		if held, ok := errors.AsType[*HeldError](a.err); ok {
			spread := time.Duration(l.clock.Rand() * float64(l.poll) / 20) // of those who wait for the same lease
			failures, wait = 0, min(l.untilNextRead(), held.Wait+spread)
		} else {
			if ctx.Err() == nil {
				l.log.WarnContext(ctx, "acquiring the lock failed, will retry", "key", l.key, "err", a.err)
			}
			wait = l.backoff(&failures)
		}
		if l.clock.Sleep(ctx, wait) != nil {
			return attempt{err: &waitError{l.key, endOf(ctx), last, a.leftover}, leftover: a.leftover}
		}
	}
}

// untilNextRead is how long a candidate waits before it reads the lock again: a poll interval, more or less.
func (l *Lock) untilNextRead() time.Duration {
	random, now := l.clock.Rand(), l.clock.Now().Mono
	l.mu.Lock()
	defer l.mu.Unlock()
	if wait := l.renewals.Wait(now, l.poll, random); wait > 0 {
		return wait
	}
	return l.jitter(l.poll)
}

// maxWritesPerTry bounds the conditional writes of one try: more than one only if the lock changes underneath and is still free.
const maxWritesPerTry = 4

// try is the protocol: read, may I take it?, one conditional write. The lease's context descends from parent.
func (l *Lock) try(ctx, parent context.Context) attempt {
	select {
	case l.acquiring <- struct{}{}:
		defer func() { <-l.acquiring }()
	case <-ctx.Done():
		return attempt{err: endOf(ctx)}
	}
	if ctx.Err() != nil {
		return attempt{err: endOf(ctx)}
	}
	if held := l.heldByUs(); held != nil {
		return attempt{err: held}
	}
	if err := l.checkOnce(ctx); err != nil {
		return attempt{err: err}
	}
	l.busy.Store(true)
	defer l.busy.Store(false)
	began := l.clock.Now()
	v := l.ownLatest() // a version that this lock wrote itself it need not read again
	if v == nil {
		var err error
		if v, err = l.read(ctx); err != nil {
			return attempt{err: err}
		}
	}
	for round := 1; ; round++ {
		verdict := l.decide(l.observed(v, l.clock.Now()))
		if !verdict.free {
			l.warnOfTwin(ctx, v.rec)
			return attempt{err: l.heldError(v, verdict.wait)}
		}
		t, next, err := l.writeNewTerm(ctx, v)
		switch {
		case t != nil:
			lease := l.begin(parent, t)
			l.emit(ctx, Event{Kind: EventAcquired, Token: t.token, Holder: l.identity, Duration: l.clock.Now().Mono - began.Mono})
			l.log.InfoContext(ctx, "lock acquired", "key", l.key, "token", t.token, "was", verdict.reason)
			if ctx.Err() != nil { // too late: nobody waits for it any more
				return l.cutOff(ctx, t.release(ctx))
			}
			return attempt{lease: lease}
		case next == nil:
			return attempt{err: err}
		case errors.Is(err, errTooLate) && (ctx.Err() != nil || round == maxWritesPerTry):
			a := l.cutOff(ctx, l.giveBack(ctx, next))
			if ctx.Err() == nil {
				a.err = err
			}
			return a
		case ctx.Err() != nil:
			return attempt{err: endOf(ctx)}
		case round == maxWritesPerTry:
			return attempt{err: l.heldError(next, l.decide(l.observed(next, l.clock.Now())).wait)}
		}
		v = next
	}
}

// cutOff is the result of a try that came too late, and of ending what it had acquired.
func (l *Lock) cutOff(ctx context.Context, leftover error) attempt {
	if leftover != nil {
		l.log.WarnContext(ctx, "an acquisition was cut off and could not be released: the lock is free when its TTL has passed",
			"key", l.key, "err", leftover)
	}
	return attempt{err: endOf(ctx), leftover: leftover}
}

// giveBack releases a record of this Lock's own that began no term.
func (l *Lock) giveBack(ctx context.Context, v *version) error {
	rec := v.rec
	rec.ExpiresAt = time.Time{}
	l.sign(&rec)
	_, err := l.put(ctx, v, rec)
	return err
}

// sign gives rec a fresh nonce, after which its token and expiry must not change.
func (l *Lock) sign(rec *Record) { rec.Nonce = l.writer.Nonce(wire.Record(*rec)) }

// wrote reports whether this very Lock value wrote rec.
func (l *Lock) wrote(rec Record) bool { return l.writer.Wrote(wire.Record(rec)) }

// landed reports whether what stands in the store is this Lock's write sent.
func (l *Lock) landed(sent, stands Record) bool {
	return sent.Nonce == stands.Nonce && sent.Token == stands.Token && l.wrote(stands)
}

func (l *Lock) heldError(v *version, wait time.Duration) error {
	return &HeldError{Key: l.key, Record: v.rec.clone(), Wait: wait}
}

var errTooLate = errors.New("the acquisition took longer than the lease would have lasted")

// writeNewTerm writes a new term over version v. If others were faster, or the new term is over before it began, next is what
// stands there now.
func (l *Lock) writeNewTerm(ctx context.Context, v *version) (t *term, next *version, err error) {
	token, err := l.nextToken(v.rec)
	if err != nil {
		return nil, nil, err
	}
	sent := l.clock.Now() // validity counts from before the first byte is sent
	rec := Record{
		Token: token, Holder: l.identity, TTL: l.ttl, Metadata: l.metadata, Payload: v.rec.Payload,
		AcquiredAt: sent.Time(), RenewedAt: sent.Time(), ExpiresAt: sent.Time().Add(l.ttl),
	}
	l.sign(&rec)
	etag, err := l.put(ctx, v, rec)
	if err != nil {
		if storeapi.Permanent(err) {
			return nil, nil, err
		}
		// Whatever the answer was, only the nonce tells whether the write has landed.
		now, readErr := l.read(context.WithoutCancel(ctx))
		switch {
		case readErr != nil && storeapi.Refused(err):
			l.disprove(v)
			return nil, nil, readErr
		case readErr != nil:
			return nil, nil, fmt.Errorf("%w (and reading it back: %w)", err, readErr)
		case now.exists && l.landed(rec, now.rec):
			etag = now.etag
		case !now.same(v):
			return nil, now, err
		case errors.Is(err, storeapi.ErrConflict): // another write is under way
			_ = l.clock.Sleep(ctx, l.jitter(l.attempt/16))
			return nil, now, err
		default:
			return nil, nil, outcomeUnknown(err)
		}
	}
	written := &version{exists: true, etag: etag, rec: rec, readBefore: sent.Mono, readAfter: l.clock.Now().Mono}
	l.remember(ctx, written)
	if l.clock.Now().Elapsed(sent) >= l.ttl-l.margin {
		return nil, written, errTooLate
	}
	return &term{lock: l, token: token, stored: written, sent: sent, writeSlot: make(chan struct{}, 1)}, nil, nil
}

// outcomeUnknown is err without what would read as a verdict: a store that refuses a write although the object has not
// changed may carry it out later.
func outcomeUnknown(err error) error {
	if storeapi.Refused(err) {
		return fmt.Errorf("the store refused a write although the object had not changed: %v", err)
	}
	return err
}

// implausible is a distance between tokens that no number of acquisitions makes: the record was damaged and then repaired.
const implausible = 1 << 40

// nextToken is the token of the term that follows rec.
func (l *Lock) nextToken(rec Record) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	token := rec.Token
	if l.highest > token && l.highest-token < implausible {
		token = l.highest // the object was deleted or reset, but this lock remembers
	}
	if token >= storeapi.MaxToken {
		return 0, fmt.Errorf("%w: token %d is the last one there is (inspect the object, then start a new series of tokens with Lock.Break)",
			ErrCorruptRecord, token)
	}
	return token + 1, nil
}

// begin makes a term live.
func (l *Lock) begin(parent context.Context, t *term) *Lease {
	lease := t.start(parent)
	l.mu.Lock()
	l.term = t
	l.mu.Unlock()
	return lease
}

// read reads the lock object and remembers for how long it has been as it is. A read that fails tells nothing, and forgets
// nothing.
func (l *Lock) read(ctx context.Context) (*version, error) {
	before := l.clock.Now().Mono
	obj, err := l.get(ctx)
	v := &version{readBefore: before, readAfter: l.clock.Now().Mono}
	switch {
	case errors.Is(err, ErrNotExist):
	case err != nil:
		return nil, err
	default:
		v.exists, v.etag, v.age = true, obj.ETag, max(obj.Age, 0)
		l.mu.Lock()
		last := l.last
		l.mu.Unlock()
		if last != nil && v.same(last) { // most polls
			v.rec = last.rec
		} else if err = v.rec.UnmarshalJSON(obj.Body); err != nil {
			err = fmt.Errorf("%w (inspect the object, then repair it with Lock.Break)", err)
			l.failed(err)
			return nil, err
		}
	}
	l.remember(ctx, v)
	l.succeeded(v.readAfter)
	return v, nil
}

// remember keeps v as the last version, and what this process knows of its age. That is what its own monotonic clock has
// counted since the reply that showed v first. A store whose clock the user trusts may add the age that it told in that very
// reply, but no more than the time since this process last saw something else there.
func (l *Lock) remember(ctx context.Context, v *version) {
	l.mu.Lock()
	l.highest = max(l.highest, v.rec.Token)
	last, overtaken := l.last, false
	switch {
	case last == nil:
	case v.exists && v.same(last):
		v.age = max(last.age+v.readAfter-last.readAfter, 0)
		v.readBefore = max(v.readBefore, last.readBefore)
	default:
		v.age = min(v.age, max(v.readAfter-last.readBefore, 0))
		if overtaken = v.readBefore < last.readBefore; !overtaken {
			l.renewals.Saw(forecast.Write{
				Token: v.rec.Token, Released: v.rec.Released(), At: v.rec.RenewedAt, Earliest: last.readBefore, Latest: v.readAfter,
			})
		}
	}
	fresh := false
	if !overtaken {
		l.last = v
		if fresh = v.exists && !v.rec.Released() && !sameTerm(v.rec, l.announced); fresh {
			l.announced = Record{Token: v.rec.Token, Holder: v.rec.Holder, AcquiredAt: v.rec.AcquiredAt}
		}
	}
	l.mu.Unlock()
	if fresh {
		l.emit(ctx, Event{Kind: EventNewLeader, Token: v.rec.Token, Holder: v.rec.Holder})
	}
}

// disprove notes that the store has refused to replace v, so that it no longer stands there.
func (l *Lock) disprove(v *version) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last != nil && l.last.same(v) {
		gone := *l.last
		gone.disproved = true
		l.last = &gone
	}
}

// ownLatest returns the last version if it is this Lock's own, so that a warm acquisition is one request.
func (l *Lock) ownLatest() *version {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last != nil && l.last.exists && !l.last.disproved && l.wrote(l.last.rec) {
		return l.last
	}
	return nil
}

func (l *Lock) observed(v *version, now clock.Reading) observation {
	return observation{
		exists: v.exists, rec: v.rec, age: v.age + now.Mono - v.readAfter, wall: now.Time(),
		writtenByUs: l.wrote(v.rec), sameIdentity: v.rec.Holder == l.identity && l.mayReclaim(),
	}
}

// heldByUs returns an error while a term of this Lock keeps its other goroutines out.
func (l *Lock) heldByUs() error {
	l.mu.Lock()
	t := l.term
	l.mu.Unlock()
	if t == nil {
		return nil
	}
	wait := t.blocks()
	if wait <= 0 {
		return nil
	}
	return &HeldError{Key: l.key, Record: t.record().clone(), Wait: wait}
}

// warnOfTwin reports another process with this one's identity: harmless, because nonces tell them apart, but confusing.
func (l *Lock) warnOfTwin(ctx context.Context, rec Record) {
	if rec.Holder == l.identity && !l.wrote(rec) {
		l.log.WarnContext(ctx, "another candidate, or a former run of this one, holds the lock under this candidate's own identity: "+
			"give each a name of its own, or see WithReclaim", "key", l.key, "identity", rec.Holder, "token", rec.Token)
	}
}

func (l *Lock) checkOnce(ctx context.Context) error {
	if !l.storeCheck || l.checked {
		return nil
	}
	report, err := checkStore(ctx, l.store, l.key+".check")
	if len(report.Left) > 0 {
		l.log.WarnContext(ctx, "the store check may not delete its objects; later checks use the same ones", "key", l.key, "left", report.Left)
	}
	if err != nil {
		return err
	}
	l.checked = true
	return nil
}
