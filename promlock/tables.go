package promlock

import (
	"context"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/locktable"
)

// tables are the metrics of tables of locks.
type tables struct {
	request, acquisition                *prometheus.HistogramVec
	lost                                *prometheus.CounterVec
	leases, held, waiting, size, joined *prometheus.GaugeVec
}

func newTables(o options) tables {
	return tables{
		request: o.histogram("table_request_duration_seconds", "Duration of reads and writes of the table's object.",
			durations, "key", "op", "outcome"),
		acquisition: o.histogram("table_acquisition_duration_seconds",
			"Time from the call until the table has granted the request.", durations, "key"),
		lost:    counter("table_lost_total", "Leases of this process that ended against its will.", "key"),
		leases:  gauge("table_leases", "Leases that this process holds."),
		held:    gauge("table_held", "Requests of all members that hold their locks, when the table was seen last."),
		waiting: gauge("table_waiting", "Requests of all members that wait, when the table was seen last."),
		size:    gauge("table_bytes", "Size of the table's object, when it was seen last."),
		joined:  gauge("table_members", "Members of the table, when it was seen last."),
	}
}

func (t *tables) vectors() []prometheus.Collector {
	return []prometheus.Collector{
		t.request, t.acquisition, t.lost, t.leases, t.held, t.waiting, t.size, t.joined,
	}
}

// ObserveTable records one event of a table. Pass it to [locktable.WithObserver]. It does no I/O,
// and is safe for concurrent use.
func (c *Collector) ObserveTable(_ context.Context, e locktable.Event) {
	c.made()
	t := &c.tables
	leases, lost := t.leases.WithLabelValues(e.Table), t.lost.WithLabelValues(e.Table) // which begin at 0
	switch e.Kind {
	case locktable.EventRead:
		t.requested(e, "read")
	case locktable.EventWrite:
		t.requested(e, "write")
	case locktable.EventAcquired:
		t.acquisition.WithLabelValues(e.Table).Observe(e.Duration.Seconds())
		leases.Inc()
	case locktable.EventLost:
		lost.Inc()
		leases.Dec()
	case locktable.EventReleased:
		leases.Dec()
	}
}

func (t *tables) requested(e locktable.Event, op string) {
	t.request.WithLabelValues(e.Table, op, leasehold.Outcome(e.Err)).Observe(e.Duration.Seconds())
	if e.Err != nil {
		return
	}
	t.held.WithLabelValues(e.Table).Set(float64(e.Held))
	t.waiting.WithLabelValues(e.Table).Set(float64(e.Waiting))
	t.size.WithLabelValues(e.Table).Set(float64(e.Bytes))
	t.joined.WithLabelValues(e.Table).Set(float64(e.Members))
}
