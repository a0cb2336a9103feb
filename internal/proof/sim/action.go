package sim

import (
	"context"
	"fmt"
	"time"
)

// actOnLocks does to a node what happens in worlds of locks only.
func (w *world) actOnLocks(p *process, a Action) {
	switch a.Kind {
	case "forged offers":
		go w.forgeOffers(p)
	case "resign":
		p.resign()
	case "abandon":
		if lease := p.leading(); lease != nil { // of the function that runs, on another goroutine
			p.abandon(lease)
		}
	case "break":
		go w.breakLock(a)
	case "restore":
		w.restore(a)
	}
}

// meets implements actor.
func (p *process) meets(a Action) {
	if a.Kind == "step wall clock" {
		p.w.markIf(p.leads(), "a clock jump during a term")
		return
	}
	if a.Kind == "pause" {
		p.w.mu.Lock()
		p.excused, p.pausedNow = true, true
		p.pausedInAcquire = true // or the function of a lease that was just acquired begins after the pause
		p.w.mu.Unlock()
	}
	p.w.markIf(p.client.writing.Load() > 0, "a stop while writing")
}

// goesOn implements actor.
func (p *process) goesOn(was machineState) {
	p.w.mu.Lock()
	if p.pausedNow {
		p.pausedNow, p.pauseEnded = false, time.Now()
	}
	p.w.mu.Unlock()
	p.w.wakesUp(p, was)
}

// crash ends a process and everything in it, except requests that are already on the network.
func (p *process) crash() {
	p.w.markIf(p.leads(), "a crash while leading")
	p.dies()
	p.w.trace.dies(p)
	p.stop()
}

func (p *process) halt() { p.stop() }

func (p *process) ends(Action) { p.goroutines.Wait() }

// resign asks every elector to resign, and does not wait for them.
func (p *process) resign() {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if p.clock.isFrozen() {
		return
	}
	p.w.markIf(p.client.writing.Load() > 0, "a resignation while writing")
	for _, e := range p.electors {
		_ = e.Resign(ended)
	}
}

// breakLock breaks the current term, as an administrator.
func (w *world) breakLock(a Action) {
	name := fmt.Sprintf("admin%d", a.At)
	lock := w.newProcess(administrator, name, name, newNodeClock(1, 0, w.rng("admin", a.At))).lock
	if rec, err := lock.Inspect(context.Background()); err == nil {
		_ = lock.Break(context.Background(), rec.Token)
	}
}
