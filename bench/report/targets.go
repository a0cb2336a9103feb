package report

import (
	"fmt"
	"slices"
)

// commandStart is what the guard may take to start a command, in seconds.
const commandStart = 0.1

// target is what leasehold is held to, and what was measured.
type target struct {
	What, Goal, Measured string
	Met                  bool
	Why                  string // it is missed, if it is
}

type targets []target

// Met is how many are met.
func (list targets) Met() int { return len(list) - len(list.Missed()) }

// Missed are the others.
func (list targets) Missed() targets { return only(list, func(t target) bool { return !t.Met }) }

// Kinds are the first targets of each kind, which are missed for the same reason.
func (list targets) Kinds() targets {
	return slices.CompactFunc(slices.Clone(list), func(a, b target) bool { return a.Why == b.Why })
}

// Targets are those of locks. Why one is missed is a template, which the targets of a kind share.
func (v view) Targets() (list targets) {
	check := func(kind, what, goal string, met bool, measured string, a ...any) {
		list = append(list, target{what, goal, fmt.Sprintf(measured, a...), met, v.write("why " + kind)})
	}
	crash := v.Crash().Time
	check("takeover", "takeover after a crash, after two TTLs of watching: median", "≤ 1.04 TTL",
		crash.P50.Value <= 1.04, "%s TTL", num(3, crash.P50))
	check("late takeover", "the same: p99", "≤ 1.10 TTL", crash.P99.Value <= 1.10, "%s TTL", num(3, crash.P99))
	polled := polls(v.Polled().FromCall.P50.Value)
	check("polls", "hand-over after a release, by polling: median", "≤ half a poll interval", polled <= 0.5,
		"%.2f poll intervals", polled)
	for _, way := range []struct {
		kind, peer, what string
		most             float64
	}{
		{"push", Pushed, "hand-over with a push channel, %s of round trip, from the return of Release: median", 2},
		{"first push", PushedNew, "the same, to the first of a process, %s of round trip, from the return of " +
			"Release: median", 3},
	} {
		for _, h := range handed(v.Handovers, way.peer) {
			f := trips(h.FromReturn.P50, h)
			check(way.kind, fmt.Sprintf(way.what, ms(0, h.RoundTrip)), fmt.Sprintf("≤ %v round trips", way.most),
				f.Value <= way.most, "%s (%.1f from the call)", num(2, f), trips(h.FromCall.P50, h).Value)
		}
	}
	for _, h := range handed(v.Handovers, Followed) {
		call, end := trips(h.FromCall.P50, h), trips(h.FromReturn.P50, h)
		check("leaderhttp", fmt.Sprintf("hand-over with leaderhttp, %s of round trip, from the end of Run's ctx: "+
			"median", ms(0, h.RoundTrip)), "≤ 1.6 round trips, and ≤ 0 from the return of Run",
			call.Value <= 1.6 && end.Value <= 0, "%s (%.1f from the return)", num(2, call), end.Value)
	}
	for _, o := range v.Endings {
		if o.Case == Restart && o.With == Listens {
			most := 9*o.RoundTrip + 3*commandStart
			check("restart", "three replicas restarted with --listen, "+ms(0, o.RoundTrip)+" of round trip: median",
				fmt.Sprintf("≤ %.2f s, nine round trips and 0.1 s for each start of a command", most),
				o.Time.P50.Value <= most, "%s s", num(2, o.Time.P50))
		}
	}
	for _, e := range v.Endurance {
		check("endurance", "leaders that live: "+e.Case, "no lease lost", e.Lost == 0, "%d lost in %.0f hours", e.Lost,
			e.Hours)
	}
	part, counts := v.Extra()/v.Places[0].Put.P50.Value, v.Counts
	check("renewal", "a renewal's own time, over the bare PUT", "≤ 3 % of a PUT on "+v.Places[0].Name, part <= 0.03,
		"%s (%s)", percent(1, part), micro(0, v.Extra()))
	check("allocations", "allocations over the bare PUT", "≤ 15", v.ExtraAllocs() <= 15, "%.0f", v.ExtraAllocs())
	check("requests", "requests: acquire cold, renew, release", "2, 1, 1",
		[3]int{counts.Acquire, counts.Renew, counts.Release} == [3]int{2, 1, 1},
		"%d, %d, %d", counts.Acquire, counts.Renew, counts.Release)
	worst, goroutines := v.Worst(), 0.0
	for _, m := range v.Memory {
		goroutines = max(goroutines, m.Goroutines)
	}
	check("goroutines", "goroutines of an elector", "1", goroutines <= 1.05, "%.1f", goroutines)
	check("memory", "memory of an elector, the worst kind", "≤ 9 KiB", worst.Bytes() <= 9<<10,
		"%s (%s, one of %d on %s)", kib(1, worst.Bytes()), worst.State, worst.Electors, worst.Store)
	for _, e := range v.Electors {
		if e.Store == OnSDK {
			check("electors", fmt.Sprintf("%d electors, default TTL, through the SDK", e.Electors), "no missed renewal",
				e.Lost == 0, "%d leases lost", e.Lost)
		}
	}
	return list
}

