package promlock_test

import (
	"context"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/promlock"
)

// The code in README.md; TestReadmeCode compares the two.
func readme(store leasehold.Store) (*leasehold.Lock, error) {
	metrics := promlock.New() // one for all locks of the process
	if err := prometheus.Register(metrics); err != nil {
		return nil, err
	}
	return leasehold.NewLock(store, "locks/reports", leasehold.WithObserver(metrics.Observe))
}

// serve campaigns, and answers Prometheus and Kubernetes, until ctx ends.
func serve(ctx context.Context, store leasehold.Store, listener net.Listener) error {
	metrics := promlock.New() // one for all locks of the process
	if err := prometheus.Register(metrics); err != nil {
		return err
	}
	lock, err := leasehold.NewLock(store, "locks/reports",
		leasehold.WithLogger(slog.Default()), leasehold.WithObserver(metrics.Observe))
	if err != nil {
		return err
	}
	elector, err := leasehold.NewElector(lock, leasehold.Callbacks{OnStartedLeading: work})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.Handler())
	mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {}) // 200, whoever leads
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, r *http.Request) {
		if err := elector.Check(r); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	ctx, cancel := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() {
		defer cancel() // a process that cannot serve must not lead
		served <- server.Serve(listener)
	}()
	err = elector.Run(ctx) // when it returns, work has returned and the lock is released
	drain, cancelDrain := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancelDrain()
	err = errors.Join(err, server.Shutdown(drain))
	if failure := <-served; !errors.Is(failure, http.ErrServerClosed) {
		err = errors.Join(err, failure)
	}
	return err
}

var leads chan struct{} // work has begun; has room for one more

func work(ctx context.Context, _ *leasehold.Lease) {
	leads <- struct{}{}
	<-ctx.Done()
}

func Example() {
	metrics, registry := promlock.New(), prometheus.NewRegistry()
	registry.MustRegister(metrics)
	lock, err := leasehold.NewLock(leasehold.NewMemStore(), "locks/reports", leasehold.WithObserver(metrics.Observe))
	if err != nil {
		log.Fatal(err)
	}
	err = lock.Do(context.Background(), func(context.Context, *leasehold.Lease) error {
		families, err := registry.Gather() // a service serves promhttp.Handler() instead
		if err != nil {
			return err
		}
		for _, f := range families {
			if name := f.GetName(); name == "leasehold_leader" || name == "leasehold_token" {
				if _, err := expfmt.MetricFamilyToText(os.Stdout, f); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// # HELP leasehold_leader 1 if this process holds the lock, else 0.
	// # TYPE leasehold_leader gauge
	// leasehold_leader{key="locks/reports"} 1
	// # HELP leasehold_token The highest fencing token seen.
	// # TYPE leasehold_token gauge
	// leasehold_token{key="locks/reports"} 1
}

// newRegistry makes a new default registry, because a test may run more than once.
func newRegistry() {
	registry := prometheus.NewRegistry()
	prometheus.DefaultRegisterer, prometheus.DefaultGatherer = registry, registry
}

// serve is word for word in docs/production.md: a test of the root compares them.
func TestServiceOfThePage(t *testing.T) {
	newRegistry()
	leads = make(chan struct{}, 1)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	get := func(path string) string {
		reply, err := http.Get("http://" + listener.Addr().String() + path)
		require.NoError(t, err)
		defer reply.Body.Close()
		require.Equal(t, http.StatusOK, reply.StatusCode, path)
		body, err := io.ReadAll(reply.Body)
		require.NoError(t, err)
		return string(body)
	}
	store := leasehold.NewMemStore()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, store, listener) }()
	select {
	case <-leads:
	case err := <-ended:
		require.NoError(t, err, "serve has ended")
	}
	require.Contains(t, get("/metrics"), "\nleasehold_leader{key=\"locks/reports\"} 1\n")
	get("/readyz")
	get("/livez")
	cancel() // as at SIGTERM
	require.NoError(t, <-ended)
	lock, err := leasehold.NewLock(store, "locks/reports")
	require.NoError(t, err)
	record, err := lock.Inspect(t.Context())
	require.NoError(t, err)
	require.True(t, record.Released())
	http.DefaultClient.CloseIdleConnections()

	newRegistry()
	require.ErrorIs(t, serve(t.Context(), store, listener), net.ErrClosed) // as Shutdown has closed it
}

func TestReadmeCode(t *testing.T) {
	newRegistry()
	lock, err := readme(leasehold.NewMemStore())
	require.NoError(t, err)
	require.NoError(t, lock.Do(t.Context(), func(context.Context, *leasehold.Lease) error { return nil }))
	block := regexp.MustCompile("(?s)```go\n(.*?)```").FindStringSubmatch(read(t, "README.md"))
	require.NotNil(t, block)
	indent := regexp.MustCompile(`(?m)^\s+`)
	require.Contains(t, indent.ReplaceAllString(read(t, "example_test.go"), ""), indent.ReplaceAllString(block[1], ""))
}
