package locktable

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/tables"
)

// object is what the committer knows of the table's object. It outlives terms, and has no mutex:
// one committer follows the other.
type object struct {
	seen  *version // the newest version that was seen; nil if none was
	floor uint64   // the highest revision that was ever seen
	heard uint64   // rings, by gather
	// One write must follow: another over seen may still land, or seen is not what the members of
	// this table leave behind.
	mustWrite bool
}

// version is one version of the table. It never changes.
type version struct {
	tab   *tables.Table
	etag  string // "" if there is no object
	size  int
	sum   [sha256.Size]byte // of the body as it was read; zero of one that was written
	begun time.Duration     // monotonic time before the request that showed it
}

// write writes what differs over base.
func (c *committer) write(base *version, d *difference) {
	if d == nil {
		d = &difference{} // a new revision kills the write whose outcome is unknown
	}
	tab, body, err := c.build(base, d)
	switch {
	case tab == nil:
		c.read()
		return
	case d.nothing() && !c.mustWrite:
		return
	case err != nil:
		c.mustRead = c.mustRead || errors.Is(err, leasehold.ErrCorruptRecord) // a person may repair it
		c.failed(true, err)
		return
	}
	limited, cancel := context.WithTimeout(c.tm.working, c.attempt())
	defer cancel()
	if !c.tm.lease.Valid() { // no request of a term that has ended
		return
	}
	begun := c.clock.Now().Mono
	next := &version{tab: tab, size: len(body), begun: begun}
	c.mustRead = true // even if the store panics
	c.joined = c.joined || d.join
	c.mu.Lock()
	c.wakes, c.called = 0, false
	c.mu.Unlock()
	if base.etag == "" {
		next.etag, err = c.store.PutIfNoneMatch(limited, c.key, body)
	} else {
		next.etag, err = c.store.PutIfMatch(limited, c.key, body, base.etag)
	}
	if err == nil && next.etag == "" {
		err = errors.New("the store's answer has no ETag")
	}
	c.writeTook = c.clock.Now().Mono - begun
	e := Event{
		Kind: EventWrite, Duration: c.writeTook, Err: err, Asked: len(d.ask), Dropped: len(d.drop),
		Evicted: len(d.evict),
	}
	c.observed(e, next)
	if err != nil {
		c.writeFailed(base, d, err)
		return
	}
	c.mustRead, c.mustWrite, c.unwritten, c.undropped, c.outrun = false, false, 0, never, false
	c.refusals /= 2
	c.wroteAt, c.courtesy = begun+c.writeTook, min(c.spread(1+2*c.clock.Rand()), c.ttl)
	c.well(true)
	c.adopt(next)
	if d.leaves || len(d.evict) > 0 || c.handsOver(base, d) {
		c.wakeSiblings()
	}
	c.mu.Lock()
	c.settleResumed(nil)
	c.mu.Unlock()
}

// writeFailed takes the error of a write.
func (c *committer) writeFailed(base *version, d *difference, err error) {
	switch {
	case c.tm.working.Err() != nil:
		c.mustWrite = true
	case raced(err):
		c.mustWrite = c.mustWrite || errors.Is(err, leasehold.ErrConflict)
		c.refusals = min(c.refusals+1, maxRefusals)
		c.lost = &race{base: base, err: err}
		pause := min(c.spread(c.clock.Rand()), c.poll)
		if c.handsOver(base, d) {
			pause = time.Duration(c.clock.Rand() * float64(c.writeTook))
		}
		c.pauseTill = c.clock.Now().Mono + pause
	default:
		c.mustWrite = c.mustWrite || !errors.Is(err, leasehold.ErrPermanent)
		if !errors.Is(err, leasehold.ErrPermanent) && !errors.Is(err, context.DeadlineExceeded) {
			c.lost = &race{base: base}
		}
		c.failed(true, err)
	}
}

// race is a write that the server has answered, and not carried out. If the table shows another
// version than base then, the write has lost a race, whatever the answer was.
type race struct {
	base *version
	err  error // nil if it counts as a failure already
}

