package otellock_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/otellock"
	"github.com/leasehold-go/leasehold/shards"
)

// The code in README.md; TestReadmeCode compares the two.
func readme(store leasehold.Store) (*leasehold.Lock, error) {
	observer, err := otellock.New() // one for all locks and groups of the process
	if err != nil {
		return nil, err
	}
	return leasehold.NewLock(store, "locks/reports", leasehold.WithObserver(observer.Observe))
}

func sessionAlone(store leasehold.Store, observer *otellock.Observer) (session *leasehold.Session, lock *leasehold.Lock, err error) {
	const key = "sessions/pod-1"
	session, err = leasehold.NewSession(store, key, leasehold.WithObserver(func(e leasehold.Event) {
		if e.Key == key {
			observer.Observe(e)
		}
	}))
	if err != nil {
		return nil, nil, err
	}
	lock, err = session.Lock("tenants/4711", leasehold.WithObserver(observer.Observe)) // of the few that matter
	return session, lock, err
}

func groupWithItsLocks(store leasehold.Store, observer *otellock.Observer, pod string,
	work func(context.Context, shards.Shard) error) (*shards.Group, error) {
	const prefix = "workers"
	return shards.New(store, prefix, shards.Count(64), work,
		shards.WithMember(pod),
		shards.WithObserver(observer.ObserveShards),
		shards.WithLockOptions(leasehold.WithObserver(func(e leasehold.Event) {
			if e.Key == prefix+"/members/"+pod || e.Key == prefix+"/planner" {
				observer.Observe(e)
			}
		})))
}

func Example() {
	reader := sdkmetric.NewManualReader() // a service uses an exporter, and sets the global providers
	observer, err := otellock.New(otellock.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))))
	if err != nil {
		log.Fatal(err)
	}
	lock, err := leasehold.NewLock(leasehold.NewMemStore(), "locks/reports", leasehold.WithObserver(observer.Observe))
	if err != nil {
		log.Fatal(err)
	}
	err = lock.Do(context.Background(), func(ctx context.Context, lease *leasehold.Lease) error {
		var all metricdata.ResourceMetrics
		if err := reader.Collect(ctx, &all); err != nil {
			return err
		}
		for _, m := range all.ScopeMetrics[0].Metrics {
			if g, ok := m.Data.(metricdata.Gauge[int64]); ok {
				fmt.Println(m.Name, g.DataPoints[0].Value)
			}
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Unordered output:
	// leasehold.leader 1
	// leasehold.token 1
}

func ExampleObserver_ObserveShards() {
	reader := sdkmetric.NewManualReader() // a service uses an exporter, and sets the global providers
	observer, err := otellock.New(otellock.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))))
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	group, err := shards.New(leasehold.NewMemStore(), "workers", shards.Count(1), func(ctx context.Context, _ shards.Shard) error {
		defer stop()
		var all metricdata.ResourceMetrics
		if err := reader.Collect(ctx, &all); err != nil {
			return err
		}
		for _, m := range all.ScopeMetrics[0].Metrics {
			if m.Name == "leasehold.shards.owned" {
				fmt.Println(m.Name, m.Data.(metricdata.Gauge[int64]).DataPoints[0].Value)
			}
		}
		return nil
	}, shards.WithTTL(500*time.Millisecond), shards.WithObserver(observer.ObserveShards))
	if err != nil {
		log.Fatal(err)
	}
	if err := group.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: leasehold.shards.owned 1
}

func TestReadmeCode(t *testing.T) {
	lock, err := readme(leasehold.NewMemStore())
	require.NoError(t, err)
	require.NoError(t, lock.Do(t.Context(), func(context.Context, *leasehold.Lease) error { return nil }))
	page, err := os.ReadFile("README.md")
	require.NoError(t, err)
	code, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	require.Len(t, blocks, 3)
	indent := regexp.MustCompile(`(?m)^\s+`)
	for _, block := range blocks {
		require.Contains(t, indent.ReplaceAllString(string(code), ""), indent.ReplaceAllString(block[1], ""))
	}
}
