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
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/membership"
	"github.com/leasehold-go/leasehold/internal/storeapi"
	"github.com/leasehold-go/leasehold/internal/tables"
)

var (
	// ErrNotRunning says that nobody runs [Table.Run] in this process, or that it has returned.
	ErrNotRunning = errors.New("the table is not run: call Table.Run")
	// ErrNoTerm says that this member does not hold its own lock now, so it can hold nothing in the
	// table. Waiting helps.
	ErrNoTerm = errors.New("this member has no term now")
	// ErrFull says that the table has no room for a request: see [WithMaxSize].
	ErrFull = tables.ErrFull
	// ErrCapacity says that somebody holds a lock, or waits for it, as a semaphore, and it is asked
	// for as a lock without slots; or the other way round.
	ErrCapacity = tables.ErrCapacity
)

// Table is one table of locks, as one member of it. It is made by [New] and is safe for concurrent
// use.
type Table struct {
	want
	object
	store     leasehold.Store
	group     *membership.Group
	self      *membership.Member // this process
	unsettled *committer         // of a term that was lost; only for Run's goroutine
	lookErrs  atomic.Pointer[[]lookError]
}

// New returns a table. Its object has the given key, and its members' objects have keys that begin
// with it and ".members/". New refuses a store, a key or options that cannot work. It sends no
// request.
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
	unique := o.member == ""
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

// defaultMember is the name of a member that was given none: a part for people, and one that no
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

// Run holds the member's own lock, which all that it holds in the table needs, and takes it anew
// after a loss. When ctx ends, the contexts of all leases end. Run waits for their functions, for
// as long as they take, while the lease is still renewed, and hands all locks over with one write.
// Then it frees the member's lock and removes its object. It returns nil then.
//
// If the write fails, Run tries again for half a TTL, and for 30 s at most, unless the store
// refuses it for good. Then it frees the member's lock alone, and returns an error that says which
// locks are still in the table. Others get them when they see that the member's lock is free or has
// run out. If it could not write because others were first each time, nothing is wrong: the release
// of its lock frees everything, and Run returns nil.
//
// Errors that waiting cannot fix end Run as they end [leasehold.Elector.Run]. If the store or an
// observer panics, the contexts of all leases end, nobody gets their locks before the TTL has
// passed, and the panic goes on. Run may be called again after it has returned. A second Run at the
// same time is an error. After [Table.Detach], Run returns nil and has freed nothing.
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
	defer t.ran() // also if the store or an observer panics
	err := t.self.Run(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil && !t.hadTerm {
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
// object has changed; for the tables of one process and one Store value, the library does. A member
// that has others in front waits for as many wake-ups. A wake-up
// carries no authority: if the table has not changed, it costs a read, at most ten in a row, and a
// lost one leaves the wait as it was. It sends no request itself and never blocks.
func (t *Table) Wake() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wakes++
	if t.term == nil || t.called {
		return
	}
	if place, listens := t.place(); listens && t.wakes >= place {
		t.called = true
		t.ring()
	}
}

// Check is for a health endpoint. It fails if Run has not been called or has returned with an
// error, if a function still runs after its member's term has ended, if an observer has not
// returned for two TTLs after the loss of a term, if this member has had no term for three, and if
// the store has not let it read or write what it had to for two. The error wraps that of the last
// request. The argument is ignored.
func (t *Table) Check(*http.Request) error {
	if err := t.self.Check(nil); err != nil {
		return t.named(err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now().Mono
	switch {
	case !t.running:
		return t.named(ErrNotRunning)
	case t.trouble.err != nil && now-t.trouble.since > 2*max(t.ttl, t.poll):
		return t.named(fmt.Errorf("for %v, nothing could be changed: %w",
			(now - t.trouble.since).Round(time.Second), t.trouble.err))
	case t.term == nil && now-t.termless > 3*max(t.ttl, t.poll):
		return t.named(fmt.Errorf("%w, for %v: does another process have the name %q?", ErrNoTerm,
			(now - t.termless).Round(time.Second), t.member))
	}
	if errs := t.lookErrs.Load(); errs != nil {
		for _, e := range *errs {
			if now-e.since > 2*max(t.ttl, t.poll) {
				return t.named(e.err)
			}
		}
	}
	return nil
}

// named is err for the user, who may have many tables.
func (w *want) named(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("locktable: table %q: %w", w.key, err)
}

// backoff is the pause after one more failure in a row.
func (t *Table) backoff(failures *int) time.Duration {
	return clock.Backoff(t.clock, failures, min(t.poll/4, time.Second), min(max(t.ttl, t.poll), 30*time.Second))
}
