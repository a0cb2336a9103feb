// Package explore runs two or three real Locks through every interleaving of a small world. Each request waits until the
// explorer delivers it, drops it, or drops its reply. Time stands still until the explorer moves it to the next timer. The
// search is complete up to a number of steps and faults, whereas internal/sim draws large worlds at random.
package explore

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Config bounds a search.
type Config struct {
	Rates      []float64 // of the clients' clocks, one client for each
	Terms      int       // for which each client tries
	Steps      int       // of one path
	Faults     int       // on one path: lost requests and replies, late or duplicate requests, wrong answers
	Crashes    int       // on one path; a restarted client remembers nothing
	Suspends   int       // on one path: a client's monotonic clock stands still while time moves on
	ReportsAge bool      // the store reports Object.Age: the true one in the first reply that shows a version, an hour more in all others
}

const (
	ttl    = 100 * time.Second // only its proportion to the other durations matters
	margin = ttl / 100
	drift  = 0.02 // together with margin it allows clock rates of 1 ± 1.48 %
)

// Result is the result of a search.
type Result struct {
	Paths, States int
	Cut           int // paths that the limit of steps ended
	Terms         int // largest number on one path
	Violation     string
	Trace         []string // of the path with the violation
}

// Search walks every path, in the given number of goroutines. It stops at the first violation.
func Search(t *testing.T, cfg Config, workers int) Result {
	s := &search{cfg: cfg, seen: make(map[[16]byte]struct{}), todo: [][]int8{nil}}
	s.more = sync.NewCond(&s.mu)
	t.Run("paths", func(t *testing.T) {
		for range workers {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				for path, ok := s.next(); ok; path, ok = s.next() {
					synctest.Test(t, func(*testing.T) { s.walk(path) })
					s.done()
				}
			})
		}
	})
	s.result.States = len(s.seen)
	return s.result
}

// search is what the workers share.
type search struct {
	cfg    Config
	mu     sync.Mutex
	more   *sync.Cond
	seen   map[[16]byte]struct{} // fingerprints of all states so far
	todo   [][]int8              // paths not yet walked: each is a list of choices to begin with
	busy   int
	result Result
}

func (s *search) next() ([]int8, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.todo) == 0 && s.busy > 0 && s.result.Violation == "" {
		s.more.Wait()
	}
	if len(s.todo) == 0 || s.result.Violation != "" {
		s.more.Broadcast()
		return nil, false
	}
	path := s.todo[len(s.todo)-1]
	s.todo = s.todo[:len(s.todo)-1]
	s.busy++
	return path, true
}

func (s *search) done() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy--
	s.result.Paths++
	s.more.Broadcast()
}

// walk makes the given choices, and from then on the first choice of each step. It adds the other choices to todo.
func (s *search) walk(path []int8) {
	w := newWorld(s.cfg)
	defer func() {
		s.mu.Lock()
		s.result.Terms = max(s.result.Terms, len(w.tokens))
		s.mu.Unlock()
		w.end()
	}()
	for step := 0; ; step++ {
		synctest.Wait()
		w.check()
		choices := w.choices()
		if len(choices) == 0 {
			w.checkEnd()
		}
		if w.violation != "" {
			s.mu.Lock()
			s.result.Violation, s.result.Trace = w.violation, w.trace
			s.mu.Unlock()
			return
		}
		if step >= len(path) {
			s.mu.Lock()
			_, known := s.seen[w.fingerprint()]
			s.seen[w.fingerprint()] = struct{}{}
			if !known && step >= s.cfg.Steps && len(choices) > 0 {
				s.result.Cut++
			}
			stop := known || step >= s.cfg.Steps || len(choices) == 0
			if !stop {
				for i := 1; i < len(choices); i++ {
					s.todo = append(s.todo, append(slices.Clone(path), int8(i)))
				}
				s.more.Broadcast()
			}
			s.mu.Unlock()
			if stop {
				return
			}
			path = append(path, 0)
		}
		c := choices[path[step]]
		w.log("%s", c.name)
		c.do()
	}
}
