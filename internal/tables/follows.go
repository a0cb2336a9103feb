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
	return t.keepsLocks()
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

// keepsRequests walks both versions side by side, because a write changes no order.
func (t *Table) keepsRequests(base *Table, w Write) error {
	heldLeft, waitingLeft, missing := t.held, t.waiting, 0
	next := func(list *[]*Request, id ID) *Request {
		if len(*list) == 0 || (*list)[0].ID != id {
			return nil
		}
		r := (*list)[0]
		*list = (*list)[1:]
		return r
	}
	for r := range live(base.held, base.waiting) {
		if slices.Contains(w.Gone, r.Member) {
			continue
		}
		now := next(&heldLeft, r.ID)
		if now == nil && r.Token == 0 {
			now = next(&waitingLeft, r.ID)
		}
		switch {
		case now == nil:
			missing++
		case !same(r.Claims, now.Claims):
			return fmt.Errorf("the claims of request %+v change", r.ID)
		case r.Token != now.Token && (r.Token != 0 || now.Token != t.Revision):
			return fmt.Errorf("the token of request %+v changes from %d to %d", r.ID, r.Token, now.Token)
		}
	}
	self, _ := t.Find(w.By)
	for _, id := range w.Asked {
		now := cmp.Or(next(&heldLeft, id), next(&waitingLeft, id))
		if now == nil || id.Member != self || now.Token != 0 && now.Token != t.Revision {
			return fmt.Errorf("request %+v is not asked in its place by its member", id)
		}
	}
	for _, id := range w.Dropped {
		if base.requests[id] == nil || t.requests[id] != nil || base.members[id.Member].Term != w.By {
			return fmt.Errorf("request %+v is not dropped by its member", id)
		}
	}
	if missing != len(w.Dropped) || len(heldLeft)+len(waitingLeft) > 0 ||
		len(t.requests) != len(t.held)+len(t.waiting) {
		return fmt.Errorf("%d requests are dropped and %d are not in their places; %d are in the places of others",
			len(w.Dropped), missing, len(heldLeft)+len(waitingLeft))
	}
	return nil
}

// same compares claims, which versions of a table share as long as nothing has gone wrong.
func same(a, b []Claim) bool {
	return len(a) == len(b) && len(a) > 0 && (&a[0] == &b[0] || slices.Equal(a, b))
}

// keepsLocks walks each line. It does not trust the sums of the index.
func (t *Table) keepsLocks() error {
	inLine := 0
	blocked := make(map[*Request]bool) // of those that wait for several locks
	for name, l := range t.locks {
		held, most := int64(0), cmp.Or(int64(l.of), whole)
		claim := func(r *Request) Claim {
			if len(r.Claims) == 1 {
				return r.Claims[0]
			}
			i := slices.IndexFunc(r.Claims, func(c Claim) bool { return c.Name == name })
			return r.Claims[max(i, 0)]
		}
		for _, r := range l.line {
			c := claim(r)
			if c.Name != name || c.Of != l.of {
				return fmt.Errorf("request %+v stands in the line of %.80q", r.ID, name)
			}
			if r.Token != 0 {
				held += c.weight()
			}
		}
		if held != l.held || held > most {
			return fmt.Errorf("more of %.80q is held than there is", name)
		}
		ahead := held // and what those in front claim that wait
		for _, r := range l.line {
			weight := claim(r).weight()
			switch {
			case r.Token == t.Revision && ahead > most:
				return fmt.Errorf("request %+v is granted past an earlier one", r.ID)
			case r.Token != 0:
				continue
			case ahead+weight > most && len(r.Claims) > 1:
				blocked[r] = true
			case ahead+weight <= most && len(r.Claims) == 1:
				return fmt.Errorf("request %+v waits for nothing", r.ID)
			}
			ahead += weight
		}
		inLine += len(l.line)
	}
	for _, r := range t.waiting {
		if len(r.Claims) > 1 && !blocked[r] {
			return fmt.Errorf("request %+v waits for nothing", r.ID)
		}
	}
	for r := range live(t.held, t.waiting) {
		inLine -= len(r.Claims)
	}
	if inLine != 0 {
		return errors.New("a claim stands in no line, or twice")
	}
	return nil
}
