// Package explore runs two or three real Locks through every interleaving of a small world. Each
// request waits until the explorer delivers it, drops it, or drops its reply. Time stands still
// until the explorer moves it to the next timer. The search is complete up to a number of steps and
// faults, whereas internal/proof/sim draws large worlds at random.
package explore

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Config bounds a search.
type Config struct {
	Rates    []float64 // of the clients' clocks, one client for each
	Terms    int       // for which each client tries
	Faults   int       // on one path: lost requests and replies, late or duplicate requests, wrong answers
	Crashes  int       // on one path; a restarted client remembers nothing
	Suspends int       // on one path: a client's monotonic clock stands still while time moves on
	Abandons int       // on one path: a client abandons its lease, then tries with the same Lock again
	Offers   int       // notes of holders that reach a client, on one path, at any time; clients then wait in line
	// the store reports Object.Age: the true one in the first reply that shows a version, an hour
	// more in all others
	ReportsAge bool
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
	Unrepeated    int // paths left out, because goroutines of one process have raced: see maxTries
	Terms         int // largest number on one path
	Violation     string
	Trace         []string // of the path with the violation
}

// Search walks every path, in the given number of goroutines. It stops at the first violation.
func Search(t *testing.T, cfg Config, workers int) Result {
	return searchAll(t, workers, false, func() place { return newWorld(cfg) })
}

// place is a world that a search walks through.
type place interface {
	check()            // at every step
	choices() []choice // what can happen next, in an order that depends only on the state
	fingerprint() [16]byte
	checkEnd() // where nothing more can happen
	terms() int
	told() *story
	end()
}

// story is what a walk tells. Its fields are those of the world that it is part of.
type story struct {
	now       time.Duration // true time
	violation string
	trace     []string
}

func (s *story) told() *story { return s }

func (s *story) violate(format string, args ...any) {
	if s.violation == "" {
		s.violation = fmt.Sprintf(format, args...)
		s.log("!!!! %s", s.violation)
	}
}

func (s *story) log(format string, args ...any) {
	s.trace = append(s.trace, fmt.Sprintf("%8.3f  ", s.now.Seconds())+fmt.Sprintf(format, args...))
}

func searchAll(t *testing.T, workers int, races bool, begin func() place) Result {
	s := &search{begin: begin, races: races, seen: make(map[[16]byte]int), todo: []path{{}}}
	s.more = sync.NewCond(&s.mu)
	t.Run("paths", func(t *testing.T) {
		for range workers {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				for path, ok := s.next(); ok; path, ok = s.next() {
					again := true
					for tries := maxTries; again; tries-- {
						synctest.Test(t, func(*testing.T) { again = s.walk(path, races && tries > 1) })
					}
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
	begin  func() place
	races  bool // processes have several goroutines
	mu     sync.Mutex
	more   *sync.Cond
	seen   map[[16]byte]int // fingerprints of all states so far, and how many choices each has
	todo   []path           // not yet walked
	busy   int
	result Result
}

// path is how a walk begins.
type path struct {
	choices []int8
	state   [16]byte // before the last of them
}

func (s *search) next() (path, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.todo) == 0 && s.busy > 0 && s.result.Violation == "" {
		s.more.Wait()
	}
	if len(s.todo) == 0 || s.result.Violation != "" {
		s.more.Broadcast()
		return path{}, false
	}
	p := s.todo[len(s.todo)-1]
	s.todo = s.todo[:len(s.todo)-1]
	s.busy++
	return p, true
}

func (s *search) done() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy--
	s.result.Paths++
	s.more.Broadcast()
}

// maxSteps is longer than any path.
const maxSteps = 200

// maxTries is how often a path is walked until it leads to the state in which its last choice is
// one. What several goroutines of one process do at the same instant may end in one of two states.
const maxTries = 200

// walk makes the choices of p, and from then on the first choice of each step. It adds the other
// choices to todo. If p leads to another state than before, it asks for another walk, if it may.
func (s *search) walk(p path, mayAsk bool) (again bool) {
	w := s.begin()
	told := w.told()
	defer func() {
		s.mu.Lock()
		s.result.Terms = max(s.result.Terms, w.terms())
		s.mu.Unlock()
		w.end()
	}()
	for step := 0; ; step++ {
		synctest.Wait()
		w.check()
		choices := w.choices()
		var state [16]byte
		if step >= len(p.choices)-1 {
			state = w.fingerprint()
		}
		if step == len(p.choices)-1 && state != p.state ||
			step < len(p.choices) && int(p.choices[step]) >= len(choices) {
			if mayAsk {
				return true
			}
			if s.races {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.result.Unrepeated++
				return false
			}
			told.violate("the same choices led to another state than before, so the search is not complete")
		}
		if len(choices) == 0 {
			w.checkEnd()
		}
		if told.violation != "" {
			s.mu.Lock()
			s.result.Violation, s.result.Trace = told.violation, told.trace
			s.mu.Unlock()
			return false
		}
		next := 0
		if step < len(p.choices) {
			next = int(p.choices[step])
		} else {
			if s.visit(&p, state, len(choices), told) {
				return false
			}
			p.choices = append(p.choices, 0)
		}
		told.log("%s", choices[next].name)
		choices[next].do()
	}
}

// visit notes a state at the end of p that has so many choices, and reports whether the walk stops
// there.
func (s *search) visit(p *path, state [16]byte, choices int, told *story) (stop bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, known := s.seen[state]
	s.seen[state] = choices
	if known && before != choices {
		told.violate("two states with one fingerprint have different numbers of choices, so the search is not complete")
		s.result.Violation, s.result.Trace = told.violation, told.trace
	}
	if known || choices == 0 {
		return true
	}
	if len(p.choices) >= maxSteps {
		s.result.Cut++
		return true
	}
	for i := 1; i < choices; i++ {
		s.todo = append(s.todo, path{append(slices.Clone(p.choices), int8(i)), state})
	}
	s.more.Broadcast()
	return false
}
