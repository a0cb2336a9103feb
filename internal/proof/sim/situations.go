package sim

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold"
)

// occurred holds the situations that a world has reached.
type occurred []atomic.Bool

func (o occurred) mark(situation int) {
	if !o[situation].Load() {
		o[situation].Store(true)
	}
}

func (o occurred) markIf(is bool, situation int) {
	if is {
		o.mark(situation)
	}
}

func (o occurred) reached() Reached {
	in := make(Reached, len(o))
	for i := range o {
		if o[i].Load() {
			in[i] = 1
		}
	}
	return in
}

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
		return func(got reply) { w.markIf(got.err == nil && !got.page && got.version != w.etag.Load(), readOvertaken) }
	}
	c.writing.Add(1)
	return func(reply) {
		c.writing.Add(-1)
		r.fate.answered.Store(true)
		if waiter, ok := ctx.Value(waiterKey{}).(context.Context); ok && waiter.Err() != nil {
			r.fate.unwanted.Store(true)
			w.markIf(r.fate.acquiring.Load(), waiterGranted)
		}
	}
}

// readTorn notes a torn read of the lock object. The caller holds store.mu.
func (w *world) readTorn() {
	w.tornETag = w.store.previousETag
	w.markIf(w.store.rec.Token > w.store.previousToken, tornAcquisition)
}

// arrives notes a write of the lock object as it arrives. The caller holds store.mu.
func (w *world) arrives(r request) {
	if r.fate == nil {
		return
	}
	token := w.store.rec.Token
	w.markIf(token >= r.fate.token+2 && r.fate.answered.Load(), ghostTwoTerms)
	w.markIf(token > r.fate.token && r.fate.repetition, repeatAfterTerm)
	w.markIf(w.tornETag != "" && r.ifMatch == w.tornETag, tornVersionReplaced)
}

// refuses notes a write of the lock object that the server refuses. The caller holds store.mu.
func (w *world) refuses(sender *process, r request) {
	s := w.store
	if r.fate == nil || r.fate.repetition || !s.exists {
		return
	}
	if r.kind == "create" {
		w.markIf(s.writtenAt.After(r.fate.at), creationsMeet)
		return
	}
	var rec leasehold.Record
	if rec.UnmarshalJSON(r.body) != nil {
		return
	}
	w.mu.Lock()
	last, offered := w.lastWriter, w.versions[r.ifMatch]
	w.mu.Unlock()
	w.markIf(offered && rec.Token == r.fate.token+1, offerRefused)
	switch {
	case rec.Released():
		w.markIf(s.rec.Token > rec.Token, releaseFindsTerm)
		w.markIf(s.rec.Token > rec.Token && offered, releaseAfterOffer)
	case rec.Token == r.fate.token:
		w.markIf(last != nil && last.node == administrator, renewalFindsBreak)
	case rec.Token == r.fate.token+1:
		w.markIf(r.ifMatch == s.previousETag && last != sender && s.rec.Token == rec.Token &&
			s.writtenAt.After(r.fate.at), acquisitionsMeet)
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
	w.markIf(r.fate.answered.Load(), ghostLands)
	w.markIf(f.page, pageForWrite)
	switch {
	case now.Released():
		w.markIf(lost, releaseReplyLost)
		w.markIf(sender.client.releaseLost.Load() == now.Token, releaseRepeated)
	case now.Token > old.Token:
		w.landsAcquisition(sender, r, old, now)
		w.markIf(refused, acquisitionRefused)
	case now.Token > 0 && now.Token == old.Token:
		w.markIf(lost, renewalReplyLost)
		w.markIf(refused, renewalRefused)
	}
}

func (w *world) landsAcquisition(sender *process, r request, old, now leasehold.Record) {
	r.fate.acquiring.Store(true)
	w.markIf(r.fate.unwanted.Load(), waiterGranted)
	if old.Released() || old.Token == 0 {
		return
	}
	err := r.fate.fault.err
	w.markIf(errors.Is(err, err500) || errors.Is(err, err503), takeoverAnswered5xx)
	w.markIf(old.TTL > 0 && old.TTL != now.TTL, otherTTLTaken)
	w.markIf(sender.node == visitor, visitorOutlasts)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case old.Holder != now.Holder:
		for _, p := range w.nodes {
			w.markIf(p != nil && p != sender && p.outage.Load(), takeoverInOutage)
		}
	case w.tokenOwner[old.Token] == sender.name:
		w.mark(ownLeftover)
	case w.cfg.Copies:
		w.mark(copyTakesOver)
	default:
		w.mark(reclaimed)
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
	w.markIf(state == suspended && (overtaken || time.Since(written) > ttlOf(p.lease)), suspendedPastExpiry)
	w.markIf(state == paused && overtaken, pausedPastTakeover)
}

// leads reports whether a function of the process runs.
func (p *process) leads() bool {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	return p.lease != nil
}
