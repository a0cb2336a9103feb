package report

import (
	"cmp"
	"fmt"
	"strings"
)

// order is that of the systems in tables and plots.
var order = []string{
	Leasehold, Pushed, PushedNew, Followed, Together, Clocked, SafePlain, Plain, Litestream, ClientGo, Election, Mutex,
	Redislock, Advisory,
}

// Render returns the pages and the plots, by their names under docs.
func (d *Data) Render() map[string]string {
	page, tables := d.pages()
	files := map[string]string{"performance.md": page, "performance-tables.md": tables}
	for _, t := range []theme{light, dark} {
		files["img/takeover"+t.suffix+".svg"] = d.takeoverPlot(t)
		files["img/handover"+t.suffix+".svg"] = d.handoverPlot(t)
		files["img/crowd"+t.suffix+".svg"] = d.crowdPlot(t)
	}
	return files
}

// table is a table of Markdown.
type table struct{ strings.Builder }

func (t *table) row(cells ...any) {
	for _, c := range cells {
		fmt.Fprintf(t, "| %v ", c)
	}
	t.WriteString("|\n")
}

func (t *table) head(names ...string) {
	for _, n := range names {
		fmt.Fprintf(t, "| %s ", n)
	}
	t.WriteString("|\n" + strings.Repeat("| --- ", len(names)) + "|\n")
}

// in writes a figure with its interval. format is that of one number.
func (f Figure) in(format string, factor float64) string {
	value, low, high := fmt.Sprintf(format, factor*f.Value), fmt.Sprintf(format, factor*f.Low),
		fmt.Sprintf(format, factor*f.High)
	if low == high {
		return value
	}
	return fmt.Sprintf("%s (%s to %s)", value, low, high)
}

func picture(file, alt string) string {
	return fmt.Sprintf("<picture><source media=\"(prefers-color-scheme: dark)\" srcset=\"img/%s-dark.svg\"><img "+
		"alt=\"%s\" src=\"img/%s.svg\"></picture>", file, alt, file)
}

// safety is what keeps a peer from taking over a leader that lives, and a leader from acting after
// its lease.
var safety = []struct{ peer, what, expiry, allowance, margin, token, risk string }{
	{
		Leasehold,
		"",
		"own monotonic clock, since the version was first seen",
		"2 % drift",
		"TTL/5",
		"yes, kept over releases",
		"",
	},
	{
		SafePlain, "the yardstick: a loop of 60 lines, as safe for the candidate as leasehold",
		"own monotonic clock, since the version was first seen",
		"2 % drift", "none", "none", "A leader that is paused does not notice that its lease is over.",
	},
	{
		Plain, "the loop that one writes in an afternoon", "wall clocks of both machines", "none", "none", "none",
		"A candidate whose clock is a second ahead takes a living leader's lock a second early.",
	},
	{
		Litestream, "its `AcquireLease` in the loop that a caller has to write", "wall clocks of both machines", "none",
		"none", "starts again at 1 after a release",
		"The same.",
	},
	{
		ClientGo,
		"`leaderelection` on a minimal `resourcelock`",
		"own monotonic clock, since the version was first seen",
		"none",
		"TTL/3",
		"none",
		"A clock that runs 1 % fast is early by TTL/100, which the margin covers.",
	},
	{
		Redislock,
		"`Obtain` and `Refresh` in the loop that a caller has to write",
		"the server's clock",
		"needs none",
		"none",
		"none; a random value",
		"A leader that is paused does not notice that its lease is over, and a failover may forget the lock.",
	},
	{
		Advisory,
		"`pg_advisory_lock` on a connection",
		"the server, when the connection ends",
		"needs none",
		"none",
		"none",
		"A leader whose machine is gone keeps the lock until TCP gives up, and a failover forgets it.",
	},
	{
		Election + ", " + Mutex,
		"`concurrency`, one member in the process of the test",
		"the server's clock",
		"needs none",
		"none",
		"the key's revision",
		"A client that is paused does not notice that its session is over.",
	},
}

