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
	"github.com/leasehold-go/leasehold/locktable"
)

// limited is a store that notes how long each request may take at most.
type limited struct {
	leasehold.Store
	mu     sync.Mutex
	limits map[string]time.Duration // the longest, by key
}

func (l *limited) note(ctx context.Context, key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if end, ok := ctx.Deadline(); ok {
		l.limits[key] = max(l.limits[key], time.Until(end))
	}
}

func (l *limited) Get(ctx context.Context, key string) (leasehold.Object, error) {
	l.note(ctx, key)
	return l.Store.Get(ctx, key)
}

func (l *limited) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	l.note(ctx, key)
	return l.Store.PutIfMatch(ctx, key, body, etag)
}

func (l *limited) Describe() leasehold.StoreInfo { return leasehold.Describe(l.Store) }

// A request of the table has the time that one of the members' locks has, whatever the margin is,
// so that as many that hang fit into a lease.
func TestARequestHasTheTimeThatALockGivesIt(t *testing.T) {
	for _, margin := range []time.Duration{2 * time.Second, 6 * time.Second, 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			store := &limited{Store: leasehold.NewMemStore(), limits: make(map[string]time.Duration)}
			a := start(t, store, locktable.WithTTL(30*time.Second), locktable.WithSafetyMargin(margin))
			lease := acquire(t, a.Lock("x"))
			time.Sleep(time.Minute)
			require.NoError(t, lease.Release(t.Context()))
			require.Len(t, store.limits, 2)
			store.mu.Lock()
			defer store.mu.Unlock()
			for key, limit := range store.limits {
				require.Equal(t, (20*time.Second-margin)/3, limit, strings.TrimSuffix(key, a.MemberName()))
			}
		})
	}
}
