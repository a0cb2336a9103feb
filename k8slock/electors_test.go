package k8slock_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
	"github.com/leasehold-go/leasehold/k8slock"
)

// noted is a Lock that keeps the errors that it returns to client-go, which logs them.
type noted struct {
	*k8slock.Lock
	mu   sync.Mutex
	errs []string
}

func (n *noted) note(err error) error {
	if err != nil {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.errs = append(n.errs, err.Error())
	}
	return err
}

func (n *noted) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return n.note(n.Lock.Create(ctx, r))
}

func (n *noted) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return n.note(n.Lock.Update(ctx, r))
}

func (n *noted) count(text string) (found int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, e := range n.errs {
		if e == text {
			found++
		}
	}
	return found
}

type edit = func(*leaderelection.LeaderElectionConfig)

func (n *noted) use(cfg *leaderelection.LeaderElectionConfig) { cfg.Lock = n }

const sameLock = `k8slock: lock "` + key + `": lock is held by another elector ` +
	`that uses the same k8slock.Lock (make a Lock for each elector, with New)`

// Two electors of one process share a Lock by mistake. The second is refused for as long as the
// first leads, and may lead after it.
func TestSecondElectorOfALock(t *testing.T) {
	for name, options := range map[string][]edit{"release on cancel": nil, "keep the lease": {keepLease}} {
		t.Run(name, func(t *testing.T) {
			for _, later := range []time.Duration{0, time.Nanosecond, 5 * time.Minute} {
				synctest.Test(t, func(t *testing.T) {
					plug, ref := teststore.New(leasehold.NewMemStore(), nil), &referee{t: t}
					lock := newLock(t, plug, k8slock.LeaseDuration)
					a := &noted{Lock: lock}
					first := stand(t, ref, "first", lock, append(options, a.use)...)
					time.Sleep(later)
					b := &noted{Lock: lock}
					second := stand(t, ref, "second", lock, append(options, b.use)...)
					leader, token := next(t, time.Minute, first, second)
					waiting, refusals := second, b
					if leader == second {
						waiting, refusals = first, a
					}
					require.EqualValues(t, 1, token)
					time.Sleep(10 * time.Minute)
					require.Empty(t, waiting.started)
					require.Greater(t, refusals.count(sameLock), 10, "at each try: %q", refusals.errs)

					plug.Fail(errUnplugged) // the leader's renewals fail for a while, and it looks at the lock again
					time.Sleep(25 * time.Second)
					plug.Fail(nil)
					time.Sleep(10 * time.Minute)
					require.Empty(t, waiting.started)
					require.EqualValues(t, 1, lock.Token(), "still the same term")

					leader.stop()
					receive(t, leader.stopped, time.Minute, "the elector's end")
					_, token = next(t, 3*k8slock.LeaseDuration, waiting)
					require.EqualValues(t, 2, token)
					time.Sleep(10 * time.Minute)
					require.EqualValues(t, 2, lock.Token())
					waiting.stop()
					receive(t, waiting.stopped, time.Minute, "the elector's end")
				})
			}
		})
	}
}

// An elector that has led runs again, and believes that it still leads, while another leads with
// the same Lock.
func TestElectorThatHasLedRunsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock := newLock(t, leasehold.NewMemStore(), time.Minute)
		old, cancelOld := context.WithCancel(t.Context())
		defer cancelOld()
		now := asked(lock, time.Minute)
		now.AcquireTime.Time = time.Now()
		require.NoError(t, lock.Create(old, now))
		require.NoError(t, lock.Update(old, release))

		time.Sleep(time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		newer := now
		newer.AcquireTime.Time = time.Now()
		require.NoError(t, lock.Update(ctx, newer))
		require.EqualValues(t, 2, lock.Token())

		again, cancelAgain := context.WithCancel(t.Context())
		defer cancelAgain()
		require.EqualError(t, lock.Update(again, now), sameLock)
		ler, _, err := lock.Get(again)
		require.NoError(t, err)
		require.Empty(t, ler.HolderIdentity, "or it would go on as the leader")
		ler, _, err = lock.Get(context.Background())
		require.NoError(t, err)
		require.Equal(t, lock.Identity(), ler.HolderIdentity, "who only looks sees who leads")
		require.ErrorIs(t, lock.Update(again, newer), leasehold.ErrHeld, "the same instant")

		renewal, cancelRenewal := context.WithCancel(t.Context())
		defer cancelRenewal()
		require.NoError(t, lock.Update(renewal, newer))
	})
}
