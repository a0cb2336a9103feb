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
func (t *Table) judgeTries(tm *term) (asked []uint64, current bool) {
	t.mu.Lock()
	var tries []*request
	for _, r := range t.requests {
		if r.state == waiting && r.try {
			tries = append(tries, r)
		}
	}
	t.mu.Unlock()
	if len(tries) == 0 {
		return nil, true
	}
	now, tab := t.clock.Now(), t.seen.tab
	n, _ := tab.Find(tm.named)
	lives := func(m uint64) bool {
		member, _ := tab.Member(m)
		return m == n || tm.watcher.stateNow(member, now) == alive
	}
	for _, r := range tries {
		id := tables.ID{Member: n, Number: r.number}
		r.heldBack = false
		if tab.Admits(r.claims) != nil { // build says why
			continue
		}
		if len(tab.Behind(id, r.claims, lives)) > 0 {
			if t.seen.begun < r.began {
				return nil, false
			}
			err := t.named(t.heldError(tab, r, id))
			t.mu.Lock()
			if r.state == waiting {
				t.giveBack(r, err)
			}
			t.mu.Unlock()
			continue
		}
		for _, m := range tab.Behind(id, r.claims, func(uint64) bool { return true }) {
			if member, _ := tab.Member(m); m != n && tm.watcher.stateNow(member, now) == unknown {
				asked = append(asked, m)
				r.heldBack = !r.asked
			}
		}
	}
	slices.Sort(asked)
	return slices.Compact(asked), true
}
