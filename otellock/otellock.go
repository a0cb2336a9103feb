// Package otellock exports OpenTelemetry metrics and spans of leasehold's locks.
//
//	observer, err := otellock.New()
//	lock, err := leasehold.NewLock(store, key, leasehold.WithObserver(observer.Observe))
//
// Every metric of a lock has the attribute leasehold.lock.key. Histograms are in seconds.
//
//	leasehold.request.duration      histogram  requests to the store
//	leasehold.acquisition.duration  histogram  attempts that acquired the lock
//	leasehold.renewal.duration      histogram  attempts to renew the lease
//	leasehold.renewal.remaining     histogram  validity left at the end of such an attempt
//	leasehold.leader                gauge      1 if this process holds the lock, else 0
//	leasehold.token                 gauge      the highest fencing token seen; absent before
//	leasehold.transitions           counter    new terms seen, of any holder
//	leasehold.lost                  counter    terms of this process that ended against its will
//	leasehold.overruns              counter    functions that ran past the end of a term
//
// Tables of package locktable have separate metrics, with the attribute leasehold.table.key and
// without spans. [Observer.ObserveTable] records their events:
//
//	leasehold.table.request.duration      histogram  reads and writes of the table's object
//	leasehold.table.acquisition.duration  histogram  from the call until the lease
//	leasehold.table.leases                gauge      leases that this process holds
//	leasehold.table.lost                  counter    leases that ended against its will
//	leasehold.table.held                  gauge      requests that hold, of all members
//	leasehold.table.waiting               gauge      requests that wait, of all members
//	leasehold.table.members               gauge      members of the table
//	leasehold.table.size                  gauge      bytes of the table's object
//
// The last four have the values of the version of the table that was seen last.
//
// Requests have the attribute leasehold.operation. Requests, renewals and lost terms have
// error.type, but only after failures, as the semantic conventions require. For requests and
// renewals the value is [leasehold.Outcome]. For leasehold.lost it is "expired", "taken_over",
// "deleted", "broken", "corrupt" or "unsafe_store".
//
// The spans of requests are leasehold.get, leasehold.create and leasehold.update. The spans
// leasehold.acquire and leasehold.renew last as long as an attempt with all its requests. The span
// leasehold.overrun marks an overrun. The span leasehold.term begins when this process acquires the
// lock, and ends with the term. The spans of acquire, renew and overrun link to it.
//
// The spans of a call such as Acquire or Renew join the trace of the call's context. The term, and
// the background requests of a lease, have separate traces.
package otellock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/leasehold-go/leasehold"
)

const scope = "github.com/leasehold-go/leasehold/otellock"

const (
	lockKey   = attribute.Key("leasehold.lock.key")
	holder    = attribute.Key("leasehold.lock.holder")
	token     = attribute.Key("leasehold.lock.token")
	operation = attribute.Key("leasehold.operation")
	errorType = attribute.Key("error.type")
)

// Option configures an [Observer].
type Option func(*config)

type config struct {
	meters  metric.MeterProvider
	tracers trace.TracerProvider
}

// WithMeterProvider sets the provider that receives the metrics. The default is
// [otel.GetMeterProvider]. The provider of package metric/noop turns metrics off.
func WithMeterProvider(p metric.MeterProvider) Option { return func(c *config) { c.meters = p } }

// WithTracerProvider sets the provider that receives the spans. The default is
// [otel.GetTracerProvider]. The provider of package trace/noop turns spans off.
func WithTracerProvider(p trace.TracerProvider) Option { return func(c *config) { c.tracers = p } }

// New returns an observer. Pass its method Observe to [leasehold.WithObserver]. It returns an error
// if an option or a provider is nil, or if the meter provider refuses an instrument.
func New(opts ...Option) (*Observer, error) {
	c := config{otel.GetMeterProvider(), otel.GetTracerProvider()}
	for _, opt := range opts {
		if opt == nil {
			return nil, errors.New("otellock: an Option is nil")
		}
		opt(&c)
	}
	if c.meters == nil || c.tracers == nil {
		return nil, errors.New("otellock: provider is nil: to turn metrics or spans off, pass the provider of a " +
			"noop package")
	}
	o := &Observer{tracer: c.tracers.Tracer(scope), locks: map[string]*state{}}
	if err := o.instruments(c.meters.Meter(scope)); err != nil {
		return nil, fmt.Errorf("otellock: %w", err)
	}
	return o, nil
}

