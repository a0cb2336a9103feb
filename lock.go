package leasehold

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/internal/clock"
)

// ErrHeld says that somebody holds the lock; the error is a [*HeldError].
var ErrHeld = errors.New("leasehold: lock is held")

// HeldError says who holds the lock. It matches [ErrHeld].
type HeldError struct {
	Key    string
	Record Record        // the holder's
	Wait   time.Duration // from now until the lock can be taken, should it not be renewed before
}

// Error names the holder, its token, and until when it holds the lock.
func (e *HeldError) Error() string {
	return fmt.Sprintf("%v: %q by %q with token %d, for %v unless renewed",
		ErrHeld, e.Key, e.Record.Holder, e.Record.Token, e.Wait.Round(time.Millisecond))
}

// Is makes errors.Is(err, ErrHeld) true.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// Lock is one lock: one object of a [Store]. It is safe for concurrent use; of all goroutines and processes that use
// the same key, at most one holds a valid [Lease].
type Lock struct {
	store Store
	key   string
	o     *options
	id    string        // begins the nonce of every write of this Lock, so that it recognises its own
	seq   atomic.Uint64 // ends it
	turn  chan struct{} // holds a token while an acquisition is under way: one at a time
	reply atomic.Int64  // monotonic time of the store's last answer

	mu      sync.Mutex // guards what follows; never held over I/O
	last    *version   // the last version seen or written; nil if unknown
	rhythm  rhythm     // of its holder's renewals
	highest uint64     // the highest token seen: should the object be lost, tokens still go up
	shown   uint64     // the last term announced by EventNewLeader
	term    *term      // the last term held
	checked bool       // WithStoreCheck is done
}

// version is one version of the lock object, or its absence, as this Lock knows it.
type version struct {
	exists bool
	etag   string
	rec    Record
	age    time.Duration // it was at least so old
	asked  time.Duration // when the monotonic clock read this: before
	seen   time.Duration // and after the look
}

func (v *version) same(w *version) bool { return v.exists == w.exists && v.etag == w.etag }

// NewLock returns the lock of one key of a store. It refuses a key or options that cannot work; it sends no request.
func NewLock(s Store, key string, opts ...Option) (*Lock, error) {
	if s == nil {
		return nil, errors.New("leasehold: store is nil")
	}
	if err := checkKey(key); err != nil {
		return nil, err
	}
	o, err := newOptions(s, opts)
	if err != nil {
		return nil, err
	}
	l := &Lock{store: s, key: key, o: o, id: rand.Text() + ".", turn: make(chan struct{}, 1)}
	l.reply.Store(math.MinInt64)
	return l, nil
}

// Key returns the lock's key.
func (l *Lock) Key() string { return l.key }

// Identity returns the name under which this lock's holder appears in the record.
func (l *Lock) Identity() string { return l.o.identity }

// TryAcquire tries once. If the lock is held, the error is a [*HeldError]. Other errors match [ErrCorruptRecord],
// [ErrPermanent] or [ErrUnsafeStore], or may pass by themselves.
//
// ctx bounds the call, not the lease: its values are kept, its deadline and cancellation are not. Should ctx end while
// a write is under way, the call waits for its reply, bounded by a fraction of the TTL, so as to leave no stray lock.
func (l *Lock) TryAcquire(ctx context.Context) (*Lease, error) {
	return l.try(ctx, context.WithoutCancel(ctx)).background()
}

// Acquire waits until it has the lock or ctx ends; then the error matches both ctx's error and, if the lock was seen
// held, [ErrHeld]. It reads the lock about once per poll interval ([WithPollInterval]) and when the lease it waits for can
// expire, backs off while the store fails, and ends at once with errors that no waiting can heal, which are those of
// [Lock.TryAcquire]. Its ctx is used as that of TryAcquire.
func (l *Lock) Acquire(ctx context.Context) (*Lease, error) {
	return l.campaign(ctx, func() attempt { return l.try(ctx, context.WithoutCancel(ctx)) }, permanent).background()
}

// Do waits for the lock, runs fn under it, and releases it. The context of fn is ctx, and ends early if the lease is
// lost; fn must then return, for soon after somebody else may hold the lock. While fn winds down after the end of ctx,
// the lease is still renewed, for at most one TTL; it is never released before fn has returned. A lease lost on the way
// makes Do's error match [ErrLost], whatever fn returned. If fn panics the lock is released and the panic goes on.
func (l *Lock) Do(ctx context.Context, fn func(ctx context.Context, lease *Lease) error) error {
	a := l.campaign(ctx, func() attempt { return l.try(ctx, ctx) }, permanent)
	if a.err != nil {
		return a.err
	}
	return a.lease.do(fn)
}

