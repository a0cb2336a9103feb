package leasehold_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/storeapi"
	"github.com/leasehold-go/leasehold/internal/storecheck"
	internalwire "github.com/leasehold-go/leasehold/internal/wire"
)

func TestFenceOfTokensThatNoTermHas(t *testing.T) {
	var fence leasehold.Fence
	require.NoError(t, fence.Check(7))
	require.ErrorIs(t, fence.Check(0), leasehold.ErrFenced)
	for _, token := range []uint64{1 << 53, math.MaxUint64} {
		require.ErrorIs(t, fence.Check(token), leasehold.ErrFenced)
	}
	require.EqualValues(t, 7, fence.Token(), "none of them locks the next terms out")
	require.NoError(t, fence.Check(1<<53-1))
}

// Readers of the documentation see the values, not where the packages below have them.
func TestConstantsAreThoseOfThePackagesBelow(t *testing.T) {
	require.EqualValues(t, storeapi.MaxToken, leasehold.MaxToken)
	require.EqualValues(t, 64<<10, internalwire.MaxSize)
	require.Less(t, internalwire.MaxSize, leasehold.MaxObjectSize)
	require.EqualValues(t, storecheck.ClockNotUsed, leasehold.ClockNotUsed)
	require.EqualValues(t, storecheck.ClockConsistent, leasehold.ClockConsistent)
	require.EqualValues(t, storecheck.ClockWrong, leasehold.ClockWrong)
}
