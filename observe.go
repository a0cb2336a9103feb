package leasehold

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/forecast"
	"github.com/leasehold-go/leasehold/internal/storeapi"
	"github.com/leasehold-go/leasehold/internal/wire"
)

// version is one version of the lock object, or its absence, as this process knows it.
type version struct {
	exists     bool
	etag       string
	rec        Record
	age        time.Duration // at readAfter it was at least this old
	readBefore time.Duration // monotonic time before the request that showed it
	readAfter  time.Duration // and after it
	free       bool          // its holder has signed that it may be replaced
}

func (v *version) same(w *version) bool { return v.exists == w.exists && v.etag == w.etag }

// memory is what this process knows of the lock object from its own requests.
type memory struct {
	mu        sync.Mutex        // guards what follows; never held over I/O
	last      *version          // the last version read or written; nil if unknown
	refused   bool              // the store has refused to replace last, so it is outdated
	renewals  forecast.Renewals // of the holder
	refusals  *refusals         // since the object was last seen; nil: none
	announced Record            // by EventNewLeader, the last one
	sent      []Record          // the writes that this Lock owns: of each, what sameWrite compares
}

// read reads the lock object and remembers it. A read that fails changes nothing in memory.
func (r *register) read(ctx context.Context) (*version, error) {
	v, _, err := r.look(ctx)
	return v, err
}

// look is like read, and also returns the body.
func (r *register) look(ctx context.Context) (*version, []byte, error) {
	before := r.clock.Now().Mono
	obj, err := r.get(ctx)
	v := &version{readBefore: before, readAfter: r.clock.Now().Mono}
	switch {
	case errors.Is(err, ErrNotExist):
	case err != nil:
		return nil, nil, err
	default:
		v.exists, v.etag, v.age = true, obj.ETag, storeapi.CredibleAge(obj.Age)
		if last, _ := r.memory.latest(); last != nil && v.same(last) { // most polls
			v.rec = last.rec
		} else if err := v.rec.UnmarshalJSON(obj.Body); err != nil {
			err = wire.Advised(r.key, err)
			r.failure.Store(&err)
			return nil, nil, err
		}
		v.rec.Key = r.key
	}
	r.remember(ctx, v)
	r.succeeded(v.readAfter)
	return v, obj.Body, nil
}

// remember keeps v as the last version, and announces a new term.
func (r *register) remember(ctx context.Context, v *version) {
	r.tokens.saw(v.rec)
	r.existed.CompareAndSwap(false, v.exists)
	if r.tokens.revived(v.rec) {
		v.age = 0 // the store reports when it was first written, not when it came back
	}
	if r.memory.add(v, 2*max(v.rec.TTL, r.poll)) {
		r.emit(ctx, Event{Kind: EventNewLeader, Token: v.rec.Token, Holder: v.rec.Holder})
	}
}

// add keeps v as the last version, sets its age, and reports whether it shows a new term. The age
// is the time since the reply that first showed v, by this process's own monotonic clock. If the
// user trusts the store's clock, the age in that same reply is added, but no more than the time
// since this process last saw another version. A version that was out of sight for longer than
// limit is seen for the first time: others may have had the lock, and this version may have been
// restored. Where an ETag is a hash of the body, that has the ETag that it had.
func (m *memory) add(v *version, limit time.Duration) (newTerm bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if v.exists {
		m.refusals = nil
	}
	last := m.last
	switch {
	case last == nil:
		m.renewals.Saw(seen(v, v.readBefore)) // when it was written is not known, which the first write needs not
	case v.exists && v.same(last) && v.readBefore-last.readAfter <= limit:
		v.age = max(last.age+v.readAfter-last.readAfter, 0)
		v.readBefore = max(v.readBefore, last.readBefore)
	default:
		v.age = min(v.age, max(v.readAfter-last.readBefore, 0))
		overtaken := v.readBefore < last.readAfter && v.rec.Token < last.rec.Token
		if v.readBefore < last.readBefore || overtaken { // a late answer
			return false
		}
		m.renewals.Saw(seen(v, last.readBefore))
	}
	m.last, m.refused = v, false
	if i := m.sentAs(v.rec); i > 0 { // what was sent before it cannot land any more
		m.sent = slices.Delete(m.sent, 0, i)
	}
	if was := m.announced; !v.exists || v.rec.Released() || sameTerm(v.rec, was) ||
		v.rec.Token < was.Token && v.rec.ObjectID == was.ObjectID && was.ObjectID != "" { // a restored version
		return false
	}
	m.announced = v.rec
	m.announced.Payload = nil // not needed, and may be large
	return true
}

