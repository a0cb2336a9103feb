package shards

import (
	"errors"

	"github.com/leasehold-go/leasehold"
)

// An Event is one thing that happened in a group. [WithObserver] receives them, for example to update metrics.
type Event struct {
	Kind   EventKind
	Prefix string // of the group
	Member string // this one
	Shard  string // of EventStarted, EventStopped, EventFailed and EventRefused
	Token  uint64 // of the shard's owner: of EventStarted, EventStopped and EventFailed
	Err    error  // why the handler failed, why it was stopped, or why the shard could not be taken

	// Of EventElected and EventPlanned: what the plan in force says. All are 0 if there is none yet.
	Members   int // that may own shards
	Shards    int
	Moved     int // of EventPlanned: shards that have a new owner, counting those that had none
	Imbalance int // the difference between the most and the fewest shards of a member
}

// EventKind says what happened.
type EventKind uint8

// The kinds of [Event].
const (
	EventJoined  EventKind = iota + 1 // this member has entered the roster
	EventStarted                      // this member owns a shard, and calls the handler
	EventFailed                       // the handler has returned an error, or panicked; it is called again
	EventStopped                      // follows each EventStarted: this member owns the shard no more, and its handler has returned
	EventRefused                      // this member cannot take a shard: the planner is told
	EventElected                      // this member is the planner now, and has read the plan
	EventPlanned                      // this member is the planner, and has published a plan
	EventRetired                      // follows each EventElected: this member is the planner no more
)

var eventNames = [...]string{
	EventJoined: "joined", EventStarted: "started", EventFailed: "failed", EventStopped: "stopped", EventRefused: "refused",
	EventElected: "elected", EventPlanned: "planned", EventRetired: "retired",
}

// String returns the kind as metrics and logs name it, such as "started".
func (k EventKind) String() string {
	if int(k) >= len(eventNames) || k == 0 {
		return "unknown"
	}
	return eventNames[k]
}

// Outcome names why a shard was stopped: "moved" (the plan gives it to another member), "left" (this member has ended its session), or
// why its lease was lost: "expired", "taken_over", "deleted", "broken" or "corrupt". Of EventRefused it is "permanent", "timeout" or
// "error". Without an Err it is "ok".
func (e Event) Outcome() string {
	switch {
	case errors.Is(e.Err, errMoved):
		return "moved"
	case errors.Is(e.Err, leasehold.ErrReleased):
		return "left"
	}
	return leasehold.Event{Err: e.Err}.Outcome()
}

func (g *Group) emit(e Event) {
	if g.observe != nil {
		e.Prefix, e.Member = g.prefix, g.member
		g.observe(e)
	}
}
