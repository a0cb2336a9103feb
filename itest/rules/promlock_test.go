package rules

import (
	"context"
	"fmt"
	"math"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/leaderelection"
	controllerruntime "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
	"github.com/leasehold-go/leasehold/k8slock"
	"github.com/leasehold-go/leasehold/promlock"
)

// controller-runtime's registry has its own metrics of leadership; promlock's must fit in beside
// them.
func TestBesideControllerRuntime(t *testing.T) {
	collector := promlock.New()
	require.NoError(t, controllerruntime.Registry.Register(collector))
	lock, err := k8slock.New(leasehold.NewMemStore(), "leaders/operator", k8slock.LeaseDuration,
		leasehold.WithObserver(collector.Observe))
	require.NoError(t, err)
	leading := make(chan struct{})
	cfg := lock.Config(leaderelection.LeaderCallbacks{
		OnStartedLeading: func(context.Context) { close(leading) },
		OnStoppedLeading: func() {},
	})
	cfg.ReleaseOnCancel = true
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() { defer close(stopped); leaderelection.RunOrDie(ctx, cfg) }()
	<-leading
	page := httptest.NewRecorder()
	promhttp.HandlerFor(controllerruntime.Registry, promhttp.HandlerOpts{}).ServeHTTP(page,
		httptest.NewRequest("GET", "/metrics", nil))
	cancel()
	<-stopped
	require.Equal(t, 200, page.Code, page.Body)
	require.Contains(t, page.Body.String(), "\nleasehold_leader{key=\"leaders/operator\"} 1\n")
	require.Contains(t, page.Body.String(), "\nleader_election_master_status{name=\"leaders/operator\"} 1\n",
		"controller-runtime's own")
}

// history has the samples of each series, one a scrape, and "_" for none.
type history map[string][]string

// vanish ends the series of an instance that is not there any more at scrape n. Prometheus marks
// them as stale if it sees the target go.
func (h history) vanish(n int, instance string) {
	for name, values := range h {
		if strings.Contains(name, fmt.Sprintf("{instance=%q", instance)) && len(values) == n {
			h[name] = append(values, "stale")
		}
	}
}

// scrape adds a scrape of each instance after n others.
func (h history) scrape(t *testing.T, n int, instances map[string]*prometheus.Registry) {
	t.Helper()
	for instance, registry := range instances {
		families, err := registry.Gather()
		require.NoError(t, err)
		for _, f := range families {
			for _, m := range f.Metric {
				labels := []string{fmt.Sprintf("instance=%q", instance)}
				for _, l := range m.Label {
					labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
				}
				add := func(suffix string, value float64, more ...string) {
					name := f.GetName() + suffix + "{" + strings.Join(append(slices.Clone(labels), more...), ",") + "}"
					h[name] = append(h[name], slices.Repeat([]string{"_"}, n-len(h[name]))...)
					h[name] = append(h[name], fmt.Sprint(value))
				}
				switch h := m.Histogram; {
				case h != nil:
					for _, b := range h.Bucket {
						add("_bucket", float64(b.GetCumulativeCount()),
							fmt.Sprintf("le=%q", fmt.Sprint(b.GetUpperBound())))
					}
					add("_bucket", float64(h.GetSampleCount()), fmt.Sprintf("le=%q", fmt.Sprint(math.Inf(1))))
					add("_sum", h.GetSampleSum())
					add("_count", float64(h.GetSampleCount()))
				case m.Gauge != nil:
					add("", m.Gauge.GetValue())
				default:
					add("", m.Counter.GetValue())
				}
			}
		}
	}
}

// story returns the series of leasehold.
func (h history) story(t *testing.T) string {
	t.Helper()
	var lines []string
	for name, values := range h {
		if strings.HasPrefix(name, "leasehold_") {
			lines = append(lines, name+" "+strings.Join(values, " "))
		}
	}
	require.NotEmpty(t, lines)
	return strings.Join(lines, "\n")
}

// scrapes returns the series of an elector that leads for half an hour, with a scrape every 30 s.
func scrapes(t *testing.T, ttl, request time.Duration) string {
	t.Helper()
	series := history{}
	synctest.Test(t, func(t *testing.T) {
		collector, registry := promlock.New(), prometheus.NewRegistry()
		require.NoError(t, registry.Register(collector))
		mem := leasehold.NewMemStore()
		slow := teststore.New(mem, func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
			if r.Op == teststore.Update {
				select {
				case <-time.After(request):
				case <-ctx.Done():
					return leasehold.Object{}, ctx.Err()
				}
			}
			return r.Send(ctx)
		})
		lock, err := leasehold.NewLock(slow, "k", leasehold.WithTTL(ttl),
			leasehold.WithObserver(collector.Observe))
		require.NoError(t, err)
		elector, err := leasehold.NewElector(lock, leasehold.Callbacks{})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- elector.Run(ctx) }()
		for n := range 61 {
			time.Sleep(30 * time.Second)
			series.scrape(t, n, map[string]*prometheus.Registry{"a": registry})
		}
		cancel()
		require.NoError(t, <-ended)
	})
	return series.story(t)
}

func TestNoAlertInHealthyOperation(t *testing.T) {
	for _, ttl := range []time.Duration{time.Second, 3 * time.Second, 15 * time.Second, time.Minute} {
		story := scrapes(t, ttl, 50*time.Millisecond)
		for name, rule := range alerts(t) {
			require.Empty(t, run(t, rule, story), "%s, TTL %v", name, ttl)
		}
	}
}

// Each request takes nine tenths of its timeout.
func TestRenewalsAreLate(t *testing.T) {
	for _, ttl := range []time.Duration{time.Second, 3 * time.Second, 15 * time.Second, time.Minute} {
		require.NotEmpty(t, run(t, alerts(t)["LeaseholdRenewalsLate"], scrapes(t, ttl, ttl*14/100)), ttl)
	}
}
