package leasehold

import "github.com/leasehold-go/leasehold/internal/weakset"

// namesakes are the Locks of this process with a WithIdentity. The user of WithReclaim guarantees that no two live candidates share
// one. Two Locks of one process that do would hold two valid leases, so none of them reclaims from another. The keys do not refer to
// Stores, because a Store may refer to its Locks, which would then never be collected.
var namesakes weakset.Set[nameKey, Lock]

type nameKey struct{ key, identity string }

// enlist is called when a Lock is made.
func (l *Lock) enlist() {
	if l.hasName {
		namesakes.Add(nameKey{l.key, l.identity}, l)
	}
}

// mayReclaim reports whether no other Lock of this process holds, or is about to take, what this one would reclaim.
func (l *Lock) mayReclaim() bool {
	if !l.reclaim {
		return false
	}
	for _, other := range namesakes.Of(nameKey{l.key, l.identity}) {
		if other != l && l.sharesStore(other) && (other.busy.Load() || other.heldByUs() != nil) {
			return false
		}
	}
	return true
}
