// Package testopt has the options of locks and stores that only this project's own tests and simulations use.
package testopt

import (
	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// WithClock gives a lock another clock than clock.System.
func WithClock(c clock.Clock) leasehold.Option {
	return clock.Option.(func(clock.Clock) leasehold.Option)(c)
}

// NewMemStore is leasehold.NewMemStore. With contentETags, equal bodies have equal ETags, as S3 has it for plain objects. With tellsAge,
// Get tells the exact Age of an object.
func NewMemStore(contentETags, tellsAge bool) leasehold.Store {
	return storeapi.NewMemStore.(func(contentETags, tellsAge bool) leasehold.Store)(contentETags, tellsAge)
}
