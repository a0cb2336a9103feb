package locktable

import (
	"context"
	"errors"
	"fmt"

	"github.com/leasehold-go/leasehold"
)

// ErrNotDetachable says that [Table.Detach] cannot hand this member over in its present state.
var ErrNotDetachable = errors.New("the member cannot be handed over now")

// errDetached is why the leases of a detached member have ended.
var errDetached = fmt.Errorf("%w here, and not in the table: its member was detached", leasehold.ErrReleased)

// detaching is a call of Detach. The table's mutex guards it.
type detaching struct {
	decided chan struct{} // closed when one of the following is set
	handle  string
	err     error
}

// Detach returns a handle with which another process can continue this member: see [Resume]. It
// ends the use of the member in this process. All leases move together, because they last as long
// as their member's own lock. Detach releases nothing. The contexts of all leases end with
// [leasehold.ErrReleased], and [Table.Run] returns nil. Other members get the locks when the
// member's TTL has passed since its last renewal, unless another process has resumed the member.
//
// The handle contains a secret: a process that has the handle can act under the leases and release
// them. The handle is text without spaces, of a few hundred bytes plus about 60 for each lease.
//
// Functions under leases must have returned. Requests that wait fail with [ErrNotRunning], even if
// Detach fails, and Detach first removes them from the table. While the store cannot be reached for
// that, Detach tries again until ctx ends, and then returns ctx's error. After an error the leases
// are unchanged, unless the error matches [leasehold.ErrLost]: then the term was lost during the
// call. Other errors match [ErrNotRunning], [ErrNoTerm], or [ErrNotDetachable] if functions run, if
// no lease is held, if another call is under way, or if the table has requests of this member that
// this process does not know.
func (t *Table) Detach(ctx context.Context) (handle string, err error) {
	t.mu.Lock()
	err, over := t.undetachable(t.term), t.over
	if err == nil && t.detaching != nil {
		err = fmt.Errorf("%w: another call is under way", ErrNotDetachable)
	}
	d := &detaching{decided: make(chan struct{})}
	if err == nil {
		t.detaching = d
		for _, r := range t.inOrder() {
			if r.state == waiting {
				t.giveBack(r, t.named(ErrNotRunning))
			}
		}
		t.ring()
	}
	t.mu.Unlock()
	if err != nil {
		return "", t.named(fmt.Errorf("detaching: %w", err))
	}
	select {
	case <-d.decided:
	case <-ctx.Done():
		t.mu.Lock()
		if t.detaching == d { // else it is decided, and another call may be under way
			t.decide("", endedBy(ctx, t.trouble.err))
		}
		t.mu.Unlock()
	}
	if d.err != nil {
		return "", t.named(fmt.Errorf("detaching: %w", d.err))
	}
	select { // the last request has ended then
	case <-over:
	case <-ctx.Done():
	}
	return d.handle, nil
}

// endedBy is the error of a wait that has ended with ctx, with its trouble if there was any.
func endedBy(ctx context.Context, trouble error) error {
	if trouble != nil {
		return fmt.Errorf("%w: %w", ended(ctx), trouble)
	}
	return ended(ctx)
}

// undetachable says why a member cannot be handed over. The caller holds t.mu.
func (w *want) undetachable(tm *term) error {
	switch {
	case !w.running:
		return ErrNotRunning
	case tm == nil, tm.leaving:
		return ErrNoTerm
	case tm.functions > 0:
		return fmt.Errorf("%w: %d functions run under its leases", ErrNotDetachable, tm.functions)
	case tm.copied:
		return fmt.Errorf("%w: %w", ErrNotDetachable, errStrangers)
	}
	for _, r := range w.requests {
		if r.state == held {
			return nil
		}
	}
	return fmt.Errorf("%w: it holds nothing", ErrNotDetachable)
}

// detach hands the member over, as the version has it that was seen last: it is the current one, no
// write of unknown outcome is left, and nothing differs. It reports that the term has ended here.
// If a caller has released a lease in the meantime, that is written first.
func (c *committer) detach() (done bool) {
	n, _ := c.seen.tab.Find(c.tm.named)
	rows, handle := c.seen.tab.Requests(n), c.seen.tab.HandleOf(n, c.tm.lease.Handle())
	c.mu.Lock()
	if err := c.undetachable(c.tm); err != nil {
		c.decide("", err)
	}
	if c.detaching == nil || len(c.unwanted(rows)) > 0 || !c.tm.lease.Valid() {
		c.mu.Unlock()
		return false
	}
	var events []Event
	for _, r := range c.inOrder() {
		if r.state != held { // it was given back, and is not in the table any more
			c.end(r, r.err)
			continue
		}
		events = append(events, c.gone(r, c.named(fmt.Errorf("%w (token %d)", errDetached, r.token)), false))
	}
	c.decide(handle, nil) // with the leases' end, so that a context that ends now does not lose the handle
	c.mu.Unlock()
	c.tm.lease.Abandon() // and does not free: the rows are another's now
	c.stop()
	c.observeAll(events)
	return true
}

// decide ends the call of Detach that is under way, if there is one. The caller holds t.mu.
func (w *want) decide(handle string, err error) {
	d := w.detaching
	if d == nil || d.handle != "" {
		return
	}
	d.handle, d.err = handle, err
	close(d.decided)
	if err != nil {
		w.detaching = nil
	}
}
