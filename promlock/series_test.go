package promlock_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/observertest"
	"github.com/leasehold-go/leasehold/promlock"
)

// elected is what an elector exports that has led for ten minutes, and has never failed.
func elected(t *testing.T, opts ...promlock.Option) prometheus.Gatherer {
	registry := prometheus.NewPedanticRegistry()
	synctest.Test(t, func(t *testing.T) {
		collector := promlock.New(opts...)
		require.NoError(t, registry.Register(collector))
		alice := observertest.NewProcess(t, leasehold.NewMemStore(), collector.Observe, nil)
		stop := alice.Elect("alice")
		time.Sleep(10 * time.Minute)
		stop()
	})
	return registry
}

// series are the time series that a Prometheus makes of metrics, which takes native histograms or
// does not.
func series(t *testing.T, from prometheus.Gatherer, native bool) (n int) {
	t.Helper()
	families, err := from.Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, m := range f.Metric {
			switch h := m.Histogram; {
			case h == nil, native && h.Schema != nil:
				n++
			default:
				n += len(h.Bucket) + 3 // the bucket +Inf, count and sum
			}
		}
	}
	return n
}

// The package's comment and the page say how many series there are.
func TestSeriesOfAnElector(t *testing.T) {
	classic, native := elected(t), elected(t, promlock.WithNativeHistograms())
	want := []int{series(t, classic, true), series(t, native, true), series(t, native, false)}
	require.Equal(t, want[0], series(t, classic, false), "no native histogram beside the buckets")
	comments := regexp.MustCompile(`(?m)^// ?`)
	for _, page := range []string{comments.ReplaceAllString(read(t, "promlock.go"), ""), read(t, "README.md")} {
		page = strings.Join(strings.Fields(page), " ")
		for i, said := range []string{
			"makes %d series, of which", "the elector makes %d series where native histograms are scraped",
			"and %d elsewhere",
		} {
			require.Contains(t, page, fmt.Sprintf(said, want[i]))
		}
	}
}

// A native histogram has what the buckets have: each observation.
func TestNativeHistograms(t *testing.T) {
	families, err := elected(t, promlock.WithNativeHistograms()).Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, m := range f.Metric {
			if m.Histogram == nil {
				continue
			}
			require.Empty(t, m.Histogram.Bucket, f.GetName())
			counted, last := m.Histogram.GetZeroCount(), int64(0)
			for _, delta := range m.Histogram.PositiveDelta {
				last += delta
				counted += uint64(last)
			}
			require.Equal(t, m.Histogram.GetSampleCount(), counted, f.GetName())
		}
	}
}

func BenchmarkObserve(b *testing.B) {
	for name, opts := range map[string][]promlock.Option{"classic": nil, "native": {promlock.WithNativeHistograms()}} {
		b.Run(name, func(b *testing.B) {
			collector := promlock.New(opts...)
			b.ReportAllocs()
			for i := range b.N {
				collector.Observe(context.Background(), leasehold.Event{
					Kind: leasehold.EventRequest, Key: key, Op: "update",
					Duration: time.Duration(i%100) * time.Millisecond,
				})
			}
		})
	}
}

func BenchmarkGather(b *testing.B) {
	for name, opts := range map[string][]promlock.Option{"classic": nil, "native": {promlock.WithNativeHistograms()}} {
		b.Run(name, func(b *testing.B) {
			collector, registry := promlock.New(opts...), prometheus.NewRegistry()
			registry.MustRegister(collector)
			for i := range 1000 {
				for _, kind := range []leasehold.EventKind{
					leasehold.EventRequest, leasehold.EventAcquired, leasehold.EventRenewed,
				} {
					collector.Observe(context.Background(), leasehold.Event{
						Kind: kind, Key: key, Op: "update", Duration: time.Duration(i%100) * time.Millisecond,
					})
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := registry.Gather(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
