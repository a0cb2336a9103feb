package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/tables"
)

// The more frequent kinds are listed twice.
var (
	tableActions = []string{
		"partition", "partition", "suspend", "suspend", "suspend, wall clock set back", "pause",
		"pause, wall clock set right", "step wall clock",
		"crash", "crash and restart", "crash and restart", "stop and start", "stop and run again",
		"stop and run again", "leave", "outage",
		"lossy", "deny table", "deny table", "deny table's writes", "deny own object",
		"deny others' objects", "forged wake-ups",
	}
	tableEdits = []string{
		"remove entry", "remove entry", "remove member", "delete table", "restore table",
		"restore table", "truncate table",
		"delete member's object", "delete member's object", "restore member's object", "break member",
	}
)

func (c *TableConfig) drawTableActions(r *rand.Rand) {
	steady := r.IntN(2) == 0 // no wall clock is stepped, so that wall clocks reveal a pause
	kinds := tableActions
	if c.Damage {
		kinds = slices.Concat(tableActions, tableEdits, tableEdits)
		if c.Named { // whose objects have shown other terms
			kinds = append(kinds, "restore member's object", "restore member's object", "restore member's object")
		}
	}
	for range r.IntN(10) {
		a := c.anything(r, kinds, 3*c.TTL)
		switch {
		case a.Kind == "step wall clock" && steady, a.Kind == "break member": // not covered: see the design
			a.Kind = "partition"
		// after a pause that only the wall clock has shown, no clock would show it
		case a.Kind == "suspend, wall clock set back" && steady:
			a.Kind = "suspend"
		case a.Kind == "pause, wall clock set right" && !steady:
			a.Kind = "pause"
		case strings.HasPrefix(a.Kind, "deny") && c.Chaos > 12*c.TTL: // long ones, too
			a.For = 12*c.TTL + 2*a.For
		}
		c.add(a)
	}
}

// actOnTables does to a node what happens in worlds of tables only.
func (w *tableWorld) actOnTables(p *tableProcess, a Action) {
	switch a.Kind {
	case "lossy":
		p.deny(a, func(_, _ string) bool { return p.draw(2) == 0 }, err503, errReset)
	case "crash":
		if w.mayLeave(p) {
			p.crash()
		}
	case "stop and run again":
		w.stopAnd(p, a, func() {
			if p.detached() != nil {
				w.restart(p, false)
				return
			}
			w.log(p.name, "*** is to run again")
			w.mu.Lock()
			defer w.mu.Unlock()
			w.pending--
			if !w.finished && !p.crashed.Load() {
				p.begin()
			}
		})
	case "leave":
		if w.mayLeave(p) {
			w.stopAnd(p, a, func() { w.expect(-1) })
		}
	case "deny table":
		p.deny(a, func(_, key string) bool { return key == tableKey }, errAccess, err503)
	case "deny table's writes":
		p.deny(a, func(kind, key string) bool { return kind != "get" && key == tableKey }, errAccess, err503)
	case "deny own object":
		p.deny(a, func(_, key string) bool { return p.owns(key) }, errAccess, err503)
	case "deny others' objects":
		p.deny(a, func(_, key string) bool { return key != tableKey && !p.owns(key) }, errAccess, err503)
	case "hand over":
		go w.handOver(p, a)
	case "copy":
		go w.copyMember(p, a)
	default:
		w.damage(p, a)
	}
}

// mayLeave reports whether a process may go for good, because another one stays.
func (w *tableWorld) mayLeave(p *tableProcess) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.leaves = p.leaves || slices.ContainsFunc(w.nodes, func(other *tableProcess) bool {
		return other != p && other != nil && !other.leaves
	})
	return p.leaves
}

// meets implements actor.
func (p *tableProcess) meets(a Action) {
	switch a.Kind {
	case "pause": // no clock shows it
		p.w.excuse(p, a.For+2*p.w.cfg.TTL)
	case "pause, wall clock set right":
		p.w.excuse(p, a.For) // while it stands, it shows the time of before
	}
}

func (p *tableProcess) goesOn(machineState) { p.w.check() }

// excuse lets a process hold what others hold, for a while.
func (w *tableWorld) excuse(p *tableProcess, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.excusedUntil = latest(p.excusedUntil, time.Now().Add(d))
}

// owns reports whether an object is that of a member of this process.
func (p *tableProcess) owns(key string) bool {
	return slices.ContainsFunc(p.clients, func(c *tableClient) bool { return c.key == key })
}

