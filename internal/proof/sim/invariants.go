package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold"
)

// observe receives every event of a process's lock.
func (p *process) observe(_ context.Context, e leasehold.Event) {
	if p.crashed.Load() {
		return
	}
	switch e.Kind {
	case leasehold.EventRequest:
		return
	case leasehold.EventNewLeader:
		p.happened(&p.newTerms)
	case leasehold.EventReleased:
		p.happened(&p.released)
	case leasehold.EventAcquired:
		p.w.checkAcquired(p, e)
		p.w.checkOneValidLease()
	case leasehold.EventLost:
		p.w.markIf(p.cut.Load(), "a partitioned leader")
		p.w.checkLost(p, e)
	case leasehold.EventRenewed:
		p.w.mu.Lock()
		if p.excused { // its clocks stood still, or it was broken
			p.w.excuseFromRestored(p, e.Token)
		}
		// sent after that, not only answered, and under this lease; its clock may be fast
		if time.Since(p.resumedAt) > e.Duration+e.Duration/4 && (p.lease == nil || p.lease.Token() == e.Token) {
			p.excused = false
		}
		p.w.checkRenewed(p, e)
		p.w.mu.Unlock()
	}
	if p.w.traced {
		p.w.log(p.name, "%s token %d %s", e.Kind, e.Token, firstLine(e.Err))
	}
}

// happened notes the time of something.
func (p *process) happened(times *[]time.Time) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	*times = append(*times, time.Now())
}

// checkAcquired wants a new token for each acquisition, and every other leader's context ended
// before it.
func (w *world) checkAcquired(p *process, e leasehold.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stats.Terms++
	w.acquiredAt = time.Now()
	p.pausedInAcquire = time.Since(p.pauseEnded) <= e.Duration+e.Duration/4
	if w.heirs[e.Token][p] {
		return // it has resumed the term
	}
	if owner, taken := w.tokenOwner[e.Token]; taken && !w.tokenErased {
		w.violateLocked("token %d was given to %s and to %s", e.Token, owner, p.name)
	}
	w.tokenOwner[e.Token] = p.name
	// The term may be that of a Lock of its own, for which p.lock and its margin do not exist.
	if p.unguarded != nil && !p.dropping && (p.unguarded.Context().Err() == nil || p.clock.Now().Mono < p.notBefore) {
		w.violateLocked("%s acquired token %d before the safety margin of its own token %d had passed", p.name,
			e.Token, p.unguarded.Token())
	}
	if !p.dropping {
		p.unguarded = nil
	}
	w.excuseFromRestored(p, e.Token)
	for _, other := range w.processes {
		if other == p || p.pausedInAcquire || w.broken[e.Token] || !other.accountable() {
			continue
		}
		justResumed := time.Since(other.resumedAt) <= latestEnd(other.lease)
		if other.lease.Context().Err() == nil && !justResumed {
			w.violateLocked("%s acquired token %d while the context of %s (token %d) had not ended", p.name, e.Token,
				other.name, other.lease.Token())
		}
	}
}

// accountable reports whether the process leads and its clocks let it know whether it still may.
// The caller holds w.mu.
func (p *process) accountable() bool {
	return !p.w.cfg.Ages.wrong() && p.lease != nil && !p.excused && !p.crashed.Load() && !p.clock.isFrozen()
}

// leader is a process that is accountable, and its lease.
type leader struct {
	p         *process
	name      string
	lease     *leasehold.Lease
	resumedAt time.Time
}

func (w *world) accountable() (leaders []leader) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.processes {
		if p.accountable() {
			leaders = append(leaders, leader{p, p.name, p.lease, p.resumedAt})
		}
	}
	return leaders
}

// checkOneValidLease wants at most one valid lease among the processes that run. A process whose
// term has been resumed elsewhere may still have one, of the same token.
func (w *world) checkOneValidLease() {
	var valid []string
	var tokens []uint64
	for _, l := range w.accountable() {
		token := l.lease.Token()
		if l.lease.Valid() {
			w.trace.acts(l.p, l.lease)
		}
		if l.lease.Valid() && (!w.hasMoved(token) || !slices.Contains(tokens, token)) {
			tokens = append(tokens, token)
			valid = append(valid, fmt.Sprintf("%s (token %d)", l.name, l.lease.Token()))
		}
	}
	if len(valid) > 1 {
		w.violate("several valid leaders: %s", strings.Join(valid, ", "))
	}
}

