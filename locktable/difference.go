package locktable

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/tables"
)

// isOver reports whether the term of a member is known to be over. So is an earlier one of this
// member's own object.
func (tm *term) isOver(m tables.Member) bool {
	if w := tm.watches[m.Term]; w != nil && w.over {
		return true
	}
	return m.Key == tm.named.Key && m.ObjectID == tm.named.ObjectID && m.Token < tm.named.Token
}

// difference is what the table lacks of what this process wants, and has too much; nil if nothing.
// last says that the member leaves.
func (t *Table) difference(tm *term, last bool) *difference {
	t.mu.Lock()
	defer t.mu.Unlock()
	tab := t.seen.tab
	d := &difference{}
	n, joined := tab.Find(tm.named)
	for m, member := range tab.Members() {
		switch {
		case m == n && joined:
			d.leaves = last
		case tm.isOver(member):
			d.evict = append(d.evict, m)
		}
	}
	if last {
		if !d.leaves {
			return nil
		}
		return d
	}
	d.join = !joined
	if joined {
		for _, row := range tab.Requests(n) {
			r := t.requests[row.Number]
			if wanted := r != nil && r.state != freeing && (r.state != waiting || !tm.leaving); !wanted {
				d.drop = append(d.drop, row.ID)
			}
		}
	}
	if !tm.leaving {
		for _, r := range t.inOrder() {
			if r.state != waiting || r.asked {
				continue
			}
			if joined {
				if _, there := tab.Request(tables.ID{Member: n, Number: r.number}); there {
					continue
				}
			}
			d.ask = append(d.ask, r)
		}
	}
	if d.nothing(len(d.ask)) {
		return nil
	}
	return d
}

// handsOver reports whether a write frees what others wait for.
func (*Table) handsOver(base *version, d *difference) bool {
	return slices.ContainsFunc(d.drop, base.tab.Wanted)
}

// difference is one write of the table.
type difference struct {
	evict  []uint64
	join   bool
	leaves bool
	drop   []tables.ID
	ask    []*request
}

// nothing reports whether the write changes nothing, if so many requests are asked for by it.
func (d *difference) nothing(asked int) bool {
	return asked+len(d.evict)+len(d.drop) == 0 && !d.join && !d.leaves
}

// build makes the next version of the table. Requests that cannot be part of it fail, if base was
// read after they were made; otherwise build returns nil, and the table must be read first.
func (t *Table) build(tm *term, base *version, d *difference) (built *tables.Table, body []byte, asks int, err error) {
	failed := make(map[*request]error)
	for {
		tab := base.tab.Clone()
		for _, m := range d.evict {
			tab.Leave(m)
		}
		n, _ := tab.Find(tm.named)
		if d.leaves {
			tab.Leave(n)
		}
		for _, id := range d.drop {
			tab.Drop(id)
		}
		if d.join {
			n = tab.Join(tm.entry)
		}
		asked := make([]*request, 0, len(d.ask))
		for _, r := range d.ask {
			if failed[r] != nil {
				continue
			}
			if err := tab.Ask(tables.ID{Member: n, Number: r.number}, r.claims); err != nil {
				failed[r] = err
				continue
			}
			if id := (tables.ID{Member: n, Number: r.number}); r.try && len(tab.InTheWay(id)) > 0 {
				failed[r] = t.heldError(tab, r, id)
				tab.Drop(id)
				continue
			}
			asked = append(asked, r)
		}
		t.mustHold(tm, base, d)
		body, over, err := tab.Seal(rand.Text()[:16], t.floor, t.maxSize)
		tm.full = errors.Is(err, ErrFull)
		if errors.Is(err, ErrFull) && len(asked) > 0 {
			// The last ones go, as many as the bytes over the limit are worth, and one at least.
			most := max(over*len(asked)/max(t.maxSize+over-base.size-base.tab.Reserve(), 1), 1)
			for _, r := range asked[max(len(asked)-most, 0):] {
				failed[r] = err
			}
			continue
		}
		if errors.Is(err, ErrFull) && d.join && len(d.evict) > 0 { // what makes room needs none
			d.join = false
			continue
		}
		if postponed := t.fail(tm, base, failed); postponed && d.nothing(len(asked)) && !t.unknown {
			return nil, nil, 0, nil
		}
		if errors.Is(err, ErrFull) && !d.join && len(body) <= leasehold.MaxObjectSize { // it only frees
			err = nil
		}
		return tab, body, len(asked), err
	}
}

// mustHold panics if a write that is about to be sent would free what is in use. A panic is right
// outside of tests, too. Such a write comes from a mistake in this package, so what this process
// believes of its leases cannot be trusted either. Nothing is sent then, the contexts of all leases
// end, and nobody gets their locks before the TTL has passed: see Table.Run. An error would leave
// the process to go on with what it believes. What the table grants is not checked again here: the
// enumeration, the fuzz tests and each write of a simulated world do that.
func (t *Table) mustHold(tm *term, base *version, d *difference) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var err error
	self, _ := base.tab.Find(tm.named)
	for _, id := range d.drop {
		if r := t.requests[id.Number]; r != nil && r.state == held || id.Member != self {
			err = fmt.Errorf("request %+v is dropped while its lease goes on, or is of another", id)
		}
	}
	if d.leaves && tm.functions > 0 {
		err = fmt.Errorf("the member leaves while %d functions run", tm.functions)
	}
	if err != nil {
		panic(fmt.Errorf("locktable: table %q: %w, nothing was written: %w (a mistake in this package: report it)",
			t.key, errInvariant, err))
	}
}

// errInvariant marks a panic of mustHold.
var errInvariant = errors.New("an invariant would be broken")

// fail tells requests why they cannot be part of the table. It reports whether base is too old for
// one of them, which waits for the next write.
func (t *Table) fail(tm *term, base *version, failed map[*request]error) (postponed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for r, err := range failed {
		if r.state == waiting && base.begun < r.began {
			postponed = true
			continue
		}
		if r.state == waiting {
			t.finish(r, t.named(err))
		}
	}
	return postponed
}
