package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/tables"
)

// drawMemberCopies lets machines be cloned in a tenth of the worlds.
func (c *TableConfig) drawMemberCopies() {
	r := c.rng("copies of members")
	if r.IntN(10) > 0 {
		return
	}
	for range 1 + r.IntN(4) {
		a := c.sometime(r, "copy")
		a.For = below(r, 5*c.TTL)
		c.add(a)
	}
}

// memberCopy is what a process on a copy of a machine knows of the term that its member has. The
// snapshot was made when the term was last renewed, and it is started later, with the wall clock
// set right. A process cannot be cloned in here. So the copy acquires the term by answers that its
// own connection makes up, and what it draws for it stands for what the store has. It has asked for
// nothing yet: what was held when the copy was made would be held by both.
type memberCopy struct {
	of                 *tableClient
	at                 clock.Reading // of the last renewal, by the clock of the machine that was copied
	rec                leasehold.Record
	etag               string
	acquired, joined   bool // guarded by the world's state
	toStore, fromStore *strings.Replacer
}

// copyMember starts a copy of a machine as soon as nothing is under way that the copy would know
// of, and ends it a while later.
func (w *tableWorld) copyMember(p *tableProcess, a Action) {
	of := p.clients[int(a.For)%len(p.clients)]
	for range 20 {
		w.state.Lock()
		m := w.snapshot(of)
		w.state.Unlock()
		if m != nil {
			w.startCopy(m, a)
			return
		}
		time.Sleep(w.cfg.TTL / 20)
	}
}

// snapshot is what a copy of a member would know now; nil if one of its renewals is under way, or
// if the outcome of one is not known. The caller holds w.state.
func (w *tableWorld) snapshot(of *tableClient) *memberCopy {
	o, p := w.objects[of.key], of.p
	if o == nil || o.rec.Released() || o.rec.TermID != of.term || of.sent[o.rec.Nonce] != of.renewed ||
		of.copy != nil || p.crashed.Load() || p.clock.isFrozen() || p.isHalted() || w.over() {
		return nil
	}
	for _, s := range of.sent {
		if s.Mono > of.renewed.Mono {
			return nil
		}
	}
	_, joined := w.table.Find(tables.Term{Key: of.key, ObjectID: o.rec.ObjectID, TermID: of.term, Token: o.rec.Token})
	if !joined || p.clock.Now().Elapsed(of.renewed) > w.cfg.TTL/2 {
		return nil
	}
	return &memberCopy{of: of, at: of.renewed, rec: o.rec, etag: o.etag}
}

// startCopy starts a process on a copy of a machine, and ends it while there are faults.
func (w *tableWorld) startCopy(m *memberCopy, a Action) {
	p := m.of.p
	w.mu.Lock()
	name, excused := fmt.Sprintf("%s.copy%d", m.of.name, len(w.processes)), p.excusedUntil
	w.mu.Unlock()
	k := newNodeClock(p.clock.rate, 0, w.cfg.rng("jitter", name))
	k.base = p.clock.Now()
	k.base.Wall -= k.base.Elapsed(m.at)
	q := w.newProcess(name, p.node, k)
	q.excusedUntil = excused
	c := newTableClient(q, name, m.of.tab.MemberName())
	c.copy = m
	w.launch(q, func() {
		w.pending++
		q.beginWork()
		time.AfterFunc(min(a.For, time.Until(w.began.Add(w.cfg.Chaos))), func() {
			q.goes(a.For%2 == 0)
			w.expect(-1)
		})
	})
}

// remembers answers the first requests of a copy from the snapshot: the member's term is acquired
// as it was last renewed, and the table is not there, so that the copy tries to join it, and knows
// that it has. All others go to the store.
func (m *memberCopy) remembers(c *tableClient, kind, key string, body []byte,
	at clock.Reading) (obj leasehold.Object, remembered bool, err error) {
	if m == nil {
		return obj, false, nil
	}
	w := c.p.w
	w.state.Lock()
	defer w.state.Unlock()
	switch {
	case key == tableKey && !m.joined:
		m.joined = true
		return obj, true, leasehold.ErrNotExist
	case key != c.key || m.acquired:
		return obj, false, nil
	case kind == "get" && m.rec.Token == 1:
		return obj, true, leasehold.ErrNotExist
	case kind == "get":
		before := m.rec
		before.Token, before.TermID, before.ExpiresAt = m.rec.Token-1, "before", time.Time{}
		obj.Body, err = before.MarshalJSON()
		obj.ETag = `"before"`
		return obj, true, err
	}
	m.acquires(c, body, at)
	return leasehold.Object{ETag: m.etag}, true, nil
}

// acquires lets a copy have the term, by a record that it would write. The caller holds w.state.
func (m *memberCopy) acquires(c *tableClient, body []byte, at clock.Reading) {
	w := c.p.w
	var own leasehold.Record
	if err := own.UnmarshalJSON(body); err != nil || own.Token != m.rec.Token {
		panic(fmt.Sprintf("%s does not take over its term with token %d: %s", c.name, m.rec.Token, body))
	}
	m.toStore = strings.NewReplacer(own.ObjectID, m.rec.ObjectID, own.TermID, m.rec.TermID, own.Nonce, m.rec.Nonce)
	m.fromStore = strings.NewReplacer(m.rec.ObjectID, own.ObjectID, m.rec.TermID, own.TermID, m.rec.Nonce, own.Nonce)
	m.acquired, w.copied[c.key] = true, true
	age := m.of.p.clock.Now().Elapsed(m.at)
	w.log(c.name, "*** is a copy of %s, which has renewed %v ago", m.of.name, age)
	c.term, c.aliveAt, c.renewed = m.rec.TermID, time.Now(), at
	c.sent[m.rec.Nonce] = c.renewed
	w.mu.Lock()
	c.p.resumedAt = time.Now()
	w.mu.Unlock()
	c.p.clock.step(age)
}

// sent is a body that a copy writes, as the store gets it.
func (m *memberCopy) sent(body []byte) []byte {
	if m == nil || body == nil || m.toStore == nil {
		return body
	}
	return []byte(m.toStore.Replace(string(body)))
}

// shown is a body that a copy reads, as the store has it.
func (m *memberCopy) shown(body []byte) []byte {
	if m == nil || body == nil || m.fromStore == nil {
		return body
	}
	return []byte(m.fromStore.Replace(string(body)))
}

// tableAsk is who has asked for a row, and when.
type tableAsk struct {
	by *tableClient
	at time.Time
}

// checkCopies wants a member to leave what another process has asked for under its term: for two
// TTLs after it can have seen that, unless somebody has brought back an older table. The caller
// holds w.state.
func (w *tableWorld) checkCopies(c *tableClient, old, now *tables.Table) {
	if !w.copied[c.key] {
		return
	}
	for _, r := range rowsOf(old) {
		row := rowOf(old, r)
		ask := w.asked[row]
		if !c.has(row.term) || ask.by == nil || ask.by == c {
			continue
		}
		_, stays := find(now, row)
		age := time.Since(ask.at)
		w.markIf(stays, "a copy's row was left alone")
		w.markIf(!stays, "a copy's row was dropped in the end")
		if least := time.Duration(float64(2*w.cfg.TTL) / (1 + w.cfg.RateSpread)); !stays && age < least && w.edit == 0 {
			w.violate("%s has dropped %v, for which its copy %s has asked %v before", c.name, row, ask.by.name, age)
		}
	}
}
