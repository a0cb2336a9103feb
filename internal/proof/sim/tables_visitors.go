package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/tables"
	"github.com/leasehold-go/leasehold/locktable"
)

// drawVisits draws whether processes take part that ask once and end. Then the wall clock of every
// other machine is wrong by hours, and the records of its members claim times of renewal that are.
// In half of these worlds requests go well. In another half all others crash, and stay away for
// longer than a TTL.
func (c *TableConfig) drawVisits() {
	r := c.rng("table visits")
	if c.Visitors = r.IntN(6) == 0; !c.Visitors {
		return
	}
	c.Wrong = time.Duration(1+r.IntN(5)) * time.Hour * time.Duration(1-2*r.IntN(2))
	if r.IntN(2) == 0 {
		c.RequestFaults, c.Slow = 0, false
	}
	if r.IntN(2) > 0 {
		c.allCrash(r, 3*c.TTL)
	}
}

// hasWrongClock reports whether the wall clock of a node is wrong.
func (c *TableConfig) hasWrongClock(node int) bool { return c.Wrong != 0 && node >= 0 && node%2 == 0 }

// visit starts a process on a machine of its own with a good network. It asks for a lock once,
// holds it for a moment and ends; now and then it crashes while it has the lock.
func (w *tableWorld) visit(i int, r *rand.Rand) {
	name := fmt.Sprint("visitor", i)
	p := w.newProcess(name, visitor, w.newClock(visitor, name))
	c := newTableClient(p, name, "")
	p.calm = true
	l := w.cfg.Locks[r.IntN(len(w.cfg.Locks))]
	patience, crashes := below(r, 3*w.cfg.TTL), r.IntN(4) == 0
	if !w.launch(p, func() { w.pending++ }) {
		return
	}
	defer w.expect(-1)
	claims := []tables.Claim{{Name: l.Name, Of: l.Of, Slots: l.Of}}
	v := w.finds(c, l.Name, min(patience, time.Until(w.began.Add(w.cfg.Chaos))))
	ctx, cancel := context.WithTimeout(p.work, v.patience)
	lease, err := c.lock(claims...).TryAcquire(ctx)
	cancel()
	w.log(name, "has tried to get %s: %s", l.Name, firstLine(err))
	w.checkVisit(c, v, err)
	if err == nil {
		h := c.hold(lease, claims, lease.Context(), false)
		_ = p.clock.Sleep(lease.Context(), below(r, w.cfg.TTL/2))
		if crashes {
			p.crash()
		}
		c.released(h, lease.Release(p.life))
	}
	if !p.crashed.Load() {
		p.halt()
	}
	p.ends(Action{})
}

// tableVisit is one call of a visitor, and what it found.
type tableVisit struct {
	lock     string
	patience time.Duration
	began    time.Time
	inWay    []string   // members that held the lock or waited for it
	alive    []tableRow // of them, of those who were well, and had been for two TTLs
	dead     bool       // all had crashed, and by the visitor's clock their records did not tell otherwise
	wrong    bool       // one of them had the wrong clock
}

// finds notes what a visitor finds.
func (w *tableWorld) finds(c *tableClient, lock string, patience time.Duration) *tableVisit {
	w.state.Lock()
	defer w.state.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	now, wall := time.Now(), c.p.clock.Now().Time()
	v := &tableVisit{lock: lock, patience: patience, began: now}
	well, gone := w.findWell(now), 0
	for row, m := range w.inWay(lock) {
		o, other := w.objects[m.Key], well[m.Term]
		v.inWay = append(v.inWay, m.Name)
		if other != nil && now.Sub(other.p.unwellAt) > 2*w.cfg.TTL {
			v.alive = append(v.alive, row)
		}
		v.wrong = v.wrong || other != nil && w.cfg.hasWrongClock(other.p.node)
		if at := w.diedAt(m.Key); o != nil && o.rec.TermID == m.TermID && !at.IsZero() && now.Sub(at) > time.Second {
			if age := wall.Sub(o.rec.RenewedAt); age > m.TTL+visitorsAllowance || age < -visitorsAllowance-patience {
				gone++
			}
		}
	}
	v.dead = gone > 0 && gone == len(v.inWay)
	return v
}

// visitorsAllowance is by how much two wall clocks may differ before a visitor must wait and see.
const visitorsAllowance = 2 * time.Second

// inWay are the rows that hold a lock, or wait for it. The caller holds w.state.
func (w *tableWorld) inWay(lock string) map[tableRow]tables.Member {
	rows := make(map[tableRow]tables.Member)
	for _, r := range rowsOf(w.table) {
		if slices.ContainsFunc(r.Claims, func(c tables.Claim) bool { return c.Name == lock }) {
			m, _ := w.table.Member(r.Member)
			rows[tableRow{m.Term, r.Number}] = m
		}
	}
	return rows
}

// checkVisit wants TryAcquire to end soon after the next renewal of somebody who lives, and to
// outlast those who are dead: within their TTL, and a third of it more, whatever their clocks have
// told. Only where requests go well can that be said.
func (w *tableWorld) checkVisit(c *tableClient, v *tableVisit, err error) {
	took, ttl := time.Since(v.began), w.cfg.TTL
	if w.cfg.RequestFaults > 0 || w.cfg.Slow || w.cfg.Damage || w.cfg.Loose {
		return
	}
	const slack = 2 * time.Second // for some twenty requests, and for races
	late := time.Duration(float64(ttl)*(1+w.cfg.Drift)/c.p.clock.rate) + ttl/3 + slack
	after := w.finds(c, v.lock, 0)
	w.markIf(v.wrong && after.wrong && errors.Is(err, leasehold.ErrHeld), "a visitor met a wrong clock")
	w.state.Lock()
	unused := !w.usedAt[v.lock].After(v.began)
	w.state.Unlock()
	lived := slices.ContainsFunc(v.alive, func(row tableRow) bool { return slices.Contains(after.alive, row) })
	others := false
	if held, ok := errors.AsType[*locktable.HeldError](err); ok {
		others = slices.ContainsFunc(held.By, func(m locktable.Member) bool {
			return !slices.Contains(v.inWay, m.Name)
		})
	}
	switch {
	case took > late:
		w.violate("%s took %v to try, not %v: %v", c.name, took, late, err)
	case lived && err != nil && took > ttl*2/3+slack:
		w.violate("%s took %v to try, although one of %v has lived all the time: %v", c.name, took, v.inWay, err)
	case v.dead && v.patience > late && unused && !others && err != nil:
		w.violate("%s had %v, took %v, and did not get %s, although all of %v were dead: %v", c.name, v.patience, took,
			v.lock, v.inWay, err)
	}
}
