package locktable

import (
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/clock"
)

// failed notes that a request has failed, and sets the pause until the next.
func (c *committer) failed(writing bool, err error) {
	if c.noteTrouble(writing, err) {
		c.log.Warn("the table cannot be read or written, will retry", "table", c.key, "err", err)
	}
	if !errors.Is(err, ErrFull) { // see screen
		c.failTries(err)
	}
	c.outrun = false
	c.endIfStuck(!writing, err)
	if c.leftAt != never && errors.Is(err, leasehold.ErrPermanent) && (writing || c.mustRead) {
		c.refused = true
	}
	failures := &c.unread
	if writing {
		failures = &c.unwritten
	}
	pause := clock.Backoff(c.clock, failures, min(c.poll/4, time.Second), min(max(c.ttl, c.poll), 30*time.Second))
	if !errors.Is(err, leasehold.ErrPermanent) { // it may pass at any time
		pause = min(pause, c.poll)
	}
	c.pauseTill = c.clock.Now().Mono + pause
}

// endIfStuck ends the term of a member that has been in the way for two TTLs. The heartbeat would
// continue, and entries that cannot be dropped would block the others for ever.
func (c *committer) endIfStuck(unread bool, err error) {
	now := c.clock.Now().Mono
	if errors.Is(err, leasehold.ErrCorruptRecord) || errors.Is(err, ErrFull) { // no other member could repair it
		c.undropped = never
		return
	}
	if c.undropped == never && c.standsInTheWay(unread) {
		c.undropped = now
	}
	stuck := c.undropped != never && now-c.undropped > c.patience()
	if stuck {
		c.log.Error("the member ends its term: the table is unreachable", "table", c.key,
			"unreachable_for", (now - c.undropped).Round(time.Second), "err", err)
		c.undropped = never
		c.mu.Lock()
		c.tm.gaveUp = fmt.Errorf("for two TTLs the table could not be written or read: %w", err)
		c.mu.Unlock()
		c.self.Resign()
	}
}

// noteTrouble notes why a request has failed, and reports whether it is the first in a row.
func (w *want) noteTrouble(writing bool, err error) (first bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if first = w.trouble.err == nil; first {
		w.trouble.since = w.clock.Now().Mono
	}
	w.trouble.err, w.trouble.writing = err, w.trouble.writing || writing
	return first
}

// failTries ends tries with the reason why they would have to wait.
func (w *want) failTries(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.requests {
		if r.state == waiting && r.try {
			w.giveBack(r, w.named(err))
		}
	}
}

// standsInTheWay reports whether the table, as it was seen last, has an entry that this member does
// not want any more; or, if unread, a request of this member that may have been granted since.
func (c *committer) standsInTheWay(unread bool) bool {
	if c.seen == nil {
		return false
	}
	n, _ := c.seen.tab.Find(c.tm.named)
	rows := c.seen.tab.Requests(n)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.requests {
		if unread && r.state == waiting && r.asked {
			return true
		}
	}
	return len(c.unwanted(rows)) > 0
}

// well notes that the table can be read, or that nothing is left to be written.
func (w *want) well(written bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if written || !w.trouble.writing {
		w.trouble = trouble{}
	}
}
