package locktable

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/tables"
)

// want is what this process wants of the table: all that callers, the ends of functions and the
// committer share. It sends nothing, and under its mutex there are no logs, no events and no walks
// through a table.
type want struct {
	options
	key   string
	bell  chan struct{}                 // has room for one: see ring
	rings atomic.Uint64                 // how often it was rung
	acts  atomic.Pointer[time.Duration] // monotonic time since which the committer acts; nil while it rests

	mu      sync.Mutex
	began   chan struct{} // closed when Run begins; replaced when it ends
	running bool
	ended   bool            // Run has returned
	runs    context.Context // of Run
	stop    func()          // ends it
	over    chan struct{}   // closed when Run has returned
	resumed *resumed        // nil if this table was not resumed
	// the call of Detach that is under way, or has succeeded and Run is about to return; else nil
	detaching *detaching
	unleft    error // why the member could not leave the table at the end of Run; nil if it has
	term      *term
	termless  time.Duration       // monotonic time since which there is no term
	hadTerm   bool                // since Run began
	newest    *version            // that was seen; nil if none was
	turn      int                 // after how many wake-ups it may be this member's turn; 0 if it waits for nothing
	calls     uint64              // that have asked for something
	requests  map[uint64]*request // by number
	wakes     int                 // wake-ups that came since the last request of the table began
	called    bool                // there were enough of them that it may be this member's turn
	listened  int                 // leases of which Wanted was called
	trouble   trouble
}

// term is one term of this member. The mutex of want guards what can change.
type term struct {
	lease     *leasehold.Lease
	named     tables.Term
	entry     tables.Member   // as the table has it
	working   context.Context // of requests, and of looks at other members
	giveUp    func()          // ends it
	leaving   bool            // its holder wants it to end
	functions int             // that run under a lease of this term
	unguarded bool            // a lease without a function was lost with the term
	copied    bool            // rows of it that this process did not ask for may be in use
	gaveUp    error           // why this process ends the term itself, so that its leases are lost; else nil
}

// trouble is what keeps the table's object from being read or written.
type trouble struct {
	err     error
	writing bool          // a write has failed, so that reads alone prove nothing
	since   time.Duration // monotonic
}

// request is what one call of Acquire wants. Its table's mutex guards it, except what never
// changes.
type request struct {
	t      *Table
	claims []tables.Claim // by name
	began  time.Duration  // monotonic time of the call
	seq    uint64         // rises with each call

	try       bool     // it does not wait in line
	sent      bool     // it may be part of a write
	asked     bool     // a version was seen in which it stands
	heldBack  bool     // it waits for a look at those in its way; the committer's own
	refused   *refusal // nil, or why it is not part of a version
	state     state
	runs      function
	number    uint64 // under which it is in the table, or will be; random, see newNumber
	term      *term  // that was granted it; nil before
	token     uint64
	lease     *Lease                  // until the caller has it
	cancel    context.CancelCauseFunc // of the lease's context; nil while there is none
	cause     error                   // of the end of that context
	ended     int64                   // when that was, by the wall clock, in microseconds; 0 before
	forgotten *atomic.Bool            // the Lease was garbage collected
	wanted    chan struct{}           // nil unless Wanted was called
	done      chan struct{}           // closed at the next change of state; nil if no call waits for that
	err       error                   // why it has failed or ended
}

// refusal is why a request is not part of a table, of which one, and since when of none.
type refusal struct {
	by    *tables.Table
	err   error
	since time.Duration // monotonic
}

// refusedBy reports whether tab has refused the request.
func (r *request) refusedBy(tab *tables.Table) bool { return r.refused != nil && r.refused.by == tab }

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
func (w *want) grant(r *request, token uint64) {
	r.state, r.token, r.term = held, token, w.term
	r.watch()
	r.changed()
}

// watch notes when the lease is forgotten. The request does not refer to the lease once the lease
// is handed over. When nothing does, no code can act under it. An AddCleanup runs on a goroutine of
// the runtime, so it only leaves a note, which the committer finds at its next read.
func (r *request) watch() {
	r.forgotten = new(atomic.Bool)
	runtime.AddCleanup(r.lease, func(forgotten *atomic.Bool) { forgotten.Store(true) }, r.forgotten)
}

// acquired returns the event of a lease that this process has now.
func (w *want) acquired(r *request) Event {
	e := w.event(EventAcquired, r)
	e.Duration = w.clock.Now().Mono - r.began
	return e
}

// changed wakes the goroutine that waits for a change of the state. The caller holds t.mu.
func (r *request) changed() {
	if r.done != nil {
		close(r.done)
		r.done = nil
	}
}

// endContext ends the context of the lease, or notes that a later context must have ended from the
// start. The caller holds t.mu.
func (r *request) endContext(cause error) {
	if r.cause == nil {
		r.cause, r.ended = cause, r.t.clock.Now().Time().UnixMicro()
	}
	if r.cancel != nil {
		r.cancel(cause)
	}
}

