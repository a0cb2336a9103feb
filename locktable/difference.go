package locktable

import (
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/internal/tables"
)

// difference is one write of the table.
type difference struct {
	evict  []uint64
	join   bool
	leaves bool
	drop   []tables.ID
	ask    []*request
}

// nothing reports whether the write changes nothing.
func (d *difference) nothing() bool {
	return len(d.ask)+len(d.evict)+len(d.drop) == 0 && !d.join && !d.leaves
}

// difference is what the table lacks of the entries that this process wants, and the entries that
// it has too many; nil if it has exactly those. last says that the member leaves.
func (c *committer) difference(last bool) *difference {
	tab := c.seen.tab // it never changes, so it is walked through before the mutex is locked
	d := &difference{}
	n, joined := tab.Find(c.tm.named)
	var rows []tables.Request
	if joined {
		rows = tab.Requests(n)
	}
	for m, member := range tab.Members() {
		if m != n && c.isOver(member) {
			d.evict = append(d.evict, m)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	strangers := c.strangers(rows)
	if last && (!joined || len(c.foreign) == 0) {
		if d.leaves = joined; d.leaves {
			return d
		}
		return nil
	}
	d.join = !joined && !c.tm.leaving
	d.drop = append(strangers, c.unwanted(rows)...)
	if !c.tm.leaving {
		for _, r := range c.inOrder() {
			_, there := tab.Request(tables.ID{Member: n, Number: r.number})
			refused := r.refusedBy(tab) && len(d.evict)+len(d.drop) == 0
			if r.state == waiting && !r.asked && !there && !r.heldBack && !refused {
				r.sent = true
				d.ask = append(d.ask, r)
			}
		}
	}
	if d.nothing() {
		return nil
	}
	return d
}

// unwanted are the rows of this process that are to be dropped. The caller holds t.mu.
func (c *committer) unwanted(rows []tables.Request) (ids []tables.ID) {
	for _, row := range rows {
		if r := c.mine(row); r != nil && r.state != held && (r.state != waiting || c.tm.leaving) {
			ids = append(ids, row.ID)
		}
	}
	return ids
}

// isOver reports whether the term of a member is known to have ended. Each earlier term of this
// member's own object has ended.
func (c *committer) isOver(m tables.Member) bool {
	return c.watcher.isOver(m) ||
		m.Key == c.tm.named.Key && m.ObjectID == c.tm.named.ObjectID && m.Token < c.tm.named.Token
}

// handsOver reports whether a write releases a lock for which others wait.
func (*committer) handsOver(base *version, d *difference) bool {
	return slices.ContainsFunc(d.drop, base.tab.Wanted)
}

// strangers are the rows of this term that this process never asked for, and that are to go. A copy
// of this machine has asked for them, and its lease runs out a TTL after the last renewal that both
// have seen. So after two TTLs, in which this process has kept the term, no process acts under them
// any more. An older table that was restored may hold such rows too, so it changes nothing. The
// caller holds t.mu.
func (c *committer) strangers(rows []tables.Request) (over []tables.ID) {
	now := c.clock.Now().Mono
	first := c.foreign
	c.foreign, c.tm.copied = make(map[uint64]time.Duration), false
	for _, row := range rows {
		if c.mine(row) != nil {
			continue
		}
		since, known := first[row.Number]
		if !known {
			since = now
		}
		c.foreign[row.Number] = since
		if now-since > strange*c.ttl {
			over = append(over, row.ID)
		} else {
			c.tm.copied = true
		}
	}
	return over
}

// strange is for how many TTLs rows stay that a copy of this machine seems to have asked for.
const strange = 2
