package otellock_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/goleak"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/bubble"
	"github.com/leasehold-go/leasehold/internal/testkit/observertest"
	"github.com/leasehold-go/leasehold/internal/testkit/testopt"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
	"github.com/leasehold-go/leasehold/locktable"
	"github.com/leasehold-go/leasehold/otellock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const key = observertest.Key

// watched is a process, and what its observer exports.
type watched struct {
	*observertest.Process
	observer *otellock.Observer
	t        *testing.T
	reader   *sdkmetric.ManualReader
	spans    *tracetest.InMemoryExporter
}

func watch(t *testing.T, s leasehold.Store) *watched {
	t.Helper()
	w := &watched{t: t, reader: sdkmetric.NewManualReader(), spans: tracetest.NewInMemoryExporter()}
	var err error
	w.observer, err = otellock.New(
		otellock.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(w.reader))),
		otellock.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(w.spans))))
	require.NoError(t, err)
	w.Process = observertest.NewProcess(t, s, w.observer.Observe, w.metrics)
	return w
}

// metrics returns one line for each data point of a key, a histogram as its count and sum.
func (w *watched) metrics(key string) (lines []string) {
	w.t.Helper()
	for _, m := range w.collect() {
		add := func(set attribute.Set, format string, args ...any) {
			line, ours := strings.TrimPrefix(m.Name, "leasehold."), false
			for _, kv := range set.ToSlice() {
				if kv.Key != "leasehold.lock.key" && kv.Key != "leasehold.table.key" {
					line += " " + kv.Value.String()
				} else {
					ours = kv.Value.String() == key
				}
			}
			if ours {
				lines = append(lines, line+fmt.Sprintf(format, args...))
			}
		}
		switch d := m.Data.(type) {
		case metricdata.Histogram[float64]:
			for _, p := range d.DataPoints {
				add(p.Attributes, ": %d in %.2f", p.Count, p.Sum)
			}
		case metricdata.Sum[int64]:
			for _, p := range d.DataPoints {
				add(p.Attributes, ": %d", p.Value)
			}
		case metricdata.Gauge[int64]:
			for _, p := range d.DataPoints {
				add(p.Attributes, ": %d", p.Value)
			}
		default:
			require.Failf(w.t, "unknown kind of metric", "%s is a %T", m.Name, d)
		}
	}
	slices.Sort(lines)
	return lines
}

func (w *watched) collect() []metricdata.Metrics {
	w.t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(w.t, w.reader.Collect(w.t.Context(), &all))
	if len(all.ScopeMetrics) == 0 {
		return nil
	}
	require.Len(w.t, all.ScopeMetrics, 1)
	return all.ScopeMetrics[0].Metrics
}

// of returns the spans with a name.
func (w *watched) of(name string) (spans tracetest.SpanStubs) {
	for _, s := range w.spans.GetSpans() {
		if s.Name == name {
			spans = append(spans, s)
		}
	}
	return spans
}

func attributes(s tracetest.SpanStub) map[string]any {
	m := map[string]any{}
	for _, kv := range s.Attributes {
		m[string(kv.Key)] = kv.Value.AsInterface()
	}
	return m
}

func TestScenarios(t *testing.T) {
	observertest.Run(t, func(t *testing.T, s leasehold.Store) *observertest.Process { return watch(t, s).Process })
}

func TestATerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alice := watch(t, leasehold.NewMemStore())
		began := time.Now()
		stop := alice.Elect("alice")
		time.Sleep(time.Minute)
		require.Subset(t, alice.Metrics(key), []string{"leader: 1", "token: 1", "transitions: 1"})
		stop()

		renewals := len(alice.of("leasehold.renew"))
		require.InDelta(t, 12, renewals, 1, "every 5 s")
		require.Equal(t, []string{
			"acquisition.duration: 1 in 0.02",
			"leader: 0",
			"lost broken: 0", "lost corrupt: 0", "lost deleted: 0", "lost expired: 0",
			"lost taken_over: 0", "lost unsafe_store: 0",
			"overruns: 0",
			fmt.Sprintf("renewal.duration: %d in %.2f", renewals, float64(renewals)*0.05),
			fmt.Sprintf("renewal.remaining: %d in %.2f", renewals, float64(renewals)*11.95),
			"request.duration create: 1 in 0.00",
			"request.duration not_exist get: 1 in 0.02",
			fmt.Sprintf("request.duration update: %d in %.2f", renewals+1, float64(renewals+1)*0.05),
			"token: 1",
			"transitions: 1",
		}, alice.Metrics(key))

		terms := alice.of("leasehold.term")
		require.Len(t, terms, 1)
		require.Equal(t, map[string]any{
			"leasehold.lock.key":    key,
			"leasehold.lock.holder": "alice",
			"leasehold.lock.token":  int64(1),
		}, attributes(terms[0]))
		require.Equal(t, codes.Unset, terms[0].Status.Code)
		require.Equal(t, began.Add(20*time.Millisecond), terms[0].StartTime)
		require.Equal(t, time.Minute+30*time.Millisecond, terms[0].EndTime.Sub(terms[0].StartTime),
			"until the release has succeeded")

		for _, s := range append(alice.of("leasehold.renew"), alice.of("leasehold.acquire")...) {
			require.False(t, s.Parent.IsValid(), "a trace of its own")
			require.Equal(t, trace.SpanKindInternal, s.SpanKind)
			require.Equal(t, int64(1), attributes(s)["leasehold.lock.token"])
			require.Len(t, s.Links, 1)
			require.Equal(t, terms[0].SpanContext.SpanID(), s.Links[0].SpanContext.SpanID())
		}
		get := alice.of("leasehold.get")
		require.Len(t, get, 1)
		require.Equal(t, trace.SpanKindClient, get[0].SpanKind)
		require.Equal(t, map[string]any{
			"leasehold.lock.key":  key,
			"leasehold.operation": "get",
			"error.type":          "not_exist",
		}, attributes(get[0]))
		require.Equal(t, codes.Unset, get[0].Status.Code, "the missing object is an answer, not an error")
		require.Equal(t, 20*time.Millisecond, get[0].EndTime.Sub(get[0].StartTime))
		require.Len(t, alice.of("leasehold.create"), 1)
		require.Len(t, alice.of("leasehold.update"), renewals+1)
	})
}

func TestFailingStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alice := watch(t, leasehold.NewMemStore())
		alice.Cut(fmt.Errorf("%w: access denied", leasehold.ErrPermanent))
		_, err := alice.Lock(key, "alice").TryAcquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrPermanent)
		require.Subset(t, alice.Metrics(key), []string{"leader: 0", "transitions: 0",
			"request.duration permanent get: 1 in 0.00"})
		require.NotContains(t, strings.Join(alice.Metrics(key), "\n"), "token", "an unknown token is not 0")
		get := alice.of("leasehold.get")
		require.Len(t, get, 1)
		require.Equal(t, codes.Error, get[0].Status.Code)
		require.Contains(t, get[0].Status.Description, "access denied")

		alice.Mend()
		lease, err := alice.Lock(key, "alice").TryAcquire(t.Context())
		require.NoError(t, err)
		alice.Cut(errors.New("connection reset"))
		time.Sleep(6 * time.Second)
		alice.Mend()
		time.Sleep(time.Minute)
		failed := 0
		for _, s := range alice.of("leasehold.renew") {
			if s.Status.Code == codes.Error {
				failed++
				require.Equal(t, "error", attributes(s)["error.type"])
				require.Contains(t, s.Status.Description, "connection reset")
			}
		}
		require.Greater(t, failed, 1)
		metrics := strings.Join(alice.Metrics(key), "\n")
		require.Contains(t, metrics, fmt.Sprintf("\nrenewal.duration error: %d in 0.00\n", failed))
		require.Contains(t, metrics, fmt.Sprintf("\nrenewal.remaining error: %d in ", failed))
		require.Contains(t, metrics, fmt.Sprintf("\nrequest.duration error update: %d in 0.00\n", failed))
		require.Contains(t, metrics, "\nleader: 1\n", "the lease was never lost")
		require.Contains(t, metrics, "\nlost expired: 0\n")
		require.NoError(t, lease.Release(t.Context()))
	})
}

func TestARefusalFailsARenewalButNotARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := teststore.New(leasehold.NewMemStore(), nil)
		alice := watch(t, store)
		lease, err := alice.Lock(key, "alice").TryAcquire(t.Context())
		require.NoError(t, err)
		store.Fail(leasehold.ErrPreconditionFailed, teststore.Update)
		store.Fail(errors.New("connection reset"), teststore.Get) // so the outcome stays unknown
		time.Sleep(6 * time.Second)
		store.Fail(nil)
		require.NoError(t, lease.Release(t.Context()))
		require.NotEmpty(t, alice.of("leasehold.renew"))
		require.Equal(t, codes.Error, alice.of("leasehold.renew")[0].Status.Code)
		require.Equal(t, codes.Unset, alice.of("leasehold.update")[0].Status.Code)
		require.Equal(t, "precondition_failed", attributes(alice.of("leasehold.update")[0])["error.type"])
	})
}

func TestTheSpanOfALostTerm(t *testing.T) {
	for cause, lose := range observertest.Losses {
		bubble.Run(t, cause, func(t *testing.T) {
			alice := watch(t, leasehold.NewMemStore())
			lease, err := alice.Lock(key, "alice").TryAcquire(t.Context())
			require.NoError(t, err)
			lose(t, alice.Process, key)
			<-lease.Context().Done()
			runtime.KeepAlive(lease)
			synctest.Wait()
			terms := alice.of("leasehold.term")
			require.Len(t, terms, 1)
			require.Equal(t, codes.Error, terms[0].Status.Code)
			require.Equal(t, cause, attributes(terms[0])["error.type"])
		})
	}
}

func TestTheSpanOfAnOverrun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alice := watch(t, leasehold.NewMemStore())
		err := alice.Lock(key, "alice").Do(t.Context(), func(context.Context, *leasehold.Lease) error {
			// An answer to a request, but an error of the term.
			alice.Cut(fmt.Errorf("%w: a proxy's mistake", leasehold.ErrPreconditionFailed))
			time.Sleep(time.Minute) // does not look at its context
			return nil
		})
		require.ErrorIs(t, err, leasehold.ErrLost)
		spans := alice.of("leasehold.overrun")
		require.Len(t, spans, 1)
		require.Equal(t, codes.Error, spans[0].Status.Code)
		require.Equal(t, "overrun", attributes(spans[0])["error.type"])
		require.Len(t, spans[0].Links, 1)
	})
}

func TestAFailedReleaseEndsTheSpanOfItsTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alice := watch(t, testopt.NewMemStore(false, true))
		lock := alice.Lock(key, "alice")
		lease, err := lock.TryAcquire(t.Context())
		require.NoError(t, err)
		alice.Cut(errors.New("connection reset"))
		require.Error(t, lease.Release(t.Context()))
		released := time.Now()
		time.Sleep(time.Minute)
		alice.Mend()
		lease, err = lock.TryAcquire(t.Context())
		require.NoError(t, err)
		terms := alice.of("leasehold.term")
		require.Len(t, terms, 1)
		require.Equal(t, released, terms[0].EndTime)
		require.Equal(t, codes.Error, terms[0].Status.Code)
		require.NoError(t, lease.Release(t.Context()))
		terms = alice.of("leasehold.term")
		require.Len(t, terms, 2)
		require.Equal(t, codes.Unset, terms[1].Status.Code)
	})
}

