// Package weakset lists live values by key without keeping them alive.
package weakset

import (
	"runtime"
	"sync"
	"weak"
)

// Set has any number of values for each key. The zero value is ready. It is safe for concurrent use.
type Set[K comparable, V any] struct {
	mu     sync.Mutex
	values map[K]map[weak.Pointer[V]]struct{}
}

// Add lists v until it is garbage collected.
func (s *Set[K, V]) Add(key K, v *V) {
	p := weak.Make(v)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.values == nil {
		s.values = make(map[K]map[weak.Pointer[V]]struct{})
	}
	if s.values[key] == nil {
		s.values[key] = make(map[weak.Pointer[V]]struct{})
	}
	s.values[key][p] = struct{}{}
	runtime.AddCleanup(v, func(p weak.Pointer[V]) { s.remove(key, p) }, p)
}

func (s *Set[K, V]) remove(key K, p weak.Pointer[V]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.values[key], p)
	if len(s.values[key]) == 0 {
		delete(s.values, key)
	}
}

// Of returns the live values of key, in no order.
func (s *Set[K, V]) Of(key K) []*V {
	s.mu.Lock()
	defer s.mu.Unlock()
	var live []*V
	for p := range s.values[key] {
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
