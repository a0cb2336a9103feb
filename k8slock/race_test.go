package k8slock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
)

func TestLostRaceIsAConflict(t *testing.T) {
	lock := newLock(t, teststore.Overtaken(leasehold.NewMemStore()), time.Minute)
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
