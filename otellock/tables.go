package otellock

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/locktable"
)

const tableKey = attribute.Key("leasehold.table.key")

// tables are the metrics of tables of locks. The observer's mutex guards them.
type tables struct {
	request, acquisition                metric.Float64Histogram
	lost                                metric.Int64Counter
	leases, held, waiting, joined, size metric.Int64ObservableGauge

	seen map[string]*tableState
}

// tableState is what the events of one table have shown.
type tableState struct {
	leases int64           // of this process
	last   locktable.Event // that has shown the table; zero before
}

// instruments makes them, and returns the gauges.
func (t *tables) instruments(m metric.Meter) ([]metric.Observable, error) {
	t.seen = map[string]*tableState{}
	var errs [8]error
	t.request, errs[0] = m.Float64Histogram("leasehold.table.request.duration", metric.WithUnit("s"),
		metric.WithDescription("Duration of reads and writes of the table's object."), durations)
	t.acquisition, errs[1] = m.Float64Histogram("leasehold.table.acquisition.duration", metric.WithUnit("s"),
		metric.WithDescription("Time from the call until the table has granted the request."), durations)
	t.lost, errs[2] = m.Int64Counter("leasehold.table.lost", metric.WithUnit("{lease}"),
		metric.WithDescription("Leases of this process that ended against its will."))
	gauge := func(name, unit, help string) (metric.Int64ObservableGauge, error) {
		return m.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(help))
	}
	t.leases, errs[3] = gauge("leasehold.table.leases", "{lease}", "Leases that this process holds.")
	t.held, errs[4] = gauge("leasehold.table.held", "{request}",
		"Requests of all members that hold their locks, when the table was seen last.")
	t.waiting, errs[5] = gauge("leasehold.table.waiting", "{request}",
		"Requests of all members that wait, when the table was seen last.")
	t.joined, errs[6] = gauge("leasehold.table.members", "{member}", "Members of the table, when it was seen last.")
	t.size, errs[7] = gauge("leasehold.table.size", "By", "Size of the table's object, when it was seen last.")
	return []metric.Observable{t.leases, t.held, t.waiting, t.joined, t.size}, errors.Join(errs[:]...)
}

// report is part of the observer's report.
func (t *tables) report(to metric.Observer) {
	for key, s := range t.seen {
		of := metric.WithAttributes(tableKey.String(key))
		to.ObserveInt64(t.leases, s.leases, of)
		if s.last.Table == "" {
			continue
		}
		to.ObserveInt64(t.held, int64(s.last.Held), of)
		to.ObserveInt64(t.waiting, int64(s.last.Waiting), of)
		to.ObserveInt64(t.joined, int64(s.last.Members), of)
		to.ObserveInt64(t.size, int64(s.last.Bytes), of)
	}
}

// ObserveTable records one event of a table. Pass it to [locktable.WithObserver]. It makes no
// spans, and is safe for concurrent use.
func (o *Observer) ObserveTable(_ context.Context, e locktable.Event) {
	ctx, of := context.Background(), tableKey.String(e.Table)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return
	}
	s := o.tables.seen[e.Table]
	if s == nil {
		s = &tableState{}
		o.tables.seen[e.Table] = s
		o.tables.lost.Add(ctx, 0, metric.WithAttributes(of)) // the first value does not count as an increase
	}
	switch e.Kind {
	case locktable.EventRead, locktable.EventWrite:
		attrs := []attribute.KeyValue{of, operation.String(string(e.Kind))}
		if e.Err != nil {
			attrs = append(attrs, errorType.String(leasehold.Outcome(e.Err)))
		} else {
			s.last = e
		}
		o.tables.request.Record(ctx, e.Duration.Seconds(), metric.WithAttributes(attrs...))
	case locktable.EventAcquired:
		o.tables.acquisition.Record(ctx, e.Duration.Seconds(), metric.WithAttributes(of))
		s.leases++
	case locktable.EventLost:
		o.tables.lost.Add(ctx, 1, metric.WithAttributes(of))
		s.leases--
	case locktable.EventReleased:
		s.leases--
	}
}
