package otellock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/goleak"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/otellock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const key = "locks/reports"

// watched is a process with its own observer and way to the store.
type watched struct {
	leasehold.Store
	*otellock.Observer
	t      *testing.T
	fail   atomic.Pointer[error] // what every request is answered, if set
	reader *sdkmetric.ManualReader
	spans  *tracetest.InMemoryExporter
}

func watch(t *testing.T, s leasehold.Store) *watched {
	t.Helper()
	w := &watched{Store: s, t: t, reader: sdkmetric.NewManualReader(), spans: tracetest.NewInMemoryExporter()}
	var err error
	w.Observer, err = otellock.New(
		otellock.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(w.reader))),
		otellock.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(w.spans))))
	require.NoError(t, err)
	return w
}

func (w *watched) lock(key, name string, opts ...leasehold.Option) *leasehold.Lock {
	w.t.Helper()
	l, err := leasehold.NewLock(w, key, append(opts, leasehold.WithObserver(w.Observe), leasehold.WithIdentity(name))...)
	require.NoError(w.t, err)
	return l
}

// elect runs an elector until stop is called.
func (w *watched) elect(name string) (stop func()) {
	w.t.Helper()
	e, err := leasehold.NewElector(w.lock(key, name), leasehold.Callbacks{})
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	synctest.Wait()
	return func() {
		w.t.Helper()
		cancel()
		require.NoError(w.t, <-ended)
	}
}

func (w *watched) cut(err error) { w.fail.Store(&err) }
func (w *watched) mend()         { w.fail.Store(nil) }

func (w *watched) failure() error {
	if err := w.fail.Load(); err != nil {
		return *err
	}
	return nil
}

func (w *watched) Get(ctx context.Context, key string) (leasehold.Object, error) {
	if err := w.failure(); err != nil {
		return leasehold.Object{}, err
	}
	time.Sleep(20 * time.Millisecond)
	return w.Store.Get(ctx, key)
}

func (w *watched) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	if err := w.failure(); err != nil {
		return "", err
	}
	time.Sleep(50 * time.Millisecond)
	return w.Store.PutIfMatch(ctx, key, body, etag)
}

// metrics returns one line for each data point, without those that are 0 unless they are gauges.
func (w *watched) metrics() (lines []string) {
	w.t.Helper()
	for _, m := range w.collect() {
		add := func(set attribute.Set, format string, args ...any) {
			var labels []string
			for _, kv := range set.ToSlice() {
				if v := kv.Value.String(); v != key {
					labels = append(labels, v)
				}
			}
			lines = append(lines, strings.Join(append([]string{strings.TrimPrefix(m.Name, "leasehold.")}, labels...), " ")+fmt.Sprintf(format, args...))
		}
		switch d := m.Data.(type) {
		case metricdata.Histogram[float64]:
			for _, p := range d.DataPoints {
				add(p.Attributes, ": %d in %.2f", p.Count, p.Sum)
			}
		case metricdata.Sum[int64]:
			for _, p := range d.DataPoints {
				if p.Value != 0 {
					add(p.Attributes, ": %d", p.Value)
				}
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

// of returns the spans of a name.
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

func TestATerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alice := watch(t, leasehold.NewMemStore())
		began := time.Now()
		stop := alice.elect("alice")
		time.Sleep(time.Minute)
		require.Subset(t, alice.metrics(), []string{"leader: 1", "token: 1", "transitions: 1"})
		stop()

		renewals := len(alice.of("leasehold.renew"))
		require.InDelta(t, 12, renewals, 1, "every 5 s")
		require.Equal(t, []string{
			"acquisition.duration: 1 in 0.02",
			"leader: 0",
			fmt.Sprintf("renewal.duration: %d in %.2f", renewals, float64(renewals)*0.05),
			fmt.Sprintf("renewal.remaining: %d in %.2f", renewals, float64(renewals)*11.95),
			"request.duration create: 1 in 0.00",
			"request.duration not_exist get: 1 in 0.02",
			fmt.Sprintf("request.duration update: %d in %.2f", renewals+1, float64(renewals+1)*0.05),
			"token: 1",
			"transitions: 1",
		}, alice.metrics())

		terms := alice.of("leasehold.term")
		require.Len(t, terms, 1)
		require.Equal(t, map[string]any{"leasehold.lock.key": key, "leasehold.lock.holder": "alice", "leasehold.lock.token": int64(1)}, attributes(terms[0]))
		require.Equal(t, codes.Unset, terms[0].Status.Code)
		require.Equal(t, began.Add(20*time.Millisecond), terms[0].StartTime)
		require.Equal(t, time.Minute+30*time.Millisecond, terms[0].EndTime.Sub(terms[0].StartTime), "until the release is through")

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
		require.Equal(t, map[string]any{"leasehold.lock.key": key, "leasehold.operation": "get", "error.type": "not_exist"}, attributes(get[0]))
		require.Equal(t, codes.Unset, get[0].Status.Code, "that there is no lock yet is an answer")
		require.Equal(t, 20*time.Millisecond, get[0].EndTime.Sub(get[0].StartTime))
		require.Len(t, alice.of("leasehold.create"), 1)
		require.Len(t, alice.of("leasehold.update"), renewals+1)
	})
}

func TestAnotherLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := leasehold.NewMemStore()
		alice, bob := watch(t, mem), watch(t, mem)
		require.Empty(t, bob.metrics())
		stopAlice := alice.elect("alice")
		time.Sleep(time.Second)
		stopBob := bob.elect("bob")
		time.Sleep(time.Second)
		require.Subset(t, bob.metrics(), []string{"leader: 0", "token: 1", "transitions: 1"})
		require.Empty(t, bob.of("leasehold.acquire"))

		stopAlice()
		time.Sleep(5 * time.Second)
		require.Subset(t, bob.metrics(), []string{"leader: 1", "token: 2", "transitions: 2"})
		require.Subset(t, alice.metrics(), []string{"leader: 0", "token: 1", "transitions: 1"})
		stopBob()
	})
}

func TestFailingStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alice := watch(t, leasehold.NewMemStore())
		alice.cut(fmt.Errorf("%w: access denied", leasehold.ErrPermanent))
		_, err := alice.lock(key, "alice").TryAcquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrPermanent)
		require.Equal(t, []string{"leader: 0", "request.duration permanent get: 1 in 0.00"},
			alice.metrics(), "a token that is not known is not 0")
		get := alice.of("leasehold.get")
		require.Len(t, get, 1)
		require.Equal(t, codes.Error, get[0].Status.Code)
		require.Contains(t, get[0].Status.Description, "access denied")

		alice.mend()
		lease, err := alice.lock(key, "alice").TryAcquire(t.Context())
		require.NoError(t, err)
		alice.cut(errors.New("connection reset"))
		time.Sleep(6 * time.Second)
		alice.mend()
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
		metrics := strings.Join(alice.metrics(), "\n")
		require.Contains(t, metrics, fmt.Sprintf("\nrenewal.duration error: %d in 0.00\n", failed))
		require.Contains(t, metrics, fmt.Sprintf("\nrenewal.remaining error: %d in ", failed))
		require.Contains(t, metrics, fmt.Sprintf("\nrequest.duration error update: %d in 0.00\n", failed))
		require.Contains(t, metrics, "\nleader: 1\n", "the lease was never lost")
		require.NotContains(t, metrics, "lost")
		require.NoError(t, lease.Release(t.Context()))
	})
}

// refusingStore says to every write that the object has changed, and then cannot be read: nothing is known.
type refusingStore struct {
	leasehold.Store
	refuse atomic.Bool
}

func (s *refusingStore) Get(ctx context.Context, key string) (leasehold.Object, error) {
	if s.refuse.Load() {
		return leasehold.Object{}, errors.New("connection reset")
	}
	return s.Store.Get(ctx, key)
}

func (s *refusingStore) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	if s.refuse.Load() {
		return "", leasehold.ErrPreconditionFailed
	}
	return s.Store.PutIfMatch(ctx, key, body, etag)
}

func TestARefusalFailsARenewalButNotARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &refusingStore{Store: leasehold.NewMemStore()}
		alice := watch(t, store)
		lease, err := alice.lock(key, "alice").TryAcquire(t.Context())
		require.NoError(t, err)
		store.refuse.Store(true)
		time.Sleep(6 * time.Second)
		store.refuse.Store(false)
		require.NoError(t, lease.Release(t.Context()))
		require.NotEmpty(t, alice.of("leasehold.renew"))
		require.Equal(t, codes.Error, alice.of("leasehold.renew")[0].Status.Code)
		require.Equal(t, codes.Unset, alice.of("leasehold.update")[0].Status.Code)
		require.Equal(t, "precondition_failed", attributes(alice.of("leasehold.update")[0])["error.type"])
	})
}

