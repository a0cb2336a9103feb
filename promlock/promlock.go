// Package promlock exports Prometheus metrics of leasehold's locks.
//
//	metrics := promlock.New()
//	prometheus.MustRegister(metrics)
//	lock, err := leasehold.NewLock(store, key, leasehold.WithObserver(metrics.Observe))
//
// Every metric has the label key, the key of the lock:
//
//	leasehold_request_duration_seconds      histogram  requests to the store, by op and outcome
//	leasehold_acquisition_duration_seconds  histogram  attempts that acquired the lock
//	leasehold_renewal_duration_seconds      histogram  attempts to renew the lease, by outcome
//	leasehold_renewal_remaining_seconds     histogram  validity left then, by outcome
//	leasehold_leader                        gauge      1 if this process holds the lock, else 0
//	leasehold_token                         gauge      the highest fencing token seen
//	leasehold_transitions_total             counter    new terms seen, of any holder
//	leasehold_lost_total                    counter    terms that ended against its will, by cause
//	leasehold_overruns_total                counter    functions that ran past the end of a term
//
// The label op is "get", "create" or "update". The label outcome is [leasehold.Outcome]. The label
// cause is "expired", "taken_over", "deleted", "broken", "corrupt" or "unsafe_store".
//
// An elector that leads, and whose requests succeed, makes 144 series, of which 134 belong to 8
// histograms. Each further outcome adds such histograms, of 15 or 17 series. With
// [WithNativeHistograms] the elector makes 18 series where native histograms are scraped, and 34
// elsewhere.
//
// Tables of package locktable have separate metrics, whose label key is the key of the table's
// object. [Collector.ObserveTable] records their events:
//
//	leasehold_table_request_duration_seconds      histogram  reads and writes, by op and outcome
//	leasehold_table_acquisition_duration_seconds  histogram  from the call until the lease
//	leasehold_table_leases                        gauge      leases that this process holds
//	leasehold_table_lost_total                    counter    leases that ended against its will
//	leasehold_table_held                          gauge      requests that hold, of all members
//	leasehold_table_waiting                       gauge      requests that wait, of all members
//	leasehold_table_members                       gauge      members of the table
//	leasehold_table_bytes                         gauge      size of the table's object
//
// The label op of a table is "read" or "write". A write has the outcome "precondition_failed" if a
// write of another member was faster. The last four have the values of the version of the table
// that was seen last.
//
// All names begin with leasehold_, so the collector can share a registry with the metrics of
// controller-runtime and client-go, such as leader_election_master_status.
//
// The directory of this package also has alert rules for Prometheus, alerts.yml, and a dashboard
// for Grafana, dashboard.json.
package promlock

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/leasehold-go/leasehold"
)

// Collector is a [prometheus.Collector] that counts the events of locks. It is safe for concurrent
// use, and one is enough for all locks of a process. Locks with the same key that share a collector
// count as one lock. A collector keeps the series of every key it has seen, so do not generate keys
// without limit.
type Collector struct {
	request, acquisition, renewal, remaining *prometheus.HistogramVec
	transitions, lost, overruns              *prometheus.CounterVec
	leader, token                            *prometheus.GaugeVec
	tables                                   tables

	mu    sync.Mutex // guards locks
	locks map[string]*state
}

// state is what the events of one key have shown.
type state struct {
	highest   uint64 // token seen
	announced uint64 // token of the last EventNewLeader
	held      uint64 // token of the last EventAcquired
}

var (
	durations = []float64{0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10}
	validity  = []float64{0.25, 0.5, 1, 2.5, 5, 7.5, 10, 15, 20, 30, 45, 60}
)

// Option configures a [Collector].
type Option func(*options)

type options struct{ native bool }

// WithNativeHistograms makes each histogram a native histogram, without the classic buckets, which
// are separate series. For a Prometheus that scrapes native histograms, each histogram is one
// series, with buckets that differ by 10 %. Any other Prometheus gets the count, the sum and one
// bucket without information: rates and averages, but no quantiles. The quantiles of dashboard.json
// need the classic buckets.
func WithNativeHistograms() Option { return func(o *options) { o.native = true } }

// New returns a collector. Register it with Prometheus, and pass its method Observe to
// [leasehold.WithObserver]. The methods of a Collector that New did not make panic.
func New(opts ...Option) *Collector {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	return &Collector{
		request: o.histogram("request_duration_seconds", "Duration of requests to the store.", durations,
			"key", "op", "outcome"),
		acquisition: o.histogram("acquisition_duration_seconds",
			"Duration of attempts that acquired the lock.", durations, "key"),
		renewal: o.histogram("renewal_duration_seconds", "Duration of attempts to renew the lease.",
			durations, "key", "outcome"),
		remaining: o.histogram("renewal_remaining_seconds", "Validity of the lease that was left at the end of an "+
			"attempt to renew it.",
			validity, "key", "outcome"),
		transitions: counter("transitions_total", "New terms seen, of any holder.", "key"),
		lost:        counter("lost_total", "Terms of this process that ended against its will.", "key", "cause"),
		overruns: counter("overruns_total",
			"Functions that were still running when their lease was lost and its safety margin had passed.", "key"),
		leader: gauge("leader", "1 if this process holds the lock, else 0."),
		token:  gauge("token", "The highest fencing token seen."),
		tables: newTables(o),
		locks:  map[string]*state{},
	}
}

