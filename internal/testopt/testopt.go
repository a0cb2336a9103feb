// Package testopt has the options of leasehold that only this project's own tests and simulations use.
package testopt

import (
	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/export"
)

// WithClock gives a lock another clock than clock.System.
func WithClock(c clock.Clock) leasehold.Option {
	return export.WithClock.(func(clock.Clock) leasehold.Option)(c)
}
