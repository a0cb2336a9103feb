package promlock

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/leasehold-go/leasehold/shards"
)

// shardVectors are the metrics of groups. They need no lock of their own: the events of one planner come one after the other.
type shardVectors struct {
	started, stopped, failures, refused, moved *prometheus.CounterVec
	owned, planned, members, imbalance         *prometheus.GaugeVec
}

func newShardVectors() shardVectors {
	return shardVectors{
		started:   counter("shards_started_total", "Shards that this member has begun to own.", "prefix", "member"),
		stopped:   counter("shards_stopped_total", "Shards that this member has ceased to own.", "prefix", "member", "cause"),
		failures:  counter("shards_failures_total", "Errors and panics of handlers.", "prefix", "member"),
		refused:   counter("shards_refused_total", "Reports of this member that it cannot take a shard.", "prefix", "member", "outcome"),
		moved:     counter("shards_moved_total", "Shards to which plans of this member gave a new owner.", "prefix", "member"),
		owned:     gauge("shards_owned", "Shards that this member owns, until their handlers have returned.", "prefix", "member"),
		planned:   gauge("shards_planned", "Shards of the plan.", "prefix", "member"),
		members:   gauge("shards_members", "Members that own shards by the plan, or may.", "prefix", "member"),
		imbalance: gauge("shards_imbalance", "Difference between the most and the fewest shards of a member by the plan.", "prefix", "member"),
	}
}

func (v *shardVectors) all() []prometheus.Collector {
	return []prometheus.Collector{v.started, v.stopped, v.failures, v.refused, v.moved, v.owned, v.planned, v.members, v.imbalance}
}

// ObserveShards records one event of a group; pass it to [shards.WithObserver]. It does no I/O, and is safe for concurrent use.
// Each member has 17 series at most, however many shards there are. Their labels are prefix, that of the group, and member:
//
//	leasehold_shards_owned           gauge    shards that this member owns, until their handlers have returned
//	leasehold_shards_started_total   counter  shards that it has begun to own
//	leasehold_shards_stopped_total   counter  shards that it has ceased to own, by cause
//	leasehold_shards_failures_total  counter  errors and panics of handlers
//	leasehold_shards_refused_total   counter  reports that it cannot take a shard, by outcome
//	leasehold_shards_moved_total     counter  shards to which its plans gave a new owner
//	leasehold_shards_planned         gauge    shards of the plan
//	leasehold_shards_members         gauge    members that own shards by the plan, or may
//	leasehold_shards_imbalance       gauge    difference between the most and the fewest shards of a member by the plan
//
// Only the planner has the last three. The labels cause and outcome are [shards.Event.Outcome].
func (c *Collector) ObserveShards(e shards.Event) {
	v := &c.shards
	v.begin(e.Prefix, e.Member)
	switch e.Kind {
	case shards.EventStarted:
		v.started.WithLabelValues(e.Prefix, e.Member).Inc()
		v.owned.WithLabelValues(e.Prefix, e.Member).Inc()
	case shards.EventStopped:
		v.stopped.WithLabelValues(e.Prefix, e.Member, e.Outcome()).Inc()
		v.owned.WithLabelValues(e.Prefix, e.Member).Dec()
	case shards.EventFailed:
		v.failures.WithLabelValues(e.Prefix, e.Member).Inc()
	case shards.EventRefused:
		v.refused.WithLabelValues(e.Prefix, e.Member, e.Outcome()).Inc()
	case shards.EventElected, shards.EventPlanned:
		v.moved.WithLabelValues(e.Prefix, e.Member).Add(float64(e.Moved))
		v.planned.WithLabelValues(e.Prefix, e.Member).Set(float64(e.Shards))
		v.members.WithLabelValues(e.Prefix, e.Member).Set(float64(e.Members))
		v.imbalance.WithLabelValues(e.Prefix, e.Member).Set(float64(e.Imbalance))
	case shards.EventRetired:
		for _, ofPlanner := range [...]*prometheus.GaugeVec{v.planned, v.members, v.imbalance} {
			ofPlanner.DeleteLabelValues(e.Prefix, e.Member)
		}
	}
}

// begin starts the series of a member at 0, because rate() does not count a series' first value as an increase.
func (v *shardVectors) begin(prefix, member string) {
	v.owned.WithLabelValues(prefix, member)
	for _, counter := range [...]*prometheus.CounterVec{v.started, v.failures, v.moved} {
		counter.WithLabelValues(prefix, member)
	}
	for _, cause := range [...]string{"moved", "left", "expired", "taken_over", "deleted", "broken", "corrupt"} {
		v.stopped.WithLabelValues(prefix, member, cause)
	}
	for _, outcome := range [...]string{"permanent", "timeout", "error"} {
		v.refused.WithLabelValues(prefix, member, outcome)
	}
}
