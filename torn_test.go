package leasehold_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
)

// tearing is a store whose next read is torn: it returns the body of one version with the ETag of another.
type tearing struct {
	leasehold.Store
	etag atomic.Pointer[string] // of the next read
}

func (s *tearing) Get(ctx context.Context, key string) (leasehold.Object, error) {
	obj, err := s.Store.Get(ctx, key)
	if etag := s.etag.Swap(nil); etag != nil {
		obj.ETag = *etag
	}
	return obj, err
}

// A lease is not lost because the read after a refused renewal was torn: it shows the record with the ETag of another version.
func TestATornReadCostsNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		torn := &tearing{Store: leasehold.NewMemStore()}
		store := &faultStore{Store: torn}
		lock := newLock(t, store)
		require.NoError(t, acquire(t, lock).Release(t.Context()))
		before, err := store.Get(t.Context(), key)
		require.NoError(t, err)
		lease := acquire(t, lock)
		store.next(fault{op: "put", err: leasehold.ErrPreconditionFailed})
		torn.etag.Store(&before.ETag)
		require.NoError(t, lease.Renew(t.Context()))
		require.Nil(t, torn.etag.Load(), "the read was torn")
		require.True(t, lease.Valid())
		require.NoError(t, lease.Commit(t.Context(), []byte("x")))
		require.NoError(t, lease.Release(t.Context()))
	})
}
