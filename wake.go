package leasehold

import "github.com/leasehold-go/leasehold/internal/bell"

// maxWakes bounds the wake-ups of a poll interval, or of a TTL if that is shorter.
const maxWakes = 10

// Wake makes each goroutine that waits for this lock, in [Lock.Acquire], [Lock.Do], [Elector.Run]
// or [Lock.Watch], read the lock now. Call it when a message says that the object has changed. With
// bucket notifications, a release is then followed by the next term within two requests instead of
// a poll interval.
//
// A wake-up carries no authority. A wrong, forged, repeated or late one costs a read for each
// goroutine that waits, and a lost one does not change the wait. At most ten wake-ups in a row
// cause a read at once. From then on there is one read for each tenth of the poll interval, or of
// the TTL if the TTL is shorter, and the other wake-ups are merged into the next read. A wake-up
// also ends the pause of a candidate that backs off because the store fails. Wake sends no request
// itself, never blocks, does nothing if no goroutine waits, and is safe for concurrent use.
//
// A release needs no call of Wake for goroutines that wait in the same process, through this Lock
// or another with the same Store value and key. Each Watch then reads the lock. Of the goroutines
// that want the lock, one after the other reads it, until the lock is held again.
func (l *Lock) Wake() {
	if l.made() == nil {
		l.bell.Request(l.clock, min(l.poll, l.ttl), maxWakes)
	}
}

// place identifies a lock object in this process.
func (r *register) place() bell.Place { return bell.PlaceOf(r.store, r.key) }

// wait lists a goroutine for the siblings that release, until it leaves. List it before it looks,
// so that no release is missed. Candidates queue, so that a release costs one read instead of one
// read per candidate.
func (r *register) wait(candidate bool) *bell.Waiter { return r.bell.Wait(r.place(), candidate) }

// wakeSiblings is called when the lock may have become free. It wakes the goroutines of this
// process that wait for the same object.
func (r *register) wakeSiblings() { bell.Free(r.place()) }