func TestLost(t *testing.T) {
	for cause, harm := range map[string]func(t *testing.T, alice *watched, mem *leasehold.MemStore, key string){
		"expired": func(t *testing.T, alice *watched, mem *leasehold.MemStore, key string) {
			alice.cut(errors.New("taken over by a flood")) // stands in the error as well
		},
		"deleted": func(t *testing.T, alice *watched, mem *leasehold.MemStore, key string) {
			o, err := mem.Get(t.Context(), key)
			require.NoError(t, err)
			require.NoError(t, mem.DeleteIfMatch(t.Context(), key, o.ETag))
		},
		"corrupt": func(t *testing.T, alice *watched, mem *leasehold.MemStore, key string) {
			o, err := mem.Get(t.Context(), key)
			require.NoError(t, err)
			_, err = mem.PutIfMatch(t.Context(), key, []byte("not a record"), o.ETag)
			require.NoError(t, err)
		},
		"broken": func(t *testing.T, alice *watched, mem *leasehold.MemStore, key string) {
			l, err := leasehold.NewLock(mem, key)
			require.NoError(t, err)
			require.NoError(t, l.Break(t.Context(), 1))
		},
		"taken_over": func(t *testing.T, alice *watched, mem *leasehold.MemStore, key string) {
			l, err := leasehold.NewLock(mem, key, leasehold.WithManualRenewal(), leasehold.WithIdentity("the lock object was deleted"))
			require.NoError(t, err)
			require.NoError(t, l.Break(t.Context(), 1))
			_, err = l.TryAcquire(t.Context())
			require.NoError(t, err)
		},
	} {
		for _, key := range []string{"locks/reports", "not renewed in time", "taken over by/broken by an administrator"} {
			t.Run(cause+" "+key, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					mem := leasehold.NewMemStore()
					alice := watch(t, mem)
					lease, err := alice.lock(key, "alice").TryAcquire(t.Context())
					require.NoError(t, err)
					require.Contains(t, zero(alice), "leasehold.lost "+cause, "a counter that begins at 1 shows no increase")
					harm(t, alice, mem, key)
					<-lease.Context().Done()
					synctest.Wait()
					t.Log(context.Cause(lease.Context()))
					metrics := strings.ReplaceAll(strings.Join(alice.metrics(), "\n"), key+" ", "")
					require.Contains(t, metrics, "\nlost "+cause)
					require.Equal(t, 1, strings.Count(metrics, "\nlost "))
					require.NotContains(t, metrics, "leader: 1")
					terms := alice.of("leasehold.term")
					require.Len(t, terms, 1)
					require.Equal(t, codes.Error, terms[0].Status.Code)
					require.Equal(t, cause, attributes(terms[0])["error.type"])
				})
			})
		}
	}
}

// zero returns the counters that are 0, with their error.type.
func zero(w *watched) (names []string) {
	for _, m := range w.collect() {
		if sum, ok := m.Data.(metricdata.Sum[int64]); ok {
			for _, p := range sum.DataPoints {
				if v, _ := p.Attributes.Value(semconv.ErrorTypeKey); p.Value == 0 {
					names = append(names, m.Name+" "+v.AsString())
				}
			}
		}
	}
	return names
}

func TestOverrun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alice := watch(t, leasehold.NewMemStore())
		err := alice.lock(key, "alice").Do(t.Context(), func(context.Context, *leasehold.Lease) error {
			require.Contains(t, zero(alice), "leasehold.overruns ")
			alice.cut(fmt.Errorf("%w: a proxy's mistake", leasehold.ErrPreconditionFailed))
			time.Sleep(time.Minute) // does not look at its context
			return nil
		})
		require.ErrorIs(t, err, leasehold.ErrLost)
		require.Subset(t, alice.metrics(), []string{"overruns: 1", "lost expired: 1", "leader: 0"})
		spans := alice.of("leasehold.overrun")
		require.Len(t, spans, 1)
		require.Equal(t, codes.Error, spans[0].Status.Code)
		require.Equal(t, "overrun", attributes(spans[0])["error.type"])
		require.Len(t, spans[0].Links, 1)
	})
}

func TestAReleaseThatDoesNotGetThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alice := watch(t, &leasehold.MemStore{ServerClock: true})
		lease, err := alice.lock(key, "alice").TryAcquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, lease.Renew(t.Context()))
		alice.cut(errors.New("connection reset"))
		require.Error(t, lease.Release(t.Context()))
		require.Contains(t, alice.metrics(), "leader: 0", "it leads no more, though the record stands")
		terms := alice.of("leasehold.term")
		require.Len(t, terms, 1)
		require.Equal(t, codes.Error, terms[0].Status.Code)
		time.Sleep(time.Minute)

		alice.mend()
		lease, err = alice.lock(key, "alice").TryAcquire(t.Context())
		require.NoError(t, err)
		require.Subset(t, alice.metrics(), []string{"leader: 1", "token: 2", "transitions: 2"})
		require.Len(t, alice.of("leasehold.term"), 1)
		require.NoError(t, lease.Release(t.Context()))
		require.Len(t, alice.of("leasehold.term"), 2)
	})
}

