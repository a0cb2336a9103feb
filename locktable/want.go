package locktable

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"maps"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/tables"
)

// request is what one call of Acquire wants. Its table's mutex guards it, except what never
// changes.
type request struct {
	t      *Table
	claims []tables.Claim // by name
	began  time.Duration  // monotonic time of the call
	seq    uint64         // rises with each call

	try       bool // it does not wait in line
	sent      bool // it may be part of a write
	asked     bool // a version was seen in which it stands
	heldBack  bool // it waits for a look at those in its way; the committer's own
	state     state
	runs      function
	number    uint64 // under which it stands in the table, or will; random, see Table.newNumber
	term      *term  // that was granted it; nil before
	token     uint64
	lease     *Lease                  // until it is handed to whoever asked
	cancel    context.CancelCauseFunc // of the lease's context; nil while there is none
	cause     error                   // of the end of that context
	ended     int64                   // when that was, by the wall clock, in microseconds; 0 before
	forgotten *atomic.Bool            // the Lease was garbage collected
	wanted    chan struct{}           // nil unless somebody has asked for it
	done      chan struct{}           // closed at the next change of state that somebody waits for; else nil
	err       error                   // why it has failed, or is over
}

type state uint8

const (
	waiting state = iota
	held
	freeing // it is to be dropped from the table
	over
)

// function is the state of the function under a lease.
type function uint8

const (
	noFunction function = iota
	running
	returned
)

// grant makes the lease of a request that the table has granted to the present term. The caller
// holds t.mu.
func (t *Table) grant(r *request, token uint64) {
	r.state, r.token, r.term = held, token, t.term
	r.watch()
	r.tell()
}

// watch notes when the lease is forgotten. The request does not refer to it once it is handed over.
// When nothing does, nobody can act under it. An AddCleanup runs on a goroutine of the runtime, so
// it only leaves a note, which the committer finds at its next read.
func (r *request) watch() {
	r.forgotten = new(atomic.Bool)
	runtime.AddCleanup(r.lease, func(forgotten *atomic.Bool) { forgotten.Store(true) }, r.forgotten)
}

// acquired tells of a lease that this process has now.
func (t *Table) acquired(r *request) Event {
	return Event{
		Kind: EventAcquired, Table: t.key, Token: r.token, Locks: r.names(), Duration: t.clock.Now().Mono - r.began,
	}
}

// tell wakes up whoever waits for a change of the state. The caller holds t.mu.
func (r *request) tell() {
	if r.done != nil {
		close(r.done)
		r.done = nil
	}
}

// endContext ends the context of the lease, or notes that there is to be none that goes on. The
// caller holds t.mu.
func (r *request) endContext(cause error) {
	if r.cause == nil {
		r.cause, r.ended = cause, r.t.clock.Now().Time().UnixMicro()
	}
	if r.cancel != nil {
		r.cancel(cause)
	}
}

// giveBack ends a request that waits. One that may stand in the table stays known until it does
// not, because a row that this process does not know was asked for by another: see difference. The
// caller holds t.mu.
func (t *Table) giveBack(r *request, err error) {
	r.state, r.err, r.lease = freeing, err, nil
	if !r.sent && !r.asked {
		r.state = over
		delete(t.requests, r.number)
	}
	r.tell()
	t.ring()
}

// free begins to free a lease: it is no longer wanted. The caller holds t.mu.
func (t *Table) free(r *request, cause error) {
	r.state = freeing
	r.endContext(cause)
	t.ring()
}

// end ends a lease for good. The caller holds t.mu.
func (t *Table) end(r *request, err error) {
	r.state, r.err = over, err
	delete(t.requests, r.number)
	if r.wanted != nil {
		t.listened--
		t.tellWanted(r)
	}
	r.endContext(cmp.Or(err, leasehold.ErrReleased))
	r.tell()
}

func (r *request) names() []string { return (&Lock{claims: r.claims}).names() }

// inOrder is what this process wants, in the order of the calls. The caller holds t.mu.
func (t *Table) inOrder() []*request {
	return slices.SortedFunc(maps.Values(t.requests), func(a, b *request) int {
		return cmp.Compare(a.seq, b.seq)
	})
}

// newNumber draws the number of a request. It is random: a copy of this machine that was made from
// a snapshot and started beside it acts under the same term until the next renewal tells the two
// apart, and both would count on from the same number. Two copies that draw the same one for the
// same claims are one in four billion.
func (t *Table) newNumber() uint64 {
	for {
		var b [4]byte
		_, _ = rand.Read(b[:]) // never fails
		if n := uint64(binary.LittleEndian.Uint32(b[:])); t.requests[n] == nil {
			return n
		}
	}
}

