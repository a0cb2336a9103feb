package explore

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/internal/clock"
)

// reading is what the client's clocks show. The caller holds w.mu.
func (c *client) reading() clock.Reading {
	d := time.Duration(math.Round(float64(c.w.now-c.since) * c.rate))
	r := c.base
	r.Mono, r.Wall, r.Boot = r.Mono+d, r.Wall+d, r.Boot+d
	return r
}

// nextTimer is the true time at which the next timer is due, of all clients except one.
func (w *world) nextTimer(except *client) (time.Duration, bool) {
	next := time.Duration(math.MaxInt64)
	for _, c := range w.clients {
		for _, t := range c.timers {
			if c == except {
				break
			}
			left := max(t.due-c.reading().Mono, 0)
			next = min(next, w.now+time.Duration(math.Ceil(float64(left)/c.rate))+1)
		}
	}
	return next, next < math.MaxInt64
}

// advance moves time until a timer wakes a goroutine or a lease ends. Other timers only read the
// clocks, so no choice follows them.
func (w *world) advance(suspended *client) {
	before := w.valid()
	for {
		w.mu.Lock()
		next, ok := w.nextTimer(suspended)
		if !ok && suspended != nil {
			next, ok = w.now+ttl, true
		}
		woke := !ok || w.moveTo(next, suspended) || suspended != nil
		w.mu.Unlock()
		synctest.Wait()
		if after := w.valid(); woke || after != before {
			return
		}
	}
}

// moveTo moves time and fires the timers that are due. The monotonic clock of a suspended client
// stands still meanwhile. moveTo reports whether a timer woke a goroutine.
func (w *world) moveTo(to time.Duration, suspended *client) (woke bool) {
	for _, c := range w.clients {
		before := c.reading()
		c.base, c.since = before, w.now
	}
	was := w.now
	w.now = to
	for _, c := range w.clients {
		now := c.reading()
		if c == suspended {
			now.Mono = c.base.Mono
			c.note(fmt.Sprint("asleep for ", to-was), nil)
		}
		c.base, c.since = now, w.now
	}
	for _, c := range w.clients {
		for _, t := range slices.Clone(c.timers) {
			if t.due <= c.reading().Mono {
				t.stop()
				c.note("timer", nil)
				woke = woke || t.wakes
				go t.f()
			}
		}
	}
	return woke
}

type timer struct {
	c     *client
	due   time.Duration
	f     func()
	wakes bool // a goroutine sleeps until it fires
}

// Now implements clock.Clock.
func (c *client) Now() clock.Reading {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	return c.reading()
}

// Rand implements clock.Clock. There is no jitter.
func (c *client) Rand() float64 { return 0.5 }

// AfterFunc implements clock.Clock.
func (c *client) AfterFunc(d time.Duration, f func()) clock.Timer { return c.after(d, f, false) }

func (c *client) after(d time.Duration, f func(), wakes bool) *timer {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	t := &timer{c: c, due: c.reading().Mono + d, f: f, wakes: wakes}
	if !c.dead {
		c.timers = append(c.timers, t)
	}
	return t
}

// Sleep implements clock.Clock.
func (c *client) Sleep(ctx context.Context, d time.Duration) error {
	done := make(chan struct{})
	t := c.after(d, func() { close(done) }, true)
	defer t.Stop()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
}

// stop is Stop for a caller that holds w.mu.
func (t *timer) stop() bool {
	i := slices.Index(t.c.timers, t)
	if i < 0 {
		return false
	}
	t.c.timers = slices.Delete(slices.Clone(t.c.timers), i, i+1)
	return true
}

func (t *timer) Stop() bool {
	t.c.w.mu.Lock()
	defer t.c.w.mu.Unlock()
	return t.stop()
}

func (t *timer) Reset(d time.Duration) bool {
	t.c.w.mu.Lock()
	defer t.c.w.mu.Unlock()
	was := t.stop()
	t.due = t.c.reading().Mono + d
	if !t.c.dead {
		t.c.timers = append(t.c.timers, t)
	}
	return was
}
