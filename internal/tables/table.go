// Package tables is a table of locks as a pure state machine: the members, the requests that hold
// locks, and the requests that wait, in order. It does no I/O and knows no clock.
//
// A write is built on a clone of the last version with Join, Ask, Drop and Leave, and ends with
// Finish, which grants whatever has become free. So the write that releases a lock also hands it
// over.
package tables

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/leasehold-go/leasehold"
)

// The errors of Ask and Seal that a caller can distinguish.
var (
	ErrCapacity = errors.New("a lock is no semaphore")
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
	Nonce    string // of the write; it distinguishes writes with the same revision

	members  map[uint64]Member
	requests map[ID]*Request
	held     []*Request // in the order of their grants; those that Drop has removed stay until Finish: see dropped
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

// Join adds a member and returns its number, which is at least 1 and higher than the numbers of all
// members in the table. If there is no higher number that Decode reads, it is any unused one. A
// term that is in the table already keeps its number. A number may come again after its member has
// left; a term does not.
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

// Counts returns the numbers of members, of requests that hold, and of requests that wait.
func (t *Table) Counts() (members, held, waiting int) {
	for range t.Waiting() {
		waiting++
	}
	return len(t.members), len(t.requests) - waiting, waiting
}

// Held lists the requests that are granted, in the order of their grants.
func (t *Table) Held() iter.Seq[Request] { return live(t.held) }

// Waiting lists the requests that wait, in order.
func (t *Table) Waiting() iter.Seq[Request] { return live(t.waiting) }

func live(lists ...[]*Request) iter.Seq[Request] {
	return func(yield func(Request) bool) {
		for _, list := range lists {
			for _, r := range list {
				if !r.dropped() && !yield(*r) {
					return
				}
			}
		}
	}
}

// Ask appends a waiting request. The claims must not be changed afterwards. Its error wraps
// ErrNoMember, ErrKnown or ErrCapacity, or is the error of CheckClaims; then nothing has changed.
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
		return fmt.Errorf("the request number %d exceeds 2^53-1", r.Number)
	}
	if err := check(r.Claims); err != nil {
		return err
	}
	return t.Admits(r.Claims)
}

// Admits says which lock is claimed as a semaphore and used as none, or the other way round: its
// error wraps ErrCapacity.
func (t *Table) Admits(claims []Claim) error {
	for _, c := range claims {
		if l := t.locks[c.Name]; l != nil && l.semaphore != c.semaphore() {
			return fmt.Errorf("%w: %.80q is used as %s now, and is claimed as %s", ErrCapacity, c.Name,
				kind(l.semaphore), kind(c.semaphore()))
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
			l = &lock{semaphore: c.semaphore()}
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
	claims := r.Claims
	r.Claims = nil
	for _, c := range claims {
		l := t.locks[c.Name]
		*l.side(r) -= c.weight()
		if l.gone++; 2*l.gone > len(l.line) { // so a long line is not walked for each of its requests
			l.line, l.gone = slices.DeleteFunc(l.line, (*Request).dropped), 0
		}
		if len(l.line) == 0 {
			delete(t.locks, c.Name)
		}
	}
	return true
}

// dropped reports whether a request was removed, and is still in a list.
func (r *Request) dropped() bool { return r.Claims == nil }

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

// Seal is Finish, and Encode of what is to be written. If the object would have more than limit
// bytes once all waiting requests were granted, the error matches ErrFull: such a write must not
// ask or join. over is the excess in bytes, below 0 what is left. The body is returned too,
// because a write that only releases may be sent all the same. The error of a revision that no
// reader takes matches leasehold.ErrCorruptRecord: only an edit by hand leads there.
//
// Only an edit by hand, or a member without this limit, makes a table in which not all requests can
// be granted within leasehold.MaxObjectSize. Seal then grants as many as fit, in order.
func (t *Table) Seal(nonce string, atLeast uint64, limit int) (body []byte, over int, err error) {
	waited := t.waiting
	t.Finish(nonce, atLeast)
	if t.Revision > leasehold.MaxToken {
		return nil, 0, fmt.Errorf("%w: the revision %d exceeds 2^53-1 (repair the table by hand)",
			leasehold.ErrCorruptRecord, t.Revision)
	}
	body = t.Encode()
	most := t.tokenSize() + len(",") // that one grant less can save
	for excess := len(body) - leasehold.MaxObjectSize; excess > 0 && t.retract(waited, (excess+most-1)/most); {
		body = t.Encode()
		excess = len(body) - leasehold.MaxObjectSize
	}
	size := len(body) + t.Reserve()
	if size > limit {
		err = fmt.Errorf("%w: with all that is asked for it would have %d bytes, over the limit of %d (release locks, "+
			"or spread the names over several tables)", ErrFull, size, limit)
	}
	return body, size - limit, err
}

// Reserve is how many bytes the object grows by, at most, when all waiting requests are granted: by
// a token for each, of a revision that may be a hundred times as high then.
func (t *Table) Reserve() int {
	_, _, waiting := t.Counts()
	return waiting * (t.tokenSize() + len("99"))
}

// tokenSize is what a grant adds to the object.
func (t *Table) tokenSize() int { return len(",") + len(strconv.FormatUint(t.Revision, 10)) }

// Unfinished reports whether another write would grant something in a table of this size in bytes.
// It would only if the table was edited by hand, or was full.
func (t *Table) Unfinished(size int) bool {
	if len(t.waiting) == 0 || size+t.tokenSize() > leasehold.MaxObjectSize {
		return false
	}
	c := t.Clone()
	waiting := len(c.waiting)
	c.grant()
	return len(c.waiting) < waiting
}

// grant walks the waiting requests, in order, and grants a request if each of its claims fits
// together with the claims that are held and all earlier ones that stay waiting. So a request is
// not passed by a later one that takes what it waits for. One walk is enough: to later requests, an
// earlier one counts the same whether it holds or waits.
func (t *Table) grant() {
	ahead := map[string]front{}
	var stay []*Request
	t.held = slices.DeleteFunc(t.held, (*Request).dropped)
	for _, r := range t.waiting {
		waits := func(c Claim) bool { return !ahead[c.Name].lets(c, t.locks[c.Name].held) }
		switch {
		case r.dropped():
		case slices.ContainsFunc(r.Claims, waits):
			stay = append(stay, r)
			for _, c := range r.Claims {
				ahead[c.Name] = ahead[c.Name].with(c)
			}
		default:
			t.held = append(t.held, r)
			t.turn(r, t.Revision)
		}
	}
	t.waiting = stay
}

// retract takes back the last grants of this write, up to this number, and reports whether there
// was one. waited is the order of the requests that waited before it.
func (t *Table) retract(waited []*Request, grants int) (some bool) {
	for ; grants > 0 && len(t.held) > 0 && t.held[len(t.held)-1].Token == t.Revision; grants-- {
		t.turn(t.held[len(t.held)-1], 0)
		t.held = t.held[:len(t.held)-1]
		some = true
	}
	t.waiting = slices.DeleteFunc(slices.Clone(waited), func(r *Request) bool { return r.Token != 0 || r.dropped() })
	return some
}

// turn makes a request one that holds by this token, or one that waits if it is 0.
func (t *Table) turn(r *Request, token uint64) {
	for _, c := range r.Claims {
		*t.locks[c.Name].side(r) -= c.weight()
	}
	r.Token = token
	for _, c := range r.Claims {
		*t.locks[c.Name].side(r) += c.weight()
	}
}