func (o options) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	opts := prometheus.HistogramOpts{Namespace: "leasehold", Name: name, Help: help, Buckets: buckets}
	if o.native {
		opts.Buckets, opts.NativeHistogramBucketFactor = nil, 1.1
		opts.NativeHistogramMaxBucketNumber, opts.NativeHistogramMinResetDuration = maxBuckets, time.Hour
	}
	return prometheus.NewHistogramVec(opts, labels)
}

// maxBuckets bounds a native histogram. From a millisecond to a minute are some 130.
const maxBuckets = 160

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "leasehold", Name: name, Help: help}, labels)
}

func gauge(name, help string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "leasehold", Name: name, Help: help}, []string{"key"})
}

// made panics if New has not made c, because the methods of a Collector cannot return an error.
func (c *Collector) made() {
	if c == nil || c.locks == nil {
		panic("promlock: the Collector is nil or empty (make one with New)")
	}
}

func (c *Collector) vectors() []prometheus.Collector {
	c.made()
	return append([]prometheus.Collector{c.request, c.acquisition, c.renewal, c.remaining, c.transitions, c.lost,
		c.overruns, c.leader, c.token}, c.tables.vectors()...)
}

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(descs chan<- *prometheus.Desc) {
	for _, v := range c.vectors() {
		v.Describe(descs)
	}
}

// Collect implements [prometheus.Collector].
func (c *Collector) Collect(metrics chan<- prometheus.Metric) {
	for _, v := range c.vectors() {
		v.Collect(metrics)
	}
}

// Observe records one event. Pass it to [leasehold.WithObserver]. It does no I/O, and is safe for
// concurrent use.
func (c *Collector) Observe(_ context.Context, e leasehold.Event) {
	c.made()
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.state(e.Key)
	if e.Token > s.highest {
		s.highest = e.Token
		c.token.WithLabelValues(e.Key).Set(float64(e.Token))
	}
	switch e.Kind {
	case leasehold.EventRequest:
		c.request.WithLabelValues(e.Key, e.Op, leasehold.Outcome(e.Err)).Observe(e.Duration.Seconds())
	case leasehold.EventNewLeader:
		if e.Token != s.announced { // another lock of this key may have announced it already
			s.announced = e.Token
			c.transitions.WithLabelValues(e.Key).Inc()
		}
	case leasehold.EventAcquired:
		c.acquisition.WithLabelValues(e.Key).Observe(e.Duration.Seconds())
		for _, outcome := range [...]string{"ok", "timeout", "error"} { // rate() does not count a series' first value
			c.renewal.WithLabelValues(e.Key, outcome)
		}
		s.held = e.Token
		c.leader.WithLabelValues(e.Key).Set(1)
	case leasehold.EventRenewed, leasehold.EventRenewFailed:
		c.renewal.WithLabelValues(e.Key, leasehold.Outcome(e.Err)).Observe(e.Duration.Seconds())
		c.remaining.WithLabelValues(e.Key, leasehold.Outcome(e.Err)).Observe(max(e.Remaining, 0).Seconds())
	case leasehold.EventLost:
		c.lost.WithLabelValues(e.Key, leasehold.Outcome(e.Err)).Inc()
		c.ended(s, e)
	case leasehold.EventReleased:
		c.ended(s, e)
	case leasehold.EventOverrun:
		c.overruns.WithLabelValues(e.Key).Inc()
	}
}

// state returns the state of a key. It starts the counters of a new key at 0, because rate() does
// not count a series' first value as an increase.
func (c *Collector) state(key string) *state {
	s, ok := c.locks[key]
	if !ok {
		s = &state{}
		c.locks[key] = s
		c.leader.WithLabelValues(key)
		c.transitions.WithLabelValues(key)
		c.overruns.WithLabelValues(key)
		for _, cause := range [...]string{"expired", "taken_over", "deleted", "broken", "corrupt", "unsafe_store"} {
			c.lost.WithLabelValues(key, cause)
		}
	}
	return s
}

// ended notes the end of the term of e, unless another lock of this key has acquired a later one.
func (c *Collector) ended(s *state, e leasehold.Event) {
	if s.held == e.Token {
		c.leader.WithLabelValues(e.Key).Set(0)
	}
}
