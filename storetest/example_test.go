package storetest_test

import (
	"testing"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/fenced"
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

// The test of a backend for fenced writes is one call, too. This one is also given the size of a
// body that it sends in several requests.
func ExampleRunFenced() {
	_ = func(t *testing.T) { // func TestBackend(t *testing.T)
		storetest.RunFenced(t, func(t *testing.T) fenced.Backend {
			return &fenced.MemBackend{} // or your own
		}, 9<<20)
	}
}
