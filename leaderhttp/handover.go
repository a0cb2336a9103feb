package leaderhttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/handover"
)

// The errors of [Peer.HandOver].
var (
	// ErrNotLeading says that this process does not lead, or is already stepping down. Nothing has
	// changed.
	ErrNotLeading = errors.New("leaderhttp: this process does not lead")
	// ErrNotWaiting says that no such candidate waits at this process. This process keeps leading.
	ErrNotWaiting = errors.New("leaderhttp: no such candidate waits at this process")
	// ErrNotTaken says that the term has ended, and that the candidate was not seen to take the
	// lock. The text says whether the lock is released for all candidates, another candidate has
	// it, or the store could not be read.
	ErrNotTaken = errors.New("leaderhttp: the candidate was not seen to take the lock")
)

const (
	maxLooks = 3           // reads of the leader in one hand-over, however often it hears that the lock was taken
	comeBack = time.Second // for a candidate between two requests to come again
)

// The root sets these, and no user sees them.
var (
	offer  = handover.Offer.(func(*leasehold.Lock, handover.Note) bool)
	heir   = handover.Heir.(func(*leasehold.Lock, handover.PassOn))
	noteOf = handover.Of.(func(*leasehold.Lease) (handover.Note, bool))
	resign = handover.Resign.(func(*leasehold.Lease))
	waits  = handover.Waits.(func(*leasehold.Lock) bool)
	wrote  = handover.Wrote.(func(*leasehold.Lock, leasehold.Record) bool)
)

// HandOver passes the lock to the candidate with this holder name ([leasehold.WithHolder]), or to
// the first in line if holder is "". This process steps down, as [leasehold.Elector.Resign] does.
// No other candidate can take the lock in between. HandOver returns when the term has ended and
// OnStoppedLeading has returned.
//
// HandOver returns [ErrNotLeading], or [ErrNotWaiting] if no such candidate has waited at this
// process within a second. This process then keeps leading, if it led. It returns [ErrNotTaken] if
// the candidate has not taken the lock within a second, or a fifth of the TTL if that is shorter.
// The lock is then released for all candidates.
//
// If ctx ends first, HandOver returns ctx's error, and the hand-over continues. With the context of
// the term this is always the case, because that context ends first. Do not call HandOver with
// another context from a callback: it would wait for its caller.
func (p *Peer) HandOver(ctx context.Context, holder string) error {
	own, err := p.choose(ctx, holder)
	if err != nil {
		return err
	}
	resign(own.lease)
	select {
	case <-own.ended:
	case <-ctx.Done():
		return ctx.Err()
	}
	next, err := p.heirOf(ctx, own)
	if err == nil && holder != "" && next != holder {
		err = fmt.Errorf("%w: %q has it", ErrNotTaken, next)
	}
	return err
}