// Inspect reads the record without taking part. It returns [ErrNotExist] if the lock was never taken, and an error
// that matches [ErrCorruptRecord] if the object is no record.
func (l *Lock) Inspect(ctx context.Context) (Record, error) {
	v, err := l.look(ctx)
	if err == nil && !v.exists {
		err = fmt.Errorf("%w: lock %q was never taken", ErrNotExist, l.key)
	}
	if err != nil {
		return Record{}, err
	}
	return v.rec, nil
}

// Watch reads the lock once per poll interval, without being a candidate, and yields every record that begins or ends
// a term or has a new payload, the present one first. Errors that may pass are yielded too and the watch goes on; after
// one that no waiting can heal, and at the end of ctx, it ends.
func (l *Lock) Watch(ctx context.Context) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		var last Record
		failures := 0
		for seen := false; ctx.Err() == nil; {
			v, err := l.look(ctx)
			wait := l.jitter(l.o.poll)
			switch {
			case err != nil && ctx.Err() != nil:
				return
			case err != nil:
				if !yield(Record{}, err) || permanent(err) {
					return
				}
				wait = l.backoff(&failures)
			case v.exists && (!seen || news(last, v.rec)):
				seen, last, failures = true, v.rec, 0
				if !yield(v.rec, nil) {
					return
				}
			default:
				failures = 0
			}
			if l.o.clock.Sleep(ctx, wait) != nil {
				return
			}
		}
	}
}

// news reports whether b tells more than that the term of a goes on.
func news(a, b Record) bool {
	return a.Token != b.Token || a.Released() != b.Released() || !bytes.Equal(a.Payload, b.Payload)
}

// Break releases the lock by force if its record has exactly this token: an administrator's tool. The holder notices
// at its next renewal, so its guarded resources must check tokens. A record of another term is left alone, and the error
// matches [ErrPreconditionFailed]; one that is already released needs nothing. Break also repairs a corrupt record: the
// lock is then free, and token stands as the last one given out, so name one at least as high as any ever seen.
func (l *Lock) Break(ctx context.Context, token uint64) error {
	if token >= maxToken {
		return fmt.Errorf("leasehold: token %d is out of range", token)
	}
	var err error
	for range rounds {
		var obj Object
		if obj, err = l.get(ctx); err != nil && (obj.ETag == "" || !errors.Is(err, ErrCorruptRecord)) {
			return err
		}
		rec, corrupt := decodeRecord(obj.Body)
		switch {
		case corrupt != nil:
			rec = Record{Token: token, Holder: l.o.identity}
		case rec.Token != token:
			return fmt.Errorf("%w: lock %q is in term %d of %q, not %d", ErrPreconditionFailed, l.key, rec.Token, rec.Holder, token)
		case rec.Released():
			return nil
		}
		rec.ExpiresAt, rec.Nonce = time.Time{}, l.nonce()
		// Any failure is looked into by the next round's read: a write of ours that landed shows as released.
		if _, err = l.put(ctx, &version{exists: true, etag: obj.ETag}, rec); err == nil {
			l.o.log.WarnContext(ctx, "lock broken", "key", l.key, "token", token, "holder", rec.Holder)
			return nil
		}
		if permanent(err) {
			return err
		}
	}
	return fmt.Errorf("leasehold: breaking lock %q: %w", l.key, err)
}

// rounds bounds the conditional writes of one try: more than one only if the lock changes underneath and is still free.
const rounds = 4

// attempt is the result of a try to acquire.
type attempt struct {
	lease *Lease
	err   error
}

// background starts the lease's own renewals.
func (a attempt) background() (*Lease, error) {
	if a.err == nil {
		a.lease.t.keep()
	}
	return a.lease, a.err
}

// campaign tries until the lock is taken, ctx ends, or stop says that an error is final.
func (l *Lock) campaign(ctx context.Context, try func() attempt, stop func(error) bool) attempt {
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
		wait := time.Duration(0)
		if held, ok := errors.AsType[*HeldError](a.err); ok {
			spread := time.Duration(l.o.clock.Rand() * float64(l.o.poll) / 20) // of those who wait for the same lease
			failures, wait = 0, min(l.nextLook(), held.Wait+spread)
		} else {
			wait = l.backoff(&failures)
		}
		if l.o.clock.Sleep(ctx, wait) != nil {
			return attempt{err: l.gaveUp(ctx, last)}
		}
	}
}

