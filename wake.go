package leasehold

import (
	"reflect"
	"slices"

	"github.com/leasehold-go/leasehold/internal/weakset"
)

// maxWakes bounds the wake-ups of a poll interval, or of a TTL if that is shorter.
const maxWakes = 10

// Wake makes whoever waits for this lock, in [Lock.Acquire], [Lock.Do], [Elector.Run] or [Lock.Watch], read it now. Call it when a
// message says that the object has changed. With bucket notifications, a release is then followed by the next term within two
// requests instead of a poll interval.
//
// A wake-up carries no authority. A wrong, forged, repeated or late one costs a read for each goroutine that waits, and a lost one
// leaves the wait as it was. At most ten in a row cause a read at once. From then on there is one for each tenth of the poll
// interval, or of the TTL if that is shorter, and the others are merged into the next. A candidate that backs off because the store
// fails is not woken. Wake sends no request itself, never blocks, does nothing if nobody waits, and is safe for concurrent use.
//
// Locks of one process that share a Store value and a key wake each other after a release. That needs no call of Wake.
func (l *Lock) Wake() {
	if l.made() == nil {
		l.bell.Request(l.clock, min(l.poll, l.ttl), maxWakes)
	}
}

// sameKey are the Locks of this process by key. It does not keep Stores alive, because a Store may refer to its Locks.
var sameKey weakset.Set[string, Lock]

// enlist is called when a Lock is made.
func (l *Lock) enlist() {
	if reflect.ValueOf(l.store).Comparable() {
		sameKey.Add(l.key, l)
	}
}

// siblings are the Locks of this process that share a Store value and a key, this one included. They wake each other, and need care
// with WithReclaim.
func (l *Lock) siblings() []*Lock {
	if !reflect.ValueOf(l.store).Comparable() {
		return []*Lock{l}
	}
	return slices.DeleteFunc(sameKey.Of(l.key), func(s *Lock) bool { return s.store != l.store })
}

// wakeSiblings is called when the lock may have become free.
func (l *Lock) wakeSiblings() {
	for _, s := range l.siblings() {
		s.bell.Ring()
	}
}
