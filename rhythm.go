package leasehold

import "time"

// rhythm foretells when the holder of a lock renews next, so that a waiting candidate looks soon after that: the sooner it
// sees what turns out to have been the last renewal, the sooner it takes over. It says when to look, and nothing else: a
// wrong guess, after a wall clock was set, say, costs no more than a late look.
type rhythm struct {
	token       uint64        // of the version seen last
	renewed     time.Time     // when that was written, by the holder's wall clock
	every       time.Duration // the shortest time between two renewals, which come up to a twentieth early
	intervals   int           // seen; the first of a term is a short one
	least, most time.Duration // bounds of own monotonic time less the holder's wall time
}

// saw takes the first sighting of a version; the one before was still there when it was last asked for, at before.
func (r *rhythm) saw(v *version, before time.Duration) {
	was := *r
	r.token, r.renewed = v.rec.Token, v.rec.RenewedAt
	every := r.renewed.Sub(was.renewed)
	if v.rec.Released() || r.token != was.token || was.renewed.IsZero() || every <= 0 {
		*r = rhythm{token: r.token, renewed: r.renewed} // a new term, or a clock that was set
		return
	}
	wall := time.Duration(r.renewed.UnixNano())
	least, most := before-wall, v.readAfter-wall
	if r.intervals++; r.intervals > 2 && every < r.every*11/10 {
		every = min(every, r.every)
	}
	if r.every > 0 {
		// Requests take their time, so that bounds may cross; a clock that was set has them far apart.
		low, high := max(least, r.least), min(most, r.most)
		if low, high = min(low, high), max(low, high); high-low < every {
			least, most = low, high
		}
	}
	r.every, r.least, r.most = every, least, most
}

// next is how long to wait for the next look, from 0.7 to 1.5 poll intervals, with one look soon after each renewal if
// intervals are that short; 0 if that is not known. With every look it knows better how soon is soon.
func (r *rhythm) next(now, poll time.Duration, random float64) time.Duration {
	if r.every <= 0 || poll <= 0 {
		return 0
	}
	offset := r.most
	if r.most-r.least > poll/15 {
		offset = r.least + (r.most-r.least)/2 // halves what is not known
	}
	spread := time.Duration(random * float64(poll) / 20) // lest all candidates look at once
	due := time.Duration(r.renewed.UnixNano()) + r.every*20/19 + offset + spread - now
	if short := poll*7/10 - due; short > 0 {
		due += (short + r.every - 1) / r.every * r.every
	}
	wait := due / max((due+poll/2)/poll, 1)
	if wait < poll*7/10 || wait > poll*3/2 { // times beyond all reckoning
		return 0
	}
	return wait
}
