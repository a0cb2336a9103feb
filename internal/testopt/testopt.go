// Package testopt has the options of leasehold that only this project's own tests and simulations use.
package testopt

import (
	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/clock"
)

// WithClock gives a lock another clock than clock.System.
func WithClock(c clock.Clock) leasehold.Option {
	return clock.Option.(func(clock.Clock) leasehold.Option)(c)
}
