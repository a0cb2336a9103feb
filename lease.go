package leasehold

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/internal/clock"
)

var (
	// ErrLost says that a lease has ended against its holder's will: not renewed in time, taken over, or its object
	// deleted, overwritten or broken by an administrator. The text says which.
	ErrLost = errors.New("leasehold: lease lost")
	// ErrReleased says that a lease has ended because its holder released it.
	ErrReleased = errors.New("leasehold: lease released")
)

// Lease is one term of a [Lock]: the right to act, until a deadline that renewals move. It renews itself in the
// background until it is released, lost, or forgotten by everyone who had it or its context. It is safe for concurrent use.
type Lease struct {
	t   *term
	ctx context.Context // its value leaseKey is the lease, so that who holds either keeps both
}

type leaseKey struct{}

// term is what a Lease handle shares with the goroutine that renews it.
type term struct {
	lock    *Lock
	token   uint64
	ctx     context.Context
	end     context.CancelCauseFunc // ends ctx
	writing chan struct{}           // holds a token while a write of this term is under way: one at a time

	mu        sync.Mutex // guards what follows; never held over I/O
	state     state
	cause     error         // why the term was lost
	at        *version      // what stands in the store, so far as is known
	sent      clock.Reading // just before that was sent
	limbo     []write       // later writes of unknown outcome
	failure   error         // of the last renewal, if it failed
	timer     clock.Timer   // for the next look at the clocks
	next      clock.Timer   // for the next renewal; nil if renewals are manual
	failures  int           // of renewals in a row
	until     time.Duration // the monotonic time after which there are none
	busy      bool          // a function guarded by this term runs
	overran   bool          // and it still ran when the safety margin of a lost lease was over
	forgotten bool          // the handle was garbage collected
}

type state uint8

const (
	held state = iota
	releasing
	released
	lost
)

// write is a record sent to the store.
type write struct {
	rec  Record
	sent clock.Reading
}

// start makes the term live, with a context that descends from parent.
func (t *term) start(parent context.Context) *Lease {
	t.ctx, t.end = context.WithCancelCause(parent)
	t.mu.Lock()
	t.until = math.MaxInt64
	t.timer = t.lock.o.clock.AfterFunc(t.nextCheck(), t.check)
	t.mu.Unlock()
	lease := &Lease{t: t}
	lease.ctx = context.WithValue(t.ctx, leaseKey{}, lease)
	// Neither t nor its goroutine refers to lease: once nobody else does, nobody can be acting under it.
	runtime.AddCleanup(lease, func(t *term) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.forgotten = true
	}, t)
	return lease
}

// Token returns the fencing token of this term: constant for the term, and higher than that of every term before it.
func (le *Lease) Token() uint64 { return le.t.token }

// Context returns a context that ends before anyone else can hold the lock, as long as this process runs at all. Its
// context.Cause then matches [ErrLost] or [ErrReleased]; under [Lock.Do] and [Elector.Run] it may also be that of their ctx.
// After a suspend of the whole machine it ends within a fifth of the TTL of waking; [Lease.Valid] knows at once.
func (le *Lease) Context() context.Context { return le.ctx }

// Valid reports whether the holder may act now. It looks at all clocks, without a request: false if the monotonic
// clock, with what the wall clock or, on Linux, CLOCK_BOOTTIME have counted beyond it, says that the lease has run out.
// Once false it stays false.
func (le *Lease) Valid() bool { return le.t.valid() }

// Deadline returns until when the lease is valid unless renewed: the TTL less the safety margin, from before the last
// renewal was sent.
func (le *Lease) Deadline() time.Time {
	_, left := le.t.snapshot()
	return time.Now().Add(left)
}

// Record returns the record of this term as last written.
func (le *Lease) Record() Record {
	rec, _ := le.t.snapshot()
	return rec
}

// Renew extends the lease now, whatever the background does, and so proves it with the store: do it before a step that
// must not be done by two. It retries what may pass until ctx ends or the lease does. The error matches [ErrLost],
// [ErrReleased] or ctx's error.
func (le *Lease) Renew(ctx context.Context) error {
	return le.t.retry(ctx, func() error { return le.t.renew(ctx, func(*Record) {}) })
}

// Commit puts a small state of the leader's into the lock object itself, in one request that also renews the lease:
// it succeeds only if this term goes on, and no former leader's commit can ever follow. The payload, 32 KiB at most, is
// kept by release and takeover; everybody reads it as [Record].Payload, through [Lock.Inspect], [Lock.Watch] or
// [Lease.Record]. Commit retries as [Lease.Renew] does, with its errors. After one that matches [ErrLost] or ctx's error
// the outcome of the last attempt may be unknown: Inspect tells.
func (le *Lease) Commit(ctx context.Context, payload []byte) error {
	if len(payload) > maxPayload {
		return fmt.Errorf("leasehold: payload of %d bytes is over %d", len(payload), maxPayload)
	}
	payload = bytes.Clone(payload)
	return le.t.retry(ctx, func() error { return le.t.renew(ctx, func(r *Record) { r.Payload = payload }) })
}

