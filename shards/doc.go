// Package shards divides shards (tenants, partitions, queues) among the members of a group. Each shard is owned by at most one member at a
// time, with a fencing token. The shards are spread evenly, and move as little as possible when members come and go. All it needs is a
// [leasehold.Store], such as a bucket.
//
//	group, err := shards.New(store, "workers", shards.Count(1000), func(ctx context.Context, s shards.Shard) error {
//		return consume(ctx, s.ID, s.Token()) // until ctx ends: the shard moves, or this process stops
//	})
//	…
//	err = group.Run(ctx) // joins, works, leaves
//
// # How it works
//
// Each member holds a [leasehold.Session]. The shards' locks lean on it, so however many shards a member owns, it renews one object.
// A member enters its name in the roster. One member is the planner, by an ordinary election. It watches the sessions of all
// members, and publishes the plan, which says who is to own each shard. Another one, its deputy, watches along. Members read the plan
// once per poll interval. A shard that is no longer theirs is released when its handler has returned, and a shard that is theirs now is
// taken when it is free.
//
// The plan is advice. The lock of a shard alone decides who owns it. So a plan that is old, damaged or made by two planners at once can
// leave a shard without an owner for a while, but never gives it two. What [leasehold] promises of a lock holds for each shard.
//
// While no member comes or goes, each member writes nothing but the renewals of its session, and the planner writes nothing at all.
//
// The guide, docs/shards.md, says how to choose the TTL, how to fence what a shard writes, and what it costs.
package shards
