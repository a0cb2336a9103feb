package report

import (
	"cmp"
	"fmt"
	"slices"
)

// tables is the section about many locks in one table.
func (d *Data) tables(say sayer, put putter) {
	v := d.Tables
	if v == nil {
		return
	}
	say("## Many locks in one table")
	say("[Tables](tables.md) of %s locks on %s, with a TTL of %.3g s and a poll every %.3g s, beside etcd's mutexes "+
		"under one session. One process acquires all locks at once, two others wait for all of them, and then it is "+
		"killed or ends. The time to the last lock that is held again counts from the last renewal of a killed "+
		"process, and from the moment when another is told to end. With push, %s posts bucket notifications to a "+
		"webhook that calls `Table.Wake`. The requests are those of the process that acquires, or ends. etcd refuses "+
		"a request while 5,000 wait to be applied, and is then asked again after 10 ms.",
		thousands(v.Locks), v.Place, v.TTL, v.Poll, v.Place)
	var t table
	t.head("", "", "times", "median", "longest", "requests of the table", "all requests of the process")
	for _, m := range v.Many {
		ofTable, all := "", ""
		if r := m.Requests; r != nil {
			ofTable = fmt.Sprintf("%d GET, %d PUT", r.TableGets, r.TablePuts)
			all = fmt.Sprintf("%d GET, %d PUT, %d DELETE", r.Gets, r.Puts, r.Deletes)
		}
		t.row(m.Case, m.Peer, m.Time.N, seconds(m.Time.P50.Value), seconds(float64(m.Time.Longest)), ofTable, all)
	}
	put(&t)
	say("A lock of a table passes from one process to the next that waits, through proxies as above. A " +
		"candidate of a table only reads, because the release has written that it holds the lock.")
	put((&Data{Handovers: v.Handovers}).releases(func(Handover) bool { return true }))
	say("Many candidates for one lock of a table, each a process with a store of its own, woken by push, and "+
		"with a poll every %.3g s. Each acquires it, releases it at once and wants it again: after `Release` has "+
		"returned, or meanwhile, so that one write frees it and asks for it. The clock starts when all wait. The "+
		"same for members that have a lock each, so they only share the table. In a row, %.0f bare conditional "+
		"PUTs a second were made between these runs.", v.CrowdPoll, v.Puts)
	competitions := []struct {
		name  string
		rows  []Crowd
		every bool
	}{{"one lock", inOrder(v.Crowds), false}, {"a lock each", inOrder(v.Each), true}}
	t = table{}
	t.head("", "candidates", "", "acquisitions a second", "part of bare PUTs", "that change the holder", "evenness")
	for _, kind := range competitions {
		for _, c := range kind.rows {
			share, part := fmt.Sprintf("%.0f %%", 100*c.Share.Value), ""
			if kind.every {
				share = ""
			}
			if Server(c.Peer) == "" {
				part = fmt.Sprintf("%.2f", c.Cycles.Value/v.Puts)
			}
			t.row(kind.name, c.Candidates, c.Peer, c.Cycles.in("%.0f", 1), part, share, fmt.Sprintf("%.2f", c.Jain))
		}
	}
	put(&t)
	say("Where the requests of these runs go, for each acquisition, and how long a write takes. On MinIO, a " +
		"request that finds its object locked by another request sleeps for up to 50 ms before it looks again " +
		"(`lockRetryInterval` in MinIO's internal/lsync/lrwmutex.go). A write that others outrun meets that lock. " +
		"The other requests are heartbeats and looks at them, whose number goes by the time and not by the turns.")
	t = table{}
	t.head("", "candidates", "", "requests", "reads of the table", "writes", "refused writes", "a write",
		"a refused write")
	for _, kind := range competitions {
		for _, c := range kind.rows {
			w := c.Work
			if w == nil {
				continue
			}
			each := func(n float64) string { return fmt.Sprintf("%.2f", n/float64(c.Turns)) }
			took := func(sum, n float64) string {
				if n == 0 {
					return ""
				}
				return seconds(sum / n)
			}
			t.row(kind.name, c.Candidates, c.Peer, fmt.Sprintf("%.1f", c.Requests), each(w.Reads), each(w.Writes),
				each(w.Refused), took(w.WriteTime, w.Writes), took(w.RefusedTime, w.Refused))
		}
	}
	put(&t)
	say("What a request occupies in its process, with the table that it stands in, on a store in memory:")
	t = table{}
	t.head("", "goroutines", "heap", "stacks")
	for _, m := range v.Memory {
		t.row(m.State, fmt.Sprintf("%.1f", m.Goroutines), fmt.Sprintf("%.2f KiB", m.Heap/1024),
			fmt.Sprintf("%.2f KiB", m.Stacks/1024))
	}
	put(&t)
	say("What the design aims at:")
	put(v.goals())
}

