package locktable

import (
	"slices"

	"github.com/leasehold-go/leasehold/internal/tables"
)

// judgeTries decides about tries, which do not wait for running members. A try fails if running
// members alone would keep it waiting. It is held back until each member in its way has been looked
// at: asked are the members that have not. If all of them seem dead, the try enters the table, and
// stays in line until one of them shows life or has ended. current is false if a try waits for a
// newer version than seen, because no version older than the call may refuse it.
func (c *committer) judgeTries() (asked []uint64, current bool) {
	c.mu.Lock()
	var tries []*request
	for _, r := range c.requests {
		if r.state == waiting && r.try {
			tries = append(tries, r)
		}
	}
	c.mu.Unlock()
	if len(tries) == 0 {
		return nil, true
	}
	now, tab := c.clock.Now(), c.seen.tab
	n, _ := tab.Find(c.tm.named)
	states := make(map[uint64]lifeState)
	stateOf := func(m uint64) lifeState {
		state, known := states[m]
		if !known {
			member, _ := tab.Member(m)
			state = c.watcher.stateNow(member, now)
			states[m] = state
		}
		return state
	}
	lives := func(m uint64) bool { return m == n || stateOf(m) == alive }
	for _, r := range tries {
		id := tables.ID{Member: n, Number: r.number}
		r.heldBack = false
		if tab.Admits(r.claims) != nil { // build says why
			continue
		}
		if len(tab.Behind(id, r.claims, lives)) > 0 {
			if c.seen.begun < r.began {
				return nil, false
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
	return slices.Compact(asked), true
}
