// Package bell wakes goroutines that wait for a change elsewhere.
package bell

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/internal/clock"
)

// waiting has the bells of goroutines that wait, by what they wait for.
var waiting = struct {
	mu    sync.Mutex
	bells map[any][]*Bell
}{bells: make(map[any][]*Bell)}

// RingAll rings the bells of all goroutines of this process that wait for place, which can be compared, and returns their number.
func RingAll(place any) int {
	waiting.mu.Lock()
	defer waiting.mu.Unlock()
	for _, b := range waiting.bells[place] {
		b.Ring()
	}
	return len(waiting.bells[place])
}

// Bell is rung when there may be something new. It is made by [New] and is safe for concurrent use.
type Bell struct {
	mu   sync.Mutex
	rung chan struct{} // closed by the next ring; nil if nobody has listened since the last one
	slot time.Duration // monotonic time of the last slot that a Request has taken
	late bool          // a Request waits for its slot
}

// New returns a bell.
func New() Bell { return Bell{slot: math.MinInt64} }

// Listen returns a channel that the next ring closes. Listen before you look, so that no change is missed.
func (b *Bell) Listen() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rung == nil {
		b.rung = make(chan struct{})
	}
	return b.rung
}

// Wait lists the bell for RingAll, for one goroutine that waits, until the result is called. Call it before you look.
func (b *Bell) Wait(place any) (done func()) {
	waiting.mu.Lock()
	defer waiting.mu.Unlock()
	waiting.bells[place] = append(waiting.bells[place], b)
	return func() {
		waiting.mu.Lock()
		defer waiting.mu.Unlock()
		left := waiting.bells[place]
		i := slices.Index(left, b)
		if left = slices.Delete(left, i, i+1); len(left) > 0 {
			waiting.bells[place] = left
		} else {
			delete(waiting.bells, place)
		}
	}
}

// Ring wakes all who listen.
func (b *Bell) Ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ring()
}

func (b *Bell) ring() {
	b.late = false
	if b.rung != nil {
		close(b.rung)
		b.rung = nil
	}
}

// Request rings for a caller that is not trusted. Each ring takes a slot, of which there are n in a period. A request may use the
// slots of the last period that nobody has used. If there is none it waits for the next one, together with those that follow it.
// If nobody listens, it does nothing.
func (b *Bell) Request(c clock.Clock, period time.Duration, n int) {
	now := c.Now().Mono
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rung == nil || b.late {
		return
	}
	b.slot = max(b.slot, now-period) + period/time.Duration(n)
	if b.slot <= now {
		b.ring()
		return
	}
	b.late = true
	c.AfterFunc(b.slot-now, b.Ring)
}
