package k8slock_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/k8slock"
)

// docs/integrations.md and docs/migrate.md contain this file's functions that are not tests.

func elect(ctx context.Context, store leasehold.Store, work func(ctx context.Context, token uint64)) error {
	lock, err := k8slock.New(store, "leaders/my-operator", k8slock.LeaseDuration)
	if err != nil {
		return err
	}
	leaderelection.RunOrDie(ctx, lock.Config(leaderelection.LeaderCallbacks{
		OnStartedLeading: lock.OnStartedLeading(func(ctx context.Context, lease *leasehold.Lease) {
			work(ctx, lease.Token())
		}),
		OnStoppedLeading: func() {},
	}))
	return nil // ctx has ended, or the leadership was lost
}

func newManager(cfg *rest.Config, store leasehold.Store, opts manager.Options) (manager.Manager, *k8slock.Lock, error) {
	lock, err := k8slock.New(store, "leaders/my-operator", k8slock.LeaseDuration)
	if err != nil {
		return nil, nil, err
	}
	opts.LeaderElection = true // or the lock is ignored
	opts.LeaderElectionResourceLockInterface = lock
	opts.LeaseDuration = new(k8slock.LeaseDuration)
	opts.RenewDeadline = new(k8slock.RenewDeadline)
	opts.RetryPeriod = new(k8slock.RetryPeriod)
	mgr, err := manager.New(cfg, opts)
	return mgr, lock, err // reconcilers take lock.Token() for fenced writes
}

// leadWithBoth leads only while it holds both locks. It acquires the old one first.
func leadWithBoth(ctx context.Context, old, next leaderelection.LeaderElectionConfig) {
	old.Callbacks.OnStartedLeading = func(ctx context.Context) { leaderelection.RunOrDie(ctx, next) }
	leaderelection.RunOrDie(ctx, old)
}

func Example() {
	ctx, cancel := context.WithTimeout(klog.NewContext(context.Background(), logr.Discard()), 30*time.Second)
	defer cancel()
	done := make(chan struct{})
	err := elect(ctx, leasehold.NewMemStore(), func(ctx context.Context, token uint64) {
		defer close(done)
		fmt.Println("leading with token", token)
		cancel() // the process is told to stop
		<-ctx.Done()
	})
	select {
	case <-done:
	case <-time.After(10 * time.Second):
	}
	fmt.Println(err)
	// Output:
	// leading with token 1
	// <nil>
}

func TestManagerOfTheGuide(t *testing.T) {
	mgr, lock, err := newManager(&rest.Config{Host: "http://127.0.0.1:1"}, leasehold.NewMemStore(),
		manager.Options{Logger: logr.Discard()})
	require.NoError(t, err)
	require.NotNil(t, mgr)
	require.Zero(t, lock.Token())
}

// TestMigration overlaps the versions of three releases: the old lock alone, both locks, the new
// lock alone.
func TestMigration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, after, ref := leasehold.NewMemStore(), leasehold.NewMemStore(), &referee{t: t}
		config := func(store leasehold.Store, lead func(context.Context)) leaderelection.LeaderElectionConfig {
			cfg := newLock(t, store, 15*time.Second).Config(leaderelection.LeaderCallbacks{
				OnStartedLeading: lead,
				OnStoppedLeading: func() {},
			})
			cfg.ReleaseOnCancel = true
			return cfg
		}
		tokens := uint64(0) // not a lock's tokens, because two locks are involved: the referee only sees who leads
		leads := make(chan string, 9)
		lead := func(name string) func(context.Context) {
			return func(ctx context.Context) {
				tokens++
				ref.begin(name, tokens)
				leads <- name
				<-ctx.Done()
				ref.end(name)
			}
		}
		start := func(run func(context.Context)) context.CancelFunc {
			ctx, cancel := quiet(t)
			go run(ctx)
			t.Cleanup(cancel)
			return cancel
		}
		only := func(name string, store leasehold.Store) context.CancelFunc {
			return start(func(ctx context.Context) { leaderelection.RunOrDie(ctx, config(store, lead(name))) })
		}
		both := func(name string) context.CancelFunc {
			return start(func(ctx context.Context) {
				leadWithBoth(ctx, config(before, func(context.Context) {}), config(after, lead(name)))
			})
		}
		calm := func() { time.Sleep(5 * time.Minute); synctest.Wait() }

		v1 := only("v1", before)
		require.Equal(t, "v1", receive(t, leads, 10*time.Minute, "the next leader"))
		v2 := both("v2")
		calm()
		require.Empty(t, leads, "v1 leads")
		v1()
		require.Equal(t, "v2", receive(t, leads, 10*time.Minute, "the next leader"))
		back := only("v1 again", before) // a rollback
		calm()
		require.Empty(t, leads, "v2 leads")
		back()
		v3 := only("v3", after)
		calm()
		require.Empty(t, leads, "v2 leads")
		v2()
		require.Equal(t, "v3", receive(t, leads, 10*time.Minute, "the next leader"))
		v2 = both("v2 again")
		calm()
		require.Empty(t, leads, "v3 leads")
		v3()
		require.Equal(t, "v2 again", receive(t, leads, 10*time.Minute, "the next leader"))
		v2()
		calm()
	})
}