// many is what happened to all locks of one process in a table, or beside it; nil if it was not
// measured.
func (d *Tables) many(peer, what string) *Many {
	i := slices.IndexFunc(d.Many, func(m Many) bool { return m.Peer == peer && m.Case == what })
	if i < 0 || d.Many[i].Time.N == 0 {
		return nil
	}
	return &d.Many[i]
}

// Goals are the targets of tables.
func (v view) Goals() (list targets) {
	check := func(what, goal string, met bool, measured string, a ...any) {
		list = append(list, target{What: what, Goal: goal, Measured: fmt.Sprintf(measured, a...), Met: met})
	}
	d := v.Tables
	bare := d.Bare.P50.Value
	if m := d.many(Tabled, AtOnce); m != nil {
		r := m.Requests
		check("all locks acquired at once: requests of the table", "≤ 2 GET, 2 PUT",
			r.TableGets <= 2 && r.TablePuts <= 2, "%d GET, %d PUT", r.TableGets, r.TablePuts)
	}
	if m, etcd := d.many(Tabled, AllKilled), d.many(Mutex, AllKilled); m != nil && etcd != nil {
		took, goal := m.Time.P50.Value, 1.1*d.TTL+10*bare
		check("killed: all locks are led again, median", "≤ 1.1 TTL + 10 bare requests ("+seconds(goal)+")",
			took <= goal, "%s", seconds(took))
		check("the same, beside etcd", "≤ 1.1 times", took <= 1.1*etcd.Time.P50.Value, "%.2f times",
			took/etcd.Time.P50.Value)
	}
	if m := d.many(Tabled, AllEnded); m != nil {
		r, took, goal := m.Requests, float64(m.Time.Longest), d.Poll+3*bare
		check("ended: requests of the process", "≤ 2 PUT, 1 DELETE", r.Puts <= 2 && r.Deletes <= 1, "%d PUT, %d DELETE",
			r.Puts, r.Deletes)
		check("ended: all locks are led again, longest", "≤ 1 poll interval + 3 requests ("+seconds(goal)+")",
			took <= goal, "%s", seconds(took))
	}
	if m, etcd := d.many(TabledPushed, AllEnded), d.many(Mutex, AllEnded); m != nil && etcd != nil {
		check("ended, with push, beside etcd: median", "≤ 1.5 times", m.Time.P50.Value <= 1.5*etcd.Time.P50.Value,
			"%.2f times", m.Time.P50.Value/etcd.Time.P50.Value)
	}
	for _, h := range d.Handovers {
		if h.Peer == TabledPushed {
			f := trips(h.FromReturn.P50, h)
			check("hand-over of one lock with push, "+ms(0, h.RoundTrip)+" of round trip, from the return of "+
				"`Release`: median", "≤ 1.1 round trips", f.Value <= 1.1, "%s", num(2, f))
		}
	}
	limits := func(what string, c Crowd, part, requests float64) {
		got := c.Cycles.Value / d.Puts
		check(what+": acquisitions a second, by bare PUTs", fmt.Sprintf("≥ %.2f", part), got >= part, "%.2f", got)
		check(what+": requests for each", fmt.Sprintf("≤ %.1f", requests), c.Requests <= requests, "%.1f", c.Requests)
	}
	for _, c := range d.Crowds {
		goal, ok := map[int][2]float64{8: {0.55, 3.5}, 32: {0.5, 4}, 128: {0.3, 6}}[c.Candidates]
		if c.Peer != Meanwhile || !ok {
			continue
		}
		what := fmt.Sprintf("%d candidates for one lock", c.Candidates)
		check(what+": change hands, evenness", "≥ 99 %, 0.99", c.Share.Value >= 0.99 && c.Jain >= 0.99, "%.1f %%, %.3f",
			100*c.Share.Value, c.Jain)
		limits(what, c, goal[0], goal[1])
	}
	for _, c := range d.Each {
		if goal, ok := map[int][2]float64{8: {0.9, 1.5}, 64: {0.55, 5}}[c.Candidates]; ok && c.Peer == Meanwhile {
			limits(fmt.Sprintf("%d members with a lock each", c.Candidates), c, goal[0], goal[1])
		}
	}
	for _, m := range d.Memory {
		goroutines := 0.0
		if m.State == WaitsFor {
			goroutines = 1
		}
		check("heap of "+m.State, "≤ 1 KiB", m.Heap <= 1024, "%s", kib(2, m.Heap))
		check("goroutines of "+m.State, num(0, goroutines), m.Goroutines < goroutines+0.05, "%.1f", m.Goroutines)
	}
	if d.Told.N > 0 {
		check("all leases are lost: the last context ends after the first", "≤ 50 ms", d.Told.Longest <= 0.05, "%s",
			seconds(d.Told.Longest))
	}
	return list
}
