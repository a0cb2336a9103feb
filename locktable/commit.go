package locktable

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/membership"
	"github.com/leasehold-go/leasehold/internal/tables"
)

// term is one term of this member. The table's mutex guards what others use.
type term struct {
	lease     *leasehold.Lease
	named     tables.Term
	entry     tables.Member // as it stands in the table
	leaving   bool          // its holder wants it to end
	functions int           // that run under a lease of this term
	unguarded bool          // a lease without a function was lost with the term
	watches   map[tables.Term]*watch
	looking   int             // looks under way
	working   context.Context // of requests, and of looks at other members
	giveUp    func()          // ends it

	// The committer's own.
	mustRead  bool          // seen is not the current version, or is not known to be
	refusals  int           // of writes, less those that have succeeded
	unread    int           // reads that have failed in a row
	unwritten int           // and writes
	pauseTill time.Duration // monotonic time before which no request is sent
	readAt    time.Duration // monotonic time of the next read
	slot      time.Duration // monotonic time of the last read that a wake-up has caused; earlier, if it was right
	joined    bool          // a write that adds the member to the table was sent
	parted    bool          // the read before leaving was tried
	leftAt    time.Duration // monotonic time when nothing ran any more of a term that ends
	refused   bool          // leaving was refused for good
	lostAt    time.Duration // monotonic time when the term was seen to be lost
	undropped time.Duration // monotonic time since which something is to be dropped and cannot be
	writeTook time.Duration // by the last write
	wroteAt   time.Duration // monotonic time when the last write had succeeded
	courtesy  time.Duration // for which others may write then, if there are any
	rivals    time.Duration // monotonic time when another was last seen to write
}

// never is a monotonic time before any other.
const never = time.Duration(math.MinInt64)

// serve is the committer: for one term of this member, it makes the table as this process wants it.
// It sends one request at a time. It reports that the table does not name the term any more. Once
// the term is lost and no function runs under it, rest is all that is left to wait for.
func (t *Table) serve(ctx context.Context, lease *leasehold.Lease, name membership.Term) (forgotten bool, rest func()) {
	tm := &term{
		lease: lease, watches: make(map[tables.Term]*watch), mustRead: true,
		pauseTill: never, slot: never, wroteAt: never, rivals: never, leftAt: never, lostAt: never, undropped: never,
		named: tables.Term(name),
	}
	tm.working, tm.giveUp = context.WithCancel(context.WithoutCancel(ctx))
	tm.entry = tables.Member{Term: tm.named, Name: t.member, TTL: t.ttl, Metadata: lease.Record().Metadata}
	t.mu.Lock()
	t.term = tm
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

// ring tells the committer that it may have something to do. A ring during a step is heard after
// it.
func (t *Table) ring() {
	t.rings.Add(1)
	select {
	case t.bell <- struct{}{}:
	default:
	}
}

const (
	calm     = 64                    // yields without a ring after which one was alone
	calmMany = 32 * calm             // and after which many have all come
	patience = 50 * time.Millisecond // a stream that does not end is written in parts
)

// gather lets those ask and free first who are about to do so at this moment, so that one write has
// all of it. It waits for no time: a lone request passes after some microseconds.
func (t *Table) gather() {
	rings := t.rings.Load()
	if rings == t.heard {
		return
	}
	began, enough := t.clock.Now().Mono, calm
	for yields := 0; yields < enough && t.clock.Now().Mono-began < patience; yields++ {
		runtime.Gosched()
		if t.heard = rings; t.rings.Load() != rings {
			rings, yields, enough = t.rings.Load(), 0, calmMany
		}
	}
	t.heard = rings
}

// termEnded settles what is left of a term that needs nothing more. It reports that the term was
// not lost, and that the table does not name it any more.
func (t *Table) termEnded(tm *term) (forgotten bool) {
	t.awaitLooks(tm)
	t.mu.Lock()
	if t.seen != nil && tm.lease.Valid() { // the last looks may have made objects of members that have left
		t.forgetWatches(tm)
	}
	t.mu.Unlock()
	t.awaitLooks(tm)
	t.mu.Lock()
	t.term, t.termless = nil, t.clock.Now().Mono
	var events []Event
	lost := t.lostWith(tm)
	forgotten = lost == nil && !t.unknown && !t.names(tm.named)
	if tm.joined && !forgotten && tm.leftAt != never && t.runs.Err() != nil {
		t.unleft = t.couldNotLeave(lost)
	}
	for _, r := range t.inOrder() {
		switch r.state {
		case waiting: // it is asked for anew under the next term, by a number of its own
			t.renumber(r)
		case held, freeing:
			events = append(events, t.gone(r, lost))
		}
	}
	t.mu.Unlock()
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
	err := fmt.Errorf("leaving: member %q is still in the table, %s: %w", t.member, with,
		cmp.Or(t.trouble.err, lost, errUnanswered))
	t.log.Warn("the member could not leave the table", "table", t.key, "err", err)
	return t.named(err)
}

var errUnanswered = errors.New("the last request was not answered in time")

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
			t.finish(r, t.named(ErrNoTerm))
		case r.state == freeing && !valid:
			events = append(events, t.gone(r, t.lostWith(tm)))
		case r.state == held && !valid:
			tm.unguarded = tm.unguarded || r.runs == noFunction
			events = append(events, t.lose(r, cmp.Or(context.Cause(tm.lease.Context()), leasehold.ErrLost)))
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
	err := t.named(fmt.Errorf("%w (token %d, %s): %w", leasehold.ErrLost, r.token, list(r.names()), why))
	if errors.Is(why, leasehold.ErrLost) {
		err = t.named(fmt.Errorf("the term of member %q has ended (token %d, %s): %w", t.member, r.token,
			list(r.names()), why))
	}
	t.end(r, err)
	return Event{Kind: EventLost, Table: t.key, Token: r.token, Locks: r.names(), Err: err}
}

