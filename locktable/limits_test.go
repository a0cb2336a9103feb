package locktable_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
	"github.com/leasehold-go/leasehold/locktable"
)

// A request of the table has the time that one of the members' locks has, whatever the margin is,
// so that as many that hang fit into a lease.
func TestARequestHasTheTimeThatALockGivesIt(t *testing.T) {
	for _, margin := range []time.Duration{2 * time.Second, 6 * time.Second, 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			limits := make(map[string]time.Duration) // the longest, by key
			store := teststore.Known(leasehold.NewMemStore(),
				func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
					mu.Lock()
					defer mu.Unlock()
					if end, ok := ctx.Deadline(); ok && (r.Op == teststore.Get || r.Op == teststore.Update) {
						limits[r.Key] = max(limits[r.Key], time.Until(end))
					}
					return r.Send(ctx)
				})
			a := start(t, store, locktable.WithTTL(30*time.Second), locktable.WithSafetyMargin(margin))
			lease := acquire(t, a.Lock("x"))
			time.Sleep(time.Minute)
			require.NoError(t, lease.Release(t.Context()))
			require.Len(t, limits, 2)
			mu.Lock()
			defer mu.Unlock()
			for key, limit := range limits {
				require.Equal(t, (20*time.Second-margin)/3, limit, strings.TrimSuffix(key, a.MemberName()))
			}
		})
	}
}
