package locktable

import (
	"slices"

	"github.com/leasehold-go/leasehold/internal/tables"
)

// judgeTries decides about those who will not wait for anybody who lives. One fails if members that
// live would alone keep it waiting. It is held back as long as nobody has looked at one of those in
// its way: they are returned, as asked. If all of these seem dead, it is asked for, and stays in
// line until one of them shows life or is over. current is false if one waits for a newer version
// than seen, because nobody is refused by what is older than the call.
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
