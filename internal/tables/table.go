// Package tables is a table of locks as a pure state machine: who is a member, who holds which
// lock, and who waits, in order. It does no I/O and knows no clock.
//
// A write is built on a clone of the last version with Join, Ask, Drop and Leave, and ends with
// Finish, which grants whatever has become free. So whoever frees a lock hands it over in the same
// write.
package tables

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold"
)

// The errors of Ask and EncodeWithin that a caller can tell apart.
var (
	ErrCapacity = errors.New("another capacity is in force")
	ErrNoMember = errors.New("no such member in the table")
	ErrKnown    = errors.New("the request is in the table already")
	ErrFull     = errors.New("the table is full")
)

// Term names one term of a member for ever. Tokens are compared only within one object id; all four
// are compared always.
type Term struct {
	Key, ObjectID, TermID string
	Token                 uint64
}

// Member is what the table says of a member. The Metadata that a Table returns must not be changed.
type Member struct {
	Term
	Name     string
	TTL      time.Duration
	Metadata map[string]string
}

// ID names a request: a member, and a number that the member has not used before in its term.
type ID struct{ Member, Number uint64 }

// Request is a request for one or several locks, all or none. The Claims that a Table returns are
// sorted by name, and must not be changed.
type Request struct {
	ID
	Claims []Claim
	Token  uint64 // the revision of the write that granted it; 0 while it waits
}

// Table is one version of a lock table. Methods that change nothing, Clone among them, are safe for
// concurrent use.
type Table struct {
	Revision uint64 // of the write; it rises with each
	Nonce    string // of the write; it tells it from another one with the same revision

	members  map[uint64]Member
	requests map[ID]*Request
	held     []*Request // in the order of their grants; those that Drop has removed stay until Finish, without Claims
	waiting  []*Request // in order; else as held
	locks    map[string]*lock
}

// New returns an empty table of revision 0.
func New() *Table { return sized(map[uint64]Member{}, 0) }

func sized(members map[uint64]Member, requests int) *Table {
	return &Table{members: members, requests: make(map[ID]*Request, requests), locks: make(map[string]*lock, requests)}
}

// Clone returns a copy. Changes of one never show in the other.
func (t *Table) Clone() *Table {
	c := sized(maps.Clone(t.members), len(t.requests))
	c.Revision, c.Nonce = t.Revision, t.Nonce
	for r := range live(t.held, t.waiting) {
		c.add(&r)
	}
	return c
}

// Join adds a member and returns its number, which is at least 1 and above those of all members in
// the table. If there is no higher one that Decode reads, it is any that is free. A term that is in
// the table already keeps its number. A number may come again after its member has left; a term
// does not.
func (t *Table) Join(m Member) uint64 {
	if n, ok := t.Find(m.Term); ok {
		return n
	}
	n := uint64(1)
	for other := range t.members {
		n = max(n, other+1)
	}
	if n > leasehold.MaxToken { // only an edit by hand leads there
		n = 1
		for _, taken := t.members[n]; taken; _, taken = t.members[n] {
			n++
		}
	}
	m.Metadata = maps.Clone(m.Metadata)
	t.members[n] = m
	return n
}

// Find returns the number of the member with exactly this term.
func (t *Table) Find(term Term) (uint64, bool) {
	for n, m := range t.members {
		if m.Term == term {
			return n, true
		}
	}
	return 0, false
}

// Member returns the member with this number.
func (t *Table) Member(n uint64) (Member, bool) {
	m, ok := t.members[n]
	return m, ok
}

// Members lists the members by rising number.
func (t *Table) Members() iter.Seq2[uint64, Member] {
	return func(yield func(uint64, Member) bool) {
		for _, n := range slices.Sorted(maps.Keys(t.members)) {
			if !yield(n, t.members[n]) {
				return
			}
		}
	}
}

// Request returns the request with this ID, held or waiting.
func (t *Table) Request(id ID) (Request, bool) {
	if r := t.requests[id]; r != nil {
		return *r, true
	}
	return Request{}, false
}

// Requests lists the requests of one member: those it holds in the order of their grants, then
// those that wait in theirs.
func (t *Table) Requests(member uint64) []Request {
	var list []Request
	for r := range live(t.held, t.waiting) {
		if r.Member == member {
			list = append(list, r)
		}
	}
	return list
}

// Held lists the requests that are granted, in the order of their grants.
func (t *Table) Held() iter.Seq[Request] { return live(t.held) }

