package leasehold_test

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/storeapi"
	"github.com/leasehold-go/leasehold/internal/storecheck"
	internalwire "github.com/leasehold-go/leasehold/internal/wire"
)

// A ledger in memory accepts the writes of the latest leader only.
func ExampleFence() {
	var (
		mu     sync.Mutex // held from the check until the write is done
		fence  leasehold.Fence
		ledger []string
	)
	write := func(token uint64, entry string) error {
		mu.Lock()
		defer mu.Unlock()
		if err := fence.Check(token); err != nil {
			return err
		}
		ledger = append(ledger, entry)
		return nil
	}
	fmt.Println(write(7, "by the leader"))
	fmt.Println(write(8, "by the next leader"))
	err := write(7, "late, by the former leader")
	fmt.Println(err, errors.Is(err, leasehold.ErrFenced))
	fmt.Println(ledger)
	// Output:
	// <nil>
	// <nil>
	// fenced off by a newer token: token 7, seen 8 true
	// [by the leader by the next leader]
}

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
