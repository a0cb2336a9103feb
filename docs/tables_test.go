package docs_test

import (
	"context"
	"errors"
	"log"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/locktable"
)

// The functions lockTenants and goOn stand word for word in tables.md.

func lockTenants(ctx context.Context, store leasehold.Store, pod string, tenants []string,
	serve func(ctx context.Context, tenant string, token uint64) error) error {
	table, err := locktable.New(store, "tables/tenants", locktable.WithMemberName(pod))
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

func goOn(ctx context.Context, store leasehold.Store, handle string,
	serve func(ctx context.Context, lease *locktable.Lease) error) error {
	table, err := locktable.Resume(store, handle)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- table.Run(ctx) }()
	leases, err := table.Leases(ctx)
	for _, lease := range leases {
		err = errors.Join(err, lease.Do(ctx, serve))
	}
	stop()
	return errors.Join(err, <-ended)
}

func TestGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasehold.NewMemStore()
		table, err := locktable.New(store, "tables/tenants")
		require.NoError(t, err)
		go func() { _ = table.Run(t.Context()) }()
		lease, err := table.Lock("a").Acquire(t.Context())
		require.NoError(t, err)
		handle, err := table.Detach(t.Context())
		require.NoError(t, err)
		served := 0
		require.NoError(t, goOn(t.Context(), store, handle, func(_ context.Context, there *locktable.Lease) error {
			served++
			require.True(t, there.Valid())
			require.Equal(t, lease.Token(), there.Token())
			return nil
		}))
		require.Equal(t, 1, served)
		state, err := table.Inspect(t.Context())
		require.NoError(t, err)
		require.Empty(t, state.Members)
	})
}
