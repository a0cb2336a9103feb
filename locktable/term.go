package locktable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/tables"
)

// serve is the committer: for one term of this member, it makes the table as this process wants it.
// It sends one request at a time. It reports that the table does not name the term any more. settle
// handles what is left of a term that is lost.
func (t *Table) serve(ctx context.Context, lease *leasehold.Lease, name tables.Term) (forgotten bool) {
	tm := &term{
		lease: lease, named: name,
		entry: tables.Member{Term: name, Name: t.member, TTL: t.ttl, Metadata: lease.Record().Metadata},
	}
	tm.working, tm.giveUp = context.WithCancel(context.WithoutCancel(ctx))
	c := newCommitter(t, tm)
	t.mu.Lock()
	t.term, t.hadTerm = tm, true
	resumed := t.resumes(tm)
	c.joined = len(resumed) > 0 // by the process before
	t.mu.Unlock()
	c.awaitEnds = func() {}
	completed := false
	defer func() { // if the store or an observer panics
		if !completed { // functions may still run, so no other term may begin before the TTL has passed
			tm.giveUp()
			lease.Abandon()
			c.termEnded()
		}
	}()
	begun := t.clock.Now().Mono
	t.acts.Store(&begun) // until the end of the first step
	t.observeAll(resumed)
	told := make(chan struct{})
	stopEnding := context.AfterFunc(ctx, func() {
		defer close(told)
		t.termEnds(ctx, tm)
	})
	c.awaitEnds = func() {
		if !stopEnding() {
			<-told
		}
	}
	for done := false; !done; {
		var wait time.Duration
		if wait, done = c.step(ctx); wait > 0 && !done {
			_ = clock.Wait(context.Background(), t.clock, wait, t.bell)
		}
	}
	completed = true
	tm.giveUp()
	if !lease.Valid() {
		t.unsettled = c
		return false
	}
	return c.termEnded()
}

// settle waits for the rest of a term that was lost, and for the end of its safety margin if a
// caller held a lease without a function. Only then may this process take its member's object
// again.
func (t *Table) settle() {
	c := t.unsettled
	if c == nil {
		return
	}
	t.unsettled = nil
	c.termEnded()
	if left := c.lostAt + c.margin - c.clock.Now().Mono; c.tm.unguarded && left > 0 {
		_ = clock.Wait(context.Background(), c.clock, left, nil)
	}
}

// termEnded settles what is left of a term that needs nothing more. It reports that the term was
// not lost, and that the table does not name it any more.
func (c *committer) termEnded() (forgotten bool) {
	c.awaitEnds()
	lost := c.lostWith(c.tm) // before what follows takes its time
	named := false           // by the version that was seen last
	var left *tables.Table   // the last looks may have made objects of members that have gone
	if c.seen != nil {
		_, named = c.seen.tab.Find(c.tm.named)
		if c.tm.lease.Valid() {
			left = c.seen.tab
		}
	}
	c.watcher.await(left, 0)
	c.lookErrs.Store(nil)
	if c.tm.copied { // another process acts under this term, so it must run out
		c.tm.lease.Abandon()
	}
	c.mu.Lock()
	c.term, c.termless = nil, c.clock.Now().Mono
	c.decide("", cmp.Or(lost, ErrNoTerm))
	forgotten = lost == nil && !c.mustWrite && !named && (!c.joined || !c.mustRead) // what is not known is no proof
	wrong, unleft := lost, error(nil)
	if c.joined && !forgotten && c.leftAt != never {
		switch unleft = c.couldNotLeave(lost); {
		case c.tm.copied:
			unleft = c.named(fmt.Errorf("leaving: %w", errCopied))
			fallthrough
		case lost != nil || !c.outrun: // else the release of the member's lock is about to free all
			wrong = cmp.Or(lost, unleft)
			if c.runs.Err() != nil {
				c.unleft = unleft
			}
		}
	}
	c.settleResumed(nil)
	var events []Event
	for _, r := range c.inOrder() {
		switch {
		case r.state == waiting: // it is asked for anew under the next term, by another number
			c.renumber(r)
		case r.term == nil: // it was given back while it waited
			c.end(r, r.err)
		default:
			events = append(events, c.gone(r, wrong, lost != nil))
		}
	}
	c.mu.Unlock()
	if unleft != nil {
		c.log.Warn("the member could not leave the table", "table", c.key, "err", unleft)
	}
	c.observeAll(events)
	return forgotten
}

