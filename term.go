package leasehold

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// term is what a Lease handle shares with the timers that renew and watch it.
//
//	held ──release──▶ releasing ──▶ released
//	 │                 │     ▲
//	 │              failed   │ release again
//	 │                 ▼     │
//	 │                unreleased                the record runs out by itself
//	 ├──abandon──▶ abandoned ──release──▶ …     the record runs out by itself
//	 └──ran out, taken over, deleted, broken, overwritten──▶ lost
//
// The context ends when held ends, or earlier with Run's or Do's: the term then winds down, held and renewed for at most a TTL.
// Other goroutines of the same Lock stay out while the term is held or releasing, after a loss until its function has
// returned or, if it has none, the safety margin is over, and after abandon for as long as other processes do.
type term struct {
	lock      *Lock
	token     uint64
	ctx       context.Context
	cancel    context.CancelCauseFunc // ends ctx
	writeSlot chan struct{}           // holds a token while a write of this term is under way: one at a time

	mu          sync.Mutex // guards what follows; never held over I/O
	state       state
	cause       error         // why the term was lost
	ended       time.Time     // when held ended
	endedMono   time.Duration // the same by the monotonic clock
	stored      *version      // what stands in the store, so far as is known
	sent        clock.Reading // just before that was sent
	unconfirmed []write       // later writes of unknown outcome
	failure     error         // of the last renewal, if it failed
	expiry      clock.Timer   // for the next look at the clocks
	renewal     clock.Timer   // for the next renewal; nil if renewals are manual
	failures    int           // of renewals in a row
	renewUntil  time.Duration // the monotonic time after which there are none
	owned       bool          // a function runs, or ran, under this term, which ends with it
	guarding    bool          // it runs
	returned    bool          // it has returned, and nothing of it goes on
	overran     bool          // it still ran when the safety margin of a lost lease was over
	forgotten   bool          // the handle was garbage collected
}

type state uint8

const (
	held state = iota
	releasing
	unreleased // a release has failed; it may be tried again
	abandoned
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
	t.ctx, t.cancel = context.WithCancelCause(parent)
	t.mu.Lock()
	t.renewUntil = math.MaxInt64
	t.expiry = t.lock.clock.AfterFunc(t.untilNextCheck(), t.check)
	t.mu.Unlock()
	lease := &Lease{t: t}
	lease.ctx = context.WithValue(t.ctx, leaseKey{t.lock}, lease)
	// Neither t nor its timers refer to lease: once nobody else does, nobody can be acting under it.
	runtime.AddCleanup(lease, func(t *term) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.forgotten = true
	}, t)
	return lease
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

// blocks is for how long, at least, no other goroutine of this Lock may begin a term; 0 if it may.
func (t *term) blocks() time.Duration {
	t.valid() // a lease that has run out is lost
	ended := t.ctx.Err() != nil
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.state == held:
		return max(t.remaining(), 0) + t.lock.margin
	case t.state == releasing, !ended:
		return t.lock.attempt / 8
	case t.guarding:
		return t.lock.poll
	case t.state == abandoned:
		return max(t.sent.Mono+t.lock.withDrift(t.lock.ttl)-t.lock.clock.Now().Mono, 0)
	case t.state == lost && !t.returned:
		return max(t.endedMono+t.lock.margin-t.lock.clock.Now().Mono, 0)
	}
	return 0
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
	return t.lock.ttl - t.lock.margin - t.lock.clock.Now().Elapsed(t.sent)
}

func (t *term) left() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.remaining()
}

func (t *term) deadline() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	deadline := time.Now().Add(t.remaining())
	if t.state != held && t.ended.Before(deadline) {
		return t.ended
	}
	return deadline
}

// record is what the term last wrote; it is not changed any more.
func (t *term) record() *Record {
	t.mu.Lock()
	defer t.mu.Unlock()
	return &t.stored.rec
}

// untilNextCheck is when to look at the clocks again: at the deadline, and earlier in case the machine is suspended, which
// the timer's own clock does not count. The caller holds t.mu.
func (t *term) untilNextCheck() time.Duration { return max(min(t.remaining(), t.lock.ttl/5), 0) }

// check runs on the timer: it ends the context of a lease that has run out, and reports a function that goes on regardless.
func (t *term) check() {
	t.mu.Lock()
	ranOut := t.state == held && t.remaining() <= 0
	if t.state == held && !ranOut {
		t.expiry.Reset(t.untilNextCheck())
	}
	overran, cause := t.state == lost && t.guarding && !t.overran, t.cause
	t.overran = t.overran || overran
	t.mu.Unlock()
	if ranOut {
		_ = t.lose(errRanOut)
	}
	if overran {
		t.lock.emit(inBackground(t.ctx), Event{Kind: EventOverrun, Token: t.token, Holder: t.lock.identity, Err: cause})
		t.lock.log.Error("the lease is lost and its safety margin is over, but the function under it still runs: "+
			"somebody else may lead, and only fenced writes are safe now",
			"key", t.lock.key, "token", t.token, "cause", cause)
	}
}

