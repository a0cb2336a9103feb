package explore

import (
	"context"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/handover"
)

// note is on the network until it reaches somebody, at any time. Notes that arrive twice are in the
// simulation.
type note struct {
	handover.Note
	by    *client
	token uint64
}

// poll is the poll interval. Where clients wait in line it is long, so that only the end of a lease
// and notes wake them.
func (c Config) poll() time.Duration {
	if c.Offers > 0 {
		return 2 * ttl
	}
	return ttl / 5
}

// offers makes a lock send a note before each release, and then look whether it was taken.
func (c *client) offers(lock *leasehold.Lock) {
	c.w.mu.Lock()
	c.lock = lock
	c.w.mu.Unlock()
	if c.w.cfg.Offers == 0 {
		return
	}
	handover.Heir.(func(*leasehold.Lock, handover.PassOn))(lock, func(ctx context.Context, token uint64,
		n handover.Note) (sent, taken bool) {
		c.w.mu.Lock()
		if !c.dead {
			c.note("offers", nil)
			c.w.notes = append(c.w.notes, note{n, c, token})
		}
		c.w.mu.Unlock()
		rec, err := lock.Inspect(ctx)
		return true, err == nil && rec.Token > token
	})
}

// arrivals are the choices of a note that reaches another client. The caller holds w.mu.
func (w *world) arrivals() (list []choice) {
	if w.offers >= w.cfg.Offers {
		return nil
	}
	for i, n := range w.notes {
		for _, c := range w.clients {
			if c == n.by || c.lease != nil || c.lock == nil {
				continue
			}
			list = append(list, choice{"a note of " + n.by.name + " reaches " + c.name, func() {
				w.mu.Lock()
				w.offers++
				w.notes = slices.Delete(slices.Clone(w.notes), i, i+1)
				c.note("hears", nil)
				w.mu.Unlock()
				handover.Offer.(func(*leasehold.Lock, handover.Note) bool)(c.lock, n.Note)
			}})
		}
	}
	return list
}