// checkLost wants that a lease which ends early is not in the store any more.
func (w *world) checkLost(p *process, e leasehold.Event) {
	w.mu.Lock()
	elsewhere := w.backedUp || w.owner[e.Token] != p || w.lastWriter == nil
	w.mu.Unlock()
	if elsewhere { // another process has it, or an older version of the term, or another one with its token, is there
		return
	}
	rec, _ := w.store.look()
	overwritten := w.cfg.Pages && strings.Contains(e.Err.Error(), "overwritten") // as a page with an ETag looks
	if !strings.Contains(e.Err.Error(), "not renewed in time") && !overwritten && rec.Token == e.Token &&
		rec.Holder == p.identity && !rec.Released() {
		w.violate("%s gave up token %d, which it still holds in the store: %v", p.name, e.Token, e.Err)
	}
}

// checkDo wants no loss reported of a term that was valid when its function returned, unless
// another process has resumed it.
func (p *process) checkDo(valid bool, token uint64, err error) {
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if valid && errors.Is(err, leasehold.ErrLost) && !w.cfg.Ages.wrong() && !w.broken[token] && w.owner[token] == p &&
		!p.client.misled && !p.excused && !p.crashed.Load() {
		w.violateLocked("%s: Do reported token %d as lost, although it was valid when the function returned: %v",
			p.name, token, err)
	}
}

// fencedWrite writes once to the resource. A valid lease must never be fenced off, and no write may
// follow one of a higher token.
func (p *process) fencedWrite(lease *leasehold.Lease) {
	w := p.w
	if p.crashed.Load() {
		return
	}
	err := w.fence.Check(lease.Token())
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stats.Writes++
	if err == nil {
		if lease.Token() < w.written {
			w.violateLocked("%s: a write of token %d passed after one of token %d", p.name, lease.Token(), w.written)
		}
		w.written = max(w.written, lease.Token())
		return
	}
	w.stats.Fenced++
	w.mark("a write fenced off")
	// a client that erases the token defeats fencing
	if !p.excused && p.lease == lease && !w.tokenErased && !w.cfg.Ages.wrong() {
		w.violateLocked("%s: the valid lease with token %d was fenced off by token %d, although its clocks ran", p.name,
			lease.Token(), w.fence.Token())
	}
}

// checkWrite checks every change of the object. The caller holds store.mu. The writer is nil for a
// foreign client.
func (w *world) checkWrite(writer *process, r request, old, now leasehold.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lastWriter = writer
	if writer != nil && now.Token > old.Token {
		writer.client.begins(now.Token)
	}
	if writer != nil {
		w.checkAbandoned(writer, r, old, now)
		w.checkOwner(writer, old, now)
		w.checkTakeover(writer, r, old, now)
	}
	switch {
	case now.Token < old.Token && !w.tokenErased:
		w.violateLocked("%s lowered the token from %d to %d", writer.label(), old.Token, now.Token)
	case now.Token > old.Token+1 && !w.tokenErased:
		w.violateLocked("%s raised the token from %d to %d, not by one", writer.label(), old.Token, now.Token)
	case writer != nil && now.Token == old.Token && now.Token > 0 && old.Released() && !now.Released():
		w.violateLocked("%s revived the released token %d", writer.label(), now.Token)
	case writer != nil && old.ObjectID != "" && now.ObjectID != old.ObjectID:
		w.violateLocked("%s changed the ID of the object", writer.label())
	case writer != nil && now.Token == old.Token && now.TermID != old.TermID:
		w.violateLocked("%s changed the ID of the term with token %d", writer.label(), now.Token)
	case writer != nil && now.Token > old.Token && (now.ObjectID == "" || now.TermID == "" || now.TermID == old.TermID):
		w.violateLocked("%s gave the term with token %d no ID of its own", writer.label(), now.Token)
	}
	if writer != nil && now.Released() && !old.Released() {
		w.checkRelease(writer, now.Token)
	}
	w.notifyLocked()
}

