package sim

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/tables"
	"github.com/leasehold-go/leasehold/locktable"
)

// handedOver is a member whose handle a process has given away.
type handedOver struct {
	by     *tableClient
	table  int // number of the Table in its process
	handle string
	tables.Handle
	at    time.Time
	until time.Time // until then nobody may evict the member
	heirs int       // processes that have resumed it, or tried
	seq   int       // number of the table's version then
}

// handOverFaults are what happens about a hand-over.
var handOverFaults = []string{
	"copy", "copy", "restore table", "restore table", "crash and restart", "suspend", "partition",
	"deny table's writes", "", "",
}

// drawHandOvers draws whether processes hand their members over to others. Most go on before the
// TTL has passed. About then something else happens as well.
func (c *TableConfig) drawHandOvers() {
	r := c.rng("hand-overs of members")
	if c.Handles = r.IntN(4) == 0; !c.Handles {
		return
	}
	for range 2 + r.IntN(4) {
		a := c.sometime(r, "hand over")
		a.For = below(r, []time.Duration{c.TTL / 10, c.TTL / 2, 3 * c.TTL}[r.IntN(3)])
		c.add(a)
		from, most := a.At, a.For+c.TTL/4
		switch a.Kind = handOverFaults[r.IntN(len(handOverFaults))]; {
		case a.Kind == "copy":
			from, most, a.For = max(a.At-c.TTL, 0), c.TTL, c.TTL+a.For
		case a.Kind == "", a.Kind == "restore table" && !c.Damage:
			continue
		}
		a.At = from + below(r, most)
		c.add(a)
	}
}

// handOver detaches a member of a process, which may not be possible at once. Then the process
// stops, and the next of its node goes on with the member. Some handles are used by another process
// as well.
func (w *tableWorld) handOver(p *tableProcess, a Action) {
	c := p.clients[int(a.For)%len(p.clients)]
	w.expect(1)
	defer w.expect(-1)
	for range 12 {
		if p.isHalted() || w.over() {
			return
		}
		if h := c.detach(p.draw(w.cfg.TTL)); h != nil {
			if p.draw(3) == 0 {
				w.expect(1)
				wait := p.draw(a.For + w.cfg.TTL/2)
				time.AfterFunc(wait, func() { w.alsoResume(h, wait) })
			}
			w.stopAnd(p, a, func() { w.restart(p, false) })
			return
		}
		_ = p.clock.Sleep(p.life, w.cfg.TTL/10)
	}
}

// asksLate asks for a lock by a write that arrives a while after it was given up.
func (c *tableClient) asksLate() {
	c.late.Store(true)
	ctx, cancel := context.WithTimeout(c.p.life, c.p.w.cfg.TTL)
	defer cancel()
	if lease, err := c.tab.Shared("late " + c.name).Acquire(ctx); err == nil {
		_ = lease.Release(c.p.life)
	}
}

// isLate delays the write that was to be late. The network answers nothing.
func (c *tableClient) isLate(r request, f networkFault) networkFault {
	if r.key != tableKey || r.kind == "get" || !c.late.CompareAndSwap(true, false) {
		return f
	}
	return networkFault{
		name: "late by intent", requestDelay: c.p.draw(c.p.w.cfg.TTL / 2), replyDelay: f.replyDelay,
		err: errReset, errAtOnce: true,
	}
}

// detach calls Detach once, and checks what it has done. It returns nil if there is no handle.
func (c *tableClient) detach(patience time.Duration) *handedOver {
	p, w := c.p, c.p.w
	ctx, cancel := context.WithTimeout(p.life, 1+patience)
	defer cancel()
	if !c.detaching.CompareAndSwap(false, true) {
		return nil // another call is under way
	}
	if p.draw(4) == 0 {
		go c.asksLate()
		_ = p.clock.Sleep(p.life, p.draw(w.cfg.TTL/50))
	}
	handle, err := c.tab.Detach(ctx)
	w.log(c.name, "*** has tried to detach its member: %s", firstLine(err))
	if err != nil {
		c.detaching.Store(false)
		w.markIf(errors.Is(err, locktable.ErrNotDetachable), "not detachable")
		if !errors.Is(err, leasehold.ErrLost) {
			c.checkRefusal(err)
		}
		return nil
	}
	h := &handedOver{by: c, table: slices.Index(p.clients, c), handle: handle, at: time.Now()}
	if h.Handle, err = tables.ParseHandle(handle); err != nil {
		w.violate("%s has detached its member, and the handle is none: %v", c.name, err)
		return nil
	}
	w.state.Lock()
	defer w.state.Unlock()
	if p.crashed.Load() {
		return nil // nobody has got the handle
	}
	for _, held := range w.holds {
		switch {
		case held.c != c:
		case held.running:
			w.violate("%s has detached its member while the function of %v runs", c.name, held)
		case held.lease.Valid():
			w.violate("%s has detached its member, and %v is valid", c.name, held)
		}
	}
	for row := range h.Table.Held() {
		if ask := w.asked[tableRow{h.Member.Term, row.Number}]; ask.by != nil && ask.by != c {
			w.violate("%s hands over %v, for which %s has asked", c.name, row.Claims, ask.by.name)
		}
	}
	h.seq = w.seq
	if o := w.objects[c.key]; o != nil && o.rec.TermID == h.Member.TermID {
		h.until = o.writtenAt.Add(time.Duration(float64(w.cfg.TTL) * (1 + w.cfg.Drift) / (1 + w.cfg.RateSpread)))
	}
	c.detached, w.handed = h, append(w.handed, h)
	return h
}