// inOrder sorts runs that were made in a random order.
func inOrder(runs []Crowd) []Crowd {
	return slices.SortedStableFunc(slices.Values(runs), func(a, b Crowd) int {
		return cmp.Or(cmp.Compare(a.Candidates, b.Candidates), -cmp.Compare(a.Peer, b.Peer))
	})
}

// seconds writes a time with three digits.
func seconds(s float64) string {
	if s < 1 {
		return fmt.Sprintf("%.3g ms", 1000*s)
	}
	return fmt.Sprintf("%.3g s", s)
}

// goals is the table of what tables are held to.
func (d *Tables) goals() *table {
	var t table
	t.head("", "goal", "measured", "")
	check := func(what, goal string, ok bool, format string, a ...any) {
		result := "met"
		if !ok {
			result = "**missed**"
		}
		t.row(what, goal, fmt.Sprintf(format, a...), result)
	}
	many := func(peer, what string) *Many {
		i := slices.IndexFunc(d.Many, func(m Many) bool { return m.Peer == peer && m.Case == what })
		if i < 0 || d.Many[i].Time.N == 0 {
			return nil
		}
		return &d.Many[i]
	}
	bare := d.Bare.P50.Value
	if m := many(Tabled, AtOnce); m != nil {
		check("all locks acquired at once: requests of the table", "≤ 2 GET, 2 PUT",
			m.Requests.TableGets <= 2 && m.Requests.TablePuts <= 2, "%d GET, %d PUT", m.Requests.TableGets,
			m.Requests.TablePuts)
	}
	if m, etcd := many(Tabled, AllKilled), many(Mutex, AllKilled); m != nil && etcd != nil {
		took, goal := m.Time.P50.Value, 1.1*d.TTL+10*bare
		check("killed: all locks are led again, median",
			fmt.Sprintf("≤ 1.1 TTL + 10 bare requests (%s)", seconds(goal)), took <= goal, "%s", seconds(took))
		check("the same, beside etcd", "≤ 1.1 times", took <= 1.1*etcd.Time.P50.Value, "%.2f times",
			took/etcd.Time.P50.Value)
	}
	if m := many(Tabled, AllEnded); m != nil {
		goal := d.Poll + 3*bare
		check("ended: requests of the process", "≤ 2 PUT, 1 DELETE", m.Requests.Puts <= 2 && m.Requests.Deletes <= 1,
			"%d PUT, %d DELETE", m.Requests.Puts, m.Requests.Deletes)
		check("ended: all locks are led again, longest",
			fmt.Sprintf("≤ 1 poll interval + 3 requests (%s)", seconds(goal)), float64(m.Time.Longest) <= goal,
			"%s", seconds(float64(m.Time.Longest)))
	}
	if m, etcd := many(TabledPushed, AllEnded), many(Mutex, AllEnded); m != nil && etcd != nil {
		check("ended, with push, beside etcd: median", "≤ 1.5 times", m.Time.P50.Value <= 1.5*etcd.Time.P50.Value,
			"%.2f times", m.Time.P50.Value/etcd.Time.P50.Value)
	}
	for _, h := range d.Handovers {
		if h.Peer == TabledPushed {
			f := trips(h.FromReturn.P50, h)
			what := fmt.Sprintf("hand-over of one lock with push, %.0f ms of round trip, from the return of "+
				"`Release`: median", 1000*h.RoundTrip)
			check(what, "≤ 1.1 round trips", f.Value <= 1.1, "%s", f.in("%.2f", 1))
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
		check("heap of "+m.State, "≤ 1 KiB", m.Heap <= 1024, "%.2f KiB", m.Heap/1024)
		check("goroutines of "+m.State, fmt.Sprintf("%.0f", goroutines), m.Goroutines < goroutines+0.05, "%.1f",
			m.Goroutines)
	}
	if d.Told.N > 0 {
		check("all leases are lost: the last context ends after the first", "≤ 50 ms", d.Told.Longest <= 0.05, "%s",
			seconds(float64(d.Told.Longest)))
	}
	return &t
}