// pages returns the page with one table for each question, and the page of the whole tables.
func (d *Data) pages() (page, tables string) {
	var b, all strings.Builder
	say := func(format string, a ...any) { fmt.Fprintf(&b, format+"\n\n", a...) }
	put := func(t *table) { b.WriteString(t.String() + "\n") }
	whole := func(title string, t *table) { fmt.Fprintf(&all, "## %s\n\n%s\n", title, t) }

	say("# Performance")
	all.WriteString("# Tables of the measurements\n\nAll rows of the tables of [Performance](performance.md), which " +
		"says what was\nmeasured, and how. Times to the next leader after a crash are in TTLs.\n\n")
	if d.Size != "full" {
		say("**This page is of a run in miniature. Its samples are too small to compare anything. `make bench` " +
			"replaces it.**")
	}
	d.answers(say)
	say("Each answer has its section below, with the peers beside it. [How it was measured](#how-it-was-measured) " +
		"and the [targets](#targets), met and missed, come last. [Tables](performance-tables.md) has every row.")
	d.takeovers(say, put, whole)
	d.handovers(say, put, whole)
	d.endings(say, put)
	d.crowds(say, put, whole)
	d.operations(say, put, whole)
	d.electors(say, put, whole)
	d.tables(say, put)
	d.peers(say, whole)
	d.method(say)
	say("## Targets")
	d.targets(say, put, whole)
	return ending(&b), ending(&all)
}

func ending(b *strings.Builder) string { return strings.TrimRight(b.String(), "\n") + "\n" }

// answers are what a reader comes for, in the words of the other pages.
func (d *Data) answers(say sayer) {
	spans := d.spans()
	say("- %s", strings.Join([]string{
		"**After a crash**, the next leader leads " + spans["takeover"] + ", at the default TTL.",
		"**After a release**, it leads after " + spans["release"] + "; with a notification after " + spans["push"] +
			" from the return of `Release`, and with [leaderhttp](handover.md) after " + spans["told"] +
			" from that of `Elector.Run`.",
		"**A renewal** costs the process " + spans["renewal"] + " more than the bare request.",
		"**Many electors in one process**: " + spans["electors"] + ".",
	}, "\n- "))
}

// method is what all figures have in common.
func (d *Data) method(say sayer) {
	say("## How it was measured")
	say("`make bench` measures, and writes [performance.json](performance.json). This page and its plots are " +
		"rendered from that file and from nothing else. " +
		"A test renders them again and compares byte for byte.")
	changed := ""
	if d.Dirty {
		changed = ", with changes"
	}
	m := d.Machine
	say("Measured on %s at commit %s%s, in %.0f minutes: %d cores of %s with %.0f GiB, which the servers and etcd "+
		"share; %s on %s, kernel %s.",
		d.Date, d.Commit, changed, d.Minutes, m.Cores, m.CPU, m.GiB,
		strings.Replace(m.Go, "go", "Go ", 1), m.OS, m.Kernel)
	for _, alone := range [][2]string{
		{
			AloneElectors,
			"The section about many electors was measured by itself",
		}, {AloneHandovers, "The hand-overs were measured by themselves"},
		{AloneCommand, "The section about the command was measured by itself"},
		{AloneTakeovers, "The takeovers on real servers were measured by themselves"},
		{AloneTables, "The section about tables was measured by itself"},
	} {
		if since, ok := d.Alone[alone[0]]; ok {
			say("%s, on %s at commit %s%s.", alone[1], since.Date, since.Commit, since.Remark)
		}
	}
	say("A test counts the requests and allocations again.")
	var versions []string
	for _, v := range d.Versions {
		versions = append(versions, v.Name+" "+v.Version)
	}
	say("Versions: %s.", strings.Join(versions, ", "))
	say("leasehold, its peers and bare requests of the same SDK take turns on the same servers, in a random order. "+
		"Compare the ratios, because absolute times depend on "+
		"the machine. Brackets hold a 95 %% interval by bootstrap: of %d samples drawn from the measured one, the "+
		"middle 95 %% give a figure in it.", resamples)
}

