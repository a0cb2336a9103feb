package locktable

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/tables"
)

// isOver reports whether the term of a member is known to be over. So is an earlier one of this
// member's own object.
func (tm *term) isOver(m tables.Member) bool {
	return tm.watcher.isOver(m) ||
		m.Key == tm.named.Key && m.ObjectID == tm.named.ObjectID && m.Token < tm.named.Token
}

// difference is what the table lacks of what this process wants, and has too much; nil if nothing.
// last says that the member leaves.
func (t *Table) difference(tm *term, last bool) *difference {
	tab := t.seen.tab // it never changes, so it is walked through before the mutex is locked
	d := &difference{}
	n, joined := tab.Find(tm.named)
	var rows []tables.Request
	if joined {
		rows = tab.Requests(n)
	}
	for m, member := range tab.Members() {
		if m != n && tm.isOver(member) {
			d.evict = append(d.evict, m)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	strangers := t.strangers(tm, rows)
	if last && (!joined || len(tm.foreign) == 0) {
		if d.leaves = joined; d.leaves {
			return d
		}
		return nil
	}
	d.join = !joined && !tm.leaving
	d.drop = strangers
	for _, row := range rows {
		if r := t.mine(row); r != nil && !t.wants(tm, r) {
			d.drop = append(d.drop, row.ID)
		}
	}
	if !tm.leaving {
		for _, r := range t.inOrder() {
			_, there := tab.Request(tables.ID{Member: n, Number: r.number})
			if r.state == waiting && !r.asked && !there && !r.heldBack {
				r.sent = true
				d.ask = append(d.ask, r)
			}
		}
	}
	if d.nothing(len(d.ask)) {
		return nil
	}
	return d
}

// mine is the request of this process that stands in a row of its member; nil if it never asked for
// that. The caller holds t.mu.
func (t *Table) mine(row tables.Request) *request {
	if r := t.requests[row.Number]; r != nil && slices.Equal(r.claims, row.Claims) {
		return r
	}
	return nil
}

// wants reports whether a request is to stand in the table. The caller holds t.mu.
func (*Table) wants(tm *term, r *request) bool {
	return r.state == held || r.state == waiting && !tm.leaving
}

// strangers are the rows of this term that this process never asked for, and that are to go. A copy
// of this machine has asked for them, and its lease runs out a TTL after the last renewal that both
// have seen. So after two TTLs, in which this process has kept the term, nobody acts under them any
// more. Those of an older table that somebody has brought back go at once. The caller holds t.mu.
func (t *Table) strangers(tm *term, rows []tables.Request) (over []tables.ID) {
	now := t.clock.Now().Mono
	first := tm.foreign
	tm.foreign, tm.copied = make(map[uint64]time.Duration), false
	for _, row := range rows {
		if t.mine(row) != nil {
			continue
		}
		since, known := first[row.Number]
		if !known {
			since = now
		}
		tm.foreign[row.Number] = since
		if tm.restored || now-since > strange*t.ttl {
			over = append(over, row.ID)
		} else {
			tm.copied = true
		}
	}
	return over
}

// strange is for how many TTLs rows stay that a copy of this machine seems to have asked for.
const strange = 2

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
			asked = append(asked, r)
		}
		t.mustHold(tm, base, d)
		body, over, err := tab.Seal(rand.Text()[:16], t.floor, t.maxSize)
		tm.watcher.full = errors.Is(err, ErrFull) // the dead take room
		if errors.Is(err, ErrFull) && len(asked) > 0 {
			// The last ones go, as many as the bytes over the limit are worth, and one at least.
			most := max(over*len(asked)/max(t.maxSize+over-base.size-base.tab.Reserve(), 1), 1)
			for _, r := range asked[max(len(asked)-most, 0):] {
				failed[r] = err
			}
			continue
		}
		if postponed := t.fail(tm, base, failed); postponed && d.nothing(len(asked)) && !t.mustWrite {
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
		row, _ := base.tab.Request(id)
		if r := t.mine(row); r != nil && r.state == held || id.Member != self {
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
		switch {
		case r.state != waiting:
		case base.begun < r.began:
			postponed = true
		default:
			t.giveBack(r, t.named(err))
		}
	}
	return postponed
}
