package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/tables"
	"github.com/leasehold-go/leasehold/locktable"
)

// tableHold is a lease from the moment when its caller has it until it is released. w.state guards
// it.
type tableHold struct {
	c       *tableClient
	lease   *locktable.Lease
	claims  []tables.Claim
	ctx     context.Context // of the function, if there is one
	row     tableRow
	token   uint64
	running bool // a function runs under it
	over    bool // it was seen to be invalid
	began   int  // number of the table's version then
	edit    int  // number of the version in which a person has removed its entry; 0 if nobody has
	editAt  time.Time
	sawEdit time.Time // when its Table was shown that or a later version; zero if it was not
}

func (h *tableHold) String() string {
	var names []string
	for _, c := range h.claims {
		names = append(names, c.String())
	}
	return fmt.Sprintf("%s's lease of %s with token %d", h.c.name, strings.Join(names, ", "), h.token)
}

// hold notes a lease that was acquired, and checks that it may be.
func (c *tableClient) hold(lease *locktable.Lease, claims []tables.Claim, ctx context.Context, runs bool) *tableHold {
	w := c.p.w
	h := &tableHold{c: c, lease: lease, claims: claims, ctx: ctx, running: runs, token: lease.Token()}
	slices.SortFunc(h.claims, func(a, b tables.Claim) int { return strings.Compare(a.Name, b.Name) })
	w.state.Lock()
	defer w.state.Unlock()
	w.counts(func(s *Stats) { s.Terms++ })
	h.began = w.seq
	if c.p.crashed.Load() {
		return h
	}
	w.log(c.name, "has %v", h)
	at := w.bind(h)
	if at < 0 {
		w.violate("%v was granted by no version of the table that it was shown", h)
		return h
	}
	freed := w.edit
	if c.wrote { // another heir may have freed it since: see checkHandedOver
		freed = max(freed, w.freed[h.row])
	}
	if !h.stands(w.table) && freed > at {
		h.edit, h.editAt = freed, time.Now()
		if c.shown >= freed {
			h.sawEdit = time.Now()
		}
	}
	w.holds = append(w.holds, h)
	w.checkLocked()
	return h
}

// bind finds the row of a lease, and returns the number of the newest version that grants it; -1 if
// none does. What a Table has asked for under a term that is over, it asks for again under the
// next. The caller holds w.state.
func (w *tableWorld) bind(h *tableHold) int {
	for at := h.c.shown; at >= 0; at-- {
		tab := w.history[at]
		for r := range tab.Held() {
			row := rowOf(tab, r)
			bound := slices.ContainsFunc(w.holds, func(other *tableHold) bool {
				return other.row == row && (other.c == h.c || h.c.heir == nil)
			})
			if r.Token == h.token && h.c.has(row.term) &&
				slices.Equal(r.Claims, h.claims) && !bound {
				h.row = row
				return at
			}
		}
	}
	return -1
}

// stands reports whether a version of the table grants the lease.
func (h *tableHold) stands(tab *tables.Table) bool {
	r, ok := find(tab, h.row)
	return ok && r.Token == h.token
}

func find(tab *tables.Table, row tableRow) (tables.Request, bool) {
	n, ok := tab.Find(row.term)
	if !ok {
		return tables.Request{}, false
	}
	return tab.Request(tables.ID{Member: n, Number: row.number})
}

// excused reports whether the lease may be in the way of others. After an edit by hand, that is
// until its Table was shown the edit.
func (h *tableHold) excused() bool {
	p := h.c.p
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	unaware := h.edit > 0 && (h.sawEdit.IsZero() || time.Since(h.sawEdit) < time.Millisecond)
	if was, ok := p.w.restored[h.c.key]; ok && was.TermID == h.row.term.TermID && time.Since(was.at) < 2*p.w.cfg.TTL &&
		h.c.aliveAt.Before(was.at) {
		now := p.w.objects[h.c.key]
		unaware = unaware || now == nil || now.rec.ObjectID == was.ObjectID &&
			(now.rec.Token > was.Token || now.rec.Released())
	}
	return unaware || p.crashed.Load() || time.Now().Before(p.excusedUntil)
}

