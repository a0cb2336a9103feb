package leasehold

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/internal/canary"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/lockerr"
	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// Callbacks are the functions that an [Elector] calls. Each may be nil. Unlike in client-go,
// OnStoppedLeading is called only after OnStartedLeading has returned, and never without an
// OnStartedLeading before it. What client-go calls Run is [Elector.RunOnce].
type Callbacks struct {
	// OnStartedLeading is called on Run's goroutine when a term begins. ctx ends before any other
	// elector can lead. The function must then return, because until it does the elector neither
	// releases the lock nor campaigns again. If the function returns earlier, the elector keeps
	// leading until the term ends. If it panics, the term ends, the lock is released, and Run
	// re-panics.
	OnStartedLeading func(ctx context.Context, lease *Lease)
	// OnStoppedLeading is called on Run's goroutine, once for each OnStartedLeading, after
	// OnStartedLeading has returned. By then the elector has released the lock, unless the lease
	// was lost or abandoned, or the release has failed. cause matches [ErrLost], or [ErrReleased]
	// after a Resign, or is the cause of Run's ctx.
	OnStoppedLeading func(cause error)
	// OnNewLeader is called for every term that this elector sees begin, including its own terms,
	// in order and one call at a time. For a term of this elector, the call comes just before
	// OnStartedLeading. A resumed term does not begin again, but [Elector.Leader] has its new
	// holder. OnNewLeader should be quick, because a waiting elector does not poll while the
	// callback runs. Resign waits for this callback, so it may call Resign only with a ctx that has
	// ended.
	OnNewLeader func(r Record)
}

// Elector campaigns for a lock, leads while it holds the lock, and campaigns again. All methods are
// safe for concurrent use.
type Elector struct {
	lock    *Lock
	cb      Callbacks
	running atomic.Bool
	// Check looks for answers from this monotonic time on: Run began, its last rest ends, or a
	// callback has begun or ended
	since    atomic.Int64
	callback atomic.Pointer[string] // the one that runs, or nil
	leader   atomic.Pointer[Record] // last seen, not counting a live term of this elector
	leading  atomic.Pointer[leadership]
	rest     time.Duration // monotonic time until which others come first; of the Run that runs
}

// leadership is a live term of an elector.
type leadership struct {
	lease *Lease
	over  chan struct{} // closed after OnStoppedLeading
}

// NewElector returns an elector that campaigns for l with the options of l. It refuses a lock with
// [WithManualRenewal], and one that [NewLock] did not make. Several electors may use one lock, and
// at most one of them leads at a time.
func NewElector(l *Lock, cb Callbacks) (*Elector, error) {
	if err := l.made(); err != nil {
		return nil, err
	}
	if l.manual {
		return nil, errors.New("leasehold: an elector renews its lease itself (use a lock without WithManualRenewal)")
	}
	return &Elector{lock: l, cb: cb, rest: math.MinInt64}, nil
}

// Run campaigns, leads, and campaigns again, until ctx ends. Then it steps down: it cancels the
// context of OnStartedLeading, and waits until OnStartedLeading has returned. During this wait, Run
// renews the lease for one TTL at most. If OnStartedLeading has returned by then, Run releases the
// lock as [Lease.Do] does. Otherwise the lease ends while Run still waits, and the lock is not
// released. At last Run calls OnStoppedLeading. It returns nil, whatever the cause of ctx's end,
// unless the release has failed or the store has never answered. Run uses its caller's goroutine,
// and a second one while a renewal is under way. It leaves no goroutine behind.
//
// Until it has led or has found the lock held, Run returns errors that retrying cannot fix, as
// [Lock.Acquire] does. They match [ErrPermanent]. After that Run treats such errors as temporary
// and backs off, unless the store has carried out a write whose condition did not hold. Run may be
// called again after it has returned. A second Run at the same time is an error.
func (e *Elector) Run(ctx context.Context) error { return e.run(ctx, math.MaxInt) }

// RunOnce campaigns until it has led one term, and returns when the term has ended, or earlier
// where [Elector.Run] would return. The error matches [ErrLost] if the term was lost. After a
// Resign, the next Run or RunOnce begins with the pause that Resign names.
func (e *Elector) RunOnce(ctx context.Context) error { return e.run(ctx, 1) }

// run is Run, but ends after this number of terms.
func (e *Elector) run(ctx context.Context, terms int) error {
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
	worked := false // a try has found the lock held, or acquired it
	final := func(err error) bool {
		return storeapi.Permanent(err) && !worked || errors.Is(err, canary.ErrIgnored)
	}
	found := func(held *HeldError) {
		if held.creating() {
			return
		}
		worked = true
		if !held.revived {
			e.sawLeader(held.Record)
		}
	}
	for term := 1; ; term++ {
		if e.letOthersPass(ctx) != nil {
			return nil
		}
		lease, err := l.campaign(ctx, ctx, final, found)
		if err != nil {
			_, leftOver := errors.AsType[*lockerr.Leftover](err)
			neverAnswered := l.lastAnswered.Load() < int64(began) && l.failure.Load() != nil
			if ctx.Err() == nil || leftOver || neverAnswered {
				return l.named(err)
			}
			return nil
		}
		worked = true
		err = e.lead(ctx, lease)
		if errors.Is(context.Cause(lease.ctx), ErrReleased) {
			e.rest = l.clock.Now().Mono + 2*clock.Jitter(l.clock, l.poll)
		}
		switch over := lease.t.whyOver(); {
		case term == terms && err == nil && errors.Is(over, ErrLost):
			return over
		case term == terms, ctx.Err() != nil:
			return err
		}
	}
}

