package leasehold

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/internal/handle"
	"github.com/leasehold-go/leasehold/internal/handover"
)

// A holder that has stopped can pass the lock on instead of releasing it. It signs that its last
// version may be replaced, and a candidate replaces that version by an acquisition like any other.
// So no other candidate can take the lock in between, and the chosen one gets it. The page
// https://github.com/leasehold-go/leasehold/blob/main/docs/protocol.md has the steps. Package
// leaderhttp carries the notes.

// handovers is what a register knows of notes.
type handovers struct {
	heir  atomic.Pointer[handover.PassOn] // each release offers the lock to it first; nil if there is none
	offer atomic.Pointer[handover.Note]   // to this process, not used yet; nil if there is none
}

// patience is how much longer a release takes, at most, because it offers the lock first.
func (r *register) patience() time.Duration {
	if r.heir.Load() == nil {
		return 0
	}
	return handover.Patience(r.ttl)
}

// passOn offers the lock to a candidate, and reports whether another term has begun. The caller has
// locked t.writing, and nothing acts under the term any more.
func (t *term) passOn(ctx context.Context) (taken bool) {
	pass := t.lock.heir.Load()
	if pass == nil {
		return false
	}
	n, ok := t.note()
	if !ok {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, t.lock.patience())
	defer cancel()
	sent, taken := (*pass)(ctx, t.token, n)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.offered = t.offered || sent
	return taken
}

// note signs that the last version of the term may be replaced. There is none while a write of
// unknown outcome may land: the offer would be in vain. The caller has locked t.writing as for
// passOn, or the term is released.
func (t *term) note() (n handover.Note, ok bool) {
	t.mu.Lock()
	v, settled := t.stored, len(t.unconfirmed) == 0
	t.mu.Unlock()
	body, err := v.rec.MarshalJSON()
	if !settled || err != nil {
		return handover.Note{}, false
	}
	return handover.Sign(t.lock.key, handle.Handle{Token: t.token, Secret: t.secret}, v.etag, body), true
}

// proves returns the version that may be replaced by n, or nil. Of what the last read of this
// process has shown, n must be signed by the term's own holder: what a peer says of another term
// proves nothing.
func (r *register) proves(n handover.Note) *version {
	last, _ := r.memory.latest()
	var rec Record
	if last == nil || !last.exists || n.ETag == "" || n.ETag == "*" || !n.SignedBy(r.key, last.rec.TermID) ||
		rec.UnmarshalJSON(n.Record) != nil || rec.TermID != last.rec.TermID || rec.Token != last.rec.Token ||
		rec.ObjectID != last.rec.ObjectID {
		return nil
	}
	rec.Key = r.key
	now := r.clock.Now().Mono
	return &version{exists: true, etag: n.ETag, rec: rec, readBefore: now, readAfter: now, free: true}
}

// takeOffer returns the version that was offered last, once, if its term is still the last one that
// was seen. keep is for a write over it that has failed, whatever the store knows of that: the next
// try begins with the offer again.
func (r *register) takeOffer() (v *version, keep func()) {
	if n := r.offer.Swap(nil); n != nil {
		return r.proves(*n), func() { r.offer.CompareAndSwap(nil, n) }
	}
	return nil, func() {}
}

func init() {
	handover.Offer = func(l *Lock, n handover.Note) bool {
		if l.proves(n) == nil || !l.bell.Queued() {
			return false
		}
		l.offer.Store(&n)
		l.bell.Ring()
		return true
	}
	handover.Heir = func(l *Lock, pass handover.PassOn) { l.heir.Store(&pass) }
	handover.Of = func(le *Lease) (handover.Note, bool) {
		le.t.mu.Lock()
		free := le.t.state == released && le.t.stored.rec.Released()
		le.t.mu.Unlock()
		if !free {
			return handover.Note{}, false
		}
		return le.t.note()
	}
	handover.Waits = func(l *Lock) bool { return l.bell.Queued() }
	handover.Wrote = func(l *Lock, r Record) bool { return l.memory.owns(r) }
	handover.Resign = func(le *Lease) { le.t.endContext(fmt.Errorf("%w: resigned", ErrReleased)) }
}
