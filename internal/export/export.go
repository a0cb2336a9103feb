// Package export gives this project's tests access to unexported parts of the root package. The root package sets every
// variable when it is initialised. The variables have no types of their own because this package cannot import the root, so
// users assert them. WithClock has a typed form in internal/testopt.
package export

var (
	// WithClock is a func(clock.Clock) leasehold.Option.
	WithClock any
	// WithPartSize is a func(int64) leasehold.FencedOption: bodies above go in parts of this size at least.
	WithPartSize any
	// EachCheck is a func(yield func(name, why string, run func(ctx context.Context, s leasehold.Store, key string, ways, rounds int) error) bool):
	// the checks of CheckStore, for storetest to run at length.
	EachCheck any
	// ErrDeleteIgnored is the error of the one check that a store may fail and still be safe for locks.
	ErrDeleteIgnored error
)
