package storeapi

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAnAgeThatCannotBeIsUnknown(t *testing.T) {
	for _, age := range []time.Duration{math.MinInt64, -1, math.MaxInt64} {
		require.Zero(t, CredibleAge(age))
	}
	require.Equal(t, time.Hour, CredibleAge(time.Hour))
}
