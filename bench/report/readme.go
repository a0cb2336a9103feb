package report

import (
	"fmt"
	"regexp"
	"strings"
)

// spans are texts that other pages quote, by the names of the comments that enclose them.
func (d *Data) spans() map[string]string {
	crash := d.takeover(Virtual, Leasehold, Crash, 2)
	real := d.takeover(d.Places[0].Name, Leasehold, Crash, 2)
	push := d.handover(Pushed, Release)
	last := push[len(push)-1]
	var most Memory
	for _, m := range d.Memory {
		if m.Electors >= most.Electors && m.bytes() > most.bytes() || m.Electors > most.Electors {
			most = m
		}
	}
	lost := 0
	for _, e := range d.Electors {
		lost += e.Lost
	}
	return map[string]string{
		"headline": "\n" + wrap(fmt.Sprintf("Takeover after a crash: median %.2f TTL from the last renewal, %.2f TTL at 99 %% (%d crashes in virtual time, version %s; on a server %.2f; "+
			"[how it was measured](docs/performance.md)). With a push channel, a release is followed by the next leader after %.1f round trips.",
			crash.Time.P50.Value, crash.Time.P99.Value, crash.Time.N, d.Commit, real.Time.P50.Value, trips(last.FromReturn.P50, last).Value), "") + "\n",
		"cost": "\n" + wrap(fmt.Sprintf("Measured on version %s ([performance](docs/performance.md)): a renewal takes as long as the bare request of the SDK, plus %.0f µs and %.0f allocations; "+
			"%s electors in one process take %.1f KiB each and lose %d leases on %d cores.", d.Commit, 1e6*(d.Own.Renew.P50.Value-d.Own.Put.P50.Value), d.Own.RenewAllocs-d.Own.PutAllocs,
			thousands(most.Electors), most.bytes()/1024, lost, d.Machine.Cores), ""),
		"takeover": "\n" + wrap(fmt.Sprintf("After a release: within a poll interval, with a median of half of it; with a [push channel](docs/performance.md#how-long-nobody-leads-after-a-release) "+
			"after %.1f round trips. After a crash: median %.2f TTL from the last renewal, %.2f TTL at 99 %%, for a candidate that has watched for two TTLs. A candidate that starts after the crash "+
			"needs a TTL from its first read, unless it [trusts the store's clock](docs/servers.md#trusting-the-stores-clock).",
			trips(last.FromReturn.P50, last).Value, crash.Time.P50.Value, crash.Time.P99.Value), "  "),
	}
}

func thousands(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// wrap breaks text into lines that leave room for a comment at their end.
func wrap(text, indent string) string {
	var b strings.Builder
	length := 0
	for i, word := range strings.Fields(text) {
		n := len([]rune(word))
		switch {
		case i == 0:
			b.WriteString(indent)
			length = len(indent)
		case length+1+n > 122:
			b.WriteString("\n" + indent)
			length = len(indent)
		default:
			b.WriteString(" ")
			length++
		}
		b.WriteString(word)
		length += n
	}
	return b.String()
}

var span = regexp.MustCompile(`(?s)(<!-- bench:(\w+) -->)(.*?)(<!-- /bench -->)`)

// Fill replaces what stands between <!-- bench:name --> and <!-- /bench --> on a page, and returns the names that it found.
func (d *Data) Fill(page string) (filled string, names []string) {
	spans := d.spans()
	filled = span.ReplaceAllStringFunc(page, func(s string) string {
		m := span.FindStringSubmatch(s)
		names = append(names, m[2])
		return m[1] + spans[m[2]] + m[4]
	})
	return filled, names
}
