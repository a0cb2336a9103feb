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

// write writes what differs over base.
func (t *Table) write(tm *term, base *version, d *difference) {
	if d == nil {
		d = &difference{} // a new revision kills the write whose outcome is unknown
	}
	tab, body, asked, err := t.build(tm, base, d)
	switch {
	case tab == nil:
		t.read(tm)
		return
	case d.nothing(asked) && !t.mustWrite:
		return
	case err != nil:
		t.failed(tm, true, err)
		return
	}
	limited, cancel := context.WithTimeout(tm.working, t.attempt())
	defer cancel()
	if !tm.lease.Valid() { // no request of a term that is over
		return
	}
	begun := t.clock.Now().Mono
	next := &version{tab: tab, size: len(body), begun: begun}
	tm.mustRead = true // also if the store panics
	tm.joined = tm.joined || d.join
	t.mu.Lock()
	t.wakes, t.called = 0, false
	t.mu.Unlock()
	if base.etag == "" {
		next.etag, err = t.store.PutIfNoneMatch(limited, t.key, body)
	} else {
		next.etag, err = t.store.PutIfMatch(limited, t.key, body, base.etag)
	}
	if err == nil && next.etag == "" {
		err = errors.New("the store's answer has no ETag")
	}
	tm.writeTook = t.clock.Now().Mono - begun
	e := Event{
		Kind: EventWrite, Duration: tm.writeTook, Err: err, Asked: len(d.ask), Dropped: len(d.drop),
		Evicted: len(d.evict),
	}
	t.tell(e, next)
	if err != nil {
		t.refused(tm, base, d, err)
		return
	}
	tm.mustRead, t.mustWrite, tm.unwritten, tm.undropped, tm.outrun = false, false, 0, never, false
	tm.refusals /= 2
	tm.wroteAt, tm.courtesy = begun+tm.writeTook, tm.spread(1+2*t.clock.Rand())
	t.well(true)
	t.adopt(tm, next)
	if d.leaves || len(d.evict) > 0 || t.handsOver(base, d) {
		t.wakeSiblings()
	}
	t.mu.Lock()
	events := t.settleResumed(nil)
	t.mu.Unlock()
	for _, e := range events {
		t.observe(e)
	}
}

