package sim

import (
	"bytes"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold"
)

// restorable reports whether somebody may restore old versions of the lock object, as from a
// backup. A candidate can know better only if it has seen a later term, so nobody takes part whose
// memory is not that of its process.
func (c *Config) restorable() bool {
	alone := !c.Foreign && !c.Readers && !c.Wakes && !c.Siblings && !c.Abandons && !c.Handles &&
		!c.Visitors
	return alone && (c.Ages == NoAges || c.Ages == ReportedAges)
}

// drawRestores draws whether somebody does so now and then.
func (c *Config) drawRestores() {
	r := c.rng("restores")
	c.HashETags = c.rng("ETags").IntN(3) > 0
	if r.IntN(3) > 0 || !c.restorable() {
		return
	}
	for range 1 + r.IntN(3) {
		a := c.sometime(r, "restore")
		c.add(a)
		if before := below(r, 4*c.TTL); c.HashETags && a.At > before {
			// a node that sees nothing of what is between
			c.add(Action{At: a.At - before, Node: r.IntN(c.Nodes), Kind: "partition", For: before + below(r, c.TTL/5)})
		}
		if c.HashETags && r.IntN(2) == 0 { // the holder of the version that comes back releases
			c.add(Action{At: a.At + below(r, c.TTL/10), Node: r.IntN(c.Nodes), Kind: "resign"})
		}
	}
}

// restores reports whether somebody does so in this world.
func (c *Config) restores() bool {
	return slices.ContainsFunc(c.Actions, func(a Action) bool { return a.Kind == "restore" })
}

// old is a version that the lock object had.
type old struct {
	body      []byte
	rec       leasehold.Record
	writtenAt time.Time
	step      int64
}

// restore brings back an old version of an earlier term, mostly a release. If the ETag is a hash of
// the body, it may also be one of this term: else such a version would be news to everybody.
func (w *world) restore(a Action) {
	r, s := w.rng("restore", a.At), w.store
	s.mu.Lock()
	defer s.mu.Unlock()
	var older []old
	released := r.IntN(4) > 0
	if w.cfg.HashETags {
		released = r.IntN(2) == 0
	}
	for _, v := range s.history {
		// the release of a term that goes on, because it came back after a Break, is news to
		// everybody
		same := w.cfg.HashETags && v.rec.Token == s.rec.Token && !bytes.Equal(v.body, s.body) && !v.rec.Released()
		if (v.rec.Token < s.rec.Token || same) && v.rec.Released() == released {
			older = append(older, v)
		}
	}
	if !w.cfg.restorable() || !s.exists || len(older) == 0 {
		return
	}
	if known := w.lastRead(older); len(known) > 0 {
		older = known
	}
	v := older[r.IntN(len(older))]
	sameTerm := v.rec.Token == s.rec.Token
	w.mu.Lock()
	w.backedUp, w.tokenErased, w.broken[s.rec.Token] = true, true, true
	w.mu.Unlock()
	w.log("backup", "token %d comes back, in place of %d", v.rec.Token, s.rec.Token)
	s.versions++
	s.previousETag, s.previousToken = s.etag, s.rec.Token
	s.etag = s.etagOf(v.body)
	s.body, s.rec, s.writtenAt, s.restored, s.restoredAt = v.body, v.rec, time.Now(), true, time.Now()
	// A store with versions may show the time of the write. Who knows a later term does not believe
	// it.
	if r.IntN(2) == 0 && !sameTerm {
		s.writtenAt = v.writtenAt
	}
	s.keep()
	w.trace.restores(v, s.etag)
	w.token.Store(s.rec.Token)
	w.etag.Store(s.etag)
	w.foolWhoKnows(s.etag)
}

// lastRead returns those versions that a process which is not their writer has last read, if their
// ETags say which.
func (w *world) lastRead(versions []old) (known []old) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.nodes {
		for _, v := range versions {
			if w.cfg.HashETags && v.rec.Holder != p.identity && p.client.lastRead() == w.store.etagOf(v.body) {
				known = append(known, v)
			}
		}
	}
	return known
}

// foolWhoKnows notes who has last read a version with the ETag of one that has been restored. If it
// reads that again, and soon, the time in which others were in its place is for it one in which it
// was there.
func (w *world) foolWhoKnows(etag string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.processes {
		p.client.mu.Lock()
		p.client.fooled = p.client.lastVersion == etag
		p.client.mu.Unlock()
	}
}

// lastRead is the ETag of the version that the process has last read.
func (c *client) lastRead() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lastVersion
}

// isLate reports whether a request was sent before a version was restored. If it is a write that
// lands, it was meant for the same version when that stood there first. The caller holds store.mu.
func (w *world) isLate(r request) bool { return r.fate != nil && r.fate.at.Before(w.store.restoredAt) }

// excuseFromLateWrite excuses all who hold a term when a late write lands. The caller holds
// store.mu.
func (w *world) excuseFromLateWrite(sender *process, r request) {
	if !w.isLate(r) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.processes {
		if p != sender && p.lease != nil {
			p.excused, p.resumedAt = true, time.Now()
		}
	}
}

// excuseFromRestored excuses those who hold a term with the token or a later one, if a version was
// restored: it has misled p, which knows no such term. So p begins a term, or goes on with one in
// which its clocks stood still. It excuses all if p was shown nothing new. The caller holds w.mu.
func (w *world) excuseFromRestored(p *process, token uint64) {
	p.client.mu.Lock()
	fooled := p.client.fooled || p.client.fooledInto == token
	p.client.mu.Unlock()
	for _, other := range w.processes {
		if w.backedUp && other != p && other.lease != nil && (fooled || !p.client.knowsTerm(other.lease)) {
			other.excused, other.resumedAt = true, time.Now()
		}
	}
}

// begins notes the token of a term that the process begins.
func (c *client) begins(token uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fooled {
		c.fooledInto = token
	}
}

// learns notes the token of a record that the process has read or written.
func (c *client) learns(body []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var rec leasehold.Record
	if bytes.Equal(body, c.learnt) || rec.UnmarshalJSON(body) != nil {
		return
	}
	c.learnt = body
	c.token = max(c.token, rec.Token)
	c.terms[rec.TermID] = rec.Token
}

// doubts reports whether the process waits for a TTL although a term of this token has been
// released: it knows a later token, or two terms of this one.
func (c *client) doubts(token uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, of := range c.terms {
		if of == token {
			n++
		}
	}
	return c.token > token || n > 1
}

// knowsTerm reports whether the process has seen the term of a lease.
func (c *client) knowsTerm(lease *leasehold.Lease) bool {
	id := lease.Record().TermID
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.terms[id] > 0
}

// highest is the highest token that the process has seen.
func (c *client) highest() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.token
}

// knows reports whether the process has seen a term with that token or a later one.
func (c *client) knows(token uint64) bool { return c.highest() >= token }
