// Package otellock gives the locks of leasehold OpenTelemetry metrics and spans.
//
//	observer, err := otellock.New()
//	lock, err := leasehold.NewLock(store, key, leasehold.WithObserver(observer.Observe))
//
// Metrics, all with the attribute leasehold.lock.key:
//
//	leasehold.request.duration      histogram  s             requests to the store, by leasehold.operation and error.type
//	leasehold.acquisition.duration  histogram  s             tries that got the lock
//	leasehold.renewal.duration      histogram  s             tries to renew, by error.type
//	leasehold.renewal.remaining     histogram  s             how much longer the lease was valid at the end of such a try
//	leasehold.leader                gauge      {leader}      1 if this process holds the lock, else 0
//	leasehold.token                 gauge      {token}       the highest fencing token seen
//	leasehold.transitions           counter    {transition}  terms seen to begin, anybody's
//	leasehold.lost                  counter    {term}        terms that ended against the holder's will, by error.type: see below
//	leasehold.overruns              counter    {overrun}     functions that still ran when somebody else may have led
//
// As the semantic conventions have it, error.type is there only after a failure. For requests and renewals it is what
// [leasehold.Event.Outcome] says; for leasehold.lost it is "expired", "taken_over", "deleted", "broken" or "corrupt".
//
// Spans: leasehold.get, leasehold.create and leasehold.update for requests, leasehold.acquire, leasehold.renew and
// leasehold.overrun; and leasehold.term, which lasts as long as the term and ends with it. What a call such as Acquire or Renew
// does joins the trace of its context. The term, and what a lease does in the background, are traces of their own. Spans that
// know their term link to its span.
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

// WithMeterProvider sets where metrics go: default [otel.GetMeterProvider]. That of package metric/noop turns them off.
func WithMeterProvider(p metric.MeterProvider) Option { return func(c *config) { c.meters = p } }

// WithTracerProvider sets where spans go: default [otel.GetTracerProvider]. That of package trace/noop turns them off.
func WithTracerProvider(p trace.TracerProvider) Option { return func(c *config) { c.tracers = p } }

// New returns an observer; its method Observe is for [leasehold.WithObserver].
// The error is that of a provider that is nil, or of an instrument which the meter provider refuses.
func New(opts ...Option) (*Observer, error) {
	c := config{otel.GetMeterProvider(), otel.GetTracerProvider()}
	for _, opt := range opts {
		opt(&c)
	}
	if c.meters == nil || c.tracers == nil {
		return nil, errors.New("otellock: provider is nil: to turn metrics or spans off, give that of a noop package")
	}
	o := &Observer{tracer: c.tracers.Tracer(scope), locks: map[string]*state{}}
	if err := o.instruments(c.meters.Meter(scope)); err != nil {
		return nil, fmt.Errorf("otellock: %w", err)
	}
	return o, nil
}

// Observer makes metrics and spans of what locks report to it. It is safe for concurrent use; one is enough for all locks of a
// process. It remembers every key it has seen, so keys should not be made up by the thousand; locks of the same key that share
// an observer count as one.
type Observer struct {
	tracer                              trace.Tracer
	request, acquisition, renewal, left metric.Float64Histogram
	transitions, lost, overruns         metric.Int64Counter
	leader, highest                     metric.Int64ObservableGauge
	gauges                              metric.Registration

	mu     sync.Mutex // guards what follows
	closed bool
	locks  map[string]*state
}

// state is what is known of one key.
type state struct {
	highest uint64     // token seen
	shown   uint64     // the token of the last EventNewLeader
	held    uint64     // the last token held by this process
	leading bool       // with token held
	until   time.Time  // how long the lease is valid, so far as is known
	over    time.Time  // when leading became false
	term    trace.Span // of held
	open    bool       // term has not been ended
}

