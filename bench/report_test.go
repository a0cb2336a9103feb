package bench

import (
	"fmt"
	"image/color"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

type report struct {
	places     []string
	latency    []latency
	overhead   overhead
	hours      []hour
	contention []contention
	takeover   []takeover
	scale      []crowd
}

// table writes a table of Markdown.
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

func ms(values []float64) string { return fmt.Sprintf("%.2f", 1000*median(values)) }

func (r *report) page() string {
	var b strings.Builder
	say := func(format string, a ...any) { fmt.Fprintf(&b, format+"\n\n", a...) }
	say("# Performance")
	say("Written by `make bench` (%s, %s, %d cores, which the servers and etcd share). In one run, leasehold, its peers and bare requests of the same SDK take "+
		"turns on the same servers, in an order that is drawn anew each round. Compare the ratios, because absolute times depend on the machine. "+
		"Brackets show the smallest and the largest value among ten parts of the run.", runtime.Version(), runtime.GOOS, runtime.NumCPU())
	say("The peers: **plain protocol** reads, compares wall clocks and writes conditionally; **Litestream's leaser** v0.5.18 runs in the loop that its callers have to write; " +
		"**client-go on S3** is client-go's `leaderelection` v0.37.2 on a minimal `resourcelock` over a bucket; **etcd** 3.7.3 is one member in the same process, with `concurrency.Election` and `Mutex`.")

	say("## Targets")
	b.WriteString(r.targets())

	say("\nOf an elector's memory, 4 KiB are the stacks of two goroutines, Run's and the callback's, and 1 KiB is Go's own bookkeeping for them. A request " +
		"needs 8 KiB or more, on a goroutine that ends with it. An elector that has had to wait for its turn keeps a stack of 4 KiB from then on, which is 2 KiB more.")
	say("## What an operation takes")
	for _, l := range r.latency {
		say("On %s, a bare GET takes %s ms and a bare conditional PUT %s ms. Each ratio compares an operation with the bare requests that it consists of.", l.place, ms(l.get), ms(l.put))
		var t table
		t.head("", "acquire, cold", "ratio to GET + PUT", "renew", "ratio to PUT", "release", "ratio to PUT", "requests", "cycles a second")
		both := make([]float64, len(l.get))
		for i := range both {
			both[i] = l.get[i] + l.put[i]
		}
		for _, p := range peers {
			switch {
			case p.elects, l.acquire[p.name] == nil:
			case p.onEtcd:
				t.row(p.name, ms(l.acquire[p.name])+" ms", "", ms(l.renew[p.name])+" ms", "", ms(l.release[p.name])+" ms", "", "", fmt.Sprintf("%.0f", l.cycles[p.name]))
			default:
				release := ratio(l.release[p.name], l.put).String()
				if strings.HasPrefix(p.name, "Litestream") {
					release = "it is a DELETE"
				}
				t.row(p.name, ms(l.acquire[p.name])+" ms", ratio(l.acquire[p.name], both), ms(l.renew[p.name])+" ms", ratio(l.renew[p.name], l.put),
					ms(l.release[p.name])+" ms", release,
					fmt.Sprintf("%.0f, %.0f, %.0f", l.acquireReq[p.name], l.renewReq[p.name], l.releaseReq[p.name]), fmt.Sprintf("%.0f", l.cycles[p.name]))
			}
		}
		b.WriteString(t.String() + "\n")
	}
	say("A cycle is an acquisition and a release by a process that has held the lock before. leasehold remembers the version, so it needs one request fewer.")
	say("leasehold's own share, measured against a server in the same process: a renewal takes %.0f µs and %.0f allocations, the bare PUT through the same SDK takes %.0f µs and %.0f allocations.",
		1e6*r.overhead.renew, r.overhead.allocs, 1e6*r.overhead.raw, r.overhead.base)

	say("## What an hour costs")
	var t table
	t.head("with default settings", "TTL", "leader: PUT an hour", "leader: GET an hour", "waiting candidate: GET an hour", "dollars a month, 1 candidate", "3 candidates")
	for _, h := range r.hours {
		t.row(h.name, h.ttl, fmt.Sprintf("%.0f", h.leadPut), fmt.Sprintf("%.0f", h.leadGet), fmt.Sprintf("%.0f", h.waitGet),
			fmt.Sprintf("$%.2f", h.dollars(0)), fmt.Sprintf("$%.2f", h.dollars(2)))
	}
	b.WriteString(t.String() + "\n")
	say("Counted over ten hours of virtual time, with S3's list prices of November 2026. The other peers leave the loop to their callers, or are not billed by request.")

	say("## Many candidates for one lock")
	say("Every candidate acquires the lock, releases it at once and wants it again. A waiting candidate polls every %v. etcd needs no polling, because it watches. "+
		"Fairness is Jain's index: 1 if all candidates get the same number of turns.", contendedPoll)
	say("With 128 candidates the two cores are busy with polls, so the figures measure the server. Only etcd has a queue. Without one, the process that releases the lock may be the first to acquire it again. " +
		"With leasehold this happens more often, because it takes one request fewer. Litestream's release is a DELETE, which takes MinIO half as long as a PUT, but which also deletes the token.")
	for _, place := range r.places {
		var t table
		t.head("on "+place, "candidates", "hand-overs a second", "requests per hand-over", "fairness", "longest wait")
		for _, p := range peers {
			for _, c := range r.contention {
				if c.place == place && c.peer == p.name {
					requests := fmt.Sprintf("%.1f", c.requests)
					if p.onEtcd {
						requests = ""
					}
					t.row(c.peer, c.candidates, fmt.Sprintf("%.0f", c.handovers), requests, fmt.Sprintf("%.2f", c.jain), fmt.Sprintf("%.2f s", c.worst))
				}
			}
		}
		b.WriteString(t.String() + "\n")
	}
	say("![Hand-overs a second by number of candidates](img/handovers.svg)")

	say("## How long nobody leads")
	say("In TTLs of 2 s, with candidates that poll about every fifth of a TTL. A leader crashes after 6 TTLs, or releases or resigns after 1.5. The time counts from " +
		"the last renewal before the crash, or from the call that releases or resigns.")
	var w table
	w.head("on", "", "after", "trials", "median", "p99", "longest")
	for _, v := range r.takeover {
		trials := slices.Clone(v.trials)
		w.row(v.place, v.peer, v.after, len(trials), fmt.Sprintf("%.2f", quantile(trials, 0.5)), fmt.Sprintf("%.2f", quantile(trials, 0.99)), fmt.Sprintf("%.2f", quantile(trials, 1)))
	}
	b.WriteString(w.String() + "\n")
	say("![Time to take over after a crash](img/takeover.svg)")
	say("For leasehold, one crash and ten releases a day add up, over a month, to:")
	crash, release := median(r.of("crash")), median(r.of("release"))
	var m table
	m.head("TTL", "nobody leads, seconds a month", "availability of a leader")
	for _, ttl := range []float64{5, 15, 30, 60} {
		gone := 30 * (crash*ttl + 10*release*ttl)
		m.row(fmt.Sprintf("%.0f s", ttl), fmt.Sprintf("%.0f", gone), fmt.Sprintf("%.3f %%", 100*(1-gone/(30*24*3600))))
	}
	b.WriteString(m.String() + "\n")

	say("## Many electors in one process")
	say("Each elector leads its own lock, with a callback and the default TTL of 15 s. All share one store.")
	var s table
	s.head("store", "electors", "all lead after", "requests in the busiest 0.1 s", "goroutines each", "heap each", "stacks each", "CPU each", "renewals", "late by (p99)", "leases lost")
	for _, c := range r.scale {
		heap, stacks := fmt.Sprintf("%.1f KiB", c.heap/1024), fmt.Sprintf("%.1f KiB", c.stacks/1024)
		if c.electors < 100 { // less than the process's own fluctuation
			heap, stacks = "", ""
		}
		s.row(c.store, c.electors, fmt.Sprintf("%.2f s", c.startup), c.burst, fmt.Sprintf("%.1f", c.goroutines), heap, stacks,
			fmt.Sprintf("%.0f µs/s", c.cpu), c.renewals, fmt.Sprintf("%.0f ms", 1000*c.late), c.lost)
	}
	b.WriteString(s.String() + "\n")
	say("All electors start at the same moment, because the test starts them so; a transport with MaxConnsPerHost spreads their first requests. leasehold spreads the renewals: " +
		"the first renewal of a term comes up to half an interval early.")
	say("`TestElectorsShareAPool` runs 100 electors on one MinIO client whose transport opens at most 8 connections. None of them misses a renewal.")
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// of returns leasehold's trials.
func (r *report) of(after string) (all []float64) {
	for _, v := range r.takeover {
		if v.peer == "leasehold" && v.after == after {
			all = append(all, v.trials...)
		}
	}
	return all
}

func (r *report) targets() string {
	var t table
	t.head("", "target", "measured", "")
	check := func(what, target, measured string, met bool) {
		t.row(what, target, measured, map[bool]string{true: "met", false: "**missed**"}[met])
	}
	l := r.latency[0]
	const us = "leasehold"
	share := (r.overhead.renew - r.overhead.raw) / median(l.put)
	check("overhead of a renewal over the raw PUT", "≤ 3 % of a request on "+l.place, fmt.Sprintf("%.1f %% (%.0f µs)", 100*share, 1e6*(r.overhead.renew-r.overhead.raw)), share <= 0.03)
	extra := r.overhead.allocs - r.overhead.base
	check("allocations over the raw PUT", "≤ 15", fmt.Sprintf("%.0f", extra), extra <= 15)
	check("requests: acquire cold, renew, release", "2, 1, 1", fmt.Sprintf("%.0f, %.0f, %.0f", l.acquireReq[us], l.renewReq[us], l.releaseReq[us]),
		l.acquireReq[us] == 2 && l.renewReq[us] == 1 && l.releaseReq[us] == 1)
	crash, release := r.of("crash"), r.of("release")
	poll := r.takeover[0].poll
	check("takeover after a crash, median", "≤ 1.05 TTL", fmt.Sprintf("%.2f TTL", quantile(crash, 0.5)), quantile(crash, 0.5) <= 1.05)
	check("takeover after a crash, p99", fmt.Sprintf("≤ %.2f TTL: one poll interval more", 1+poll), fmt.Sprintf("%.2f TTL", quantile(crash, 0.99)), quantile(crash, 0.99) <= 1+poll)
	check("graceful hand-over, median", "≤ half a poll interval", fmt.Sprintf("%.2f poll intervals", quantile(release, 0.5)/poll), quantile(release, 0.5) <= poll/2)
	most := r.scale[len(r.scale)-2] // on MemStore: what is leasehold's own
	check("goroutines of an elector", "≤ 2", fmt.Sprintf("%.1f", most.goroutines), most.goroutines <= 2.05)
	bytes := most.heap + most.stacks
	check("memory of an elector", "≤ 8 KiB", fmt.Sprintf("%.1f KiB", bytes/1024), bytes <= 8<<10)
	last := r.scale[len(r.scale)-1]
	check(fmt.Sprintf("%d electors, default TTL, through the SDK", last.electors), "no missed renewal", fmt.Sprintf("%d leases lost", last.lost), last.lost == 0)
	return t.String()
}

func (r *report) plots(dir string) error {
	place := r.places[0]
	hand := plot.New()
	hand.Title.Text = "Hand-overs a second, " + place + " and etcd"
	hand.X.Label.Text, hand.Y.Label.Text = "candidates", "hand-overs a second"
	hand.X.Scale = plot.LogScale{}
	var ticks plot.ConstantTicks
	for _, c := range r.contention {
		ticks = append(ticks, plot.Tick{Value: float64(c.candidates), Label: fmt.Sprint(c.candidates)})
	}
	hand.X.Tick.Marker = ticks
	hand.Legend.Top, hand.Legend.Left, hand.Legend.XOffs = true, true, vg.Points(10)
	for i, p := range peers {
		var points plotter.XYs
		for _, c := range r.contention {
			if c.place == place && c.peer == p.name {
				points = append(points, plotter.XY{X: float64(c.candidates), Y: c.handovers})
			}
		}
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return err
		}
		line.Color, dots.Color, dots.Shape = plotutil.Color(i), plotutil.Color(i), plotutil.Shape(i)
		hand.Add(line, dots)
		hand.Legend.Add(p.name, line, dots)
	}
	hand.Y.Min, hand.X.Max = 0, hand.X.Max*1.2
	if err := save(hand, dir, "handovers.svg"); err != nil {
		return err
	}

	over := plot.New()
	over.Title.Text = "Nobody leads after a crash, " + place + " and etcd"
	over.Y.Label.Text = "TTLs since the last renewal"
	var names []string
	for _, p := range peers {
		for _, v := range r.takeover {
			if v.place == place && v.peer == p.name && v.after == "crash" {
				box, err := plotter.NewBoxPlot(vg.Points(28), float64(len(names)), plotter.Values(v.trials))
				if err != nil {
					return err
				}
				box.FillColor = color.Gray{225}
				over.Add(box)
				names = append(names, strings.Replace(p.name, " ", "\n", 1))
			}
		}
	}
	over.Add(plotter.NewGrid())
	over.NominalX(names...)
	over.X.Min, over.X.Max = -0.5, float64(len(names))-0.5
	over.Y.Min = min(over.Y.Min, 0.95)
	return save(over, dir, "takeover.svg")
}

func save(p *plot.Plot, dir, name string) error {
	p.BackgroundColor = color.White // also where a page is dark
	return p.Save(7*vg.Inch, 4*vg.Inch, filepath.Join(dir, name))
}