// detached is what a process has handed over; nil if it has not.
func (p *tableProcess) detached() *handedOver {
	if p == nil {
		return nil
	}
	p.w.state.Lock()
	defer p.w.state.Unlock()
	i := slices.IndexFunc(p.clients, func(c *tableClient) bool { return c.detached != nil })
	if i < 0 {
		return nil
	}
	return p.clients[i].detached
}

// resumes makes a Table that goes on with a member.
func (c *tableClient) resumes(h *handedOver) {
	w := c.p.w
	w.state.Lock()
	c.heir = h
	c.known = h.Table.Revision
	if h.heirs++; h.heirs > 1 {
		w.copied[h.Member.Key] = true
	}
	for row := range h.Table.Held() { // no longer another's
		delete(w.asked, tableRow{h.Member.Term, row.Number})
		c.asked[tableRow{h.Member.Term, row.Number}] = true
	}
	w.state.Unlock()
	var err error
	if c.tab, err = locktable.Resume(c.store(), h.handle, c.options()...); err != nil {
		panic(err)
	}
	c.key = h.Member.Key
	c.p.workers.Go(c.goOn)
}

// goOn goes on with the leases of a handle, each for a while.
func (c *tableClient) goOn() {
	p, w := c.p, c.p.w
	leases, err := c.tab.Leases(p.work)
	rows := slices.Collect(c.heir.Table.Held())
	switch {
	case err != nil:
		w.log(c.name, "does not go on with its leases: %s", firstLine(err))
		return
	case len(leases) != len(rows):
		w.violate("%s goes on with %d leases, not with %d", c.name, len(leases), len(rows))
		return
	}
	w.markIf(time.Now().After(c.heir.until), "resumed after the TTL")
	for i, lease := range leases {
		if lease.Token() != rows[i].Token {
			w.violate("%s goes on with token %d, not with %d", c.name, lease.Token(), rows[i].Token)
		}
		if lease.Context().Err() == nil && lease.Valid() {
			w.mark("a member resumed")
			h := c.hold(lease, rows[i].Claims, lease.Context(), false)
			p.workers.Go(func() { c.keep(h) })
		}
	}
}

// notResumed checks why the first Run of a Table from Resume has ended early, and whether it may.
func (c *tableClient) notResumed(err error) {
	p, w, h := c.p, c.p.w, c.heir
	w.state.Lock()
	late := time.Now().After(h.until)
	excused := late || w.copied[c.key] || w.edited[c.key] || w.edit > 0 || w.cfg.Loose || w.cfg.Twins
	w.state.Unlock()
	over := errors.Is(err, leasehold.ErrLost) || errors.Is(err, leasehold.ErrReleased)
	w.markIf(over && late, "resumed too late")
	if !p.harmed.Load() && (!over || !excused) {
		w.violate("%s cannot go on with the member that %s has detached %v ago: %v", c.name, h.by.name,
			time.Since(h.at), err)
	}
	w.mu.Lock()
	isNode := w.nodes[max(p.node, 0)] == p
	w.mu.Unlock()
	if isNode {
		w.stopAnd(p, Action{}, func() { w.restart(p, false) })
	}
}

// alsoResume resumes a member in a process on another machine, beside the one that was to. It acts
// for a while, and crashes or ends.
func (w *tableWorld) alsoResume(h *handedOver, lasts time.Duration) {
	defer w.expect(-1)
	if w.over() {
		return
	}
	name := h.by.name + ".heir"
	p := w.newProcess(name, visitor, w.newClock(visitor, name))
	c := newTableClient(p, name, "")
	c.resumes(h)
	if !w.launch(p, p.beginWork) {
		return
	}
	_ = p.clock.Sleep(p.life, min(lasts+w.cfg.TTL/20, time.Until(w.began.Add(w.cfg.Chaos))))
	p.goes(lasts%3 == 0)
}

// checkHandedOver wants that a member which was detached is left alone until its TTL has passed:
// nothing that its process has sent before lands any more, and nobody else frees what it holds.
// What one of several heirs frees is free. Another need not know that before it looks, once it has
// written itself. The caller holds w.state.
func (w *tableWorld) checkHandedOver(c *tableClient, old, now *tables.Table) {
	if c.detached != nil {
		w.violate("a write of %s lands although its member was detached", c.name)
	}
	c.wrote = true
	for _, h := range w.handed {
		for r := range h.Table.Held() {
			row := tableRow{h.Member.Term, r.Number}
			_, stood := find(old, row)
			if _, stands := find(now, row); !stood || stands {
				continue
			}
			heir, copied := c.heir != nil && c.key == h.Member.Key, w.copied[h.Member.Key]
			excused := heir || copied || w.edit > h.seq || w.edited[h.Member.Key] || w.cfg.Loose
			if !excused && time.Now().Before(h.until) {
				w.violate("%s has freed %v, which %s has handed over", c.name, row, h.by.name)
			}
			if copied {
				w.freed[row] = w.seq
			}
			for _, held := range w.holds {
				if held.row == row && held.c != c && held.edit == 0 && copied && held.c.wrote {
					w.markIf(heir && held.lease.Valid(), "freed by another heir")
					held.edit, held.editAt, held.sawEdit = w.seq, time.Now(), time.Time{}
				}
			}
		}
	}
}
