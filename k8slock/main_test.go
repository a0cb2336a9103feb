package k8slock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/klog/v2"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
	"github.com/leasehold-go/leasehold/k8slock"
)

const key = "leaders/test"

type withServers struct{ m *testing.M }

func (w withServers) Run() int { return testserver.Main(w.m) }

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(withServers{m})
}

// quiet returns a context with which client-go does not log.
func quiet(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithCancel(klog.NewContext(t.Context(), logr.Discard()))
}

func newLock(t *testing.T, store leasehold.Store, d time.Duration, opts ...leasehold.Option) *k8slock.Lock {
	t.Helper()
	lock, err := k8slock.New(store, key, d, opts...)
	require.NoError(t, err)
	return lock
}

// referee fails the test if two lead at once or if a token does not rise.
type referee struct {
	t     *testing.T
	mu    sync.Mutex
	who   string
	token uint64
	terms []string
}

func (r *referee) begin(who string, token uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.who != "" {
		r.t.Errorf("%s starts to lead with token %d while %s leads with %d", who, token, r.who, r.token)
	}
	if token <= r.token {
		r.t.Errorf("%s leads with token %d after %d", who, token, r.token)
	}
	r.who, r.token, r.terms = who, token, append(r.terms, who)
}

func (r *referee) end(who string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.who == who {
		r.who = ""
	}
}

// candidate is one client-go elector.
type candidate struct {
	lock    *k8slock.Lock
	started chan uint64 // tokens
	ended   chan error  // why the leading context ended
	stop    context.CancelFunc
	stopped chan struct{} // Run has returned
}

// stand runs an elector until it stops by itself or is stopped.
func stand(t *testing.T, ref *referee, name string, lock *k8slock.Lock,
	edit ...func(*leaderelection.LeaderElectionConfig)) *candidate {
	t.Helper()
	c := &candidate{lock: lock, started: make(chan uint64, 9), ended: make(chan error, 9), stopped: make(chan struct{})}
	cfg := lock.Config(leaderelection.LeaderCallbacks{
		OnStartedLeading: lock.OnStartedLeading(func(ctx context.Context, lease *leasehold.Lease) {
			ref.begin(name, lease.Token())
			if got := lock.Token(); got != lease.Token() {
				t.Errorf("%s: Token is %d inside OnStartedLeading, the lease's %d", name, got, lease.Token())
			}
			c.started <- lease.Token()
			<-ctx.Done()
			ref.end(name)
			c.ended <- context.Cause(ctx)
		}),
		OnStoppedLeading: func() {},
	})
	cfg.ReleaseOnCancel = true
	for _, f := range edit {
		f(&cfg)
	}
	elector, err := leaderelection.NewLeaderElector(cfg)
	require.NoError(t, err)
	ctx, cancel := quiet(t)
	c.stop = cancel
	go func() {
		defer close(c.stopped)
		elector.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-c.stopped
	})
	return c
}

// next returns the first candidate that leads, and its token.
func next(t *testing.T, within time.Duration, candidates ...*candidate) (*candidate, uint64) {
	t.Helper()
	deadline := time.Now().Add(within)
	for time.Now().Before(deadline) {
		for _, c := range candidates {
			select {
			case token := <-c.started:
				return c, token
			default:
			}
		}
		time.Sleep(10 * time.Millisecond) // between polls
	}
	t.Fatalf("nobody leads within %v", within)
	return nil, 0
}

func receive[T any](t *testing.T, c <-chan T, within time.Duration, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(within):
		t.Fatalf("%s did not come within %v", what, within)
		panic("unreachable")
	}
}

// callbacks is for tests that need a configuration but no elector.
var callbacks = leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {}}