// Observer turns the events of locks into metrics and spans. It is safe for concurrent use, and one
// is enough for all locks of a process. Locks with the same key that share an observer count as one
// lock. An observer keeps the series of every key it has seen, so do not generate keys without
// limit.
type Observer struct {
	tracer                                   trace.Tracer
	request, acquisition, renewal, remaining metric.Float64Histogram
	transitions, lost, overruns              metric.Int64Counter
	leader, highest                          metric.Int64ObservableGauge
	gauges                                   metric.Registration
	tables                                   tables

	mu     sync.Mutex // guards what follows
	closed bool
	locks  map[string]*state
}

// state is what the events of one key have shown.
type state struct {
	highest   uint64     // token seen
	announced uint64     // token of the last EventNewLeader
	held      uint64     // token of the last EventAcquired
	leading   bool       // the term of held has not ended
	term      trace.Span // of held
}

// durations are the boundaries that the semantic conventions advise for requests.
var (
	durations = metric.WithExplicitBucketBoundaries(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5,
		0.75, 1, 2.5, 5, 7.5, 10)
	validity = metric.WithExplicitBucketBoundaries(0.25, 0.5, 1, 2.5, 5, 7.5, 10, 15, 20, 30, 45, 60)
)

func (o *Observer) instruments(m metric.Meter) error {
	var errs []error
	histogram := func(name, help string, buckets metric.HistogramOption) metric.Float64Histogram {
		h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(help), buckets)
		errs = append(errs, err)
		return h
	}
	counter := func(name, unit, help string) metric.Int64Counter {
		c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(help))
		errs = append(errs, err)
		return c
	}
	gauge := func(name, unit, help string) metric.Int64ObservableGauge {
		g, err := m.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(help))
		errs = append(errs, err)
		return g
	}
	o.request = histogram("leasehold.request.duration", "Duration of requests to the store.", durations)
	o.acquisition = histogram("leasehold.acquisition.duration",
		"Duration of attempts that acquired the lock.", durations)
	o.renewal = histogram("leasehold.renewal.duration", "Duration of attempts to renew the lease.", durations)
	o.remaining = histogram("leasehold.renewal.remaining", "Validity of the lease that was left at the end of an "+
		"attempt to renew it.", validity)
	o.transitions = counter("leasehold.transitions", "{transition}", "New terms seen, of any holder.")
	o.lost = counter("leasehold.lost", "{term}", "Terms of this process that ended against its will.")
	o.overruns = counter("leasehold.overruns", "{overrun}",
		"Functions that were still running when their lease was lost and its safety margin had passed.")
	o.leader = gauge("leasehold.leader", "{leader}", "1 if this process holds the lock, else 0.")
	o.highest = gauge("leasehold.token", "{token}", "The highest fencing token seen.")
	ofTables, err := o.tables.instruments(m)
	if err := errors.Join(append(errs, err)...); err != nil {
		return err
	}
	o.gauges, err = m.RegisterCallback(o.report, append(ofTables, o.leader, o.highest)...)
	return err
}

// Close stops reporting gauges, ends the open spans of terms, and makes Observe ignore later
// events. Close does not affect metrics and spans that are already recorded. Only a program that
// creates observers again and again needs Close. Further calls do nothing. The error comes from the
// meter provider.
func (o *Observer) Close() error {
	o.mu.Lock()
	if o.closed {
		o.mu.Unlock()
		return nil
	}
	o.closed = true
	for _, s := range o.locks {
		s.end(time.Now(), nil)
	}
	o.mu.Unlock() // because Unregister may wait for a collection, which waits for the mutex in report
	if err := o.gauges.Unregister(); err != nil {
		return fmt.Errorf("otellock: %w", err)
	}
	return nil
}

// report runs at each collection, because a gauge that was only set at events would be absent from
// the next delta.
func (o *Observer) report(_ context.Context, to metric.Observer) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for key, s := range o.locks {
		leading := int64(0)
		if s.leading {
			leading = 1
		}
		to.ObserveInt64(o.leader, leading, metric.WithAttributes(lockKey.String(key)))
		if s.highest > 0 {
			to.ObserveInt64(o.highest, int64(s.highest), metric.WithAttributes(lockKey.String(key)))
		}
	}
	o.tables.report(to)
	return nil
}

