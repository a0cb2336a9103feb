package storetest_test

import (
	"testing"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/storetest"
)

// The test of a store is one call.
func ExampleRun() {
	_ = func(t *testing.T) { // func TestStore(t *testing.T)
		storetest.Run(t, func(t *testing.T) leasehold.Store {
			return leasehold.NewMemStore() // or your own
		})
	}
}

// An option declares what a server cannot do, and Run checks that this is true.
func ExampleIgnoresDeleteCondition() {
	_ = func(t *testing.T, newStore func(t *testing.T) leasehold.Store) {
		storetest.Run(t, newStore, storetest.IgnoresDeleteCondition(), storetest.Rounds(50))
	}
}
