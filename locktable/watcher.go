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

// watcher is what this member knows of whether other members run, for one term of this member. It
// belongs to the goroutine of the committer and has no mutex. A look runs on a separate goroutine,
// alone uses its judge until it ends, and sends what it saw. The watcher looks at:
//   - members that hold a lock for which this member waits;
//   - in each line, the members in front of this member, from the nearest on, until two of them are
//     found alive, because these look at the members in front of them. Several members often crash
//     together, so it must be four more for each that is suspected;
//   - suspected members, until that is settled;
//   - now and then one of all members, so that crashed members that block no request do not stay;
//   - all, for a TTL after the table was full.
type watcher struct {
	*Table  // its settings, its group and its bell
	working context.Context
	lives   map[tables.Term]*life
	saw     chan sight              // from looks; each can be sent without waiting
	under   map[*life]time.Duration // looks under way, and when they began
	owing   []*life                 // of members that have ended, whose objects this process is to remove
	// The table had no room for all that this member asked for, or for itself, a TTL before that.
	// By then each crashed member is suspected.
	fullTill time.Duration
	alarm    bool // a member is suspected in a line of this one
	more     int  // of all members are to be looked at, because one of them was found suspected
	oneAt    time.Duration
	first    bool // oneAt is the first time

	of    *tables.Table // of which ahead is
	ahead []tables.Ahead
}

// life is what is known of one term of another member. Times are monotonic.
type life struct {
	member   tables.Member
	judge    *membership.Judge // the look under way has it
	looking  bool
	blocks   bool          // it is in the way of this member
	follows  bool          // there is a reason to look again and again
	due      time.Duration // of the next look; forever if there is no reason
	looked   time.Duration // when the last look began
	seen     time.Duration // when the last one ended that has read the member's record
	seenFrom time.Duration // when that one began
	changed  time.Duration // when a look first showed another renewal than the one before
	over     bool
	state    lifeState
	nonce    string    // of the record seen last
	renewed  time.Time // by the member's own wall clock
	err      error     // of the last look
	errSince time.Duration
	ahead    bool // its clock was, by more than the allowance
}

// lifeState is a hint. It decides which members to look at, and what TryAcquire returns. Only a
// membership.Judge decides that another member may act because a member is dead.
type lifeState uint8

const (
	unknown   lifeState = iota // never looked at
	alive                      // it was seen to renew; or by its own clock it has, a moment ago
	suspected                  // neither
)

// sight is the result of one look.
type sight struct {
	of      *life
	verdict membership.Verdict
	err     error
	nonce   string
	renewed time.Time
	next    time.Duration // how long to wait until another look is worth a request
	ended   time.Duration // monotonic
	buried  bool          // it was not a look: the object of a member that has ended was removed
}

const (
	maxLooks   = 4 // under way at once
	neighbours = 2 // alive, in front of a member in a line
	moreFor    = 4 // of them for each that is suspected
	firstOnes  = 8 // of all members, at the beginning of a term
	round      = 2 // TTLs between two looks without a reason
	allowance  = 2 * time.Second
)

func newWatcher(t *Table, working context.Context) *watcher {
	return &watcher{
		Table: t, working: working, lives: make(map[tables.Term]*life), saw: make(chan sight, maxLooks), first: true,
		under: make(map[*life]time.Duration), fullTill: never,
		oneAt: t.clock.Now().Mono + clock.Jitter(t.clock, t.ttl/3),
	}
}

// plan begins the looks that are due, and returns when the next one is. asked are members of which
// a try needs to know at once whether they run.
func (w *watcher) plan(tab *tables.Table, me uint64, asked []uint64, now time.Duration) (at time.Duration) {
	w.know(tab, me)
	w.drawSome(tab, me, now)
	followed := w.followed(tab, me)
	slices.Sort(followed)
	at = w.oneAt
	for n, m := range tab.Members() {
		l := w.lives[m.Term]
		if l == nil || l.over {
			continue
		}
		_, l.blocks = slices.BinarySearch(followed, n)
		follows := l.blocks || now < w.fullTill || l.state == suspected
		_, isAsked := slices.BinarySearch(asked, n)
		w.setDue(l, follows, isAsked, now)
		switch {
		case l.looking:
		case l.due > now:
			at = min(at, l.due)
		case len(w.under) < maxLooks: // else the end of a look rings
			l.looking, l.looked = true, now
			w.begin(l, now)
			go w.look(l)
		}
	}
	w.buryOwed()
	return at
}

// setDue sets when a member is looked at, after what is known of it has changed.
func (w *watcher) setDue(l *life, follows, asked bool, now time.Duration) {
	switch rand := w.clock.Rand(); {
	case asked, follows && !l.follows && w.alarm:
		l.due = min(l.due, now)
	case follows && !l.follows: // in a crowd, the members in the way change all the time
		l.due = min(l.due, max(now+time.Duration(rand*float64(w.poll)/4), l.looked+w.poll))
	case l.follows && !follows:
		l.due = w.rests(l, now)
	}
	l.follows = follows
}

