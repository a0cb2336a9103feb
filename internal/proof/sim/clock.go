package sim

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/internal/clock"
)

// machineState says whether a machine runs, and if not, which clocks go on.
type machineState uint8

const (
	running   machineState = iota
	suspended              // nothing runs and the monotonic clock stands still; the wall clock and BOOTTIME go on
	paused                 // nothing runs and no clock moves: a paused virtual machine
)

// nodeClock is the clock of one machine. It drifts, is stepped, and freezes with the machine. While
// it is frozen, no timer fires and waitWhileFrozen blocks.
type nodeClock struct {
	rate  float64       // seconds of this clock per second of true time
	rand  *rand.Rand    // for jitter
	skew  time.Duration // of the wall clock at first
	tamed bool          // a time daemon keeps it so
	// how many processes of this machine have ended
	generation int

	mu      sync.Mutex
	state   machineState
	base    clock.Reading // what the clocks read at baseAt
	baseAt  time.Time     // in true time
	due     []*nodeTimer  // timers that came due while frozen
	thawed  chan struct{} // closed at the next thaw
	waiters int           // in waitWhileFrozen
}

func newNodeClock(rate float64, wall time.Duration, r *rand.Rand) *nodeClock {
	return &nodeClock{
		rate:   rate,
		rand:   r,
		skew:   wall,
		baseAt: time.Now(),
		base:   clock.Reading{Wall: time.Duration(time.Now().UnixNano()) + wall},
		thawed: make(chan struct{}),
	}
}

// next is the clock of the machine for the process that follows.
func (c *nodeClock) next(cfg *Config, node int) *nodeClock {
	k := newNodeClock(c.rate, 0, cfg.rng("jitter", node, c.generation+1))
	k.base, k.skew, k.tamed, k.generation = c.Now(), c.skew, c.tamed, c.generation+1
	return k
}

// Now implements clock.Clock.
func (c *nodeClock) Now() clock.Reading {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now()
}

func (c *nodeClock) now() clock.Reading {
	d := time.Duration(float64(time.Since(c.baseAt)) * c.rate)
	r := c.base
	switch c.state {
	case running:
		r.Mono += d
		fallthrough
	case suspended:
		r.Wall += d
		r.Boot += d
	}
	if c.tamed {
		r.Wall = time.Duration(time.Now().UnixNano()) + c.skew
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

func (c *nodeClock) freeze(state machineState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.base, c.baseAt, c.state = c.now(), time.Now(), state
}

// thaw resumes timers and waiters, each at an instant of its own, so that a run is reproducible.
func (c *nodeClock) thaw() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == running {
		return
	}
	c.base, c.baseAt, c.state = c.now(), time.Now(), running
	for i, t := range c.due {
		time.AfterFunc(time.Duration(i+1)*time.Microsecond, t.fire)
	}
	c.due, c.waiters = nil, 0
	close(c.thawed)
	c.thawed = make(chan struct{})
}

func (c *nodeClock) isFrozen() bool { return c.current() != running }

func (c *nodeClock) current() machineState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// waitWhileFrozen returns when the machine runs.
func (c *nodeClock) waitWhileFrozen() {
	for {
		c.mu.Lock()
		if c.state == running {
			c.mu.Unlock()
			return
		}
		thawed := c.thawed
		c.waiters++
		turn := time.Duration(c.waiters) * 1103 * time.Nanosecond
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
		c.waitWhileFrozen()
		return ctx.Err()
	}
}

// nodeTimer fires by its machine's monotonic clock.
type nodeTimer struct {
	c *nodeClock
	f func()

	// Guarded by c.mu.
	timer *time.Timer   // in true time
	at    time.Duration // monotonic time at which it fires
	armed bool
}

// AfterFunc implements clock.Clock.
func (c *nodeClock) AfterFunc(d time.Duration, f func()) clock.Timer {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &nodeTimer{c: c, f: f, at: c.now().Mono + d, armed: true}
	t.timer = time.AfterFunc(c.trueTime(d), t.fire)
	return t
}

// trueTime is the true duration of d on this clock, rounded up.
func (c *nodeClock) trueTime(d time.Duration) time.Duration {
	return max(time.Duration(float64(d)/c.rate)+1, 0)
}

func (t *nodeTimer) fire() {
	t.c.mu.Lock()
	switch left := t.at - t.c.now().Mono; {
	case !t.armed:
	case t.c.state != running:
		t.c.due = append(t.c.due, t)
	case left > 0:
		t.timer.Reset(t.c.trueTime(left))
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
	t.timer.Stop()
	return was
}

func (t *nodeTimer) Reset(d time.Duration) bool {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	was := t.armed
	t.at, t.armed = t.c.now().Mono+d, true
	t.timer.Reset(t.c.trueTime(d))
	return was
}
