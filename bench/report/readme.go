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
	spans := map[string]string{
		"crash":    fmt.Sprintf("median %.2f TTL from the last renewal, %.2f TTL at 99 %%", crash.Time.P50.Value, crash.Time.P99.Value),
		"push":     fmt.Sprintf("%.1f round trips", trips(last.FromReturn.P50, last).Value),
		"renewal":  fmt.Sprintf("%.0f µs and %.0f allocations", 1e6*(d.Own.Renew.P50.Value-d.Own.Put.P50.Value), d.Own.RenewAllocs-d.Own.PutAllocs),
		"electors": fmt.Sprintf("%s electors, each takes %.1f KiB at worst, and %d leases are lost", thousands(most.Electors), most.Bytes()/1024, lost),
	}
	if s := &d.Sessions; s.Locks > 0 {
		spans["sessions"] = kib(s.weight(LeaseHeld).Bytes()) + " a lease"
		if len(s.Ends) > 0 {
			spans["sessions"] += fmt.Sprintf("; %s locks led again %.0f s after a crash", thousands(s.Locks), s.end(Leasehold, Dies).median().All)
		}
	}
	if len(d.Shards.Fleets) > 0 {
		spans["shards"] = d.Shards.sentence()
	}
	return spans
}

func thousands(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

var span = regexp.MustCompile(`(?s)(<!-- bench:(\w+) -->)(.*?)(<!-- / -->)`)

// Fill replaces what stands between <!-- bench:name --> and <!-- / --> on a page, and returns the names that it found.
func (d *Data) Fill(page string) (filled string, names []string) {
	spans := d.spans()
	filled = span.ReplaceAllStringFunc(page, func(s string) string {
		m := span.FindStringSubmatch(s)
		names = append(names, m[2])
		return m[1] + spans[m[2]] + m[4]
	})
	return filled, names
}
