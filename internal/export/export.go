// Package export is how the root package lends its inner parts to leasehold's own test kit without making them public.
// The root package sets every variable when it is initialised; who uses one asserts its type.
package export

var (
	// WithClock is a func(clock.Clock) leasehold.Option.
	WithClock any
	// WithPartSize is a func(int64) leasehold.FencedOption: bodies above go in parts of this size at least.
	WithPartSize any
)
