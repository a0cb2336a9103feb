// Package promlock gives the locks of leasehold Prometheus metrics.
//
//	metrics := promlock.New()
//	prometheus.MustRegister(metrics)
//	lock, err := leasehold.NewLock(store, key, leasehold.WithObserver(metrics.Observe))
//
// Metrics, all with the label key, that of the lock:
//
//	leasehold_request_duration_seconds      histogram  requests to the store, by op (get, create, update) and outcome
//	leasehold_acquisition_duration_seconds  histogram  tries that got the lock
//	leasehold_renewal_duration_seconds      histogram  tries to renew, by outcome
//	leasehold_renewal_remaining_seconds     histogram  how much longer the lease was valid at the end of such a try
//	leasehold_leader                        gauge      1 if this process holds the lock, else 0
//	leasehold_token                         gauge      the highest fencing token seen; not there before one is
//	leasehold_transitions_total             counter    terms seen to begin, anybody's
//	leasehold_lost_total                    counter    terms that ended against the holder's will, by cause: see below
//	leasehold_overruns_total                counter    functions that still ran when somebody else may have led
//
// outcome is what [leasehold.Event.Outcome] says; cause is "expired", "taken_over", "deleted", "broken" or "corrupt".
//
// All names begin with leasehold_, so the collector can be registered where controller-runtime or client-go register metrics of
// their own, such as leader_election_master_status.
//
// alerts.yml and dashboard.json, beside this package's source, are rules for Prometheus and a dashboard for Grafana.
package promlock

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/leasehold-go/leasehold"
)

// Collector is a [prometheus.Collector] of what locks report to it. It is safe for concurrent use; one is enough for all
// locks of a process. It remembers every key it has seen, so keys should not be made up by the thousand; locks of the
// same key that share a collector count as one.
type Collector struct {
	request, acquisition, renewal, left *prometheus.HistogramVec
	transitions, lost, overruns         *prometheus.CounterVec

	mu    sync.Mutex // guards what follows
	locks map[string]*state
}

// state is what is known of one key.
type state struct {
	highest uint64    // token seen
	shown   uint64    // the token of the last EventNewLeader
	held    uint64    // the last token held by this process
	leading bool      // with token held
	until   time.Time // how long the lease is valid, so far as is known
}

var (
	leader = prometheus.NewDesc("leasehold_leader",
		"1 if this process holds the lock, else 0.", []string{"key"}, nil)
	token = prometheus.NewDesc("leasehold_token",
		"The highest fencing token seen.", []string{"key"}, nil)
)

// seconds are buckets for requests; validity is measured in larger ones.
var (
	seconds  = []float64{0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10}
	validity = []float64{0.25, 0.5, 1, 2.5, 5, 7.5, 10, 15, 20, 30, 45, 60}
)

// New returns a collector, to be registered; its method Observe is for [leasehold.WithObserver].
func New() *Collector {
	return &Collector{
		request:     histogram("request_duration_seconds", "Duration of requests to the store.", seconds, "key", "op", "outcome"),
		acquisition: histogram("acquisition_duration_seconds", "Duration of tries that got the lock.", seconds, "key"),
		renewal:     histogram("renewal_duration_seconds", "Duration of tries to renew the lease.", seconds, "key", "outcome"),
		left: histogram("renewal_remaining_seconds",
			"How much longer the lease was valid at the end of a try to renew it.", validity, "key", "outcome"),
		transitions: counter("transitions_total", "Terms seen to begin, of any holder.", "key"),
		lost: counter("lost_total",
			"Terms that ended against the will of their holder, this process.", "key", "cause"),
		overruns: counter("overruns_total",
			"Functions that still ran when their lease was lost and its safety margin over.", "key"),
		locks: map[string]*state{},
	}
}

func histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "leasehold", Name: name, Help: help, Buckets: buckets}, labels)
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "leasehold", Name: name, Help: help}, labels)
}

func (c *Collector) vectors() []prometheus.Collector {
	return []prometheus.Collector{c.request, c.acquisition, c.renewal, c.left, c.transitions, c.lost, c.overruns}
}

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, v := range c.vectors() {
		v.Describe(to)
	}
	to <- leader
	to <- token
}

// Collect implements [prometheus.Collector].
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	for _, v := range c.vectors() {
		v.Collect(to)
	}
	for _, m := range c.gauges() { // not sent under the mutex, for a slow reader must not stop a lock
		to <- m
	}
}

func (c *Collector) gauges() (list []prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for key, s := range c.locks {
		leading := 0.0
		// A release that does not get through is not reported: then the lease runs out.
		if s.leading && (s.until.IsZero() || now.Before(s.until)) {
			leading = 1
		}
		list = append(list, gauge(leader, leading, key))
		if s.highest > 0 {
			list = append(list, gauge(token, float64(s.highest), key))
		}
	}
	return list
}

func gauge(desc *prometheus.Desc, value float64, label string) prometheus.Metric {
	return prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, label)
}

// Observe takes one event. It is quick, and is what to give to [leasehold.WithObserver].
func (c *Collector) Observe(e leasehold.Event) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.state(e.Key)
	switch e.Kind {
	case leasehold.EventRequest:
		c.request.WithLabelValues(e.Key, e.Op, e.Outcome()).Observe(e.Duration.Seconds())
	case leasehold.EventAcquired:
		c.acquisition.WithLabelValues(e.Key).Observe(e.Duration.Seconds())
		for _, outcome := range [...]string{"ok", "timeout", "error"} { // a count that begins above 0 shows no increase
			c.renewal.WithLabelValues(e.Key, outcome)
		}
		s.held, s.highest, s.leading, s.until = e.Token, max(s.highest, e.Token), true, time.Time{}
		s.valid(now, e)
	case leasehold.EventRenewed, leasehold.EventRenewFailed:
		c.renewal.WithLabelValues(e.Key, e.Outcome()).Observe(e.Duration.Seconds())
		c.left.WithLabelValues(e.Key, e.Outcome()).Observe(max(e.Remaining, 0).Seconds())
		if s.held == e.Token {
			s.valid(now, e)
		}
	case leasehold.EventLost:
		c.lost.WithLabelValues(e.Key, e.Outcome()).Inc()
		s.leading = s.leading && s.held != e.Token
	case leasehold.EventReleased:
		s.leading = s.leading && s.held != e.Token
	case leasehold.EventNewLeader:
		if e.Token == s.shown {
			return // to another lock of this key
		}
		c.transitions.WithLabelValues(e.Key).Inc()
		s.shown, s.highest = e.Token, max(s.highest, e.Token)
		s.leading = s.leading && s.held >= e.Token
	case leasehold.EventOverrun:
		c.overruns.WithLabelValues(e.Key).Inc()
	}
}

// state returns that of a key. A counter that begins at 1 shows no increase, so the first sight of a key sets its counters to 0.
func (c *Collector) state(key string) *state {
	s, ok := c.locks[key]
	if !ok {
		s = &state{}
		c.locks[key] = s
		c.transitions.WithLabelValues(key)
		c.overruns.WithLabelValues(key)
		for _, cause := range causes {
			c.lost.WithLabelValues(key, cause)
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

// causes are the outcomes of [leasehold.EventLost].
var causes = [...]string{"expired", "taken_over", "deleted", "broken", "corrupt"}
