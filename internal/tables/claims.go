package tables

import (
	"cmp"
	"errors"
	"fmt"
	"math"
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
			wrong = fmt.Sprintf("the name of %d bytes is over the limit of %d", len(c.Name), maxName)
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

// fits reports whether the claim can be held beside others that weigh so much.
func (c Claim) fits(others int64) bool { return others+c.weight() <= cmp.Or(int64(c.Of), whole) }

// lock is the index of one name: what would else take a walk through the whole table to find.
type lock struct {
	of            int        // the capacity; 0: not a semaphore
	held, waiting int64      // the weight of the claims
	line          []*Request // who claims it; those that wait are in order
}

// side is the weight that the claims of r are part of.
func (l *lock) side(r *Request) *int64 {
	if r.Token != 0 {
		return &l.held
	}
	return &l.waiting
}

// InTheWay returns the members that a waiting request waits for, by rising number: those who hold
// what it claims, and those who claim it earlier. The request's own member may be among them.
func (t *Table) InTheWay(id ID) []uint64 { return t.inTheWay(id, math.MaxInt) }

// Nearest returns those of them who hold, and of those who wait in front the last n for each lock.
// So in a long line, each has n that follow it, and not all that are behind it.
func (t *Table) Nearest(id ID, n int) []uint64 { return t.inTheWay(id, n) }

func (t *Table) inTheWay(id ID, nearest int) []uint64 {
	r := t.requests[id]
	if r == nil || r.Token != 0 {
		return nil
	}
	members := []uint64{}
	for _, c := range r.Claims {
		weight := int64(0)
		var holders, front []uint64
		for _, other := range t.locks[c.Name].line {
			if other == r { // who is behind and holds was granted beside it
				break
			}
			i, _ := slices.BinarySearchFunc(other.Claims, c, Claim.byName)
			if o := other.Claims[i]; !c.Shared || !o.Shared {
				weight += o.weight()
				if other.Token != 0 {
					holders = append(holders, other.Member)
				} else {
					front = append(front, other.Member)
				}
			}
		}
		if !c.fits(weight) { // else there are slots enough
			members = slices.Concat(members, holders, front[max(len(front)-nearest, 0):])
		}
	}
	slices.Sort(members)
	return slices.Compact(members)
}

// Wanted reports whether a held request is in the way of any that waits, which is so if more is
// claimed than there is.
func (t *Table) Wanted(id ID) bool {
	r := t.requests[id]
	return r != nil && r.Token != 0 && slices.ContainsFunc(r.Claims, func(c Claim) bool {
		l := t.locks[c.Name]
		return l.held+l.waiting > cmp.Or(int64(c.Of), whole)
	})
}

// IsHeld reports whether anybody holds a lock.
func (t *Table) IsHeld(name string) bool { return t.locks[name] != nil && t.locks[name].held > 0 }
