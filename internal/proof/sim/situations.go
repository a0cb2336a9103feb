package sim

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold"
)

// fate is what becomes of one request of a process.
type fate struct {
	at         time.Time     // when it was sent
	token      uint64        // that the object had then
	fault      *networkFault // that it meets
	answered   atomic.Bool   // its sender does not wait for the reply any more
	acquiring  atomic.Bool   // it has landed as an acquisition
	unwanted   atomic.Bool   // its caller has ceased to wait for the lock
	repetition bool          // by the network
}

// again is the request as the network repeats it.
func (r request) again() request {
	r.fate = &fate{at: r.fate.at, token: r.fate.token, fault: &networkFault{}, repetition: true}
	return r
}

// waiterKey is the key of a value in the contexts of those who wait for the lock: their own
// context.
type waiterKey struct{}

// sends notes a request. It returns what is noted when the sender has its reply, or has ceased to
// wait for it.
func (c *client) sends(ctx context.Context, r *request, f *networkFault) (answered func(reply)) {
	w := c.p.w
	r.fate = &fate{at: time.Now(), token: w.token.Load(), fault: f}
	if !r.writes() {
		if r.kind != "get" {
			return func(reply) { r.fate.answered.Store(true) }
		}
		return func(got reply) {
			w.markIf(got.err == nil && !got.page && got.version != w.etag.Load(), "a read overtaken")
		}
	}
	c.writing.Add(1)
	return func(reply) {
		c.writing.Add(-1)
		r.fate.answered.Store(true)
		if waiter, ok := ctx.Value(waiterKey{}).(context.Context); ok && waiter.Err() != nil {
			r.fate.unwanted.Store(true)
			w.markIf(r.fate.acquiring.Load(), "a cancelled waiter granted")
		}
	}
}

// readTorn notes a torn read of the lock object. The caller holds store.mu.
func (w *world) readTorn() {
	w.tornETag = w.store.previousETag
	w.markIf(w.store.rec.Token > w.store.previousToken, "a torn read at an acquisition")
}

// arrives notes a write of the lock object as it arrives. The caller holds store.mu.
func (w *world) arrives(r request) {
	if r.fate == nil {
		return
	}
	token := w.store.rec.Token
	w.markIf(token >= r.fate.token+2 && r.fate.answered.Load(), "a ghost after two terms")
	w.markIf(token > r.fate.token && r.fate.repetition, "a write repeated in another term")
	w.markIf(w.tornETag != "" && r.ifMatch == w.tornETag, "a write by a torn read")
}

// refuses notes a write of the lock object that the server refuses. The caller holds store.mu.
func (w *world) refuses(sender *process, r request) {
	s := w.store
	if r.fate == nil || r.fate.repetition || !s.exists {
		return
	}
	if r.kind == "create" {
		w.markIf(s.writtenAt.After(r.fate.at), "two candidates create at once")
		return
	}
	var rec leasehold.Record
	if rec.UnmarshalJSON(r.body) != nil {
		return
	}
	w.mu.Lock()
	last, offered := w.lastWriter, w.versions[r.ifMatch]
	w.mu.Unlock()
	w.markIf(offered && rec.Token == r.fate.token+1, "an offer refused")
	switch {
	case rec.Released():
		w.markIf(s.rec.Token > rec.Token, "a release after a takeover")
		w.markIf(s.rec.Token > rec.Token && offered, "a release after a taken offer")
	case rec.Token == r.fate.token:
		w.markIf(last != nil && last.node == administrator, "a renewal after a break")
	case rec.Token == r.fate.token+1:
		w.markIf(r.ifMatch == s.previousETag && last != sender && s.rec.Token == rec.Token &&
			s.writtenAt.After(r.fate.at), "two candidates write at once")
	}
}

// lands notes a write of the lock object that has landed. The caller holds store.mu.
func (w *world) lands(sender *process, r request, old, now leasehold.Record) {
	w.token.Store(now.Token)
	w.etag.Store(w.store.etag)
	if r.fate == nil || sender == nil {
		return
	}
	f := r.fate.fault
	lost := f.dropReply || f.err != nil
	refused := errors.Is(f.err, leasehold.ErrPreconditionFailed) || errors.Is(f.err, leasehold.ErrNotExist) ||
		errors.Is(f.err, err409)
	w.markIf(r.fate.answered.Load(), "a ghost lands")
	w.markIf(f.page, "a page for a write that landed")
	switch {
	case now.Released():
		w.markIf(lost, "a release without a reply")
		w.markIf(sender.client.releaseLost.Load() == now.Token, "a release repeated")
	case now.Token > old.Token:
		w.landsAcquisition(sender, r, old, now)
		w.markIf(refused, "an own acquisition refused")
	case now.Token > 0 && now.Token == old.Token:
		w.markIf(lost, "a renewal without a reply")
		w.markIf(refused, "an own renewal refused")
	}
}

func (w *world) landsAcquisition(sender *process, r request, old, now leasehold.Record) {
	r.fate.acquiring.Store(true)
	w.markIf(r.fate.unwanted.Load(), "a cancelled waiter granted")
	if old.Released() || old.Token == 0 {
		return
	}
	err := r.fate.fault.err
	w.markIf(errors.Is(err, err500) || errors.Is(err, err503), "a takeover answered 5xx")
	w.markIf(old.TTL > 0 && old.TTL != now.TTL, "a takeover from another TTL")
	w.markIf(sender.node == visitor, "a visitor outlasts a holder that is gone")
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case old.Holder != now.Holder:
		for _, p := range w.nodes {
			w.markIf(p != nil && p != sender && p.outage.Load(), "a takeover during a 503")
		}
	case w.tokenOwner[old.Token] == sender.name:
		w.mark("an own leftover")
	case w.cfg.Copies:
		w.mark("a takeover from a copy")
	default:
		w.mark("a reclaim")
	}
}

// loses notes a request that never lands.
func (c *client) loses(r request) {
	var rec leasehold.Record
	if r.kind == "update" && rec.UnmarshalJSON(r.body) == nil && rec.Released() {
		c.releaseLost.Store(rec.Token)
	}
}

// wakesUp notes that a machine goes on, which was suspended or paused.
func (w *world) wakesUp(p *process, state machineState) {
	w.store.mu.Lock()
	token, written := w.store.rec.Token, w.store.writtenAt
	w.store.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.lease == nil {
		return
	}
	overtaken := token > p.lease.Token()
	w.markIf(state == suspended && (overtaken || time.Since(written) > ttlOf(p.lease)), "a suspend across an expiry")
	w.markIf(state == paused && overtaken, "a holder returns after a takeover")
}

// leading returns the lease of the function that runs; nil if none does.
func (p *process) leading() *leasehold.Lease {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	return p.lease
}

func (p *process) leads() bool { return p.leading() != nil }
