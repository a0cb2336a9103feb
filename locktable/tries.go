package locktable

import (
	"slices"

	"github.com/leasehold-go/leasehold/internal/tables"
)

// judgeTries decides about tries, which do not wait for running members. A try fails if running
// members alone would keep it waiting. It is held back until each member in its way has been looked
// at: asked are the members that have not. If all of them seem dead, the try enters the table, and
// stays in line until one of them shows life or has ended. outdated reports that a try waits for a
// newer version than seen, because no version older than the call may refuse it.
func (c *committer) judgeTries() (asked []uint64, outdated bool) {
	c.mu.Lock()
	var tries []*request
	for _, r := range c.requests {
		if r.state == waiting && r.try {
			tries = append(tries, r)
		}
	}
	c.mu.Unlock()
	if len(tries) == 0 {
		return nil, false
	}
	now, tab := c.clock.Now(), c.seen.tab
	n, _ := tab.Find(c.tm.named)
	known := make(map[uint64]*life)
	for _, r := range tries {
		stateOf := func(m uint64) lifeState {
			if _, found := known[m]; !found {
				member, _ := tab.Member(m)
				known[m] = c.watcher.lives[member.Term]
			}
			return c.watcher.stateNow(known[m], now, r.began)
		}
		lives := func(m uint64) bool { return m == n || stateOf(m) == alive }
		id := tables.ID{Member: n, Number: r.number}
		r.heldBack = false
		if tab.Admits(r.claims) != nil { // build says why
			continue
		}
		if len(tab.Behind(id, r.claims, lives)) > 0 {
			if c.seen.begun < r.began {
				r.heldBack, outdated = !r.asked, true
				continue
			}
			err := c.named(c.heldError(tab, r, id))
			c.mu.Lock()
			if r.state == waiting {
				c.giveBack(r, err)
			}
			c.mu.Unlock()
			continue
		}
		for _, m := range tab.Behind(id, r.claims, func(uint64) bool { return true }) {
			if m != n && stateOf(m) == unknown {
				asked = append(asked, m)
				r.heldBack = !r.asked
			}
		}
	}
	slices.Sort(asked)
	return slices.Compact(asked), outdated
}
