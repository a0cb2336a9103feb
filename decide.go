package leasehold

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/leasehold-go/leasehold/internal/handle"
	"github.com/leasehold-go/leasehold/internal/wire"
)

// asker is the role in which a version is replaced that the asker does not hold.
type asker uint8

const (
	candidate asker = iota // for a new term
	undoer                 // the writer of a version with which no term has begun: to release it
	heir                   // by the handle of its term: to continue it
	breaker                // by force, a term of this token
)

// observation is what an asker knows of the lock object at one moment.
type observation struct {
	asks   asker
	handle handle.Handle // of an heir; of a breaker, its token alone
	exists bool
	rec    Record
	// this version has existed for at least this long, by the candidate's own monotonic clock
	age         time.Duration
	wall        time.Time     // by this machine's wall clock, for records without a TTL
	creating    time.Duration // if the object is missing: how long to wait for another's unfinished create
	revived     bool          // it is an old version that was restored
	later       Record        // the latest that was seen before a revived version: its term may continue
	handedOver  bool          // its holder has signed that it may be replaced; it was not restored
	writtenByUs bool          // this Lock wrote this version and has no live term; it was not restored
	// the holder has this candidate's name, but is another process; the version was not restored
	sameHolder bool
}

// verdict says whether a version may be replaced now.
type verdict struct {
	free    bool
	reason  string
	wait    time.Duration // if not free for a candidate: how long until it is, unless the object changes
	revived bool          // if not free: the version is old, and no holder's any more
	// if not free: how long its holder has not renewed, by wall clocks, which prove nothing
	silent time.Duration
	gone   bool  // if not free: silent is impossible for a running holder
	lost   error // if not free for an heir: why the term cannot continue
}

// decide is the one rule by which a version is replaced that the writer does not hold, without I/O.
// A corrupt record never gets here.
func (o *options) decide(s observation) verdict {
	r := s.rec
	switch s.asks {
	case undoer:
		return verdict{free: s.exists && s.writtenByUs && !r.Released(), reason: "left over"}
	case heir:
		return o.mayResume(s)
	case breaker: // tokens end with the highest: breaking a released one, too, starts them again
		return verdict{free: r.Token == s.handle.Token && (!r.Released() || r.Token == MaxToken), reason: "broken"}
	}
	switch {
	case !s.exists && s.creating > 0:
		return verdict{reason: "being created", wait: s.creating}
	case !s.exists:
		return verdict{free: true, reason: "never taken"}
	case r.Released() && !s.revived:
		return verdict{free: true, reason: "released"}
	case s.handedOver:
		return verdict{free: true, reason: "handed over"}
	case s.writtenByUs:
		return verdict{free: true, reason: "this process's own term, not released"}
	case s.sameHolder && o.reclaim:
		return verdict{free: true, reason: "reclaimed by the holder of the same name"}
	}
	wait := o.lasts(r, s)
	if s.revived { // a later holder may have renewed until this version came back, which was before its age began
		s.later.TTL = cmp.Or(s.later.TTL, r.TTL, o.ttl)
		wait = max(wait, o.lasts(s.later, s))
	}
	if wait > 0 {
		silent, gone := o.silence(r, s.wall)
		return verdict{reason: "held", wait: wait, revived: s.revived, silent: silent, gone: gone}
	}
	return verdict{free: true, reason: "expired"}
}

// silence is how long ago r was written, by the wall clocks of its writer and of this machine, and
// whether its writer seems to have crashed. Wall clocks may be wrong, so this never decides which
// process leads. It decides only what a HeldError says, and whether TryAcquire watches the lock.
func (o *options) silence(r Record, wall time.Time) (silent time.Duration, gone bool) {
	if !byLock(r) { // renewed_at may be of an earlier term
		return wall.Sub(r.ExpiresAt), wall.Sub(r.ExpiresAt) > o.skew
	}
	silent = wall.Sub(r.RenewedAt)
	return silent, silent < -o.skew || silent > r.TTL+o.skew
}

// mayResume is decide for the heir of a term. A foreign client that has only changed expires_at,
// and has kept the members that it does not know, is honoured as by a candidate.
func (o *options) mayResume(s observation) verdict {
	r, token := s.rec, s.handle.Token
	lost := func(format string, args ...any) verdict {
		return verdict{lost: fmt.Errorf("%w (token %d): "+format, append([]any{ErrLost, token}, args...)...)}
	}
	switch {
	case !s.exists:
		return lost("%w, or the handle is of another lock", errDeleted)
	case r.Token > token && r.Released():
		return lost("%w by %q with token %d, and released since", errTakenOver, r.Holder, r.Token)
	case r.Token > token:
		return lost("%w by %q with token %d", errTakenOver, r.Holder, r.Token)
	case r.Token < token:
		return lost("the lock has had %d terms: the handle is of another lock, or the object was made again", r.Token)
	case !handle.IsHash(r.TermID):
		return lost("the client of %q has given this term no secret, so it cannot be resumed", r.Holder)
	case r.TermID != handle.TermID(r.Key, s.handle.Secret):
		return lost("the handle does not have the secret of this term: it is of another lock, or the object was " +
			"made again")
	case r.Released():
		return verdict{lost: fmt.Errorf("%w (token %d)", ErrReleased, token)}
	case s.revived:
		return lost("%w by a later term: an old version of the object has come back", errTakenOver)
	}
	wait := o.foreign(r, s)
	return verdict{free: wait <= 0, reason: "resumed", wait: wait}
}

// lasts is how long the term of r may still last, if it was renewed until the age of s began.
func (o *options) lasts(r Record, s observation) time.Duration {
	return max(o.withDrift(r.TTL)-s.age, o.foreign(r, s))
}

// foreign is how long the term of a client that means expires_at itself may still last. It is not
// positive for the record of a Lock.
func (o *options) foreign(r Record, s observation) time.Duration {
	wall := r.ExpiresAt.Add(o.skew).Sub(s.wall)
	if byLock(r) || wall < 0 {
		return math.MinInt64
	}
	return min(wall, wire.MaxTTL) + 1 // Sub saturates in far years
}

// byLock reports whether expires_at is what a Lock writes together with the other members. A
// foreign client knows only expires_at and token. It may drop the other members, or keep them as it
// has read them, the ttl and the holder of an earlier term among them.
func byLock(r Record) bool {
	return r.TTL > 0 && r.ExpiresAt.Sub(r.RenewedAt.Add(r.TTL)).Abs() < time.Millisecond // rounded in the record
}

// withDrift is how long this machine must count to be sure that ttl has passed on the holder's
// clock, which may run slower.
func (o *options) withDrift(ttl time.Duration) time.Duration {
	return time.Duration(float64(ttl) * (1 + o.drift))
}
