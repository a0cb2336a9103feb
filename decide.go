package leasehold

import (
	"time"

	"github.com/leasehold-go/leasehold/internal/wire"
)

// observation is what a candidate knows of the lock object at one moment.
type observation struct {
	exists       bool
	rec          Record
	age          time.Duration // this version has existed for at least this long, by the candidate's own monotonic clock
	wall         time.Time     // by this machine's wall clock, for records without a TTL
	writtenByUs  bool          // this Lock wrote it, and has no live term
	sameIdentity bool          // the record's holder has this candidate's identity
}

// verdict says whether this candidate may take the lock now.
type verdict struct {
	free   bool
	reason string
	wait   time.Duration // if not free: how long until it is, unless the object changes
}

// decide is the whole takeover rule, without I/O. A corrupt record never gets here.
func (o *options) decide(s observation) verdict {
	r := s.rec
	switch {
	case !s.exists:
		return verdict{free: true, reason: "never taken"}
	case r.Released() && s.writtenByUs && o.fair && s.age < 2*o.poll:
		return verdict{reason: "released by this lock, so others may look first", wait: 2*o.poll - s.age}
	case r.Released():
		return verdict{free: true, reason: "released"}
	case s.writtenByUs:
		return verdict{free: true, reason: "left over from an earlier write of this lock"}
	case s.sameIdentity && o.reclaim:
		return verdict{free: true, reason: "reclaimed by its own identity"}
	case r.TTL > 0:
		if wait := o.withDrift(r.TTL) - s.age; wait > 0 {
			return verdict{reason: "held", wait: wait}
		}
		return verdict{free: true, reason: "expired"}
	}
	// A foreign client's record without a TTL has only its wall-clock time.
	if wait := r.ExpiresAt.Add(o.skew).Sub(s.wall); wait >= 0 {
		return verdict{reason: "held by a client that writes no ttl", wait: min(wait, wire.MaxTTL) + 1} // Sub saturates in far years
	}
	return verdict{free: true, reason: "expired by the wall clock, because its record has no ttl"}
}

// withDrift is how long this machine must count to be sure that ttl has passed on the holder's clock, which may run slower.
func (o *options) withDrift(ttl time.Duration) time.Duration {
	return time.Duration(float64(ttl) * (1 + o.drift))
}
