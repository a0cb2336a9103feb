// Package bell wakes goroutines that wait for a change elsewhere: all of them, or one after the
// other.
package bell

import (
	"math"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/internal/clock"
)

// waiting has the goroutines that wait for each place, in the order in which they came. Its mu is
// locked before the mu of a Bell.
var waiting = struct {
	mu sync.Mutex
	at map[any][]*Waiter
}{at: make(map[any][]*Waiter)}

// Place identifies an object in this process, by its Store value and key.
type Place struct {
	Store any // nil if Go cannot compare the value
	Key   string
}

// PlaceOf returns the place of an object.
func PlaceOf(store any, key string) Place {
	if v := reflect.ValueOf(store); !v.Comparable() || !v.Equal(v) { // as one with a NaN
		return Place{nil, key}
	}
	return Place{store, key}
}

// Bell is rung when there may be something new for the goroutines that wait with it. It is made by
// [New] and is safe for concurrent use.
type Bell struct {
	mu      sync.Mutex
	waiters []*Waiter
	slot    time.Duration // monotonic time of the last slot that a Request has taken
	late    bool          // a Request waits for its slot
}

// New returns a bell.
func New() Bell { return Bell{slot: math.MinInt64} }

// Waiter is one goroutine that waits.
type Waiter struct {
	bell  *Bell
	place any
	queue bool          // it takes turns with the others in line
	rung  chan struct{} // closed by the next ring; nil if it has not listened since the last one. Guarded by bell.mu

	turn  bool // it has a turn that it has not begun to use, because it has not listened since; guarded by waiting.mu
	using bool // it uses a turn
}

// Wait lists the calling goroutine among the waiters for place, which can be compared, until Leave.
// Call it before you look. With queue, the goroutine gets a place in line.
func (b *Bell) Wait(place any, queue bool) *Waiter {
	w := &Waiter{bell: b, place: place, queue: queue}
	waiting.mu.Lock()
	defer waiting.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiters = append(b.waiters, w)
	waiting.at[place] = append(waiting.at[place], w)
	return w
}

// Leave ends the wait. A turn goes to the next in line.
func (w *Waiter) Leave() {
	waiting.mu.Lock()
	defer waiting.mu.Unlock()
	if w.turn || w.using {
		w.passOn()
	}
	w.bell.mu.Lock()
	defer w.bell.mu.Unlock()
	w.bell.waiters = without(w.bell.waiters, w)
	if left := without(waiting.at[w.place], w); len(left) > 0 {
		waiting.at[w.place] = left
	} else {
		delete(waiting.at, w.place)
	}
}

func without(list []*Waiter, w *Waiter) []*Waiter {
	i := slices.Index(list, w)
	return slices.Delete(list, i, i+1)
}

// Listen returns a channel that the next ring closes. Listen before you look, so that no change is
// missed. The look uses the turn that w has, if it has one: call Looked at its end.
func (w *Waiter) Listen() <-chan struct{} {
	waiting.mu.Lock()
	defer waiting.mu.Unlock()
	w.turn, w.using = false, w.turn
	w.bell.mu.Lock()
	defer w.bell.mu.Unlock()
	if w.rung == nil {
		w.rung = make(chan struct{})
	}
	return w.rung
}

// Looked ends a turn, if the look has used one. If there may be something for the others in line,
// the next one has its turn.
func (w *Waiter) Looked(forOthers bool) {
	waiting.mu.Lock()
	defer waiting.mu.Unlock()
	if w.using && forOthers {
		w.passOn()
	}
	w.using = false
}

// passOn gives a turn to the next in line after w. The caller holds waiting.mu.
func (w *Waiter) passOn() {
	line := waiting.at[w.place]
	giveTurn(line[slices.Index(line, w)+1:])
}

// giveTurn gives a turn to the first waiter in line that has none. The caller holds waiting.mu.
func giveTurn(line []*Waiter) {
	for _, w := range line {
		if w.queue && !w.turn && !w.using {
			w.turn = true
			w.bell.mu.Lock()
			defer w.bell.mu.Unlock()
			w.ring()
			return
		}
	}
}

// Free wakes waiters of this process because place may have become free: it gives a turn to the
// first in line, and wakes all waiters that are not in line. It returns the number of waiters.
func Free(place any) int {
	waiting.mu.Lock()
	defer waiting.mu.Unlock()
	all := waiting.at[place]
	giveTurn(all)
	for _, w := range all {
		if !w.queue {
			w.bell.mu.Lock()
			w.ring()
			w.bell.mu.Unlock()
		}
	}
	return len(all)
}

// ring wakes w if it listens. The caller holds w.bell.mu.
func (w *Waiter) ring() {
	if w.rung != nil {
		close(w.rung)
		w.rung = nil
	}
}

// Ring wakes all waiters that listen.
func (b *Bell) Ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ring()
}

func (b *Bell) ring() {
	b.late = false
	for _, w := range b.waiters {
		w.ring()
	}
}

// Queued reports whether a waiter is in line.
func (b *Bell) Queued() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.waiters, func(w *Waiter) bool { return w.queue })
}

// Request rings for a caller that is not trusted. Each ring takes a slot, of which there are n in a
// period. A request may use the unused slots of the last period. If there is none it waits for the
// next one, together with the requests that follow it. If no waiter listens, it does nothing.
func (b *Bell) Request(c clock.Clock, period time.Duration, n int) {
	now := c.Now().Mono
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.late || !slices.ContainsFunc(b.waiters, func(w *Waiter) bool { return w.rung != nil }) {
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
