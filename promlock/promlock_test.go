package promlock_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/observertest"
	"github.com/leasehold-go/leasehold/promlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const key = observertest.Key

func watch(t *testing.T, s leasehold.Store) (*observertest.Process, *prometheus.Registry) {
	t.Helper()
	collector, registry := promlock.New(), prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(collector))
	return observertest.NewProcess(t, s, collector.Observe, func(key string) []string {
		return metrics(t, registry, key)
	}), registry
}

// metrics returns one line for each series of a key, a histogram as its count and sum.
func metrics(t *testing.T, registry *prometheus.Registry, key string) (lines []string) {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, m := range f.Metric {
			line, ours := strings.TrimSuffix(strings.TrimPrefix(f.GetName(), "leasehold_"), "_total"), false
			for _, l := range m.Label {
				if l.GetName() != "key" {
					line += " " + l.GetValue()
				} else {
					ours = l.GetValue() == key
				}
			}
			switch {
			case !ours:
				continue
			case m.Histogram != nil:
				line += fmt.Sprintf(": %d in %.2f", m.Histogram.GetSampleCount(), m.Histogram.GetSampleSum())
			default:
				line += fmt.Sprint(": ", m.Counter.GetValue()+m.Gauge.GetValue())
			}
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return lines
}

func TestScenarios(t *testing.T) {
	observertest.Run(t, func(t *testing.T, s leasehold.Store) *observertest.Process {
		p, _ := watch(t, s)
		return p
	})
}

func TestATerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alice, _ := watch(t, leasehold.NewMemStore())
		stop := alice.Elect("alice")
		time.Sleep(30 * time.Millisecond) // reading takes 20
		none := []string{
			"lost broken: 0", "lost corrupt: 0", "lost deleted: 0", "lost expired: 0",
			"lost taken_over: 0", "lost unsafe_store: 0", "overruns: 0",
			"renewal_duration_seconds error: 0 in 0.00", "renewal_duration_seconds timeout: 0 in 0.00",
		}
		require.Subset(t, alice.Metrics(key), append(none, "renewal_duration_seconds ok: 0 in 0.00"),
			"a counter that begins at 1 shows no increase")
		time.Sleep(time.Minute)
		require.Subset(t, alice.Metrics(key), []string{"leader: 1", "token: 1", "transitions: 1"})
		stop()

		var renewals int
		for _, line := range alice.Metrics(key) {
			_, _ = fmt.Sscanf(line, "renewal_duration_seconds ok: %d", &renewals)
		}
		require.InDelta(t, 12, renewals, 1, "every 5 s")
		require.ElementsMatch(t, append(none,
			"acquisition_duration_seconds: 1 in 0.02",
			"leader: 0",
			fmt.Sprintf("renewal_duration_seconds ok: %d in %.2f", renewals, float64(renewals)*0.05),
			fmt.Sprintf("renewal_remaining_seconds ok: %d in %.2f", renewals, float64(renewals)*11.95),
			"request_duration_seconds create ok: 1 in 0.00",
			"request_duration_seconds get not_exist: 1 in 0.02",
			fmt.Sprintf("request_duration_seconds update ok: %d in %.2f", renewals+1, float64(renewals+1)*0.05),
			"token: 1",
			"transitions: 1",
		), alice.Metrics(key))
	})
}

func TestFailingStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alice, _ := watch(t, leasehold.NewMemStore())
		alice.Cut(fmt.Errorf("%w: access denied", leasehold.ErrPermanent))
		_, err := alice.Lock(key, "alice").TryAcquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrPermanent)
		require.Subset(t, alice.Metrics(key), []string{"leader: 0", "transitions: 0",
			"request_duration_seconds get permanent: 1 in 0.00"})
		require.NotContains(t, strings.Join(alice.Metrics(key), "\n"), "token", "an unknown token is not 0")

		alice.Mend()
		lease, err := alice.Lock(key, "alice").TryAcquire(t.Context())
		require.NoError(t, err)
		alice.Cut(errors.New("connection reset"))
		time.Sleep(6 * time.Second)
		alice.Mend()
		time.Sleep(time.Minute)
		metrics := strings.Join(alice.Metrics(key), "\n")
		found := regexp.MustCompile(`renewal_duration_seconds error: (\d+) in 0.00`).FindStringSubmatch(metrics)
		require.NotNil(t, found, metrics)
		require.NotContains(t, []string{"0", "1"}, found[1])
		require.Contains(t, metrics, "\nrenewal_remaining_seconds error: "+found[1]+" in ")
		require.Contains(t, metrics, "\nrequest_duration_seconds update error: "+found[1]+" in 0.00\n")
		require.Contains(t, metrics, "\nleader: 1\n", "the lease was never lost")
		require.Contains(t, metrics, "\nlost expired: 0\n")
		require.NoError(t, lease.Release(t.Context()))
	})
}