// peers says what is compared.
func (d *Data) peers(say sayer, whole wholer) {
	say("## The peers")
	say("Every peer has its best settings. The hand-written loops know when a lease expires and read then. All poll " +
		"at the same mean interval: a fifth of the TTL, ±10 %%, " +
		"and at expiry plus up to a twentieth of that. client-go waits for 1 to 2.2 retry periods, so its period is " +
		"the interval divided by 1.6. " +
		"A peer that makes no allowance may be faster: the first section says by how much, and " +
		"[a table](performance-tables.md#what-each-peer-risks) what it risks. The least takeover that a drift " +
		"allowance of 2 %% leaves is 1.02 TTL.")
	if d.ran(Redislock) {
		say("redislock does not tell when a lease expires, so its loop only polls.")
	}
	var t table
	t.head("", "what it is", "who decides that a lease is over", "allowance", "the leader stops earlier by",
		"fencing token", "risk")
	for _, s := range safety {
		if (s.peer == Redislock || s.peer == Advisory) && !d.ran(s.peer) {
			continue
		}
		t.row(s.peer, s.what, s.expiry, s.allowance, s.margin, s.token, s.risk)
	}
	whole("What each peer risks", &t)
}

func (d *Data) takeover(where, peer, name string, watched float64) *Takeover {
	for i, v := range d.Takeovers {
		if v.Where == where && v.Peer == peer && v.Case == name && v.Watched == watched {
			return &d.Takeovers[i]
		}
	}
	return nil
}

// longestTTL is a peer's takeover on a real server with the longest TTL that was measured.
func (d *Data) longestTTL(peer string) (longest *Takeover) {
	for i, v := range d.Takeovers {
		if v.Where == d.Places[0].Name && v.Peer == peer && (longest == nil || v.TTL > longest.TTL) {
			longest = &d.Takeovers[i]
		}
	}
	return longest
}

type (
	sayer  = func(format string, a ...any)
	putter = func(*table)
	wholer = func(title string, t *table) // puts a table on the page of tables
)

// crashes are the rows of takeovers in virtual time that are wanted.
func (d *Data) crashes(wanted func(Takeover) bool) *table {
	var t table
	t.head("case", "", "crashes", "median", "p90", "p99", "longest", "difference from leasehold",
		"leases lost before the crash")
	for _, v := range d.Takeovers {
		if v.Where != Virtual || !wanted(v) {
			continue
		}
		name := v.Case
		if v.Watched > 2 {
			name += fmt.Sprintf(", watched for %.0f TTLs", v.Watched)
		}
		beside := ""
		if ours := d.takeover(Virtual, Leasehold, v.Case, v.Watched); ours != nil && v.Peer != Leasehold {
			beside = fmt.Sprintf("%+.2f", v.Time.P50.Value-ours.Time.P50.Value)
		}
		t.row(name, v.Peer, v.Time.N, v.Time.P50.in("%.3f", 1), v.Time.P90.in("%.2f", 1), v.Time.P99.in("%.2f", 1),
			fmt.Sprintf("%.2f", v.Time.Longest), beside, v.Lost)
	}
	return &t
}

