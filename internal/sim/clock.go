package sim

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/internal/clock"
)

// frozen says what of a machine stands still.
type frozen uint8

const (
	running   frozen = iota
	suspended        // nothing runs and the monotonic clock stands still; the wall clock and BOOTTIME go on
	paused           // nothing runs and no clock moves: a paused virtual machine
)

// nodeClock is the clock of one machine: it drifts, is stepped, and freezes with the machine. While it is frozen no timer
// fires and gate holds up whoever would run.
type nodeClock struct {
	rate float64    // seconds of this clock per second of true time
	rand *rand.Rand // for jitter

	mu     sync.Mutex
	state  frozen
	at     time.Time     // true time of base
	base   clock.Reading // what the clocks read then
	asleep []*nodeTimer  // timers that came due while frozen
	thawed chan struct{} // closed at the next thaw
	queue  int           // waiters at the gate, who leave one by one
}

func newNodeClock(rate float64, wall time.Duration, r *rand.Rand) *nodeClock {
	return &nodeClock{rate: rate, rand: r, at: time.Now(), base: clock.Reading{Wall: time.Duration(time.Now().UnixNano()) + wall}, thawed: make(chan struct{})}
}

// Now implements clock.Clock.
func (c *nodeClock) Now() clock.Reading {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now()
}

func (c *nodeClock) now() clock.Reading {
	d := time.Duration(float64(time.Since(c.at)) * c.rate)
	r := c.base
	switch c.state {
	case running:
		r.Mono += d
		fallthrough
	case suspended:
		r.Wall += d
		r.Boot += d
	}
	return r
}

// Rand implements clock.Clock.
func (c *nodeClock) Rand() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rand.Float64()
}

// step moves the wall clock.
func (c *nodeClock) step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.base.Wall += d
}

func (c *nodeClock) freeze(how frozen) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.base, c.at, c.state = c.now(), time.Now(), how
}

// thaw lets timers and waiters go on, one after the other at instants of their own, so that a run is reproducible.
func (c *nodeClock) thaw() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == running {
		return
	}
	c.base, c.at, c.state = c.now(), time.Now(), running
	for i, t := range c.asleep {
		time.AfterFunc(time.Duration(i+1)*time.Microsecond, t.fire)
	}
	c.asleep, c.queue = nil, 0
	close(c.thawed)
	c.thawed = make(chan struct{})
}

func (c *nodeClock) isFrozen() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state != running
}

// gate returns when the machine runs.
func (c *nodeClock) gate() {
	for {
		c.mu.Lock()
		if c.state == running {
			c.mu.Unlock()
			return
		}
		thawed := c.thawed
		c.queue++
		turn := time.Duration(c.queue) * 1103 * time.Nanosecond
		c.mu.Unlock()
		<-thawed
		time.Sleep(turn)
	}
}

// Sleep implements clock.Clock.
func (c *nodeClock) Sleep(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	done := make(chan struct{})
	t := c.AfterFunc(d, func() { close(done) })
	defer t.Stop()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		c.gate()
		return ctx.Err()
	}
}

// nodeTimer fires when the machine's monotonic clock says so.
type nodeTimer struct {
	c      *nodeClock
	f      func()
	target time.Duration // guarded by c.mu, as is armed
	armed  bool
	t      *time.Timer
}

// AfterFunc implements clock.Clock.
func (c *nodeClock) AfterFunc(d time.Duration, f func()) clock.Timer {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &nodeTimer{c: c, f: f, target: c.now().Mono + d, armed: true}
	t.t = time.AfterFunc(c.trueTime(d), t.fire)
	return t
}

// trueTime is how long d of this clock takes, rounded up.
func (c *nodeClock) trueTime(d time.Duration) time.Duration {
	return max(time.Duration(float64(d)/c.rate)+1, 0)
}

func (t *nodeTimer) fire() {
	t.c.mu.Lock()
	switch left := t.target - t.c.now().Mono; {
	case !t.armed:
	case t.c.state != running:
		t.c.asleep = append(t.c.asleep, t)
	case left > 0:
		t.t.Reset(t.c.trueTime(left))
	default:
		t.armed = false
		t.c.mu.Unlock()
		t.f()
		return
	}
	t.c.mu.Unlock()
}

func (t *nodeTimer) Stop() bool {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	was := t.armed
	t.armed = false
	t.t.Stop()
	return was
}

func (t *nodeTimer) Reset(d time.Duration) bool {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	was := t.armed
	t.target, t.armed = t.c.now().Mono+d, true
	t.t.Reset(t.c.trueTime(d))
	return was
}
