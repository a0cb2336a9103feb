// Package clock reads every clock of a machine at once, so that a lease can end as soon as any
// clock shows that it must.
package clock

import (
	"context"
	"math/rand/v2"
	"time"
)

// A Reading holds what all clocks showed at one moment. Only differences between readings of the
// same Clock are meaningful.
type Reading struct {
	Mono time.Duration // CLOCK_MONOTONIC: never steps, stops while the machine is suspended
	Wall time.Duration // the wall clock, since the Unix epoch: steps, and counts a suspend
	// CLOCK_BOOTTIME: like Mono, but counts a suspend; equal to Mono where the system does not have
	// it
	Boot time.Duration
}

// Elapsed is an upper bound on the time from start to r. The wall clock and CLOCK_BOOTTIME may each
// have counted a different suspend, so what each has counted beyond the monotonic clock is added.
func (r Reading) Elapsed(start Reading) time.Duration {
	d := r.Mono - start.Mono
	return d + max(r.Wall-start.Wall-d, 0) + max(r.Boot-start.Boot-d, 0)
}

// Time is the reading of the wall clock, cut to microseconds. Before 1970, which no record can
// show, it is the first one of 1970.
func (r Reading) Time() time.Time { return time.UnixMicro(max(r.Wall.Microseconds(), 1)) }

// A Clock is the time of one machine. System is the real one, and simulations have their own. A
// Clock must be safe for concurrent use.
type Clock interface {
	Now() Reading
	// AfterFunc calls f in its own goroutine after d has passed on the monotonic clock.
	AfterFunc(d time.Duration, f func()) Timer
	// Sleep returns nil after d has passed on the monotonic clock, or earlier with ctx's error.
	Sleep(ctx context.Context, d time.Duration) error
	// Rand returns a number in [0,1) for jitter.
	Rand() float64
}

// Option is a func(Clock) leasehold.Option, which package leasehold sets. Package testopt has it
// with its type.
var Option any

// TableOption is a func(Clock, leasehold.Option) locktable.Option, which package locktable sets.
// The second argument gives the members' locks the same clock.
var TableOption any

// Wait returns nil after d has passed on the monotonic clock of c or woken is closed, or earlier
// with ctx's error.
func Wait(ctx context.Context, c Clock, d time.Duration, woken <-chan struct{}) error {
	passed := make(chan struct{})
	defer c.AfterFunc(d, func() { close(passed) }).Stop()
	select {
	case <-passed:
	case <-woken:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// Attempt is the time of one request of a lock: a third of what the safety margin and the renew
// interval leave of the TTL, at most 10 s. So three attempts that all hang fit between a renewal
// and the end of the lease.
func Attempt(ttl, margin, renew time.Duration) time.Duration {
	return min(max((ttl-margin-renew)/3, time.Millisecond), maxAttempt)
}

// maxAttempt is the time of a request at a long TTL, on which it does not depend how soon a store
// answers.
const maxAttempt = 10 * time.Second

// Jitter is d ±10 %.
func Jitter(c Clock, d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.9 + 0.2*c.Rand()))
}

// Backoff is the pause after one more failure in a row: first after the first one, then twice as
// long each time, at most limit, ±10 %.
func Backoff(c Clock, failures *int, first, limit time.Duration) time.Duration {
	*failures = min(*failures+1, 16)
	return Jitter(c, min(first<<(*failures-1), limit))
}

// A Timer is the part of *time.Timer that leases use.
type Timer interface {
	Stop() bool
	Reset(d time.Duration) bool
}

// System is the clock of this machine. In a testing/synctest bubble its time is virtual, except
// Boot.
var System Clock = system{}

type system struct{}

// start is the zero of the monotonic readings of this process.
var start = time.Now()

func (system) Now() Reading {
	t := time.Now()
	mono := t.Sub(start)
	return Reading{Mono: mono, Wall: time.Duration(t.UnixNano()), Boot: boottime(mono)}
}

func (system) Rand() float64 { return rand.Float64() }

func (system) AfterFunc(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) }

func (system) Sleep(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