// gone ends a lease together with its term. The caller holds t.mu.
func (t *Table) gone(r *request, err error) Event {
	t.end(r, err)
	e := Event{Kind: EventReleased, Table: t.key, Token: r.token, Locks: r.names(), Err: err}
	if err != nil {
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

func (r *request) names() []string { return (&Lock{claims: r.claims}).names() }

// inOrder is what this process wants, in the order of the calls. The caller holds t.mu.
func (t *Table) inOrder() []*request {
	return slices.SortedFunc(maps.Values(t.requests), func(a, b *request) int {
		return cmp.Compare(a.number, b.number)
	})
}

// renumber gives a request that waits a number that was never used. The caller holds t.mu.
func (t *Table) renumber(r *request) {
	delete(t.requests, r.number)
	t.numbers++
	r.number, r.asked = t.numbers, false
	t.requests[r.number] = r
}

// step sends one request, if one is due, and returns how long to wait until the next step. done
// reports that the term needs nothing more.
func (t *Table) step(ctx context.Context, tm *term) (wait time.Duration, done bool) {
	t.gather()
	now := t.clock.Now().Mono
	if !tm.lease.Valid() {
		if tm.lostAt == never {
			tm.lostAt = now
			t.termEnds(ctx, tm) // which may not have run yet
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		return t.ttl, tm.functions == 0 // the end of a function rings
	}
	t.mu.Lock()
	leaving, idle, seen := tm.leaving, tm.functions == 0, t.seen
	t.mu.Unlock()
	if leaving && idle && tm.leftAt == never {
		tm.leftAt, tm.pauseTill = now, now
	}
	resume := tm.pauseTill
	if leaving && idle { // the release of the member's lock frees all the same
		end := tm.leftAt + min(t.ttl/2, parting)
		if !tm.joined || tm.refused || now >= end {
			return 0, true
		}
		resume = min(resume, end)
	}
	if now < resume {
		return resume - now, false
	}
	if leaving && !tm.parted && !tm.mustRead {
		// Others have often written since the last read. To read costs less than a write that is
		// refused, and most functions return meanwhile. If it fails, what is known has to do.
		tm.parted = true
		t.read(tm)
		tm.pauseTill = now
		return 0, false
	}
	if seen == nil || tm.mustRead || t.readDue(tm, now) {
		t.read(tm)
		return 0, false
	}
	d := t.difference(tm, leaving && idle)
	if d == nil && leaving && idle && !t.unknown {
		return 0, true
	}
	if d != nil || t.unknown {
		if wait := t.yield(tm, d, now); wait > 0 {
			return wait, false
		}
		t.write(tm, seen, d)
		return 0, false
	}
	t.well(true)
	tm.undropped = never
	if leaving { // the end of a function rings
		return t.ttl, false
	}
	wait = min(t.watchOthers(tm, now), tm.readAt-now)
	return wait, false
}

// awaitMargin waits until the safety margin is over for those who held a lease without a function.
// Only then may this process take its member's object again.
func (t *Table) awaitMargin(tm *term) {
	if left := tm.lostAt + t.margin - t.clock.Now().Mono; tm.unguarded && left > 0 {
		_ = clock.Wait(context.Background(), t.clock, left, nil)
	}
}

// readDue reports whether the table is to be read. A member that waits reads it once per poll
// interval, one that only holds every few TTLs.
func (t *Table) readDue(tm *term, now time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if tm.leaving {
		return false
	}
	if t.listened > 0 { // it may listen since a moment ago
		tm.readAt = min(tm.readAt, now+clock.Jitter(t.clock, t.poll))
	}
	if t.called {
		slot := max(tm.slot, now-min(t.poll, t.ttl)) + t.slotLength()
		if slot <= now {
			tm.slot = slot
			return true
		}
		tm.readAt = min(tm.readAt, slot)
	}
	return now >= tm.readAt
}

// maxWakes is how many reads in a row wake-ups cause that were wrong, and how many in a poll
// interval.
const maxWakes = 10

func (t *Table) slotLength() time.Duration { return min(t.poll, t.ttl) / maxWakes }

// restingReads is how many TTLs lie between two reads of a member that waits for nothing.
const restingReads = 4

// nextRead sets when the table is to be read again. The caller holds t.mu.
func (t *Table) nextRead(tm *term) {
	wait := clock.Jitter(t.clock, restingReads*t.ttl)
	if _, waits := t.place(tm); waits {
		wait = clock.Jitter(t.clock, t.poll)
	}
	tm.readAt = t.clock.Now().Mono + wait
}

// isOver reports whether the term of a member is known to be over. So is an earlier one of this
// member's own object.
func (tm *term) isOver(m tables.Member) bool {
	if w := tm.watches[m.Term]; w != nil && w.over {
		return true
	}
	return m.Key == tm.named.Key && m.ObjectID == tm.named.ObjectID && m.Token < tm.named.Token
}

// place is after how many wake-ups it may be this member's turn, and whether it listens to wake-ups
// at all. The caller holds t.mu.
func (t *Table) place(tm *term) (place int, ok bool) {
	if t.seen == nil {
		return 0, false
	}
	if t.listened > 0 {
		return 1, true
	}
	mine := make(map[string]bool)
	for _, r := range t.requests {
		if r.state == waiting && r.asked {
			for _, c := range r.claims {
				mine[c.Name] = true
			}
		}
	}
	if len(mine) == 0 {
		return 0, false
	}
	n, _ := t.seen.tab.Find(tm.named)
	place = 1
	for q := range t.seen.tab.Waiting() {
		if q.Member == n {
			break
		}
		if slices.ContainsFunc(q.Claims, func(c tables.Claim) bool { return mine[c.Name] }) {
			place++
		}
	}
	return place, true
}

// difference is what the table lacks of what this process wants, and has too much; nil if nothing.
// last says that the member leaves.
func (t *Table) difference(tm *term, last bool) *difference {
	t.mu.Lock()
	defer t.mu.Unlock()
	tab := t.seen.tab
	d := &difference{}
	n, joined := tab.Find(tm.named)
	for m, member := range tab.Members() {
		switch {
		case m == n && joined:
			d.leaves = last
		case tm.isOver(member):
			d.evict = append(d.evict, m)
		}
	}
	if last {
		if !d.leaves {
			return nil
		}
		return d
	}
	d.join = !joined
	if joined {
		for _, row := range tab.Requests(n) {
			r := t.requests[row.Number]
			if wanted := r != nil && r.state != freeing && (r.state != waiting || !tm.leaving); !wanted {
				d.drop = append(d.drop, row.ID)
			}
		}
	}
	if !tm.leaving {
		for _, r := range t.inOrder() {
			if r.state != waiting || r.asked {
				continue
			}
			if joined {
				if _, there := tab.Request(tables.ID{Member: n, Number: r.number}); there {
					continue
				}
			}
			d.ask = append(d.ask, r)
		}
	}
	if d.nothing(len(d.ask)) {
		return nil
	}
	return d
}

// yield is how long to let others write. A member that has just written knows the newest version,
// and needs one request where a rival needs two: it would win every time. Whatever hands a lock
// over is written at once.
func (t *Table) yield(tm *term, d *difference, now time.Duration) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if tm.leaving || t.unknown || now-t.ttl > tm.rivals || t.handsOver(t.seen, d) {
		return 0
	}
	if tm.wroteAt == never {
		return 0
	}
	return tm.wroteAt + tm.courtesy - now
}

// handsOver reports whether a write frees what others wait for.
func (*Table) handsOver(base *version, d *difference) bool {
	return slices.ContainsFunc(d.drop, base.tab.Wanted)
}

// maxRefusals bounds the spread of those who want to write at the same time, at 32 times the time
// of a write.
const maxRefusals = 6

// spread is a part of the time over which rivals spread their writes: the more refusals and the
// fewer successes, the longer.
func (tm *term) spread(part float64) time.Duration {
	return time.Duration(part * float64(max(tm.writeTook, time.Millisecond)) * float64(int(1)<<max(tm.refusals-1, 0)))
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

// build makes the next version of the table. Requests that cannot be part of it fail, if base was
// read after they were made; otherwise build returns nil, and the table must be read first.
func (t *Table) build(tm *term, base *version, d *difference) (built *tables.Table, body []byte, asks int, err error) {
	failed := make(map[*request]error)
	for {
		tab := base.tab.Clone()
		for _, m := range d.evict {
			tab.Leave(m)
		}
		n, _ := tab.Find(tm.named)
		if d.leaves {
			tab.Leave(n)
		}
		for _, id := range d.drop {
			tab.Drop(id)
		}
		if d.join {
			n = tab.Join(tm.entry)
		}
		asked := make([]*request, 0, len(d.ask))
		for _, r := range d.ask {
			if failed[r] != nil {
				continue
			}
			if err := tab.Ask(tables.ID{Member: n, Number: r.number}, r.claims); err != nil {
				failed[r] = err
				continue
			}
			if id := (tables.ID{Member: n, Number: r.number}); r.try && len(tab.InTheWay(id)) > 0 {
				failed[r] = t.heldError(tab, r, id)
				tab.Drop(id)
				continue
			}
			asked = append(asked, r)
		}
		tab.Finish(rand.Text()[:16], t.floor)
		t.mustFollow(tm, base, d, tab, asked)
		body, err := tab.EncodeWithin(t.maxSize)
		if errors.Is(err, ErrFull) && len(asked) > 0 {
			// The last ones go, as many as the bytes over the limit are worth, and one at least.
			over := max((len(body)-t.maxSize)*len(asked)/max(len(body)-base.size, 1), 1)
			for _, r := range asked[max(len(asked)-over, 0):] {
				failed[r] = err
			}
			continue
		}
		if postponed := t.fail(tm, base, failed); postponed && d.nothing(len(asked)) && !t.unknown {
			return nil, nil, 0, nil
		}
		if errors.Is(err, ErrFull) && len(body) <= leasehold.MaxObjectSize { // others have written it so large
			err = nil
		}
		return tab, body, len(asked), err
	}
}

// mustFollow panics if a write that is about to be sent would break what all leases rest on. A
// panic is right outside of tests, too. Such a write comes from a mistake in this package, so what
// this process believes of its leases cannot be trusted either. Nothing is sent then, the contexts
// of all leases end, and nobody gets their locks before the TTL has passed: see Table.Run. An error
// would leave the process to go on with what it believes. No object that Decode reads leads there,
// so whoever damages the table stops nobody by it. It costs about a third of what building a write
// does.
func (t *Table) mustFollow(tm *term, base *version, d *difference, next *tables.Table, asked []*request) {
	w := tables.Write{By: tm.named, AtLeast: t.floor, Gone: d.evict, Dropped: d.drop}
	self, _ := base.tab.Find(tm.named)
	if d.leaves {
		w.Gone = append(slices.Clip(w.Gone), self)
	}
	n, _ := next.Find(tm.named)
	for _, r := range asked {
		w.Asked = append(w.Asked, tables.ID{Member: n, Number: r.number})
	}
	err := next.Follows(base.tab, w)
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, id := range d.drop {
		if r := t.requests[id.Number]; r != nil && r.state == held {
			err = cmp.Or(err, fmt.Errorf("request %d is dropped while its lease goes on", id.Number))
		}
	}
	if d.leaves && tm.functions > 0 {
		err = cmp.Or(err, fmt.Errorf("the member leaves while %d functions run", tm.functions))
	}
	if err != nil {
		panic(fmt.Errorf("locktable: table %q: %w, nothing was written: %w (a mistake in this package: report it)",
			t.key, errInvariant, err))
	}
}

// errInvariant marks a panic of mustFollow.
var errInvariant = errors.New("an invariant would be broken")

// fail tells requests why they cannot be part of the table. It reports whether base is too old for
// one of them, which waits for the next write.
func (t *Table) fail(tm *term, base *version, failed map[*request]error) (postponed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for r, err := range failed {
		if r.state == waiting && base.begun < r.began {
			postponed = true
			continue
		}
		if r.state == waiting {
			t.finish(r, t.named(err))
		}
		if errors.Is(err, ErrFull) {
			for _, w := range tm.watches { // the dead that block nobody take room, too
				w.due = min(w.due, max(t.clock.Now().Mono, w.looked+t.poll))
			}
		}
	}
	return postponed
}

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

// failed notes that a request has failed, and sets the pause until the next.
func (t *Table) failed(tm *term, writing bool, err error) {
	if t.noteTrouble(writing, err) {
		t.log.Warn("the table cannot be read or written, will retry", "table", t.key, "err", err)
	}
	t.failTries(err)
	t.endIfStuck(tm, !writing, err)
	if tm.leftAt != never && errors.Is(err, leasehold.ErrPermanent) && (writing || tm.mustRead) {
		tm.refused = true
	}
	failures := &tm.unread
	if writing {
		failures = &tm.unwritten
	}
	pause := t.backoff(failures)
	if !errors.Is(err, leasehold.ErrPermanent) { // it may pass at any time
		pause = min(pause, t.poll)
	}
	tm.pauseTill = t.clock.Now().Mono + pause
}

// endIfStuck ends the term of a member that has been in the way for two TTLs. The heartbeat would
// go on, and what cannot be dropped would block the others for ever.
func (t *Table) endIfStuck(tm *term, unread bool, err error) {
	now := t.clock.Now().Mono
	if tm.undropped == never && t.standsInTheWay(tm, unread) {
		tm.undropped = now
	}
	stuck := tm.undropped != never && now-tm.undropped > 2*max(t.ttl, t.poll)
	// which another member could not mend
	if stuck && !errors.Is(err, leasehold.ErrCorruptRecord) && !errors.Is(err, ErrFull) {
		tm.undropped = never
		t.log.Error("what this member has freed cannot be written, or what it was granted cannot be read, for two "+
			"TTLs: its term ends", "table", t.key, "err", err)
		done, cancel := context.WithCancel(context.Background())
		cancel()
		_ = t.self.Resign(done)
	}
}

// noteTrouble notes why a request has failed, and reports whether it is the first in a row.
func (t *Table) noteTrouble(writing bool, err error) (first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if first = t.trouble.err == nil; first {
		t.trouble.since = t.clock.Now().Mono
	}
	t.trouble.err, t.trouble.writing = err, t.trouble.writing || writing
	return first
}

// failTries tells those who do not wait why they have to.
func (t *Table) failTries(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.requests {
		if r.state == waiting && r.try {
			t.finish(r, t.named(err))
		}
	}
}

// standsInTheWay reports whether the table, as it was seen last, holds something that this member
// does not want any more; or, if unread, something that it waits for and may have been granted
// since.
func (t *Table) standsInTheWay(tm *term, unread bool) bool {
	t.mu.Lock()
	seen, asked := t.seen, false
	for _, r := range t.requests {
		asked = asked || r.state == waiting && r.asked
	}
	t.mu.Unlock()
	if seen == nil {
		return false
	}
	if unread && asked {
		return true
	}
	d := t.difference(tm, false)
	return d != nil && len(d.drop) > 0
}

// well notes that the table can be read, or that nothing is left to be written.
func (t *Table) well(written bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if written || !t.trouble.writing {
		t.trouble = trouble{}
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
	if !same && v.tab.Unfinished() { // whoever has edited it by hand has granted nothing
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
