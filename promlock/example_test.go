package promlock_test

import (
	"context"
	"log"
	"os"
	"regexp"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
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

func TestReadmeCode(t *testing.T) {
	prometheus.DefaultRegisterer = prometheus.NewRegistry() // a new one, because this test may run more than once
	lock, err := readme(leasehold.NewMemStore())
	require.NoError(t, err)
	require.NoError(t, lock.Do(t.Context(), func(context.Context, *leasehold.Lease) error { return nil }))
	block := regexp.MustCompile("(?s)```go\n(.*?)```").FindStringSubmatch(read(t, "README.md"))
	require.NotNil(t, block)
	indent := regexp.MustCompile(`(?m)^\s+`)
	require.Contains(t, indent.ReplaceAllString(read(t, "example_test.go"), ""), indent.ReplaceAllString(block[1], ""))
}
