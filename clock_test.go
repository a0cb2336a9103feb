package leasehold_test

import (
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/export"
)

// brokenClock is the bubble's clock with each hand moved by its own offset, as on a machine whose clocks are wrong.
type brokenClock struct {
	clock.Clock
	mu     sync.Mutex
	offset clock.Reading
}

func newBrokenClock() *brokenClock { return &brokenClock{Clock: clock.System} }

func (c *brokenClock) Now() clock.Reading {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.Clock.Now()
	now.Boot = now.Mono // CLOCK_BOOTTIME is not virtual
	now.Mono += c.offset.Mono
	now.Wall += c.offset.Wall
	now.Boot += c.offset.Boot
	return now
}

// move adds to the clock's offsets.
func (c *brokenClock) move(by clock.Reading) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset.Mono += by.Mono
	c.offset.Wall += by.Wall
	c.offset.Boot += by.Boot
}

// suspend is what a machine's clocks show after it has slept for d: all but the monotonic one have gone on.
func (c *brokenClock) suspend(d time.Duration) {
	time.Sleep(d)
	c.move(clock.Reading{Mono: -d})
}

func withClock(c clock.Clock) leasehold.Option {
	return export.WithClock.(func(clock.Clock) leasehold.Option)(c)
}
