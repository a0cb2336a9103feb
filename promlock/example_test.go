package promlock_test

import (
	"context"
	"log"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/promlock"
	"github.com/leasehold-go/leasehold/shards"
)

// The code in README.md; TestReadmeCode compares the two.
func readme(store leasehold.Store) (*leasehold.Lock, error) {
	metrics := promlock.New() // one for all locks and groups of the process
	if err := prometheus.Register(metrics); err != nil {
		return nil, err
	}
	return leasehold.NewLock(store, "locks/reports", leasehold.WithObserver(metrics.Observe))
}

func sessionAlone(store leasehold.Store, metrics *promlock.Collector) (session *leasehold.Session, lock *leasehold.Lock, err error) {
	const key = "sessions/pod-1"
	session, err = leasehold.NewSession(store, key, leasehold.WithObserver(func(e leasehold.Event) {
		if e.Key == key {
			metrics.Observe(e)
		}
	}))
	if err != nil {
		return nil, nil, err
	}
	lock, err = session.Lock("tenants/4711", leasehold.WithObserver(metrics.Observe)) // of the few that matter
	return session, lock, err
}

func groupWithItsLocks(store leasehold.Store, metrics *promlock.Collector, pod string,
	work func(context.Context, shards.Shard) error) (*shards.Group, error) {
	const prefix = "workers"
	return shards.New(store, prefix, shards.Count(64), work,
		shards.WithMember(pod),
		shards.WithObserver(metrics.ObserveShards),
		shards.WithLockOptions(leasehold.WithObserver(func(e leasehold.Event) {
			if e.Key == prefix+"/members/"+pod || e.Key == prefix+"/planner" {
				metrics.Observe(e)
			}
		})))
}

// The code in docs/shards.md, which a test of package docs compares.
func group(store leasehold.Store, pod string, work func(context.Context, shards.Shard) error) (*shards.Group, error) {
	metrics := promlock.New()
	if err := prometheus.Register(metrics); err != nil {
		return nil, err
	}
	return shards.New(store, "workers", shards.Count(64), work, shards.WithMember(pod), shards.WithObserver(metrics.ObserveShards))
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

func ExampleCollector_ObserveShards() {
	metrics, registry := promlock.New(), prometheus.NewRegistry()
	registry.MustRegister(metrics)
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	group, err := shards.New(leasehold.NewMemStore(), "workers", shards.Count(1), func(context.Context, shards.Shard) error {
		defer stop()
		families, err := registry.Gather() // a service serves promhttp.Handler() instead
		if err != nil {
			return err
		}
		for _, f := range families {
			if name := f.GetName(); name == "leasehold_shards_owned" || name == "leasehold_shards_started_total" {
				if _, err := expfmt.MetricFamilyToText(os.Stdout, f); err != nil {
					return err
				}
			}
		}
		return nil
	}, shards.WithMember("pod-1"), shards.WithTTL(500*time.Millisecond), shards.WithObserver(metrics.ObserveShards))
	if err != nil {
		log.Fatal(err)
	}
	if err := group.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// # HELP leasehold_shards_owned Shards that this member owns, until their handlers have returned.
	// # TYPE leasehold_shards_owned gauge
	// leasehold_shards_owned{member="pod-1",prefix="workers"} 1
	// # HELP leasehold_shards_started_total Shards that this member has begun to own.
	// # TYPE leasehold_shards_started_total counter
	// leasehold_shards_started_total{member="pod-1",prefix="workers"} 1
}

func TestReadmeCode(t *testing.T) {
	prometheus.DefaultRegisterer = prometheus.NewRegistry() // a new one, because this test may run more than once
	lock, err := readme(leasehold.NewMemStore())
	require.NoError(t, err)
	require.NoError(t, lock.Do(t.Context(), func(context.Context, *leasehold.Lease) error { return nil }))
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(read(t, "README.md"), -1)
	require.Len(t, blocks, 3)
	indent := regexp.MustCompile(`(?m)^\s+`)
	for _, block := range blocks {
		require.Contains(t, indent.ReplaceAllString(read(t, "example_test.go"), ""), indent.ReplaceAllString(block[1], ""))
	}
}
