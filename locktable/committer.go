package locktable

import (
	"context"
	"runtime"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/tables"
)

// committer makes the table as this process wants it, for one term of this member. It sends one
// request at a time, and belongs to one goroutine: only what want has is shared. Times are
// monotonic.
type committer struct {
	*Table
	tm        *term
	watcher   *watcher
	awaitEnds func()                   // until the observer has heard which contexts the term's end has ended
	foreign   map[uint64]time.Duration // numbers of rows of this term that this process did not ask for, since when
	restored  bool                     // seen is older than what was seen before
	lost      *race                    // a write that has failed, until a read shows why
	outrun    bool                     // the last write has lost a race
	pace      time.Duration            // between two versions, while others write
	mustRead  bool                     // seen is not the current version, or is not known to be
	refusals  int                      // of writes, less those that have succeeded
	unread    int                      // reads that have failed in a row
	unwritten int                      // and writes
	pauseTill time.Duration            // before which no request is sent
	readAt    time.Duration            // of the next read
	slot      time.Duration            // of the last read that a wake-up has caused; earlier, if it was right
	joined    bool                     // a write that adds the member to the table was sent
	parted    bool                     // the read before leaving was tried
	leftAt    time.Duration            // when nothing ran any more of a term that ends
	refused   bool                     // leaving was refused for good
	lostAt    time.Duration            // when the term was seen to be lost
	undropped time.Duration            // since which something is to be dropped and cannot be
	writeTook time.Duration            // by the last write
	wroteAt   time.Duration            // when the last write had succeeded
	courtesy  time.Duration            // for which others may write then, if there are any
	rivals    time.Duration            // when another was last seen to write
}

func newCommitter(t *Table, tm *term) *committer {
	return &committer{
		Table: t, tm: tm, watcher: newWatcher(t, tm.working), foreign: make(map[uint64]time.Duration), mustRead: true,
		pauseTill: never, slot: never, wroteAt: never, rivals: never, leftAt: never, lostAt: never, undropped: never,
	}
}

const (
	calm     = 64                    // yields without a ring after which one was alone
	calmMany = 32 * calm             // and after which many have all come
	patience = 50 * time.Millisecond // a stream that does not end is written in parts
)

// gather first lets goroutines ask and release that are about to do so at this moment, so that one
// write has all of it. It does not sleep: a lone request passes after some microseconds.
func (c *committer) gather() {
	rings := c.rings.Load()
	if rings == c.heard {
		return
	}
	began, enough := c.clock.Now().Mono, calm
	for yields := 0; yields < enough && c.clock.Now().Mono-began < patience; yields++ {
		runtime.Gosched()
		if c.heard = rings; c.rings.Load() != rings {
			rings, yields, enough = c.rings.Load(), 0, calmMany
		}
	}
	c.heard = rings
}

// step carries out one action, and returns how long to wait until the next. done reports that the
// term needs nothing more.
func (c *committer) step(ctx context.Context) (wait time.Duration, done bool) {
	begun := c.clock.Now().Mono
	c.acts.Store(&begun)
	defer c.acts.Store(nil)
	c.gather()
	c.watcher.hear()
	now := c.clock.Now().Mono
	s, d := c.snapshot(now)
	if !s.valid && c.lostAt == never {
		c.lostAt = now
		c.termEnds(ctx, c.tm) // which may not have run yet
	}
	switch a := next(s, now); a.do {
	case end:
		return 0, true
	case read:
		last := s.leaving && s.current // if it fails, what is known has to do
		c.parted = c.parted || last
		if c.read(); last {
			c.pauseTill = now
		}
		return 0, false
	case write:
		c.write(c.seen, d)
		return 0, false
	case detach:
		return 0, c.detach()
	default:
		if s.valid && s.current && !s.differs && now >= s.pauseTill {
			c.well(true)
			c.undropped = never
		}
		return min(a.until, now+c.ttl) - now, false
	}
}

