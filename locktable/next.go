package locktable

import (
	"math"
	"time"
)

// snapshot is all that decides what the committer does next. Times are monotonic.
type snapshot struct {
	valid     bool // the member's own lease is
	busy      bool // a function runs under a lease of this term
	leaving   bool // the term is to end
	joined    bool // a write was sent that names the term
	refused   bool // leaving was refused for good
	parted    bool // the read before leaving was tried
	current   bool // seen is the newest version, as far as this process knows
	differs   bool // seen from what this process wants
	handsOver bool // by something that others wait for
	mustWrite bool // a write must follow even if nothing differs
	outdated  bool // a try waits for a newer version than seen
	detaching bool // the member is to be handed over

	leaveBy   time.Duration // when a member without functions stops trying to leave
	pauseTill time.Duration // after a failure, or a race that was lost
	readAt    time.Duration // when the table is to be read again
	yieldTill time.Duration // until when others may write first
	lookAt    time.Duration // when the watcher has something to do
}

// action is one of the five things that a committer can do.
type action struct {
	do    verb
	until time.Duration // of rest; a ring ends it earlier
}

type verb uint8

const (
	rest   verb = iota
	read        // the table
	write       // what differs, or nothing but a new revision
	end         // the term needs nothing more
	detach      // hand the member over, as the table has it
)

// forever is a monotonic time after any other, and never one before.
const (
	forever = time.Duration(math.MaxInt64)
	never   = time.Duration(math.MinInt64)
)

// next is the whole policy of the committer, without I/O. The first row that fits decides; TestNext
// has a line for each.
func next(s snapshot, now time.Duration) action {
	idle := s.leaving && !s.busy // all that is left is to leave
	resume := s.pauseTill
	if idle {
		resume = min(resume, s.leaveBy)
	}
	switch {
	case !s.valid && s.busy:
		return action{rest, forever} // the end of a function rings
	case !s.valid:
		return action{do: end} // nothing can be written any more
	case idle && (!s.joined || s.refused || now >= s.leaveBy):
		return action{do: end} // the release of the member's lock releases everything
	case now < resume:
		return action{rest, resume}
	case !s.current:
		return action{do: read}
	case s.leaving && !s.parted:
		return action{do: read} // others have often written since, and a read costs less than a refusal
	case !s.leaving && now >= s.readAt:
		return action{do: read}
	case s.mustWrite, s.differs && (s.leaving || s.handsOver || now >= s.yieldTill):
		return action{do: write}
	case s.outdated:
		return action{do: read} // after the writes, because such calls may be made all the time
	case s.differs:
		return action{rest, min(s.yieldTill, s.readAt)}
	case s.detaching && !s.leaving:
		return action{do: detach} // nothing of this process is under way
	case idle:
		return action{do: end}
	case s.leaving:
		return action{rest, forever} // the end of a function rings
	}
	return action{rest, min(s.readAt, s.lookAt)}
}