// Release ends the lease: first its context, then the record, which keeps the token. Releasing twice does no harm.
// On a lost lease it touches nothing and returns an error that matches [ErrLost]. It retries what may pass until ctx ends
// or the lease would have; one attempt, bounded by a fraction of the TTL, is made even if ctx has ended already, so
// that `defer lease.Release(ctx)` is right. After another error the lock becomes free when the TTL has passed.
func (le *Lease) Release(ctx context.Context) error { return le.t.release(ctx) }

// retry repeats a write of the term until it succeeds, the term is over, or ctx ends.
func (t *term) retry(ctx context.Context, write func() error) error {
	for failures := 0; ; {
		err := write()
		switch {
		case err == errEarlier:
			continue
		case err == nil, ended(err), errors.Is(err, errTooLarge):
			return err
		}
		if sleepErr := t.lock.o.clock.Sleep(ctx, t.retryDelay(&failures)); sleepErr != nil {
			return fmt.Errorf("leasehold: lock %q: %w: %w", t.lock.key, sleepErr, err)
		}
	}
}

func (t *term) valid() bool {
	t.mu.Lock()
	ok, ranOut := t.state == held, t.remaining() <= 0
	t.mu.Unlock()
	if ok && ranOut {
		_ = t.lose(errRanOut)
	}
	return ok && !ranOut
}

// Why a lease was lost.
var (
	errRanOut      = errors.New("not renewed in time")
	errTakenOver   = errors.New("taken over")
	errDeleted     = errors.New("the lock object was deleted")
	errBroken      = errors.New("broken by an administrator")
	errOverwritten = errors.New("overwritten")
)

// remaining is how long the lease is still valid, by the most pessimistic clock. The caller holds t.mu.
func (t *term) remaining() time.Duration {
	return t.lock.o.ttl - t.lock.o.margin - t.lock.o.clock.Now().Elapsed(t.sent)
}

// record is what the term last wrote; it is not changed any more.
func (t *term) record() *Record {
	t.mu.Lock()
	defer t.mu.Unlock()
	return &t.at.rec
}

func (t *term) snapshot() (Record, time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.at.rec, t.remaining()
}

// nextCheck is when to look at the clocks again: at the deadline, and earlier should the machine be suspended, which
// the timer's own clock does not count. The caller holds t.mu.
func (t *term) nextCheck() time.Duration { return max(min(t.remaining(), t.lock.o.ttl/5), 0) }

// check runs on the timer: it ends the context of a lease that has run out, and reports a function that goes on regardless.
func (t *term) check() {
	t.mu.Lock()
	ranOut := t.state == held && t.remaining() <= 0
	if t.state == held && !ranOut {
		t.timer.Reset(t.nextCheck())
	}
	overran := t.state == lost && t.busy && !t.overran
	t.overran = t.overran || overran
	t.mu.Unlock()
	if ranOut {
		_ = t.lose(errRanOut)
	}
	if overran {
		t.lock.emit(Event{Kind: EventOverrun, Token: t.token, Holder: t.lock.o.identity, Err: t.cause})
		t.lock.o.log.Error("the lease is lost and its safety margin over, but the function it guards still runs: "+
			"somebody else may lead; only fenced writes are safe now",
			"key", t.lock.key, "token", t.token, "cause", t.cause)
	}
}

// lose ends a held term for good and returns the cause.
func (t *term) lose(why error) error {
	t.mu.Lock()
	switch t.state {
	case lost:
		defer t.mu.Unlock()
		return t.cause
	case releasing, released: // it had ended anyway
		t.state = released
		defer t.mu.Unlock()
		return fmt.Errorf("%w: lock %q, token %d: %w", ErrLost, t.lock.key, t.token, why)
	}
	if why == errRanOut && t.failure != nil {
		why = fmt.Errorf("%w: %w", why, t.failure)
	}
	t.state = lost
	t.cause = fmt.Errorf("%w: lock %q, token %d: %w", ErrLost, t.lock.key, t.token, why)
	t.timer.Reset(t.lock.o.margin) // for the report of an overrun
	cause := t.cause
	t.mu.Unlock()
	t.end(cause)
	t.lock.emit(Event{Kind: EventLost, Token: t.token, Holder: t.lock.o.identity, Err: cause})
	t.lock.o.log.Warn("lease lost", "key", t.lock.key, "token", t.token, "cause", why)
	return cause
}

