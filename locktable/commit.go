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

// step sends one request, if one is due, and returns how long to wait until the next step. done
// reports that the term needs nothing more.
func (t *Table) step(ctx context.Context, tm *term) (wait time.Duration, done bool) {
	t.gather()
	now := t.clock.Now().Mono
	if !tm.lease.Valid() {
		if tm.lostAt == never {
			tm.lostAt = now
			t.termEnds(ctx, tm) // which may not have run yet
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		return t.ttl, tm.functions == 0 // the end of a function rings
	}
	t.mu.Lock()
	leaving, idle, seen := tm.leaving, tm.functions == 0, t.seen
	t.mu.Unlock()
	if leaving && idle && tm.leftAt == never {
		tm.leftAt, tm.pauseTill = now, now
	}
	resume := tm.pauseTill
	if leaving && idle { // the release of the member's lock frees all the same
		end := tm.leftAt + min(t.ttl/2, parting)
		if !tm.joined || tm.refused || now >= end {
			return 0, true
		}
		resume = min(resume, end)
	}
	if now < resume {
		return resume - now, false
	}
	if leaving && !tm.parted && !tm.mustRead {
		// Others have often written since the last read. To read costs less than a write that is
		// refused, and most functions return meanwhile. If it fails, what is known has to do.
		tm.parted = true
		t.read(tm)
		tm.pauseTill = now
		return 0, false
	}
	if seen == nil || tm.mustRead || t.readDue(tm, now) {
		t.read(tm)
		return 0, false
	}
	d := t.difference(tm, leaving && idle)
	if d == nil && leaving && idle && !t.mustWrite {
		return 0, true
	}
	if d != nil || t.mustWrite {
		if wait := t.yield(tm, d, now); wait > 0 {
			return wait, false
		}
		t.write(tm, seen, d)
		return 0, false
	}
	t.well(true)
	tm.undropped = never
	if leaving { // the end of a function rings
		return t.ttl, false
	}
	wait = min(t.watchOthers(tm, now), tm.readAt-now)
	if len(tm.foreign) > 0 {
		wait = min(wait, copied*t.ttl)
	}
	return wait, false
}

// readDue reports whether the table is to be read. A member that waits reads it once per poll
// interval, one that only holds every few TTLs.
func (t *Table) readDue(tm *term, now time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if tm.leaving {
		return false
	}
	if t.listened > 0 { // it may listen since a moment ago
		tm.readAt = min(tm.readAt, now+clock.Jitter(t.clock, t.poll))
	}
	if t.called {
		slot := max(tm.slot, now-min(t.poll, t.ttl)) + t.slotLength()
		if slot <= now {
			tm.slot = slot
			return true
		}
		tm.readAt = min(tm.readAt, slot)
	}
	return now >= tm.readAt
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

// yield is how long to let others write. A member that has just written knows the newest version,
// and needs one request where a rival needs two: it would win every time. Whatever hands a lock
// over is written at once.
func (t *Table) yield(tm *term, d *difference, now time.Duration) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if tm.leaving || t.mustWrite || now-t.ttl > tm.rivals || t.handsOver(t.seen, d) {
		return 0
	}
	if tm.wroteAt == never {
		return 0
	}
	return tm.wroteAt + tm.courtesy - now
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