// checkTakeover wants no write while a foreign client holds the lock, and no takeover within a TTL
// after the writer last read another version, whatever ages the store reports, also not of a
// release of which the writer knows that it is old. A late write proves nothing. The caller holds
// w.mu.
func (w *world) checkTakeover(writer *process, r request, old, now leasehold.Record) {
	switch held := time.Now().Before(w.foreignUntil); {
	case writer.node == administrator:
		w.foreignUntil = time.Time{}
	case held && !w.cfg.Ages.wrong():
		w.violateLocked("%s wrote token %d while a foreign client held the lock", writer.label(), now.Token)
	}
	restored := w.store.restored && writer.client.knows(old.Token+1) && now.Token > old.Token
	switch {
	case !restored && w.wasOffered(old, now):
		return
	case writer.node == administrator, old.TTL <= 0, w.isLate(r):
		return
	case w.backedUp && w.cfg.HashETags && w.cfg.TornReads:
		return // a torn read may have shown it the ETag of the version that came back
	case restored:
		w.mark("a restored version taken")
	case now.Token != old.Token+1, old.Released(), old.Holder == writer.identity:
		return
	}
	since, ok := writer.client.otherVersionReadAt()
	if least := time.Duration(float64(old.TTL) * (1 + w.cfg.Drift)); ok && writer.clock.Now().Mono-since < least {
		w.violateLocked("%s took over from token %d after %v, not %v", writer.name, old.Token,
			writer.clock.Now().Mono-since, least)
	}
}

// checkRelease wants no process to release a term whose function still runs. An administrator may,
// and then the holder is excused. The caller holds w.mu.
func (w *world) checkRelease(writer *process, token uint64) {
	w.broken[token] = w.broken[token] || writer.node == administrator
	for _, p := range w.processes {
		if p.lease == nil || p.lease.Token() != token || p.crashed.Load() {
			continue
		}
		if p == writer && !w.calledRelease[token] {
			w.violateLocked("%s released token %d while its function ran", p.name, token)
		}
		w.markIf(writer.node == administrator, "a broken term")
		p.excused, p.resumedAt = true, time.Now()
	}
}

// checkRecovery wants a leader within a bound after the last fault, and no change of leadership
// from then on.
func (w *world) checkRecovery() {
	// The TTL of a write that landed late, a candidate's longest back-off, a rest after resigning,
	// and a request or two.
	settled := 4 * w.cfg.longest()
	time.Sleep(settled)
	calm := time.Now()
	first, token := w.currentLeader()
	if first == nil {
		w.violate("no leader %v after the last fault", settled)
	}
	time.Sleep(2 * w.cfg.longest())
	if second, again := w.currentLeader(); first != nil && !w.cfg.Ages.wrong() && (second != first || again != token) {
		w.violate("leadership changed without a cause: %s with token %d, then %s with token %d", first.label(), token,
			second.label(), again)
	} else if first != nil && again == token {
		w.checkCalm(first, calm)
		w.checkReader(token)
		w.checkWake(first)
	}
}

func (w *world) currentLeader() (p *process, token uint64) {
	for _, p := range w.onNodes() {
		for _, e := range p.electors {
			if e.IsLeader() {
				rec, _ := e.Leader()
				return p, rec.Token
			}
		}
	}
	return nil, 0
}

// checkCallbackPairs is called when all goroutines of the process have ended.
func (p *process) checkCallbackPairs() {
	for _, e := range p.electors {
		if e.started != e.stopped {
			p.w.violate("%s: OnStartedLeading was called %d times, OnStoppedLeading %d times", p.name,
				e.started, e.stopped)
		}
	}
}

// checkReleased wants the lock released when all electors have stopped.
func (w *world) checkReleased() {
	if rec := w.store.rec; w.store.exists && !rec.Released() && !w.abandonedAtEnd(rec) {
		w.violate("after all electors have stopped, the lock is held by %s with token %d", rec.Holder, rec.Token)
	}
}
