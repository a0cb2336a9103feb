package k8slock_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
	"github.com/leasehold-go/leasehold/k8slock"
)

// TestTakeoverAfterACrash measures, in virtual time, how long nobody leads: from a leader's crash
// at a random moment until client-go calls OnStartedLeading of the one waiting candidate. It uses
// real electors of client-go and the intervals of this package. It prints the figures of the
// package comment and of docs/integrations.md: go test -v -run TakeoverAfterACrash .
func TestTakeoverAfterACrash(t *testing.T) {
	const trials = 1000
	var took []time.Duration
	for range trials {
		synctest.Test(t, func(t *testing.T) {
			mem, ref := leasehold.NewMemStore(), &referee{t: t}
			plug := teststore.New(mem, nil)
			leader := stand(t, ref, "leader", newLock(t, plug, k8slock.LeaseDuration))
			next(t, time.Second, leader)
			candidate := stand(t, ref, "candidate", newLock(t, teststore.New(mem, ageless), k8slock.LeaseDuration))
			time.Sleep(5*time.Minute + rand.N(k8slock.LeaseDuration))
			plug.Fail(errUnplugged) // to the others, a crash means that writes stop
			crash := time.Now()
			next(t, 3*k8slock.LeaseDuration, candidate)
			took = append(took, time.Since(crash))
			leader.stop()
		})
	}
	slices.Sort(took)
	median, p99 := took[trials/2], took[trials*99/100]
	t.Logf("nobody leads after a crash: median %v, p99 %v, longest %v (%d trials)",
		median.Round(time.Second), p99.Round(time.Second), took[trials-1].Round(time.Second), trials)
	require.InDelta(t, 73, median.Seconds(), 4)
	require.Less(t, p99, 2*k8slock.LeaseDuration)
}