// renumber gives a request that waits another number. The caller holds t.mu.
func (t *Table) renumber(r *request) {
	delete(t.requests, r.number)
	r.number, r.sent, r.asked = t.newNumber(), false, false
	t.requests[r.number] = r
}

// want adds a request to what this process wants.
func (t *Table) want(r *request) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case !t.running, t.detaching != nil:
		return ErrNotRunning
	case r.try && (t.term == nil && t.hadTerm || t.term != nil && t.term.leaving):
		return ErrNoTerm
	}
	t.calls++
	r.seq, r.number = t.calls, t.newNumber()
	t.requests[r.number] = r
	t.ring()
	return nil
}

// giveUp takes a request back that nobody waits for any more, unless it was granted or has failed.
// It returns who stood in the way.
func (t *Table) giveUp(r *request) error {
	t.mu.Lock()
	was, tm, seen, trouble := r.state, t.term, t.seen, t.trouble.err
	asked, id := r.asked, tables.ID{Number: r.number}
	switch was {
	case held:
		t.free(r, leasehold.ErrReleased)
	case waiting:
		t.giveBack(r, nil)
	}
	t.mu.Unlock()
	switch {
	case was != waiting:
		return nil
	case asked && tm != nil && seen != nil:
		// A version never changes, so nothing is locked while it is walked through.
		var named bool
		if id.Member, named = seen.tab.Find(tm.named); named {
			return t.heldError(seen.tab, r, id)
		}
	}
	return trouble
}

// difference is one write of the table.
type difference struct {
	evict  []uint64
	join   bool
	leaves bool
	drop   []tables.ID
	ask    []*request
}

// nothing reports whether the write changes nothing, if so many requests are asked for by it.
func (d *difference) nothing(asked int) bool {
	return asked+len(d.evict)+len(d.drop) == 0 && !d.join && !d.leaves
}

// difference is what the table lacks of what this process wants, and has too much; nil if nothing.
// last says that the member leaves.
func (t *Table) difference(tm *term, last bool) *difference {
	tab := t.seen.tab // it never changes, so it is walked through before the mutex is locked
	d := &difference{}
	n, joined := tab.Find(tm.named)
	var rows []tables.Request
	if joined {
		rows = tab.Requests(n)
	}
	for m, member := range tab.Members() {
		if m != n && tm.isOver(member) {
			d.evict = append(d.evict, m)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	strangers := t.strangers(tm, rows)
	if last && (!joined || len(tm.foreign) == 0) {
		if d.leaves = joined; d.leaves {
			return d
		}
		return nil
	}
	d.join = !joined && !tm.leaving
	d.drop = strangers
	for _, row := range rows {
		if r := t.mine(row); r != nil && !t.wants(tm, r) {
			d.drop = append(d.drop, row.ID)
		}
	}
	if !tm.leaving {
		for _, r := range t.inOrder() {
			_, there := tab.Request(tables.ID{Member: n, Number: r.number})
			if r.state == waiting && !r.asked && !there && !r.heldBack {
				r.sent = true
				d.ask = append(d.ask, r)
			}
		}
	}
	if d.nothing(len(d.ask)) {
		return nil
	}
	return d
}

// mine is the request of this process that stands in a row of its member; nil if it never asked for
// that. The caller holds t.mu.
func (t *Table) mine(row tables.Request) *request {
	if r := t.requests[row.Number]; r != nil && slices.Equal(r.claims, row.Claims) {
		return r
	}
	return nil
}

// wants reports whether a request is to stand in the table. The caller holds t.mu.
func (*Table) wants(tm *term, r *request) bool {
	return r.state == held || r.state == waiting && !tm.leaving
}

// strangers are the rows of this term that this process never asked for, and that are to go. A copy
// of this machine has asked for them, and its lease runs out a TTL after the last renewal that both
// have seen. So after two TTLs, in which this process has kept the term, nobody acts under them any
// more. Those of an older table that somebody has brought back go at once. The caller holds t.mu.
func (t *Table) strangers(tm *term, rows []tables.Request) (over []tables.ID) {
	now := t.clock.Now().Mono
	first := tm.foreign
	tm.foreign, tm.copied = make(map[uint64]time.Duration), false
	for _, row := range rows {
		if t.mine(row) != nil {
			continue
		}
		since, known := first[row.Number]
		if !known {
			since = now
		}
		tm.foreign[row.Number] = since
		if tm.restored || now-since > strange*t.ttl {
			over = append(over, row.ID)
		} else {
			tm.copied = true
		}
	}
	return over
}

// strange is for how many TTLs rows stay that a copy of this machine seems to have asked for.
const strange = 2

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
			events = append(events, t.acquired(r))
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