func (d *Data) takeovers(say sayer, put putter, whole wholer) {
	say("## How long nobody leads after a crash")
	say("In TTLs since the last renewal, in virtual time, with leasehold's default TTL of %.0f s and requests of "+
		"10 ms over the SDK. The leader crashes at a random point between two "+
		"renewals. The candidates have watched it for two TTLs. The difference from leasehold is between the medians.",
		d.Takeovers[0].TTL)
	say("%s", picture("takeover", "Time without a leader after a crash, by system"))
	put(d.crashes(func(v Takeover) bool { return v.Case == Crash && v.Watched == 2 }))
	whole("After a crash, in virtual time", d.crashes(func(Takeover) bool { return true }))
	say("The [whole table](performance-tables.md#after-a-crash-in-virtual-time) has five more cases. With three " +
		"candidates the medians are lower. A candidate that starts only after the crash waits for a TTL, unless it " +
		"trusts the store's clock about the age of the object (`WithServerClock`), less 2 s. Where 1 %% of requests " +
		"fail, a third of these is refused, a third is answered with 500, and a third is carried out but its reply " +
		"is lost. A peer that loses its lease because of that is counted in the last column and not in the others. " +
		"Where the store answers 503, it begins at some time in the TTL after the crash, and lasts for TTL/3. " +
		"[On real servers](performance-tables.md#after-a-crash-on-real-servers), in real time and with the TTLs that " +
		"the table names, etcd stands beside the others. It looks for leases that are over every 500 ms, which is a " +
		"quarter of a TTL of 2 s.")
	if v := d.longestTTL(Advisory); v != nil {
		say("The server ends a PostgreSQL advisory lock as soon as the connection ends, so it has no TTL. The next "+
			"holder leads after %s, counted from the end of the connection. If the machine of the leader is gone, no "+
			"connection ends, and TCP decides.", milliseconds(*v))
	}

	var t table
	t.head("", "on", "TTL", "crashes", "median", "p90", "p99", "longest")
	for _, v := range d.Takeovers {
		if v.Where == Virtual || v.Peer == Advisory {
			continue
		}
		t.row(v.Peer, cmp.Or(Server(v.Peer), v.Where), fmt.Sprintf("%.0f s", v.TTL), v.Time.N,
			v.Time.P50.in("%.2f", 1), v.Time.P90.in("%.2f", 1), v.Time.P99.in("%.2f", 1),
			fmt.Sprintf("%.2f", v.Time.Longest))
	}
	whole("After a crash, on real servers", &t)

	say("### Leaders that live")
	say("Ten leaders of ten locks, with one candidate each and default settings, in virtual time:")
	t = table{}
	t.head("", "hours led", "renewals", "requests that failed", "leases lost")
	for _, e := range d.Endurance {
		t.row(e.Case, fmt.Sprintf("%.0f", e.Hours), e.Renewals, e.Failed, e.Lost)
	}
	put(&t)

	say("### Availability")
	say("For leasehold, one crash and ten releases a day, without a push channel, add up to this over a month:")
	t = table{}
	t.head("TTL", "nobody leads, seconds a month", "availability of a leader")
	crash, release := d.takeover(Virtual, Leasehold, Crash, 2).Time.P50.Value, d.pollsUntilHandover()/5
	for _, ttl := range []float64{5, 15, 30, 60} {
		gone := 30 * (crash*ttl + 10*release*ttl)
		t.row(fmt.Sprintf("%.0f s", ttl), fmt.Sprintf("%.0f", gone), fmt.Sprintf("%.3f %%", 100*(1-gone/(30*24*3600))))
	}
	put(&t)
}

// handover returns leasehold's hand-overs, and those of its variants and peers.
func (d *Data) handover(peer, way string) (list []Handover) {
	for _, h := range d.Handovers {
		if h.Peer == peer && h.Way == way {
			list = append(list, h)
		}
	}
	return list
}

// ran reports whether a peer whose server may be missing was measured.
func (d *Data) ran(peer string) bool { return len(d.handover(peer, Release)) > 0 }

// handoverPoll is the poll interval of the measured hand-overs, in seconds.
const handoverPoll = 1

// pollsUntilHandover is the median of a hand-over by polling, in poll intervals.
func (d *Data) pollsUntilHandover() float64 {
	return d.handover(Leasehold, Release)[0].FromCall.P50.Value / handoverPoll
}

// trips is a hand-over in round trips.
func trips(f Figure, h Handover) Figure {
	trip := h.Trip.P50.Value
	return Figure{f.Value / trip, f.Low / trip, f.High / trip}
}

// releases are the rows of hand-overs that are wanted.
func (d *Data) releases(wanted func(Handover) bool) *table {
	var t table
	t.head("round trip added", "", "way", "releases", "a bare request", "from the call: median", "p99",
		"in round trips", "from the return: median", "in round trips")
	for _, h := range d.Handovers {
		if !wanted(h) {
			continue
		}
		t.row(fmt.Sprintf("%.0f ms", 1000*h.RoundTrip), h.Peer, h.Way, h.FromCall.N,
			fmt.Sprintf("%.1f ms", 1000*h.Trip.P50.Value),
			h.FromCall.P50.in("%.1f", 1000)+" ms", fmt.Sprintf("%.0f ms", 1000*h.FromCall.P99.Value),
			fmt.Sprintf("%.1f", trips(h.FromCall.P50, h).Value),
			fmt.Sprintf("%.1f ms", 1000*h.FromReturn.P50.Value), trips(h.FromReturn.P50, h).in("%.2f", 1))
	}
	return &t
}