// nextLook is how long a candidate waits before it reads the lock again: a poll interval, more or less.
func (l *Lock) nextLook() time.Duration {
	random, now := l.o.clock.Rand(), l.o.clock.Now().Mono
	l.mu.Lock()
	defer l.mu.Unlock()
	if wait := l.rhythm.next(now, l.o.poll, random); wait > 0 {
		return wait
	}
	return l.jitter(l.o.poll)
}

// gaveUp is the error of a wait that its context ended; last is what stood in the way.
func (l *Lock) gaveUp(ctx context.Context, last error) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); !errors.Is(cause, err) {
		err = fmt.Errorf("%w (%w)", err, cause)
	}
	if last == nil {
		return fmt.Errorf("leasehold: waiting for lock %q: %w", l.key, err)
	}
	return fmt.Errorf("leasehold: waiting for lock %q: %w: %w", l.key, err, last)
}

// try is the protocol: read, may I take it?, one conditional write. The lease's context descends from parent.
func (l *Lock) try(ctx, parent context.Context) attempt {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return attempt{err: ctx.Err()}
	}
	if err := ctx.Err(); err != nil {
		return attempt{err: err}
	}
	if held := l.heldByUs(); held != nil {
		return attempt{err: held}
	}
	if err := l.checkOnce(ctx); err != nil {
		return attempt{err: err}
	}
	began := l.o.clock.Now()
	v := l.known() // what this lock wrote last itself, it need not read again
	if v == nil {
		var err error
		if v, err = l.look(ctx); err != nil {
			return attempt{err: err}
		}
	}
	for round := 1; ; round++ {
		now := l.o.clock.Now()
		verdict := l.o.decide(l.sighting(v, now))
		if !verdict.free {
			l.warnOfTwin(ctx, v.rec)
			return attempt{err: &HeldError{Key: l.key, Record: v.rec, Wait: verdict.wait}}
		}
		t, next, err := l.take(ctx, v)
		switch {
		case t != nil:
			lease := l.newLease(parent, t)
			if err := ctx.Err(); err != nil { // too late: nobody waits for it any more
				return attempt{err: errors.Join(err, lease.Release(ctx))}
			}
			l.emit(Event{Kind: EventAcquired, Token: t.token, Holder: l.o.identity, Duration: l.o.clock.Now().Mono - began.Mono})
			l.o.log.InfoContext(ctx, "lock acquired", "key", l.key, "token", t.token, "was", verdict.reason)
			return attempt{lease: lease}
		case next == nil || round == rounds || ctx.Err() != nil:
			return attempt{err: err}
		}
		v = next
	}
}

// take writes a new term over version v. If that fails, next is what stands there now, if that is known and worth
// another round.
func (l *Lock) take(ctx context.Context, v *version) (t *term, next *version, err error) {
	l.mu.Lock()
	token := max(v.rec.Token, l.highest) + 1
	l.mu.Unlock()
	if token > maxToken {
		return nil, nil, fmt.Errorf("%w: lock %q: tokens are used up", ErrCorruptRecord, l.key)
	}
	sent := l.o.clock.Now() // validity counts from before the first byte is sent
	rec := Record{
		Token: token, Holder: l.o.identity, TTL: l.o.ttl, Metadata: l.o.metadata, Payload: v.rec.Payload,
		Nonce: l.nonce(), AcquiredAt: sent.Time(), RenewedAt: sent.Time(), ExpiresAt: sent.Time().Add(l.o.ttl),
	}
	etag, err := l.put(ctx, v, rec)
	if err != nil {
		if permanent(err) {
			return nil, nil, err
		}
		// Whatever the answer was, only the nonce tells whether the write has landed.
		now, lookErr := l.look(context.WithoutCancel(ctx))
		switch {
		case lookErr != nil:
			return nil, nil, fmt.Errorf("%w (and reading it back: %w)", err, lookErr)
		case now.exists && now.rec.Nonce == rec.Nonce:
			etag = now.etag
		case !now.same(v):
			return nil, now, err
		case errors.Is(err, errConflict):
			return nil, now, errors.Join(err, l.o.clock.Sleep(ctx, l.jitter(l.o.attempt/16)))
		default:
			return nil, nil, err
		}
	}
	written := &version{exists: true, etag: etag, rec: rec, seen: l.o.clock.Now().Mono}
	l.saw(written)
	if l.o.clock.Now().Elapsed(sent) >= l.o.ttl-l.o.margin {
		return nil, written, fmt.Errorf("leasehold: acquiring %q took longer than the lease would have lasted", l.key)
	}
	return &term{lock: l, token: token, at: written, sent: sent, writing: make(chan struct{}, 1)}, nil, nil
}

