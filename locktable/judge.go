package locktable

import (
	"errors"
	"slices"

	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/tables"
)

// judge decides about the requests that fail if running members alone are the reason: tries, and
// requests that the table has refused. Crashed members may be the reason until each member in
// question has been looked at: asked are the members that have not. outdated reports that a try
// waits for a newer version than seen, because no version older than the call may refuse it.
func (c *committer) judge() (asked []uint64, outdated bool) {
	now, tab := c.clock.Now(), c.seen.tab
	c.mu.Lock()
	var judged []*request
	for _, r := range c.requests {
		if r.state == waiting && (r.try || r.refusedBy(tab)) {
			judged = append(judged, r)
		}
	}
	c.mu.Unlock()
	if len(judged) == 0 {
		return nil, false
	}
	n, _ := tab.Find(c.tm.named)
	known := make(map[uint64]*life)
	for _, r := range judged {
		stateOf := func(m uint64) lifeState {
			if _, found := known[m]; !found {
				member, _ := tab.Member(m)
				known[m] = c.watcher.lives[member.Term]
			}
			if m == n {
				return alive
			}
			return c.watcher.stateNow(known[m], now, r.began)
		}
		var unsure []uint64
		var waits bool
		var err error
		if r.refusedBy(tab) {
			unsure, err = c.judgeRefused(r, stateOf, now)
		} else {
			unsure, waits, err = c.judgeTry(r, stateOf, tables.ID{Member: n, Number: r.number})
		}
		asked, outdated = append(asked, unsure...), outdated || waits
		if err == nil {
			continue
		}
		c.mu.Lock()
		if r.state == waiting {
			c.giveBack(r, c.named(err))
		}
		c.mu.Unlock()
	}
	slices.Sort(asked)
	return slices.Compact(asked), outdated
}

// judgeTry decides about a try. It fails if running members alone would keep it waiting. It is held
// back until each member in its way has been looked at. If all of them seem dead, the try enters
// the table, and stays in line until one of them shows life or has ended.
func (c *committer) judgeTry(
	r *request, stateOf func(m uint64) lifeState, id tables.ID,
) (unsure []uint64, outdated bool, err error) {
	tab := c.seen.tab
	r.heldBack = false
	if tab.Admits(r.claims) != nil { // build refuses it
		return nil, false, nil
	}
	if len(tab.Behind(id, r.claims, func(m uint64) bool { return stateOf(m) == alive })) > 0 {
		if c.seen.begun < r.began {
			r.heldBack = !r.asked
			return nil, true, nil
		}
		return nil, false, c.heldError(tab, r, id)
	}
	for _, m := range tab.Behind(id, r.claims, func(uint64) bool { return true }) {
		if stateOf(m) == unknown {
			unsure = append(unsure, m)
			r.heldBack = !r.asked
		}
	}
	return unsure, false, nil
}

// judgeRefused decides about a request that the table has refused. It fails if all members in
// question run, and after two TTLs in any case. If it failed at once, a process that asks once and
// exits would leave the crashed members to the next one, which would do the same.
func (c *committer) judgeRefused(
	r *request, stateOf func(m uint64) lifeState, now clock.Reading,
) (unsure []uint64, err error) {
	var members []uint64
	switch tab := c.seen.tab; {
	case errors.Is(r.refused.err, ErrFull):
		for m := range tab.Members() {
			members = append(members, m)
		}
	case errors.Is(r.refused.err, ErrCapacity):
		members = tab.Users(r.claims)
	}
	run := true
	for _, m := range members {
		state := stateOf(m)
		if state == unknown {
			unsure = append(unsure, m)
		}
		run = run && state == alive
	}
	if run || now.Mono-r.began > 2*max(c.ttl, c.poll) {
		return nil, r.refused.err
	}
	c.readAt = min(c.readAt, now.Mono+clock.Jitter(c.clock, c.poll)) // others may make it possible
	return unsure, nil
}
