package locktable

import "time"

// An Event is one thing that happened to a [Table] of this process. The function of [WithObserver]
// receives events, for example to update metrics.
type Event struct {
	Kind     EventKind
	Table    string        // the table's key
	Duration time.Duration // of a read or write; of EventAcquired, from the call until the lease
	Err      error         // why a read or write failed, why a lease was lost, or its release not written
	Token    uint64        // of the lease
	Locks    []string      // names of the lease's locks; the receiver must not change it

	// Of reads and writes that have succeeded: the table after them.
	Revision               uint64
	Bytes                  int
	Members, Held, Waiting int
	// Of writes: what this write has changed.
	Asked, Dropped, Evicted int
}

// EventKind says what happened.
type EventKind string

// The kinds of [Event].
const (
	EventRead EventKind = "read" // the table was read
	// a conditional write of the table has ended; Err is ErrPreconditionFailed if another write was
	// faster
	EventWrite    EventKind = "write"
	EventAcquired EventKind = "acquired" // a request was granted, or its lease was resumed
	EventReleased EventKind = "released" // a lease was released by its holder
	EventLost     EventKind = "lost"     // a lease has ended against its holder's will
)

// event is an event of the lease of r.
func (w *want) event(kind EventKind, r *request) Event {
	return Event{Kind: kind, Table: w.key, Token: r.token, Locks: names(r.claims), Err: r.err}
}

// observeAll passes events to the observer. The caller does not hold t.mu.
func (w *want) observeAll(events []Event) {
	for _, e := range events {
		w.observe(e)
	}
}
