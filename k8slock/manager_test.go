package k8slock_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
	"github.com/leasehold-go/leasehold/k8slock"
)

// TestManagers runs two real managers at a time, each with its own cluster, that share one
// leadership. Nothing that they do here needs the API server. It answers 404, and the test fails if
// a manager sends it a request.
func TestManagers(t *testing.T) {
	t.Parallel()
	log.SetLogger(logr.Discard())
	server := testserver.MinIO(t)
	bucket, ref := server.Bucket(t), &referee{t: t}
	type member struct {
		lock    *k8slock.Lock
		mgr     manager.Manager
		leading chan uint64
		stop    context.CancelFunc
		done    chan error
	}
	join := func(name string) member {
		cluster := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			t.Errorf("%s sent its API server a request: %s %s", name, r.Method, r.URL)
			http.NotFound(w, r)
		}))
		t.Cleanup(cluster.Close)
		store, _ := behind(t, server, bucket, nil)
		m := member{lock: newLock(t, store, lease), leading: make(chan uint64, 1), done: make(chan error, 1)}
		timing := m.lock.Config(callbacks)
		var err error
		m.mgr, err = manager.New(&rest.Config{Host: cluster.URL}, manager.Options{
			LeaderElection:                      true,
			LeaderElectionResourceLockInterface: m.lock,
			LeaseDuration:                       &timing.LeaseDuration,
			RenewDeadline:                       &timing.RenewDeadline,
			RetryPeriod:                         &timing.RetryPeriod,
			LeaderElectionReleaseOnCancel:       true,
			Metrics:                             metricsserver.Options{BindAddress: "0"},
			Logger:                              logr.Discard(),
		})
		require.NoError(t, err)
		require.NoError(t, m.mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
			token := m.lock.Token() // as a reconciler would read it, for its fenced writes
			ref.begin(name, token)
			m.leading <- token
			<-ctx.Done()
			ref.end(name)
			return nil
		})))
		ctx, cancel := context.WithCancel(t.Context())
		m.stop = cancel
		go func() { m.done <- m.mgr.Start(ctx) }()
		t.Cleanup(cancel)
		return m
	}
	leader := join("east")
	require.EqualValues(t, 1, receive(t, leader.leading, 2*lease, "the first manager's runnable"))
	for want := uint64(2); want < 4; want++ {
		waiting := join(fmt.Sprint("west-", want))
		time.Sleep(2 * lease) // long enough to take over if the lease were not renewed
		select {
		case <-waiting.mgr.Elected():
			t.Fatal("two managers lead")
		default:
		}
		require.Empty(t, waiting.leading)
		leader.stop()
		require.NoError(t, receive(t, leader.done, lease, "the manager's end"))
		require.Equal(t, want, receive(t, waiting.leading, 2*lease, "the next manager's runnable"))
		leader = waiting
	}
	leader.stop()
	require.NoError(t, receive(t, leader.done, lease, "the manager's end"))
}
