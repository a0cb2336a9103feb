package locktable

import (
	"context"
	"runtime"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/tables"
)

// ring tells the committer that it may have something to do. A ring during a step is heard after
// it.
func (t *Table) ring() {
	t.rings.Add(1)
	select {
	case t.bell <- struct{}{}:
	default:
	}
}

const (
	calm     = 64                    // yields without a ring after which one was alone
	calmMany = 32 * calm             // and after which many have all come
	patience = 50 * time.Millisecond // a stream that does not end is written in parts
)

// gather lets those ask and free first who are about to do so at this moment, so that one write has
// all of it. It waits for no time: a lone request passes after some microseconds.
func (t *Table) gather() {
	rings := t.rings.Load()
	if rings == t.heard {
		return
	}
	began, enough := t.clock.Now().Mono, calm
	for yields := 0; yields < enough && t.clock.Now().Mono-began < patience; yields++ {
		runtime.Gosched()
		if t.heard = rings; t.rings.Load() != rings {
			rings, yields, enough = t.rings.Load(), 0, calmMany
		}
	}
	t.heard = rings
}

// step carries out one action, and returns how long to wait until the next. done reports that the
// term needs nothing more.
func (t *Table) step(ctx context.Context, tm *term) (wait time.Duration, done bool) {
	t.gather()
	tm.watcher.hear()
	now := t.clock.Now().Mono
	if !tm.lease.Valid() && tm.lostAt == never {
		tm.lostAt = now
		t.termEnds(ctx, tm) // which may not have run yet
	}
	s, d := t.snapshot(tm, now)
	switch a := next(s, now); a.do {
	case end:
		return 0, true
	case read:
		last := s.leaving && s.current // if it fails, what is known has to do
		tm.parted = tm.parted || last
		if t.read(tm); last {
			tm.pauseTill = now
		}
		return 0, false
	case write:
		t.write(tm, t.seen, d)
		return 0, false
	case detach:
		return 0, t.detach(tm)
	default:
		if s.valid && s.current && !s.differs && now >= s.pauseTill {
			t.well(true)
			tm.undropped = never
		}
		return min(a.until, now+t.ttl) - now, false
	}
}

// snapshot is what next decides by, and the write that is due if something differs.
func (t *Table) snapshot(tm *term, now time.Duration) (s snapshot, d *difference) {
	t.mu.Lock()
	leaving, busy, detaching := tm.leaving, tm.functions > 0, t.detaching != nil
	t.mu.Unlock()
	valid := tm.lease.Valid()
	if valid && leaving && !busy && tm.leftAt == never {
		tm.leftAt, tm.pauseTill = now, now
	}
	s = snapshot{
		valid: valid, busy: busy, leaving: leaving, joined: tm.joined, refused: tm.refused, parted: tm.parted,
		current: t.seen != nil && !tm.mustRead, mustWrite: t.mustWrite, detaching: detaching,
		leaveBy: tm.leftAt + min(t.ttl/2, parting), pauseTill: tm.pauseTill, readAt: t.nextReadAt(tm, now),
		lookAt: forever,
	}
	if !s.valid || !s.current {
		return s, nil
	}
	var asked []uint64
	if !leaving {
		if asked, s.current = t.judgeTries(tm); !s.current {
			return s, nil
		}
	}
	d = t.difference(tm, leaving && !busy)
	if s.differs = d != nil; s.differs {
		s.handsOver, s.yieldTill = t.handsOver(t.seen, d), t.yieldTill(tm)
	}
	if !leaving {
		n, _ := t.seen.tab.Find(tm.named)
		s.lookAt = tm.watcher.plan(t.seen.tab, n, asked, now)
	}
	return s, d
}

// nextReadAt is when the table is to be read. A member that waits reads it once per poll interval,
// one that only holds every few TTLs, and after a wake-up sooner.
func (t *Table) nextReadAt(tm *term, now time.Duration) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.listened > 0 { // it may listen since a moment ago
		tm.readAt = min(tm.readAt, now+clock.Jitter(t.clock, t.poll))
	}
	if t.called {
		return min(tm.readAt, t.wakeSlot(tm, now))
	}
	return tm.readAt
}

// wakeSlot is when a wake-up may cause a read.
func (t *Table) wakeSlot(tm *term, now time.Duration) time.Duration {
	return max(tm.slot, now-min(t.poll, t.ttl)) + t.slotLength()
}

// maxWakes is how many reads in a row wake-ups cause that were wrong, and how many in a poll
// interval.
const maxWakes = 10

func (t *Table) slotLength() time.Duration { return min(t.poll, t.ttl) / maxWakes }

// restingReads is how many TTLs lie between two reads of a member that waits for nothing.
const restingReads = 4

// nextRead sets when the table is to be read again. The caller holds t.mu.
func (t *Table) nextRead(tm *term) {
	wait := clock.Jitter(t.clock, restingReads*t.ttl)
	if _, listens := t.place(); listens {
		wait = clock.Jitter(t.clock, t.poll)
	}
	tm.readAt = t.clock.Now().Mono + wait
}

// turn is when this member's turn comes in a version: after how many wake-ups, if it waits at all.
type turn struct {
	place int
	waits bool
}

// turnOf finds the turn of a member: behind those who stand in front of its first request and wait
// for something that it waits for, too.
func turnOf(tab *tables.Table, n uint64) turn {
	mine := make(map[string]bool)
	for q := range tab.Waiting() {
		if q.Member == n {
			for _, c := range q.Claims {
				mine[c.Name] = true
			}
		}
	}
	at := turn{1, len(mine) > 0}
	for q := range tab.Waiting() {
		if q.Member == n || !at.waits {
			break
		}
		if slices.ContainsFunc(q.Claims, func(c tables.Claim) bool { return mine[c.Name] }) {
			at.place++
		}
	}
	return at
}

// place is after how many wake-ups it may be this member's turn, and whether it listens to wake-ups
// at all. The caller holds t.mu.
func (t *Table) place() (place int, listens bool) {
	if t.listened > 0 {
		return 1, true
	}
	return t.turn.place, t.turn.waits
}

// yieldTill is until when others may write first. A member that has just written knows the newest
// version, and needs one request where a rival needs two: it would win every time.
func (t *Table) yieldTill(tm *term) time.Duration {
	if tm.wroteAt == never || tm.rivals == never || t.clock.Now().Mono-t.ttl > tm.rivals {
		return never
	}
	return tm.wroteAt + tm.courtesy
}

// maxRefusals bounds the spread of those who want to write at the same time, at 32 times the time
// of a write.
const maxRefusals = 6

// spread is a part of the time over which rivals spread their writes: the more refusals and the
// fewer successes, the longer.
func (tm *term) spread(part float64) time.Duration {
	unit := max(tm.writeTook, time.Millisecond)
	if tm.refusals > 3 { // a crowd, or a store that limits writes
		unit = max(unit, tm.pace)
	}
	return time.Duration(part * float64(unit) * float64(int(1)<<max(tm.refusals-1, 0)))
}