// returns notes that a function is about to return.
func (c *tableClient) returns(h *tableHold) {
	c.p.w.state.Lock()
	defer c.p.w.state.Unlock()
	h.running = false
}

// released checks a lease whose Release or Do has returned.
func (c *tableClient) released(h *tableHold, err error) {
	w := c.p.w
	halted := c.p.isHalted()
	w.state.Lock()
	defer w.state.Unlock()
	w.log(c.name, "has released token %d: %.160s", h.token, firstLine(err))
	w.holds = slices.DeleteFunc(w.holds, func(other *tableHold) bool { return other == h })
	switch {
	case c.p.crashed.Load():
	case h.lease.Valid():
		w.violate("%v is still valid after it was released", h)
	case err != nil || halted || c.term != h.row.term.TermID || w.edit > h.began || c.p.harmed.Load():
	// such a member ends its term, which frees all that it holds
	case !c.well, !c.barred.IsZero() && time.Since(c.barred) > 2*w.cfg.TTL:
	case h.stands(w.table):
		w.violate("%v still stands in the table after it was released", h)
	}
}

// checkRefusal wants that an acquisition fails for no other reason than those that there are.
func (c *tableClient) checkRefusal(err error) {
	for _, known := range []error{
		leasehold.ErrHeld, locktable.ErrNoTerm, locktable.ErrNotRunning, locktable.ErrNotDetachable,
		context.DeadlineExceeded, context.Canceled,
	} {
		if errors.Is(err, known) {
			return
		}
	}
	c.p.w.violate("%s: an acquisition has failed: %v", c.name, err)
}

// watch checks the leases all the time.
func (w *tableWorld) watch(ctx context.Context) {
	for ctx.Err() == nil {
		time.Sleep(210013 * time.Microsecond)
		w.check()
	}
}

func (w *tableWorld) check() {
	w.state.Lock()
	defer w.state.Unlock()
	w.checkLocked()
}

// Bounds on what those wait for whom nothing keeps from the store, in TTLs.
const (
	// locks stand idle: who cannot free what it has ends its term after 2, steps down within 1, and
	// is seen to be dead after 1
	idle     = 10
	dead     = 6 // a dead member is in the way
	unedited = 8 // an edit by hand is not seen: who only holds reads every 4
)

