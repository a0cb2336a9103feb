package storetest_test

import (
	"testing"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/storetest"
)

// A store's own test is one call.
func ExampleRun() {
	_ = func(t *testing.T) { // func TestStore(t *testing.T)
		storetest.Run(t, func(t *testing.T) leasehold.Store {
			return leasehold.NewMemStore() // or your own
		})
	}
}

// What a server cannot do is named, and Run checks that it is so.
func ExampleIgnoresDeleteCondition() {
	_ = func(t *testing.T, newStore func(t *testing.T) leasehold.Store) {
		storetest.Run(t, newStore, storetest.IgnoresDeleteCondition(), storetest.Rounds(50))
	}
}
