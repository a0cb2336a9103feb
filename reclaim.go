package leasehold

import (
	"reflect"

	"github.com/leasehold-go/leasehold/internal/weakset"
)

// namesakes are the Locks of this process by identity. The user of WithReclaim guarantees that no two live candidates share one.
// Two Locks of one process that do would hold two valid leases, so none of them reclaims from another.
var namesakes weakset.Set[nameKey, Lock]

type nameKey struct {
	store         Store
	key, identity string
}

// enlist is called when a Lock is made.
func (l *Lock) enlist() {
	if l.hasName && reflect.ValueOf(l.store).Comparable() {
		namesakes.Add(nameKey{l.store, l.key, l.identity}, l)
	}
}

// mayReclaim reports whether no other Lock of this process holds, or is about to take, what this one would reclaim.
func (l *Lock) mayReclaim() bool {
	if !l.reclaim || !reflect.ValueOf(l.store).Comparable() {
		return l.reclaim
	}
	for _, other := range namesakes.Of(nameKey{l.store, l.key, l.identity}) {
		if other != l && (other.busy.Load() || other.heldByUs() != nil) {
			return false
		}
	}
	return true
}
