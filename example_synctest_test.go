package leasehold_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
)

// In a test of your own code: func TestFailover(t *testing.T) { synctest.Test(t, failover) }. Time
// is virtual there, so an hour of waiting takes a millisecond.
func Example_virtualTime() {
	var t *testing.T // that of the test
	synctest.Test(t, failover)
}

// failover tests that a leader that stops renewing is replaced within two TTLs, and is told so.
func failover(t *testing.T) {
	store := leasehold.NewMemStore()
	acquire := func() *leasehold.Lease {
		lock, err := leasehold.NewLock(store, "leaders/reports", leasehold.WithTTL(time.Hour),
			leasehold.WithManualRenewal())
		if err != nil {
			t.Fatal(err)
		}
		lease, err := lock.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return lease
	}
	began := time.Now()
	first := acquire() // and never renews
	second := acquire()
	if took := time.Since(began); took > 2*time.Hour {
		t.Error("the takeover took", took)
	}
	if first.Valid() || context.Cause(first.Context()) == nil {
		t.Error("the first leader still leads")
	}
	if second.Token() <= first.Token() {
		t.Error("the token has not risen")
	}
	if err := second.Release(t.Context()); err != nil {
		t.Error(err)
	}
}
