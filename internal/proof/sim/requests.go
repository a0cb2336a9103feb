package sim

import (
	"math"
	"slices"
	"time"
)

// enough is how many times as many requests a process may send as its intervals explain.
const enough = 1.5

// What Lock.Wake and WithPollInterval promise beside that.
const (
	shortWaits = 12 // in a term, until a candidate knows when renewals come
	wakeBurst  = 10 // that cause a read at once; and as many in a poll interval
)

// checkCalm bounds the requests since a time after which there were no faults and no new term: the
// leader's renewals, and one read per poll interval for each of the others. Short waits count over
// more of the term.
func (w *world) checkCalm(leader *process, since time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	intervals := func(d time.Duration) float64 { return float64(time.Since(since)) / float64(d) }
	for _, p := range append(w.nodes[:len(w.nodes):len(w.nodes)], w.reader) {
		if p == nil {
			continue
		}
		explained, short := intervals(p.renewInterval()), 0
		switch {
		case p == leader:
		case w.cfg.Ages.wrong() && p.poll > leader.ttl/2: // each new version seems as old as the last pause was long
			continue
		case w.cfg.Ages != NoAges && p.poll > leader.ttl*2/3: // what is as old as a renewal interval can expire before
			continue
		case len(p.electors) > 1:
			explained, short = float64(len(p.electors))*intervals(p.looks(leader.ttl)), shortWaits
		default:
			from := latest(w.acquiredAt, since.Add(-3*w.cfg.longest())) // a TTL after the last fault
			explained, short = intervals(p.looks(leader.ttl)), p.shortWaits(from, p.looks(leader.ttl))
		}
		if short > shortWaits {
			w.violateLocked("%s waited %d times for less than its poll interval allows in one term", p.name, short)
		}
		if n, most := p.client.since(since), math.Ceil(enough*explained)+p.allowed(since, time.Now())+
			float64(short); float64(n) > most {
			w.violateLocked("%s sent %d requests in %v without a fault, not %.0f at most", p.name, n,
				time.Since(since), most)
		}
	}
}

// shortWaits counts the waits since a time that were shorter than the interval of its reads allows,
// although nothing had failed or woken the process. The caller holds w.mu.
func (p *process) shortWaits(since time.Time, interval time.Duration) (n int) {
	p.client.mu.Lock()
	defer p.client.mu.Unlock()
	least := time.Duration(0.69 / p.clock.rate * float64(interval))
	sent := p.client.sent
	for i := len(sent) - 1; i > 0 && sent[i-1].at.After(since); i-- {
		if from, to := sent[i-1], sent[i].at; !from.failed && to.Sub(from.at) < least &&
			within(p.wakes, from.at.Add(-time.Second), to) == 0 {
			n++
		}
	}
	return n
}

// allowed is how many requests wake-ups explain. The caller holds w.mu.
func (p *process) allowed(from, to time.Time) float64 {
	slots := wakeBurst + wakeBurst*int(to.Sub(from)/p.poll+1)
	return float64(p.candidates * (min(within(p.wakes, from, to), slots) + within(p.released, from, to)))
}

// within counts the times between two others, both included.
func within(times []time.Time, from, to time.Time) int {
	first, _ := slices.BinarySearchFunc(times, from, time.Time.Compare)
	last, _ := slices.BinarySearchFunc(times, to.Add(1), time.Time.Compare)
	return last - first
}

// since counts the requests since a time, but for those that try the store.
func (c *client) since(t time.Time) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := len(c.sent) - 1; i >= 0 && !c.sent[i].at.Before(t); i-- {
		if !c.sent[i].tries {
			n++
		}
	}
	return n
}

// checkRequests bounds what each process sends within any TTL, whatever goes wrong: its renewals,
// and a read per poll interval for each goroutine that acquires or reads. New terms and wake-ups
// explain more, and so does each second request that has failed. A poll while another write is
// going up, or on a store that is busy after one, is three requests.
func (w *world) checkRequests() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.processes {
		p.checkRequests()
	}
}

// checkRequests checks one process. The caller holds w.mu.
func (p *process) checkRequests() {
	ttl := p.ttl
	explained := float64(p.candidates*int(ttl/p.looks(p.w.cfg.shortest())) + int(ttl/p.renewInterval()))
	if p.w.cfg.Long { // retries in an outage
		explained += float64(p.candidates+1) * float64(ttl) / float64(longestBackoff)
	}
	p.client.mu.Lock()
	defer p.client.mu.Unlock()
	from, failed, beside, sent := 0, 0, 0, p.client.sent
	for i, s := range sent {
		if s.failed {
			failed++
		}
		if s.beside {
			beside++
		}
		for ; s.at.Sub(sent[from].at) > ttl; from++ {
			if sent[from].failed {
				failed--
			}
			if sent[from].beside {
				beside--
			}
		}
		n := i - from + 1
		if unexplained := float64(n) - float64(failed)/2 - enough*explained - 2*min(float64(beside),
			enough*explained); unexplained > 0 {
			// the race for a term is before and after its begin
			terms := 1 + within(p.newTerms, sent[from].at.Add(-time.Second), s.at.Add(time.Second))
			if unexplained > float64(shortWaits*terms)+p.allowed(sent[from].at.Add(-time.Second), s.at) {
				p.w.violateLocked("request storm: %s sent %d requests within a TTL, of which %d failed; its "+
					"intervals explain %.0f, in %d terms",
					p.name, n, failed, explained, terms)
				return
			}
		}
	}
}
