package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/leasehold-go/leasehold"
)

// drawVisitors draws whether visitors take part: processes that ask for the lock once, do something
// short, and end. In half of these worlds all others crash, and stay away for longer than a TTL.
func (c *Config) drawVisitors() {
	r := c.rng("visitors")
	if c.Visitors = r.IntN(6) == 0 && !c.restores(); c.Visitors && r.IntN(2) > 0 {
		c.allCrash(r, 2*c.TTL)
	}
}

// visit starts a process on a machine of its own, half of which have a good network. It asks for
// the lock once. Some visitors crash while they have it.
func (w *world) visit(i int, r *rand.Rand) {
	name := fmt.Sprint("visitor", i)
	p := w.newProcess(visitor, name, name, w.newClock(visitor, name))
	p.candidates = 1
	defer p.stop()
	if r.IntN(2) == 0 {
		p.client.faults = 0
	}
	w.mu.Lock()
	joins := w.joins(p)
	w.mu.Unlock()
	if !joins {
		return
	}
	v := visit{tries: r.IntN(3) > 0, began: time.Now(), wall: p.clock.Now().Time(),
		patience: min(below(r, 3*w.cfg.longest()), time.Until(w.began.Add(w.cfg.Chaos)))}
	v.found, v.version = w.store.look()
	ask, asks := p.lock.Acquire, "Acquire"
	if v.tries {
		ask, asks = p.lock.TryAcquire, "TryAcquire"
	}
	w.log(p.name, "calls %s for %v", asks, v.patience)
	ctx, cancel := context.WithTimeout(p.running, v.patience)
	lease, err := ask(ctx)
	cancel()
	p.checkVisit(v, lease, err)
	if err != nil {
		w.log(p.name, "does not get the lock: %s", firstLine(err))
		return
	}
	if crashes := r.IntN(4) == 0; crashes {
		defer time.AfterFunc(below(r, w.cfg.TTL/2), p.crash).Stop()
	}
	valid := false
	work, stop := context.WithTimeout(p.running, below(r, w.cfg.TTL/2))
	defer stop()
	err = lease.Do(work, func(ctx context.Context, lease *leasehold.Lease) error {
		p.lead(ctx, lease)
		valid = lease.Valid()
		return nil
	})
	p.checkDo(valid, lease.Token(), err)
}

// visit is one call of a visitor, and what it found.
type visit struct {
	tries    bool // it called TryAcquire, and not Acquire
	patience time.Duration
	began    time.Time
	wall     time.Time // of its machine then
	found    leasehold.Record
	version  int
}

// look returns the record in the store, and the number of its version. It is 0 if there is none.
func (s *store) look() (rec leasehold.Record, version int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rec, s.versions
}

// livesBy reports whether the holder that a visitor has found has renewed within its TTL, by a wall
// clock.
func livesBy(wall time.Time, rec leasehold.Record) bool {
	silent := wall.Sub(rec.RenewedAt)
	return !rec.Released() && silent >= 0 && silent < rec.TTL
}

// checkVisit wants TryAcquire to wait for nobody who lives, as the holder's record says by the wall
// clocks. And if a visit was in vain, it wants that somebody has renewed or taken the lock
// meanwhile, unless the visitor had no time for the TTL of a holder that is gone. It looks only at
// visits which the store has answered.
func (p *process) checkVisit(v visit, lease *leasehold.Lease, err error) {
	w, rec, took := p.w, v.found, time.Since(v.began)
	now, version := w.store.look()
	if v.version == 0 || w.cfg.Foreign || p.client.isTroubled() {
		return
	}
	request := 100 * time.Millisecond
	for _, slow := range []bool{w.cfg.Slow, p.client.faults > 0} {
		if slow {
			request += 3 * time.Second
		}
	}
	if w.cfg.CreateOnly { // a LIST, and a GET or several
		request *= 4
	}
	if lives := v.tries && livesBy(v.wall, rec); lives {
		atOnce := took <= 10*request // also if others are faster several times
		w.markIf(errors.Is(err, leasehold.ErrHeld), "a visitor refused at once")
		if outlasted := err == nil && lease.Token() == rec.Token+1; !atOnce &&
			(outlasted || err != nil && livesBy(p.clock.Now().Time(), now)) {
			w.violate("%s took %v to try, although the holder of token %d had shown life", p.name, took, rec.Token)
		}
		return
	}
	if err == nil || version != v.version {
		return
	}
	// A renewal that lies ahead is one of somebody who lives, as soon as it does so by the
	// allowance alone.
	silent := v.wall.Sub(rec.RenewedAt)
	gone := silent < -foreignAllowance-v.patience || silent > rec.TTL+foreignAllowance
	byItsClock := float64(rec.TTL)*(1+w.cfg.Drift) + float64(2*p.poll)
	switch enough := v.patience > time.Duration(byItsClock/p.clock.rate)+8*request; {
	case now.Released() && v.patience > 8*request:
		w.violate("%s did not get the lock, which was free: %v", p.name, err)
	case !now.Released() && enough && (gone || !v.tries):
		w.violate("%s had %v, took %v, and did not get the lock, although the holder of token %d showed no life: %v",
			p.name, v.patience, took, rec.Token, err)
	}
}

// isTroubled reports whether the process has met more than slow replies.
func (c *client) isTroubled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.troubled
}
