package membership

import (
	"context"
	"errors"
	"net/http"

	"github.com/leasehold-go/leasehold"
)

// Member is this process as a member of a group. It is made by Group.Member and is safe for
// concurrent use.
type Member struct {
	g       *Group
	lock    *leasehold.Lock
	elector *leasehold.Elector
	serve   Serve
	unique  bool

	// Of the goroutine of Run.
	left  leasehold.Record // the last term, if its object may be removed; zero if not
	stale string           // see Group.remove
	rest  func()           // see Serve
}

// Serve is what a member does in one term. It gets the term's name, under which the group may name
// the member as long as Serve runs. ctx ends when the term is lost, or is to end. Serve returns
// then, but only once nothing acts under the term any more: what follows is the release of the
// member's object, or its next term. Meanwhile a lease that is still valid is renewed, for one TTL
// at most.
//
// forgotten reports that the group does not name the term any more. Only then is the object
// removed, after Run has released it: else the released object is what tells others at once that
// the term is over. After a panic nobody follows before the TTL has passed, and the panic goes on.
//
// rest, unless it is nil, is called after Serve has returned and before the next term begins. It is
// for what must end before that and is no function under the lease. A Serve that goes on after the
// loss of its lease is reported as such a function.
type Serve func(ctx context.Context, lease *leasehold.Lease, term Term) (forgotten bool, rest func())

// Member returns this process as the member whose object has this key. unique says that no other
// process will ever use the key. opts are for the member's lock alone, such as its metadata. It
// sends no request.
func (g *Group) Member(key string, unique bool, serve Serve, opts ...leasehold.Option) (*Member, error) {
	lock, err := g.lock(key, opts...)
	if err != nil {
		return nil, err
	}
	m := &Member{g: g, lock: lock, serve: serve, unique: unique}
	m.elector, err = leasehold.NewElector(lock, leasehold.Callbacks{
		OnStartedLeading: m.term,
		OnStoppedLeading: func(error) {
			if m.rest != nil {
				m.rest()
			}
		},
	})
	return m, err
}

// Key returns the key of the member's object.
func (m *Member) Key() string { return m.lock.Key() }

// Run holds the member's lock, takes it anew after a loss, and gives it back when ctx ends. Then it
// removes the member's object, if the last term allows it. If that fails, the object stays, and
// others may remove it. The errors are those of leasehold.Elector.Run. A Run at the same time as
// another is an error.
func (m *Member) Run(ctx context.Context) error {
	if err := m.elector.Run(ctx); err != nil {
		return err
	}
	left := m.left
	m.left = leasehold.Record{}
	if left.Token == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.g.s.Attempt())
	defer cancel()
	if err := m.g.remove(ctx, m.Key(), left, m.stale); err != nil {
		m.g.s.Log.Info("the member's object could not be removed: another member may", "key", m.Key(), "err", err)
	}
	return nil
}

// Resign ends the present term as the end of Run's ctx does, and Run goes on: see
// leasehold.Elector.Resign.
func (m *Member) Resign(ctx context.Context) error { return m.elector.Resign(ctx) }

// Check is leasehold.Elector.Check.
func (m *Member) Check(r *http.Request) error { return m.elector.Check(r) }

// term runs one term.
func (m *Member) term(ctx context.Context, lease *leasehold.Lease) {
	m.left, m.stale, m.rest = leasehold.Record{}, "", nil
	completed := false
	defer func() { // also if serve panics: what it has started may still act
		if !completed {
			lease.Abandon()
		}
	}()
	forgotten, rest := m.serve(ctx, lease, TermOf(m.Key(), lease.Record()))
	m.rest = rest
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
