package sim

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
)

// handovers are the terms that go on in other processes. The world's mutex guards the maps.
type handovers struct {
	owner   map[uint64]*process          // who wrote the last version of each term
	heirs   map[uint64]map[*process]bool // who has called Resume with the handle of the term
	moved   map[uint64]time.Time         // when the owner of a term last changed
	resumes sync.WaitGroup               // calls of Resume, and what follows each
}

// drawHandles draws whether holders hand their terms over to other processes. There are no ages,
// because the process that resumes has a Lock of its own for that: see dropsLocks. Beside a foreign
// client they mostly do, because it may keep all members of a record but its own: then an heir must
// not take the term for its own.
func (c *Config) drawHandles() {
	c.Handles = c.Ages == NoAges && !c.restores() && (c.rng("handles").IntN(3) == 0 ||
		c.Foreign && c.rng("heirs beside a foreign client").IntN(3) > 0)
}

// mayHandOver now and then gives the handle of the lease to other processes, which resume the term.
// Mostly the holder stops first.
func (p *process) mayHandOver(lease *leasehold.Lease) {
	if !p.w.cfg.Handles || !p.w.faultsOn() || p.crashed.Load() || p.whim(10) > 0 {
		return
	}
	if p.whim(3) > 0 {
		p.abandon(lease)
	}
	p.handOver(lease)
}

// leaves gives the handle away that was found where a process has crashed.
func (p *process) leaves(lease *leasehold.Lease) {
	if p.w.cfg.Handles && p.w.faultsOn() && p.crashed.Load() && p.whim(2) == 0 {
		p.handOver(lease)
	}
}

// handOver gives the handle of the lease to one process or several. They resume the term one after
// the other, each when the one before has stopped, or each when it likes.
func (p *process) handOver(lease *leasehold.Lease) {
	w := p.w
	nodes := w.onNodes()
	var heirs []*process
	for i := range 1 + p.whim(2)*p.whim(len(nodes)-1) {
		if heir := nodes[(max(p.node, -1)+1+i)%len(nodes)]; heir != nil { // else it has not started yet
			heirs = append(heirs, heir)
		}
	}
	pause := func() time.Duration {
		if w.cfg.Foreign { // who must be there first
			return p.draw(2 * w.cfg.TTL)
		}
		return time.Duration(p.whim(int(w.cfg.TTL/2)) * (1 + p.whim(4)/3*5))
	}
	token, handle := lease.Token(), lease.Handle()
	if len(heirs) == 1 || p.whim(2) == 0 {
		first := pause()
		w.resumes.Go(func() {
			for i, heir := range heirs {
				_ = heir.clock.Sleep(heir.running, first)
				heir.resume(token, handle, i < len(heirs)-1)
			}
		})
		return
	}
	for _, heir := range heirs {
		wait := pause()
		w.resumes.Go(func() {
			_ = heir.clock.Sleep(heir.running, wait)
			heir.resume(token, handle, false)
		})
	}
}