// seconds are the boundaries that the semantic conventions advise for requests; validity is measured in larger ones.
var (
	seconds  = metric.WithExplicitBucketBoundaries(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
	validity = metric.WithExplicitBucketBoundaries(0.25, 0.5, 1, 2.5, 5, 7.5, 10, 15, 20, 30, 45, 60)
)

func (o *Observer) instruments(m metric.Meter) error {
	errs := make([]error, 9)
	o.request, errs[0] = m.Float64Histogram("leasehold.request.duration", metric.WithUnit("s"), seconds,
		metric.WithDescription("Duration of requests to the store."))
	o.acquisition, errs[1] = m.Float64Histogram("leasehold.acquisition.duration", metric.WithUnit("s"), seconds,
		metric.WithDescription("Duration of tries that got the lock."))
	o.renewal, errs[2] = m.Float64Histogram("leasehold.renewal.duration", metric.WithUnit("s"), seconds,
		metric.WithDescription("Duration of tries to renew the lease."))
	o.left, errs[3] = m.Float64Histogram("leasehold.renewal.remaining", metric.WithUnit("s"), validity,
		metric.WithDescription("How much longer the lease was valid at the end of a try to renew it."))
	o.transitions, errs[4] = m.Int64Counter("leasehold.transitions", metric.WithUnit("{transition}"),
		metric.WithDescription("Terms seen to begin, of any holder."))
	o.lost, errs[5] = m.Int64Counter("leasehold.lost", metric.WithUnit("{term}"),
		metric.WithDescription("Terms that ended against the will of their holder, this process."))
	o.overruns, errs[6] = m.Int64Counter("leasehold.overruns", metric.WithUnit("{overrun}"),
		metric.WithDescription("Functions that still ran when their lease was lost and its safety margin over."))
	o.leader, errs[7] = m.Int64ObservableGauge("leasehold.leader", metric.WithUnit("{leader}"),
		metric.WithDescription("1 if this process holds the lock, else 0."))
	o.highest, errs[8] = m.Int64ObservableGauge("leasehold.token", metric.WithUnit("{token}"),
		metric.WithDescription("The highest fencing token seen."))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	var err error
	o.gauges, err = m.RegisterCallback(o.report, o.leader, o.highest)
	return err
}

// Close ends the observer: gauges are reported no more, open spans of terms are ended, and later events are ignored. What else
// it has recorded is the providers' to export. It is for programs that make locks and observers again and again; closing twice
// does no harm. The error is the meter provider's.
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
	o.mu.Unlock() // a collection that is under way reports, and Unregister may wait for it
	if err := o.gauges.Unregister(); err != nil {
		return fmt.Errorf("otellock: %w", err)
	}
	return nil
}

// report is called at each collection: a gauge must be there even if nothing has happened since the last one.
func (o *Observer) report(_ context.Context, to metric.Observer) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	for key, s := range o.locks {
		leading := int64(0)
		// A release that does not get through is not reported: then the lease runs out.
		if s.leading && (s.until.IsZero() || now.Before(s.until)) {
			leading = 1
		}
		to.ObserveInt64(o.leader, leading, metric.WithAttributes(lockKey.String(key)))
		if s.highest > 0 {
			to.ObserveInt64(o.highest, int64(s.highest), metric.WithAttributes(lockKey.String(key)))
		}
	}
	return nil
}

// Observe takes one event. It is quick, and is what to give to [leasehold.WithObserver].
func (o *Observer) Observe(e leasehold.Event) {
	now := time.Now()
	ctx := context.Background()
	attrs := []attribute.KeyValue{lockKey.String(e.Key)}
	failed := attrs
	if e.Err != nil {
		failed = append(failed, errorType.String(e.Outcome()))
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return
	}
	s := o.state(ctx, e.Key)
	switch e.Kind {
	case leasehold.EventRequest:
		failed = append(failed, operation.String(e.Op))
		o.request.Record(ctx, e.Duration.Seconds(), metric.WithAttributes(failed...))
		o.span(e, s, "leasehold."+e.Op, now, trace.SpanKindClient, failed)
	case leasehold.EventAcquired:
		o.acquisition.Record(ctx, e.Duration.Seconds(), metric.WithAttributes(attrs...))
		s.end(now, nil)
		s.held, s.highest, s.leading, s.open, s.until = e.Token, max(s.highest, e.Token), true, true, time.Time{}
		s.valid(now, e)
		_, s.term = o.tracer.Start(ctx, "leasehold.term", trace.WithNewRoot(), trace.WithTimestamp(now), trace.WithAttributes(ofTerm(e, attrs)...))
		o.span(e, s, "leasehold.acquire", now, trace.SpanKindInternal, attrs)
	case leasehold.EventRenewed, leasehold.EventRenewFailed:
		o.renewal.Record(ctx, e.Duration.Seconds(), metric.WithAttributes(failed...))
		o.left.Record(ctx, max(e.Remaining, 0).Seconds(), metric.WithAttributes(failed...))
		o.span(e, s, "leasehold.renew", now, trace.SpanKindInternal, failed)
		if s.held == e.Token {
			s.valid(now, e)
		}
	case leasehold.EventLost:
		o.lost.Add(ctx, 1, metric.WithAttributes(append(attrs, errorType.String(e.Outcome()))...))
		if s.held == e.Token {
			s.end(now, e.Err)
		}
	case leasehold.EventReleased:
		if s.held == e.Token {
			s.end(now, e.Err)
		}
	case leasehold.EventNewLeader:
		if e.Token == s.shown {
			return // to another lock of this key
		}
		o.transitions.Add(ctx, 1, metric.WithAttributes(attrs...))
		s.shown, s.highest = e.Token, max(s.highest, e.Token)
		if e.Token > s.held { // EventLost is about to follow, but not after a release that did not get through
			s.stop(now)
		}
	case leasehold.EventOverrun:
		o.overruns.Add(ctx, 1, metric.WithAttributes(attrs...))
		o.span(e, s, "leasehold.overrun", now, trace.SpanKindInternal, append(attrs, errorType.String("overrun")))
	}
}

