package leasehold

import (
	"cmp"
	"time"

	"github.com/leasehold-go/leasehold/internal/wire"
)

// observation is what a candidate knows of the lock object at one moment.
type observation struct {
	exists bool
	rec    Record
	// this version has existed for at least this long, by the candidate's own monotonic clock
	age         time.Duration
	wall        time.Time     // by this machine's wall clock, for records without a TTL
	creating    time.Duration // if the object is missing: how long to wait for another's unfinished create
	revived     bool          // it is an old version that somebody has restored
	later       Record        // the latest that was seen before a version that is revived: its term may go on
	writtenByUs bool          // this Lock wrote this version and has no live term; nobody has restored it
	// the holder has this candidate's identity, but is another process; nobody has restored it
	sameIdentity bool
}

// verdict says whether this candidate may take the lock now.
type verdict struct {
	free    bool
	reason  string
	wait    time.Duration // if not free: how long until it is, unless the object changes
	revived bool          // if not free: the version is old, and nobody's any more
}

// decide is the whole takeover rule, without I/O. A corrupt record never gets here.
func (o *options) decide(s observation) verdict {
	r := s.rec
	switch {
	case !s.exists && s.creating > 0:
		return verdict{reason: "being created", wait: s.creating}
	case !s.exists:
		return verdict{free: true, reason: "never taken"}
	case r.Released() && !s.revived:
		return verdict{free: true, reason: "released"}
	case s.writtenByUs:
		return verdict{free: true, reason: "left over from an earlier write of this lock"}
	case s.sameIdentity && o.reclaim:
		return verdict{free: true, reason: "reclaimed by its own identity"}
	}
	wait := o.lasts(r, s)
	if s.revived { // a later holder may have renewed until this version came back, which was before its age began
		s.later.TTL = cmp.Or(s.later.TTL, r.TTL, o.ttl)
		wait = max(wait, o.lasts(s.later, s))
	}
	if wait > 0 {
		return verdict{reason: "held", wait: wait, revived: s.revived}
	}
	return verdict{free: true, reason: "expired"}
}

// lasts is how long the term of r may still last, if it was renewed until the age of s began.
func (o *options) lasts(r Record, s observation) time.Duration {
	wait := o.withDrift(r.TTL) - s.age
	if !byLock(r) { // such a client means the time itself
		if wall := r.ExpiresAt.Add(o.skew).Sub(s.wall); wall >= 0 {
			wait = max(wait, min(wall, wire.MaxTTL)+1) // Sub saturates in far years
		}
	}
	return wait
}

// byLock reports whether expires_at is what a Lock writes beside the other members. A foreign
// client knows only expires_at and token. It may drop the other members, or keep them as it has
// read them, the ttl and the holder of an earlier term among them.
func byLock(r Record) bool {
	return r.TTL > 0 && r.ExpiresAt.Sub(r.RenewedAt.Add(r.TTL)).Abs() < time.Millisecond // rounded in the record
}

// withDrift is how long this machine must count to be sure that ttl has passed on the holder's
// clock, which may run slower.
func (o *options) withDrift(ttl time.Duration) time.Duration {
	return time.Duration(float64(ttl) * (1 + o.drift))
}
