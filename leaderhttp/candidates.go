package leaderhttp

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"time"
)

const (
	maxPreempt = maxWait         // a wait lasts no longer, so nothing longer is seen
	settled    = time.Second     // after this time since its start, a process is preferred for being young
	shunTime   = 5 * time.Minute // for which a candidate that has not taken an offer gets no other
	maxShunned = 1000            // names
	maxName    = 1 << 10         // of a candidate, in bytes, as leasehold.WithHolder has it
	maxUptime  = 1e9             // seconds that a candidate may say
)

// WithPriority sets the priority of this process as the next leader: default 0. It may be negative.
// A leader that steps down passes the lock to the candidate with the highest priority. A priority
// alone makes no leader step down: see [WithPreemption].
func WithPriority(n int) Option { return func(p *Peer) { p.priority = n } }

// WithPreemption makes this process, while it leads, step down for a candidate that has a higher
// priority and has waited for this time. The term ends as [leasehold.Elector.Resign] ends it. By
// default a leader does not step down for a candidate. The time must be at least 0 and below 50 s,
// because candidates ask again every 50 s. If a candidate does not take the lock that this process
// offered to it, or for which this process stepped down, this process steps down for no candidate
// for 5 minutes.
func WithPreemption(after time.Duration) Option {
	return func(p *Peer) { p.preempt, p.preempts = after, true }
}

// candidate is a process that waits for the end of a term of this process.
type candidate struct {
	line     chan answer   // has room for its only answer
	lost     chan struct{} // closed if that answer could not be sent
	name     string
	priority int
	born     time.Time // when its Peer was made, as it says
	came     time.Time // when its request came
	able     bool      // it knows what a note is; earlier versions do not
}

// newCandidate returns the candidate that sent the query of a wait.
func newCandidate(q url.Values) *candidate {
	c := &candidate{line: make(chan answer, 1), lost: make(chan struct{}), name: q.Get("holder"), came: time.Now()}
	c.born = c.came
	up, err := strconv.ParseFloat(q.Get("up"), 64)
	if err != nil || !(up >= 0 && up <= maxUptime) || c.name == "" || len(c.name) > maxName {
		return c
	}
	c.able, c.born = true, c.came.Add(-time.Duration(up*float64(time.Second)))
	c.priority, _ = strconv.Atoi(q.Get("priority"))
	return c
}

// asks returns the query by which this candidate waits at a leader.
func (p *Peer) asks() string {
	q := url.Values{
		"from": {p.id}, "holder": {p.lock.Holder()}, "priority": {strconv.Itoa(p.priority)},
	}
	if waits(p.lock) { // else its elector has ended, say, and an offer would be in vain
		q.Set("up", strconv.FormatFloat(time.Since(p.began).Seconds(), 'f', 3, 64))
	}
	return q.Encode()
}

// sortWaiting sorts the candidates: the one with the name chosen, if that is not empty; those that
// may get an offer; the highest priority; those that have been up for a second, because a process
// may crash again and again; the youngest process; first come, first served. In a rolling restart,
// the youngest processes are those that were restarted already, so the lock does not pass from
// victim to victim. The caller holds p.mu.
func (p *Peer) sortWaiting(chosen string, now time.Time) {
	slices.SortStableFunc(p.waiting, func(a, b *candidate) int {
		fresh := func(c *candidate) bool { return now.Sub(c.born) <= settled }
		return cmp.Or(
			before(chosen != "" && a.name == chosen, chosen != "" && b.name == chosen),
			before(p.mayGet(a, now), p.mayGet(b, now)),
			cmp.Compare(b.priority, a.priority),
			before(!fresh(a), !fresh(b)),
			b.born.Compare(a.born),
			a.came.Compare(b.came),
		)
	})
}

// before compares two candidates of which those with a property come first.
func before(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	default:
		return 1
	}
}

// mayGet reports whether c gets an offer unless another candidate comes first. The caller holds
// p.mu.
func (p *Peer) mayGet(c *candidate, now time.Time) bool {
	return c.able && now.Sub(p.shunned[c.name]) >= shunTime
}

// shun notes that c has not taken the lock that was offered to it.
func (p *Peer) shun(c *candidate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, oldest := time.Now(), c.name
	for name, since := range p.shunned {
		if now.Sub(since) >= shunTime {
			delete(p.shunned, name)
		} else if first, ok := p.shunned[oldest]; !ok || since.Before(first) {
			oldest = name
		}
	}
	if len(p.shunned) >= maxShunned {
		delete(p.shunned, oldest)
	}
	p.shunned[c.name], p.inVain = now, now
}

// forgive takes back what shun has noted of a process that has the lock now. The caller holds p.mu.
func (p *Peer) forgive(holder string) {
	if _, ok := p.shunned[holder]; ok {
		delete(p.shunned, holder)
		p.inVain = time.Time{}
	}
}

// watchPriority ends the own term if c outranks this process and has waited long enough. The caller
// calls stop when c waits no more.
func (p *Peer) watchPriority(own *term, c *candidate) (stop func() bool) {
	if !p.preempts || !c.able || c.priority <= p.priority {
		return func() bool { return false }
	}
	return time.AfterFunc(p.preempt, func() {
		p.mu.Lock()
		now := time.Now()
		yields := p.own == own && slices.Contains(p.waiting, c) && p.mayGet(c, now) && now.Sub(p.inVain) >= shunTime
		if yields {
			own.yielded = c.name
		}
		p.mu.Unlock()
		if yields {
			resign(own.lease)
		}
	}).Stop
}
