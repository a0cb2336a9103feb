package membership

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/clock"
)

// Member is this process as a member of a group. It is made by Group.Member and is safe for
// concurrent use.
type Member struct {
	g       *Group
	lock    *leasehold.Lock
	elector *leasehold.Elector
	terms   Terms
	unique  bool
	resumed atomic.Pointer[resumed] // the term that continues from a handle; nil without one
	waits   atomic.Pointer[waiting] // never nil

	// Of the goroutine of Run.
	handle string           // of the term that Run begins with; "" if none
	left   leasehold.Record // the last term, if its object may be removed; zero if not
	stale  string           // see Group.remove
}

// resumed is a term that another process has begun. The elector knows nothing of it.
type resumed struct {
	lease  *leasehold.Lease
	end    context.CancelCauseFunc
	served atomic.Pointer[time.Duration] // monotonic time when Serve has returned; nil before
}

// waiting is what Run waits for before the term of a handle, or after its last term. It is zero
// otherwise.
type waiting struct {
	what  error
	since time.Duration // monotonic time
}

var errUnanswered = errors.New("the request has not returned")

// Terms are the functions of a member's terms. They are called on the goroutine of Run.
type Terms struct {
	// Serve is what the member does in one term. It gets the term's name, under which the group may
	// name the member as long as Serve runs. ctx ends when the term is lost, or is to end. Serve
	// returns then, but only once no function runs under the term any more: the release of the
	// member's object follows, or its next term. Until then a lease that is still valid is renewed,
	// for one TTL at most. A Serve that still runs after the loss of its lease is reported. After a
	// panic, no other term begins before the TTL has passed, and Run re-panics.
	//
	// forgotten reports that the group does not name the term any more. Only then is the object
	// removed, after Run has released it. Otherwise the released object stays, because it shows
	// others at once that the term has ended.
	Serve func(ctx context.Context, lease *leasehold.Lease, term Term) (forgotten bool)
	// Settle is called after each term whose Serve has begun, and after a resumed term in any case.
	// The next term waits for it, but a Settle that takes its time is not reported. It may be nil.
	Settle func()
}

// Member returns this process as the member whose object has this key. unique says that no other
// process will ever use the key. opts are for the member's lock alone, such as its metadata. It
// sends no request.
func (g *Group) Member(key string, unique bool, terms Terms, opts ...leasehold.Option) (*Member, error) {
	lock, err := g.lock(key, opts...)
	if err != nil {
		return nil, err
	}
	if terms.Settle == nil {
		terms.Settle = func() {}
	}
	m := &Member{g: g, lock: lock, terms: terms, unique: unique}
	m.waits.Store(&waiting{})
	m.elector, err = leasehold.NewElector(lock, leasehold.Callbacks{
		OnStartedLeading: m.term,
		OnStoppedLeading: func(error) { terms.Settle() },
	})
	return m, err
}

// Key returns the key of the member's object.
func (m *Member) Key() string { return m.lock.Key() }

// Run holds the member's lock, takes it anew after a loss, and gives it back when ctx ends. Then it
// removes the member's object, if the last term allows it. If that fails, the object stays, and
// others may remove it. The errors are the errors of leasehold.Elector.Run. Its caller does not
// call it at the same time as another Run.
func (m *Member) Run(ctx context.Context) error {
	for m.handle != "" && ctx.Err() == nil {
		if err := m.goOn(ctx); err != nil {
			return err
		}
	}
	if ctx.Err() == nil {
		if err := m.elector.Run(ctx); err != nil {
			return err
		}
	}
	left := m.left
	m.left = leasehold.Record{}
	if left.Token == 0 {
		return nil
	}
	m.waits.Store(&waiting{fmt.Errorf("removing the member's object: %w", errUnanswered), m.g.s.Clock.Now().Mono})
	defer m.waits.Store(&waiting{})
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.g.s.Attempt())
	defer cancel()
	if err := m.g.remove(ctx, m.Key(), left, m.stale, m.unique); err != nil {
		m.g.s.Log.Info("the member's object could not be removed", "key", m.Key(), "err", err)
	}
	return nil
}

// Resume makes the term of a handle the first term of Run, by leasehold.Lock.Resume. If that term
// cannot continue, Run returns why. Resume must be called before Run.
func (m *Member) Resume(handle string) { m.handle = handle }

