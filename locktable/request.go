package locktable

import (
	"context"
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
	switch {
	case err == nil:
		tm.mustRead, t.mustWrite, tm.unwritten, tm.undropped, tm.outrun = false, false, 0, never, false
		tm.refusals /= 2
		tm.wroteAt, tm.courtesy = begun+tm.writeTook, tm.spread(1+2*t.clock.Rand())
		t.well(true)
		t.adopt(tm, next)
	case tm.working.Err() != nil:
		t.mustWrite = true
	case raced(err):
		t.mustWrite = t.mustWrite || errors.Is(err, leasehold.ErrConflict)
		tm.refusals, tm.outrun = min(tm.refusals+1, maxRefusals), true
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
		tm.undropped, tm.unwritten = never, 0
		t.well(true)
	case lost.err == nil:
	case errors.Is(lost.err, leasehold.ErrConflict):
		t.noteTrouble(true, lost.err)
		t.endIfStuck(tm, false, lost.err)
	default:
		tm.outrun = false
		t.failed(tm, true, fmt.Errorf("the store refuses a condition that holds: %w", lost.err))
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
	}
	tm.mustRead, tm.unread = false, 0
	t.settleRace(tm, v)
	t.adopt(tm, v)
	if tm.undropped != never && !t.standsInTheWay(tm, false) {
		tm.undropped = never
	}
	if !same && v.tab.Unfinished(v.size) { // whoever has edited it by hand has granted nothing
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

// adopt takes a version that was read or written: it grants what the table grants, and ends what it
// no longer holds.
func (t *Table) adopt(tm *term, v *version) {
	var events []Event
	var listen []*request
	was := t.floor
	if tm.restored = v.tab.Revision < was; tm.restored {
		t.mustWrite = true // so that tokens go on above what this process remembers
		t.log.Error("the table's object was deleted or restored: what it does not hold any more is lost",
			"table", t.key, "revision", v.tab.Revision, "was", was)
	}
	n, _ := v.tab.Find(tm.named)
	next := turnOf(v.tab, n)
	valid := tm.lease.Valid()
	t.mu.Lock()
	t.seen, t.floor, t.turn = v, max(was, v.tab.Revision), next
	for _, r := range t.inOrder() {
		row, taken := v.tab.Request(tables.ID{Member: n, Number: r.number})
		there := taken && slices.Equal(row.Claims, r.claims)
		switch {
		case r.state == waiting && taken && !there: // a copy of this machine has drawn the same number
			t.renumber(r)
		case r.state == waiting && there && row.Token > 0 && valid && !tm.leaving:
			t.grant(r, row.Token)
			events = append(events, Event{
				Kind: EventAcquired, Table: t.key, Token: r.token, Locks: r.names(),
				Duration: t.clock.Now().Mono - r.began,
			})
		case r.state == waiting && there:
			r.asked = true
		case r.state == waiting && r.asked: // removed by hand
			t.renumber(r)
		case r.state == held && (!there || row.Token != r.token):
			events = append(events, t.lose(r, errRemoved))
		case r.state == held && r.forgotten.Load() && r.runs != running:
			t.free(r, leasehold.ErrReleased)
		case r.state == held && r.wanted != nil:
			listen = append(listen, r)
		case r.state == freeing && !there && !t.mustWrite && r.term == nil: // it was given back while it waited
			t.end(r, r.err)
		case r.state == freeing && !there && !t.mustWrite:
			events = append(events, t.gone(r, nil, false))
		}
	}
	t.nextRead(tm)
	t.mu.Unlock()
	for _, r := range listen {
		if v.tab.Wanted(tables.ID{Member: n, Number: r.number}) {
			t.mu.Lock()
			t.tellWanted(r)
			t.mu.Unlock()
		}
	}
	for _, e := range events {
		if errors.Is(e.Err, errRemoved) {
			t.log.Error("the table no longer holds a lease: it is lost", "table", t.key, "locks", e.Locks,
				"token", e.Token)
		}
		t.observe(e)
	}
}

// errRemoved is why a lease is lost that the table no longer has.
var errRemoved = errors.New("its entry was removed from the table by hand, or the table was deleted or restored")

// tellWanted closes the channel of Wanted once. The caller holds t.mu.
func (t *Table) tellWanted(r *request) {
	select {
	case <-r.wanted:
	default:
		close(r.wanted)
	}
}
