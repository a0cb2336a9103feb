package leasehold

import (
	"context"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/internal/storeapi"
	"github.com/leasehold-go/leasehold/internal/storecheck"
)

// Report says what [CheckStore] found.
type Report struct {
	ConditionalPuts    bool     // creates and updates are refused when they must be, also under concurrency
	ConditionalDeletes bool     // so are deletes; locks do not need this
	ServerClock        string   // [Object].Age is "not used", "consistent" or "wrong"; "" if the check did not get that far
	ETags              string   // the form in which the server has taken its ETags back: "as received" or "without quotes" (see [S3Store]); "" if not known
	Requests           int      // sent by the check
	Leftover           []string // keys of objects that could not be removed again
}

// CheckStore finds out, with about 50 requests on keys that begin with keyPrefix, whether the store enforces its
// preconditions for these credentials. If conditional puts are not enforced, the error matches [ErrUnsafeStore] and says
// what went wrong: some S3 servers silently ignore the headers. The error also matches ErrUnsafeStore if the store tells ages
// of objects ([WithServerClock]) that are higher than they can be. Measuring them takes a second. Any other error, such as
// access denied or a time-out, leaves the question open. A Store whose method Validate returns an error is refused with it.
//
// The objects have fresh keys and are removed again. Without the permission to delete there are two objects, keyPrefix +
// "-probe" and keyPrefix + "-delete", which stay and are used again by the next check: see [Report]. Any number of
// processes may check the same store with the same prefix at the same time.
func CheckStore(ctx context.Context, s Store, keyPrefix string) (Report, error) {
	report, err := checkStore(ctx, s, keyPrefix)
	if err != nil {
		err = fmt.Errorf("leasehold: %w", err)
	}
	return report, err
}

// checkStore is CheckStore for callers that put the package's name into the error themselves.
func checkStore(ctx context.Context, s Store, keyPrefix string) (Report, error) {
	if why := storeapi.BadKey(keyPrefix + "x"); why != "" {
		return Report{}, fmt.Errorf("key prefix %.80q %s: use a path such as \"locks/check\"", keyPrefix, why)
	}
	if v, ok := s.(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			return Report{}, err
		}
	}
	found, err := storecheck.Run(ctx, storecheck.Of(s, func(o Object) ([]byte, string, time.Duration) { return o.Body, o.ETag, o.Age }), keyPrefix)
	if s3, ok := s.(*S3Store); ok {
		found.ETags = s3.objects.ETags()
	}
	return Report(found), err
}
