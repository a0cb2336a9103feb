package leasehold

import (
	"reflect"
	"runtime"
	"sync"
	"weak"
)

// WithReclaim promises that no two live candidates share an identity. Two Locks of one process that do would hold two valid
// leases, so this process keeps a list of Locks by identity, and none reclaims from another.
var namesakes = struct {
	sync.Mutex
	locks map[nameKey]map[weak.Pointer[Lock]]struct{}
}{locks: make(map[nameKey]map[weak.Pointer[Lock]]struct{})}

type nameKey struct {
	store         Store
	key, identity string
}

// enlist is called when a Lock is made. The list does not keep the Lock alive.
func (l *Lock) enlist() {
	if !l.hasName || !reflect.ValueOf(l.store).Comparable() {
		return
	}
	key, p := nameKey{l.store, l.key, l.identity}, weak.Make(l)
	namesakes.Lock()
	defer namesakes.Unlock()
	if namesakes.locks[key] == nil {
		namesakes.locks[key] = make(map[weak.Pointer[Lock]]struct{})
	}
	namesakes.locks[key][p] = struct{}{}
	runtime.AddCleanup(l, func(p weak.Pointer[Lock]) {
		namesakes.Lock()
		defer namesakes.Unlock()
		delete(namesakes.locks[key], p)
		if len(namesakes.locks[key]) == 0 {
			delete(namesakes.locks, key)
		}
	}, p)
}

// mayReclaim reports whether no other Lock of this process holds, or is about to take, what this one would reclaim.
func (l *Lock) mayReclaim() bool {
	if !l.reclaim || !reflect.ValueOf(l.store).Comparable() {
		return l.reclaim
	}
	var others []*Lock
	namesakes.Lock()
	for p := range namesakes.locks[nameKey{l.store, l.key, l.identity}] {
		if other := p.Value(); other != nil && other != l {
			others = append(others, other)
		}
	}
	namesakes.Unlock()
	for _, other := range others { // which may call the user's code
		if other.busy.Load() || other.heldByUs() != nil {
			return false
		}
	}
	return true
}
