package locktable

import "sync"

// signal wakes whoever listens. The zero value is ready.
type signal struct {
	mu   sync.Mutex
	rung chan struct{} // closed by the next ring; nil if nobody listens
}

// listen returns a channel that the next ring closes. Listen before you look, so that no change is
// missed.
func (s *signal) listen() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rung == nil {
		s.rung = make(chan struct{})
	}
	return s.rung
}

func (s *signal) ring() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rung != nil {
		close(s.rung)
		s.rung = nil
	}
}