// lose ends a held term for good and returns the cause.
func (t *term) lose(why error) error {
	t.mu.Lock()
	switch t.state {
	case lost:
		defer t.mu.Unlock()
		return t.cause
	case releasing, unreleased, abandoned, released: // it had ended anyway
		t.state = released
		gone, cause := t.remaining() <= 0, t.lostBecause(why)
		t.mu.Unlock()
		if gone { // it ran out before its release came through, and others were free to take it
			return errNothingToRelease
		}
		t.lock.emit(inBackground(t.ctx), Event{Kind: EventLost, Token: t.token, Holder: t.lock.identity, Err: cause})
		return cause
	}
	if why == errRanOut && t.failure != nil {
		why = fmt.Errorf("%w: %w", why, t.failure)
	}
	t.cause = t.lostBecause(why)
	t.over(lost)
	t.expiry.Reset(t.lock.margin) // for the report of an overrun
	cause := t.cause
	t.mu.Unlock()
	t.cancel(cause)
	t.lock.emit(inBackground(t.ctx), Event{Kind: EventLost, Token: t.token, Holder: t.lock.identity, Err: cause})
	t.lock.log.Warn("lease lost", "key", t.lock.key, "token", t.token, "cause", why)
	return cause
}

// errNothingToRelease says that the lock was free for others before this release was known to have come through.
var errNothingToRelease = errors.New("nothing is left to release")

func (t *term) lostBecause(why error) error {
	return t.lock.named(fmt.Errorf("%w (token %d): %w", ErrLost, t.token, why))
}

// over notes the end of held. The caller holds t.mu.
func (t *term) over(s state) {
	t.state, t.ended, t.endedMono = s, time.Now(), t.lock.clock.Now().Mono
	t.expiry.Stop()
	if t.renewal != nil {
		t.renewal.Stop()
	}
}

// ended reports whether err says that the term is over.
func ended(err error) bool { return errors.Is(err, ErrLost) || errors.Is(err, ErrReleased) }

// whyOver returns nil if the term is held and valid, else why not.
func (t *term) whyOver() error {
	if t.valid() {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state == lost {
		return t.cause
	}
	return t.lock.named(fmt.Errorf("%w (token %d)", ErrReleased, t.token))
}

// startRenewing renews until the term ends. Each renewal runs on the goroutine of a timer: a lease at rest has none of its own.
func (t *term) startRenewing() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lock.manual || t.renewal != nil {
		return
	}
	// Locks that were taken at one moment are not renewed at one moment.
	t.renewal = t.lock.clock.AfterFunc(t.untilRenewal(2), t.renewNext)
}

// stopRenewingAfterTTL begins to wind down: the term's context has ended, and a function that does not return must not hold
// the lock for ever.
func (t *term) stopRenewingAfterTTL() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.renewUntil = t.lock.clock.Now().Mono + t.lock.ttl
}

// renewNext makes one attempt and sets the timer for the next.
func (t *term) renewNext() {
	t.mu.Lock()
	over := t.state != held || t.lock.clock.Now().Mono >= t.renewUntil
	forgotten := t.forgotten
	t.mu.Unlock()
	switch {
	case over:
		return
	case forgotten:
		t.lock.log.Warn("a lease was dropped without Release: it is left to run out", "key", t.lock.key, "token", t.token)
		return
	}
	err := t.renew(inBackground(t.ctx), func(*Record) {})
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.state != held:
	case err == nil:
		t.failures = 0
		t.renewal.Reset(t.untilRenewal(20))
	default:
		t.renewal.Reset(t.retryDelay(&t.failures))
	}
}

// untilRenewal is early by up to one part of the interval, so that the renewals of many locks do not stay in step. The caller
// holds t.mu.
func (t *term) untilRenewal(part float64) time.Duration {
	interval := time.Duration(float64(t.lock.renew) * (1 - t.lock.clock.Rand()/part))
	return max(interval-(t.lock.clock.Now().Mono-t.sent.Mono), 0)
}

// retryDelay is the pause after one more failed write in a row: short enough for several tries before the deadline.
func (t *term) retryDelay(failures *int) time.Duration {
	return t.lock.double(failures, t.lock.attempt/8, t.lock.renew/2)
}

