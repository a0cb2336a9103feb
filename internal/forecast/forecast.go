// Package forecast predicts when the holder of a lock renews next.
package forecast

import "time"

// Renewals predicts the next renewal of a term from those seen so far, so that a waiting candidate
// reads the lock soon after it: the sooner it sees what turns out to have been the last renewal,
// the sooner it takes over. The prediction says when to read and nothing else. If it is wrong, for
// example after a wall clock was set, a read comes late and no harm is done.
//
// The zero value is ready. Renewals is not safe for concurrent use.
type Renewals struct {
	last     Write
	interval time.Duration // the shortest time between two renewals, which come up to a twentieth early
	number   int           // of the intervals seen
	extra    int           // short waits in this term
	// Bounds of this machine's monotonic clock minus the holder's wall clock.
	minOffset, maxOffset time.Duration
}

// Write is one write of the lock object that this process has seen.
type Write struct {
	Token            uint64
	First            bool // of its term
	Released         bool
	At               time.Time     // by the holder's wall clock
	Earliest, Latest time.Duration // it landed between these, by this machine's monotonic clock
}

// Saw takes the next write.
func (r *Renewals) Saw(w Write) {
	before := *r
	interval := w.At.Sub(before.last.At)
	if w.Released || w.Token != before.last.Token || before.last.At.IsZero() || interval <= 0 {
		extra := before.extra
		if w.Token != before.last.Token {
			extra = 0
		}
		*r = Renewals{last: w, extra: extra} // a new term, or a clock that was set
		return
	}
	r.last = w
	wall := time.Duration(w.At.UnixNano())
	r.minOffset, r.maxOffset = w.Earliest-wall, w.Latest-wall
	if before.last.First {
		return // the first interval of a term is short
	}
	if r.number++; r.number > 1 && interval < before.interval*11/10 {
		interval = min(interval, before.interval)
	}
	if before.interval > 0 {
		// Requests take time, so the bounds may cross. After a clock was set they differ widely.
		low, high := max(r.minOffset, before.minOffset), min(r.maxOffset, before.maxOffset)
		if low, high = min(low, high), max(low, high); high-low < interval {
			r.minOffset, r.maxOffset = low, high
		}
	}
	r.interval = interval
}

// Wait returns how long to wait before the next read: between 0.7 and 1.5 of poll, so that one read
// comes soon after each renewal if renewals are not more frequent than reads. As long as it is not
// known well when renewals come, some waits are shorter: a read that comes just before the renewal
// that it was meant for is followed by another. A term has maxExtra of these. Wait returns 0 if it
// has no estimate. random, in [0,1), keeps candidates from reading at the same moment.
func (r *Renewals) Wait(now, poll time.Duration, random float64) time.Duration {
	if r.interval <= 0 || poll <= 0 {
		return 0
	}
	near := poll / 50
	sent := time.Duration(r.last.At.UnixNano()) + r.interval*20/19 // of the next renewal, at the latest
	first, last := sent+r.minOffset, sent+r.maxOffset              // it lands between these
	left := last - now
	if now >= first && left > near && left < 2*poll && r.extra < maxExtra { // the last read came too early
		r.extra++
		return max(left/2, near)
	}
	due := last
	if last-first > near {
		due = first + (last-first)/2 // halves what is not known
	}
	due += time.Duration(random*float64(near)) - now
	if short := poll*7/10 - due; short > 0 {
		due += (short + r.interval - 1) / r.interval * r.interval
	}
	wait := due / max((due+poll/2)/poll, 1)
	if wait < poll*7/10 || wait > poll*3/2 { // the times of the records are absurd
		return 0
	}
	return wait
}

// maxExtra bounds the short waits of a term.
const maxExtra = 12
