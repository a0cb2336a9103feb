package leasehold

import "github.com/leasehold-go/leasehold/internal/bell"

// maxWakes bounds the wake-ups of a poll interval, or of a TTL if that is shorter.
const maxWakes = 10

// Wake makes whoever waits for this lock, in [Lock.Acquire], [Lock.Do], [Elector.Run] or
// [Lock.Watch], read it now. Call it when a message says that the object has changed. With bucket
// notifications, a release is then followed by the next term within two requests instead of a poll
// interval.
//
// A wake-up carries no authority. A wrong, forged, repeated or late one costs a read for each
// goroutine that waits, and a lost one leaves the wait as it was. At most ten in a row cause a read
// at once. From then on there is one for each tenth of the poll interval, or of the TTL if that is
// shorter, and the others are merged into the next. A wake-up also ends the pause of a candidate
// that backs off because the store fails. Wake sends no request itself, never blocks, does nothing
// if nobody waits, and is safe for concurrent use.
//
// A release needs no call of Wake for those who wait in the same process, through this Lock or
// another with the same Store value and key. Watch reads, and of those who want the lock one after
// the other does, until the lock is held again.
func (l *Lock) Wake() {
	if l.made() == nil {
		l.bell.Request(l.clock, min(l.poll, l.ttl), maxWakes)
	}
}

// place identifies a lock object in this process.
func (r *register) place() bell.Place { return bell.PlaceOf(r.store, r.key) }

// wait lists a goroutine for the siblings that release, until it leaves. List it before it looks,
// so that no release is missed. A candidate stands in line, so that a release costs one read and
// not one of each candidate.
func (r *register) wait(candidate bool) *bell.Waiter { return r.bell.Wait(r.place(), candidate) }

// wakeSiblings is called when the lock may have become free. It wakes the goroutines of this
// process that wait for the same object.
func (r *register) wakeSiblings() { bell.Free(r.place()) }
