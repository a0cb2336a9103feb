package tables

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Write is what one member means to change by one write.
type Write struct {
	By             Term
	AtLeast        uint64   // the highest revision that it remembers
	Gone           []uint64 // members that leave, or are evicted
	Dropped, Asked []ID     // of its own requests; Asked in order
}

// Follows says which rule this version would break as the one that w makes of base; nil if none:
//   - the revision rises, and with it each token;
//   - nobody holds what excludes another;
//   - who waits keeps the place in line, is passed by nobody who takes what it waits for, and waits
//     for something;
//   - nothing that was asked is lost, and no request of another is changed;
//   - nobody but the writer joins or asks.
//
// It looks at the outcome alone, and shares no code with what has built it.
func (t *Table) Follows(base *Table, w Write) error {
	if t.Revision <= max(base.Revision, w.AtLeast) || t.Nonce == "" || t.Nonce == base.Nonce {
		return fmt.Errorf("the revision %d and nonce %q do not follow %d and %q", t.Revision, t.Nonce,
			max(base.Revision, w.AtLeast), base.Nonce)
	}
	if err := t.keepsMembers(base, w); err != nil {
		return err
	}
	if err := t.keepsRequests(base, w); err != nil {
		return err
	}
	if err := t.excludes(); err != nil {
		return err
	}
	return t.keepsOrder(base, w)
}

func (t *Table) keepsMembers(base *Table, w Write) error {
	for n, m := range base.members {
		if now := t.members[n]; (now.Term == m.Term) == slices.Contains(w.Gone, n) {
			return fmt.Errorf("member %d %q is to go or to stay, and does not", n, m.Name)
		}
	}
	for n, m := range t.members {
		if base.members[n].Term != m.Term && m.Term != w.By {
			return fmt.Errorf("member %d %q joins by a write of another", n, m.Name)
		}
	}
	return nil
}

func (t *Table) keepsRequests(base *Table, w Write) error {
	kept, missing := 0, 0
	for id, r := range base.requests {
		if slices.Contains(w.Gone, id.Member) {
			continue
		}
		now := t.requests[id]
		switch {
		case now == nil:
			missing++
		case !same(r.Claims, now.Claims):
			return fmt.Errorf("the claims of request %+v change", id)
		case r.Token != now.Token && (r.Token != 0 || now.Token != t.Revision):
			return fmt.Errorf("the token of request %+v changes from %d to %d", id, r.Token, now.Token)
		default:
			kept++
		}
	}
	self, _ := t.Find(w.By)
	for _, id := range w.Dropped {
		if base.requests[id] == nil || t.requests[id] != nil || base.members[id.Member].Term != w.By {
			return fmt.Errorf("request %+v is not dropped by its member", id)
		}
	}
	for _, id := range w.Asked {
		now := t.requests[id]
		if now == nil || id.Member != self || now.Token != 0 && now.Token != t.Revision {
			return fmt.Errorf("request %+v is not asked by its member", id)
		}
	}
	if missing != len(w.Dropped) || len(t.requests) != kept+len(w.Asked) {
		return fmt.Errorf("of %d requests, %d are lost and %d dropped; of %d, %d are asked", len(base.requests),
			missing, len(w.Dropped), len(t.requests), len(w.Asked))
	}
	return nil
}

// same compares claims, which versions of a table share as long as nothing has gone wrong.
func same(a, b []Claim) bool {
	return len(a) == len(b) && len(a) > 0 && (&a[0] == &b[0] || slices.Equal(a, b))
}

// excludes counts what is held of each lock, and does not trust the sums of the index.
func (t *Table) excludes() error {
	inLine := 0
	for name, l := range t.locks {
		held := int64(0)
		for _, r := range l.line {
			i := slices.IndexFunc(r.Claims, func(c Claim) bool { return c.Name == name })
			if i < 0 || r.Claims[i].Of != l.of {
				return fmt.Errorf("request %+v stands in the line of %.80q", r.ID, name)
			}
			if r.Token != 0 {
				held += r.Claims[i].weight()
			}
		}
		if held != l.held || held > cmp.Or(int64(l.of), whole) {
			return fmt.Errorf("more of %.80q is held than there is", name)
		}
		inLine += len(l.line)
	}
	for _, r := range t.requests {
		inLine -= len(r.Claims)
	}
	if inLine != 0 {
		return errors.New("a claim stands in no line, or twice")
	}
	return nil
}

func (t *Table) keepsOrder(base *Table, w Write) error {
	ahead := make(map[string]int64) // the weight of what those claim that stay waiting
	at := 0
	next := func(id ID) error {
		r := t.requests[id]
		blocked, passes := false, false
		for _, c := range r.Claims {
			most := cmp.Or(int64(c.Of), whole)
			blocked = blocked || t.locks[c.Name].held+ahead[c.Name]+c.weight() > most
			passes = passes || t.locks[c.Name].held+ahead[c.Name] > most
		}
		switch {
		case r.Token != 0 && passes:
			return fmt.Errorf("request %+v is granted past an earlier one", id)
		case r.Token != 0:
			return nil
		case !blocked:
			return fmt.Errorf("request %+v waits for nothing", id)
		case at >= len(t.waiting) || t.waiting[at] != r:
			return fmt.Errorf("request %+v loses its place in line", id)
		}
		at++
		for _, c := range r.Claims {
			ahead[c.Name] += c.weight()
		}
		return nil
	}
	for r := range base.Waiting() {
		if t.requests[r.ID] == nil || slices.Contains(w.Gone, r.Member) {
			continue
		}
		if err := next(r.ID); err != nil {
			return err
		}
	}
	for _, id := range w.Asked {
		if err := next(id); err != nil {
			return err
		}
	}
	if at != len(t.waiting) {
		return errors.New("somebody waits who has not asked")
	}
	return nil
}
