package report

import (
	"fmt"
	"strings"
)

// commandStart is what the guard may take to start a command, in seconds.
const commandStart = 0.1

// targets is the table of what leasehold's locks are held to. The page shows those that are missed.
func (d *Data) targets(say sayer, put putter, whole wholer) {
	var t, missed table
	t.head("", "target", "measured", "")
	missed.head("missed", "target", "measured")
	var reasons []string
	met := 0
	check := func(what, target, measured string, ok bool, reason string) { // reason is why it is missed, if it is
		if ok {
			met++
			t.row(what, target, measured, "met")
			return
		}
		t.row(what, target, measured, "**missed**")
		missed.row(what, target, measured)
		if len(reasons) == 0 || !strings.HasSuffix(reasons[len(reasons)-1], reason) {
			reasons = append(reasons, fmt.Sprintf("- **%s**: %s", what, reason))
		}
	}
	crash := d.takeover(Virtual, Leasehold, Crash, 2)
	check("takeover after a crash, after two TTLs of watching: median", "≤ 1.04 TTL", crash.Time.P50.in("%.3f", 1)+
		" TTL", crash.Time.P50.Value <= 1.04,
		"1.02 TTL is the least that the drift allowance leaves. The rest is the time from a renewal to the "+
			"candidate's next read of it: renewals come up to a twentieth of their interval early, and reads "+
			"are spread.")
	check("the same: p99", "≤ 1.10 TTL", crash.Time.P99.in("%.3f", 1)+" TTL", crash.Time.P99.Value <= 1.10,
		"after two TTLs, or six renewals, some candidates do not yet know when renewals come, so they have read the "+
			"last one late.")
	polls := d.pollsUntilHandover()
	check("hand-over after a release, by polling: median", "≤ half a poll interval",
		fmt.Sprintf("%.2f poll intervals", polls), polls <= 0.5,
		"a read comes at any time of the poll interval, and the release and the acquisition take a request each.")
	for _, way := range []struct {
		peer, what string
		most       int
		why        string
	}{
		{
			Pushed,
			"hand-over with a push channel",
			2,
			"a GET and a PUT are two round trips, and the server sends its notification some time after its reply to " +
				"the release.",
		},
		{PushedNew, "the same, to the first of a process", 3, "a GET, a PUT and the two writes that try the server " +
			"are three round trips. The two are sent at once, " +
			"and together take longer than a bare request, as the difference to a candidate that has waited shows."},
	} {
		for _, h := range d.handover(way.peer, Release) {
			f := trips(h.FromReturn.P50, h)
			check(fmt.Sprintf("%s, %.0f ms of round trip, from the return of Release: median", way.what,
				1000*h.RoundTrip), fmt.Sprintf("≤ %d round trips", way.most),
				fmt.Sprintf("%s (%.1f from the call)", f.in("%.2f", 1), trips(h.FromCall.P50, h).Value),
				f.Value <= float64(way.most), way.why)
		}
	}
	for _, h := range d.handover(Followed, Stop) {
		f := trips(h.FromReturn.P50, h)
		check(fmt.Sprintf("hand-over with leaderhttp, %.0f ms of round trip, from the return of Run: median",
			1000*h.RoundTrip), "≤ 2.6 round trips",
			fmt.Sprintf("%s (%.1f from the call)", f.in("%.2f", 1), trips(h.FromCall.P50, h).Value), f.Value <= 2.6,
			"half a message, a GET and a PUT are two and a half round trips. The rest is what both processes do in "+
				"between.")
	}
	for _, o := range d.Endings {
		if o.Case == Restart && o.With == Listens {
			most := 9*o.RoundTrip + 3*commandStart
			check(fmt.Sprintf("three replicas restarted with --listen, %.0f ms of round trip: median",
				1000*o.RoundTrip),
				fmt.Sprintf("≤ %.2f s, nine round trips and 0.1 s for each start of a command", most),
				o.Time.P50.in("%.2f", 1)+" s", o.Time.P50.Value <= most,
				"the time counts from SIGTERM, so it includes the end of the command and the release.")
		}
	}
	for _, e := range d.Endurance {
		check("leaders that live: "+e.Case, "no lease lost",
			fmt.Sprintf("%d lost in %.0f hours", e.Lost, e.Hours), e.Lost == 0,
			"a lease is valid for 12 s of its TTL of 15 s, and a renewal is due 5 s after the last one. If the store "+
				"fails from then on, the pauses between tries grow to 2.5 s, so a lease may "+
				"end between two tries although the store answers again.")
	}
	l, own, counts := d.Places[0], d.Own, d.Counts
	extra := own.Renew.P50.Value - own.Put.P50.Value
	check("a renewal's own time, over the bare PUT", "≤ 3 % of a PUT on "+l.Name,
		fmt.Sprintf("%.1f %% (%.0f µs)", 100*extra/l.Put.P50.Value, 1e6*extra), extra/l.Put.P50.Value <= 0.03,
		"signing a record, and its bookkeeping, take this long on this machine.")
	check("allocations over the bare PUT", "≤ 15", fmt.Sprintf("%.0f", counts.RenewAllocs-counts.PutAllocs),
		counts.RenewAllocs-counts.PutAllocs <= 15, "the record and its bookkeeping allocate.")
	check("requests: acquire cold, renew, release", "2, 1, 1",
		fmt.Sprintf("%d, %d, %d", counts.Acquire, counts.Renew, counts.Release),
		[3]int{counts.Acquire, counts.Renew, counts.Release} == [3]int{2, 1, 1}, "more requests were counted.")
	worst, goroutines := d.Memory[0], 0.0
	for _, m := range d.Memory {
		if goroutines = max(goroutines, m.Goroutines); m.Bytes() > worst.Bytes() {
			worst = m
		}
	}
	check("goroutines of an elector", "1", fmt.Sprintf("%.1f", goroutines), goroutines <= 1.05,
		"requests were under way when they were counted.")
	check("memory of an elector, the worst kind", "≤ 9 KiB",
		fmt.Sprintf("%.1f KiB (%s, one of %d on %s)", worst.Bytes()/1024, worst.State, worst.Electors, worst.Store),
		worst.Bytes() <= 9<<10,
		fmt.Sprintf("the heap of this kind is %.1f KiB and its stacks are %.1f KiB. A goroutine whose stack has "+
			"grown keeps it until a garbage collection "+
			"finds it using less than a quarter. What the process itself fluctuates by counts too, which matters "+
			"with few electors.", worst.Heap/1024, worst.Stacks/1024))
	for _, e := range d.Electors {
		if e.Store == OnSDK {
			check(fmt.Sprintf("%d electors, default TTL, through the SDK", e.Electors), "no missed renewal",
				fmt.Sprintf("%d leases lost", e.Lost), e.Lost == 0,
				"this many electors need more CPU than the machine has.")
		}
	}
	say("%d targets are met: [all targets](performance-tables.md#targets).", met)
	if len(reasons) > 0 {
		put(&missed)
		say("Why, for each kind:\n\n%s", strings.Join(reasons, "\n"))
	}
	whole("Targets", &t)
}
