package sim

import (
	"slices"
	"time"

	"github.com/leasehold-go/leasehold"
)

// restorable reports whether somebody may restore old versions of the lock object, as from a
// backup. A candidate can know better only if it has seen a later term, so nobody takes part whose
// memory is not that of its process.
func (c *Config) restorable() bool {
	alone := !c.Foreign && !c.Readers && !c.Wakes && !c.Siblings && !c.Abandons && !c.Handles
	return alone && (c.Ages == NoAges || c.Ages == ReportedAges)
}

// drawRestores draws whether somebody does so now and then.
func (c *Config) drawRestores() {
	r := c.rng("restores")
	if r.IntN(3) > 0 || !c.restorable() {
		return
	}
	for range 1 + r.IntN(3) {
		at := time.Duration(r.Int64N(int64(c.Chaos * 7 / 10)))
		c.Actions = append(c.Actions, Action{At: at, Node: r.IntN(c.Nodes), Kind: "restore"})
	}
	c.sortActions()
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
}

// restore brings back an old version of an earlier term, mostly a release.
func (w *world) restore(a Action) {
	r, s := w.rng("restore", a.At), w.store
	s.mu.Lock()
	defer s.mu.Unlock()
	var older []old
	released := r.IntN(4) > 0
	for _, v := range s.history {
		if v.rec.Token < s.rec.Token && v.rec.Released() == released {
			older = append(older, v)
		}
	}
	if !w.cfg.restorable() || !s.exists || len(older) == 0 {
		return
	}
	v := older[r.IntN(len(older))]
	w.mu.Lock()
	w.backedUp, w.tokenErased, w.broken[s.rec.Token] = true, true, true
	w.mu.Unlock()
	w.log("backup", "token %d comes back, in place of %d", v.rec.Token, s.rec.Token)
	s.versions++
	s.previousETag, s.previousToken = s.etag, s.rec.Token
	s.etag = etagOf(s.versions)
	s.body, s.rec, s.writtenAt, s.restored = v.body, v.rec, time.Now(), true
	if r.IntN(2) == 0 { // a store with versions may show the time of the write
		s.writtenAt = v.writtenAt
	}
	s.keep()
	w.token.Store(s.rec.Token)
	w.etag.Store(s.etag)
}

// excuseFromRestored excuses those who hold a term with the token or a later one, if a version was
// restored: it has misled p, which knows no such term. So p begins a term, or goes on with one in
// which its clocks stood still. The caller holds w.mu.
func (w *world) excuseFromRestored(p *process, token uint64) {
	for _, other := range w.processes {
		if w.backedUp && other != p && other.lease != nil && other.lease.Token() >= token {
			other.excused, other.resumedAt = true, time.Now()
		}
	}
}

// learns notes the token of a record that the process has read or written.
func (c *client) learns(body []byte) {
	var rec leasehold.Record
	if rec.UnmarshalJSON(body) != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.token = max(c.token, rec.Token)
}

// knows reports whether the process has seen a term with that token or a later one.
func (c *client) knows(token uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.token >= token
}
