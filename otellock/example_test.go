package otellock_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/otellock"
)

// The code in README.md; TestReadmeCode compares the two.
func readme(store leasehold.Store) (*leasehold.Lock, error) {
	observer, err := otellock.New() // one for all locks of the process
	if err != nil {
		return nil, err
	}
	return leasehold.NewLock(store, "locks/reports", leasehold.WithObserver(observer.Observe))
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

func TestReadmeCode(t *testing.T) {
	lock, err := readme(leasehold.NewMemStore())
	require.NoError(t, err)
	require.NoError(t, lock.Do(t.Context(), func(context.Context, *leasehold.Lease) error { return nil }))
	page, err := os.ReadFile("README.md")
	require.NoError(t, err)
	code, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	block := regexp.MustCompile("(?s)```go\n(.*?)```").FindSubmatch(page)
	require.NotNil(t, block)
	indent := regexp.MustCompile(`(?m)^\s+`)
	require.Contains(t, indent.ReplaceAllString(string(code), ""), indent.ReplaceAllString(string(block[1]), ""))
}
