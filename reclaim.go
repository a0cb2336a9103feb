package leasehold

import "time"

// byLock reports whether expires_at is what a Lock writes beside the other members. A foreign client that takes the lock and keeps
// the members that it does not know, the holder among them, changes expires_at alone.
func byLock(r Record) bool {
	return r.ExpiresAt.Sub(r.RenewedAt.Add(r.TTL)).Abs() < time.Millisecond // rounded in the record
}

// mayReclaim reports whether no other Lock of this process holds, or is about to take, what this one would reclaim. The user of
// WithReclaim guarantees that no two live candidates share an identity. Two Locks of one process that do would hold two valid
// leases, so none of them reclaims from another.
func (l *Lock) mayReclaim() bool {
	if !l.reclaim {
		return false
	}
	for _, other := range l.siblings() {
		if other != l && other.identity == l.identity && (other.busy.Load() || other.heldByUs() != nil) {
			return false
		}
	}
	return true
}
