// Package export gives this project's tests access to unexported parts of the root package. The root package sets every
// variable when it is initialised. The variables have no types of their own because this package cannot import the root, so
// users assert them. WithClock has a typed form in internal/testopt.
package export

// WithClock is a func(clock.Clock) leasehold.Option.
var WithClock any

// ShardsWithClock is a func(clock.Clock) shards.Option, which package shards sets.
var ShardsWithClock any