// wake tells the Tables that the object has changed, if the process runs.
func (p *tableProcess) wake() {
	if p.crashed.Load() || p.clock.isFrozen() {
		return
	}
	for _, c := range p.clients {
		c.tab.Wake()
	}
}

// findDead notes the objects of the dead that the table still names.
func (w *tableWorld) findDead() {
	w.state.Lock()
	defer w.state.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.table.Members() {
		o := w.objects[m.Key]
		if o != nil && !w.diedAt(m.Key).IsZero() && o.rec.TermID == m.TermID && !o.rec.Released() && !w.edited[m.Key] {
			w.toRemove[m.Key] = true
		}
	}
}

// damage is what a person does to the objects by hand.
func (w *tableWorld) damage(p *tableProcess, a Action) {
	w.state.Lock()
	defer w.state.Unlock()
	o := w.objects[tableKey]
	good := o != nil && w.readable(o.body) != nil
	member := p.clients[int(a.For)%len(p.clients)].key
	if strings.HasSuffix(a.Kind, "member's object") && a.For%3 > 0 {
		if wanted := w.wanted(); wanted != nil {
			p, member = wanted.p, wanted.key
		}
	}
	switch a.Kind {
	case "remove entry", "remove member":
		if !good {
			return
		}
		tab := w.table.Clone()
		rows := rowsOf(tab)
		if len(rows) == 0 {
			return
		}
		if r := rows[int(a.For)%len(rows)]; a.Kind == "remove entry" {
			tab.Drop(r.ID)
		} else {
			tab.Leave(r.Member)
		}
		tab.Finish(fmt.Sprint("by hand ", w.versions), 0)
		w.editTable(tab.Encode())
	case "delete table":
		w.editTable(nil)
	case "restore table":
		if former := w.former[tableKey]; len(former) > 0 {
			w.editTable(former[len(former)-1-int(a.For)%min(len(former), 30)])
		}
	case "truncate table":
		if good {
			w.editTable(o.body[:len(o.body)*2/3])
			time.AfterFunc(a.For, func() { w.repair(int(a.For)) })
		}
	case "delete member's object":
		w.edited[member] = true
		delete(w.objects, member)
	case "restore member's object":
		if former := w.former[member]; len(former) > 0 && w.objects[member] != nil {
			w.edited[member] = true
			w.restored[member] = restoredObject{time.Now(), w.objects[member].rec}
			w.put(member, w.otherTerm(member, former[len(former)-1-int(a.For)%min(len(former), 10)]))
		}
	}
	if strings.HasSuffix(a.Kind, "member's object") && a.For%2 == 0 { // the member does not see it
		p.cut.Store(true)
		time.AfterFunc(a.For/2, func() { p.cut.Store(false) })
	}
}

// wanted is a Table that holds what another waits for, preferably one whose object has shown
// another term before; nil if there is none. The caller holds w.state.
func (w *tableWorld) wanted() (c *tableClient) {
	for _, h := range w.holds {
		n, ok := w.table.Find(h.row.term)
		if !ok || !w.table.Wanted(tables.ID{Member: n, Number: h.row.number}) || !h.lease.Valid() ||
			w.objects[h.c.key] == nil {
			continue
		}
		if c = h.c; w.otherTerm(c.key, nil) != nil {
			return c
		}
	}
	return c
}

// otherTerm is a former version of a member's object that shows another term than the present one,
// or else the one that is given. The caller holds w.state.
func (w *tableWorld) otherTerm(member string, body []byte) []byte {
	for _, former := range slices.Backward(w.former[member]) {
		var rec leasehold.Record
		if now := w.objects[member].rec; rec.UnmarshalJSON(former) == nil && rec.ObjectID == now.ObjectID &&
			rec.TermID != now.TermID {
			return former
		}
	}
	return body
}

// repair replaces a table that is damaged by a good version from before.
func (w *tableWorld) repair(which int) {
	w.state.Lock()
	defer w.state.Unlock()
	o, former := w.objects[tableKey], w.former[tableKey]
	if o != nil && w.readable(o.body) == nil && len(former) > 0 {
		w.editTable(former[len(former)-1-which%min(len(former), 5)])
	}
}

// readable decodes a table, once for each version; nil if it is none. Nobody changes what it
// returns. The caller holds w.state.
func (w *tableWorld) readable(body []byte) *tables.Table {
	tab, known := w.decoded[string(body)]
	if known {
		return tab
	}
	tab, err := tables.Decode(body)
	if err != nil {
		tab = nil
	}
	if w.decoded == nil || len(w.decoded) > 100 {
		w.decoded = make(map[string]*tables.Table)
	}
	w.decoded[string(body)] = tab
	return tab
}

