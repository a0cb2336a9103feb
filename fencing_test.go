package leasehold_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
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