// state returns that of a key. A counter that begins at 1 shows no increase, so the first sight of a key sets its counters to 0.
func (o *Observer) state(ctx context.Context, key string) *state {
	s, ok := o.locks[key]
	if !ok {
		s = &state{}
		o.locks[key] = s
		attrs := lockKey.String(key)
		o.transitions.Add(ctx, 0, metric.WithAttributes(attrs))
		o.overruns.Add(ctx, 0, metric.WithAttributes(attrs))
		for _, cause := range causes {
			o.lost.Add(ctx, 0, metric.WithAttributes(attrs, errorType.String(cause)))
		}
	}
	return s
}

// valid notes how long the lease is valid, where an event tells.
func (s *state) valid(now time.Time, e leasehold.Event) {
	if e.Remaining > 0 {
		s.until = now.Add(e.Remaining)
	}
}

// stop notes that this process leads no more.
func (s *state) stop(now time.Time) {
	if s.leading {
		s.leading, s.over = false, now
	}
}

// end ends the term of this process, if that has not been done.
func (s *state) end(now time.Time, lost error) {
	s.stop(now)
	if !s.open {
		return
	}
	s.open = false
	if lost != nil {
		s.term.SetAttributes(errorType.String(leasehold.Event{Err: lost}.Outcome()))
		s.term.SetStatus(codes.Error, lost.Error())
	}
	s.term.End(trace.WithTimestamp(s.over))
}

// span records one that ends now. Answers of the store that say no are no errors: somebody has to lose a race.
func (o *Observer) span(e leasehold.Event, s *state, name string, now time.Time, kind trace.SpanKind, attrs []attribute.KeyValue) {
	opts := []trace.SpanStartOption{trace.WithTimestamp(now.Add(-e.Duration)), trace.WithSpanKind(kind)}
	ctx := e.Context
	if ctx == nil { // in the background
		ctx = context.Background()
	}
	if e.Token != 0 {
		attrs = ofTerm(e, attrs)
		if s.term != nil && e.Token == s.held {
			opts = append(opts, trace.WithLinks(trace.Link{SpanContext: s.term.SpanContext()}))
		}
	}
	_, span := o.tracer.Start(ctx, name, append(opts, trace.WithAttributes(attrs...))...)
	no := errors.Is(e.Err, leasehold.ErrNotExist) || errors.Is(e.Err, leasehold.ErrPreconditionFailed)
	if e.Err != nil && (e.Kind != leasehold.EventRequest || !no) {
		span.SetStatus(codes.Error, e.Err.Error())
	}
	span.End(trace.WithTimestamp(now))
}

func ofTerm(e leasehold.Event, attrs []attribute.KeyValue) []attribute.KeyValue {
	return append(attrs[:len(attrs):len(attrs)], token.Int64(int64(e.Token)), holder.String(e.Holder))
}

// causes are the outcomes of [leasehold.EventLost].
var causes = [...]string{"expired", "taken_over", "deleted", "broken", "corrupt"}
