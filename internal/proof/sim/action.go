package sim

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/testopt"
)

// act does one thing to a node, and undoes it later.
func (w *world) act(a Action) {
	w.mu.Lock()
	p := w.nodes[a.Node]
	if p.clock.isFrozen() && (strings.Contains(a.Kind, "wall clock") || strings.Contains(a.Kind, "pause") ||
		a.Kind == "suspend") {
		w.mu.Unlock()
		return // a machine stops once at a time
	}
	w.stats.Faults[a.Kind]++
	w.mu.Unlock()
	w.log(p.name, "*** %s for %v", a.Kind, a.For.Round(time.Millisecond))
	if a.Kind == "step wall clock" {
		w.markIf(p.leads(), clockJump)
	}
	if p.suffers(a) {
		return
	}
	undo := func(f func()) { time.AfterFunc(a.For, f) }
	switch a.Kind {
	case "forged wake-ups":
		go w.forge(p)
	case "forged offers":
		go w.forgeOffers(p)
	case "suspend", "suspend, wall clock set back", "pause", "pause, wall clock set right":
		if a.Kind == "pause" {
			w.mu.Lock()
			p.excused, p.pausedNow = true, true
			p.pausedInAcquire = true // or the function of a lease that was just acquired begins after the pause
			w.mu.Unlock()
		}
		w.stops(p)
		p.freeze(a, func() { w.thaw(p) })
	case "crash", "crash and restart", "crash and reclaim":
		p.crash()
		undo(func() { w.restart(p, a.Kind == "crash and reclaim") })
	case "resign":
		p.resign()
	case "abandon":
		p.abandonFromOutside()
	case "break":
		go w.breakLock(a)
	case "restore":
		w.restore(a)
	case "stop and start":
		p.stop()
		go func() {
			p.goroutines.Wait()
			undo(func() { w.restart(p, false) })
		}()
	}
}

func (w *world) thaw(p *process) {
	w.mu.Lock()
	p.resumedAt = time.Now()
	if p.pausedNow {
		p.pausedNow, p.pauseEnded = false, time.Now()
	}
	w.mu.Unlock()
	w.log(p.name, "*** resumes")
	w.wakesUp(p)
	p.clock.thaw()
}

// crash ends a process and everything in it, except requests that are already on the network.
func (p *process) crash() {
	p.w.markIf(p.leads(), crashWhileLeading)
	p.dies()
	p.w.trace.dies(p)
	p.stop()
}

// restart starts the next process of a node, unless another has already replaced p.
func (w *world) restart(p *process, reclaim bool) {
	w.mu.Lock()
	current := w.nodes[p.node] == p
	w.mu.Unlock()
	if !current {
		return
	}
	c, generation := p.clock.next(w.cfg, p.node)
	identity := fmt.Sprint("node", p.node)
	if w.cfg.Copies { // a copy of this machine may have that name, and live
		identity = fmt.Sprintf("node%d.%d", p.node, generation)
	}
	w.start(p.node, generation, c, identity, reclaim)
}

// resign asks every elector to resign, and does not wait for them.
func (p *process) resign() {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if p.clock.isFrozen() {
		return
	}
	p.w.markIf(p.client.writing.Load() > 0, resignWhileWriting)
	for _, e := range p.electors {
		_ = e.Resign(ended)
	}
}

// breakLock breaks the current term, as an administrator.
func (w *world) breakLock(a Action) {
	admin := &process{
		w:       w,
		name:    fmt.Sprintf("admin%d", a.At),
		node:    administrator,
		machine: machine{clock: newNodeClock(1, 0, w.rng("admin", a.At))},
	}
	admin.client = w.newClient(admin)
	lock, err := leasehold.NewLock(admin.client.store(), lockKey, testopt.WithClock(admin.clock),
		leasehold.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		panic(err)
	}
	if rec, err := lock.Inspect(context.Background()); err == nil {
		_ = lock.Break(context.Background(), rec.Token)
	}
}