// rests is when a member is looked at again for which there is no reason: never, or about a TTL
// later, if Check reports it.
func (w *watcher) rests(l *life, now time.Duration) time.Duration {
	if l.err == nil {
		return forever
	}
	return now + clock.Jitter(w.clock, w.ttl)
}

// know adds the members that are new in the table, and forgets those that it names no more.
func (w *watcher) know(tab *tables.Table, me uint64) {
	named := make(map[tables.Term]bool)
	for n, m := range tab.Members() {
		named[m.Term] = true
		if n != me && w.lives[m.Term] == nil {
			w.lives[m.Term] = &life{member: m, looked: never, seen: never, changed: never, due: forever}
		}
	}
	for term, l := range w.lives {
		if named[term] || l.looking {
			continue
		}
		delete(w.lives, term)
		if l.err != nil {
			w.publish()
		}
		if l.judge != nil && l.judge.Owes() {
			w.owing = append(w.owing, l)
		}
	}
}

// drawSome makes some members due without a reason to look at them: one in every round, more when
// the term begins, and two at once after one was found suspected.
func (w *watcher) drawSome(tab *tables.Table, me uint64, now time.Duration) {
	n := w.more
	if now >= w.oneAt {
		n++
		if w.first {
			n, w.first = firstOnes, false
		}
		w.oneAt = now + clock.Jitter(w.clock, round*w.ttl)
	}
	w.more = 0
	if n == 0 {
		return
	}
	var others []*life
	for m, member := range tab.Members() {
		l := w.lives[member.Term]
		if m != me && !l.over && !l.follows && !l.looking && (l.looked == never || l.looked < now-round*w.ttl) {
			others = append(others, l)
		}
	}
	for ; n > 0 && len(others) > 0; n-- {
		i := min(int(w.clock.Rand()*float64(len(others))), len(others)-1)
		others[i].due = now
		others = slices.Delete(others, i, i+1)
	}
}

// followed are those whose end would help this member.
func (w *watcher) followed(tab *tables.Table, me uint64) (members []uint64) {
	if w.of != tab { // one walk for each version
		w.of, w.ahead = tab, tab.AheadOf(me)
	}
	w.alarm = false
	stateOf := func(n uint64) (suspect bool) {
		members = append(members, n)
		m, _ := tab.Member(n)
		l := w.lives[m.Term]
		return l != nil && (l.state == suspected || l.over)
	}
	for _, a := range w.ahead {
		suspects, living := 0, 0
		for _, n := range a.Holders {
			if stateOf(n) {
				suspects++
			}
		}
		for _, n := range a.Front {
			if stateOf(n) {
				suspects++
			} else if living++; living >= neighbours+moreFor*suspects {
				break
			}
		}
		w.alarm = w.alarm || suspects > 0
	}
	return members
}

// begin notes that a look begins.
func (w *watcher) begin(l *life, now time.Duration) {
	w.under[l] = now
	w.publishOldest()
}

// publishOldest reports to Check since when a look is under way, because a store may ignore the
// look's context.
func (w *watcher) publishOldest() {
	var oldest *time.Duration
	for _, begun := range w.under {
		if oldest == nil || begun < *oldest {
			oldest = &begun
		}
	}
	w.looks.Store(oldest)
}

// look looks at a member once.
func (w *watcher) look(l *life) {
	s := sight{of: l, next: w.poll}
	// An object that is looked at may be taken and removed.
	if want := w.key + storeapi.MembersFolder + l.member.Name; l.member.Key != want {
		s.err = fmt.Errorf("%w: its object is said to be %.200q, not %q", leasehold.ErrCorruptRecord, l.member.Key,
			want)
	} else if l.judge == nil {
		l.judge, s.err = w.group.Judge(l.member.Term, l.member.TTL)
	}
	if s.err == nil {
		s.verdict, s.err = l.judge.Look(w.working)
		s.nonce, s.renewed = l.judge.Shows()
	}
	if s.err == nil { // else the judge would look again at once, to take an object that it may not take
		s.next = l.judge.Next()
	}
	s.ended = w.clock.Now().Mono
	w.saw <- s
	w.ring()
}

// buryOwed removes objects that this process is to remove, as many as there is room for now. The
// end of each rings.
func (w *watcher) buryOwed() {
	for len(w.owing) > 0 && len(w.under) < maxLooks {
		w.begin(w.owing[0], w.clock.Now().Mono)
		go w.bury(w.owing[0])
		w.owing = w.owing[1:]
	}
}

// bury removes the object of a member that has ended.
func (w *watcher) bury(l *life) {
	ctx, cancel := context.WithTimeout(context.Background(), w.attempt())
	defer cancel()
	if err := l.judge.Evicted(ctx); err != nil {
		w.log.Info("the object of a dead member could not be removed", "table", w.key, "member", l.member.Name,
			"err", err)
	}
	w.saw <- sight{of: l, buried: true}
	w.ring()
}

