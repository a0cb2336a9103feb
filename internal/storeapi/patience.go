package storeapi

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/leasehold-go/leasehold/internal/clock"
)

// Passing reports whether err says neither that a write has landed nor that it has not, and waiting
// may fix it: a rate limit, an overloaded server, a time-out. Ceph's gateway answers so to losers
// of a race.
func Passing(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() == nil && !Refused(err) && !errors.Is(err, ErrConflict) && !Permanent(err)
}

// Patiently sends a request up to this number of times, while it fails for a reason that passes by
// itself. again says whether an earlier attempt may have landed.
func Patiently(ctx context.Context, times int, send func(again bool) error) error {
	for try := 1; ; try++ {
		err := send(try > 1)
		if !Passing(ctx, err) || try == times {
			return err
		}
		if waitErr := Rest(ctx, try); waitErr != nil {
			return fmt.Errorf("%w: %w", waitErr, err)
		}
	}
}

// Rest waits after this number of attempts. The third rest brings the sum to more than a second,
// because some servers take one write of an object a second.
func Rest(ctx context.Context, tries int) error {
	d := min(250*time.Millisecond<<min(tries-1, 4), time.Second)
	return Pause(ctx, d*3/4+rand.N(d/2))
}

// Pause waits until d has passed, or returns ctx's error.
func Pause(ctx context.Context, d time.Duration) error { return clock.System.Sleep(ctx, d) }
