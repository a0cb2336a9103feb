package locktable

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/membership"
	"github.com/leasehold-go/leasehold/internal/storeapi"
	"github.com/leasehold-go/leasehold/internal/tables"
)

// watch is what this member knows of the term of another. The table's mutex guards it, except the
// judge, which the look under way has.
type watch struct {
	member   tables.Member
	judge    *membership.Judge
	blocks   bool          // it is in the way of a request of this member
	due      time.Duration // monotonic time of the next look
	looked   time.Duration // monotonic time of the last look
	looking  bool
	over     bool
	err      error         // of the last look
	errSince time.Duration // monotonic time of the first failure in a row
}

const (
	maxLooks = 4 // under way at once
	// of those in front in a line, beside the holders: so three neighbours that die together are
	// seen to be dead together
	followed = 3
	round    = 20 // TTLs, in which every member looks once at each of the others
)

// watchOthers looks at those that are in the way, and slowly at all others, or the entries of the
// dead that block nobody would stay for ever. It returns when the next look is due.
func (t *Table) watchOthers(tm *term, now time.Duration) (wait time.Duration) {
	n, _ := t.seen.tab.Find(tm.named)
	blocks := t.inTheWay(n)
	t.mu.Lock()
	defer t.mu.Unlock()
	wait = round * t.ttl
	if tm.leaving {
		return wait
	}
	for m, member := range t.seen.tab.Members() {
		if m == n {
			continue
		}
		w := tm.watches[member.Term]
		if w == nil {
			w = &watch{member: member, looked: never, due: now + time.Duration(t.clock.Rand()*float64(round*t.ttl))}
			tm.watches[member.Term] = w
		}
		follows := blocks[m]
		switch rand := t.clock.Rand(); { // in a crowd, who is in the way changes all the time
		case follows && !w.blocks:
			w.due = max(now+time.Duration(rand*float64(t.poll)/4), w.looked+t.poll)
		case w.blocks && !follows && w.err == nil: // one that has failed is repeated soon
			w.due = now + time.Duration(rand*float64(round*t.ttl))
		}
		w.blocks = follows
		if tm.full { // the dead that block nobody take room, too
			w.due = min(w.due, max(now, w.looked+t.poll))
		}
		if w.looking || w.over {
			continue
		}
		switch {
		case w.due > now:
			wait = min(wait, w.due-now)
		case tm.looking < maxLooks: // else the end of a look rings
			tm.looking++
			w.looking, w.looked = true, now
			go t.look(tm, w)
		}
	}
	return wait
}

// inTheWay returns the members that are in the way of requests of this member: those who hold, and
// of those who wait in front of it the nearest.
func (t *Table) inTheWay(n uint64) map[uint64]bool {
	blocks := make(map[uint64]bool)
	for _, a := range t.seen.tab.AheadOf(n) {
		for _, m := range slices.Concat(a.Holders, a.Front[:min(len(a.Front), followed)]) {
			blocks[m] = true
		}
	}
	return blocks
}

// look looks at a member once.
func (t *Table) look(tm *term, w *watch) {
	verdict, err := membership.Verdict{}, error(nil)
	// an object that is looked at may be taken and removed
	if want := t.key + storeapi.MembersFolder + w.member.Name; w.member.Key != want {
		err = fmt.Errorf("%w: its object is said to be %.200q, not %q", leasehold.ErrCorruptRecord, w.member.Key, want)
	} else if w.judge == nil {
		w.judge, err = t.group.Judge(membership.Term(w.member.Term), w.member.TTL)
	}
	if err == nil {
		verdict, err = w.judge.Look(tm.working)
	}
	if tell := t.noteLook(tm, w, verdict, err); tell != nil {
		tell()
	}
}

// noteLook notes the result of a look. It returns what is to be logged, if anything is: a log may
// block, so nothing is locked while it is written.
func (t *Table) noteLook(tm *term, w *watch, verdict membership.Verdict, err error) (tell func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.ring()
	now := t.clock.Now().Mono
	tm.looking--
	w.looking = false
	if tm.working.Err() != nil {
		return nil
	}
	switch {
	case err == nil:
		w.err = nil
	case w.err == nil:
		w.errSince = now
		tell = func() {
			t.log.Warn("whether a member lives cannot be told, will look again", "table", t.key, "member",
				w.member.Name, "err", err)
		}
		fallthrough
	default:
		w.err = err
	}
	if verdict.State == membership.Over {
		w.over = true
		return func() {
			t.log.Info("a member's term is over: its requests are removed from the table", "table", t.key,
				"member", w.member.Name, "why", verdict.Reason)
		}
	}
	switch {
	// what is not shown any more is over in a TTL
	case w.judge != nil && (w.blocks || err == nil && verdict.State == membership.Unknown):
		w.due = now + w.judge.Next()
	case w.blocks:
		w.due = now + t.poll
	case err != nil: // one failure must not count for a whole round
		w.due = now + clock.Jitter(t.clock, t.ttl)
	default:
		w.due = now + clock.Jitter(t.clock, round*t.ttl)
	}
	return tell
}

// forgetWatches forgets the members that the table names no more. What a judge has left of an
// evicted one is removed. The caller holds t.mu.
func (t *Table) forgetWatches(tm *term) {
	for named, w := range tm.watches {
		if _, ok := t.seen.tab.Find(named); ok || w.looking {
			continue
		}
		delete(tm.watches, named)
		if w.judge != nil && w.judge.Owes() {
			tm.looking++
			go t.bury(tm, w)
		}
	}
}

// bury removes the object of a member that was evicted.
func (t *Table) bury(tm *term, w *watch) {
	ctx, cancel := context.WithTimeout(context.Background(), t.attempt())
	defer cancel()
	if err := w.judge.Evicted(ctx); err != nil {
		t.log.Info("the object of a dead member could not be removed", "table", t.key, "member",
			w.member.Name, "err", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	tm.looking--
	t.ring()
}

// awaitLooks waits until no look is under way any more.
func (t *Table) awaitLooks(tm *term) {
	for {
		t.mu.Lock()
		looking := tm.looking
		t.mu.Unlock()
		if looking == 0 {
			return
		}
		_ = clock.Wait(context.Background(), t.clock, t.ttl, t.bell)
	}
}

// unreadable says that a member's object cannot be judged.
func (w *watch) unreadable() error {
	return fmt.Errorf("member %q: %w", w.member.Name, w.err)
}