// newLease makes a term live.
func (l *Lock) newLease(parent context.Context, t *term) *Lease {
	lease := t.start(parent)
	l.mu.Lock()
	l.term = t
	l.mu.Unlock()
	return lease
}

// look reads the lock object and remembers how long it has been as it is.
func (l *Lock) look(ctx context.Context) (*version, error) {
	l.mu.Lock()
	last := l.last
	l.mu.Unlock()
	asked := l.o.clock.Now().Mono
	obj, err := l.get(ctx)
	v := &version{asked: asked, seen: l.o.clock.Now().Mono}
	switch {
	case err == nil && last != nil && last.exists && last.etag == obj.ETag: // seen before: most polls are
		v.exists, v.etag, v.age, v.rec = true, obj.ETag, obj.Age, last.rec
	case errors.Is(err, ErrNotExist):
	case err != nil:
		l.forget()
		return nil, err
	default:
		if v.rec, err = decodeRecord(obj.Body); err != nil {
			l.forget()
			return nil, fmt.Errorf("lock %q: %w (a person must look at it, then repair it with Break)", l.key, err)
		}
		v.exists, v.etag, v.age = true, obj.ETag, obj.Age
	}
	l.saw(v)
	return v, nil
}

// saw remembers v as the last version, and all that earlier sightings of the same version say of its age.
func (l *Lock) saw(v *version) {
	l.mu.Lock()
	if l.last != nil && v.exists && v.same(l.last) {
		v.age = max(v.age, l.last.age+v.seen-l.last.seen)
	} else if l.last != nil {
		l.rhythm.saw(v, l.last.asked)
	}
	l.last = v
	l.highest = max(l.highest, v.rec.Token)
	fresh := v.exists && !v.rec.Released() && v.rec.Token != l.shown
	if fresh {
		l.shown = v.rec.Token
	}
	l.mu.Unlock()
	if fresh {
		l.emit(Event{Kind: EventNewLeader, Token: v.rec.Token, Holder: v.rec.Holder})
	}
}

func (l *Lock) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = nil
}

// known returns the last version if it is this Lock's own, so that a warm acquisition is one request.
func (l *Lock) known() *version {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last != nil && l.last.exists && l.wrote(l.last.rec) {
		return l.last
	}
	return nil
}

func (l *Lock) sighting(v *version, now clock.Reading) sighting {
	return sighting{
		exists: v.exists, rec: v.rec, age: v.age + now.Mono - v.seen, wall: now.Time(),
		own: l.wrote(v.rec), named: v.rec.Holder == l.o.identity,
	}
}

// wrote reports whether this very Lock value wrote rec.
func (l *Lock) wrote(rec Record) bool { return strings.HasPrefix(rec.Nonce, l.id) }

func (l *Lock) nonce() string { return l.id + strconv.FormatUint(l.seq.Add(1), 36) }

// heldByUs returns an error if a lease of this Lock lives.
func (l *Lock) heldByUs() error {
	l.mu.Lock()
	t := l.term
	l.mu.Unlock()
	if t == nil || !t.valid() {
		return nil
	}
	rec, left := t.snapshot()
	return &HeldError{Key: l.key, Record: rec, Wait: left}
}

// warnOfTwin reports another process with this one's identity: harmless, for nonces tell them apart, but confusing.
func (l *Lock) warnOfTwin(ctx context.Context, rec Record) {
	if rec.Holder == l.o.identity && !l.wrote(rec) {
		l.o.log.WarnContext(ctx, "lock is held under this candidate's own identity by another process, or by its former life: "+
			"see WithReclaim", "key", l.key, "identity", rec.Holder, "token", rec.Token)
	}
}

func (l *Lock) checkOnce(ctx context.Context) error {
	if !l.o.storeCheck || l.checked { // l.checked is guarded by l.turn
		return nil
	}
	if _, err := CheckStore(ctx, l.store, l.key+".check"); err != nil {
		return err
	}
	l.checked = true
	return nil
}
