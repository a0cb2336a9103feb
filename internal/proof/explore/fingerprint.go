package explore

import (
	"fmt"
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
	object := w.object()
	if object != nil {
		tokens = object.rec.Token
	}
	names := make(map[string]int)
	version := func(v *request) {
		n, met := names[v.version]
		if !met {
			n = len(names)
			names[v.version] = n
			b = w.appendWrite(b, v, tokens)
		}
		b = fmt.Append(b, " #", n)
	}
	sent := func(p *request) {
		b = w.appendWrite(b, p, tokens)
		n, met := names[p.ifMatch] // a version that no client knows and the store does not have can never match again
		b = fmt.Append(b, p.kind == "create", met, n)
	}
	b = fmt.Append(b, w.faults, w.crashes, w.suspends, w.abandons, object != nil)
	if object != nil {
		version(object)
		if w.cfg.ReportsAge {
			b = fmt.Append(b, w.now-object.at)
		}
	}
	for _, a := range w.abandoned {
		if w.now < a.until || a.token >= tokens { // else it says nothing about what follows
			b = fmt.Append(b, " abandoned ", int64(a.token-tokens), max(a.until-w.now, 0))
		}
	}
	for _, c := range w.clients {
		b = fmt.Append(b, "\n", c.attempts, len(c.pending) > 0, c.lease != nil)
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
		for _, r := range c.pending {
			if r.writes() {
				sent(r)
			}
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
	return digest(b)
}

// appendWrite describes a write: its token, and its writer if the writer still remembers it.
func (w *world) appendWrite(b []byte, p *request, tokens uint64) []byte {
	b = fmt.Append(b, " token ", int64(p.rec.Token-tokens), p.rec.Released())
	if i := slices.Index(w.machines, p.by); i >= 0 && w.clients[i].attempts == p.attempt {
		b = fmt.Append(b, " by ", i, ".", p.seq)
	}
	return b
}