// letOthersPass lets the other candidates see the lock free first, after a term that was released.
func (e *Elector) letOthersPass(ctx context.Context) error {
	c := e.lock.clock
	now := c.Now().Mono
	if e.rest <= now {
		return nil
	}
	e.since.Store(int64(e.rest))
	return c.Sleep(ctx, e.rest-now)
}

// sawLeader takes the record of a lock that is held.
func (e *Elector) sawLeader(r Record) {
	last := e.leader.Swap(&r)
	if e.cb.OnNewLeader != nil && (last == nil || !sameTerm(*last, r)) {
		e.calling("OnNewLeader", func() { e.cb.OnNewLeader(r.clone()) })
	}
}

// calling runs a callback on Run's goroutine. Run sends no requests until the callback returns, so
// Check must not blame the store for that time.
func (e *Elector) calling(name string, callback func()) {
	turn := func(runs *string) {
		e.since.Store(int64(e.lock.clock.Now().Mono))
		e.callback.Store(runs)
	}
	turn(&name)
	defer turn(nil)
	callback()
}

// lead runs the callbacks of a term under its lease until the term ends. ctx is the context of Run.
func (e *Elector) lead(ctx context.Context, lease *Lease) error {
	l, term := e.lock, &leadership{lease: lease, over: make(chan struct{})}
	e.leading.Store(term)
	started := false
	defer func() { // even after a panic in a callback
		e.leader.Store(lease.t.record())
		e.leading.Store(nil)
		defer close(term.over)
		if started && e.cb.OnStoppedLeading != nil {
			e.calling("OnStoppedLeading", func() { e.cb.OnStoppedLeading(context.Cause(lease.ctx)) })
		}
	}()
	err := lease.do(lease.ctx, ctx, func(ctx context.Context, lease *Lease) error {
		if e.cb.OnNewLeader != nil {
			e.calling("OnNewLeader", func() { e.cb.OnNewLeader(lease.Record()) })
		}
		started = true
		if e.cb.OnStartedLeading != nil {
			e.calling("OnStartedLeading", func() { e.cb.OnStartedLeading(ctx, lease) })
		}
		if ctx.Err() == nil {
			lease.t.functionEnded(leftAlone)
			<-ctx.Done()
		}
		return nil
	})
	if err != nil && !ended(err) {
		l.log.Warn("releasing failed", "key", l.key, "free_after", l.ttl, "err", err)
		return err
	}
	return nil
}

// IsLeader reports whether this elector leads now: it holds a valid lease and has not begun to step
// down. It sends no request and never blocks.
func (e *Elector) IsLeader() bool {
	term := e.leading.Load()
	return term != nil && term.lease.ctx.Err() == nil && term.lease.Valid()
}

// Leader returns the record of the leader seen last, and whether there was one. The leader may be
// this elector itself, and its term may have ended. Leader sends no request and never blocks.
func (e *Elector) Leader() (Record, bool) {
	if term := e.leading.Load(); term != nil {
		return term.lease.Record(), true
	}
	r := e.leader.Load()
	if r == nil {
		return Record{}, false
	}
	return r.clone(), true
}

// Resign steps down as Run does at the end of its ctx. The elector then gives other candidates two
// poll intervals to take over before it campaigns again. Resign waits until OnStoppedLeading has
// returned. If ctx ends first, it returns ctx's error. If ctx belongs to the current term, as the
// context of OnStartedLeading does, Resign returns nil at once, because it would otherwise wait for
// its own caller. If ctx belongs to a term that has ended, or if the elector does not lead, Resign
// does nothing.
func (e *Elector) Resign(ctx context.Context) error {
	term := e.leading.Load()
	if term == nil {
		return nil
	}
	of, under := ctx.Value(leaseKey{e.lock.register}).(*Lease)
	if under && of != term.lease {
		return nil
	}
	term.lease.t.endContext(fmt.Errorf("%w: resigned", ErrReleased))
	if under {
		return nil
	}
	select {
	case <-term.over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Check returns an error if the elector is not healthy, under the conditions of [Lock.Check]: a
// running elector that does not lead counts as waiting for the lock. Check also fails if
// OnStartedLeading still runs after its lease has ended, or if OnNewLeader or OnStoppedLeading has
// not returned for two TTLs (or poll intervals, if these are longer). It is for a liveness probe:
// not leading is healthy in itself, and readiness should not depend on who leads.
func (e *Elector) Check(*http.Request) error {
	if !e.running.Load() {
		return nil
	}
	l, callback, term := e.lock, e.callback.Load(), e.leading.Load()
	now, since := l.clock.Now().Mono, time.Duration(e.since.Load())
	switch {
	case callback != nil && term != nil && term.lease.t.overruns():
		return l.named(fmt.Errorf("%s still runs although its lease (token %d) has ended", *callback,
			term.lease.Token()))
	case callback != nil && *callback != "OnStartedLeading" && now-since > l.healthyFor():
		return l.named(fmt.Errorf("%s has not returned for %v, and this elector waits for it", *callback,
			(now - since).Round(time.Second)))
	}
	return l.trouble(since)
}
