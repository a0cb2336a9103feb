package leasehold

import (
	"context"
	"errors"
	"time"
)

// An Event is one thing that happened to a [Lock]; [WithObserver] receives them. It is small enough to write metrics on.
type Event struct {
	Kind EventKind
	Key  string
	// Context is that of the call that caused the event: of TryAcquire, Acquire, Do, Run, Renew, Commit, Release, Inspect, Watch
	// or Break. It is nil for what a lease does by itself in the background.
	Context context.Context
	Token   uint64 // of the term in question; 0 for requests
	Holder  string // of the term in question

	// Op is what an EventRequest asked of the store: "get", "create", "update".
	Op string
	// Duration is what the request, acquisition or renewal took.
	Duration time.Duration
	// Remaining is, for EventRenewed, how much validity was left when the renewal landed.
	Remaining time.Duration
	// Err is why a request, renewal or release failed, or why a lease was lost.
	Err error
}

// EventKind says what happened.
type EventKind uint8

// The kinds of [Event].
const (
	EventRequest     EventKind = iota + 1 // one request to the store has ended; see Event.Outcome
	EventAcquired                         // this lock holds a new term
	EventRenewed                          // the term goes on
	EventRenewFailed                      // one try to renew has failed; another follows while the lease is valid
	EventLost                             // the term has ended against the holder's will
	EventReleased                         // the term was released or abandoned; Err says why its release has not come through
	EventNewLeader                        // a term not seen before, its own too
	EventOverrun                          // a guarded function still runs though its lease is lost and the safety margin over
)

var eventNames = [...]string{
	EventRequest: "request", EventAcquired: "acquired", EventRenewed: "renewed", EventRenewFailed: "renew_failed",
	EventLost: "lost", EventReleased: "released", EventNewLeader: "new_leader", EventOverrun: "overrun",
}

// String returns the kind as metrics and logs name it, such as "renew_failed".
func (k EventKind) String() string {
	if int(k) >= len(eventNames) || k == 0 {
		return "unknown"
	}
	return eventNames[k]
}

// Outcome names how a request or renewal ended: "ok", "not_exist", "precondition_failed", "permanent", "timeout", "error".
// For EventLost it names why: "expired", "taken_over", "deleted", "broken" (by an administrator) or "corrupt".
func (e Event) Outcome() string {
	switch {
	case e.Err == nil:
		return "ok"
	case errors.Is(e.Err, errRanOut):
		return "expired"
	case errors.Is(e.Err, errTakenOver):
		return "taken_over"
	case errors.Is(e.Err, errDeleted):
		return "deleted"
	case errors.Is(e.Err, errBroken):
		return "broken"
	case errors.Is(e.Err, errOverwritten):
		return "corrupt"
	case errors.Is(e.Err, ErrNotExist):
		return "not_exist"
	case errors.Is(e.Err, ErrPreconditionFailed):
		return "precondition_failed"
	case errors.Is(e.Err, ErrPermanent), errors.Is(e.Err, ErrUnsafeStore):
		return "permanent"
	case errors.Is(e.Err, context.DeadlineExceeded):
		return "timeout"
	}
	return "error"
}