// ring wakes the committer, because it may have something to do. A ring during a step is heard
// after it.
func (w *want) ring() {
	w.rings.Add(1)
	select {
	case w.bell <- struct{}{}:
	default:
	}
}

// giveBack ends a request that waits. A request that may be in the table stays known until it is
// not, because a row that this process does not know counts as asked for by another process: see
// difference. The caller holds t.mu.
func (w *want) giveBack(r *request, err error) {
	r.state, r.err, r.lease = freeing, err, nil
	if !r.sent && !r.asked {
		r.state = over
		delete(w.requests, r.number)
	}
	r.changed()
	w.ring()
}

// free begins to release a lease: it is no longer wanted. The caller holds t.mu.
func (w *want) free(r *request, cause error) {
	r.state = freeing
	r.endContext(cause)
	w.ring()
}

// end ends a lease for good. The caller holds t.mu.
func (w *want) end(r *request, err error) {
	r.state, r.err = over, err
	delete(w.requests, r.number)
	if r.wanted != nil {
		w.listened--
		w.tellWanted(r)
	}
	r.endContext(cmp.Or(err, leasehold.ErrReleased))
	r.changed()
}

// size is about how many bytes of the table the request takes, and rather more.
func (r *request) size() int {
	size := 0
	for _, c := range r.claims {
		size += 64 + len(c.Name)
	}
	return size
}

// inOrder is what this process wants, in the order of the calls. The caller holds t.mu.
func (w *want) inOrder() []*request {
	return slices.SortedFunc(maps.Values(w.requests), func(a, b *request) int {
		return cmp.Compare(a.seq, b.seq)
	})
}

// newNumber draws the number of a request. It is random: a copy of this machine that was made from
// a snapshot and runs at the same time acts under the same term until the next renewal
// distinguishes the two, and both would continue from the same number. The chance that two copies
// draw the same number for the same claims is one in four billion.
func (w *want) newNumber() uint64 {
	for {
		var b [4]byte
		_, _ = rand.Read(b[:]) // never fails
		if n := uint64(binary.LittleEndian.Uint32(b[:])); w.requests[n] == nil {
			return n
		}
	}
}

// renumber gives a request that waits another number. The caller holds t.mu.
func (w *want) renumber(r *request) {
	delete(w.requests, r.number)
	r.number, r.sent, r.asked, r.refused = w.newNumber(), false, false, nil
	w.requests[r.number] = r
}

// ask adds a request to what this process wants.
func (w *want) ask(r *request) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case !w.running, w.detaching != nil:
		return ErrNotRunning
	case r.try && (w.term == nil && w.hadTerm || w.term != nil && w.term.leaving):
		return ErrNoTerm
	}
	w.calls++
	r.seq, r.number = w.calls, w.newNumber()
	w.requests[r.number] = r
	w.ring()
	return nil
}

// giveUp takes back a request whose caller does not wait any more, unless it was granted or has
// failed. It returns the members that were in the way.
func (w *want) giveUp(r *request) error {
	w.mu.Lock()
	was, tm, seen, trouble := r.state, w.term, w.newest, w.trouble.err
	if seen != nil && r.refusedBy(seen.tab) {
		trouble = r.refused.err
	}
	asked, id := r.asked, tables.ID{Number: r.number}
	switch was {
	case held:
		w.free(r, leasehold.ErrReleased)
	case waiting:
		w.giveBack(r, nil)
	}
	w.mu.Unlock()
	switch {
	case was != waiting:
		return nil
	case asked && tm != nil && seen != nil:
		// A version never changes, so nothing is locked while it is walked through.
		var named bool
		if id.Member, named = seen.tab.Find(tm.named); named {
			return w.heldError(seen.tab, r, id)
		}
	}
	return trouble
}

// mine is the request of this process for a row of its member; nil if it never asked for that row.
// The caller holds t.mu.
func (w *want) mine(row tables.Request) *request {
	if r := w.requests[row.Number]; r != nil && slices.Equal(r.claims, row.Claims) {
		return r
	}
	return nil
}

// tellWanted closes the channel of Wanted once. The caller holds t.mu.
func (w *want) tellWanted(r *request) {
	select {
	case <-r.wanted:
	default:
		close(r.wanted)
	}
}

// heldError names the members in the way of a request that waits in tab.
func (w *want) heldError(tab *tables.Table, r *request, id tables.ID) error {
	held := &HeldError{Table: w.key, Locks: names(r.claims)}
	for _, n := range tab.Behind(id, r.claims, func(uint64) bool { return true }) {
		if m, ok := tab.Member(n); ok {
			held.By = append(held.By, memberOf(m))
		}
	}
	return held
}