// Another lock of the process may acquire what one releases, before the one has reported its
// release.
func TestALaterTermEndsTheSpanOfAnEarlierOne(t *testing.T) {
	alice := watch(t, leasehold.NewMemStore())
	for _, e := range []leasehold.Event{
		{Kind: leasehold.EventAcquired, Token: 1}, {Kind: leasehold.EventAcquired, Token: 2},
		{Kind: leasehold.EventRenewed, Token: 1}, {Kind: leasehold.EventReleased, Token: 1},
	} {
		e.Key = key
		alice.observer.Observe(t.Context(), e)
	}
	terms := alice.of("leasehold.term")
	require.Len(t, terms, 1)
	require.EqualValues(t, 1, attributes(terms[0])["leasehold.lock.token"])
	require.Len(t, alice.of("leasehold.renew"), 1)
	require.Empty(t, alice.of("leasehold.renew")[0].Links, "not to the later term")
}

// refusingMeter refuses every instrument.
type refusingMeter struct{ metricnoop.Meter }

func (refusingMeter) Int64Counter(string, ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return nil, errors.New("no counters here")
}

type refusingProvider struct{ metricnoop.MeterProvider }

func (refusingProvider) Meter(string, ...metric.MeterOption) metric.Meter { return refusingMeter{} }

func TestObserverRefuses(t *testing.T) {
	_, err := otellock.New(otellock.WithMeterProvider(refusingProvider{}))
	require.ErrorContains(t, err, "otellock: no counters here")
	_, err = otellock.New(otellock.WithMeterProvider(nil))
	require.ErrorContains(t, err, "otellock: provider is nil")
	_, err = otellock.New(otellock.WithTracerProvider(nil))
	require.ErrorContains(t, err, "otellock: provider is nil")
	_, err = otellock.New() // the global ones
	require.NoError(t, err)
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alice := watch(t, leasehold.NewMemStore())
		lease, err := alice.Lock(key, "alice").TryAcquire(t.Context())
		require.NoError(t, err)
		require.Contains(t, alice.Metrics(key), "leader: 1")
		require.Empty(t, alice.of("leasehold.term"))
		require.NoError(t, alice.observer.Close())
		require.NoError(t, alice.observer.Close(), "a second call does nothing")
		for _, line := range alice.Metrics(key) {
			require.NotContains(t, line, "leader:")
			require.NotContains(t, line, "token:")
		}
		require.Len(t, alice.of("leasehold.term"), 1)
		n := len(alice.spans.GetSpans())
		require.NoError(t, lease.Release(t.Context()))
		require.Len(t, alice.spans.GetSpans(), n, "later events are ignored")
	})
}

func TestSpansTurnedOff(t *testing.T) {
	observer, err := otellock.New(otellock.WithTracerProvider(noop.NewTracerProvider()),
		otellock.WithMeterProvider(metricnoop.NewMeterProvider()))
	require.NoError(t, err)
	lock, err := leasehold.NewLock(leasehold.NewMemStore(), key, leasehold.WithObserver(observer.Observe))
	require.NoError(t, err)
	require.NoError(t, lock.Do(t.Context(), func(ctx context.Context, lease *leasehold.Lease) error {
		return lease.Renew(ctx)
	}))
}

func TestTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasehold.NewMemStore()
		w := watch(t, store)
		now := func() string { return strings.Join(w.metrics(key), "\n") + "\n" }
		observertest.Table(t, store, w.observer.ObserveTable, func(name string, value int) {
			t.Helper()
			line := map[string]string{
				"acquisitions": "acquisition.duration: %d in",
				"refused":      "request.duration (not_exist|precondition_failed) write: %d in",
			}[name]
			require.Regexp(t, fmt.Sprintf(`(?m)^table\.`+cmp.Or(line, name+": %d\n"), value), now())
		})
		require.NoError(t, w.observer.Close())
		w.observer.ObserveTable(t.Context(), locktable.Event{Kind: locktable.EventAcquired, Table: key}) // ignored
		require.NotContains(t, now(), "table.leases")
	})
}

