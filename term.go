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
	"github.com/leasehold-go/leasehold/internal/ctxmutex"
	"github.com/leasehold-go/leasehold/internal/warnlog"
)

// term is what a Lease shares with the timers that renew and watch it. Its state:
//
//	held ──release──▶ releasing ──landed, or replaced──▶ released
//	 │                 │  ▲  ▲
//	 │            failed  │  └──release──┐
//	 │                 ▼  │ release      │
//	 │              unreleased           │
//	 ├──abandon─────────────────────▶ abandoned
//	 └──ran out, or replaced──▶ lost
//
// "Replaced" means that the lock was taken over, or the object deleted, broken or overwritten. The
// record of an unreleased or abandoned term expires by itself. A held term leads until its context
// ends. Under Do or Run it then winds down: it stays held, renewed for one TTL more at most,
// because its function may still run.
//
// Other goroutines of the same Lock stay out while the term is held or releasing, and until its
// function has returned. A lost term without a function that has returned keeps them out for the
// safety margin too, and an abandoned one for as long as it keeps other processes out.
type term struct {
	lock    *register
	token   uint64
	secret  string         // of its handle
	former  formerLease    // if it was resumed
	writing ctxmutex.Mutex // locked while a write of this term is under way

	mu    sync.Mutex // guards what follows; never held over I/O
	state state
	// The lease's context. It is nil once the term is not held any more, so that a Lock, which
	// remembers its last term, does not keep what the caller's context has.
	ctx         context.Context
	cancel      context.CancelCauseFunc // ends ctx; nil after held
	function    function
	cause       error            // why the term was lost, or was replaced after held
	ended       time.Time        // when held ended
	endedMono   time.Duration    // the same by the monotonic clock
	stored      *version         // the object in the store, as far as is known
	earlier     [2]Record        // stored before, which a restore may bring back: what sameWrite compares
	sent        clock.Reading    // just before that was sent
	unconfirmed []write          // later writes whose outcome is unknown
	failure     error            // of the last renewal, if it failed
	expiry      clock.Timer      // for the next look at the clocks
	renewal     clock.Timer      // for the next renewal; nil if renewals are manual
	failures    int              // of renewals in a row
	failing     warnlog.Failures // what the log says of them
	renewUntil  time.Duration    // monotonic time after which there are no renewals
	offered     bool             // the lock was offered, and a candidate may have taken it
	toldEnd     bool             // EventReleased reports the end of the term, so EventLost does not

	forgotten *atomic.Bool // the Lease was garbage collected
}

// write is a record sent to the store.
type write struct {
	rec  Record
	sent clock.Reading
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

// function is the state of the function that a term was given: see Lease.Do.
type function uint8

const (
	noFunction function = iota
	running
	overrunning // it still ran when the lease was lost and the safety margin had passed
	leftAlone   // it has returned, but what it started may still run until the context ends
	returned    // it has returned, and nothing that it started still runs
)

// formerLease is the lease that wrote the version from which a resumed term continues. Its holder
// must have stopped, but if it has not, its lease may last until then. For others, no write of the
// resumed term shortens that.
type formerLease struct {
	ttl   time.Duration
	until time.Duration // monotonic time
}

// renewed makes rec one that counts from sent.
func (r *register) renewed(rec *Record, sent clock.Reading, former formerLease) {
	rec.TTL = r.ttl
	if sent.Mono < former.until {
		rec.TTL = max(r.ttl, former.ttl)
	}
	rec.RenewedAt, rec.ExpiresAt = sent.Time(), sent.Time().Add(rec.TTL)
}

// start makes the term live, and returns its context, which descends from parent.
func (t *term) start(parent context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(parent)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ctx, t.cancel = ctx, cancel
	t.renewUntil = math.MaxInt64
	t.expiry = t.lock.clock.AfterFunc(t.untilNextCheck(), t.check)
	return ctx
}

func (t *term) valid() bool {
	t.mu.Lock()
	ok, ranOut := t.state == held, t.remaining() <= 0
	t.mu.Unlock()
	if ok && ranOut {
		t.lose(errRanOut)
	}
	return ok && !ranOut
}

// blocks is how long, at least, no other goroutine of this Lock may begin a term. It is 0 if one
// may.
func (t *term) blocks() time.Duration {
	t.valid() // a lease that has run out is lost
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.state == held:
		return max(t.remaining(), 0) + t.lock.margin
	case t.state == releasing:
		return t.lock.attempt / 8
	case t.guarding():
		return t.lock.poll
	case t.state == abandoned:
		return t.untilRunOut()
	case t.state == lost && t.function != returned:
		return t.marginLeft()
	}
	return 0
}

// untilRunOut is how long other processes may stay out unless the lock is released: a write without
// an answer may have landed. The caller holds t.mu.
func (t *term) untilRunOut() time.Duration {
	sent := t.sent
	if n := len(t.unconfirmed); n > 0 {
		sent = t.unconfirmed[n-1].sent
	}
	return max(sent.Mono+t.lock.withDrift(t.stored.rec.TTL)-t.lock.clock.Now().Mono, 0)
}

// marginLeft is how much of the safety margin after the end of held is left. The caller holds t.mu.
func (t *term) marginLeft() time.Duration {
	return max(t.endedMono+t.lock.margin-t.lock.clock.Now().Mono, 0)
}

// remaining is how long the lease is still valid, by the most pessimistic clock. The caller holds
// t.mu.
func (t *term) remaining() time.Duration {
	return t.lock.ttl - t.lock.margin - t.lock.clock.Now().Elapsed(t.sent)
}

