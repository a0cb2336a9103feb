package report

import (
	"fmt"
	"regexp"
)

// spans are texts that other pages quote, by the names of the comments that enclose them.
func (d *Data) spans() map[string]string {
	crash := d.takeover(Virtual, Leasehold, Crash, 2)
	push := d.handover(Pushed, Release)
	last := push[len(push)-1]
	fresh := d.handover(PushedNew, Release)
	first := fresh[len(fresh)-1]
	var most Memory // the worst of the largest crowds
	for _, m := range d.Memory {
		if m.Electors > most.Electors || m.Electors == most.Electors && m.Bytes() > most.Bytes() {
			most = m
		}
	}
	lost := 0
	for _, e := range d.Electors {
		lost += e.Lost
	}
	polled := d.handover(Leasehold, Release)[0].FromCall
	spans := map[string]string{
		"crash": fmt.Sprintf("median %.2f TTL from the last renewal, %.2f TTL at 99 %%", crash.Time.P50.Value,
			crash.Time.P99.Value),
		"takeover": fmt.Sprintf("%.1f s after the last renewal, within %.1f s in 99 of 100 crashes",
			crash.TTL*crash.Time.P50.Value, crash.TTL*crash.Time.P99.Value),
		"release": fmt.Sprintf("%.2f poll intervals (median), %.2f at 99 %%", polled.P50.Value/handoverPoll,
			polled.P99.Value/handoverPoll),
		"place": fmt.Sprintf("%s, all on one machine: takeovers with a TTL of %.0f s where no other is named, "+
			"hand-overs a second with a poll every %.0f ms, where etcd watches",
			d.servers(), d.realTTL(), 1000*d.CrowdPoll),
		"push":  fmt.Sprintf("%.1f round trips", trips(last.FromReturn.P50, last).Value),
		"first": fmt.Sprintf("%.1f", trips(first.FromReturn.P50, first).Value),
		"renewal": fmt.Sprintf("%.0f µs and %.0f allocations", 1e6*(d.Own.Renew.P50.Value-d.Own.Put.P50.Value),
			d.Counts.RenewAllocs-d.Counts.PutAllocs),
		"electors": fmt.Sprintf("%s electors, each takes %.1f KiB at worst, and %d leases are lost",
			thousands(most.Electors), most.Bytes()/1024, lost),
	}
	for name, peer := range map[string]string{"leasehold": Leasehold, "clientgo": ClientGo, "etcd": Election,
		"redislock": Redislock, "postgres": Advisory} {
		spans[name+"_takeover"], spans[name+"_release"] = d.realTakeover(peer), d.peerRelease(peer)
		for _, c := range d.Crowds {
			if c.Place == d.Places[0].Name && c.Peer == peer && c.Candidates == 8 {
				spans[name+"_crowd"] = fmt.Sprintf("%.0f", c.Handovers.Value)
			}
		}
	}
	spans["tables_crowd"], spans["tables_release"] = d.tabledCrowd(), notRun
	if t := d.Tables; t != nil {
		spans["tables_release"] = (&Data{Handovers: t.Handovers}).peerRelease(TabledPushed)
	}
	if told := d.handover(Followed, Stop); len(told) > 0 {
		far := told[len(told)-1]
		spans["told"] = fmt.Sprintf("%.1f round trips", trips(far.FromReturn.P50, far).Value)
	}
	return spans
}

// notRun stands for a figure that the last run does not have.
const notRun = "not run here"

// realTakeover is what the takeovers of a peer took on a real server, for each TTL.
func (d *Data) realTakeover(peer string) string {
	text := notRun
	for _, v := range d.Takeovers {
		if v.Where != d.Places[0].Name || v.Peer != peer {
			continue
		}
		took := fmt.Sprintf("%.2f TTL (median), %.2f at 99 %%", v.Time.P50.Value, v.Time.P99.Value)
		switch {
		case peer == Advisory: // has no TTL
			text = "measured: " + milliseconds(v)
		case text == notRun:
			text = "measured: " + took
		default:
			text += fmt.Sprintf("; with a TTL of %.0f s %s", v.TTL, took)
		}
	}
	return text
}

// milliseconds are what takeovers took whose peer has no TTL.
func milliseconds(v Takeover) string {
	return fmt.Sprintf("%.1f ms (median), %.1f ms at 99 %%", 1000*v.TTL*v.Time.P50.Value, 1000*v.TTL*v.Time.P99.Value)
}

// peerRelease is what the hand-overs of a peer took at the longest round trip.
func (d *Data) peerRelease(peer string) string {
	released := d.handover(peer, Release)
	if len(released) == 0 {
		return notRun
	}
	switch far := released[len(released)-1]; peer {
	case Redislock:
		return fmt.Sprintf("measured: %.2f poll intervals (median)", far.FromCall.P50.Value/handoverPoll)
	case Advisory: // the next one may lead before the release returns
		return fmt.Sprintf("measured: %.1f round trips from its call", trips(far.FromCall.P50, far).Value)
	default:
		return fmt.Sprintf("measured: %.1f round trips from the return of the release",
			trips(far.FromReturn.P50, far).Value)
	}
}

// tabledCrowd is how often a lock of a table changes hands in a second.
func (d *Data) tabledCrowd() string {
	if d.Tables == nil {
		return notRun
	}
	for _, c := range d.Tables.Crowds {
		if c.Peer == TabledPushed && c.Candidates == 8 {
			return fmt.Sprintf("measured, with wake-ups: %.0f", c.Handovers.Value)
		}
	}
	return notRun
}

// servers are those that the bench has used.
func (d *Data) servers() string {
	list, last := d.Places[0].Name, "one etcd member"
	for _, peer := range []string{Redislock, Advisory} {
		if d.ran(peer) {
			list, last = list+", "+last, "one "+Server(peer)
		}
	}
	return list + " and " + last
}

// realTTL is the TTL of the takeovers that were measured in real time.
func (d *Data) realTTL() float64 {
	for _, v := range d.Takeovers {
		if v.Where != Virtual {
			return v.TTL
		}
	}
	return 0
}

func thousands(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

var span = regexp.MustCompile(`(?s)(<!-- bench:(\w+) -->)(.*?)(<!-- / -->)`)

// Fill replaces what stands between <!-- bench:name --> and <!-- / --> on a page, and returns the
// names that it found.
func (d *Data) Fill(page string) (filled string, names []string) {
	spans := d.spans()
	filled = span.ReplaceAllStringFunc(page, func(s string) string {
		m := span.FindStringSubmatch(s)
		names = append(names, m[2])
		return m[1] + spans[m[2]] + m[4]
	})
	return filled, names
}