// Waiting lists the requests that wait, in order.
func (t *Table) Waiting() iter.Seq[Request] { return live(t.waiting) }

func live(lists ...[]*Request) iter.Seq[Request] {
	return func(yield func(Request) bool) {
		for _, list := range lists {
			for _, r := range list {
				if r.Claims != nil && !yield(*r) {
					return
				}
			}
		}
	}
}

// Ask appends a request to those that wait. The claims must not be changed afterwards. Its error
// wraps ErrNoMember, ErrKnown or ErrCapacity, or is that of CheckClaims; then nothing has changed.
func (t *Table) Ask(id ID, claims []Claim) error {
	r := &Request{ID: id, Claims: sorted(claims)}
	err := t.admit(r)
	if err == nil {
		t.add(r)
	}
	return err
}

// admit says what keeps a request with sorted claims out of the table.
func (t *Table) admit(r *Request) error {
	if _, ok := t.members[r.Member]; !ok {
		return fmt.Errorf("%w: %d", ErrNoMember, r.Member)
	}
	if t.requests[r.ID] != nil {
		return fmt.Errorf("%w: %+v", ErrKnown, r.ID)
	}
	if r.Number > leasehold.MaxToken {
		return fmt.Errorf("the request number %d is over 2^53-1", r.Number)
	}
	if err := check(r.Claims); err != nil {
		return err
	}
	for _, c := range r.Claims {
		if l := t.locks[c.Name]; l != nil && l.of != c.Of {
			return fmt.Errorf("%w: %.80q has %s, not %s", ErrCapacity, c.Name, capacity(l.of), capacity(c.Of))
		}
	}
	return nil
}

func (t *Table) add(r *Request) {
	t.requests[r.ID] = r
	if r.Token != 0 {
		t.held = append(t.held, r)
	} else {
		t.waiting = append(t.waiting, r)
	}
	for _, c := range r.Claims {
		l := t.locks[c.Name]
		if l == nil {
			l = &lock{of: c.Of}
			t.locks[c.Name] = l
		}
		l.line = append(l.line, r)
		*l.side(r) += c.weight()
	}
}

// Drop removes a request wherever it is, and reports whether it was there.
func (t *Table) Drop(id ID) bool {
	r := t.requests[id]
	if r == nil {
		return false
	}
	delete(t.requests, id)
	for _, c := range r.Claims {
		l := t.locks[c.Name]
		*l.side(r) -= c.weight()
		l.line = slices.DeleteFunc(l.line, func(other *Request) bool { return other == r })
		if len(l.line) == 0 {
			delete(t.locks, c.Name)
		}
	}
	r.Claims = nil
	return true
}

// Leave removes a member and all its requests, and reports whether it was there.
func (t *Table) Leave(member uint64) bool {
	_, ok := t.members[member]
	delete(t.members, member)
	for id := range t.requests {
		if id.Member == member {
			t.Drop(id)
		}
	}
	return ok
}

// Finish ends the building of a write: it gives the table a revision above its own and above
// atLeast, and a nonce, and grants what is free.
func (t *Table) Finish(nonce string, atLeast uint64) {
	t.Revision = max(t.Revision, atLeast) + 1
	t.Nonce = nonce
	t.grant()
}

// Unfinished reports whether somebody waits for nothing, which is so only if the table was edited
// by hand.
func (t *Table) Unfinished() bool {
	c := t.Clone()
	c.grant()
	return len(c.held) > len(t.held)
}

// grant walks those who wait, in order, and grants a request if each of its claims fits beside
// those who hold and all earlier ones that stay waiting. So a request is not passed by a later one
// that takes what it waits for. One walk is enough: to later requests, an earlier one counts the
// same whether it holds or waits.
func (t *Table) grant() {
	ahead := map[string]int64{} // the weight of what those claim that stay waiting
	var stay []*Request
	t.held = slices.DeleteFunc(t.held, func(r *Request) bool { return r.Claims == nil })
	for _, r := range t.waiting {
		switch {
		case r.Claims == nil:
		case slices.ContainsFunc(r.Claims, func(c Claim) bool { return !c.fits(t.locks[c.Name].held + ahead[c.Name]) }):
			stay = append(stay, r)
			for _, c := range r.Claims {
				ahead[c.Name] += c.weight()
			}
		default:
			t.held = append(t.held, r)
			r.Token = t.Revision
			for _, c := range r.Claims {
				l := t.locks[c.Name]
				l.waiting -= c.weight()
				l.held += c.weight()
			}
		}
	}
	t.waiting = stay
}