// ended reports whether err says that the term is over.
func ended(err error) bool { return errors.Is(err, ErrLost) || errors.Is(err, ErrReleased) }

// live returns nil if the term is held and valid, else why not.
func (t *term) live() error {
	if t.valid() {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state == lost {
		return t.cause
	}
	return fmt.Errorf("%w: lock %q, token %d", ErrReleased, t.lock.key, t.token)
}

// keep renews until the term ends. Each renewal runs on the goroutine of a timer: a lease at rest has none of its own.
func (t *term) keep() {
	if t.lock.o.manual {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	// Locks that were taken at one moment are not renewed at one moment.
	t.next = t.lock.o.clock.AfterFunc(t.untilRenewal(2), t.renewNext)
}

// windDown has renewals end after a TTL: the term's context has ended, and a function that does not stop must not hold the
// lock for ever.
func (t *term) windDown() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.until = t.lock.o.clock.Now().Mono + t.lock.o.ttl
}

// renewNext makes one attempt and sets the timer for the next.
func (t *term) renewNext() {
	t.mu.Lock()
	over := t.state != held || t.lock.o.clock.Now().Mono >= t.until
	forgotten := t.forgotten
	t.mu.Unlock()
	switch {
	case over:
		return
	case forgotten:
		t.lock.o.log.Warn("lease was forgotten without Release: it is left to run out", "key", t.lock.key, "token", t.token)
		return
	}
	err := t.renew(context.WithoutCancel(t.ctx), func(*Record) {})
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.state != held:
	case err == nil:
		t.failures = 0
		t.next.Reset(t.untilRenewal(20))
	case err == errEarlier:
		t.next.Reset(0)
	default:
		t.next.Reset(t.retryDelay(&t.failures))
	}
}

// untilRenewal is early by up to one part of the interval, lest the renewals of many locks stay in step. The caller holds
// t.mu.
func (t *term) untilRenewal(part float64) time.Duration {
	interval := time.Duration(float64(t.lock.o.renew) * (1 - t.lock.o.clock.Rand()/part))
	return max(interval-(t.lock.o.clock.Now().Mono-t.sent.Mono), 0)
}

// retryDelay is the pause after one more failed renewal in a row: short enough for several tries before the deadline.
func (t *term) retryDelay(failures *int) time.Duration {
	*failures = min(*failures+1, 16)
	return t.lock.jitter(min(t.lock.o.attempt/8<<(*failures-1), t.lock.o.renew/2))
}

// renew makes one attempt, with a record changed by edit.
func (t *term) renew(ctx context.Context, edit func(*Record)) error {
	if err := t.startWrite(ctx); err != nil {
		return err
	}
	defer t.endWrite()
	if err := t.live(); err != nil {
		return err
	}
	began := t.lock.o.clock.Now()
	err := t.put(ctx, edit)
	if over := t.live(); over != nil { // the answer came too late
		err = over
	}
	_, left := t.snapshot()
	e := Event{Kind: EventRenewed, Token: t.token, Holder: t.lock.o.identity, Remaining: left, Err: err}
	e.Duration = t.lock.o.clock.Now().Mono - began.Mono
	switch {
	case err == nil:
		t.lock.emit(e)
	case err == errEarlier: // which may have been long ago, if the machine slept: the next attempt follows at once
	case !ended(err):
		t.mu.Lock()
		t.failure = err
		t.mu.Unlock()
		e.Kind = EventRenewFailed
		t.lock.emit(e)
		t.lock.o.log.WarnContext(ctx, "renewal failed, will retry",
			"key", t.lock.key, "token", t.token, "valid_for", left, "err", err)
	}
	return err
}

