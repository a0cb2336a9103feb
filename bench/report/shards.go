package report

import (
	"fmt"
	"slices"
)

// dollars returns the cost of a month of 730 hours, by S3's list prices of November 2026, by which a LIST costs as much as a PUT.
func (f Fleet) dollars() float64 {
	return 730 * ((f.PutHour+f.ListHour)*0.005 + f.GetHour*0.0004) / 1000
}

func (f Fleet) change(way string) Change {
	return f.Changes[slices.IndexFunc(f.Changes, func(c Change) bool { return c.Way == way })]
}

// fleet returns the members of one system.
func (s *Shards) fleet(peer string, members int) Fleet {
	return s.Fleets[slices.IndexFunc(s.Fleets, func(f Fleet) bool { return f.Peer == peer && f.Members == members })]
}

// most is the number of members of the largest fleets.
func (s *Shards) most() int {
	return slices.MaxFunc(s.Fleets, func(f, g Fleet) int { return f.Members - g.Members }).Members
}

// sentence compares the largest fleets.
func (s *Shards) sentence() string {
	var costs, joins [3]string
	for i, peer := range []string{Leasehold, LeaseTable, DefaultLeaseTable} {
		f := s.fleet(peer, s.most())
		costs[i], joins[i] = "$"+cents(f.dollars()), fmt.Sprintf("%.0f s", f.change(MemberJoins).Balanced.P50.Value)
	}
	return fmt.Sprintf("With %s shards and %d members, a month of requests costs %s by package `shards`, %s by a lease table that is "+
		"scanned as often as members read the plan, and %s by one with that library's intervals. A member that joins has its share after "+
		"%s, %s and %s",
		thousands(s.Shards), s.most(), costs[0], costs[1], costs[2], joins[0], joins[1], joins[2])
}

// shards is the section of package shards beside a lease table.
func (d *Data) shards(say sayer, put putter) {
	s := &d.Shards
	if len(s.Fleets) == 0 { // not measured yet
		return
	}
	say("## Shards beside a lease table")
	say("%s shards are divided among members, by package [shards](shards.md) with default settings and by the lease table of Amazon's "+
		"Kinesis Client Library (KCL) on the same store. `make bench-shards` measures this section alone. %s: %s on %s, in virtual time, "+
		"with requests of 10 to 30 ms to a `MemStore`.", thousands(s.Shards), s.when(), s.Machine.goVersion(), s.Machine.OS)
	s.targets(put)
	s.atRest(say, put)
	s.changes(say, put)
}

func (s *Shards) targets(put putter) {
	v := newVerdicts()
	f := s.fleet(Leasehold, s.most())
	cold, joins, leaves, crashes := f.change(ColdStart), f.change(MemberJoins), f.change(MemberLeaves), f.change(MemberCrashes)
	check := func(what, target, measured string, met bool, reason string) {
		v.check(fmt.Sprintf("%d members: %s", f.Members, what), target, measured, met, reason)
	}
	check("conditional writes refused at rest", "0", fmt.Sprintf("%d in %.0f minutes", f.Refused, 60*f.Rest), f.Refused == 0,
		"two members write the same object although nobody comes or goes.")
	limit := s.Shards * 3 / 2
	check(ColdStart+": moves, the most of any trial", "≤ "+thousands(limit), thousands(int(cold.Moves.Longest)),
		int(cold.Moves.Longest) <= limit, "plans were made before all members were in the roster.")
	share := (s.Shards + f.Members - 1) / f.Members
	for _, c := range []Change{joins, leaves} {
		check(c.Way+": moves, the most of any trial", fmt.Sprintf("≤ %d, each shard once", share),
			fmt.Sprintf("%.0f, each shard %s at most", float64(c.Moves.Longest), times(c.Most)), int(c.Moves.Longest) <= share && c.Most <= 1,
			"a plan moved shards that did not have to move.")
	}
	check(MemberCrashes+": all its shards are owned again, median", "≤ 1.3 TTL", crashes.Owned.P50.in("%.2f", 1/s.TTL)+" TTL",
		crashes.Owned.P50.Value <= 1.3*s.TTL, "the planner has to see that the session has expired, and the other members the plan.")
	check(MemberLeaves+": a shard without an owner, median", "≤ 2 poll intervals", leaves.Gap.P50.in("%.2f", 1/s.Poll)+" poll intervals",
		leaves.Gap.P50.Value <= 2*s.Poll, "the planner has to see that the session has ended, and the other members the plan.")
	shared := 0
	for _, c := range f.Changes {
		shared += c.Shared.N
	}
	check("shards with two owners at once", "0", fmt.Sprint(shared), shared == 0, "a lock did not keep its promise.")
	v.write(put)
}