// refused takes the error of a write.
func (t *Table) refused(tm *term, base *version, d *difference, err error) {
	switch {
	case tm.working.Err() != nil:
		t.mustWrite = true
	case raced(err):
		t.mustWrite = t.mustWrite || errors.Is(err, leasehold.ErrConflict)
		tm.refusals = min(tm.refusals+1, maxRefusals)
		tm.lost = &race{base: base, err: err}
		pause := min(tm.spread(t.clock.Rand()), t.poll)
		if t.handsOver(base, d) {
			pause = time.Duration(t.clock.Rand() * float64(tm.writeTook))
		}
		tm.pauseTill = t.clock.Now().Mono + pause
	default:
		t.mustWrite = t.mustWrite || !errors.Is(err, leasehold.ErrPermanent)
		if !errors.Is(err, leasehold.ErrPermanent) && !errors.Is(err, context.DeadlineExceeded) {
			tm.lost = &race{base: base}
		}
		t.failed(tm, true, err)
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
func (t *Table) settleRace(tm *term, v *version) {
	lost := tm.lost
	tm.lost = nil
	switch {
	case lost == nil:
	case !lost.base.is(v):
		tm.undropped, tm.unwritten, tm.outrun = never, 0, true
		t.well(true)
	case lost.err == nil:
	case errors.Is(lost.err, leasehold.ErrConflict):
		t.noteTrouble(true, lost.err)
		t.endIfStuck(tm, false, lost.err)
	default: // the next write follows soon: one of unknown outcome may still be under way
		err := fmt.Errorf("the store refuses a condition that holds: %w", lost.err)
		tm.outrun = false
		t.noteTrouble(true, err)
		t.failTries(err)
		t.endIfStuck(tm, false, err)
	}
}

// is reports whether two versions are the same write. Their ETags do not tell: a server may give a
// new body with the ETag of the version before, or the other way round.
func (v *version) is(other *version) bool {
	return v.tab.Revision == other.tab.Revision && v.tab.Nonce == other.tab.Nonce
}

// read reads the table.
func (t *Table) read(tm *term) {
	begun := t.clock.Now().Mono
	t.mu.Lock()
	wakes, called := t.wakes, t.called
	t.wakes, t.called = 0, false
	if slot := t.wakeSlot(tm, begun); called && slot <= begun && begun < tm.readAt {
		tm.slot = slot
	}
	t.mu.Unlock()
	v, err := t.get(tm.working, begun, t.seen)
	t.tell(Event{Kind: EventRead, Duration: t.clock.Now().Mono - begun, Err: err}, v)
	if err != nil && tm.working.Err() != nil {
		return
	}
	if err != nil {
		t.mu.Lock()
		t.wakes, t.called = t.wakes+wakes, t.called || called
		t.mu.Unlock()
		t.failed(tm, false, err)
		tm.readAt = tm.pauseTill
		return
	}
	t.well(false)
	same := t.seen != nil && t.seen.is(v)
	if !same && called && tm.slot != never {
		tm.slot -= t.slotLength()
	}
	if !same {
		if tm.rivals != never && v.tab.Revision > t.floor {
			tm.pace = min((begun-tm.rivals)/time.Duration(v.tab.Revision-t.floor), time.Second)
		}
		tm.rivals = begun
		t.mustWrite = false // the condition of a write that is still under way does not hold any more
		if t.seen != nil && v.size < t.seen.size {
			tm.watcher.full = false // until this member is refused again
		}
	}
	tm.mustRead, tm.unread = false, 0
	t.settleRace(tm, v)
	t.adopt(tm, v)
	if tm.undropped != never && !t.standsInTheWay(tm, false) {
		tm.undropped = never
	}
	// Whoever has edited it by hand has granted nothing. And a process that had this member before
	// may have a write under way that leaves the table: a new revision refuses that.
	if !same && v.tab.Unfinished(v.size) || t.resuming() {
		t.mustWrite = true
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

// tell tells the observer of a request.
func (t *Table) tell(e Event, v *version) {
	e.Table = t.key
	if e.Err == nil {
		e.Revision, e.Bytes = v.tab.Revision, v.size
		e.Members, e.Held, e.Waiting = v.tab.Counts()
	}
	t.observe(e)
}

// tellWanted closes the channel of Wanted once. The caller holds t.mu.
func (t *Table) tellWanted(r *request) {
	select {
	case <-r.wanted:
	default:
		close(r.wanted)
	}
}

// isOver reports whether the term of a member is known to be over. So is an earlier one of this
// member's own object.
func (tm *term) isOver(m tables.Member) bool {
	return tm.watcher.isOver(m) ||
		m.Key == tm.named.Key && m.ObjectID == tm.named.ObjectID && m.Token < tm.named.Token
}

// handsOver reports whether a write frees what others wait for.
func (*Table) handsOver(base *version, d *difference) bool {
	return slices.ContainsFunc(d.drop, base.tab.Wanted)
}

// build makes the next version of the table. Requests that cannot be part of it fail, if base was
// read after they were made; otherwise build returns nil, and the table must be read first.
func (t *Table) build(tm *term, base *version, d *difference) (built *tables.Table, body []byte, asks int, err error) {
	failed := make(map[*request]error)
	for {
		tab := base.tab.Clone()
		for _, m := range d.evict {
			tab.Leave(m)
		}
		n, _ := tab.Find(tm.named)
		if d.leaves {
			tab.Leave(n)
		}
		for _, id := range d.drop {
			tab.Drop(id)
		}
		if d.join {
			n = tab.Join(tm.entry)
		}
		asked := make([]*request, 0, len(d.ask))
		for _, r := range d.ask {
			if failed[r] != nil {
				continue
			}
			if err := tab.Ask(tables.ID{Member: n, Number: r.number}, r.claims); err != nil {
				failed[r] = err
				continue
			}
			asked = append(asked, r)
		}
		t.mustHold(tm, base, d)
		body, over, err := tab.Seal(rand.Text()[:16], t.floor, t.maxSize)
		tm.watcher.full = errors.Is(err, ErrFull) // the dead take room
		if errors.Is(err, ErrFull) && len(asked) > 0 {
			// The last ones go, as many as the bytes over the limit are worth, and one at least.
			most := max(over*len(asked)/max(t.maxSize+over-base.size-base.tab.Reserve(), 1), 1)
			for _, r := range asked[max(len(asked)-most, 0):] {
				failed[r] = err
			}
			continue
		}
		if postponed := t.fail(tm, base, failed); postponed && d.nothing(len(asked)) && !t.mustWrite {
			return nil, nil, 0, nil
		}
		if errors.Is(err, ErrFull) && !d.join && len(body) <= leasehold.MaxObjectSize { // it only frees
			err = nil
		}
		return tab, body, len(asked), err
	}
}

// mustHold panics if a write that is about to be sent would free what is in use. A panic is right
// outside of tests, too. Such a write comes from a mistake in this package, so what this process
// believes of its leases cannot be trusted either. Nothing is sent then, the contexts of all leases
// end, and nobody gets their locks before the TTL has passed: see Table.Run. An error would leave
// the process to go on with what it believes. What the table grants is not checked again here: the
// enumeration, the fuzz tests and each write of a simulated world do that.
func (t *Table) mustHold(tm *term, base *version, d *difference) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var err error
	self, _ := base.tab.Find(tm.named)
	for _, id := range d.drop {
		row, _ := base.tab.Request(id)
		if r := t.mine(row); r != nil && r.state == held || id.Member != self {
			err = fmt.Errorf("request %+v is dropped while its lease goes on, or is of another", id)
		}
	}
	if d.leaves && tm.functions > 0 {
		err = fmt.Errorf("the member leaves while %d functions run", tm.functions)
	}
	if err != nil {
		panic(fmt.Errorf("locktable: table %q: %w, nothing was written: %w (a mistake in this package: report it)",
			t.key, errInvariant, err))
	}
}

// errInvariant marks a panic of mustHold.
var errInvariant = errors.New("an invariant would be broken")

// fail tells requests why they cannot be part of the table. It reports whether base is too old for
// one of them, which waits for the next write.
func (t *Table) fail(tm *term, base *version, failed map[*request]error) (postponed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for r, err := range failed {
		switch {
		case r.state != waiting:
		case base.begun < r.began:
			postponed = true
		default:
			t.giveBack(r, t.named(err))
		}
	}
	return postponed
}
