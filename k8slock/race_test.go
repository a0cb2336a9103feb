package k8slock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/leasehold-go/leasehold"
)

// beaten is a store on which another client always writes first, and has released again before the
// next read.
type beaten struct {
	leasehold.Store
	n int
}

func (b *beaten) overtake(ctx context.Context, key string) {
	b.n++
	body := fmt.Appendf(nil, `{"expires_at":0,"token":%d}`, b.n)
	if o, err := b.Get(ctx, key); err == nil {
		b.Store.PutIfMatch(ctx, key, body, o.ETag)
	} else {
		b.Store.PutIfNoneMatch(ctx, key, body)
	}
}

func (b *beaten) PutIfNoneMatch(ctx context.Context, key string, body []byte) (string, error) {
	b.overtake(ctx, key)
	return b.Store.PutIfNoneMatch(ctx, key, body)
}

func (b *beaten) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	b.overtake(ctx, key)
	return b.Store.PutIfMatch(ctx, key, body, etag)
}

func TestLostRaceIsAConflict(t *testing.T) {
	lock := newLock(t, &beaten{Store: leasehold.NewMemStore()}, time.Minute)
	err := lock.Create(t.Context(), asked(lock, time.Minute))
	require.True(t, apierrors.IsAlreadyExists(err), "%v", err)
	require.ErrorIs(t, err, leasehold.ErrHeld)
	err = lock.Update(t.Context(), asked(lock, time.Minute))
	require.True(t, apierrors.IsConflict(err), "%v", err)
	require.ErrorIs(t, err, leasehold.ErrHeld)
	require.NotContains(t, err.Error(), "precondition")
	require.NotContains(t, err.Error(), "412")
}

func TestHeldIsAConflict(t *testing.T) {
	mem := leasehold.NewMemStore()
	first, second := newLock(t, mem, time.Minute), newLock(t, mem, time.Minute)
	require.NoError(t, first.Create(t.Context(), asked(first, time.Minute)))
	err := second.Update(t.Context(), asked(second, time.Minute))
	require.True(t, apierrors.IsConflict(err), "%v", err)
	require.ErrorContains(t, err, first.Identity())
	require.ErrorContains(t, err, first.Describe(), "the key")
	first.RecordEvent("stopped leading") // its own term is left to expire
	err = first.Update(t.Context(), asked(first, time.Minute))
	require.True(t, apierrors.IsConflict(err), "%v", err)
	require.ErrorIs(t, err, leasehold.ErrHeld)
	require.ErrorContains(t, err, first.Describe(), "the key")
}