// retry repeats a write of the term until it succeeds, the term is over, or ctx ends.
func (t *term) retry(ctx context.Context, write func() error) error {
	for failures := 0; ; {
		err := write()
		if err == nil || ended(err) || errors.Is(err, errTooLarge) {
			return err
		}
		if sleepErr := t.lock.clock.Sleep(ctx, t.retryDelay(&failures)); sleepErr != nil && !errors.Is(err, sleepErr) {
			return fmt.Errorf("%w: %w", sleepErr, err)
		} else if sleepErr != nil {
			return err
		}
	}
}

// renew makes one attempt, with a record changed by edit.
func (t *term) renew(ctx context.Context, edit func(*Record)) error {
	if err := t.startWrite(ctx); err != nil {
		return err
	}
	defer t.endWrite()
	if err := t.whyOver(); err != nil {
		return err
	}
	began := t.lock.clock.Now()
	err := t.put(ctx, edit)
	if over := t.whyOver(); over != nil { // the answer came too late
		err = over
	}
	left := t.left()
	e := Event{Kind: EventRenewed, Token: t.token, Holder: t.lock.identity, Remaining: left, Err: err}
	e.Duration = t.lock.clock.Now().Mono - began.Mono
	switch {
	case err == nil:
		t.lock.emit(ctx, e)
	case !ended(err):
		t.mu.Lock()
		t.failure = err
		t.mu.Unlock()
		e.Kind = EventRenewFailed
		t.lock.emit(ctx, e)
		t.lock.log.WarnContext(ctx, "renewal failed, will retry",
			"key", t.lock.key, "token", t.token, "valid_for", left, "err", err)
	}
	return err
}

func (t *term) startWrite(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case t.writeSlot <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t *term) endWrite() { <-t.writeSlot }

// put writes the term's record, changed by edit, over the version it knows. The caller has started a write. If that shows that
// an earlier write of unknown outcome has landed, which may have been long ago, put writes again over that one.
func (t *term) put(ctx context.Context, edit func(*Record)) error {
	for {
		done, err := t.putOnce(ctx, edit)
		if done || err != nil {
			return err
		}
		if err := t.whyOver(); errors.Is(err, ErrLost) {
			return err
		}
	}
}

// putOnce reports whether this write has landed, or an earlier release, after which there is nothing to write. If neither has,
// and there is no error, an earlier renewal has landed.
func (t *term) putOnce(ctx context.Context, edit func(*Record)) (done bool, err error) {
	l := t.lock
	sent := l.clock.Now() // validity counts from before the first byte is sent
	t.mu.Lock()
	base, rec := t.stored, t.stored.rec
	rec.RenewedAt, rec.ExpiresAt = sent.Time(), sent.Time().Add(l.ttl)
	edit(&rec)
	l.sign(&rec)
	t.unconfirmed = append(t.unconfirmed, write{rec, sent})
	t.mu.Unlock()

	etag, err := l.put(ctx, base, rec)
	if err == nil {
		t.landed(ctx, etag, write{rec, sent})
		return true, nil
	}
	if !storeapi.Refused(err) && !errors.Is(err, storeapi.ErrConflict) {
		return false, err // nothing is known yet; the next attempt, over the same version, will tell
	}
	// Refused: by a write of ours that has landed after all, or by somebody else's.
	v, readErr := l.read(context.WithoutCancel(ctx))
	switch {
	case errors.Is(readErr, ErrCorruptRecord):
		return false, t.lose(fmt.Errorf("%w: %w", errOverwritten, readErr))
	case readErr != nil:
		return false, fmt.Errorf("a write was refused (%v), and reading the object back failed: %w", err, readErr)
	case v.same(base):
		return false, outcomeUnknown(err)
	case !v.exists:
		return false, t.lose(errDeleted)
	}
	t.mu.Lock()
	i := slices.IndexFunc(t.unconfirmed, func(w write) bool { return l.landed(w.rec, v.rec) })
	var ours write
	if i >= 0 {
		ours = t.unconfirmed[i]
	}
	earlier := t.unconfirmed[:len(t.unconfirmed)-1]
	mayBeReleased := slices.ContainsFunc(earlier, func(w write) bool { return w.rec.Released() })
	t.mu.Unlock()
	switch {
	case i < 0 && mayBeReleased: // an earlier attempt has landed, and somebody has taken what it released
		t.become(released)
		return false, errNothingToRelease
	case i < 0 && v.rec.Token == t.token && v.rec.Released():
		return false, t.lose(errBroken)
	case i < 0:
		return false, t.lose(fmt.Errorf("%w by %q with token %d", errTakenOver, v.rec.Holder, v.rec.Token))
	}
	t.landed(ctx, v.etag, ours)
	return ours.rec.Nonce == rec.Nonce || ours.rec.Released(), nil
}