func (t *term) startWrite(ctx context.Context) error {
	select {
	case t.writing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t *term) endWrite() { <-t.writing }

// errEarlier says that not this write has landed but one before it, whose outcome was unknown until now.
var errEarlier = errors.New("an earlier write of this lease has landed")

// put makes one attempt to write the term's record, changed by edit, over the version it knows. The caller has started
// a write.
func (t *term) put(ctx context.Context, edit func(*Record)) error {
	l := t.lock
	sent := l.o.clock.Now() // validity counts from before the first byte is sent
	t.mu.Lock()
	base, rec := t.at, t.at.rec
	rec.Nonce, rec.RenewedAt, rec.ExpiresAt = l.nonce(), sent.Time(), sent.Time().Add(l.o.ttl)
	edit(&rec)
	t.limbo = append(t.limbo, write{rec, sent})
	t.mu.Unlock()

	etag, err := l.put(ctx, base, rec)
	if err == nil {
		t.landed(etag, write{rec, sent})
		return nil
	}
	if !errors.Is(err, ErrPreconditionFailed) && !errors.Is(err, ErrNotExist) && !errors.Is(err, errConflict) {
		return err // nothing is known yet; the next attempt, over the same version, will tell
	}
	// Refused: by a write of ours that has landed after all, or by somebody else's.
	v, lookErr := l.look(context.WithoutCancel(ctx))
	switch {
	case errors.Is(lookErr, ErrCorruptRecord):
		return t.lose(fmt.Errorf("%w: %w", errOverwritten, lookErr))
	case lookErr != nil:
		return fmt.Errorf("%w (and reading it back: %w)", err, lookErr)
	case v.same(base):
		return err
	case !v.exists:
		return t.lose(errDeleted)
	}
	t.mu.Lock()
	i := slices.IndexFunc(t.limbo, func(w write) bool { return w.rec.Nonce == v.rec.Nonce })
	var ours write
	if i >= 0 {
		ours = t.limbo[i]
	}
	t.mu.Unlock()
	switch {
	case i < 0 && v.rec.Token == t.token && v.rec.Released():
		return t.lose(errBroken)
	case i < 0:
		return t.lose(fmt.Errorf("%w by %q with token %d", errTakenOver, v.rec.Holder, v.rec.Token))
	}
	t.landed(v.etag, ours)
	if ours.rec.Nonce != rec.Nonce {
		return errEarlier
	}
	return nil
}

// landed notes that w stands in the store, which settles every write before it.
func (t *term) landed(etag string, w write) {
	at := &version{exists: true, etag: etag, rec: w.rec, seen: t.lock.o.clock.Now().Mono}
	t.mu.Lock()
	t.at, t.sent, t.limbo, t.failure = at, w.sent, nil, nil
	if t.state == held {
		t.timer.Reset(t.nextCheck())
	}
	t.mu.Unlock()
	t.lock.saw(at)
}

func (t *term) release(ctx context.Context) error {
	if t.valid() { // a lease that has just run out is lost first
		t.end(ErrReleased)
	}
	t.mu.Lock()
	switch t.state {
	case held:
		t.state = releasing
		t.timer.Stop()
		if t.next != nil {
			t.next.Stop()
		}
	case lost:
		defer t.mu.Unlock()
		return t.cause
	}
	until := t.sent.Mono + t.lock.o.ttl
	t.mu.Unlock()

	if err := t.startWrite(context.WithoutCancel(ctx)); err != nil { // any write under way is bounded
		return err
	}
	defer t.endWrite()
	for failures := 0; ; {
		t.mu.Lock()
		done := t.state == released
		t.mu.Unlock()
		if done {
			return nil
		}
		err := t.put(ctx, func(r *Record) { r.ExpiresAt = time.Time{} })
		switch {
		case err == nil:
			t.mu.Lock()
			t.state = released
			t.mu.Unlock()
			t.lock.emit(Event{Kind: EventReleased, Token: t.token, Holder: t.lock.o.identity})
			t.lock.o.log.InfoContext(ctx, "lock released", "key", t.lock.key, "token", t.token)
			return nil
		case err == errEarlier:
			continue
		case ended(err):
			return err
		case permanent(err), t.lock.o.clock.Now().Mono >= until:
			return fmt.Errorf("leasehold: releasing: %w", err)
		}
		if sleepErr := t.lock.o.clock.Sleep(ctx, t.retryDelay(&failures)); sleepErr != nil {
			return fmt.Errorf("leasehold: releasing: %w: %w", sleepErr, err)
		}
	}
}

// finish releases after a guarded function has returned, even if ctx has ended. It also waits for a renewal that may still
// be under way when a lease was lost.
func (t *term) finish(ctx context.Context) error {
	err := t.release(context.WithoutCancel(ctx))
	t.writing <- struct{}{}
	t.endWrite()
	return err
}

// guard marks whether a function that the term guards runs.
func (t *term) guard(busy bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.busy = busy
}

// overrun reports whether a guarded function runs beyond the lease.
func (t *term) overrun() bool {
	valid := t.valid()
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.busy && !valid
}

// do runs fn on this goroutine under the lease, then releases it.
func (le *Lease) do(fn func(context.Context, *Lease) error) (err error) {
	t := le.t
	t.guard(true)
	t.keep()
	stop := context.AfterFunc(t.ctx, t.windDown)
	defer func() { // also when fn panics
		stop()
		t.guard(false)
		lossErr := t.live()
		releaseErr := t.finish(le.ctx)
		if errors.Is(lossErr, ErrLost) {
			releaseErr = lossErr // release can only repeat it
		}
		err = errors.Join(err, releaseErr)
	}()
	return fn(le.ctx, le)
}