// raced reports whether the server says that another write was there before, or is under way.
func raced(err error) bool {
	return errors.Is(err, leasehold.ErrPreconditionFailed) || errors.Is(err, leasehold.ErrNotExist) ||
		errors.Is(err, leasehold.ErrConflict)
}

// settleRace finds out by a new version why the last write has failed. To lose a race is no
// failure, however often: this member will win one. A write that is still under way counts like a
// store that cannot be written, until it has landed. Else the server refuses a condition that
// holds.
func (c *committer) settleRace(v *version) {
	lost := c.lost
	c.lost = nil
	switch {
	case lost == nil:
	case !lost.base.is(v):
		c.undropped, c.unwritten, c.outrun = never, 0, true
		c.well(true)
	case lost.err == nil:
	case errors.Is(lost.err, leasehold.ErrConflict):
		c.noteTrouble(true, lost.err)
		if c.clock.Now().Mono-c.trouble.since > c.patience() {
			c.failTries(lost.err)
		}
		c.endIfStuck(false, lost.err)
	default: // the next write follows soon: one of unknown outcome may still be under way
		err := fmt.Errorf("the store refuses a condition that holds: %w", lost.err)
		c.outrun = false
		c.noteTrouble(true, err)
		c.failTries(err)
		c.endIfStuck(false, err)
	}
}

// is reports whether two versions are the same write. Their ETags do not show that: a server may
// give a new body with the ETag of the version before, or the other way round.
func (v *version) is(other *version) bool {
	return v.tab.Revision == other.tab.Revision && v.tab.Nonce == other.tab.Nonce
}

// read reads the table.
func (c *committer) read() {
	begun := c.clock.Now().Mono
	c.mu.Lock()
	wakes, called, resuming := c.wakes, c.called, c.resumed.pending()
	c.wakes, c.called = 0, false
	if slot := c.wakeSlot(begun); called && slot <= begun && begun < c.readAt {
		c.slot = slot
	}
	c.mu.Unlock()
	v, err := c.get(c.tm.working, begun, c.seen)
	c.observed(Event{Kind: EventRead, Duration: c.clock.Now().Mono - begun, Err: err}, v)
	if err != nil && c.tm.working.Err() != nil {
		return
	}
	if err != nil {
		c.mu.Lock()
		c.wakes, c.called = c.wakes+wakes, c.called || called
		c.mu.Unlock()
		c.failed(false, err)
		c.readAt = c.pauseTill
		return
	}
	c.well(false)
	same := c.seen != nil && c.seen.is(v)
	if !same && called && c.slot != never {
		c.slot -= c.slotLength()
	}
	if !same {
		if c.rivals != never && v.tab.Revision > c.floor {
			c.pace = min((begun-c.rivals)/time.Duration(v.tab.Revision-c.floor), time.Second)
		}
		c.rivals = begun
		c.mustWrite = false // the condition of a write that is still under way does not hold any more
	}
	c.mustRead, c.unread = false, 0
	edited := c.seen == nil || c.seen.tab != v.tab // even by an edit that has left the revision as it was
	c.settleRace(v)
	c.adopt(v)
	if c.undropped != never && !c.standsInTheWay(false) {
		c.undropped = never
	}
	// An edit by hand grants nothing. And a process that had this member before may have a write
	// under way that leaves the table: a new revision refuses that write.
	if edited && v.tab.Unfinished(v.size) || resuming {
		c.mustWrite = true
	}
}

// get reads the table's object. A missing one is a table without entries. What shows the bytes of
// the last version is not decoded again.
func (t *Table) get(ctx context.Context, begun time.Duration, last *version) (*version, error) {
	limited, cancel := context.WithTimeout(ctx, t.attempt())
	defer cancel()
	obj, err := t.store.Get(limited, t.key)
	if errors.Is(err, leasehold.ErrNotExist) {
		return &version{tab: tables.New(), begun: begun}, nil
	}
	if err != nil {
		return nil, err
	}
	v := &version{etag: obj.ETag, size: len(obj.Body), sum: sha256.Sum256(obj.Body), begun: begun}
	if last != nil && last.sum == v.sum {
		v.tab = last.tab
		return v, nil
	}
	if v.tab, err = tables.Decode(obj.Body); err != nil {
		return nil, err
	}
	return v, nil
}