// Observe records one event. Pass it to [leasehold.WithObserver]. It is safe for concurrent use,
// and as quick as the span processors of the tracer provider.
func (o *Observer) Observe(ctx context.Context, e leasehold.Event) {
	now := time.Now()
	attrs := []attribute.KeyValue{lockKey.String(e.Key)}
	result := attrs
	if e.Err != nil {
		result = append(result, errorType.String(leasehold.Outcome(e.Err)))
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return
	}
	s := o.state(ctx, e.Key)
	s.highest = max(s.highest, e.Token)
	switch e.Kind {
	case leasehold.EventRequest:
		result = append(result, operation.String(e.Op))
		o.request.Record(ctx, e.Duration.Seconds(), metric.WithAttributes(result...))
		o.span(ctx, e, s, "leasehold."+e.Op, now, trace.SpanKindClient, result)
	case leasehold.EventNewLeader:
		if e.Token != s.announced { // another lock of this key may have announced it already
			s.announced = e.Token
			o.transitions.Add(ctx, 1, metric.WithAttributes(attrs...))
		}
	case leasehold.EventAcquired:
		o.acquisition.Record(ctx, e.Duration.Seconds(), metric.WithAttributes(attrs...))
		s.end(now, nil)
		s.held, s.leading = e.Token, true
		_, s.term = o.tracer.Start(ctx, "leasehold.term", trace.WithNewRoot(), trace.WithTimestamp(now),
			trace.WithAttributes(ofTerm(e, attrs)...))
		o.span(ctx, e, s, "leasehold.acquire", now, trace.SpanKindInternal, attrs)
	case leasehold.EventRenewed, leasehold.EventRenewFailed:
		o.renewal.Record(ctx, e.Duration.Seconds(), metric.WithAttributes(result...))
		o.remaining.Record(ctx, max(e.Remaining, 0).Seconds(), metric.WithAttributes(result...))
		o.span(ctx, e, s, "leasehold.renew", now, trace.SpanKindInternal, result)
	case leasehold.EventLost:
		o.lost.Add(ctx, 1, metric.WithAttributes(result...))
		s.ended(now, e)
	case leasehold.EventReleased:
		s.ended(now, e)
	case leasehold.EventOverrun:
		o.overruns.Add(ctx, 1, metric.WithAttributes(attrs...))
		o.span(ctx, e, s, "leasehold.overrun", now, trace.SpanKindInternal, append(attrs, errorType.String("overrun")))
	}
}

// state returns the state of a key. It starts the counters of a new key at 0, because the first
// value of a counter does not count as an increase.
func (o *Observer) state(ctx context.Context, key string) *state {
	s, ok := o.locks[key]
	if !ok {
		s = &state{}
		o.locks[key] = s
		attrs := lockKey.String(key)
		o.transitions.Add(ctx, 0, metric.WithAttributes(attrs))
		o.overruns.Add(ctx, 0, metric.WithAttributes(attrs))
		for _, cause := range [...]string{"expired", "taken_over", "deleted", "broken", "corrupt", "unsafe_store"} {
			o.lost.Add(ctx, 0, metric.WithAttributes(attrs, errorType.String(cause)))
		}
	}
	return s
}

// ended notes the end of the term of e, unless another lock of this key has acquired a later one.
func (s *state) ended(now time.Time, e leasehold.Event) {
	if s.held == e.Token {
		s.end(now, e.Err)
	}
}

// end ends the span of this process's term, unless it has ended. err is the error of a failed
// release, which ends the term too, or of a loss.
func (s *state) end(now time.Time, err error) {
	if !s.leading {
		return
	}
	s.leading = false
	if err != nil {
		s.term.SetAttributes(errorType.String(leasehold.Outcome(err)))
		s.term.SetStatus(codes.Error, err.Error())
	}
	s.term.End(trace.WithTimestamp(now))
}

// span records a span that ends now. A request that the store refuses because another process was
// faster is not an error.
func (o *Observer) span(ctx context.Context, e leasehold.Event, s *state, name string, now time.Time,
	kind trace.SpanKind, attrs []attribute.KeyValue) {
	opts := []trace.SpanStartOption{trace.WithTimestamp(now.Add(-e.Duration)), trace.WithSpanKind(kind)}
	if e.Token != 0 {
		attrs = ofTerm(e, attrs)
		if e.Token == s.held {
			opts = append(opts, trace.WithLinks(trace.Link{SpanContext: s.term.SpanContext()}))
		}
	}
	_, span := o.tracer.Start(ctx, name, append(opts, trace.WithAttributes(attrs...))...)
	answer := errors.Is(e.Err, leasehold.ErrNotExist) || errors.Is(e.Err, leasehold.ErrPreconditionFailed)
	if e.Err != nil && (e.Kind != leasehold.EventRequest || !answer) {
		span.SetStatus(codes.Error, e.Err.Error())
	}
	span.End(trace.WithTimestamp(now))
}

func ofTerm(e leasehold.Event, attrs []attribute.KeyValue) []attribute.KeyValue {
	return append(attrs[:len(attrs):len(attrs)], token.Int64(int64(e.Token)), holder.String(e.Holder))
}