func (d *Data) handovers(say sayer, put putter, whole wholer) {
	say("## How long nobody leads after a release")
	say("A leader releases (`Lease.Release`), resigns (`Elector.Resign`) or stops (the context of `Elector.Run` "+
		"ends), and a candidate that polls every second waits. A TCP proxy in front of %s, and one in "+
		"front of each other server, delays each direction by half of the round trip. The time counts from the "+
		"call, and from its return. A round trip here is what a bare request takes through the proxy, the server's "+
		"own work included: the median of half of a GET and a PUT, or of two requests to the other server, measured "+
		"while the releases are.", d.Places[0].Name)
	say("The push channel is %s's bucket notifications, posted to a webhook that calls `Lock.Wake`. They are delayed "+
		"by half a round trip too. A candidate then needs a GET and a PUT. The first of a process that has not "+
		"waited for a lock before also tries the server, "+
		"which takes a round trip more. Candidates of one process "+
		"that share a `Store` wake each other without any channel.", d.Places[0].Name)
	if len(d.handover(Followed, Stop)) > 0 {
		say("With [leaderhttp](handover.md), candidates keep a request open at the leader, also through a proxy that " +
			"delays. It needs electors, so it is measured with resignations and stops.")
	}
	if d.ran(Advisory) {
		say("etcd and PostgreSQL tell the next in line. It may lead before the release has returned, and then the " +
			"time from the return is negative.")
	}
	say("%s", picture("handover", "Time until the next leader leads after a release, by round trip"))
	const shown = 0.1 // seconds of round trip
	put(d.releases(func(h Handover) bool {
		return (h.Way == Release || h.Peer == Followed && h.Way == Stop) && h.RoundTrip == shown
	}))
	say("The [whole table](performance-tables.md#after-a-release) has other round trips, resignations, and the stop " +
		"of a process.")
	whole("After a release", d.releases(func(Handover) bool { return true }))
}

// endings is the section about the command.
func (d *Data) endings(say sayer, put putter) {
	if len(d.Endings) == 0 {
		return
	}
	say("## How long no command runs")
	say("The [command](cli.md) with a TTL of %.0f s, so that candidates poll every %.0f s, and proxies as above. The "+
		"time counts from the signal, SIGTERM or SIGKILL, to the start of the next command. Of a restart it is the "+
		"sum over three replicas, of which those that do not lead count nothing. The first one leads at the start, "+
		"and a replica that led is started again when the next one leads. SIGKILL comes at a random time "+
		"between two renewals. The guard releases the lock 1 s after nothing of the command is left, and the next "+
		"holder finds it by its polls. If the lock is kept, the next holder waits for a TTL from the last renewal.",
		d.Endings[0].TTL, d.Endings[0].TTL/5)
	var t table
	t.head("round trip added", "what", "with", "trials", "median", "p90", "longest")
	for _, o := range d.Endings {
		t.row(fmt.Sprintf("%.0f ms", 1000*o.RoundTrip), o.Case, o.With, o.Time.N, o.Time.P50.in("%.2f", 1)+" s",
			fmt.Sprintf("%.2f s", o.Time.P90.Value), fmt.Sprintf("%.2f s", float64(o.Time.Longest)))
	}
	put(&t)
}

func (d *Data) crowds(say sayer, put putter, whole wholer) {
	say("## Many candidates for one lock")
	say("Every candidate acquires the lock, releases it at once and wants it again. It polls every %.0f ms; etcd "+
		"watches. A cycle is an acquisition and its release, by whomever. A hand-over is a "+
		"change of holder. Without a queue, the process that releases is often the first to acquire again, because "+
		"it knows of the release first: that is fast, and no hand-over. "+
		"Evenness is Jain's index: 1 if all candidates got the same number of turns.", 1000*d.CrowdPoll)
	say("Idle is the share of the time between a release and the next acquisition. With many candidates the cores " +
		"are busy with polls, and the figures measure the server.")
	say("%s", picture("crowd", "Share of the acquisitions that change hands, by number of candidates"))
	const shown = 8 // candidates
	put(d.turns(d.Places[0].Name, func(c Crowd) bool { return c.Candidates == shown }))
	say("The whole tables have 2 to 128 candidates.")
	for _, place := range d.Places {
		whole("Many candidates for one lock, on "+place.Name, d.turns(place.Name, func(Crowd) bool { return true }))
	}
}