// everything returns every metric, of a process with a lock and of one with a table.
func everything(t *testing.T) prometheus.Gatherer {
	var registry, tables *prometheus.Registry
	synctest.Test(t, func(t *testing.T) {
		var alice *observertest.Process
		alice, registry = watch(t, leasehold.NewMemStore())
		require.Error(t, alice.Lock(key, "alice").Do(t.Context(), func(context.Context, *leasehold.Lease) error {
			alice.Cut(errors.New("connection reset"))
			time.Sleep(time.Minute)
			return nil
		}))
		collector := promlock.New()
		table, stop := observertest.RunTable(t, leasehold.NewMemStore(), collector.ObserveTable)
		lease, err := table.Lock("a").Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, lease.Release(t.Context()))
		stop()
		tables = prometheus.NewPedanticRegistry()
		require.NoError(t, tables.Register(collector))
	})
	return prometheus.Gatherers{registry, tables}
}

func TestTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, collector, registry := leasehold.NewMemStore(), promlock.New(), prometheus.NewPedanticRegistry()
		require.NoError(t, registry.Register(collector))
		observertest.Table(t, store, collector.ObserveTable, func(name string, value int) {
			t.Helper()
			line := map[string]string{
				"size": "bytes: %d\n", "acquisitions": "acquisition_duration_seconds: %d in",
				"refused": "request_duration_seconds write (not_exist|precondition_failed): %d in",
			}[name]
			require.Regexp(t, fmt.Sprintf("(?m)^table_"+cmp.Or(line, name+": %d\n"), value),
				strings.Join(metrics(t, registry, key), "\n")+"\n")
		})
	})
}

func TestLint(t *testing.T) {
	problems, err := testutil.GatherAndLint(everything(t))
	require.NoError(t, err)
	require.Empty(t, problems)
	for name := range exported(t) { // others may have a leader_election_master_status in the same registry
		require.True(t, strings.HasPrefix(name, "leasehold_"), name)
	}
}

// exported returns kind and labels of each metric.
func exported(t *testing.T) map[string]string {
	t.Helper()
	families, err := everything(t).Gather()
	require.NoError(t, err)
	all := map[string]string{}
	for _, f := range families {
		var labels []string
		for _, l := range f.Metric[0].Label {
			labels = append(labels, "`"+l.GetName()+"`")
		}
		slices.Sort(labels)
		all[f.GetName()] = strings.ToLower(f.GetType().String()) + " | " + strings.Join(labels, ", ")
	}
	return all
}

func read(t *testing.T, name string) string {
	t.Helper()
	body, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(body)
}

// Package itest/rules takes the names from the table that this test checks.
func TestReadmeTable(t *testing.T) {
	listed := map[string]string{}
	for _, m := range regexp.MustCompile(
		"(?m)^\\| `([a-z_]+)` \\| ([a-z]+ \\| [^|]*) \\|").FindAllStringSubmatch(read(t, "README.md"), -1) {
		listed[m[1]] = m[2]
	}
	require.Equal(t, exported(t), listed)
}

func TestReadmeAlerts(t *testing.T) {
	page := read(t, "README.md")
	alerts := regexp.MustCompile(`(?m)- alert: (\w+)$`).FindAllStringSubmatch(read(t, "alerts.yml"), -1)
	require.NotEmpty(t, alerts)
	for _, m := range alerts {
		require.Contains(t, page, "\n| `"+m[1]+"` | ")
	}
	require.Equal(t, len(alerts), strings.Count(page, "\n| `Leasehold"))
}

// Package itest/rules parses the expressions and evaluates the alerts.
func TestDashboardAndAlertsUseWhatIsExported(t *testing.T) {
	require.True(t, json.Valid([]byte(read(t, "dashboard.json"))))
	all := exported(t)
	used := map[string]bool{}
	for _, name := range []string{"dashboard.json", "alerts.yml"} {
		for _, m := range regexp.MustCompile(`\bleasehold_\w+`).FindAllString(read(t, name), -1) {
			metric := regexp.MustCompile(`_(count|sum|bucket)$`).ReplaceAllString(m, "")
			require.Contains(t, all, metric, name)
			used[metric] = true
		}
	}
	for metric := range all {
		require.True(t, used[metric], "neither an alert nor the dashboard uses %s", metric)
	}
}

func TestCollectorThatNewDidNotMake(t *testing.T) {
	const text = "promlock: the Collector is nil or empty (make one with New)"
	for _, c := range []*promlock.Collector{nil, {}} {
		require.PanicsWithValue(t, text, func() { c.Observe(t.Context(), leasehold.Event{Key: key}) })
		require.PanicsWithValue(t, text, func() { c.Describe(make(chan *prometheus.Desc)) })
	}
}