// checkBusy wants that those who wait get what nobody uses. used has the names that somebody acts
// under. The caller holds w.state.
func (w *tableWorld) checkBusy(used map[string]bool) {
	now := time.Now()
	for name := range used {
		w.usedAt[name] = now
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	well := w.findWell(now)
	if o := w.objects[tableKey]; o == nil || w.readable(o.body) == nil {
		w.damagedAt = now
	}
	waits := make(map[tableRow]time.Time)
	for r := range w.table.Waiting() {
		row := rowOf(w.table, r)
		since, ok := w.waits[row]
		if !ok {
			since = now
		}
		waits[row] = since
		c := well[row.term]
		if c == nil || w.stuck {
			continue
		}
		since = latest(since, c.p.unwellAt, w.damagedAt)
		for _, n := range w.table.InTheWay(r.ID) {
			other, _ := w.table.Member(n)
			if at := w.diedAt(other.Key); !at.IsZero() && min(now.Sub(at), now.Sub(since)) > dead*w.cfg.TTL {
				w.stuck = true
				w.violateLocked("%s has waited for the dead member %s for %d TTLs: %s", c.name, other.Name,
					dead, describe(w.table))
			}
		}
		if last := w.lastUse(r, since); now.Sub(last) > idle*w.cfg.TTL && !w.stuck {
			w.stuck = true
			w.violateLocked("%s waits for %v, and nobody has used that for %d TTLs: %s", c.name, r.Claims,
				idle, describe(w.table))
		}
	}
	w.waits = waits
}

// findWell lists the Tables, by their terms, that nothing keeps from the store. The caller holds
// w.state and w.mu.
func (w *tableWorld) findWell(now time.Time) map[tables.Term]*tableClient {
	well := make(map[tables.Term]*tableClient)
	for _, p := range w.nodes {
		switch {
		case p == nil:
			continue
		case p.halted, p.crashed.Load(), p.clock.isFrozen(), p.cut.Load(), p.outage.Load(), p.denied.Load() != nil:
			p.unwellAt = now
			continue
		}
		for _, c := range p.clients {
			if now.Sub(latest(p.unwellAt, c.aliveAt)) > idle*w.cfg.TTL && !c.idle &&
				(!w.cfg.Twins || p.node >= 2) && !w.copied[c.key] {
				c.idle = true
				w.violateLocked("%s has had no term for %d TTLs, although nothing keeps it from the store",
					c.name, idle)
			}
			for _, m := range w.table.Members() {
				if c.has(m.Term) {
					well[m.Term] = c
				}
			}
		}
	}
	return well
}

// diedAt is when the process crashed whose member has this object; zero if it lives, or if another
// has its name. The caller holds w.mu.
func (w *tableWorld) diedAt(key string) (at time.Time) {
	for _, p := range w.processes {
		if p.owns(key) {
			if !p.crashed.Load() {
				return time.Time{}
			}
			at = latest(at, p.crashedAt)
		}
	}
	return at
}

// lastUse is when a lock was used last of those that a request claims, and of those that anybody
// claims together with them. The caller holds w.state.
func (w *tableWorld) lastUse(r tables.Request, last time.Time) time.Time {
	names := make(map[string]bool)
	for _, c := range r.Claims {
		names[c.Name] = true
	}
	for grew := true; grew; {
		grew = false
		for _, other := range rowsOf(w.table) {
			if slices.ContainsFunc(other.Claims, func(c tables.Claim) bool { return names[c.Name] }) {
				for _, c := range other.Claims {
					grew = grew || !names[c.Name]
					names[c.Name] = true
				}
			}
		}
	}
	for name := range names {
		last = latest(last, w.usedAt[name])
	}
	return last
}

// checkLocked wants that no two valid leases conflict, that the table has each, and that none is
// valid without its member's lease. The caller holds w.state.
func (w *tableWorld) checkLocked() {
	type use struct {
		weight, room int64 // room is the largest that one of them goes by: see tables.Claim
		by           []*tableHold
	}
	uses, used, counted := make(map[string]*use), make(map[string]bool), make(map[tableRow]bool)
	defer func() { w.checkBusy(used) }()
	for _, h := range w.holds {
		valid, excused := h.lease.Valid(), h.excused()
		switch {
		case h.c.p.crashed.Load():
			continue
		case valid && h.over:
			w.violate("%v is valid again", h)
		case valid:
			if age, most := h.c.p.clock.Now().Elapsed(h.c.renewed), w.cfg.TTL-w.cfg.Margin; age >= most {
				w.violate("%v is valid %v after its member was renewed last, not %v at most", h, age, most)
			}
		}
		h.over = h.over || !valid
		if valid || h.running {
			for _, claim := range h.claims {
				used[claim.Name] = true
			}
		}
		w.mu.Lock()
		unwell, resumed := h.c.p.unwellAt, h.c.p.resumedAt
		w.mu.Unlock()
		if valid && h.edit > 0 && h.sawEdit.IsZero() && !w.stuck &&
			min(time.Since(h.editAt), time.Since(unwell), time.Since(w.damagedAt)) > unedited*w.cfg.TTL {
			w.stuck = true
			w.violate("%v was removed by hand %v ago, and its Table has not looked", h, time.Since(h.editAt))
		}
		if valid && !excused && !h.stands(w.table) {
			w.violate("%v is valid, but the table does not have it any more", h)
		}
		// A function may act until its context ends, which is by a timer.
		acts := h.running && h.ctx.Err() == nil && !h.c.p.clock.isFrozen() && time.Since(resumed) > w.cfg.TTL/5*11/10
		if excused || !valid && !acts || h.c.heir != nil && counted[h.row] { // heirs of one handle have one lease
			continue
		}
		counted[h.row] = true
		for _, claim := range h.claims {
			u := uses[claim.Name]
			if u == nil {
				u = &use{}
				uses[claim.Name] = u
			}
			u.weight += weightOf(claim)
			u.room = max(u.room, roomOf(claim))
			u.by = append(u.by, h)
		}
	}
	for name, u := range uses {
		if u.weight > u.room {
			w.violate("%s is held by more than it has room for: %v", name, u.by)
		}
	}
}

// all is the weight of an exclusive claim, and the capacity of a lock that is no semaphore.
const all = 1 << 20

func weightOf(c tables.Claim) int64 {
	switch {
	case c.Of > 0:
		return int64(c.Slots)
	case c.Shared:
		return 1
	}
	return all
}

func roomOf(c tables.Claim) int64 {
	if c.Of > 0 {
		return int64(c.Of)
	}
	return all
}

// checkTableWrite checks a write of the table that was carried out. The caller holds w.state.
func (w *tableWorld) checkTableWrite(c *tableClient, r request) {
	old, now := w.table, w.readable(r.body)
	if now == nil {
		w.violate("%s has written a table that cannot be read: %.200s", c.name, r.body)
		return
	}
	w.seq++
	w.table, w.history = now, append(w.history, now)
	late := ""
	if r.fate.answered.Load() {
		late = "late: "
	}
	w.log(c.name, "%srevision %d: %s", late, now.Revision, describe(now))
	if now.Revision <= old.Revision || now.Revision <= w.maxRevision && (!w.lowered || r.known >= w.maxRevision) {
		w.violate("%s has written revision %d after %d, and knew of %d", c.name, now.Revision, w.maxRevision, r.known)
	}
	if now.Revision > w.maxRevision {
		w.maxRevision, w.lowered = now.Revision, false
	}
	w.checkEvicted(c, old, now)
	w.checkRows(c, old, now)
	w.checkCopies(c, old, now)
	w.checkHandedOver(c, old, now)
	w.checkOrder(c, old, now)
	if r.fate.answered.Load() {
		w.checkLate(c, now)
	}
	for _, h := range w.holds {
		if h.edit == 0 && h.c == c && h.running && !h.c.p.crashed.Load() && h.stands(old) && !h.stands(now) &&
			h.c.term == h.row.term.TermID {
			w.violate("%s has dropped %v while its function runs", c.name, h)
		}
	}
	w.checkLocked()
}

// checkEvicted wants that a member is removed only when its object does not show the term any more,
// or shows it released. The caller holds w.state.
func (w *tableWorld) checkEvicted(c *tableClient, old, now *tables.Table) {
	joined := false
	for _, m := range old.Members() {
		joined = joined || c.has(m.Term)
	}
	for _, m := range old.Members() {
		o := w.objects[m.Key]
		if _, stays := now.Find(m.Term); stays || m.Key == c.key || o == nil || w.edited[m.Key] {
			continue
		}
		if o.rec.ObjectID == m.ObjectID && o.rec.Token <= m.Token && !o.rec.Released() {
			w.violate("%s removes member %s, whose object shows its token %d", c.name, m.Name, o.rec.Token)
		}
		w.markIf(!joined, "evicted without a row")
	}
}

// checkRows wants that whoever writes asks for itself only, and under numbers that it has not used.
// The caller holds w.state.
func (w *tableWorld) checkRows(c *tableClient, old, now *tables.Table) {
	for _, r := range rowsOf(now) {
		row := rowOf(now, r)
		was, stood := find(old, row)
		switch {
		case stood && was.Token != 0 && r.Token != was.Token:
			w.violate("%s has changed the token of %v from %d to %d", c.name, row, was.Token, r.Token)
		case (!stood || was.Token == 0) && r.Token != 0 && r.Token != now.Revision:
			w.violate("%s has granted %v with token %d at revision %d", c.name, row, r.Token, now.Revision)
		case stood:
		case row.term.Key != c.key:
			w.violate("%s has asked for another: %v", c.name, row)
		case c.asked[row]:
			w.violate("%s asks again by number %d, which has stood in the table before", c.name, r.Number)
		default:
			w.asked[row] = tableAsk{c, time.Now()}
		}
	}
}

// rowOf names a request of a table.
func rowOf(tab *tables.Table, r tables.Request) tableRow {
	m, _ := tab.Member(r.Member)
	return tableRow{m.Term, r.Number}
}

// has reports whether a term is the one that the Table has now. The caller holds w.state.
func (c *tableClient) has(term tables.Term) bool { return term.Key == c.key && term.TermID == c.term }

func rowsOf(tab *tables.Table) []tables.Request {
	return slices.AppendSeq(slices.Collect(tab.Held()), tab.Waiting())
}

// checkOrder wants that nobody is granted past another who waits for the same, and that nobody
// waits whom nothing is in the way of. The caller holds w.state.
func (w *tableWorld) checkOrder(c *tableClient, old, now *tables.Table) {
	held := make(map[string]int64)
	granted := make(map[tableRow]tables.Request)
	needs := make(map[tableRow]map[string]int64) // of each grant, with all that hold before it
	for r := range now.Held() {
		need := make(map[string]int64)
		for _, claim := range r.Claims {
			held[claim.Name] += weightOf(claim)
			need[claim.Name] = held[claim.Name]
			if held[claim.Name] > roomOf(claim) {
				w.violate("%s has granted more of %s than there is: %s", c.name, claim.Name, describe(now))
			}
		}
		if r.Token == now.Revision {
			granted[rowOf(now, r)], needs[rowOf(now, r)] = r, need
		}
	}
	ahead := newLine() // those that wait
	for r := range now.Waiting() {
		if !ahead.stops(r, held, true) {
			w.violate("%s lets %v wait for nothing: %s", c.name, r.ID, describe(now))
		}
		ahead.add(r)
	}
	for name, room := range ahead.room {
		if room < all && ahead.most[name] > room {
			w.mark("different numbers of slots in one line")
		}
	}
	before := newLine() // those that waited before and still wait
	passed := func(row tableRow, r tables.Request) {
		if before.stops(r, needs[row], false) {
			w.violate("%s has granted %v past others: %s", c.name, r.ID, describe(now))
		}
	}
	last := 0
	order := make(map[tableRow]int)
	for r := range now.Waiting() {
		order[rowOf(now, r)] = len(order) + 1
	}
	for r := range old.Waiting() {
		row := rowOf(old, r)
		if g, ok := granted[row]; ok {
			passed(row, g)
			delete(granted, row)
		} else if at := order[row]; at > 0 {
			if at < last {
				w.violate("%s has changed the order of those who wait: %s", c.name, describe(now))
			}
			last = at
			before.add(r)
		}
	}
	for row, g := range granted {
		passed(row, g)
	}
}

// tableLine is what waits in front, by lock: how much, and by what numbers of slots.
type tableLine struct{ weight, room, most map[string]int64 }

func newLine() tableLine {
	return tableLine{make(map[string]int64), make(map[string]int64), make(map[string]int64)}
}

func (l tableLine) add(r tables.Request) {
	for _, claim := range r.Claims {
		l.weight[claim.Name] += weightOf(claim)
		l.room[claim.Name] = min(cmp.Or(l.room[claim.Name], all), roomOf(claim))
		l.most[claim.Name] = max(l.most[claim.Name], roomOf(claim))
	}
}

// stops reports whether the line leaves too little of a lock for a request, beside what is held;
// more says that its own claims are not part of that.
func (l tableLine) stops(r tables.Request, held map[string]int64, more bool) bool {
	return slices.ContainsFunc(r.Claims, func(claim tables.Claim) bool {
		need := held[claim.Name] + l.weight[claim.Name]
		if more {
			need += weightOf(claim)
		}
		return need > min(roomOf(claim), cmp.Or(l.room[claim.Name], all))
	})
}

// checkLate wants that a write which was given up does not land when its Table has come to rest.
// The caller holds w.state.
func (w *tableWorld) checkLate(c *tableClient, now *tables.Table) {
	p := c.p
	w.mu.Lock()
	awake := !p.halted && time.Since(p.resumedAt) > time.Second && time.Now().After(p.excusedUntil)
	w.mu.Unlock()
	valid := p.clock.Now().Elapsed(c.renewed) < w.cfg.TTL-w.cfg.Margin // a term that is over sends nothing
	if p.crashed.Load() || p.clock.isFrozen() || !awake || !valid || c.requests > 0 || !c.well ||
		time.Since(c.settled) < time.Second || w.copied[c.key] { // whose term may be over, although it was renewed
		return
	}
	for _, m := range now.Members() {
		if c.has(m.Term) {
			w.violate("a write of %s lands although it was given up, and nothing was sent for %v", c.name,
				time.Since(c.settled))
		}
	}
}

// checkMemberWrite checks a write of a member's object that was carried out. The caller holds
// w.state.
func (w *tableWorld) checkMemberWrite(c *tableClient, r request, old, now leasehold.Record) {
	w.log(c.name, "%s %s: token %d, released %v, term %.4s, object %.4s, by %.20s", r.kind, r.key, now.Token,
		now.Released(), now.TermID,
		now.ObjectID, now.Holder)
	if r.key != c.key || evicts(now) || c.p.crashed.Load() || r.fate.answered.Load() {
		return
	}
	for _, h := range w.holds {
		switch {
		case h.c != c || !h.running:
		case !now.Released() && now.TermID != old.TermID:
			w.violate("%s takes its object anew while the function of %v runs", c.name, h)
		case now.Released() && now.TermID == h.row.term.TermID:
			w.violate("%s releases its object while the function of %v runs", c.name, h)
		}
	}
}

// evicts reports whether a record is of a member's judge, and not of the member.
func evicts(r leasehold.Record) bool { return strings.HasSuffix(r.Holder, " evicts") }

// sends notes a request before it is sent.
func (c *tableClient) sends(r *request, at clock.Reading) {
	w := c.p.w
	w.state.Lock()
	defer w.state.Unlock()
	r.known = c.known
	var rec leasehold.Record
	switch {
	case r.key == tableKey:
		c.requests++
	case r.key == c.key && r.body != nil && rec.UnmarshalJSON(r.body) == nil && !evicts(rec):
		c.sent[rec.Nonce] = at
	}
}

// receives notes what a Table learns from a reply.
func (c *tableClient) receives(r request, at clock.Reading, got reply) {
	w := c.p.w
	w.state.Lock()
	defer w.state.Unlock()
	absent := r.kind == "get" && errors.Is(got.err, leasehold.ErrNotExist)
	good := got.err == nil || absent
	r.fate.answered.Store(true)
	c.checkRequests(good)
	body := r.body
	if r.kind == "get" {
		body = got.obj.Body
	}
	switch r.key {
	case tableKey:
		c.requests--
		c.settled, c.well = time.Now(), good
		switch {
		case r.kind != "get" && good:
			c.barred = time.Time{}
		case r.kind != "get" && c.barred.IsZero():
			c.barred = time.Now()
		}
		tab := w.readable(body)
		if absent {
			tab = tables.New()
		}
		if c.well = good && tab != nil; c.well {
			c.shows(tab, got.seq)
		}
	case c.key:
		var rec leasehold.Record
		if !good || rec.UnmarshalJSON(body) != nil || evicts(rec) {
			return
		}
		sent, own := c.sent[rec.Nonce]
		switch {
		case !own || sent.Mono < c.renewed.Mono: // another's, or an old one that was restored
		case rec.Released():
			c.term = ""
		case rec.TermID != "":
			c.renewed, c.aliveAt, c.term = sent, time.Now(), rec.TermID
		}
	}
}

// shows notes that a Table is shown a version. The caller holds w.state.
func (c *tableClient) shows(tab *tables.Table, seq int) {
	c.known, c.shown = max(c.known, tab.Revision), max(c.shown, seq)
	for _, r := range rowsOf(tab) {
		if row := rowOf(tab, r); row.term.Key == c.key {
			c.asked[row] = true
		}
	}
	for _, h := range c.p.w.holds {
		if h.c == c && h.edit > 0 && c.shown >= h.edit && h.sawEdit.IsZero() {
			h.sawEdit = time.Now()
		}
	}
}

// checkRequests bounds what a Table sends within a TTL.
func (c *tableClient) checkRequests(good bool) {
	w, now := c.p.w, time.Now()
	c.recent = append(c.recent, sent{at: now, failed: !good})
	for now.Sub(c.recent[0].at) > w.cfg.TTL {
		c.recent = c.recent[1:]
	}
	failed := 0
	for _, r := range c.recent {
		if r.failed {
			failed++
		}
	}
	const most = 150
	if n := len(c.recent) - 3*failed; n > most && !c.stormy {
		c.stormy = true
		w.violate("request storm: %s sent %d requests within a TTL, of which %d failed", c.name, len(c.recent), failed)
	}
}

// editTable changes the table by hand; nil deletes it. The caller holds w.state.
func (w *tableWorld) editTable(body []byte) {
	now := w.readable(body)
	if body == nil {
		delete(w.objects, tableKey)
		now = tables.New()
	} else {
		w.put(tableKey, body)
	}
	if now == nil {
		w.log("world", "*** the table is damaged")
		return
	}
	w.seq++
	before := w.table
	w.table, w.history, w.edit = now, append(w.history, now), w.seq
	w.log("world", "*** the table is now revision %d: %s", now.Revision, describe(now))
	w.lowered = w.lowered || now.Revision < w.maxRevision
	w.maxRevision = max(w.maxRevision, now.Revision)
	for _, h := range w.holds {
		if !h.stands(now) && (h.edit == 0 || h.stands(before)) {
			h.edit, h.editAt, h.sawEdit = w.seq, time.Now(), time.Time{}
		}
	}
}

// describe is a table in short.
func describe(tab *tables.Table) string {
	var b strings.Builder
	for n, m := range tab.Members() {
		fmt.Fprintf(&b, "%d=%.8s/%d/%.4s ", n, m.Name, m.Token, m.TermID)
	}
	for r := range tab.Held() {
		fmt.Fprintf(&b, "| %d.%d has %v by %d ", r.Member, r.Number, r.Claims, r.Token)
	}
	for r := range tab.Waiting() {
		fmt.Fprintf(&b, "| %d.%d waits for %v ", r.Member, r.Number, r.Claims)
	}
	return b.String()
}

// live lists the Tables whose processes run. One of each name counts.
func (w *tableWorld) live() []*tableClient {
	w.mu.Lock()
	defer w.mu.Unlock()
	var live []*tableClient
	for _, p := range w.nodes {
		if p == nil || p.halted || p.crashed.Load() {
			continue
		}
		live = append(live, p.clients...)
	}
	return live
}

// patience is how many TTLs after the last fault all must be well. A member looks at each other
// once in 20 TTLs.
const patience = 60

// checkRest wants that after the last fault each member gets each lock, and that nothing of the
// dead and of nobody's will stays.
func (w *tableWorld) checkRest() {
	ended := time.Now()
	for w.isPending() {
		if time.Since(ended) > patience*w.cfg.TTL {
			w.violate("a process has not stopped")
			return
		}
		time.Sleep(w.cfg.TTL / 5)
	}
	w.stopTwins()
	live := w.live()
	for _, c := range live {
		c.p.rest()
	}
	for _, c := range live {
		c.p.workers.Wait()
	}
	w.log("world", "*** nobody works any more")
	watching, stop := context.WithCancel(context.Background())
	defer stop()
	go w.watchHealth(watching, live)
	if took := time.Since(ended); took > 10*w.cfg.TTL {
		w.violate("callers have returned %v after they were to", took)
	}
	w.checkEachGets(live)
	for {
		why := w.unrest(live)
		if why == "" {
			break
		}
		if time.Since(ended) > patience*w.cfg.TTL {
			w.violate("%d TTLs after the last fault: %s", patience, why)
			return
		}
		time.Sleep(w.cfg.TTL / 5)
	}
	w.log("world", "*** all is at rest")
}

// watchHealth wants that all are healthy ten TTLs after the last fault, and stay so.
func (w *tableWorld) watchHealth(ctx context.Context, live []*tableClient) {
	for wait := idle * w.cfg.TTL; ; wait = w.cfg.TTL / 5 {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		for _, c := range live {
			if err := c.tab.Check(nil); err != nil {
				w.violate("%s is not healthy, %d TTLs after the last fault: %v", c.name, idle, err)
				return
			}
		}
	}
}

// stopTwins stops all of one name but one.
func (w *tableWorld) stopTwins() {
	keys := make(map[string]bool)
	for _, c := range w.live() {
		if !keys[c.key] {
			keys[c.key] = true
			continue
		}
		if c.p.isHalted() {
			continue
		}
		w.log(c.name, "*** stops, because it has the name of another")
		c.p.halt()
		c.p.ends(Action{})
	}
}

func (w *tableWorld) isPending() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pending > 0
}

