package locktable

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/membership"
	"github.com/leasehold-go/leasehold/internal/storeapi"
	"github.com/leasehold-go/leasehold/internal/tables"
)

var (
	// ErrNotRunning says that [Table.Run] was not called for this Table, or has returned.
	ErrNotRunning = errors.New("the table is not run: call Table.Run")
	// ErrNoTerm says that this member does not hold its own lock now, so it can hold no lock of the
	// table. The error is temporary.
	ErrNoTerm = errors.New("this member has no term now")
	// ErrFull says that the table has no room for a request: see [WithMaxSize].
	ErrFull = tables.ErrFull
	// ErrCapacity says that a name is in use as a semaphore and was asked for as a lock without
	// slots, or the other way round. A name is in use while a request holds it or waits for it.
	ErrCapacity = tables.ErrCapacity
)

// Table is one table of locks, used as one of its members. [New] makes it. It is safe for
// concurrent use.
type Table struct {
	want
	object
	store     leasehold.Store
	group     *membership.Group
	self      *membership.Member // this process
	unsettled *committer         // of a term that was lost; only for Run's goroutine
	lookErrs  atomic.Pointer[[]lookError]
	looks     atomic.Pointer[time.Duration] // monotonic time since which one is under way; nil if none is
}

// New returns the table with this key in store. The table's object has the key, and its members'
// objects have keys that begin with the key and ".members/". New refuses a store, a key or options
// that cannot work. It sends no request.
func New(store leasehold.Store, key string, opts ...Option) (*Table, error) {
	t, err := makeTable(store, key, opts)
	if err != nil {
		return nil, fmt.Errorf("locktable: %w", err)
	}
	return t, nil
}

func makeTable(store leasehold.Store, key string, opts []Option) (*Table, error) {
	if _, err := leasehold.NewLock(store, key); err != nil {
		return nil, err
	}
	o, err := newOptions(opts)
	if err != nil {
		return nil, err
	}
	unique := !o.hasName
	if unique {
		o.member = defaultMember()
	}
	t := &Table{
		store: store,
		want: want{
			options: o, key: key, bell: make(chan struct{}, 1), began: make(chan struct{}), over: make(chan struct{}),
			requests: make(map[uint64]*request),
		},
	}
	t.group = membership.NewGroup(store, o.settings())
	member := key + storeapi.MembersFolder + o.member
	terms := membership.Terms{Serve: t.serve, Settle: t.settle}
	t.self, err = t.group.Member(member, unique, terms, leasehold.WithMetadata(o.metadata))
	if err != nil {
		return nil, err
	}
	return t, nil
}

// defaultMember is the default name of a member: a part for people to read, and a part that no
// other process will ever have.
func defaultMember() string {
	host, _ := os.Hostname()
	host = strings.Map(func(r rune) rune {
		if r == '-' || r == '.' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '-'
	}, cmp.Or(host, "unknown"))
	return fmt.Sprintf("%.63s-%d-%s", host, os.Getpid(), strings.ToLower(rand.Text()[:12]))
}

// Key returns the key of the table's object.
func (t *Table) Key() string { return t.key }

// MemberName returns the name of this member.
func (t *Table) MemberName() string { return t.member }