// hear takes what looks have seen.
func (w *watcher) hear() {
	for {
		select {
		case s := <-w.saw:
			delete(w.under, s.of)
			w.publishOldest()
			if s.of.looking = false; !s.buried && w.working.Err() == nil {
				w.note(s)
			}
		default:
			return
		}
	}
}

// note takes what one look has seen.
func (w *watcher) note(s sight) {
	l := s.of
	if s.err != nil && l.err == nil {
		l.errSince = s.ended
		w.log.Warn("a member's state is unknown, will retry", "table", w.key, "member", l.member.Name,
			"err", s.err)
	}
	if s.err != nil || l.err != nil {
		l.err = s.err
		w.publish()
	}
	switch {
	case s.verdict.State == membership.Over:
		l.over = true
		w.log.Info("a member's term has ended: its requests are removed", "table", w.key,
			"member", l.member.Name, "why", s.verdict.Reason)
		return
	case s.err != nil && l.follows:
		l.due = s.ended + s.next
	case s.err != nil: // one failure must not count for a whole round
		l.due = w.rests(l, s.ended)
	default:
		w.judged(l, s)
	}
}

// judged takes a look that has read the member's object: whether it was renewed as often as it must
// be, and when another look is worth a request.
func (w *watcher) judged(l *life, s sight) {
	l.seen, l.seenFrom = s.ended, l.looked
	if s.verdict.State == membership.Alive { // else the record may be written by a process that has taken the object
		if l.nonce != "" && l.nonce != s.nonce {
			l.changed = s.ended
		}
		l.nonce, l.renewed = s.nonce, s.renewed
	}
	now, was := w.clock.Now(), l.state
	age := now.Time().Sub(l.renewed)
	w.compareClocks(l, age)
	late := l.member.TTL * 2 / 5 // one renewal comes every third of the TTL
	switch {
	case s.verdict.State == membership.Unknown:
		l.state = suspected
	case l.changed != never && now.Mono-l.changed < l.member.TTL*3/10,
		l.changed == never && -allowance <= age && age <= late:
		l.state = alive
	default:
		l.state = suspected
	}
	if l.state == suspected && was != suspected && !l.follows {
		w.more += 2 // the dead are often not alone
	}
	switch {
	case l.state == suspected, l.follows && l.changed != never:
		l.due = s.ended + s.next
	case l.follows: // only its own clock says so until then
		l.due = s.ended + min(s.next, max(late-age, w.poll/4))
	default:
		l.due = w.rests(l, s.ended)
	}
}

// compareClocks warns of a member whose clock is ahead. That never decides which member holds a
// lock, but each TryAcquire of a lock of this member waits for its next renewal.
func (w *watcher) compareClocks(l *life, age time.Duration) {
	was := l.ahead
	if l.ahead = age < -allowance; l.ahead && !was {
		w.log.Warn("the clock of a member is ahead", "table", w.key, "member", l.member.Name,
			"by", -age.Round(time.Second), "effect", "tries take longer", "hint", "set both clocks by NTP")
	}
}

// stateNow is what is known of a member, for a try of this time that does not wait for running
// members. A look that is older than a third of a TTL does not count, unless it began after the try
// was made: looks at many members take long. What such a look has shown is not compared with the
// present time. A member that cannot be judged counts as alive.
func (*watcher) stateNow(l *life, now clock.Reading, try time.Duration) lifeState {
	if l == nil {
		return unknown
	}
	m, at, age := l.member, now.Mono, now.Time().Sub(l.renewed)
	if l.seen != never && l.seenFrom >= try {
		at, age = l.seen, age-(now.Mono-l.seen)
	}
	switch {
	case l.err != nil:
		return alive
	case l.over:
		return suspected
	case l.seen == never || at-l.seen > m.TTL/3:
		return unknown
	case l.changed != never && at-l.changed <= m.TTL,
		l.changed == never && -allowance <= age && age <= m.TTL+allowance:
		return alive
	}
	return suspected
}

// isOver reports whether the term of a member is known to have ended.
func (w *watcher) isOver(m tables.Member) bool {
	l := w.lives[m.Term]
	return l != nil && l.over
}

// await waits until no look is under way any more. If the term lasts, it removes the objects of
// members that the looks have found ended and that tab does not name any more; tab is nil if the
// term does not last.
func (w *watcher) await(tab *tables.Table, me uint64) {
	for {
		w.hear()
		if tab != nil {
			w.know(tab, me)
			w.buryOwed()
		}
		if len(w.under) == 0 {
			return
		}
		_ = clock.Wait(context.Background(), w.clock, w.ttl, w.bell)
	}
}

// lookError is what is wrong with a member.
type lookError struct {
	err   error
	since time.Duration // monotonic
}

// publish reports to Check, on another goroutine, the members that cannot be judged.
func (w *watcher) publish() {
	var errs []lookError
	for _, l := range w.lives {
		if l.err == nil {
			continue
		}
		where := ""
		if l.blocks {
			where = "it is in the way, and "
		}
		errs = append(errs, lookError{fmt.Errorf("member %q: %sits state is unknown: %w", l.member.Name,
			where, l.err), l.errSince})
	}
	w.lookErrs.Store(&errs)
}