func TestReadmeTable(t *testing.T) {
	page, err := os.ReadFile("README.md")
	require.NoError(t, err)
	var listed []string
	for _, m := range regexp.MustCompile(
		"(?m)^\\| `([a-z._]+)` \\| ([a-z]+) \\| ([^ ]*) \\| ([^|]*) \\|").FindAllStringSubmatch(string(page), -1) {
		listed = append(listed, strings.Join(m[1:], " "))
	}
	var exported []string
	synctest.Test(t, func(t *testing.T) {
		alice := watch(t, leasehold.NewMemStore())
		_ = alice.Lock(key, "alice").Do(t.Context(), func(ctx context.Context, lease *leasehold.Lease) error {
			alice.Cut(errors.New("connection reset"))
			time.Sleep(time.Minute)
			return nil
		})
		table, stop := observertest.RunTable(t, leasehold.NewMemStore(), alice.observer.ObserveTable)
		broken := locktable.Event{Kind: locktable.EventRead, Table: key, Err: errors.New("broken")}
		alice.observer.ObserveTable(t.Context(), broken)
		defer stop()
		lease, err := table.Lock("a").Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, lease.Release(t.Context()))
		for _, m := range alice.collect() {
			seen := map[string]bool{}
			kind := ""
			note := func(set attribute.Set) {
				for _, kv := range set.ToSlice() {
					seen["`"+string(kv.Key)+"`"] = true
				}
			}
			switch d := m.Data.(type) {
			case metricdata.Histogram[float64]:
				kind = "histogram"
				for _, p := range d.DataPoints {
					note(p.Attributes)
				}
			case metricdata.Sum[int64]:
				kind = "counter"
				for _, p := range d.DataPoints {
					note(p.Attributes)
				}
			case metricdata.Gauge[int64]:
				kind = "gauge"
				for _, p := range d.DataPoints {
					note(p.Attributes)
				}
			}
			names := slices.Sorted(maps.Keys(seen))
			unit := ""
			if m.Unit != "" {
				unit = "`" + m.Unit + "`"
			}
			require.NotEqual(t, "1", m.Unit, "exporters to Prometheus would add _ratio to %s", m.Name)
			require.NotEmpty(t, m.Description)
			exported = append(exported, strings.Join([]string{m.Name, kind, unit, strings.Join(names, ", ")}, " "))
		}
	})
	require.ElementsMatch(t, exported, listed)
}

// The spans of a call join the caller's trace; those of a lease in the background do not.
func TestSpansJoinTheTraceOfTheirCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, leasehold.NewMemStore())
		ctx, caller := sdktrace.NewTracerProvider().Tracer("test").Start(t.Context(), "request")
		defer caller.End()
		lease, err := w.Lock(key, "ada").TryAcquire(ctx)
		require.NoError(t, err)
		time.Sleep(12 * time.Second) // two renewals at least
		require.NoError(t, lease.Release(ctx))
		joined := map[string]int{}
		for _, s := range w.spans.GetSpans() {
			if s.SpanContext.TraceID() == caller.SpanContext().TraceID() {
				require.Equal(t, caller.SpanContext().SpanID(), s.Parent.SpanID())
				joined[s.Name]++
			} else {
				require.Contains(t, []string{"leasehold.renew", "leasehold.update", "leasehold.term"}, s.Name)
				require.False(t, s.Parent.IsValid())
			}
		}
		require.Equal(t, map[string]int{
			"leasehold.get":     1,
			"leasehold.create":  1,
			"leasehold.acquire": 1,
			"leasehold.update":  1,
		}, joined)
	})
}

func TestNilOptionIsRefused(t *testing.T) {
	_, err := otellock.New(nil)
	require.EqualError(t, err, "otellock: an Option is nil")
}
