package leasehold

import (
	"context"
	"errors"
	"time"
)

// An Event is one thing that happened to a [Lock]. The function of [WithObserver] receives events,
// for example to update metrics.
type Event struct {
	Kind   EventKind
	Key    string
	Token  uint64 // of the term in question; 0 for requests
	Holder string // of the term in question

	Op        string        // of an EventRequest: "get", "create" or "update"
	Duration  time.Duration // of the request, acquisition or renewal
	Remaining time.Duration // of EventRenewed and EventRenewFailed: how much longer the lease is valid
	Err       error         // why a request, renewal or release failed, or why a lease was lost
}

// EventKind says what happened, as metrics and logs name it.
type EventKind string

// The kinds of [Event]. A term ends with EventLost or with EventReleased, never with both.
const (
	EventRequest     EventKind = "request"      // one request to the store has ended; see Outcome
	EventAcquired    EventKind = "acquired"     // this lock holds a term: a new one, or one that it has resumed
	EventRenewed     EventKind = "renewed"      // the term continues
	EventRenewFailed EventKind = "renew_failed" // one try to renew has failed; another follows while the lease is valid
	EventLost        EventKind = "lost"         // the term has ended against the holder's will
	// the term was released or abandoned; Err says why its release has failed, which may be tried
	// again
	EventReleased  EventKind = "released"
	EventNewLeader EventKind = "new_leader" // this lock has seen a term begin, which may be its own
	// a function still runs after its lease was lost and the safety margin has passed
	EventOverrun EventKind = "overrun"
)

var (
	// ErrLost says that a lease has ended against its holder's will: it was not renewed in time,
	// another process took over, or the object was deleted, overwritten or broken by an
	// administrator. The text says which of these happened.
	ErrLost = errors.New("lease lost")
	// ErrReleased says that a lease has ended because its holder released it.
	ErrReleased = errors.New("lease released")
)

// Why a lease was lost.
var (
	errRanOut      = errors.New("not renewed in time")
	errTakenOver   = errors.New("taken over")
	errDeleted     = errors.New("the lock object was deleted")
	errBroken      = errors.New("broken by an administrator")
	errOverwritten = errors.New("overwritten")
)

// outcomes names errors. The first that matches counts.
var outcomes = []struct {
	err  error
	name string
}{
	{errRanOut, "expired"}, {errTakenOver, "taken_over"}, {errDeleted, "deleted"}, {errBroken, "broken"},
	{errOverwritten, "corrupt"},
	{ErrNotExist, "not_exist"}, {ErrPreconditionFailed, "precondition_failed"},
	{ErrPermanent, "permanent"}, {context.DeadlineExceeded, "timeout"},
}

// Outcome returns a short name for how something ended, from its error, for metrics and logs. For a
// request or renewal it is "ok", "not_exist", "precondition_failed", "permanent", "timeout" or
// "error". For the loss of a lease, and for a [Lock.Do] that failed because of a loss, it is
// "expired", "taken_over", "deleted", "broken" (by an administrator), "corrupt" or "unsafe_store".
// A lease that was released was not lost, and neither was one whose context was cancelled: for
// these errors Outcome returns "error".
func Outcome(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, ErrLost) && errors.Is(err, ErrUnsafeStore):
		return "unsafe_store"
	}
	for _, o := range outcomes {
		if errors.Is(err, o.err) {
			return o.name
		}
	}
	return "error"
}
