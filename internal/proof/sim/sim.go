// Package sim runs real Locks, Leases and Electors on simulated machines in virtual time. Clocks
// drift, step and stop. The network loses, delays and repeats requests. Processes crash, and an
// administrator breaks locks. A seed determines all of it, and the invariants are checked at every
// step.
package sim

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"runtime/pprof"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/fakes3"
)

// Outcome is the result of one run.
type Outcome struct {
	Violations []string
	Trace      []string // nil unless Run was asked for it
	Stats      Stats
}

// Stats counts what happened.
type Stats struct {
	Runs, Requests, Terms, Writes, Fenced int
	Virtual                               time.Duration
	Events                                map[string]int // faults of requests, and what happened to nodes
	Followed                              int            // worlds that the proven machine has followed to their end
	Steps                                 map[string]int // that it has taken, by action
	Excused                               map[string]int // leases and worlds that have left the contract, by reason
	Situations                            map[string]int // worlds in which each happened
}

// Add adds the counts of another run.
func (s *Stats) Add(o Stats) {
	s.Runs += o.Runs
	s.Requests += o.Requests
	s.Terms += o.Terms
	s.Writes += o.Writes
	s.Fenced += o.Fenced
	s.Virtual += o.Virtual
	s.Followed += o.Followed
	for _, counts := range []struct{ all, more *map[string]int }{
		{&s.Events, &o.Events}, {&s.Steps, &o.Steps}, {&s.Excused, &o.Excused}, {&s.Situations, &o.Situations},
	} {
		if *counts.all == nil {
			*counts.all = make(map[string]int)
		}
		for k, n := range *counts.more {
			(*counts.all)[k] += n
		}
	}
}

// world is a run in progress.
type world struct {
	stage[*process] // its mu guards what follows; store.mu, if held, was locked first

	store *store
	fence leasehold.Fence // of the resource that leaders write to
	trace *trace          // nil if the world is not followed
	asked *fakes3.Server  // has the objects with which a store finds out how the server wants ETags

	reader       *process          // nil if the world has none
	tokenOwner   map[uint64]string // name of the process that acquired each token
	written      uint64            // the highest token that has written to the resource
	broken       map[uint64]bool   // terms that an administrator ended
	acquiredAt   time.Time         // the last acquisition
	tokenErased  bool              // by a foreign client, or by whoever restored an old version
	backedUp     bool              // an old version of the lock has come back
	foreignUntil time.Time         // a foreign client holds the lock until then
	lastWriter   *process          // of the lock
	tornETag     string            // of the last torn read; guarded by store.mu
	token        atomic.Uint64     // in the store
	etag         atomic.Value      // of the lock object
	abandonments
	handovers
	offers
}

// Run runs the world to its end.
func (c *Config) Run(t *testing.T, trace bool) (out Outcome) {
	InBubble(t, c.Seed, func() { out = newWorld(c, trace).run() })
	return out
}

// InBubble runs the world of a seed in virtual time. A panic names the seed: in its text if the
// world has left goroutines behind, else as a label of the goroutines of its bubble.
func InBubble(t *testing.T, seed uint64, world func()) {
	t.Helper()
	defer func() {
		if p := recover(); p != nil {
			panic(fmt.Sprintf("the world of seed %d: %v", seed, p))
		}
	}()
	pprof.Do(t.Context(), pprof.Labels("seed", fmt.Sprint(seed)), func(context.Context) {
		synctest.Test(t, func(*testing.T) { world() })
	})
}

func newWorld(cfg *Config, trace bool) *world {
	w := &world{
		stage:      newStage[*process](cfg, trace),
		tokenOwner: make(map[uint64]string), broken: make(map[uint64]bool),
		asked: &fakes3.Server{BareIfMatch: cfg.BareETags},
	}
	w.start, w.acts = w.startNode, w.actOnLocks
	w.abandoned, w.calledRelease = make(map[uint64]abandonment), make(map[uint64]bool)
	w.owner, w.heirs = make(map[uint64]*process), make(map[uint64]map[*process]bool)
	w.moved = make(map[uint64]time.Time)
	w.offered, w.versions = make(map[string]*process), make(map[string]bool)
	w.store = &store{w: w, steps: drawSteps(w.rng("store clock"), cfg.Chaos)}
	w.trace = newTrace(w)
	return w
}

func (w *world) rng(purpose ...any) *rand.Rand { return w.cfg.rng(purpose...) }

// rng is the random source of one purpose. Each purpose has its own, so that one more draw in one
// place changes no other.
func (c *Config) rng(purpose ...any) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprint(h, purpose...)
	return rand.New(rand.NewPCG(c.Seed, h.Sum64()))
}

func (w *world) run() Outcome {
	foreign, stopForeign := context.WithCancel(context.Background())
	defer stopForeign()
	if w.cfg.Foreign {
		go w.foreignClient(foreign)
	}
	if w.cfg.Readers {
		w.startReader()
	}
	if w.cfg.Visitors {
		w.resumes.Go(func() { w.visits(w.visit) })
	}
	w.play()
	w.endChaos()
	w.checkRecovery()
	if w.cfg.Long {
		w.checkOutage()
	}
	w.checkRequests()
	stopForeign()
	processes := w.haltAll()
	w.resumes.Wait()
	for _, p := range processes {
		p.goroutines.Wait()
		p.checkCallbackPairs()
	}
	time.Sleep(w.cfg.longest() * 4) // for timers, and for requests that land late
	w.checkReleased()
	w.trace.ends(&w.stats)
	return w.outcome()
}
