package leasehold

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// Callbacks is what an [Elector] calls; each may be nil.
type Callbacks struct {
	// OnStartedLeading runs in its own goroutine when a term begins. ctx ends before anyone else can lead; the function
	// must then return, for until it does the elector neither releases the lock nor campaigns again. If it returns
	// earlier the elector leads on until the term ends. A panic in it ends the term and goes on in Run.
	OnStartedLeading func(ctx context.Context, lease *Lease)
	// OnStoppedLeading is called on Run's goroutine, once for each OnStartedLeading, after that has returned and the
	// lock was released. cause matches [ErrLost], [ErrReleased] after a Resign, or is the cause of Run's ctx.
	OnStoppedLeading func(cause error)
	// OnNewLeader is called for every term that this elector sees begin, its own too, in order and never twice at once.
	// That of its own term comes on the goroutine of OnStartedLeading, just before it. It should be quick: while it
	// runs, a waiting elector does not poll.
	OnNewLeader func(r Record)
}

// Elector campaigns for a lock, leads while it holds it, and campaigns again. All methods are safe for concurrent use.
type Elector struct {
	lock    *Lock
	cb      Callbacks
	running atomic.Bool
	since   atomic.Int64           // when Run began, by the monotonic clock
	leader  atomic.Pointer[Record] // last seen, other than in a term of one's own that goes on
	term    atomic.Pointer[leadership]
}

// leadership is a term being led.
type leadership struct {
	lease    *Lease
	callback sync.WaitGroup // OnStartedLeading, while it runs
	panicked *callbackPanic // by the callback
	over     chan struct{}  // closed after OnStoppedLeading
	resigned atomic.Bool
}

var errResigned = fmt.Errorf("%w: resigned", ErrReleased)

// NewElector returns an elector for a lock; every knob is the lock's. A lock with [WithManualRenewal] is refused.
func NewElector(l *Lock, cb Callbacks) (*Elector, error) {
	switch {
	case l == nil:
		return nil, errors.New("leasehold: lock is nil")
	case l.o.manual:
		return nil, errors.New("leasehold: an elector renews its lease itself: use a lock without WithManualRenewal")
	}
	return &Elector{lock: l, cb: cb}, nil
}

// Run campaigns, leads, and campaigns again, until ctx ends; then it steps down and returns nil, or what went wrong
// with the release. Stepping down cancels the context of OnStartedLeading, waits for it to return while the lease is
// still renewed, for a TTL at most, releases the lock, and calls OnStoppedLeading. It uses at most two goroutines, its
// caller's included, a third one while a request is under way, and leaves none.
//
// An error that no waiting can heal ends Run, if the store has not answered before: what has worked once can heal, so
// later on it only backs off. Such errors match [ErrPermanent], [ErrUnsafeStore] or [ErrCorruptRecord].
// Run may be called again after it has returned; a second Run at the same time is an error.
func (e *Elector) Run(ctx context.Context) error {
	return e.run(ctx, func(term *leadership) bool { return true })
}

// RunOnce is Run for a single term: it returns after the first one has ended, with an error that matches [ErrLost] if
// it was lost.
func (e *Elector) RunOnce(ctx context.Context) error {
	var cause error
	err := e.run(ctx, func(term *leadership) bool {
		cause = context.Cause(term.lease.Context())
		return false
	})
	if errors.Is(cause, ErrLost) {
		err = errors.Join(cause, err)
	}
	return err
}

func (e *Elector) run(ctx context.Context, again func(*leadership) bool) error {
	if !e.running.CompareAndSwap(false, true) {
		return errors.New("leasehold: elector is already running")
	}
	defer e.running.Store(false)
	clk := e.lock.o.clock
	e.since.Store(int64(clk.Now().Mono))
	try := func() attempt { return aside(func() attempt { return e.lock.try(ctx, ctx) }) }
	for {
		a := e.lock.campaign(ctx, try, e.saw)
		if a.err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return a.err
		}
		term := aside(func() *leadership { return e.begin(a.lease) })
		err := e.lead(ctx, term)
		if !again(term) || ctx.Err() != nil {
			return err
		}
		if term.resigned.Load() { // let every other candidate look at the free lock first
			if clk.Sleep(ctx, 2*e.lock.jitter(e.lock.o.poll)) != nil {
				return nil
			}
		}
	}
}