// snapshot is what next decides by, and the write that is due if something differs.
func (c *committer) snapshot(now time.Duration) (s snapshot, d *difference) {
	c.mu.Lock()
	leaving, busy, detaching := c.tm.leaving, c.tm.functions > 0, c.detaching != nil
	c.mu.Unlock()
	valid := c.tm.lease.Valid()
	if valid && leaving && !busy && c.leftAt == never {
		c.leftAt, c.pauseTill = now, now
	}
	s = snapshot{
		valid: valid, busy: busy, leaving: leaving, joined: c.joined, refused: c.refused, parted: c.parted,
		current: c.seen != nil && !c.mustRead, mustWrite: c.mustWrite, detaching: detaching,
		leaveBy: c.leftAt + min(c.ttl/2, parting), pauseTill: c.pauseTill, lookAt: forever,
	}
	if !s.valid || !s.current {
		return s, nil
	}
	var asked []uint64
	if !leaving {
		asked, s.outdated = c.screen()
	}
	s.readAt = c.nextReadAt(now)
	d = c.difference(leaving && !busy)
	if s.differs = d != nil; s.differs {
		s.handsOver, s.yieldTill = c.handsOver(c.seen, d), c.yieldTill()
	}
	if !leaving {
		n, _ := c.seen.tab.Find(c.tm.named)
		s.lookAt = c.watcher.plan(c.seen.tab, n, asked, now)
	}
	return s, d
}

// nextReadAt is when the table is to be read. A member that waits reads it once per poll interval,
// one that only holds every few TTLs, and after a wake-up sooner.
func (c *committer) nextReadAt(now time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.listened > 0 { // it may listen since a moment ago
		c.readAt = min(c.readAt, now+clock.Jitter(c.clock, c.poll))
	}
	if c.called {
		return min(c.readAt, c.wakeSlot(now))
	}
	return c.readAt
}

// wakeSlot is when a wake-up may cause a read.
func (c *committer) wakeSlot(now time.Duration) time.Duration {
	return max(c.slot, now-min(c.poll, c.ttl)) + c.slotLength()
}

// maxWakes is how many reads in a row wake-ups cause that were wrong, and how many in a poll
// interval.
const maxWakes = 10

func (w *want) slotLength() time.Duration { return min(w.poll, w.ttl) / maxWakes }

// restingReads is how many TTLs lie between two reads of a member that waits for nothing.
const restingReads = 4

// nextRead sets when the table is to be read again. The caller holds t.mu.
func (c *committer) nextRead() {
	wait := clock.Jitter(c.clock, restingReads*c.ttl)
	if c.place() > 0 {
		wait = clock.Jitter(c.clock, c.poll)
	}
	c.readAt = c.clock.Now().Mono + wait
}

// turnOf is after how many wake-ups it is a member's turn: behind the requests in front of its
// first request that wait for a lock for which it also waits. It is 0 if the member waits for
// nothing.
func turnOf(tab *tables.Table, n uint64) (place int) {
	mine := make(map[string]bool)
	for q := range tab.Waiting() {
		if q.Member == n {
			for _, c := range q.Claims {
				mine[c.Name] = true
			}
		}
	}
	if len(mine) == 0 {
		return 0
	}
	place = 1
	for q := range tab.Waiting() {
		if q.Member == n {
			break
		}
		if slices.ContainsFunc(q.Claims, func(c tables.Claim) bool { return mine[c.Name] }) {
			place++
		}
	}
	return place
}

// place is after how many wake-ups it may be this member's turn; 0 if it does not listen to them.
// The caller holds t.mu.
func (w *want) place() int {
	if w.listened > 0 {
		return 1
	}
	return w.turn
}

// yieldTill is until when others may write first. A member that has just written knows the newest
// version, and needs one request where a rival needs two: it would win every time.
func (c *committer) yieldTill() time.Duration {
	if c.wroteAt == never || c.rivals == never || c.clock.Now().Mono-c.ttl > c.rivals {
		return never
	}
	return c.wroteAt + c.courtesy
}

// maxRefusals bounds the spread of members that want to write at the same time, at 32 times the
// time of a write.
const maxRefusals = 6

// spread is a part of the time over which rivals spread their writes: the more refusals and the
// fewer successes, the longer.
func (c *committer) spread(part float64) time.Duration {
	unit := max(c.writeTook, time.Millisecond)
	if c.refusals > 3 { // a crowd, or a store that limits writes
		unit = max(unit, c.pace)
	}
	return time.Duration(part * float64(unit) * float64(int(1)<<max(c.refusals-1, 0)))
}