// put writes an object. The caller holds w.state.
func (w *tableWorld) put(key string, body []byte) *tableObject {
	o := w.objects[key]
	if o == nil {
		o = &tableObject{}
		w.objects[key] = o
	}
	w.versions++
	o.previousETag = o.etag
	o.body, o.etag, o.writtenAt = body, fmt.Sprintf("%q", fmt.Sprint("v", w.versions)), time.Now()
	o.rec = leasehold.Record{}
	if key != tableKey {
		_ = o.rec.UnmarshalJSON(body)
	}
	return o
}

// apply carries out a request at one instant.
func (w *tableWorld) apply(c *tableClient, r request) reply {
	w.state.Lock()
	defer w.state.Unlock()
	got := w.applyLocked(c, r)
	if r.key == tableKey && r.kind != "get" && got.err == nil {
		w.mu.Lock()
		w.notifyLocked()
		w.mu.Unlock()
	}
	return got
}

func (w *tableWorld) applyLocked(c *tableClient, r request) reply {
	o, seq := w.objects[r.key], w.seq
	switch {
	case o == nil && r.kind != "create":
		return reply{err: leasehold.ErrNotExist, seq: seq}
	case r.kind == "get" && r.torn && o.previousETag != "":
		return reply{obj: leasehold.Object{Body: o.body, ETag: o.previousETag}, seq: seq}
	case r.kind == "get":
		return reply{obj: leasehold.Object{Body: o.body, ETag: o.etag}, seq: seq}
	case r.kind == "delete":
		if r.key == tableKey {
			w.violate("%s deletes the table", c.name)
		}
		if r.ifMatch != o.etag && !w.cfg.Loose {
			return reply{err: leasehold.ErrPreconditionFailed, seq: seq}
		}
		w.log(c.name, "deletes %s (token %d, its version: %v)", r.key, o.rec.Token, r.ifMatch == o.etag)
		delete(w.objects, r.key)
		return reply{seq: seq}
	case r.kind == "create" && o != nil, r.kind == "update" && r.ifMatch != o.etag:
		w.markIf(c.detached != nil && r.key == tableKey, "a late write of a detached member")
		return reply{err: leasehold.ErrPreconditionFailed, seq: seq}
	}
	var old leasehold.Record
	if o != nil {
		old = o.rec
		if r.key == tableKey && w.readable(o.body) == nil {
			w.violate("%s overwrites a damaged table", c.name)
		}
	}
	w.counts(func(s *Stats) { s.Writes++ })
	w.former[r.key] = append(w.former[r.key], r.body)
	o = w.put(r.key, r.body)
	if r.key == tableKey {
		w.checkTableWrite(c, r)
		seq = w.seq
	} else {
		w.checkMemberWrite(c, r, old, o.rec)
	}
	return reply{obj: leasehold.Object{ETag: o.etag}, seq: seq}
}

// send sends a request, and returns when the Table has a reply and its machine runs.
func (c *tableClient) send(ctx context.Context, r request) reply {
	p, w := c.p, c.p.w
	p.clock.waitWhileFrozen()
	sentAt := p.clock.Now()
	if obj, remembered, err := c.copy.remembers(c, r.kind, r.key, r.body, sentAt); remembered {
		return reply{obj: obj, err: err}
	}
	r.body, r.fate = c.copy.sent(r.body), &fate{}
	on := w.faultsOn()
	w.mu.Lock()
	f := drawFault(p.rand, &w.cfg.Config, w.cfg.RequestFaults, on && !p.calm)
	r.torn = !p.calm && w.cfg.TornReads && on && p.rand.IntN(10) == 0
	w.stats.Requests++
	w.mu.Unlock()
	if r.kind == "get" {
		f = f.ofRead()
	}
	f, _ = p.befalls(c.isLate(r, f), r.kind, r.key)
	if p.crashed.Load() {
		return reply{err: errReset}
	}
	if f.name != "ok" && w.traced {
		w.log(c.name, "%s %s: %s", r.kind, r.key, f.name)
	}
	c.sends(&r, sentAt)
	w.log(c.name, "sends %s %s", r.kind, r.key)
	got := p.carry(ctx, f, server{
		apply: func() reply { return w.apply(c, r) },
		again: func() {
			again := r.again()
			again.fate.answered.Store(true)
			w.apply(c, again)
		},
	})
	c.receives(r, sentAt, got)
	got.obj.Body = c.copy.shown(got.obj.Body)
	return got
}