// validFor is remaining for callers that do not hold t.mu.
func (t *term) validFor() time.Duration {
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

// record is what the term wrote last. The caller must not change it.
func (t *term) record() *Record {
	t.mu.Lock()
	defer t.mu.Unlock()
	return &t.stored.rec
}

// untilNextCheck is when to look at the clocks again: at the deadline, or earlier, because the
// timer's own clock does not count the time that the machine is suspended. The caller holds t.mu.
func (t *term) untilNextCheck() time.Duration { return max(min(t.remaining(), t.lock.ttl/5), 0) }

// check runs on the timer. It ends the context of a lease that has run out, and reports a function
// that still runs.
func (t *term) check() {
	t.mu.Lock()
	ranOut := t.state == held && t.remaining() <= 0
	if t.state == held && !ranOut {
		t.expiry.Reset(t.untilNextCheck())
	}
	overran, cause := t.state == lost && t.function == running && t.marginLeft() <= 0, t.cause
	if overran {
		t.function = overrunning
	}
	t.mu.Unlock()
	if ranOut {
		t.lose(errRanOut)
	}
	if overran {
		t.announce(EventOverrun, cause)
		t.lock.log.Error("function still runs after lease and safety margin ended", "key", t.lock.key, "token", t.token,
			"cause", cause, "effect", "another holder may act: only fenced writes are safe")
	}
}

// errNothingToRelease says that the lock was free for others before this release was known to have
// landed.
var errNothingToRelease = errors.New("nothing is left to release")

// lose ends a held term for good. A term that is not held stays as it is.
func (t *term) lose(why error) {
	t.mu.Lock()
	if t.state != held {
		t.mu.Unlock()
		return
	}
	switch {
	case !errors.Is(why, errRanOut):
	case t.failure != nil:
		why = fmt.Errorf("%w: %w", why, t.failure)
	case t.guarding() && !t.lock.manual && t.lock.clock.Now().Mono >= t.renewUntil:
		why = fmt.Errorf("%w: the function still runs a TTL after its context has ended", why)
	}
	cause := t.lossOf(why)
	t.cause = cause
	t.over(lost, cause)
	t.expiry.Reset(t.lock.margin) // for the report of an overrun
	t.mu.Unlock()
	t.announceLoss(cause, why)
}

// replaced loses a term whose object is not its own any more, and returns the error of the write
// that has found this out. If the holder has ended the term before, the write was a release, and
// there may be nothing to release.
func (t *term) replaced(why error) error {
	t.lose(why)
	t.mu.Lock()
	if t.state == lost {
		defer t.mu.Unlock()
		return t.cause
	}
	if t.remaining() <= 0 { // others were free to take it; the release under way notes the end
		t.mu.Unlock()
		return errNothingToRelease
	}
	cause, toldEnd := t.lossOf(why), t.toldEnd
	if t.state != abandoned { // which keeps this Lock out until it has run out, whatever a read says
		t.state, t.cause = released, cause
	}
	t.mu.Unlock()
	if !toldEnd {
		t.announceLoss(cause, why)
	}
	return cause
}

func (t *term) lossOf(why error) error {
	return t.lock.named(fmt.Errorf("%w (token %d): %w", ErrLost, t.token, why))
}

func (t *term) announceLoss(cause, why error) {
	t.announce(EventLost, cause)
	t.lock.log.Warn("lease lost", "key", t.lock.key, "token", t.token, "cause", why)
}

// over moves on from held, and ends the context. The caller holds t.mu.
func (t *term) over(s state, cause error) {
	t.cancel(cause)
	t.ctx, t.cancel = nil, nil
	t.state, t.ended, t.endedMono = s, time.Now(), t.lock.clock.Now().Mono
	t.expiry.Stop()
	if t.renewal != nil {
		t.renewal.Stop()
	}
}

// ended reports whether err says that the term has ended.
func ended(err error) bool { return errors.Is(err, ErrLost) || errors.Is(err, ErrReleased) }

// whyOver returns nil if the term is held and valid, else why it is not.
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

// event is an event of this term.
func (t *term) event(kind EventKind, err error) Event {
	return Event{Kind: kind, Token: t.token, Holder: t.lock.holder, Err: err}
}

// announce emits an event that no call has caused.
func (t *term) announce(kind EventKind, err error) {
	t.lock.emit(context.Background(), t.event(kind, err))
}

// endContext ends the context of a held term, which then winds down.
func (t *term) endContext(cause error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state == held {
		t.cancel(cause)
	}
}

// startGuarding notes that a function runs under the term. It refuses a second one.
func (t *term) startGuarding() error {
	t.valid() // a lease that has run out is lost
	t.mu.Lock()
	over, owned := t.state != held, t.function != noFunction
	if !over && !owned {
		t.function = running
	}
	t.mu.Unlock()
	switch {
	case over:
		return t.whyOver()
	case owned:
		return fmt.Errorf("the lease (token %d) has its function already, from an Elector or another call of Do",
			t.token)
	}
	return nil
}

// functionEnded notes that the function has returned, unless that was noted before.
func (t *term) functionEnded(as function) {
	t.mu.Lock()
	if t.guarding() {
		t.function = as
	}
	t.mu.Unlock()
}

// guarding reports whether a function runs. The caller holds t.mu.
func (t *term) guarding() bool { return t.function == running || t.function == overrunning }

// overruns reports whether the function still runs although the lease has ended.
func (t *term) overruns() bool {
	valid := t.valid()
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.guarding() && !valid
}

// isReleasing reports whether a release is under way.
func (t *term) isReleasing() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state == releasing
}

// become moves on to another state of a release, and reports whether it did. A term that is
// released stays released.
func (t *term) become(s state) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state == released {
		return false
	}
	t.state = s
	t.toldEnd = t.toldEnd || s == unreleased
	return true
}