// goOn is the term of the handle. Its error is the error of the resumption, or of the release at
// the end of ctx. If the lease has ended before Serve begins, as after a pause of the process, the
// handle stays, because the term itself may not have ended.
func (m *Member) goOn(ctx context.Context) error {
	lease, err := m.resume(ctx)
	if lease == nil {
		return err
	}
	under, end := context.WithCancelCause(ctx)
	defer end(nil)
	r := &resumed{lease: lease, end: end}
	m.resumed.Store(r)
	defer m.resumed.Store(nil)
	defer m.terms.Settle() // even if the release panics
	err = lease.Do(under, func(ctx context.Context, lease *leasehold.Lease) error {
		m.handle = ""
		m.term(ctx, lease)
		now := m.g.s.Clock.Now().Mono
		r.served.Store(&now)
		return nil
	})
	if err != nil && !errors.Is(err, leasehold.ErrLost) {
		m.g.s.Log.Warn("releasing failed", "key", m.Key(), "free_after", m.g.s.TTL, "err", err)
		if ctx.Err() != nil {
			return err
		}
	}
	return nil
}

// resume tries again until the term continues here, cannot continue, or ctx ends, which is not an
// error.
func (m *Member) resume(ctx context.Context) (*leasehold.Lease, error) {
	s, failures, err := m.g.s, 0, errUnanswered
	defer m.waits.Store(&waiting{})
	for began := s.Clock.Now().Mono; ; {
		m.waits.Store(&waiting{fmt.Errorf("resuming the member's term: %w", err), began})
		var lease *leasehold.Lease
		switch lease, err = m.lock.Resume(ctx, m.handle); {
		case err == nil:
			return lease, nil
		case ctx.Err() != nil:
			return nil, nil
		case errors.Is(err, leasehold.ErrLost), errors.Is(err, leasehold.ErrReleased),
			errors.Is(err, leasehold.ErrPermanent):
			return nil, err
		}
		s.Log.Warn("resuming the member's term failed, will retry", "key", m.Key(), "err", err)
		_ = clock.Wait(ctx, s.Clock, clock.Backoff(s.Clock, &failures, s.Poll/4, s.TTL), nil)
	}
}

// Failure is what Run waits for before the term of a handle, or after its last term, and why it
// waits. It is nil otherwise.
func (m *Member) Failure() error { return m.waits.Load().what }

// Resign ends the present term as the end of Run's ctx does, and Run continues. It waits for
// nothing. Without a term it does nothing.
func (m *Member) Resign() {
	if r := m.resumed.Load(); r != nil {
		r.end(fmt.Errorf("%w: resigned", leasehold.ErrReleased))
		return
	}
	done, cancel := context.WithCancel(context.Background())
	cancel()
	_ = m.elector.Resign(done)
}

// Check is leasehold.Elector.Check, also for a resumed term.
func (m *Member) Check(req *http.Request) error {
	now, limit := m.g.s.Clock.Now().Mono, 2*max(m.g.s.TTL, m.g.s.Poll)
	if w := m.waits.Load(); w.what != nil && now-w.since > limit {
		return fmt.Errorf("for %v: %w", (now - w.since).Round(time.Second), w.what)
	}
	r := m.resumed.Load()
	if r == nil {
		return m.elector.Check(req)
	}
	switch served := r.served.Load(); {
	case served == nil && !r.lease.Valid():
		return errors.New("the member's term has ended, and what it has begun still runs")
	case served != nil && now-*served > limit:
		return errors.New("the release of the member's term, or an observer, has not returned")
	}
	return nil
}

// term runs one term.
func (m *Member) term(ctx context.Context, lease *leasehold.Lease) {
	m.left, m.stale = leasehold.Record{}, ""
	completed := false
	defer func() { // even if Serve panics: what it has started may still act
		if !completed {
			lease.Abandon()
		}
	}()
	forgotten := m.terms.Serve(ctx, lease, TermOf(m.Key(), lease.Record()))
	completed = true
	if ctx.Err() == nil || errors.Is(context.Cause(lease.Context()), leasehold.ErrLost) || !forgotten {
		return
	}
	m.left = lease.Record()
	if !m.unique {
		looking, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.g.s.Attempt())
		defer cancel()
		m.stale = m.g.version(looking, m.Key())
	}
}