// turns are the rows of crowds on a server that are wanted.
func (d *Data) turns(place string, wanted func(Crowd) bool) *table {
	var t table
	t.head("on "+place, "candidates", "change hands", "hand-overs a second", "cycles a second", "wait: median",
		"p99", "longest", "requests a cycle", "evenness", "idle")
	for _, peer := range order {
		for _, c := range d.Crowds {
			if c.Place != place || c.Peer != peer || !wanted(c) {
				continue
			}
			requests := fmt.Sprintf("%.1f", c.Requests)
			if c.Requests == 0 {
				requests = ""
			}
			t.row(c.Peer, c.Candidates, c.Share.in("%.0f", 100)+" %", c.Handovers.in("%.1f", 1),
				c.Cycles.in("%.0f", 1), fmt.Sprintf("%.0f ms", 1000*c.Wait.P50.Value),
				fmt.Sprintf("%.0f ms", 1000*c.Wait.P99.Value), fmt.Sprintf("%.0f ms", 1000*c.Wait.Longest),
				requests, fmt.Sprintf("%.2f", c.Jain), fmt.Sprintf("%.0f %%", 100*c.Idle))
		}
	}
	return &t
}

func (d *Data) operations(say sayer, put putter, whole wholer) {
	say("## What an operation takes")
	for i, l := range d.Places {
		say("On %s, a bare GET takes %s ms and a bare conditional PUT %s ms (median).",
			l.Name, l.Get.P50.in("%.2f", 1000), l.Put.P50.in("%.2f", 1000))
		var t table
		t.head("", "acquire, cold: median", "p99", "ratio to GET + PUT", "renew: median", "p99", "ratio to PUT",
			"release: median", "p99", "ratio to PUT", "requests", "cycles a second")
		for _, o := range l.Peers {
			ratio := func(f Figure) string {
				if o.Etcd {
					return ""
				}
				return f.in("%.2f", 1)
			}
			release, requests := ratio(o.ReleaseRatio),
				fmt.Sprintf("%d, %d, %d", o.Requests[0], o.Requests[1], o.Requests[2])
			if o.Etcd {
				requests = ""
			}
			if o.Peer == Litestream {
				release = "it is a DELETE"
			}
			ms := func(f Figure) string { return fmt.Sprintf("%.2f ms", 1000*f.Value) }
			t.row(o.Peer, ms(o.Acquire.P50), ms(o.Acquire.P99), ratio(o.AcquireRatio), ms(o.Renew.P50),
				ms(o.Renew.P99), ratio(o.RenewRatio),
				ms(o.Release.P50), ms(o.Release.P99), release, requests, fmt.Sprintf("%.0f", o.Cycles))
		}
		if i == 0 {
			put(&t)
		}
		whole("What an operation takes, on "+l.Name, &t)
	}
	say("Each ratio compares with the bare requests that an operation consists of. A cycle is an acquisition and a " +
		"release by a process that has held the lock before, without competition. " +
		"leasehold remembers the version, so it needs one request fewer.")
	c := d.Counts
	say("leasehold's own share, against a server in the same process: a renewal takes %.0f µs and %.0f allocations, "+
		"the bare PUT through the same SDK %.0f µs and %.0f allocations.",
		1e6*d.Own.Renew.P50.Value, c.RenewAllocs, 1e6*d.Own.Put.P50.Value, c.PutAllocs)
	say("Requests: %d for an acquisition by a process that knows nothing of the lock, or %d if it knows the last "+
		"version; %d for a renewal, a release and a poll each. A process also [tries its server]"+
		"(servers.md#two-writes-that-must-be-refused), once: with %d requests while it waits for a lock, or else in "+
		"its first acquisition, which then is %d requests.",
		c.Acquire, c.Warm, c.Renew, c.Trial, c.First)

	var t table
	t.head("", "on", "operation", "n", "median", "p99", "requests each")
	for _, a := range d.Adapters {
		t.row(a.Adapter, a.On, a.Operation, a.Time.N, a.Time.P50.in("%.2f", 1000)+" ms",
			fmt.Sprintf("%.2f ms", 1000*a.Time.P99.Value), fmt.Sprintf("%.1f", a.Requests))
	}
	whole("Adapters", &t)

	say("## What an hour costs")
	t = table{}
	t.head("with default settings", "TTL", "leader: PUT an hour", "leader: GET an hour",
		"waiting candidate: GET an hour", "dollars a month, 1 candidate", "3 candidates")
	for _, h := range d.Hours {
		t.row(h.Peer, fmt.Sprintf("%.0f s", h.TTL), fmt.Sprintf("%.0f", h.LeadPut), fmt.Sprintf("%.0f", h.LeadGet),
			fmt.Sprintf("%.0f", h.WaitGet),
			fmt.Sprintf("$%.2f", h.dollars(0)), fmt.Sprintf("$%.2f", h.dollars(2)))
	}
	put(&t)
	say("Counted over ten hours of virtual time, with S3's list prices of November 2026. The other peers leave the " +
		"loop to their callers, or are not billed by request.")
}