// choose notes that the candidate with this holder name is to get the lock. It waits a little for
// one that is between two requests.
func (p *Peer) choose(ctx context.Context, holder string) (*term, error) {
	limit := time.NewTimer(comeBack)
	defer limit.Stop()
	for {
		_, own, changed := p.state()
		leads := own.leads() // not under mu: it may inform an observer that the lease has run out
		p.mu.Lock()
		leads = leads && p.own == own && !own.passing
		now := time.Now()
		waits := slices.ContainsFunc(p.waiting, func(c *candidate) bool {
			return holder == "" && p.mayGet(c, now) || holder != "" && c.able && c.name == holder
		})
		if leads && waits {
			own.passing, own.chosen = true, holder
		}
		p.mu.Unlock()
		switch {
		case !leads:
			return nil, ErrNotLeading
		case waits:
			return own, nil
		}
		select {
		case <-changed:
		case <-limit.C:
			if holder == "" {
				return nil, fmt.Errorf("%w: there is none, or each one has failed to take an offer in the last %v",
					ErrNotWaiting, shunTime)
			}
			return nil, fmt.Errorf("%w: %q (check that it runs, has this name and reaches this process)",
				ErrNotWaiting, holder)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// heirOf returns the holder of the next term after own. It reads the record if no process has
// reported one. If the candidate has the note of the released version, its write may take some
// time.
func (p *Peer) heirOf(ctx context.Context, own *term) (string, error) {
	p.mu.Lock()
	known, told := own.heir, own.told
	p.mu.Unlock()
	if known != "" {
		return known, nil
	}
	patience := time.Duration(0)
	if told != "" && (own.chosen == "" || told == own.chosen) {
		patience = handover.Patience(own.rec.TTL)
	}
	for began := time.Now(); ; {
		rec, err := p.lock.Inspect(ctx)
		switch over := time.Since(began) >= patience; {
		case err == nil && own.precedes(rec) && !rec.Released():
			return rec.Holder, nil
		case !over && clock.System.Sleep(ctx, patience/10) == nil:
		case err != nil:
			return "", fmt.Errorf("%w: reading the lock failed: %w", ErrNotTaken, err)
		case rec.Released():
			return "", fmt.Errorf("%w: it is released for all candidates", ErrNotTaken)
		default:
			return "", fmt.Errorf("%w: its release has failed, so it is free when its TTL has passed",
				ErrNotTaken)
		}
	}
}

// succeeds reports whether t is a later term of the same object than the term of r.
func (t *term) succeeds(r leasehold.Record) bool {
	return t != nil && r.Token < t.rec.Token && r.ObjectID == t.rec.ObjectID
}

// precedes reports whether r is of a later term of the same object.
func (t *term) precedes(r leasehold.Record) bool {
	return r.Token > t.rec.Token && r.ObjectID == t.rec.ObjectID
}

// passOn is a handover.PassOn: it offers the lock to one candidate. Another one gets the offer only
// if that could not be sent.
func (p *Peer) passOn(ctx context.Context, token uint64, note handover.Note) (sent, taken bool) {
	_, own := p.known()
	if own == nil || own.rec.Token != token {
		return false, false
	}
	select {
	case <-own.taken: // a message that came too early
	default:
	}
	for ctx.Err() == nil {
		c := p.offerNext(own, &note)
		if c == nil {
			return sent, false
		}
		sent = true
		if p.confirm(ctx, own, c) {
			return true, true
		}
		select {
		case <-c.lost:
		default:
			p.shun(c)
			return true, false
		}
	}
	return sent, false
}

// offerNext gives the note to the next in line, and returns nil if the line is empty. It does so
// under mu, so that a candidate whose request ends at this moment has the note, or is not chosen.
func (p *Peer) offerNext(own *term, note *handover.Note) *candidate {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.sortWaiting(own.chosen, now)
	if len(p.waiting) == 0 {
		return nil
	}
	c := p.waiting[0]
	if named := own.chosen != "" && c.name == own.chosen; !c.able || !named && !p.mayGet(c, now) {
		return nil
	}
	p.waiting = slices.Delete(p.waiting, 0, 1)
	c.line <- answer{Over: true, Note: note}
	return c
}

// confirm waits for a message that the lock was taken, and reads whether that is so. It reads a few
// times at most, with pauses, because any process that can read the record may send the message.
func (p *Peer) confirm(ctx context.Context, own *term, c *candidate) bool {
	deadline, _ := ctx.Deadline()
	pause := time.Until(deadline) / (maxLooks + 1)
	for range maxLooks {
		select {
		case <-own.taken:
		case <-c.lost:
			return false
		case <-ctx.Done():
			return false
		}
		rec, err := p.lock.Inspect(ctx)
		if err == nil && own.precedes(rec) {
			p.mu.Lock()
			own.heir = rec.Holder
			p.mu.Unlock()
			p.saw(rec, false)
			return true
		}
		_ = clock.System.Sleep(ctx, pause)
	}
	return false
}

// serveTaken hears that the lock of this process was taken.
func (p *Peer) serveTaken(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	own := p.own
	p.mu.Unlock()
	if own == nil || p.asked(r) != p.name(own) {
		notThatTerm(w)
		return
	}
	select {
	case own.taken <- struct{}{}:
	default:
	}
	w.WriteHeader(http.StatusNoContent)
}

// take takes the lock if the leader of t has offered it, and reports that to the leader. It reports
// false if the candidate has to read the lock to find out how things are.
func (p *Peer) take(t *term, note *handover.Note) bool {
	if note == nil || !offer(p.lock, *note) {
		return false
	}
	limit := time.NewTimer(handover.Patience(t.rec.TTL))
	defer limit.Stop()
	select {
	case <-t.past.Done():
	case <-limit.C:
		return false
	case <-p.closing.Done():
		return true
	}
	var rec leasehold.Record
	released := rec.UnmarshalJSON(note.Record) == nil && rec.Released() // so the leader waits for no answer
	if last, own := p.known(); !released && (own != nil || last != nil && last.ours) {
		p.tellTaken(t)
	}
	return true
}

// tellTaken reports to the leader of t, once, that this process has taken the lock. If the message
// is lost, the leader waits in vain, and then tries to release what it no longer has.
func (p *Peer) tellTaken(t *term) {
	ctx, cancel := context.WithTimeout(p.closing, handover.Patience(t.rec.TTL))
	defer cancel()
	u := t.url.JoinPath(Path, "taken")
	u.RawQuery = p.name(t)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), http.NoBody)
	if err != nil {
		return
	}
	if res, err := p.client.Do(req); err == nil {
		_ = res.Body.Close()
	}
}
