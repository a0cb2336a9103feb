package docs_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/shards"
)

// The functions consumePartitions and serveTenants stand word for word in shards.md.

func consumePartitions(ctx context.Context, store leasehold.Store, pod string, mux *http.ServeMux,
	consume func(ctx context.Context, partition int, token uint64) error) error {
	group, err := shards.New(store, "consumers", shards.Count(64), func(ctx context.Context, s shards.Shard) error {
		return consume(ctx, s.Number, s.Token()) // until ctx ends
	}, shards.WithMember(pod))
	if err != nil {
		return err
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		if err := group.Check(r); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	return group.Run(ctx) // joins, works, and leaves when ctx ends
}

func serveTenants(ctx context.Context, store leasehold.Store, tenants func(context.Context) ([]string, error),
	serve func(ctx context.Context, tenant string, lease *leasehold.Lease) error) error {
	group, err := shards.New(store, "tenants", shards.NamesFrom(tenants), func(ctx context.Context, s shards.Shard) error {
		return serve(ctx, s.ID, s.Lease())
	})
	if err != nil {
		return err
	}
	return group.Run(ctx)
}

func TestPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, mux := leasehold.NewMemStore(), http.NewServeMux()
		var mu sync.Mutex
		owners := make(map[int]uint64)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			done <- consumePartitions(ctx, store, "pod-0", mux, func(ctx context.Context, partition int, token uint64) error {
				mu.Lock()
				owners[partition] = token
				mu.Unlock()
				<-ctx.Done()
				return nil
			})
		}()
		time.Sleep(time.Minute)
		mu.Lock()
		require.Len(t, owners, 64)
		require.EqualValues(t, 1, owners[63])
		mu.Unlock()
		reply := httptest.NewRecorder()
		mux.ServeHTTP(reply, httptest.NewRequest(http.MethodGet, "/healthz", nil))
		require.Equal(t, http.StatusOK, reply.Code)
		cancel()
		require.NoError(t, <-done)
	})
}

func TestServeTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasehold.NewMemStore()
		tenants := func(context.Context) ([]string, error) { return []string{"4711"}, nil }
		for want := range 2 { // the second one finds what the first has committed
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() {
				done <- serveTenants(ctx, store, tenants, func(ctx context.Context, tenant string, lease *leasehold.Lease) error {
					require.Len(t, lease.Record().Payload, want)
					err := lease.Commit(ctx, append(lease.Record().Payload, 'x'))
					<-ctx.Done()
					return err
				})
			}()
			time.Sleep(time.Minute)
			cancel()
			require.NoError(t, <-done)
		}
		_, err := store.Get(t.Context(), "tenants/shards/4711")
		require.NoError(t, err)
	})
}
