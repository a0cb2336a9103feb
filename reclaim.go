package leasehold

import (
	"slices"
	"sync"
)

// namesakes are the Locks of this process with a WithIdentity that try, or have a term that keeps others out. The user of
// WithReclaim guarantees that no two live candidates share one. Two Locks of one process that do would hold two valid leases, so none
// of them reclaims from another.
var namesakes = struct {
	mu    sync.Mutex // never held while user code may run
	locks map[nameKey][]*Lock
}{locks: make(map[nameKey][]*Lock)}

type nameKey struct{ key, identity string }

// trying lists l while a try may be about to take the lock, until the result is called, and from then on while its term keeps others
// out.
func (l *Lock) trying() (done func()) {
	if !l.hasName {
		return func() {}
	}
	l.busy.Store(true)
	name := nameKey{l.key, l.identity}
	namesakes.mu.Lock()
	defer namesakes.mu.Unlock()
	if !slices.Contains(namesakes.locks[name], l) {
		namesakes.locks[name] = append(namesakes.locks[name], l)
	}
	return func() {
		l.busy.Store(false)
		l.delist()
	}
}

// delist is called when l may have stopped keeping others out.
func (l *Lock) delist() {
	t := l.term.Load()
	if !l.hasName || t != nil && t.blocks() > 0 {
		return
	}
	name := nameKey{l.key, l.identity}
	namesakes.mu.Lock()
	defer namesakes.mu.Unlock()
	if l.busy.Load() || l.term.Load() != t { // there is a later try
		return
	}
	left := slices.DeleteFunc(namesakes.locks[name], func(other *Lock) bool { return other == l })
	if namesakes.locks[name] = left; len(left) == 0 {
		delete(namesakes.locks, name)
	}
}

// mayReclaim reports whether no other Lock of this process holds, or is about to take, what this one would reclaim.
func (l *Lock) mayReclaim() bool {
	if !l.reclaim {
		return false
	}
	namesakes.mu.Lock()
	others := slices.Clone(namesakes.locks[nameKey{l.key, l.identity}])
	namesakes.mu.Unlock()
	for _, other := range others {
		if other != l && l.sharesStore(other) && (other.busy.Load() || other.heldByUs() != nil) {
			return false
		}
	}
	return true
}