// observed passes the event of a read or write to the observer.
func (t *Table) observed(e Event, v *version) {
	e.Table = t.key
	if e.Err == nil {
		e.Revision, e.Bytes = v.tab.Revision, v.size
		e.Members, e.Held, e.Waiting = v.tab.Counts()
	}
	t.observe(e)
}

// build makes the next version of the table. Requests that cannot be part of it leave d, and are
// refused if base was read after they were made. Otherwise build returns nil, and the table must be
// read first.
func (c *committer) build(base *version, d *difference) (built *tables.Table, body []byte, err error) {
	failed := make(map[*request]error)
	var out []*request // for which there was no room, the last first
	filled := false
	for {
		tab := base.tab.Clone()
		for _, m := range d.evict {
			tab.Leave(m)
		}
		n, _ := tab.Find(c.tm.named)
		if d.leaves {
			tab.Leave(n)
		}
		for _, id := range d.drop {
			tab.Drop(id)
		}
		if d.join {
			n = tab.Join(c.tm.entry)
		}
		d.ask = slices.DeleteFunc(d.ask, func(r *request) bool {
			err := tab.Ask(tables.ID{Member: n, Number: r.number}, r.claims)
			if err != nil {
				failed[r] = err
			}
			return err != nil
		})
		c.mustHold(base, d)
		body, over, err := tab.Seal(rand.Text()[:16], c.floor, c.maxSize)
		if errors.Is(err, ErrFull) {
			c.watcher.fullTill = c.clock.Now().Mono + c.ttl // crashed members take room
		}
		if errors.Is(err, ErrFull) && len(d.ask) > 0 {
			// The last ones go, as many as the bytes over the limit are worth, and one at least.
			for over > 0 && len(d.ask) > 0 {
				last := d.ask[len(d.ask)-1]
				failed[last], over = err, over-last.size()
				d.ask, out = d.ask[:len(d.ask)-1], append(out, last)
			}
			continue
		}
		if kept := len(d.ask); err == nil && !filled { // a large request keeps no small one behind it out
			filled = true
			for _, r := range slices.Backward(out) {
				if size := r.size(); size <= -over {
					over += size
					delete(failed, r)
					d.ask = append(d.ask, r)
				}
			}
			if len(d.ask) > kept {
				continue
			}
		}
		full := errors.Is(err, ErrFull)
		if c.refuse(base, failed) && (d.nothing() && !c.mustWrite || full && d.join) { // base is too old
			return nil, nil, nil
		}
		if full && !d.join && len(body) <= leasehold.MaxObjectSize { // it only releases
			err = nil
		}
		return tab, body, err
	}
}

// mustHold panics if a write that is about to be sent would release a lock that is in use. A panic
// is right outside of tests too. Such a write comes from a mistake in this package, so what this
// process believes of its leases cannot be trusted either. Nothing is sent then, the contexts of
// all leases end, and no other member gets their locks before the TTL has passed: see Table.Run.
// After an error the process would continue with what it believes. What the table grants is not
// checked again here: the enumeration, the fuzz tests and each write of a simulated world do that.
func (c *committer) mustHold(base *version, d *difference) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var err error
	self, _ := base.tab.Find(c.tm.named)
	for _, id := range d.drop {
		row, _ := base.tab.Request(id)
		if r := c.mine(row); r != nil && r.state == held || id.Member != self {
			err = fmt.Errorf("request %+v is dropped while its lease lasts, or belongs to another member", id)
		}
	}
	if d.leaves && c.tm.functions > 0 {
		err = fmt.Errorf("the member leaves while %d functions run", c.tm.functions)
	}
	if err != nil {
		panic(fmt.Errorf("locktable: table %q: %w, nothing was written: %w (a mistake in this package: report it)",
			c.key, errInvariant, err))
	}
}

