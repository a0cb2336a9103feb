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

// term is one term of this member. The table's mutex guards what others use.
type term struct {
	lease     *leasehold.Lease
	named     tables.Term
	entry     tables.Member   // as it stands in the table
	leaving   bool            // its holder wants it to end
	functions int             // that run under a lease of this term
	unguarded bool            // a lease without a function was lost with the term
	gaveUp    error           // why this process ends the term itself, so that its leases are lost; else nil
	working   context.Context // of requests, and of looks at other members
	giveUp    func()          // ends it

	// The committer's own. Times are monotonic.
	watcher   *watcher
	foreign   map[uint64]time.Duration // numbers of rows of this term that this process did not ask for, since when
	copied    bool                     // some of these rows may be in use
	restored  bool                     // seen is older than what was seen before
	lost      *race                    // a write that has failed, until a read tells why
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

// serve is the committer: for one term of this member, it makes the table as this process wants it.
// It sends one request at a time. It reports that the table does not name the term any more. Once
// the term is lost and no function runs under it, rest is all that is left to wait for.
func (t *Table) serve(ctx context.Context, lease *leasehold.Lease, name tables.Term) (forgotten bool, rest func()) {
	tm := &term{
		lease: lease, foreign: make(map[uint64]time.Duration), mustRead: true,
		pauseTill: never, slot: never, wroteAt: never, rivals: never, leftAt: never, lostAt: never,
		undropped: never, named: name,
	}
	tm.working, tm.giveUp = context.WithCancel(context.WithoutCancel(ctx))
	tm.entry = tables.Member{Term: tm.named, Name: t.member, TTL: t.ttl, Metadata: lease.Record().Metadata}
	tm.watcher = newWatcher(t, tm.working)
	t.mu.Lock()
	t.term, t.hadTerm = tm, true
	t.resumes(tm)
	t.mu.Unlock()
	told := make(chan struct{})
	stopEnding := context.AfterFunc(ctx, func() {
		defer close(told)
		t.termEnds(ctx, tm)
	})
	settle := func() (forgotten bool) {
		if !stopEnding() { // the observer hears all before Run returns
			<-told
		}
		return t.termEnded(tm)
	}
	completed := false
	defer func() { // also if the store or an observer panics
		tm.giveUp()
		if completed && !lease.Valid() {
			rest = func() {
				settle()
				t.awaitMargin(tm)
			}
			return
		}
		if !completed { // functions may still run, so nobody may follow before the TTL has passed
			lease.Abandon()
		}
		forgotten = settle()
	}()
	for done := false; !done; {
		var wait time.Duration
		if wait, done = t.step(ctx, tm); wait > 0 && !done {
			_ = clock.Wait(context.Background(), t.clock, wait, t.bell)
		}
	}
	completed = true
	return false, nil
}

// termEnded settles what is left of a term that needs nothing more. It reports that the term was
// not lost, and that the table does not name it any more.
func (t *Table) termEnded(tm *term) (forgotten bool) {
	var left *tables.Table // the last looks may have made objects of members that have gone
	if t.seen != nil && tm.lease.Valid() {
		left = t.seen.tab
	}
	tm.watcher.await(left, 0)
	t.lookErrs.Store(nil)
	if tm.copied { // another process acts under this term, so it must run out
		tm.lease.Abandon()
	}
	t.mu.Lock()
	t.term, t.termless = nil, t.clock.Now().Mono
	lost := t.lostWith(tm)
	t.decide("", cmp.Or(lost, ErrNoTerm))
	forgotten = lost == nil && !t.mustWrite && !t.names(tm.named)
	wrong, unleft := lost, error(nil)
	if tm.joined && !forgotten && tm.leftAt != never {
		switch unleft = t.couldNotLeave(lost); {
		case tm.copied:
			unleft = t.named(fmt.Errorf("leaving: %w", errCopied))
			fallthrough
		case lost != nil || !tm.outrun: // else the release of the member's lock is about to free all
			wrong = cmp.Or(lost, unleft)
			if t.runs.Err() != nil {
				t.unleft = unleft
			}
		}
	}
	events := t.settleResumed(nil)
	for _, r := range t.inOrder() {
		switch {
		case r.state == waiting: // it is asked for anew under the next term, by a number of its own
			t.renumber(r)
		case r.term == nil: // it was given back while it waited
			t.end(r, r.err)
		default:
			events = append(events, t.gone(r, wrong, lost != nil))
		}
	}
	t.mu.Unlock()
	if unleft != nil {
		t.log.Warn("the member could not leave the table", "table", t.key, "err", unleft)
	}
	for _, e := range events {
		t.observe(e)
	}
	return forgotten
}

// names reports whether the version that was seen last names a term. The caller holds t.mu.
func (t *Table) names(term tables.Term) bool {
	if t.seen == nil {
		return false
	}
	_, named := t.seen.tab.Find(term)
	return named
}

// couldNotLeave is the error of a member that was to leave, and is in the table still. The caller
// holds t.mu.
func (t *Table) couldNotLeave(lost error) error {
	var locks []string
	for _, r := range t.inOrder() {
		if r.state == held || r.state == freeing || r.asked {
			locks = append(locks, r.names()...)
		}
	}
	with := "without locks"
	if len(locks) > 0 {
		with = "with " + list(locks) + ", which others get once its lease was released or has run out"
	}
	return t.named(fmt.Errorf("leaving: member %q is still in the table, %s: %w", t.member, with,
		cmp.Or(t.trouble.err, lost, errUnanswered)))
}

var (
	errUnanswered = errors.New("the last request was not answered in time")
	errCopied     = errors.New("another process acts under the term of this member, as a copy of its machine would: " +
		"its lock is not released, and others get what it held when the TTL has passed")
)

// termEnds ends all contexts at once: the term is lost, or its holder wants it to end.
func (t *Table) termEnds(ctx context.Context, tm *term) {
	var events []Event // told when all contexts have ended
	defer func() {
		for _, e := range events {
			t.observe(e)
		}
	}()
	t.mu.Lock()
	defer t.mu.Unlock()
	tm.leaving = true
	valid := tm.lease.Valid()
	if !valid { // a request that is under way must not keep this member's next term waiting
		tm.giveUp()
	}
	for _, r := range t.inOrder() {
		switch {
		case r.state == waiting && r.try:
			t.giveBack(r, t.named(ErrNoTerm))
		case r.state == freeing && r.term == nil: // it was given back while it waited
		case r.state == freeing && !valid:
			events = append(events, t.gone(r, t.lostWith(tm), true))
		case r.state == held && !valid:
			tm.unguarded = tm.unguarded || r.runs == noFunction
			events = append(events, t.lose(r, cmp.Or(context.Cause(tm.lease.Context()), leasehold.ErrLost)))
		case r.state == held && tm.gaveUp != nil && r.runs == running:
			r.endContext(t.lossOf(r, tm.gaveUp))
		case r.state == held && tm.gaveUp != nil:
			t.free(r, t.lossOf(r, tm.gaveUp))
		case r.state == held && r.runs == running:
			r.endContext(context.Cause(ctx))
		case r.state == held:
			t.free(r, fmt.Errorf("%w: %w", leasehold.ErrReleased, context.Cause(ctx)))
		}
	}
	t.ring()
}

// lose ends a lease against its holder's will. The caller holds t.mu.
func (t *Table) lose(r *request, why error) Event {
	err := t.lossOf(r, why)
	t.end(r, err)
	return Event{Kind: EventLost, Table: t.key, Token: r.token, Locks: r.names(), Err: err}
}

// lossOf is the error of a lease that is lost.
func (t *Table) lossOf(r *request, why error) error {
	if errors.Is(why, leasehold.ErrLost) {
		return t.named(fmt.Errorf("the term of member %q has ended (token %d, %s): %w", t.member, r.token,
			list(r.names()), why))
	}
	return t.named(fmt.Errorf("%w (token %d, %s): %w", leasehold.ErrLost, r.token, list(r.names()), why))
}

// gone ends a lease together with its term, which was lost or ends. The caller holds t.mu.
func (t *Table) gone(r *request, err error, lost bool) Event {
	if errors.Is(r.cause, leasehold.ErrLost) { // its context has ended so already
		err, lost = r.cause, true
	}
	t.end(r, err)
	e := Event{Kind: EventReleased, Table: t.key, Token: r.token, Locks: r.names(), Err: err}
	if lost {
		e.Kind = EventLost
	}
	return e
}

// lostWith is the error of what could not be freed before the term ended; nil if the term's own
// release has freed it.
func (t *Table) lostWith(tm *term) error {
	if tm.lease.Valid() {
		return nil
	}
	return t.named(fmt.Errorf("the term of member %q has ended: %w", t.member,
		cmp.Or(context.Cause(tm.lease.Context()), leasehold.ErrLost)))
}

// awaitMargin waits until the safety margin is over for those who held a lease without a function.
// Only then may this process take its member's object again.
func (t *Table) awaitMargin(tm *term) {
	if left := tm.lostAt + t.margin - t.clock.Now().Mono; tm.unguarded && left > 0 {
		_ = clock.Wait(context.Background(), t.clock, left, nil)
	}
}
