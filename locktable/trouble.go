package locktable

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/tables"
)

// failed notes that a request has failed, and sets the pause until the next.
func (t *Table) failed(tm *term, writing bool, err error) {
	if t.noteTrouble(writing, err) {
		t.log.Warn("the table cannot be read or written, will retry", "table", t.key, "err", err)
	}
	t.failTries(err)
	tm.outrun = false
	t.endIfStuck(tm, !writing, err)
	if tm.leftAt != never && errors.Is(err, leasehold.ErrPermanent) && (writing || tm.mustRead) {
		tm.refused = true
	}
	failures := &tm.unread
	if writing {
		failures = &tm.unwritten
	}
	pause := t.backoff(failures)
	if !errors.Is(err, leasehold.ErrPermanent) { // it may pass at any time
		pause = min(pause, t.poll)
	}
	tm.pauseTill = t.clock.Now().Mono + pause
}

// endIfStuck ends the term of a member that has been in the way for two TTLs. The heartbeat would
// go on, and what cannot be dropped would block the others for ever.
func (t *Table) endIfStuck(tm *term, unread bool, err error) {
	now := t.clock.Now().Mono
	if tm.undropped == never && t.standsInTheWay(tm, unread) {
		tm.undropped = now
	}
	stuck := tm.undropped != never && now-tm.undropped > 2*max(t.ttl, t.poll)
	// which another member could not mend
	if stuck && !errors.Is(err, leasehold.ErrCorruptRecord) && !errors.Is(err, ErrFull) {
		tm.undropped = never
		t.log.Error("what this member has freed cannot be written, or what it was granted cannot be read, for two "+
			"TTLs: its term ends", "table", t.key, "err", err)
		t.mu.Lock()
		tm.gaveUp = fmt.Errorf("for two TTLs the table could not be written or read: %w", err)
		t.mu.Unlock()
		done, cancel := context.WithCancel(context.Background())
		cancel()
		_ = t.self.Resign(done)
	}
}

// noteTrouble notes why a request has failed, and reports whether it is the first in a row.
func (t *Table) noteTrouble(writing bool, err error) (first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if first = t.trouble.err == nil; first {
		t.trouble.since = t.clock.Now().Mono
	}
	t.trouble.err, t.trouble.writing = err, t.trouble.writing || writing
	return first
}

// failTries tells those who do not wait why they have to.
func (t *Table) failTries(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.requests {
		if r.state == waiting && r.try {
			t.giveBack(r, t.named(err))
		}
	}
}

// standsInTheWay reports whether the table, as it was seen last, holds something that this member
// does not want any more; or, if unread, something that it waits for and may have been granted
// since.
func (t *Table) standsInTheWay(tm *term, unread bool) bool {
	t.mu.Lock()
	seen, asked := t.seen, false
	for _, r := range t.requests {
		asked = asked || r.state == waiting && r.asked
	}
	t.mu.Unlock()
	if seen == nil {
		return false
	}
	if unread && asked {
		return true
	}
	n, _ := seen.tab.Find(tm.named)
	rows := seen.tab.Requests(n)
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(rows, func(row tables.Request) bool {
		r := t.mine(row)
		return r != nil && !t.wants(tm, r)
	})
}

// well notes that the table can be read, or that nothing is left to be written.
func (t *Table) well(written bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if written || !t.trouble.writing {
		t.trouble = trouble{}
	}
}