// landed notes that w stands in the store, which settles every write before it.
func (t *term) landed(ctx context.Context, etag string, w write) {
	v := &version{exists: true, etag: etag, rec: w.rec, readBefore: w.sent.Mono, readAfter: t.lock.clock.Now().Mono}
	t.mu.Lock()
	t.stored, t.sent, t.unconfirmed, t.failure = v, w.sent, nil, nil
	if t.state == held {
		t.expiry.Reset(t.untilNextCheck())
	}
	t.mu.Unlock()
	t.lock.remember(ctx, v)
}

func (t *term) release(ctx context.Context) error {
	if t.valid() { // a lease that has just run out is lost first
		t.cancel(ErrReleased)
	}
	t.mu.Lock()
	told := t.state == abandoned
	switch t.state {
	case held:
		t.over(releasing)
	case lost:
		defer t.mu.Unlock()
		return t.cause
	}
	until := t.sent.Mono + t.lock.ttl
	t.mu.Unlock()

	if err := t.startWrite(context.WithoutCancel(ctx)); err != nil { // any write under way is bounded
		return err
	}
	defer t.endWrite()
	if !t.become(releasing) {
		return nil
	}
	var err error
	defer func() { // also when a Store or an observer panics
		e := Event{Kind: EventReleased, Token: t.token, Holder: t.lock.identity, Err: err}
		if t.become(unreleased) && err == nil {
			e.Err = errPanicked
		}
		if !told && !ended(err) {
			t.lock.emit(ctx, e)
		}
	}()
	err = t.writeRelease(ctx, until)
	return err
}

var errPanicked = errors.New("a panic in the store or in an observer")

// writeRelease writes the release until it has landed or the lease would have ended.
func (t *term) writeRelease(ctx context.Context, until time.Duration) error {
	for failures := 0; ; {
		err := t.put(ctx, func(r *Record) { r.ExpiresAt = time.Time{} })
		switch {
		case err == nil, err == errNothingToRelease:
			t.become(released)
			t.lock.log.InfoContext(ctx, "lock released", "key", t.lock.key, "token", t.token)
			return nil
		case ended(err):
			return err
		case storeapi.Permanent(err), t.lock.clock.Now().Mono >= until:
			return fmt.Errorf("releasing: %w", err)
		}
		if sleepErr := t.lock.clock.Sleep(ctx, t.retryDelay(&failures)); sleepErr != nil {
			return fmt.Errorf("releasing: %w: %w", sleepErr, err)
		}
	}
}

func (t *term) abandon() {
	if !t.valid() { // a lease that has just run out is lost
		return
	}
	t.cancel(ErrReleased)
	t.mu.Lock()
	first := t.state == held
	if first {
		t.over(abandoned)
	}
	t.mu.Unlock()
	if first {
		t.lock.emit(inBackground(t.ctx), Event{Kind: EventReleased, Token: t.token, Holder: t.lock.identity})
		t.lock.log.Info("lease abandoned: the lock is free when its TTL has passed", "key", t.lock.key, "token", t.token)
	}
}

// become goes on to another state of a release, and reports whether there is one: not if the term is released already.
func (t *term) become(s state) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state == released {
		return false
	}
	t.state = s
	return true
}

// releaseAfterFunction releases even if ctx has ended. It also waits for a renewal that may still be under way when a lease was
// lost.
func (t *term) releaseAfterFunction(ctx context.Context) error {
	err := t.release(context.WithoutCancel(ctx))
	t.writeSlot <- struct{}{}
	t.endWrite()
	return err
}

// startGuarding marks that a function runs under the term, which it then owns: there is no other one.
func (t *term) startGuarding() error {
	if err := t.whyOver(); err != nil {
		return err
	}
	t.mu.Lock()
	over := t.state != held || t.remaining() <= 0
	owned := t.owned
	if !over && !owned {
		t.owned, t.guarding = true, true
	}
	t.mu.Unlock()
	switch {
	case over: // since it was asked
		return t.whyOver()
	case owned:
		return fmt.Errorf("the lease (token %d) has its function already: that of an Elector, or of another call of Do", t.token)
	}
	return nil
}

// functionReturned marks that the function has returned.
func (t *term) functionReturned() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.returned = t.guarding
	t.guarding = false
}

// leftAlone marks that the function has returned, but that what it started may go on until the context ends.
func (t *term) leftAlone() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.guarding = false
}

// overrunning reports whether a function runs beyond the lease.
func (t *term) overrunning() bool {
	valid := t.valid()
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.guarding && !valid
}
