package leasehold

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/internal/bigstack"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// Callbacks is what an [Elector] calls; each may be nil.
type Callbacks struct {
	// OnStartedLeading runs in its own goroutine when a term begins. ctx ends before anyone else can lead; the function
	// must then return, because until it does the elector neither releases the lock nor campaigns again. If it returns
	// earlier the elector leads on until the term ends. If it panics, the term ends, the lock is released, and Run re-panics
	// with the same value.
	OnStartedLeading func(ctx context.Context, lease *Lease)
	// OnStoppedLeading is called on Run's goroutine, once for each OnStartedLeading, after that has returned and the
	// lock was released. cause matches [ErrLost], [ErrReleased] after a Resign, or is the cause of Run's ctx.
	OnStoppedLeading func(cause error)
	// OnNewLeader is called for every term that this elector sees begin, its own too, in order and never twice at once.
	// That of its own term comes on the goroutine of OnStartedLeading, just before it. It should be quick: while it
	// runs, a waiting elector does not poll. It may call Resign only with a ctx that has ended.
	OnNewLeader func(r Record)
}

// Elector campaigns for a lock, leads while it holds it, and campaigns again. All methods are safe for concurrent use.
type Elector struct {
	lock    *Lock
	cb      Callbacks
	running atomic.Bool
	since   atomic.Int64           // when Run began, or its last rest ends, by the monotonic clock
	leader  atomic.Pointer[Record] // last seen, other than in a term of one's own that goes on
	term    atomic.Pointer[leadership]
}

// leadership is a term being led.
type leadership struct {
	lease *Lease
	over  chan struct{} // closed after OnStoppedLeading
}

var errResigned = fmt.Errorf("%w: resigned", ErrReleased)

// NewElector returns an elector for a lock; every knob is the lock's. A lock with [WithManualRenewal] is refused.
func NewElector(l *Lock, cb Callbacks) (*Elector, error) {
	if err := l.made(); err != nil {
		return nil, err
	}
	if l.manual {
		return nil, errors.New("leasehold: an elector renews its lease itself: use a lock without WithManualRenewal")
	}
	return &Elector{lock: l, cb: cb}, nil
}

// Run campaigns, leads, and campaigns again, until ctx ends; then it steps down. The end of ctx is how Run is stopped, so it is
// no error, whatever its cause. Run returns nil then, unless the release has failed, or the store has never answered: then it
// returns what went wrong. Stepping down cancels the context of OnStartedLeading, waits for it to return while the lease is
// still renewed, for a TTL at most, releases the lock, and calls OnStoppedLeading. It uses at most two goroutines, its
// caller's included, a third one while a request is under way, and leaves none.
//
// Until it has led or has found the lock held, Run returns errors that retrying cannot fix; they match [ErrPermanent],
// [ErrUnsafeStore] or [ErrCorruptRecord]. After that it treats them as temporary and backs off.
// Run may be called again after it has returned; a second Run at the same time is an error.
func (e *Elector) Run(ctx context.Context) error {
	return e.run(ctx, func(*Lease) bool { return true })
}

// RunOnce is Run for a single term: it returns after the first one has ended, with an error that matches [ErrLost] if
// it was lost.
func (e *Elector) RunOnce(ctx context.Context) error {
	var over error
	err := e.run(ctx, func(lease *Lease) bool {
		over = lease.t.whyOver()
		return false
	})
	if err == nil && errors.Is(over, ErrLost) {
		return over
	}
	return err
}

func (e *Elector) run(ctx context.Context, again func(*Lease) bool) error {
	if err := e.lock.made(); err != nil {
		return err
	}
	if !e.running.CompareAndSwap(false, true) {
		return errors.New("leasehold: elector is already running")
	}
	defer e.running.Store(false)
	l := e.lock
	began := l.clock.Now().Mono
	e.since.Store(int64(began))
	l.failure.Store(nil)
	worked := false // a try has ended as it should: held, or acquired
	try := func() (lease *Lease, err error) {
		e.onOtherStack(func() { lease, err = l.try(ctx, ctx) })
		return lease, err
	}
	stop := func(err error) bool {
		if e.onHeld(err) {
			worked = true
		}
		return storeapi.Permanent(err) && !worked
	}
	for {
		lease, err := l.campaign(ctx, try, stop)
		if err != nil {
			_, left := errors.AsType[*leftoverError](err)
			neverAnswered := l.lastAnswered.Load() < int64(began) && l.failure.Load() != nil
			if ctx.Err() == nil || left || neverAnswered {
				return l.named(err)
			}
			return nil
		}
		worked = true
		err = e.lead(lease)
		if !again(lease) || ctx.Err() != nil {
			return err
		}
		if errors.Is(context.Cause(lease.t.ctx), ErrReleased) { // let every other candidate look at the free lock first
			rest := 2 * clock.Jitter(l.clock, l.poll)
			e.since.Store(int64(l.clock.Now().Mono + rest))
			if l.clock.Sleep(ctx, rest) != nil {
				return nil
			}
		}
	}
}

