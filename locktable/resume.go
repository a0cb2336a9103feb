package locktable

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/tables"
)

// resumed are the leases that a table continues. The table's mutex guards what changes.
type resumed struct {
	requests []*request
	settled  chan struct{} // closed when this process has written over what others may still write, or cannot
	done     bool          // settled is closed
	err      error         // why the term did not continue here, in the last Run
}

// Resume returns a table that continues a member and its leases, from a handle of [Table.Detach].
// The member keeps its name, TTL and metadata from the handle, whatever opts say. Resume sends no
// request. The first term of [Table.Run] is the term of the handle. Run renews the member's lock by
// [leasehold.Lock.Resume], and writes the table once, so that no late write of the previous process
// can release a lock. Then [Table.Leases] returns the leases. Their entries in the table have not
// changed, and they have the same tokens. When Run ends, it releases all leases, as always.
//
// A member can be resumed as long as no other member has evicted it, even after its TTL. If the
// member cannot continue, because it was evicted, released or broken, Run and Leases return an
// error that matches [leasehold.ErrLost] or [leasehold.ErrReleased]: see [leasehold.Lock.Resume].
// After any other error, call Run again: it resumes the member if it still can. If several
// processes have the handle, the last one that resumes has the leases. The previous process notices
// at its next renewal, a third of the TTL later at most. Until then both act, and a lock that
// either releases is released. So stop the previous process, by [Table.Detach] if it has acquired
// locks that are to move too.
//
// The error of Resume matches [leasehold.ErrPermanent] if the handle is incomplete, or is not a
// handle of a table.
func Resume(store leasehold.Store, handle string, opts ...Option) (*Table, error) {
	h, err := tables.ParseHandle(handle)
	if err != nil {
		return nil, fmt.Errorf("locktable: %w", err)
	}
	m := h.Member
	t, err := makeTable(store, h.Key, append(opts[:len(opts):len(opts)],
		WithMemberName(m.Name), WithTTL(m.TTL), WithMetadata(m.Metadata)))
	if err != nil {
		return nil, fmt.Errorf("locktable: %w", err)
	}
	t.self.Resume(h.Term.String())
	t.floor = h.Table.Revision // if the table is older, it was restored
	t.resumed = &resumed{settled: make(chan struct{})}
	for row := range h.Table.Held() {
		r := &request{
			t: t, claims: row.Claims, began: t.clock.Now().Mono, seq: t.calls, number: row.Number, state: held,
			token: row.Token, sent: true, asked: true,
		}
		r.lease = &Lease{r: r, parent: context.Background()}
		r.watch()
		t.calls++
		t.requests[r.number] = r
		t.resumed.requests = append(t.resumed.requests, r)
	}
	return t, nil
}

// Leases returns the leases of a table that [Resume] has returned, in the order of their grants. It
// waits until [Table.Run] has resumed the member. A lease that is no longer in the table is among
// them, and is lost. The leases are returned once only, because an unreachable lease is released.
// If the member was removed from a table that is full now, Leases waits until the table has room
// for the member. The error is Run's error if the member could not continue, or matches
// [ErrNotRunning] if Run has returned, or ctx's error. A table of [New] has no such leases.
func (t *Table) Leases(ctx context.Context) ([]*Lease, error) {
	if t.resumed == nil {
		return nil, nil
	}
	t.mu.Lock()
	over, gaveUp := t.over, false
	t.mu.Unlock()
	select {
	case <-t.resumed.settled:
	case <-over:
	case <-ctx.Done():
		gaveUp = true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case !t.resumed.done && gaveUp:
		why := cmp.Or(t.self.Failure(), t.trouble.err)
		return nil, t.named(fmt.Errorf("waiting for the leases: %w", endedBy(ctx, why)))
	case t.resumed.err != nil:
		return nil, t.resumed.err
	case !t.resumed.done:
		return nil, t.named(ErrNotRunning)
	}
	var leases []*Lease
	for _, r := range t.resumed.requests {
		leases = append(leases, r.lease)
		r.lease = nil // the caller has it, and may forget it
	}
	t.resumed.requests = nil
	return leases, nil
}

// pending reports whether there are leases of a handle that are not yet this process's. The caller
// holds t.mu.
func (r *resumed) pending() bool { return r != nil && !r.done }

// resumes begins the term of a handle, if that has not been settled, and returns the events of its
// leases. The caller holds t.mu.
func (w *want) resumes(tm *term) (events []Event) {
	if !w.resumed.pending() {
		return nil
	}
	for _, r := range w.resumed.requests {
		r.term = tm
		events = append(events, w.acquired(r))
	}
	return events
}

// settleResumed notes that this process has written over what others may still write, or why the
// last Run could not, and what that means for the leases. The caller holds t.mu.
func (w *want) settleResumed(err error) {
	if !w.resumed.pending() {
		return
	}
	w.resumed.err = err
	w.resumed.done = w.hadTerm || errors.Is(err, leasehold.ErrLost) || errors.Is(err, leasehold.ErrReleased)
	if !w.resumed.done { // the next Run may resume it
		return
	}
	for _, r := range w.resumed.requests {
		if r.state == held && err != nil {
			w.end(r, err)
		}
	}
	close(w.resumed.settled)
}
