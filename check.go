package leasehold

import (
	"context"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/internal/storeapi"
	"github.com/leasehold-go/leasehold/internal/storecheck"
)

// Report is the result of [CheckStore].
type Report struct {
	ConditionalPuts    bool // creates and updates are refused when they must be, even under concurrency
	ConditionalDeletes bool // so are deletes; locks do not need this
	ServerClock        ClockVerdict
	BareETags          bool     // the server takes ETags back without their quotes only: see [S3Store]
	Requests           int      // sent by the check
	Leftover           []string // keys of objects that could not be removed again
}

// ClockVerdict says what [CheckStore] has found out about [Object].Age. It is "" if the check did
// not get that far.
type ClockVerdict string

// The verdicts.
const (
	ClockNotUsed    ClockVerdict = "not used"   // the store reports no ages
	ClockConsistent ClockVerdict = "consistent" // no age was higher than it can be
	ClockWrong      ClockVerdict = "wrong"      // it reports ages that are higher than they can be
)

// CheckStore checks whether the store enforces its preconditions for these credentials. It sends
// about 50 requests, on keys that begin with keyPrefix.
//
// The error matches [ErrUnsafeStore] and says what went wrong in these cases:
//
//   - Conditional puts are not enforced, as on S3 servers that silently ignore the headers. If a
//     server enforces the conditions of creates alone, the error names package createonly.
//   - A read does not show the write before it, as behind a cache.
//   - The store reports ages of objects ([WithServerClock]) that are higher than they can be, which
//     takes a second to measure.
//
// Any other error, such as access denied or a time-out, leaves the question open. A Store that
// reports that it cannot work ([StoreInfo]) is refused with its own error.
//
// The objects have fresh keys, and CheckStore removes them again. Without the permission to delete,
// two objects remain, and the next check uses them again: keyPrefix + "-probe" and keyPrefix +
// "-delete" (see [Report]). Any number of processes may check the same store with the same prefix
// at the same time.
func CheckStore(ctx context.Context, s Store, keyPrefix string) (Report, error) {
	if why := storeapi.BadKey(keyPrefix + storecheck.LongestSuffix); why != "" {
		return Report{}, fmt.Errorf("leasehold: %w: a key with the prefix %.80q %s (use a path such as "+
			"\"locks/check\")", ErrPermanent, keyPrefix, why)
	}
	info := Describe(s)
	if info.Err != nil {
		return Report{}, fmt.Errorf("leasehold: %w", info.Err)
	}
	found, err := storecheck.Run(ctx, storecheck.Of(s, info.TellsAge, func(o Object) ([]byte, string, time.Duration) {
		return o.Body, o.ETag, o.Age
	}), keyPrefix)
	report := Report{
		ConditionalPuts: found.ConditionalPuts, ConditionalDeletes: found.ConditionalDeletes,
		ServerClock: ClockVerdict(found.ServerClock),
		Requests:    found.Requests, Leftover: found.Leftover,
	}
	if s3, ok := s.(*S3Store); ok {
		report.BareETags = s3.objects.BareETags()
	}
	if err != nil {
		return report, fmt.Errorf("leasehold: %w", err)
	}
	canaryOf(s, info).Proven()
	return report, nil
}