// Run makes this process a member of the table until ctx ends. It holds the member's own lock,
// without which the member can hold no lock of the table, and acquires it again after a loss. When
// ctx ends, the contexts of all leases end. Run waits for their functions, for as long as they
// take, while the lease is still renewed, and hands all locks over with one write. Then Run
// releases the member's lock, removes its object, and returns nil.
//
// If the write fails, Run tries again for half a TTL, and for 30 s at most, unless the store
// refuses the write for good. Then it only releases the member's lock, and returns an error that
// says which locks are still in the table. Other members get these locks when they see that the
// member's lock is released or has expired. If Run could not write because other members were
// faster each time, it returns nil, because the release of the member's lock releases everything.
//
// Errors that waiting cannot fix end Run as they end [leasehold.Elector.Run]. If the store or an
// observer panics, the contexts of all leases end, no other member gets their locks before the TTL
// has passed, and Run re-panics. Run may be called again after it has returned. A second Run at the
// same time is an error. After [Table.Detach], Run returns nil and has released nothing.
func (t *Table) Run(ctx context.Context) error {
	t.mu.Lock()
	if t.running {
		t.mu.Unlock()
		return fmt.Errorf("locktable: table %q is already running", t.key)
	}
	if t.ended {
		t.over = make(chan struct{})
	}
	t.running, t.ended, t.hadTerm, t.termless = true, false, false, t.clock.Now().Mono
	ctx, t.stop = context.WithCancel(ctx)
	t.runs, t.unleft, t.trouble = ctx, nil, trouble{}
	close(t.began)
	t.mu.Unlock()
	defer t.enlist()()
	defer t.ran() // even if the store or an observer panics
	err := t.self.Run(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.hadTerm {
		t.settleResumed(err)
	}
	switch {
	case t.unleft == nil:
		return err
	case err == nil:
		return t.unleft
	}
	return fmt.Errorf("%w; and its lease was not released: %w", t.unleft, err)
}

// ran notes the end of Run.
func (t *Table) ran() {
	t.mu.Lock()
	t.stop()
	t.decide("", ErrNotRunning)
	t.running, t.ended, t.began, t.detaching = false, true, make(chan struct{}), nil
	close(t.over)
	for _, r := range t.requests {
		if r.state == waiting {
			t.giveBack(r, t.named(ErrNotRunning))
		}
	}
	t.mu.Unlock()
}

// Wake makes a member that waits read the table now. Call it when a message says that the table's
// object has changed. Among the tables of one process with one Store value, the library calls Wake
// itself. A member with others in front skips one wake-up for each of them.
//
// A wake-up carries no authority. If the table has not changed, it costs a read, at most ten in a
// row, and a lost wake-up does not change the wait. Wake sends no request itself and never blocks.
func (t *Table) Wake() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wakes++
	if t.term == nil || t.called {
		return
	}
	if place := t.place(); place > 0 && t.wakes >= place {
		t.called = true
		t.ring()
	}
}

// Check returns an error if this member is not healthy. It is for a health endpoint. Check fails in
// these cases:
//
//   - Run has not been called, or has returned.
//   - A function still runs after its member's term has ended.
//   - A request to the store, or an observer, has not returned for two TTLs.
//   - This member has had no term for three TTLs.
//   - The member could not read or write the table for two TTLs, although it had to.
//
// The error wraps the error of the last request. The argument is ignored.
func (t *Table) Check(*http.Request) error {
	if err := t.self.Check(nil); err != nil {
		return t.named(err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now, acts, looks := t.clock.Now().Mono, t.acts.Load(), t.looks.Load()
	switch {
	case !t.running:
		return t.named(ErrNotRunning)
	case acts != nil && now-*acts > t.patience(): // whatever the store does with its context
		return t.named(fmt.Errorf("for %v, a request of the table, or an observer, has not returned",
			(now - *acts).Round(time.Second)))
	case looks != nil && now-*looks > t.patience():
		return t.named(fmt.Errorf("for %v, a request for a member's object has not returned",
			(now - *looks).Round(time.Second)))
	case t.trouble.err != nil && now-t.trouble.since > t.patience():
		return t.named(fmt.Errorf("for %v, nothing could be changed: %w",
			(now - t.trouble.since).Round(time.Second), t.trouble.err))
	case t.term == nil && now-t.termless > 3*max(t.ttl, t.poll):
		return t.named(fmt.Errorf("%w, for %v: does another process have the name %q?", ErrNoTerm,
			(now - t.termless).Round(time.Second), t.member))
	}
	if errs := t.lookErrs.Load(); errs != nil {
		for _, e := range *errs {
			if now-e.since > t.patience() {
				return t.named(e.err)
			}
		}
	}
	return nil
}

// named is err with the key, because the user may have many tables.
func (w *want) named(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("locktable: table %q: %w", w.key, err)
}