// onHeld takes the result of a failed try, and reports whether it is that somebody holds the lock.
func (e *Elector) onHeld(err error) bool {
	held, ok := errors.AsType[*HeldError](err)
	if !ok {
		return false
	}
	last := e.leader.Swap(&held.Record)
	if e.cb.OnNewLeader != nil && (last == nil || !sameTerm(*last, held.Record)) {
		e.calling(func() { e.cb.OnNewLeader(held.Record.clone()) })
	}
	return true
}

// calling runs a callback on Run's goroutine. That it sends no request meanwhile is not the store's fault.
func (e *Elector) calling(callback func()) {
	e.since.Store(math.MaxInt64)
	defer func() { e.since.Store(int64(e.lock.clock.Now().Mono)) }()
	callback()
}

// lead runs the callbacks of a term under its lease, on a goroutine of their own, until the term is over.
func (e *Elector) lead(lease *Lease) (err error) {
	l, term := e.lock, &leadership{lease: lease, over: make(chan struct{})}
	e.term.Store(term)
	started := false
	defer func() { // also after a panic in a callback
		e.leader.Store(lease.t.record())
		e.term.Store(nil)
		defer close(term.over)
		if started && e.cb.OnStoppedLeading != nil {
			e.calling(func() { e.cb.OnStoppedLeading(context.Cause(lease.t.ctx)) })
		}
	}()
	e.onOtherStack(func() {
		err = lease.do(lease.ctx, func(ctx context.Context, lease *Lease) error {
			if e.cb.OnNewLeader != nil {
				e.cb.OnNewLeader(lease.Record())
			}
			started = true
			if e.cb.OnStartedLeading != nil {
				e.cb.OnStartedLeading(ctx, lease)
			}
			if ctx.Err() == nil {
				lease.t.functionEnded(leftAlone)
				<-ctx.Done()
			}
			return nil
		})
	})
	if err != nil && !ended(err) {
		l.log.Warn("releasing failed, the next leader has to wait for a TTL", "key", l.key, "err", err)
		return err
	}
	return nil
}

// onOtherStack runs f, which sends requests. The elector's own goroutine waits most of the time and keeps a small stack.
func (e *Elector) onOtherStack(f func()) {
	bigstack.Run(f, func(panicked any, stack []byte) {
		e.lock.log.Error("a panic goes on in another goroutine; its stack is that of where it began",
			"key", e.lock.key, "panic", panicked, "stack", string(stack))
	})
}

// IsLeader reports whether this elector leads now: it holds a valid lease and has not begun to step down. It sends no
// request and never blocks.
func (e *Elector) IsLeader() bool {
	term := e.term.Load()
	return term != nil && term.lease.ctx.Err() == nil && term.lease.Valid()
}

// Leader returns the record of the leader last seen, which may be this elector's own and may have ended, and whether there
// was one. It sends no request and never blocks.
func (e *Elector) Leader() (Record, bool) {
	if term := e.term.Load(); term != nil {
		return term.lease.Record(), true
	}
	r := e.leader.Load()
	if r == nil {
		return Record{}, false
	}
	return r.clone(), true
}

// Resign steps down as the end of Run's ctx would, and then leaves the others two poll intervals to take over before
// the elector campaigns again. It waits until OnStoppedLeading has returned or ctx ends; with a ctx that has ended it
// only asks, which is how OnStartedLeading itself may call it. If the elector does not lead, it does nothing.
func (e *Elector) Resign(ctx context.Context) error {
	term := e.term.Load()
	if term == nil {
		return nil
	}
	term.lease.t.cancel(errResigned)
	select {
	case <-term.over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Check is for a health endpoint: it fails if OnStartedLeading runs on beyond its lease, or if a running elector has not
// been answered by the store for two TTLs (or poll intervals, if these are longer); the error then names what the last request
// failed with. Not to lead is healthy. Its argument is not used; with it, Check is a Kubernetes healthz.Checker.
func (e *Elector) Check(*http.Request) error {
	if !e.running.Load() {
		return nil
	}
	l := e.lock
	if term := e.term.Load(); term != nil && term.lease.t.overruns() {
		return l.named(fmt.Errorf("OnStartedLeading still runs though its lease (token %d) is over", term.lease.Token()))
	}
	since := e.since.Load()
	silent := l.clock.Now().Mono - time.Duration(max(l.lastAnswered.Load(), since))
	if since == math.MaxInt64 || silent <= 2*max(l.ttl, l.poll) || l.heldByUs() != nil {
		return nil
	}
	failure := errors.New("the request is still under way")
	if last := l.failure.Load(); last != nil {
		failure = *last
	}
	return l.named(fmt.Errorf("no answer from the store for %v: %w", silent.Round(time.Second), failure))
}
