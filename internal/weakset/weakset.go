// Package weakset lists live values by key without keeping them alive.
package weakset

import (
	"runtime"
	"slices"
	"sync"
	"weak"
)

// Set has any number of values for each key. The zero value is ready. It is safe for concurrent use.
type Set[K comparable, V any] struct {
	mu     sync.Mutex
	values map[K][]weak.Pointer[V]
}

// Add lists v until it is garbage collected.
func (s *Set[K, V]) Add(key K, v *V) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.values == nil {
		s.values = make(map[K][]weak.Pointer[V])
	}
	s.values[key] = append(s.values[key], weak.Make(v))
	runtime.AddCleanup(v, s.clean, key)
}

// clean removes the values of key that are gone.
func (s *Set[K, V]) clean(key K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	live := slices.DeleteFunc(s.values[key], func(p weak.Pointer[V]) bool { return p.Value() == nil })
	if s.values[key] = live; len(live) == 0 {
		delete(s.values, key)
	}
}

// Of returns the live values of key, in the order in which they were added.
func (s *Set[K, V]) Of(key K) []*V {
	s.mu.Lock()
	defer s.mu.Unlock()
	var live []*V
	for _, p := range s.values[key] {
		if v := p.Value(); v != nil {
			live = append(live, v)
		}
	}
	return live
}

// Len returns the number of keys.
func (s *Set[K, V]) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.values)
}
