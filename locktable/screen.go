package locktable

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/tables"
)

// screen is about the requests that fail if running members alone are the reason: tries, and
// requests that the table has refused. Crashed members may be the reason until each member in
// question has been looked at: asked are the members that have not. outdated reports that a try
// waits for a newer version than seen, because no version older than the call may refuse it.
func (c *committer) screen() (asked []uint64, outdated bool) {
	tab := c.seen.tab
	var undecided []*request
	s := survey{committer: c, now: c.clock.Now()}
	c.mu.Lock()
	for _, r := range c.requests {
		if r.state != waiting || !r.try && !r.refusedBy(tab) {
			continue
		}
		undecided = append(undecided, r)
		if r.refusedBy(tab) && errors.Is(r.refused.err, ErrFull) {
			s.latest = max(s.latest, r.refused.since)
		}
	}
	c.mu.Unlock()
	if len(undecided) == 0 {
		return nil, false
	}
	s.self, _ = tab.Find(c.tm.named)
	s.known = make(map[uint64]*life)
	for _, r := range undecided {
		var unsure []uint64
		var waits bool
		var err error
		if r.refusedBy(tab) {
			unsure, err = s.refused(r)
		} else {
			unsure, waits, err = s.try(r)
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

// survey is what one call of screen knows of the members.
type survey struct {
	*committer
	self   uint64 // this member
	now    clock.Reading
	known  map[uint64]*life
	latest time.Duration // refusal by a full table
	full   bool          // the members of the full table were looked through
	run    bool          // and all of them run
}

// stateOf is the state of a member for a call of this time.
func (s *survey) stateOf(m uint64, call time.Duration) lifeState {
	if m == s.self {
		return alive
	}
	l, found := s.known[m]
	if !found {
		member, _ := s.seen.tab.Member(m)
		l = s.watcher.lives[member.Term]
		s.known[m] = l
	}
	return s.watcher.stateNow(l, s.now, call)
}

// try decides about a try. It fails if running members alone would keep it waiting. It is held back
// until each member in its way has been looked at. If all of them seem dead, the try enters the
// table, and stays in line until one of them shows life or has ended.
func (s *survey) try(r *request) (unsure []uint64, outdated bool, err error) {
	tab, id := s.seen.tab, tables.ID{Member: s.self, Number: r.number}
	r.heldBack = false
	if tab.Admits(r.claims) != nil { // build refuses it
		return nil, false, nil
	}
	if len(tab.Behind(id, r.claims, func(m uint64) bool { return s.stateOf(m, r.began) == alive })) > 0 {
		if s.seen.begun < r.began {
			r.heldBack = !r.asked
			return nil, true, nil
		}
		return nil, false, s.heldError(tab, r, id)
	}
	for _, m := range tab.Behind(id, r.claims, func(uint64) bool { return true }) {
		if s.stateOf(m, r.began) == unknown {
			unsure = append(unsure, m)
			r.heldBack = !r.asked
		}
	}
	return unsure, false, nil
}

// refused decides about a request that the table has refused. It fails if all members in question
// run, and after two TTLs in any case. If it failed at once, a process that asks once and exits
// would leave the crashed members to the next one, which would do the same.
func (s *survey) refused(r *request) (unsure []uint64, err error) {
	run := true
	switch tab := s.seen.tab; {
	case errors.Is(r.refused.err, ErrFull):
		if !s.full { // once for all that are refused, because both may be many
			s.full = true
			unsure, s.run = s.look(slices.Collect(maps.Keys(maps.Collect(tab.Members()))), s.latest)
		}
		run = s.run
	case errors.Is(r.refused.err, ErrCapacity):
		unsure, run = s.look(tab.Users(r.claims), r.refused.since)
	}
	if run || s.now.Mono-r.refused.since > s.patience() {
		return nil, r.refused.err
	}
	s.readAt = min(s.readAt, s.now.Mono+clock.Jitter(s.clock, s.poll)) // others may make it possible
	return unsure, nil
}

// look reports whether members run, and of which that is not known, for a call of this time. One at
// which this process cannot look at the moment may have crashed.
func (s *survey) look(members []uint64, call time.Duration) (unsure []uint64, run bool) {
	run = true
	for _, m := range members {
		state := s.stateOf(m, call)
		if state == unknown {
			unsure = append(unsure, m)
		}
		l := s.known[m]
		failed := l != nil && l.err != nil && !errors.Is(l.err, leasehold.ErrPermanent)
		run = run && state == alive && !failed
	}
	return unsure, run
}
