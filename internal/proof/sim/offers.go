package sim

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/handle"
	"github.com/leasehold-go/leasehold/internal/handover"
)

var (
	offer = handover.Offer.(func(*leasehold.Lock, handover.Note) bool)
	heir  = handover.Heir.(func(*leasehold.Lock, handover.PassOn))
)

// offers are the versions that their holders have offered. The world's mutex guards the maps.
type offers struct {
	offered  map[string]*process // who has offered a term, by its ID
	versions map[string]bool     // that were offered, by ETag
}

// drawOffers draws whether holders offer the lock before they release it. Then they resign more
// often, and peers forge notes.
func (c *Config) drawOffers() {
	r := c.rng("offers")
	if c.Offers = r.IntN(5) == 0; !c.Offers {
		return
	}
	for range 6 {
		a := c.sometime(r, "")
		a.Kind, a.For = []string{"resign", "resign", "forged offers"}[r.IntN(3)], time.Second
		c.add(a)
	}
}

// passOn is the heir of the locks of p. It sends the note to some processes: lost, late, repeated,
// altered, or to two. Mostly it waits then, and looks whether the lock was taken.
func (p *process) passOn(ctx context.Context, token uint64, n handover.Note) (sent, taken bool) {
	w := p.w
	if p.crashed.Load() {
		return false, false
	}
	var rec leasehold.Record
	if err := rec.UnmarshalJSON(n.Record); err != nil {
		w.violate("%s: the note has no record: %v", p.name, err)
	}
	w.trace.offers(p, rec)
	w.mu.Lock()
	w.offered[rec.TermID], w.versions[n.ETag] = p, true
	looks := w.messages.IntN(6) > 0
	wait := below(w.messages, handover.Patience(w.cfg.TTL))
	for range 1 + w.messages.IntN(2) {
		w.sendNoteLocked(w.nodes[w.messages.IntN(len(w.nodes))], n)
	}
	w.mu.Unlock()
	if !looks || p.clock.Sleep(ctx, wait) != nil {
		return true, false
	}
	now, err := p.lock.Inspect(ctx)
	return true, err == nil && now.Token > token
}

// sendNoteLocked sends a note to a process, which may not have started. The caller holds w.mu.
func (w *world) sendNoteLocked(to *process, n handover.Note) {
	if to == nil {
		return
	}
	delay := time.Duration(1+w.messages.Int64N(100)) * time.Millisecond
	late := below(w.messages, 2*w.cfg.TTL)
	altered := n
	switch w.messages.IntN(8) {
	case 0: // lost
		return
	case 1:
		delay = late
	case 2:
		time.AfterFunc(late, func() { to.hears(n) })
	case 3:
		altered.ETag, _ = w.etag.Load().(string)
	case 4:
		altered.Signature = nil
	}
	time.AfterFunc(delay, func() { to.hears(altered) })
}

// hears gives a note to a process, if it runs.
func (p *process) hears(n handover.Note) {
	if !p.crashed.Load() && !p.clock.isFrozen() {
		p.w.markIf(offer(p.lock, n), "an offer heard")
	}
}

// forgeOffers sends a process notes for the version that is in the store, signed by whoever may
// read the lock.
func (w *world) forgeOffers(p *process) {
	for range 20 {
		time.Sleep(700 * time.Millisecond)
		w.store.mu.Lock()
		etag, body := w.store.etag, w.store.body
		w.store.mu.Unlock()
		if etag == "" {
			continue
		}
		n := handover.Sign(lockKey, handle.Handle{Token: 1, Secret: rand.Text()}, etag, body)
		p.hears(n)
		n.Key = make([]byte, len(n.Key))
		p.hears(n)
	}
}

// wasOffered notes that a version of a term was replaced whose holder has offered it: that is its
// release. The caller holds w.mu.
func (w *world) wasOffered(old, now leasehold.Record) bool {
	by := w.offered[old.TermID]
	if by == nil || now.Token != old.Token+1 || old.Released() {
		return false
	}
	w.mark("an offer taken")
	w.checkRelease(by, old.Token)
	return true
}