// errInvariant marks a panic of mustHold.
var errInvariant = errors.New("an invariant would be broken")

// refuse notes why requests cannot be part of the table: screen says whether they fail. It
// reports whether base is too old for one of them, which waits for the next write.
func (c *committer) refuse(base *version, failed map[*request]error) (postponed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for r, err := range failed {
		switch {
		case r.state != waiting:
		case base.begun < r.began:
			postponed = true
		default:
			since := c.clock.Now().Mono
			if r.refused != nil {
				since = r.refused.since
			}
			r.refused = &refusal{base.tab, err, since} // until it is known whether crashed members are the reason
		}
	}
	return postponed
}

// adopt takes a version that was read or written: it grants what the table grants, and ends what it
// no longer holds.
func (c *committer) adopt(v *version) {
	var events []Event
	var listen []*request
	c.compareRevisions(v)
	n, _ := v.tab.Find(c.tm.named)
	turn := turnOf(v.tab, n)
	valid := c.tm.lease.Valid()
	c.mu.Lock()
	c.seen, c.newest = v, v
	for _, r := range c.inOrder() {
		if r.state == waiting && r.refused != nil { // a process that makes room for it may call Wake
			turn = max(turn, 1)
		}
		row, taken := v.tab.Request(tables.ID{Member: n, Number: r.number})
		there := taken && slices.Equal(row.Claims, r.claims)
		switch {
		case r.state == waiting && taken && !there: // a copy of this machine has drawn the same number
			c.renumber(r)
		case r.state == waiting && there && row.Token > 0 && valid && !c.tm.leaving:
			c.grant(r, row.Token)
			events = append(events, c.acquired(r))
		case r.state == waiting && there:
			r.asked, r.refused = true, nil
		case r.state == waiting && r.asked: // removed by hand
			c.renumber(r)
		case r.state == held && (!there || row.Token != r.token):
			events = append(events, c.lose(r, errRemoved))
		case r.state == held && r.forgotten.Load() && r.runs != running:
			c.free(r, leasehold.ErrReleased)
		case r.state == held && r.wanted != nil:
			listen = append(listen, r)
		case r.state == freeing && !there && !c.mustWrite && r.term == nil: // it was given back while it waited
			c.end(r, r.err)
		case r.state == freeing && !there && !c.mustWrite:
			events = append(events, c.gone(r, nil, false))
		}
	}
	c.turn = turn
	c.nextRead()
	c.mu.Unlock()
	for _, r := range listen {
		if v.tab.Wanted(tables.ID{Member: n, Number: r.number}) {
			c.mu.Lock()
			c.tellWanted(r)
			c.mu.Unlock()
		}
	}
	for _, e := range events {
		if errors.Is(e.Err, errRemoved) {
			c.log.Error("the table no longer holds a lease: it is lost", "table", c.key, "locks", e.Locks,
				"token", e.Token)
		}
		c.observe(e)
	}
}

// compareRevisions notes whether a version is older than one that this process remembers.
func (c *committer) compareRevisions(v *version) {
	was, known := c.floor, c.restored
	if was == leasehold.MaxToken { // no write continues above it, so a person has lowered the revision if it is lower
		was = 0
	}
	if c.restored = v.tab.Revision < was; c.restored {
		c.mustWrite = true // so that tokens continue above what this process remembers
	}
	if c.restored && !known {
		c.log.Error("the table's object was deleted or restored", "table", c.key, "revision", v.tab.Revision,
			"was", was, "effect", "leases that are no longer in it are lost")
	}
	c.floor = max(was, v.tab.Revision)
}

// errRemoved is why a lease is lost that the table no longer has.
var errRemoved = errors.New("its entry was removed from the table by hand, or the table was deleted or restored")
