package docs_test

import (
	"context"
	"log"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/locktable"
)

// The function lockTenants stands word for word in tables.md.

func lockTenants(ctx context.Context, store leasehold.Store, pod string, tenants []string,
	serve func(ctx context.Context, tenant string, token uint64) error) error {
	table, err := locktable.New(store, "tables/tenants", locktable.WithMember(pod))
	if err != nil {
		return err
	}
	for _, tenant := range tenants {
		go func() {
			err := table.Lock(tenant).Do(ctx, func(ctx context.Context, lease *locktable.Lease) error {
				return serve(ctx, tenant, lease.Token()) // until ctx ends
			})
			log.Print(tenant, ": ", err)
		}()
	}
	return table.Run(ctx) // joins, keeps the heartbeat, and leaves when ctx ends
}

func TestLockTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, served := leasehold.NewMemStore(), make(chan string, 3)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			done <- lockTenants(ctx, store, "pod-0", []string{"a", "b"},
				func(ctx context.Context, tenant string, token uint64) error {
					served <- tenant
					<-ctx.Done()
					return nil
				})
		}()
		time.Sleep(time.Minute)
		require.ElementsMatch(t, []string{"a", "b"}, []string{<-served, <-served})
		cancel()
		require.NoError(t, <-done)
		table, err := locktable.New(store, "tables/tenants")
		require.NoError(t, err)
		state, err := table.Inspect(t.Context())
		require.NoError(t, err)
		require.Empty(t, state.Members)
	})
}