// checkEachGets wants that each Table gets each lock, and that others then get it.
func (w *tableWorld) checkEachGets(live []*tableClient) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), patience*w.cfg.TTL)
	defer cancel()
	var all sync.WaitGroup
	for _, c := range live {
		all.Go(func() {
			for _, l := range w.cfg.Locks {
				claims := []tables.Claim{{Name: l.Name, Of: l.Of, Slots: l.Of}}
				// a refusal may just have ended Run, or a late delete have removed a member's
				// object
				passes := func(err error) bool {
					return errors.Is(err, locktable.ErrNotRunning) || w.cfg.Loose && errors.Is(err, leasehold.ErrLost)
				}
				err, asked := locktable.ErrNotRunning, time.Now()
				for passes(err) && time.Since(asked) < w.cfg.TTL {
					c.do(claims, func(f func(context.Context, *locktable.Lease) error) error {
						err = c.lock(claims...).Do(ctx, f)
						return err
					})
					if passes(err) {
						time.Sleep(w.cfg.TTL / 20)
					}
				}
				if beside(err) != nil {
					w.violate("%s does not get %s within %d TTLs after the last fault: %v", c.name,
						l.Name, patience, err)
					return
				}
				w.mu.Lock()
				w.longest = max(w.longest, time.Since(began))
				w.mu.Unlock()
			}
		})
	}
	all.Wait()
}

