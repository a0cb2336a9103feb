package sim

import (
	"math"
	"time"
)

// enough is how many times as many requests a process may send as its intervals explain.
const enough = 1.5

// checkCalm bounds the requests since a time after which there were no faults and no new term: the leader's renewals, and one read
// per poll interval for each of the others.
func (w *world) checkCalm(leader *process, since time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	intervals := func(d time.Duration) float64 { return float64(time.Since(since)) / float64(d) }
	for _, p := range append(w.nodes[:len(w.nodes):len(w.nodes)], w.reader) {
		if p == nil {
			continue
		}
		explained := float64(len(p.electors)) * intervals(w.pollInterval())
		switch p {
		case leader:
			explained = intervals(w.renewInterval())
		case w.reader:
			explained = intervals(w.pollInterval())
		}
		if n, most := p.client.since(since), int(math.Ceil(enough*explained)); n > most {
			w.violateLocked("%s sent %d requests in %v without a fault, not %d at most", p.name, n, time.Since(since), most)
		}
	}
}

func (w *world) pollInterval() time.Duration  { return w.cfg.TTL / 5 }
func (w *world) renewInterval() time.Duration { return w.cfg.TTL / 3 }

// since counts the requests since a time.
func (c *client) since(t time.Time) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := len(c.sent) - 1; i >= 0 && !c.sent[i].at.Before(t); i-- {
		n++
	}
	return n
}

// checkRequests bounds what each process sends within any TTL, whatever goes wrong: its renewals, and a read per poll interval for
// each goroutine that acquires or reads. Half of the requests that have failed may be sent again beyond that.
func (w *world) checkRequests() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range append(w.processes[:len(w.processes):len(w.processes)], w.reader) {
		if p == nil {
			continue
		}
		explained := float64(p.candidates*int(w.cfg.TTL/w.pollInterval()) + int(w.cfg.TTL/w.renewInterval()))
		if n, failed := p.client.busiest(w.cfg.TTL); float64(n)-float64(failed)/2 > enough*explained {
			w.violateLocked("request storm: %s sent %d requests within a TTL, of which %d failed; its intervals explain %.0f", p.name, n, failed, explained)
		}
	}
}

// busiest returns the requests, and how many of them failed, of the window in which most are left to explain.
func (c *client) busiest(window time.Duration) (requests, failed int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	from, f := 0, 0
	for i, s := range c.sent {
		if s.failed {
			f++
		}
		for ; s.at.Sub(c.sent[from].at) > window; from++ {
			if c.sent[from].failed {
				f--
			}
		}
		if n := i - from + 1; 2*n-f > 2*requests-failed {
			requests, failed = n, f
		}
	}
	return requests, failed
}
