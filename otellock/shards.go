package otellock

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/leasehold-go/leasehold/shards"
)

const (
	shardsPrefix = attribute.Key("leasehold.shards.prefix")
	shardsMember = attribute.Key("leasehold.shards.member")
	shardsCause  = attribute.Key("leasehold.shards.cause")
)

// shardInstruments are the metrics of groups.
type shardInstruments struct {
	started, stopped, failures, refused, moved metric.Int64Counter
	owned, planned, members, imbalance         metric.Int64ObservableGauge
}

func newShardInstruments(counter func(name, unit, help string) metric.Int64Counter,
	gauge func(name, unit, help string) metric.Int64ObservableGauge) shardInstruments {
	return shardInstruments{
		started:  counter("leasehold.shards.started", "{shard}", "Shards that this member has begun to own."),
		stopped:  counter("leasehold.shards.stopped", "{shard}", "Shards that this member has ceased to own."),
		failures: counter("leasehold.shards.failures", "{failure}", "Errors and panics of handlers."),
		refused:  counter("leasehold.shards.refused", "{report}", "Reports of this member that it cannot take a shard."),
		moved:    counter("leasehold.shards.moved", "{shard}", "Shards to which plans of this member gave a new owner."),
		owned:    gauge("leasehold.shards.owned", "{shard}", "Shards that this member owns, until their handlers have returned."),
		planned:  gauge("leasehold.shards.planned", "{shard}", "Shards of the plan."),
		members:  gauge("leasehold.shards.members", "{member}", "Members that own shards by the plan, or may."),
		imbalance: gauge("leasehold.shards.imbalance", "{shard}",
			"Difference between the most and the fewest shards of a member by the plan."),
	}
}

func (i *shardInstruments) gauges() []metric.Observable {
	return []metric.Observable{i.owned, i.planned, i.members, i.imbalance}
}

// member is one of a group.
type member struct{ prefix, name string }

func (m member) attributes(more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributes(append(more, shardsPrefix.String(m.prefix), shardsMember.String(m.name))...)
}

// memberState is what the events of one member have told.
type memberState struct {
	owned   int64
	planner bool
	plan    shards.Event // what it says, while the member is the planner
}

func (i *shardInstruments) report(to metric.Observer, m member, s *memberState) {
	attrs := m.attributes()
	to.ObserveInt64(i.owned, s.owned, attrs)
	if s.planner {
		to.ObserveInt64(i.planned, int64(s.plan.Shards), attrs)
		to.ObserveInt64(i.members, int64(s.plan.Members), attrs)
		to.ObserveInt64(i.imbalance, int64(s.plan.Imbalance), attrs)
	}
}

// ObserveShards records one event of a group; pass it to [shards.WithObserver]. It does no I/O, and is safe for concurrent use.
// Each member has 17 data points at most, however many shards there are. Their attributes are leasehold.shards.prefix, that of the
// group, and leasehold.shards.member:
//
//	leasehold.shards.owned      gauge    {shard}    shards that this member owns, until their handlers have returned
//	leasehold.shards.started    counter  {shard}    shards that it has begun to own
//	leasehold.shards.stopped    counter  {shard}    shards that it has ceased to own, by leasehold.shards.cause
//	leasehold.shards.failures   counter  {failure}  errors and panics of handlers
//	leasehold.shards.refused    counter  {report}   reports that it cannot take a shard, by error.type
//	leasehold.shards.moved      counter  {shard}    shards to which its plans gave a new owner
//	leasehold.shards.planned    gauge    {shard}    shards of the plan
//	leasehold.shards.members    gauge    {member}   members that own shards by the plan, or may
//	leasehold.shards.imbalance  gauge    {shard}    difference between the most and the fewest shards of a member by the plan
//
// Only the planner has the last three. The cause and the error.type are [shards.Event.Outcome]. Groups have no spans.
func (o *Observer) ObserveShards(e shards.Event) {
	ctx, m, i := context.Background(), member{e.Prefix, e.Member}, &o.shards
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return
	}
	s := o.member(ctx, m)
	switch e.Kind {
	case shards.EventStarted:
		i.started.Add(ctx, 1, m.attributes())
		s.owned++
	case shards.EventStopped:
		i.stopped.Add(ctx, 1, m.attributes(shardsCause.String(e.Outcome())))
		s.owned--
	case shards.EventFailed:
		i.failures.Add(ctx, 1, m.attributes())
	case shards.EventRefused:
		i.refused.Add(ctx, 1, m.attributes(errorType.String(e.Outcome())))
	case shards.EventElected, shards.EventPlanned:
		i.moved.Add(ctx, int64(e.Moved), m.attributes())
		s.planner, s.plan = true, e
	case shards.EventRetired:
		s.planner = false
	}
}

// member returns the state of a member. It starts the counters of a new one at 0, because the first value of a counter does not count
// as an increase.
func (o *Observer) member(ctx context.Context, m member) *memberState {
	s, ok := o.members[m]
	if !ok {
		s = &memberState{}
		o.members[m] = s
		for _, counter := range [...]metric.Int64Counter{o.shards.started, o.shards.failures, o.shards.moved} {
			counter.Add(ctx, 0, m.attributes())
		}
		for _, cause := range [...]string{"moved", "left", "expired", "taken_over", "deleted", "broken", "corrupt"} {
			o.shards.stopped.Add(ctx, 0, m.attributes(shardsCause.String(cause)))
		}
		for _, outcome := range [...]string{"permanent", "timeout", "error"} {
			o.shards.refused.Add(ctx, 0, m.attributes(errorType.String(outcome)))
		}
	}
	return s
}
