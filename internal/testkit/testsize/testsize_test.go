package testsize_test

import (
	"testing"

	"github.com/leasehold-go/leasehold/internal/testkit/testsize"
	"github.com/stretchr/testify/require"
)

func TestOneSwitchForSizes(t *testing.T) {
	for size, want := range map[string]int{"": 1, "short": 1, "full": 100} {
		t.Setenv("LEASEHOLD_SIZE", size)
		require.Equal(t, want, testsize.Pick(1, 100), size)
	}
	t.Setenv("LEASEHOLD_SIZE", "ful")
	require.PanicsWithValue(t, `LEASEHOLD_SIZE is "ful": set it to short or full`, func() { testsize.Full() })
}
