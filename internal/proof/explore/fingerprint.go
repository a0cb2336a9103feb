package explore

import (
	"fmt"
	"hash/fnv"
	"slices"
)

// fingerprint is equal for two states only if the same futures follow from both, because a client
// is a function of its history. Times are relative to now, and versions are numbered in the order
// in which this function meets them.
func (w *world) fingerprint() [16]byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	var b []byte
	tokens := uint64(0) // tokens are relative to the last one
	if w.object != nil {
		tokens = w.object.rec.Token
	}
	names := make(map[string]int)
	version := func(v *write) {
		n, met := names[v.etag]
		if !met {
			n = len(names)
			names[v.etag] = n
			b = w.appendWrite(b, v, tokens)
		}
		b = fmt.Append(b, " #", n)
	}
	sent := func(p *write) {
		b = w.appendWrite(b, p, tokens)
		n, met := names[p.ifMatch] // a version that no client knows and the store does not have can never match again
		b = fmt.Append(b, p.create, met, n)
	}
	b = fmt.Append(b, w.faults, w.crashes, w.suspends, w.abandons, w.object != nil)
	if w.object != nil {
		version(w.object)
		if w.cfg.ReportsAge {
			b = fmt.Append(b, w.now-w.writtenAt)
		}
	}
	for _, a := range w.abandoned {
		if w.now < a.until || a.token >= tokens { // else it says nothing about what follows
			b = fmt.Append(b, " abandoned ", int64(a.token-tokens), max(a.until-w.now, 0))
		}
	}
	for _, c := range w.clients {
		b = fmt.Append(b, "\n", c.attempts, c.pending != nil, c.lease != nil)
		for _, e := range c.history {
			b = fmt.Append(b, " ", w.now-e.at, e.what)
			if e.of != nil {
				version(e.of)
			}
		}
		for _, t := range c.timers {
			b = fmt.Append(b, " timer ", t.due-c.reading().Mono)
		}
	}
	for _, c := range w.clients {
		if c.pending != nil && c.pending.put != nil {
			sent(c.pending.put)
		}
	}
	for _, g := range w.ghosts {
		sent(g)
	}
	b = fmt.Append(b, w.offers)
	for _, n := range w.notes {
		v, met := names[n.ETag]
		b = fmt.Append(b, " note ", int64(n.token-tokens), met, v, slices.Index(w.clients, n.by))
	}
	h := fnv.New128a()
	_, _ = h.Write(b)
	return [16]byte(h.Sum(nil))
}

// appendWrite describes a write: its token, and its writer if the writer still remembers it.
func (w *world) appendWrite(b []byte, p *write, tokens uint64) []byte {
	b = fmt.Append(b, " token ", int64(p.rec.Token-tokens), p.rec.Released())
	if i := slices.Index(w.clients, p.by); i >= 0 && p.by.attempts == p.attempt {
		b = fmt.Append(b, " by ", i, ".", p.seq)
	}
	return b
}
