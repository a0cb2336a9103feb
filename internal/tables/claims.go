package tables

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxName     = 512 // of a lock, in bytes
	maxCapacity = 1_000_000
)

// Claim is what a request wants of one lock: exclusive if Shared is false and Of is 0; else shared;
// else Slots of a capacity of Of.
type Claim struct {
	Name      string
	Shared    bool
	Slots, Of int
}

// String names the claim for people: "name", "name (shared)" or "name (2 of 8)".
func (c Claim) String() string {
	switch {
	case c.Shared:
		return c.Name + " (shared)"
	case c.Of > 0:
		return fmt.Sprintf("%s (%d of %d)", c.Name, c.Slots, c.Of)
	}
	return c.Name
}

// semaphore reports whether the claim is of slots.
func (c Claim) semaphore() bool { return c.Of > 0 }

// kind is what a lock is, for people.
func kind(semaphore bool) string {
	if semaphore {
		return "a semaphore"
	}
	return "a lock"
}

// CheckClaims says what is wrong with the claims of one request.
func CheckClaims(claims []Claim) error { return check(sorted(claims)) }

// sorted returns the claims by name: a copy, unless they are in this order. The order of claims
// says nothing, because they take effect together.
func sorted(claims []Claim) []Claim {
	if slices.IsSortedFunc(claims, Claim.byName) {
		return claims
	}
	claims = slices.Clone(claims)
	slices.SortFunc(claims, Claim.byName)
	return claims
}

func (c Claim) byName(other Claim) int { return strings.Compare(c.Name, other.Name) }

func check(sorted []Claim) error {
	if len(sorted) == 0 {
		return errors.New("a request without a claim")
	}
	for i, c := range sorted {
		var wrong string
		switch {
		case c.Name == "":
			wrong = "the name is empty"
		case len(c.Name) > maxName:
			wrong = fmt.Sprintf("the name of %d bytes exceeds the limit of %d", len(c.Name), maxName)
		case !utf8.ValidString(c.Name):
			wrong = "the name is not valid UTF-8"
		case strings.ContainsFunc(c.Name, unicode.IsControl):
			wrong = "the name has a control character"
		case i > 0 && sorted[i-1].Name == c.Name:
			wrong = "it is claimed twice in one request"
		case c.Of == 0 && c.Slots == 0: // not a semaphore
		case c.Shared:
			wrong = "it is claimed both shared and in slots"
		case c.Of < 1 || c.Of > maxCapacity:
			wrong = fmt.Sprintf("the capacity %d is not between 1 and %d", c.Of, maxCapacity)
		case c.Slots < 1 || c.Slots > c.Of:
			wrong = fmt.Sprintf("%d slots are not between 1 and the capacity %d", c.Slots, c.Of)
		}
		if wrong != "" {
			return fmt.Errorf("lock %.80q: %s", c.Name, wrong)
		}
	}
	return nil
}

// whole is the capacity of a lock that is not a semaphore: all of it for one, or a part of it for
// each of many. So one rule does for all locks.
const whole = 1 << 40

// weight is how much of the capacity is claimed.
func (c Claim) weight() int64 {
	switch {
	case c.Of > 0:
		return int64(c.Slots)
	case c.Shared:
		return 1
	default:
		return whole
	}
}

// room is the capacity that the claim goes by.
func (c Claim) room() int64 { return cmp.Or(int64(c.Of), whole) }

// front is what is in front of a claim and stays waiting: how much it claims, and the smallest
// capacity that any of it goes by; 0 if nothing is in front.
type front struct{ weight, room int64 }

func (f front) with(c Claim) front {
	return front{f.weight + c.weight(), min(cmp.Or(f.room, whole), c.room())}
}

// lets reports whether a claim can be held together with others that hold this much, behind this
// front. The capacity that counts is the claim's own. Behind a claim with a smaller capacity it is
// the smaller one, or a stream of claims with the larger one would keep the other waiting for ever.
func (f front) lets(c Claim, held int64) bool {
	all := f.with(c)
	return held+all.weight <= all.room
}

// lock is the index of one name: what would else take a walk through the whole table to find.
type lock struct {
	semaphore     bool
	held, waiting int64      // the weight of the claims
	line          []*Request // the requests that claim it; the waiting ones are in order
	gone          int        // of the line: they were dropped
}