// seen describes v for the forecast of renewals. v landed after the monotonic time earliest.
func seen(v *version, earliest time.Duration) forecast.Write {
	return forecast.Write{
		Token: v.rec.Token, First: v.rec.RenewedAt.Equal(v.rec.AcquiredAt),
		Released: v.rec.Released(), At: v.rec.RenewedAt,
		Earliest: earliest, Latest: v.readAfter,
	}
}

// disprove notes that the store has refused to replace v.
func (m *memory) disprove(v *version) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refused = m.refused || m.last.same(v)
}

// refusals are creates that the store has refused in a row, although it said that the object was
// missing.
type refusals struct {
	first, last time.Duration // monotonic times
	err         error         // of the last one
}

// createRefused notes a refusal at the monotonic time at. After a pause without one, a new row
// begins.
func (m *memory) createRefused(at, pause time.Duration, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refusals == nil || at-m.refusals.last > pause {
		m.refusals = &refusals{first: at}
	}
	m.refusals.last, m.refusals.err = at, err
}

// creating returns how long to wait for another client's unfinished create of a missing object:
// until pause has passed since the last refusal. A refused create costs three requests, and a
// wake-up must not cost more than its read.
func (m *memory) creating(now, pause time.Duration) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refusals == nil {
		return 0
	}
	return max(m.refusals.last+pause-now, 0)
}

// refusesFor returns the last refusal if the row has lasted for limit, which is longer than any
// create takes, else nil.
func (m *memory) refusesFor(limit time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refusals == nil || m.refusals.last-m.refusals.first < limit {
		return nil
	}
	return m.refusals.err
}

// latest returns the last version, and whether it is outdated.
func (m *memory) latest() (v *version, refused bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last, m.refused
}

// maxSent bounds the writes that a Lock remembers. Only a long outage has time for as many. A
// version that was forgotten is waited out like another client's.
const maxSent = 32

// sends notes a write of this Lock before it is sent.
func (m *memory) sends(rec Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.sent) == maxSent { // the first two: what was there before, and what landed if only replies are lost
		m.sent = slices.Delete(m.sent, 2, maxSent/2)
	}
	m.sent = append(m.sent, Record{Nonce: rec.Nonce, Token: rec.Token, ExpiresAt: rec.ExpiresAt})
}

// owns reports whether this very Lock remembers having sent rec. No name and no counter proves
// that, because a machine may be copied with its memory. The two copies share what was sent before
// the copy, and nothing that either sends later.
func (m *memory) owns(rec Record) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sentAs(rec) >= 0
}

// sentAs is the index of rec among the writes sent, or -1. The caller holds m.mu.
func (m *memory) sentAs(rec Record) int {
	return slices.IndexFunc(m.sent, func(sent Record) bool { return sameWrite(sent, rec) })
}

// ownLatest returns the last version if this Lock wrote it, so a warm acquisition is one request.
func (r *register) ownLatest() *version {
	if v, refused := r.memory.latest(); v != nil && v.exists && !refused && r.memory.owns(v.rec) &&
		!r.tokens.revived(v.rec) {
		return v
	}
	return nil
}

// observed returns what decide needs to know about v.
func (r *register) observed(v *version) observation {
	now, seen := r.clock.Now(), r.tokens.soFar()
	revived := seen.revived(v.rec)
	return observation{
		exists: v.exists, rec: v.rec, age: v.age + now.Mono - v.readAfter, wall: now.Time(),
		creating: r.memory.creating(now.Mono, min(r.poll, r.ttl)*9/10), // no longer than any wait for the next poll
		revived:  revived, later: seen.latest,
		handedOver:  v.free && !revived,
		writtenByUs: r.memory.owns(v.rec) && !revived,
		sameHolder:  v.rec.Holder == r.holder && byLock(v.rec) && !revived && !r.process.Wrote(wire.Record(v.rec)),
	}
}

// untilNextRead returns how long a candidate waits before its next read: about a poll interval.
func (r *register) untilNextRead() time.Duration {
	random, now := r.clock.Rand(), r.clock.Now().Mono
	r.memory.mu.Lock()
	defer r.memory.mu.Unlock()
	if wait := r.memory.renewals.Wait(now, r.poll, random); wait > 0 {
		return wait
	}
	return clock.Jitter(r.clock, r.poll)
}

// sign gives rec a fresh nonce before it is sent. After that its token and expiry must not change.
func (r *register) sign(rec *Record) {
	rec.Nonce = r.process.NewNonce()
	r.memory.sends(*rec)
}

// sameWrite reports whether found, which is in the store, is the write sent.
func sameWrite(sent, found Record) bool { return wire.SameWrite(wire.Record(sent), wire.Record(found)) }
