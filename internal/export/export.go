// Package export is how the root package lends its inner parts to leasehold's own test kit without making them public.
// The root package sets every variable when it is initialised; who uses one asserts its type.
package export

// WithClock is a func(clock.Clock) leasehold.Option.
var WithClock any
