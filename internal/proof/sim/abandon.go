package sim

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold"
)

// abandonment is a term that its holder has abandoned.
type abandonment struct {
	by    *process
	at    time.Time
	until time.Duration // by the holder's monotonic clock: at least so long the term keeps everybody out
	ttl   time.Duration // of the lease
}

// abandonments are the terms that were abandoned, and those whose holder has called Release. The
// world's mutex guards them.
type abandonments struct {
	abandoned     map[uint64]abandonment
	calledRelease map[uint64]bool
}

// drawAbandons draws whether holders abandon their leases.
func (c *Config) drawAbandons() {
	r := c.rng("abandons")
	if c.Abandons = r.IntN(4) == 0; !c.Abandons {
		return
	}
	for range r.IntN(4) {
		c.add(c.sometime(r, "abandon"))
	}
}

// whim draws from what a process does with its leases, if holders abandon them.
func (p *process) whim(n int) int {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if p.whims == nil {
		p.whims = p.w.rng("whims", p.name)
	}
	return p.whims.IntN(n)
}

// abandon abandons a lease. It notes that if the lease is valid, because on one that is over
// Abandon does nothing.
func (p *process) abandon(lease *leasehold.Lease) {
	w := p.w
	if p.crashed.Load() || p.clock.isFrozen() {
		return
	}
	if valid, left := lease.Valid(), time.Until(lease.Deadline()); valid {
		w.mu.Lock()
		ttl := ttlOf(lease)
		until := p.clock.Now().Mono + left + w.cfg.marginOf(ttl)
		w.abandoned[lease.Token()] = abandonment{p, time.Now(), until, ttl}
		w.markIf(p.lease == lease, "abandoned in its function")
		w.mu.Unlock()
		w.markIf(p.client.writing.Load() > 0, "abandoned during a renewal")
		w.log(p.name, "abandons token %d", lease.Token())
	}
	lease.Abandon()
}

// releaseNow calls Release.
func (p *process) releaseNow(lease *leasehold.Lease) {
	p.w.mu.Lock()
	p.w.calledRelease[lease.Token()] = true
	p.w.mu.Unlock()
	p.w.log(p.name, "calls Release of token %d", lease.Token())
	_ = lease.Release(context.Background())
}

// mayEndEarly now and then ends the lease of the function that calls it, by Abandon, by Release, or
// by both in any order.
func (p *process) mayEndEarly(lease *leasehold.Lease) {
	if !p.w.cfg.Abandons || !p.w.faultsOn() || p.whim(12) > 0 {
		return
	}
	pause := func() { _ = p.clock.Sleep(context.Background(), time.Duration(p.whim(int(p.w.cfg.TTL)))) }
	switch p.whim(5) {
	case 0:
		p.abandon(lease)
	case 1:
		p.abandon(lease)
		p.abandon(lease)
		pause()
		p.releaseNow(lease)
	case 2:
		p.releaseNow(lease)
		p.abandon(lease)
	case 3: // a renewal is on its way, and may land later
		p.goroutines.Go(func() { _ = lease.Renew(lease.Context()) })
		_ = p.clock.Sleep(context.Background(), time.Duration(1+p.whim(int(40*time.Millisecond))))
		p.abandon(lease)
	case 4: // what is left of the term goes on after the function
		p.abandon(lease)
		p.goroutines.Go(func() {
			pause()
			p.releaseNow(lease)
		})
	}
}

// runOnce runs an elector term by term.
func (e *elector) runOnce(ctx context.Context) error {
	for {
		err := e.RunOnce(ctx)
		if errors.Is(err, leasehold.ErrLost) {
			err = nil
		}
		if ctx.Err() != nil || err != nil && !strings.Contains(err.Error(), "releasing") {
			return err
		}
	}
}

// dropLock takes the lock with a Lock of its own, abandons the lease and forgets the Lock. Another
// Lock of the same name then tries to reclaim.
func (p *process) dropLock(ctx context.Context) {
	aside := func(dropping bool) {
		p.w.mu.Lock()
		defer p.w.mu.Unlock()
		p.dropping = dropping
	}
	aside(true)
	defer aside(false)
	waiting, cancel := context.WithTimeout(ctx, p.draw(3*p.w.cfg.TTL))
	lease, err := p.newLock(p.timing, true).Acquire(waiting)
	cancel()
	if err != nil {
		return
	}
	p.w.trace.holds(lease)
	p.abandon(lease)
	lease = nil
	for range 4 {
		_ = p.clock.Sleep(ctx, p.draw(p.w.cfg.TTL/4))
		runtime.GC() // by now no timer refers to the Lock
		if lease, err = p.newLock(p.timing, true).TryAcquire(ctx); err == nil {
			p.w.trace.holds(lease)
			_ = lease.Release(context.Background())
			return
		}
	}
}

// dropsLocks reports whether the process takes the lock with Locks that it then forgets. There are
// no ages, because what is true in a first reply is true for one Lock of a process.
func (p *process) dropsLocks() bool {
	cfg := p.w.cfg
	return cfg.Abandons && cfg.Siblings && p.reclaims && cfg.Ages == NoAges
}

// checkAbandoned wants an abandoned term to stand until it has run out, unless its holder calls
// Release. Other processes are held to the TTL by checkTakeover. The caller holds store.mu and
// w.mu.
func (w *world) checkAbandoned(writer *process, r request, old, now leasehold.Record) {
	a, ok := w.abandoned[old.Token]
	if !ok || w.tokenErased || w.cfg.Ages.wrong() || old.Released() || writer.node == administrator {
		return
	}
	switch {
	case now.Released() && now.Token == old.Token && !w.calledRelease[old.Token]:
		w.violateLocked("%s released token %d, which was abandoned, although nobody had called Release",
			writer.name, old.Token)
	case now.Released():
		w.mark("abandoned, then released")
	case now.Token > old.Token && writer == a.by && writer.clock.Now().Mono < a.until && !w.calledRelease[old.Token]:
		w.violateLocked("%s took over from its own token %d, which it had abandoned, %v before that could run out",
			writer.name, old.Token, a.until-writer.clock.Now().Mono)
	case now.Token > old.Token:
		w.mark("an abandoned term runs out")
	// else its machine may have stood still meanwhile
	case writer == a.by && r.fate != nil && r.fate.at.Sub(a.at) > a.ttl/2 && writer.resumedAt.Before(a.at):
		w.violateLocked("%s renewed token %d %v after it had abandoned it", writer.name, old.Token, r.fate.at.Sub(a.at))
	}
}

// abandonedAtEnd reports whether a record may stand although all have stopped, because its holder
// has abandoned it.
func (w *world) abandonedAtEnd(rec leasehold.Record) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, ok := w.abandoned[rec.Token]
	return ok
}