// side is the weight that the claims of r are part of.
func (l *lock) side(r *Request) *int64 {
	if r.Token != 0 {
		return &l.held
	}
	return &l.waiting
}

// of is the claim of a request for the lock with this name.
func (r *Request) of(name string) Claim {
	i, _ := slices.BinarySearchFunc(r.Claims, Claim{Name: name}, Claim.byName)
	return r.Claims[i]
}

// InTheWay returns the members that a waiting request waits for, by rising number: they hold what
// it claims, or claim it earlier. The request's own member may be among them.
func (t *Table) InTheWay(id ID) []uint64 {
	r := t.requests[id]
	if r == nil || r.Token != 0 {
		return nil
	}
	return t.Behind(id, r.Claims, func(uint64) bool { return true })
}

// Behind returns the members in the way that are among these, if these alone would keep the request
// waiting. It returns none if the request could be granted without the others. A request that is
// not in the table is taken for the last in line, with these sorted claims.
func (t *Table) Behind(id ID, claims []Claim, these func(member uint64) bool) []uint64 {
	members := []uint64{}
	for _, c := range claims {
		held, ahead, there := int64(0), front{}, []uint64(nil)
		for other, o := range t.before(t.requests[id], c.Name) {
			switch {
			case !these(other.Member) || c.Shared && o.Shared:
				continue
			case other.Token != 0:
				held += o.weight()
			default:
				ahead = ahead.with(o)
			}
			there = append(there, other.Member)
		}
		if !ahead.lets(c, held) { // else there are slots enough
			members = append(members, there...)
		}
	}
	slices.Sort(members)
	return slices.Compact(members)
}

// Users returns the members whose requests name a lock of these claims as another kind.
func (t *Table) Users(claims []Claim) (members []uint64) {
	for _, c := range claims {
		if l := t.locks[c.Name]; l == nil || l.semaphore == c.semaphore() {
			continue
		}
		for other := range t.before(nil, c.Name) {
			members = append(members, other.Member)
		}
	}
	slices.Sort(members)
	return slices.Compact(members)
}

// before lists the requests that claim a lock in front of r, holding ones too, with their claims of
// it: all requests if r is nil. A request that is behind r and holds was granted because it fits
// together with r.
func (t *Table) before(r *Request, name string) iter.Seq2[*Request, Claim] {
	return func(yield func(*Request, Claim) bool) {
		l := t.locks[name]
		if l == nil {
			return
		}
		for _, other := range l.line {
			if other == r || !other.dropped() && !yield(other, other.of(name)) {
				return
			}
		}
	}
}

// Ahead is one lock that a member waits for: the members that hold it, and the members that wait
// for it in front of the member's first request, the nearest first. The member itself is in neither
// list.
type Ahead struct{ Holders, Front []uint64 }

// AheadOf lists the locks that a member waits for. It walks once along each line, however many
// requests of the member are in it.
func (t *Table) AheadOf(member uint64) []Ahead {
	var list []Ahead
	seen := map[string]bool{}
	for r := range t.Waiting() {
		if r.Member != member {
			continue
		}
		for _, c := range r.Claims {
			if seen[c.Name] {
				continue
			}
			seen[c.Name] = true
			var a Ahead
			for other, o := range t.before(t.requests[r.ID], c.Name) {
				switch {
				case other.Member == member || c.Shared && o.Shared:
				case other.Token != 0:
					a.Holders = append(a.Holders, other.Member)
				default:
					a.Front = append(a.Front, other.Member)
				}
			}
			slices.Reverse(a.Front)
			list = append(list, a)
		}
	}
	return list
}

// Wanted reports whether a held request is in the way of any that waits. It is, if more is claimed
// than there is, because then the last in line waits: by the smallest capacity in that line.
func (t *Table) Wanted(id ID) bool {
	r := t.requests[id]
	return r != nil && r.Token != 0 && slices.ContainsFunc(r.Claims, func(c Claim) bool {
		l := t.locks[c.Name]
		room := int64(whole)
		for i := 0; l.semaphore && l.waiting > 0 && i < len(l.line); i++ {
			if other := l.line[i]; other.Token == 0 && !other.dropped() {
				room = min(room, other.of(c.Name).room())
			}
		}
		return l.waiting > 0 && l.held+l.waiting > room
	})
}
