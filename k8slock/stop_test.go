package k8slock_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/leaderelection"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
	"github.com/leasehold-go/leasehold/k8slock"
)

// events records what a lock reports about its terms.
type events struct {
	mu   sync.Mutex
	list []string
}

func (e *events) observe(_ context.Context, ev leasehold.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch ev.Kind {
	case leasehold.EventAcquired, leasehold.EventReleased:
		e.list = append(e.list, string(ev.Kind))
	case leasehold.EventLost:
		e.list = append(e.list, string(ev.Kind)+", "+leasehold.Outcome(ev.Err))
	}
}

func (e *events) seen() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.list)
}

// keepLease sets client-go's default: a stop does not touch the record.
func keepLease(cfg *leaderelection.LeaderElectionConfig) { cfg.ReleaseOnCancel = false }

func TestStopWithoutReleaseOnCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, ref, seen := leasehold.NewMemStore(), &referee{t: t}, &events{}
		lock := newLock(t, mem, k8slock.LeaseDuration, leasehold.WithObserver(seen.observe))
		pod := stand(t, ref, "pod", lock, keepLease)
		next(t, time.Second, pod)
		other := stand(t, ref, "other", newLock(t, mem, k8slock.LeaseDuration), keepLease)
		time.Sleep(10*time.Minute + time.Second)
		lease := lock.Lease()
		renewed := lease.Record().RenewedAt
		pod.stop()
		receive(t, pod.stopped, time.Second, "the elector's end")
		synctest.Wait()
		require.Equal(t, []string{"acquired", "released"}, seen.seen(), "a stop ends the term at once")
		require.False(t, lease.Valid())
		require.ErrorIs(t, context.Cause(lease.Context()), leasehold.ErrReleased)
		require.Zero(t, lock.Token())
		rec, err := inspect(t, mem)
		require.NoError(t, err)
		require.False(t, rec.Released(), "work of the term may still be running")

		_, token := next(t, 2*k8slock.LeaseDuration, other)
		require.EqualValues(t, 2, token)
		require.GreaterOrEqual(t, time.Since(renewed), k8slock.LeaseDuration)
		time.Sleep(10 * time.Minute)
		require.Equal(t, []string{"acquired", "released"}, seen.seen(), "no loss is reported later")
	})
}

// TestRestartAfterAStop runs the elector again with the same lock, as a loop around RunOrDie does.
func TestRestartAfterAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, ref, seen := leasehold.NewMemStore(), &referee{t: t}, &events{}
		lock := newLock(t, mem, k8slock.LeaseDuration, leasehold.WithObserver(seen.observe))
		pod := stand(t, ref, "pod", lock, keepLease)
		next(t, time.Second, pod)
		time.Sleep(10*time.Minute + time.Second)
		renewed := lock.Lease().Record().RenewedAt
		pod.stop()
		receive(t, pod.stopped, time.Second, "the elector's end")
		again := stand(t, ref, "pod", lock, keepLease)
		_, token := next(t, 3*k8slock.LeaseDuration, again)
		require.EqualValues(t, 2, token)
		require.GreaterOrEqual(t, time.Since(renewed), k8slock.LeaseDuration, "as long as any other process waits")
		again.stop()
		receive(t, again.stopped, time.Second, "the elector's end")
		require.Equal(t, []string{"acquired", "released", "acquired", "released"}, seen.seen())
	})
}

// TestGivingUpIsALoss lets client-go give up because the store cannot be reached. That counts as a
// loss, not as a stop.
func TestGivingUpIsALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plug, ref, seen := teststore.New(leasehold.NewMemStore(), nil), &referee{t: t}, &events{}
		pod := stand(t, ref, "pod", newLock(t, plug, k8slock.LeaseDuration, leasehold.WithObserver(seen.observe)),
			keepLease)
		next(t, time.Second, pod)
		time.Sleep(time.Minute)
		plug.Fail(errUnplugged)
		receive(t, pod.stopped, k8slock.LeaseDuration, "the elector's end")
		time.Sleep(k8slock.LeaseDuration)
		require.Equal(t, []string{"acquired", "lost, expired"}, seen.seen())
	})
}