// resume goes on with a term of another process, for a while. Then it releases, or abandons the
// term to whoever is to resume it next.
func (p *process) resume(token uint64, handle string, leave bool) {
	w := p.w
	if p.running.Err() != nil || !w.faultsOn() {
		return
	}
	w.mu.Lock()
	again := w.heirs[token][p] // it would take the term from itself
	if w.heirs[token] == nil {
		w.heirs[token] = make(map[*process]bool)
	}
	w.heirs[token][p] = true
	w.mu.Unlock()
	if again {
		return
	}
	w.log(p.name, "calls Resume of token %d", token)
	ctx, cancel := context.WithTimeout(p.running, p.draw(w.cfg.TTL))
	lease, err := p.newLock(w.cfg.timing(p.name, token), false).Resume(ctx, handle)
	cancel()
	w.markIf(errors.Is(err, leasehold.ErrLost), "a term resumed too late")
	w.markIf(err != nil && w.foreignHolds(token), "an heir meets a foreign client")
	if err != nil {
		w.log(p.name, "does not resume token %d: %s", token, firstLine(err))
		return
	}
	w.trace.holds(lease)
	w.mu.Lock()
	leads := p.lease == nil // no function of the other Lock of this process runs
	if leads {
		p.lease, p.resumes = lease, true
		p.excused = w.broken[token] || p.pausedInAcquire || w.owner[token] != p // others have resumed it meanwhile
	}
	w.mu.Unlock()
	w.log(p.name, "leads on with token %d", token)
	for end := time.Now().Add(p.draw(2 * w.cfg.TTL)); time.Now().Before(end) && w.faultsOn(); {
		if p.clock.Sleep(lease.Context(), w.cfg.TTL/8+p.draw(time.Second)) != nil || p.running.Err() != nil {
			break
		}
		w.checkOneValidLease()
		if lease.Valid() {
			p.fencedWrite(lease)
		}
	}
	w.mu.Lock()
	if p.lease == lease {
		p.lease, p.resumes = nil, false
	}
	w.mu.Unlock()
	if leave {
		p.abandon(lease)
		return
	}
	p.releaseNow(lease)
}

// checkOwner wants each term to be written by one process at a time: by the one that has begun it,
// until another has called Resume and has written. The caller holds store.mu and w.mu.
func (w *world) checkOwner(writer *process, old, now leasehold.Record) {
	if writer.node == administrator {
		return
	}
	owner := w.owner[now.Token]
	switch {
	case now.Token > old.Token:
		// A term of this number may have been before, if the token was erased since.
		delete(w.heirs, now.Token)
		delete(w.moved, now.Token)
		w.excuseFormer(writer, old)
	case owner == writer:
	case w.heirs[now.Token][writer] && !now.Released():
		_, abandoned := w.abandoned[now.Token]
		w.markIf(abandoned, "an abandoned term resumed")
		held := owner != nil && owner.lease != nil && owner.lease.Token() == now.Token
		w.markIf(held && !abandoned, "a term resumed while it is held")
		_, before := w.moved[now.Token]
		w.markIf(before, "a term resumed again")
		w.markIf(old.TTL != now.TTL, "a term resumed with another TTL")
		delete(w.abandoned, now.Token)
		w.moved[now.Token] = time.Now()
	case !w.tokenErased:
		did := "renewed"
		if now.Released() {
			did = "released"
		}
		w.violateLocked("%s %s token %d, which %s has", writer.name, did, now.Token, owner.label())
	}
	w.owner[now.Token] = writer
}

// excuseFormer excuses whoever held the old term before another process resumed it, if the
// successor of that process reclaims it. Nothing but their own next renewal tells the former
// holders, and who resumes a term promises that they have stopped. Whoever takes the lock without a
// reclaim has waited until their leases were over. The caller holds w.mu.
func (w *world) excuseFormer(writer *process, old leasehold.Record) {
	owner := w.owner[old.Token]
	if _, moved := w.moved[old.Token]; !moved || !writer.reclaims || old.Holder != writer.identity {
		return
	}
	for _, p := range w.processes {
		if p != owner && p.lease != nil && p.lease.Token() == old.Token {
			p.excused, p.resumedAt = true, time.Now()
		}
	}
}

// checkRenewed wants no renewal to succeed that was sent after another process has resumed the
// term. The clock of p may be fast. The caller holds w.mu.
func (w *world) checkRenewed(p *process, e leasehold.Event) {
	at, moved := w.moved[e.Token]
	stoodStill := p.resumedAt.After(at) || p.pausedNow
	if moved && w.owner[e.Token] != p && time.Since(at) > e.Duration+e.Duration/4 && !w.tokenErased && !stoodStill {
		w.violateLocked("%s renewed token %d after %s had resumed it", p.name, e.Token, w.owner[e.Token].label())
	}
}

// hasMoved reports whether a term has gone on in another process.
func (w *world) hasMoved(token uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, moved := w.moved[token]
	return moved
}