// couldNotLeave is the error of a member that was to leave and is still in the table. The caller
// holds t.mu.
func (w *want) couldNotLeave(lost error) error {
	var locks []string
	for _, r := range w.inOrder() {
		if r.state == held || r.state == freeing || r.asked {
			locks = append(locks, names(r.claims)...)
		}
	}
	with := "without locks"
	if len(locks) > 0 {
		with = "with " + list(locks) + ", which others get once its lease was released or has run out"
	}
	return w.named(fmt.Errorf("leaving: member %q is still in the table, %s: %w", w.member, with,
		cmp.Or(w.trouble.err, lost, errUnanswered)))
}

var (
	errUnanswered = errors.New("the last request was not answered in time")
	errCopied     = fmt.Errorf("%w: its lock is not released, and others get what it held when the TTL has passed",
		errStrangers)
	// either of which may be the case, and the first one forbids to free anything
	errStrangers = errors.New("the table has requests of this member that this process does not know: a copy of " +
		"its machine runs, or an older version of the table was restored")
)

// termEnds ends all contexts at once: the term is lost, or its holder wants it to end.
func (w *want) termEnds(ctx context.Context, tm *term) {
	var events []Event // observed when all contexts have ended
	defer func() { w.observeAll(events) }()
	w.mu.Lock()
	defer w.mu.Unlock()
	tm.leaving = true
	valid := tm.lease.Valid()
	if !valid { // a request that is under way must not keep this member's next term waiting
		tm.giveUp()
	}
	for _, r := range w.inOrder() {
		switch {
		case r.state == waiting && r.try:
			w.giveBack(r, w.named(ErrNoTerm))
		case r.state == freeing && r.term == nil: // it was given back while it waited
		case r.state == freeing && !valid:
			events = append(events, w.gone(r, w.lostWith(tm), true))
		case r.state == held && !valid:
			tm.unguarded = tm.unguarded || r.runs == noFunction
			events = append(events, w.lose(r, cmp.Or(context.Cause(tm.lease.Context()), leasehold.ErrLost)))
		case r.state == held && tm.gaveUp != nil && r.runs == running:
			r.endContext(w.lossOf(r, tm.gaveUp))
		case r.state == held && tm.gaveUp != nil:
			w.free(r, w.lossOf(r, tm.gaveUp))
		case r.state == held && r.runs == running:
			r.endContext(context.Cause(ctx))
		case r.state == held:
			w.free(r, fmt.Errorf("%w: %w", leasehold.ErrReleased, context.Cause(ctx)))
		}
	}
	w.ring()
}

// lose ends a lease against its holder's will. The caller holds t.mu.
func (w *want) lose(r *request, why error) Event {
	w.end(r, w.lossOf(r, why))
	return w.event(EventLost, r)
}

// lossOf is the error of a lease that is lost.
func (w *want) lossOf(r *request, why error) error {
	if errors.Is(why, leasehold.ErrLost) {
		return w.named(fmt.Errorf("the term of member %q has ended (token %d, %s): %w", w.member, r.token,
			list(names(r.claims)), why))
	}
	return w.named(fmt.Errorf("%w (token %d, %s): %w", leasehold.ErrLost, r.token, list(names(r.claims)), why))
}

// gone ends a lease together with its term, which was lost or ends. The caller holds t.mu.
func (w *want) gone(r *request, err error, lost bool) Event {
	if errors.Is(r.cause, leasehold.ErrLost) { // its context has ended so already
		err, lost = r.cause, true
	}
	w.end(r, err)
	if lost {
		return w.event(EventLost, r)
	}
	return w.event(EventReleased, r)
}

// lostWith is the error for leases that could not be released before the term ended; nil if the
// release of the term's own lock has released them.
func (w *want) lostWith(tm *term) error {
	if tm.lease.Valid() {
		return nil
	}
	return w.named(fmt.Errorf("the term of member %q has ended: %w", w.member,
		cmp.Or(context.Cause(tm.lease.Context()), leasehold.ErrLost)))
}