// dollars returns the cost of a month of 730 hours, by S3's list prices of November 2026.
func (h Hour) dollars(waiting int) float64 {
	return 730 * (h.LeadPut*0.005 + (h.LeadGet+float64(waiting)*h.WaitGet)*0.0004) / 1000
}

// Bytes is what an elector occupies in all.
func (m Memory) Bytes() float64 { return m.Heap + m.Stacks }

func (d *Data) electors(say sayer, put putter, whole wholer) {
	say("## Many electors in one process")
	say("Each elector leads its own lock, with a callback and default settings. All share one store and start at the " +
		"same moment. How late a renewal is counts from the time for which its timer was set, " +
		"in nanoseconds of Go's monotonic clock: until it began, and until it had succeeded.")
	const shown = 10_000 // electors
	put(d.crews(func(e Electors) bool { return e.Electors == shown }))
	whole("Many electors in one process", d.crews(func(Electors) bool { return true }))
	say("A transport with MaxConnsPerHost spreads the first requests. leasehold spreads the renewals: the first " +
		"renewal of a term comes up to half an interval early. " +
		"`TestElectorsShareAPool` runs 100 electors on one client whose transport opens at most 8 connections. None " +
		"of them misses a renewal.")
	var t table
	t.head("store", "electors", "each", "goroutines", "heap", "stacks", "together")
	for _, m := range d.Memory {
		kib := func(bytes float64) string { return fmt.Sprintf("%.1f KiB", bytes/1024) }
		t.row(m.Store, m.Electors, m.State, fmt.Sprintf("%.1f", m.Goroutines), kib(m.Heap),
			kib(m.Stacks), kib(m.Bytes()))
	}
	whole("Memory of an elector", &t)
	say("The [memory of an elector](performance-tables.md#memory-of-an-elector) is what the process has grown by, " +
		"after a garbage collection, divided by the electors. An acquisition needs 8 KiB of stack or more, and a " +
		"garbage collection takes half of that back at a time. A renewal has a goroutine of its own, which ends " +
		"with it.")
}

// crews are the rows of electors that share a process that are wanted.
func (d *Data) crews(wanted func(Electors) bool) *table {
	var t table
	t.head("store", "electors", "all lead after", "requests in the busiest 0.1 s", "CPU each", "renewals",
		"begun late by: median", "p99", "longest", "succeeded after: p99", "longest", "leases lost")
	ms := func(seconds float64) string { return fmt.Sprintf("%.1f ms", 1000*seconds) }
	for _, e := range d.Electors {
		if !wanted(e) {
			continue
		}
		t.row(e.Store, e.Electors, fmt.Sprintf("%.2f s", e.Startup), e.Burst, fmt.Sprintf("%.0f µs/s", 1e6*e.CPU),
			e.Renewals, ms(e.Begun.P50.Value), ms(e.Begun.P99.Value), ms(float64(e.Begun.Longest)),
			ms(e.Landed.P99.Value), ms(float64(e.Landed.Longest)), e.Lost)
	}
	return &t
}