func TestAReleaseThatDoesNotGetThroughAndAnotherLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := &leasehold.MemStore{ServerClock: true}
		alice, bob := watch(t, mem), watch(t, mem)
		lock := alice.lock(key, "alice")
		lease, err := lock.TryAcquire(t.Context())
		require.NoError(t, err)
		alice.cut(errors.New("connection reset"))
		require.Error(t, lease.Release(t.Context()))
		released := time.Now()
		alice.mend()
		time.Sleep(time.Minute)
		stopBob := bob.elect("bob")
		time.Sleep(time.Second)
		_, err = lock.TryAcquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrHeld)
		require.Subset(t, alice.metrics(), []string{"leader: 0", "token: 2", "transitions: 2"})

		stopBob()
		time.Sleep(time.Second)
		lease, err = lock.TryAcquire(t.Context())
		require.NoError(t, err)
		terms := alice.of("leasehold.term")
		require.Len(t, terms, 1)
		require.Equal(t, released, terms[0].EndTime)
		require.NoError(t, lease.Release(t.Context()))
	})
}

func TestOneObserverForManyLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, leasehold.NewMemStore())
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				err := w.lock(fmt.Sprint("locks/", i), "alice").Do(t.Context(), func(context.Context, *leasehold.Lease) error {
					time.Sleep(time.Minute)
					_ = w.metrics()
					return nil
				})
				require.NoError(t, err)
			})
		}
		wg.Wait()
		for i := range 8 {
			require.Subset(t, w.metrics(), []string{fmt.Sprintf("leader locks/%d: 0", i), fmt.Sprintf("transitions locks/%d: 1", i)})
		}
		require.Len(t, w.of("leasehold.term"), 8)
	})
}

// refusingMeter refuses every instrument.
type refusingMeter struct{ metricnoop.Meter }

func (refusingMeter) Int64Counter(string, ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return nil, errors.New("no such luck")
}

type refusingProvider struct{ metricnoop.MeterProvider }

func (refusingProvider) Meter(string, ...metric.MeterOption) metric.Meter { return refusingMeter{} }

func TestObserverRefuses(t *testing.T) {
	_, err := otellock.New(otellock.WithMeterProvider(refusingProvider{}))
	require.ErrorContains(t, err, "otellock: no such luck")
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
		lease, err := alice.lock(key, "alice").TryAcquire(t.Context())
		require.NoError(t, err)
		require.Contains(t, alice.metrics(), "leader: 1")
		require.Empty(t, alice.of("leasehold.term"))
		require.NoError(t, alice.Close())
		require.NoError(t, alice.Close(), "twice does no harm")
		for _, line := range alice.metrics() {
			require.NotContains(t, line, "leader:")
			require.NotContains(t, line, "token:")
		}
		require.Len(t, alice.of("leasehold.term"), 1)
		n := len(alice.spans.GetSpans())
		require.NoError(t, lease.Release(t.Context()))
		require.Len(t, alice.spans.GetSpans(), n, "nothing is observed any more")
	})
}

func TestSpansTurnedOff(t *testing.T) {
	observer, err := otellock.New(otellock.WithTracerProvider(noop.NewTracerProvider()), otellock.WithMeterProvider(metricnoop.NewMeterProvider()))
	require.NoError(t, err)
	lock, err := leasehold.NewLock(leasehold.NewMemStore(), key, leasehold.WithObserver(observer.Observe))
	require.NoError(t, err)
	require.NoError(t, lock.Do(t.Context(), func(ctx context.Context, lease *leasehold.Lease) error { return lease.Renew(ctx) }))
}

func TestReadmeTable(t *testing.T) {
	page, err := os.ReadFile("README.md")
	require.NoError(t, err)
	var listed []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z._]+)` \\| ([a-z]+) \\| ([^ ]*) \\| ([^|]*) \\|").FindAllStringSubmatch(string(page), -1) {
		listed = append(listed, strings.Join(m[1:], " "))
	}
	var exported []string
	synctest.Test(t, func(t *testing.T) {
		alice := watch(t, leasehold.NewMemStore())
		_ = alice.lock(key, "alice").Do(t.Context(), func(ctx context.Context, lease *leasehold.Lease) error {
			alice.cut(errors.New("connection reset"))
			time.Sleep(time.Minute)
			return nil
		})
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
			names := make([]string, 0, len(seen))
			for name := range seen {
				names = append(names, name)
			}
			slices.Sort(names)
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

// What a call does joins the caller's trace; what a lease does by itself does not.
func TestSpansJoinTheTraceOfTheirCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, leasehold.NewMemStore())
		ctx, caller := sdktrace.NewTracerProvider().Tracer("test").Start(t.Context(), "request")
		defer caller.End()
		lease, err := w.lock(key, "ada").TryAcquire(ctx)
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
		require.Equal(t, map[string]int{"leasehold.get": 1, "leasehold.create": 1, "leasehold.acquire": 1, "leasehold.update": 1}, joined)
	})
}
