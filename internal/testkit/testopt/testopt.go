// Package testopt has the options of locks and stores that only this project's own tests and
// simulations use.
package testopt

import (
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/fenced"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/memstore"
	"github.com/leasehold-go/leasehold/internal/storeapi"
	"github.com/leasehold-go/leasehold/internal/wire"
	"github.com/leasehold-go/leasehold/locktable"
)

// WithClock gives a lock another clock than clock.System.
func WithClock(c clock.Clock) leasehold.Option {
	return clock.Option.(func(clock.Clock) leasehold.Option)(c)
}

// WithTableClock gives a table of locks, and the locks of its members, another clock than
// clock.System.
func WithTableClock(c clock.Clock) locktable.Option {
	return clock.TableOption.(func(clock.Clock, leasehold.Option) locktable.Option)(c, WithClock(c))
}

type changed struct {
	clock.Clock
	change func(*clock.Reading)
}

func (c changed) Now() clock.Reading {
	now := c.Clock.Now()
	c.change(&now)
	return now
}

// Clock is clock.System with readings that change has changed. Its timers are right.
func Clock(change func(*clock.Reading)) clock.Clock { return changed{clock.System, change} }

// Stopped is the clock of a process in a bubble that was stopped for so long, and goes on: its
// timers fire later than its readings say.
func Stopped(asleep *atomic.Int64) clock.Clock {
	return Clock(func(now *clock.Reading) {
		now.Mono += time.Duration(asleep.Load())
		now.Wall += time.Duration(asleep.Load())
		now.Boot = now.Mono
	})
}

// NewProcess makes the locks that get it belong to one process, which is not the process of all
// other locks.
func NewProcess() leasehold.Option {
	return wire.Option.(func(wire.Process) leasehold.Option)(wire.NewProcess())
}

// WithPartSize makes larger bodies go to S3 in parts.
func WithPartSize(bytes int64) fenced.Option {
	return storeapi.PartSize.(func(int64) fenced.Option)(bytes)
}

// NewMemStore is leasehold.NewMemStore. With contentETags, equal bodies have equal ETags, as S3 has
// it for plain objects. With tellsAge, Get reports the exact Age of an object.
func NewMemStore(contentETags, tellsAge bool) leasehold.Store {
	return memstore.Store.(func(*memstore.Objects) leasehold.Store)(&memstore.Objects{
		Limit: leasehold.MaxObjectSize, ContentETags: contentETags, TellsAge: tellsAge,
	})
}
