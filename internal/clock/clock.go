// Package clock reads every clock of a machine at once, so that a lease can end when any of them says so.
package clock

import (
	"context"
	"math/rand/v2"
	"time"
)

// A Reading is one look at all clocks. Only differences between readings of the same Clock mean anything.
type Reading struct {
	Mono time.Duration // CLOCK_MONOTONIC: never steps, stands still while the machine is suspended
	Wall time.Duration // the wall clock since the Unix epoch: steps, and goes on in suspend
	Boot time.Duration // CLOCK_BOOTTIME: as Mono, but goes on in suspend; equal to Mono where the system has none
}

// Elapsed is the most that the time from start to r may have been. What the wall clock and BOOTTIME have counted beyond the
// monotonic clock may have been two sleeps, each seen by one of them only, so both count.
func (r Reading) Elapsed(start Reading) time.Duration {
	d := r.Mono - start.Mono
	return d + max(r.Wall-start.Wall-d, 0) + max(r.Boot-start.Boot-d, 0)
}

// Time is the wall clock's reading as a time, in microseconds.
func (r Reading) Time() time.Time { return time.UnixMicro(r.Wall.Microseconds()) }

// A Clock is one machine's sense of time. System is the real one; simulations bring their own.
type Clock interface {
	Now() Reading
	// AfterFunc calls f in its own goroutine after d has passed on the monotonic clock.
	AfterFunc(d time.Duration, f func()) Timer
	// Sleep returns nil after d has passed on the monotonic clock, or earlier with ctx's error.
	Sleep(ctx context.Context, d time.Duration) error
	// Rand returns a number in [0,1) for jitter.
	Rand() float64
}

// Jitter is d ±10 %.
func Jitter(c Clock, d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.9 + 0.2*c.Rand()))
}

// Backoff is the pause after one more failure in a row: first after the first one, then twice as long each time, at most limit,
// ±10 %.
func Backoff(c Clock, failures *int, first, limit time.Duration) time.Duration {
	*failures = min(*failures+1, 16)
	return Jitter(c, min(first<<(*failures-1), limit))
}

// Timer is the part of *time.Timer that leases need.
type Timer interface {
	Stop() bool
	Reset(d time.Duration) bool
}

// System is the clock of this machine. Under testing/synctest it is the bubble's.
var System Clock = system{}

type system struct{}

// start anchors the monotonic readings of this process.
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