// saw takes the result of one failed try, and reports whether to give up.
func (e *Elector) saw(err error) (stop bool) {
	if held, ok := errors.AsType[*HeldError](err); ok {
		last := e.leader.Swap(&held.Record)
		news := last == nil || last.Token != held.Record.Token || last.Holder != held.Record.Holder
		if news && e.cb.OnNewLeader != nil {
			e.cb.OnNewLeader(held.Record)
		}
		return false
	}
	e.lock.o.log.Warn("campaigning failed", "key", e.lock.key, "err", err)
	return permanent(err) && e.lock.reply.Load() < e.since.Load()
}

// begin makes a lease a term that is led: the callback runs on a goroutine of its own, renewals run on that of a timer.
func (e *Elector) begin(lease *Lease) *leadership {
	term := &leadership{lease: lease, over: make(chan struct{})}
	e.term.Store(term)
	lease.t.keep()
	if e.cb.OnNewLeader != nil || e.cb.OnStartedLeading != nil {
		lease.t.guard(true)
		term.callback.Go(func() {
			defer func() {
				if v := recover(); v != nil {
					term.panicked = &callbackPanic{v, debug.Stack()}
					lease.t.end(term.panicked)
				}
				lease.t.guard(false)
			}()
			if e.cb.OnNewLeader != nil {
				e.cb.OnNewLeader(lease.Record())
			}
			if e.cb.OnStartedLeading != nil {
				e.cb.OnStartedLeading(lease.Context(), lease)
			}
		})
	}
	return term
}

// lead waits for the end of a term, and ends it for the others as well.
func (e *Elector) lead(ctx context.Context, term *leadership) error {
	defer close(term.over)
	t := term.lease.t
	<-t.ctx.Done()
	t.windDown()
	term.callback.Wait()
	defer func() {
		e.leader.Store(t.record())
		e.term.Store(nil)
		if e.cb.OnStoppedLeading != nil {
			e.cb.OnStoppedLeading(context.Cause(t.ctx))
		}
		if term.panicked != nil {
			panic(term.panicked)
		}
	}()
	if err := aside(func() error { return t.finish(ctx) }); err != nil && !ended(err) {
		e.lock.o.log.WarnContext(ctx, "release failed: the next leader has to wait for a TTL", "key", e.lock.key, "err", err)
		return err
	}
	return nil
}

// aside runs f on another goroutine and waits for it. Requests take a deep stack, which ends with that goroutine: an
// elector's own, which waits most of the time, keeps to the least that Go gives one, 2 KiB.
func aside[T any](f func() T) T {
	result := make(chan T, 1)
	go func() { result <- f() }()
	return <-result
}

// callbackPanic carries a panic of a callback, with its stack, to Run's goroutine.
type callbackPanic struct {
	value any
	stack []byte
}

func (p *callbackPanic) Error() string {
	return fmt.Sprintf("leasehold: callback panicked: %v\n\n%s", p.value, p.stack)
}

func (p *callbackPanic) Unwrap() error {
	err, _ := p.value.(error)
	return err
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
	return *r, true
}

// Resign steps down as the end of Run's ctx would, and then leaves the others two poll intervals to take over before
// the elector campaigns again. It waits until OnStoppedLeading has returned or ctx ends; with a ctx that has ended it
// only asks, which is how OnStartedLeading itself may call it. If the elector does not lead, it does nothing.
func (e *Elector) Resign(ctx context.Context) error {
	term := e.term.Load()
	if term == nil {
		return nil
	}
	term.resigned.Store(true)
	term.lease.t.end(errResigned)
	select {
	case <-term.over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Check is for a health endpoint: it fails if OnStartedLeading runs on beyond its lease, or if a running elector has not
// been answered by the store for two TTLs (or poll intervals, if these are longer). Not to lead is healthy.
// Its argument is not used; with it, Check is a Kubernetes healthz.Checker.
func (e *Elector) Check(*http.Request) error {
	if !e.running.Load() {
		return nil
	}
	if term := e.term.Load(); term != nil && term.lease.t.overrun() {
		return fmt.Errorf("leasehold: lock %q: OnStartedLeading still runs though its lease (token %d) is over",
			e.lock.key, term.lease.Token())
	}
	o := e.lock.o
	last := max(e.lock.reply.Load(), e.since.Load())
	if silent := o.clock.Now().Mono - time.Duration(last); silent > 2*max(o.ttl, o.poll) {
		return fmt.Errorf("leasehold: lock %q: no answer from the store for %v", e.lock.key, silent.Round(time.Second))
	}
	return nil
}
