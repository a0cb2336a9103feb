package locktable

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
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
	case d.nothing(asked) && !t.unknown:
		return
	case err != nil:
		if tm.full { // a member without a row looks for the dead all the same
			t.watchOthers(tm, t.clock.Now().Mono)
		}
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
		tm.mustRead, t.unknown, tm.unwritten, tm.undropped = false, false, 0, never
		tm.refusals /= 2
		tm.wroteAt, tm.courtesy = begun+tm.writeTook, tm.spread(1+2*t.clock.Rand())
		t.well(true)
		t.adopt(tm, next)
	case tm.working.Err() != nil:
		t.unknown = true
	case errors.Is(err, leasehold.ErrPreconditionFailed), errors.Is(err, leasehold.ErrNotExist):
		tm.refusals, tm.rivals = min(tm.refusals+1, maxRefusals), begun
		err = fmt.Errorf("others have written before, each time: %w", err)
		t.noteTrouble(true, err)
		t.endIfStuck(tm, false, err)
		pause := min(tm.spread(t.clock.Rand()), t.poll)
		if t.handsOver(base, d) {
			pause = time.Duration(t.clock.Rand() * float64(tm.writeTook))
		}
		tm.pauseTill = t.clock.Now().Mono + pause
	default:
		t.unknown = t.unknown || !errors.Is(err, leasehold.ErrPermanent)
		t.failed(tm, true, err)
	}
}

// read reads the table.
func (t *Table) read(tm *term) {
	t.mu.Lock()
	wakes, called := t.wakes, t.called
	t.wakes, t.called = 0, false
	t.mu.Unlock()
	begun := t.clock.Now().Mono
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
	t.mu.Lock()
	// Not by the ETag: a server may give a new body with the ETag of the version before, or the
	// other way round.
	same := t.seen != nil && t.seen.tab.Revision == v.tab.Revision && t.seen.tab.Nonce == v.tab.Nonce
	t.mu.Unlock()
	if !same && called && tm.slot != never {
		tm.slot -= t.slotLength()
	}
	if !same {
		tm.rivals = begun
		t.unknown = false // the condition of a write that is still under way does not hold any more
	}
	tm.mustRead, tm.unread = false, 0
	t.adopt(tm, v)
	if tm.undropped != never && !t.standsInTheWay(tm, false) {
		tm.undropped = never
	}
	if !same && v.tab.Unfinished(v.size) { // whoever has edited it by hand has granted nothing
		t.unknown = true
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
	t.mu.Lock()
	if t.seen != nil && v.tab.Revision < t.floor {
		t.log.Error("the table's object was deleted or restored: what it does not hold any more is lost",
			"table", t.key,
			"revision", v.tab.Revision, "was", t.floor)
	}
	t.seen, t.floor = v, max(t.floor, v.tab.Revision)
	n, _ := v.tab.Find(tm.named)
	valid := tm.lease.Valid()
	for _, r := range t.inOrder() {
		id := tables.ID{Member: n, Number: r.number}
		row, there := v.tab.Request(id)
		switch {
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
			t.log.Error("the table no longer holds a lease: it is lost", "table", t.key, "locks",
				r.names(), "token", r.token)
			events = append(events, t.lose(r, errRemoved))
		case r.state == held && r.forgotten.Load() && r.runs != running:
			t.free(r, leasehold.ErrReleased)
		case r.state == held && r.wanted != nil && v.tab.Wanted(id):
			t.tellWanted(r)
		case r.state == freeing && !there && !t.unknown:
			t.end(r, nil)
			events = append(events, Event{Kind: EventReleased, Table: t.key, Token: r.token, Locks: r.names()})
		}
	}
	t.nextRead(tm)
	t.forgetWatches(tm)
	t.mu.Unlock()
	for _, e := range events {
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