// unrest says what is not yet as it should be; "" if all is.
func (w *tableWorld) unrest(live []*tableClient) string {
	for _, c := range live {
		lease, err := c.tab.Lock("probe " + c.name).TryAcquire(context.Background())
		if err != nil {
			return fmt.Sprintf("%s cannot acquire a free lock: %v", c.name, err)
		}
		if err := lease.Release(context.Background()); err != nil {
			return fmt.Sprintf("%s cannot release a lock: %v", c.name, err)
		}
		if err := c.tab.Check(nil); err != nil {
			return fmt.Sprintf("%s is not healthy: %v", c.name, err)
		}
	}
	w.state.Lock()
	defer w.state.Unlock()
	for _, m := range w.table.Members() {
		if !slices.ContainsFunc(live, func(c *tableClient) bool { return c.has(m.Term) }) {
			return fmt.Sprintf("the table has the dead member %s with token %d: %s", m.Name, m.Token, describe(w.table))
		}
	}
	if members, held, waiting := w.table.Counts(); members != len(live) || held+waiting > 0 {
		return fmt.Sprintf("%d members live, and the table has %s", len(live), describe(w.table))
	}
	for _, c := range live {
		if o := w.objects[c.key]; o == nil || o.rec.Released() || evicts(o.rec) {
			return fmt.Sprintf("%s does not hold its own object", c.name)
		}
	}
	return ""
}

// checkNothingLeft wants that those who have stopped leave nothing.
func (w *tableWorld) checkNothingLeft() {
	w.mu.Lock()
	failed := len(w.violations) > 0
	w.mu.Unlock()
	if failed {
		return
	}
	w.state.Lock()
	defer w.state.Unlock()
	if members, held, waiting := w.table.Counts(); members+held+waiting > 0 {
		w.violate("all have stopped, and the table has %s", describe(w.table))
	}
	for key, o := range w.objects {
		excuse := ""
		for _, p := range w.processes { // none starts any more
			for _, c := range p.clients {
				switch {
				case c.key != key:
				case p.crashed.Load() && !w.toRemove[key]:
					excuse = "its process has crashed"
				case p.faulty:
					excuse = "a request that was to remove it may have failed"
				case w.edited[key]:
					excuse = "it was edited by hand"
				case w.copied[key]:
					excuse = "two processes have acted under a term of it, so it was not released"
				case w.cfg.Loose:
					excuse = "the store ignores the condition of a DELETE"
				}
			}
		}
		if key != tableKey && excuse == "" {
			w.violate("all have stopped, and %s is left, with token %d by %.40s, released %v", key, o.rec.Token,
				o.rec.Holder, o.rec.Released())
		}
	}
}
