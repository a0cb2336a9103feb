package sim

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// What locks promise at a TTL that is much longer than it takes a store to answer or to be well
// again. A jitter of a tenth comes on top.
const (
	longestAttempt = 10 * time.Second
	longestBackoff = 30 * time.Second
)

var errConflict = fmt.Errorf("409 ConditionalRequestConflict: %w", storeapi.ErrConflict)

// drawLongTTL draws whether the TTL is an hour or a day. Whatever takes part of a TTL in other
// worlds takes the same part then, but what happens to machines lasts for two hours at most.
func (c *Config) drawLongTTL() {
	r := c.rng("long TTL")
	if r.IntN(40) > 0 {
		return
	}
	const hour = int64(time.Hour / (15 * time.Second))
	times := time.Duration([]int64{hour, 24 * hour}[r.IntN(2)])
	c.Long, c.TTL, c.Margin, c.Chaos = true, c.TTL*times, c.Margin*times, c.Chaos*times
	for i := range c.Actions {
		c.Actions[i].At *= times
		c.Actions[i].For *= time.Duration(hour)
	}
}

// checkOutage wants the others to lead again soon after an outage of an hour or two in which the
// leader has released, however long the TTL is. There are no other faults. Who knows a later token,
// because a foreign client has erased it since, waits for a TTL, as after a restore, and so does
// who knows two terms of this one.
func (w *world) checkOutage() {
	leader, token := w.currentLeader()
	others := slices.DeleteFunc(w.onNodes(), func(p *process) bool { return p == leader || p.crashed.Load() })
	if leader == nil || len(others) == 0 ||
		slices.ContainsFunc(others, func(p *process) bool { return p.client.doubts(token) }) {
		return
	}
	r := w.rng("outage")
	silent, woken := r.IntN(2) == 0, r.IntN(2) == 0
	if w.cfg.Wakes && w.cfg.TTLs { // messages may have used up what a long poll interval allows
		woken = false
	}
	set := func(p *process, out bool) {
		if silent {
			p.cut.Store(out)
		} else {
			p.outage.Store(out)
		}
	}
	w.log("world", "*** an outage for all but %s; without answers: %v", leader.name, silent)
	for _, p := range others {
		set(p, true)
		p.wake() // else it would not see the outage before its next poll
	}
	time.Sleep(time.Minute)
	w.checkCalls(others[0])
	w.checkCallsOfLease(leader, set)
	if !w.releaseInOutage(leader, set) {
		return
	}
	time.Sleep(time.Hour + below(r, time.Hour))
	within := time.Second
	if w.cfg.CreateOnly { // each call sends up to three requests, of 60 ms at most
		within += time.Second / 2
	}
	if silent {
		within += longestAttempt
	}
	if !woken {
		within += time.Duration(float64(longestBackoff) * 1.1 / (1 - w.cfg.RateSpread))
	}
	w.log("world", "*** the outage is over; the lock is free")
	over := time.Now()
	for _, p := range others {
		p.client.conflicts.Store(2) // other writes are under way, says the store
		set(p, false)
		if woken {
			time.Sleep(time.Microsecond)
			p.wake()
		}
	}
	for p, _ := w.currentLeader(); p == nil; p, _ = w.currentLeader() {
		if time.Since(over) > within {
			w.violate("the lock was free, but nobody led %v after an outage; woken: %v", within, woken)
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	w.mark("led after an outage")
	w.markIf(woken && !silent, "woken from a back-off")
}

// checkCalls wants the end of ctx to end each call of a process within one attempt.
func (w *world) checkCalls(p *process) {
	l := p.lock
	w.checkEnds(p, map[string]func(ctx context.Context){
		"Acquire":    func(ctx context.Context) { _, _ = l.Acquire(ctx) },
		"TryAcquire": func(ctx context.Context) { _, _ = l.TryAcquire(ctx) },
		"Inspect":    func(ctx context.Context) { _, _ = l.Inspect(ctx) },
		"Watch": func(ctx context.Context) {
			for _, err := range l.Watch(ctx) {
				_ = err // until ctx ends
			}
		},
	})
}

// checkCallsOfLease wants the same of the calls of a lease.
func (w *world) checkCallsOfLease(p *process, set func(p *process, out bool)) {
	lease := p.leading()
	if lease == nil {
		return
	}
	set(p, true)
	w.checkEnds(p, map[string]func(ctx context.Context){
		"Renew":  func(ctx context.Context) { _ = lease.Renew(ctx) },
		"Commit": func(ctx context.Context) { _ = lease.Commit(ctx, []byte("payload")) },
	})
	set(p, false)
	time.Sleep(time.Minute)
}

func (w *world) checkEnds(p *process, calls map[string]func(ctx context.Context)) {
	var all sync.WaitGroup
	for name, call := range calls {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			began := time.Now()
			call(ctx)
			if took := time.Since(began); took > 2*time.Second+longestAttempt {
				w.violate("%s: %s returned %v after ctx had ended", p.name, name, took-time.Second)
			}
		})
	}
	all.Wait()
}

// releaseInOutage stops a leader. It wants it to release soon, although the store fails when its
// function returns. It reports whether the lock is free.
func (w *world) releaseInOutage(leader *process, set func(p *process, out bool)) bool {
	set(leader, true)
	leader.stop()
	for leader.leads() {
		time.Sleep(time.Second)
	}
	set(leader, false)
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		rec, _ := w.store.look()
		free := rec.Released()
		if took := time.Since(began); free || took > longestAttempt+5*time.Second {
			if !free {
				w.violate("%s has stopped, and not released %v after a short outage", leader.name, took)
			}
			return free
		}
	}
}