func (s *Shards) atRest(say sayer, put putter) {
	say("### Requests while nobody comes or goes")
	var t table
	t.head("", "members", "PUT an hour", "GET an hour", "LIST an hour", "refused writes", "dollars a month")
	n := func(f float64) string { return thousands(int(f + 0.5)) }
	for _, f := range s.Fleets {
		t.row(f.Peer, f.Members, n(f.PutHour), n(f.GetHour), n(f.ListHour), f.Refused, "$"+cents(f.dollars()))
	}
	put(&t)
	say("A lease table renews each shard, and every worker reads what the others have renewed. leasehold renews each member, and two " +
		"members read that. Dollars are S3's list prices of November 2026.")
}

func (s *Shards) changes(say sayer, put putter) {
	say("### Members come and go")
	var t table
	t.head("", "members", "change", "trials", "all shards owned: median", "longest", "balanced: median", "longest", "moves: median", "most",
		"of one shard", "a shard without an owner: median", "longest", "shards with two owners", "longest")
	seconds := func(f float64) string { return fmt.Sprintf("%.1f s", f) }
	for _, f := range s.Fleets {
		for _, c := range f.Changes {
			gap, gaps, shared := "", "", ""
			if c.Gap.N > 0 {
				gap, gaps = seconds(c.Gap.P50.Value), seconds(float64(c.Gap.Longest))
			}
			if c.Shared.N > 0 {
				shared = seconds(float64(c.Shared.Longest))
			}
			t.row(f.Peer, f.Members, c.Way, c.Balanced.N, seconds(c.Owned.P50.Value), seconds(float64(c.Owned.Longest)),
				seconds(c.Balanced.P50.Value), seconds(float64(c.Balanced.Longest)), thousands(int(c.Moves.P50.Value)),
				thousands(int(c.Moves.Longest)), c.Most, gap, gaps, c.Shared.N, shared)
		}
	}
	put(&t)
	say("A member that leaves or is killed is one of the number in the table, and one that joins completes it. Balanced means that each " +
		"shard has one owner, and that the numbers of the members' shards differ by at most one; from then on nothing moved. A move is a " +
		"member's start with a shard. A shard has no owner from the killing of its member, or from the end of the work on it. The last two " +
		"columns are sums and maxima of all trials.")
	say("In the lease table each shard has an object. Its owner renews it every TTL/3. Each worker lists all objects every %.0f s, as often "+
		"as a member of leasehold reads the plan, and reads those that have changed. It takes leases that were not renewed for a TTL, by its "+
		"own monotonic clock. If there are none, it steals from the worker with the most what that one has above the even share, or one lease "+
		"if that one has just that. So with 50 members a new one steals one lease at each scan. A worker learns that a lease was stolen when "+
		"it tries to renew it, and until then the shard has two owners.", s.Poll)
	say("The other variant has KCL's intervals: it scans every 30 s, which is 2 × (failover time + 25 ms), and steals one lease at a time, " +
		"which is the default. In both, scans read only what has changed, takes are under way 64 at a time, and a worker that leaves gives " +
		"its leases back. KCL does none of that. In KCL 3 a leader assigns the leases instead, by the load of the workers.")
	say("Safety: an owner in the lease table stops no earlier than others may take its lease, and they allow for no difference between " +
		"clocks. leasehold's members allow 2 %% of drift, and stop TTL/5 earlier. Each shard has a token.")
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}
