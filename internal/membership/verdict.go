// Package membership has the members of a group. Each member holds one root lock, on a separate
// object, and counts as a member as long as its term of that lock. Group.Member is this process as
// a member. A Judge finds out whether the term of another member has ended. Nothing here knows what
// a member may do while its term lasts: a user of the package, such as a table of locks, lets the
// group name terms, and evicts a member whose term has ended.
package membership

import (
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/tables"
)

// Term names one term of a member for ever.
type Term = tables.Term

// TermOf names the term of a record of the lock with this key.
func TermOf(key string, r leasehold.Record) Term {
	return Term{Key: key, ObjectID: r.ObjectID, TermID: r.TermID, Token: r.Token}
}

// Verdict is what one look at a member's object shows of a term.
type Verdict struct {
	State  State
	Reason string // for logs
}

// State is what is known of a term.
type State uint8

// The states of a term.
const (
	Unknown State = iota // the look proves nothing
	Alive                // the term continues, as far as a look can show
	Over                 // the term has ended for good: no process acts under it any more
)

// question asks whether a term has ended.
type question struct {
	term  Term
	ttl   time.Duration // of the term, as the group knows it
	drift float64       // see leasehold.WithClockDrift
}

// sight is what one look has shown.
type sight struct {
	exists bool
	rec    leasehold.Record
	// For at least this time, by the clock of the process that looks, the object has shown this and
	// nothing else. What this means for two looks is up to shows.
	stood time.Duration
}

// answer is the whole rule, without I/O. If take is true, the look asks for another one, after the
// object was taken or made by the root's TryAcquire: that alone proves nothing.
func (q question) answer(s sight) (v Verdict, take bool) {
	rec := s.rec
	same := s.exists && rec.ObjectID == q.term.ObjectID
	this := same && rec.Token == q.term.Token && rec.TermID == q.term.TermID
	switch {
	case !s.exists: // a late write may bring it back
		return Verdict{Unknown, "it has no object"}, true
	case same && rec.Token > q.term.Token:
		return Verdict{Over, "a later term of its object has begun"}, false
	case this && rec.Released():
		return Verdict{Over, "it was released"}, false
	case this && s.stood < q.lasts(rec.TTL):
		return Verdict{Alive, "it may continue"}, false
	case this:
		return Verdict{Unknown, "it was not renewed for its TTL"}, true
	}
	// The object was deleted, replaced or restored. A late write may still bring the term back,
	// until it must have run out. A higher token under another object id proves nothing.
	if s.stood < q.lasts(q.ttl) {
		return Verdict{Unknown, "its object shows something else, and not for long"}, false
	}
	if same {
		return Verdict{Over, "its object has shown another term for its TTL"}, false
	}
	return Verdict{Over, "another object has been in its place for its TTL"}, false
}

// lasts is how long this machine must count to be sure that ttl has passed on the member's clock.
func (q question) lasts(ttl time.Duration) time.Duration {
	return time.Duration(float64(ttl) * (1 + q.drift))
}

// shown is what must stay the same for an object to have shown one thing.
type shown struct{ objectID, termID, nonce string }

// shows is what a record shows to this question: of the term itself each renewal, of another term
// of its object that term, and of another object only that it is there.
func (q question) shows(r leasehold.Record) shown {
	switch {
	case r.ObjectID != q.term.ObjectID:
		return shown{objectID: r.ObjectID}
	case r.Token != q.term.Token || r.TermID != q.term.TermID:
		return shown{objectID: r.ObjectID, termID: r.TermID}
	}
	return shown{r.ObjectID, r.TermID, r.Nonce}
}
