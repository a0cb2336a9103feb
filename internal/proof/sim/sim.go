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
	"slices"
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
	Faults                                map[string]int
	Followed                              int            // worlds that the proven machine has followed to their end
	Steps                                 map[string]int // that it has taken, by action
	Excused                               map[string]int // leases and worlds that have left the contract, by reason
	Situations                            Reached        // worlds in which each happened
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
		{&s.Faults, &o.Faults}, {&s.Steps, &o.Steps}, {&s.Excused, &o.Excused},
	} {
		if *counts.all == nil {
			*counts.all = make(map[string]int)
		}
		for k, n := range *counts.more {
			(*counts.all)[k] += n
		}
	}
	if s.Situations == nil {
		s.Situations = make(Reached, len(o.Situations))
	}
	for i, n := range o.Situations {
		s.Situations[i] += n
	}
}

// world is a run in progress.
type world struct {
	cfg   *Config
	store *store
	fence leasehold.Fence // of the resource that leaders write to
	trace *trace          // nil if the world is not followed
	asked *fakes3.Server  // has the objects with which a store finds out how the server wants ETags

	journal                        // its mu guards what follows; store.mu, if held, was locked first
	processes    []*process        // all that ever ran
	nodes        []*process        // the latest process of each node
	reader       *process          // nil if the world has none
	tokenOwner   map[uint64]string // name of the process that acquired each token
	written      uint64            // the highest token that has written to the resource
	broken       map[uint64]bool   // terms that an administrator ended
	acquiredAt   time.Time         // the last acquisition
	messages     *rand.Rand        // of the channel that wakes processes
	chaosOver    bool
	finished     bool          // no process may start
	tokenErased  bool          // by a foreign client, or by whoever restored an old version
	backedUp     bool          // an old version of the lock has come back
	foreignUntil time.Time     // a foreign client holds the lock until then
	lastWriter   *process      // of the lock
	tornETag     string        // of the last torn read; guarded by store.mu
	token        atomic.Uint64 // in the store
	etag         atomic.Value  // of the lock object
	occurred
	abandonments
	handovers
	offers
}

// Run runs one world to its end.
func Run(t *testing.T, cfg *Config, trace bool) Outcome {
	t.Helper()
	var out Outcome
	InBubble(t, cfg.Seed, func() { out = newWorld(cfg, trace).run() })
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
		cfg: cfg, journal: newJournal(trace), nodes: make([]*process, cfg.Nodes),
		tokenOwner: make(map[uint64]string), broken: make(map[uint64]bool),
		asked: &fakes3.Server{BareIfMatch: cfg.BareETags}, occurred: make(occurred, lockSituations),
	}
	w.messages = w.rng("messages")
	w.abandonments = abandonments{make(map[uint64]abandonment), make(map[uint64]bool)}
	w.owner, w.heirs = make(map[uint64]*process), make(map[uint64]map[*process]bool)
	w.moved = make(map[uint64]time.Time)
	w.offers = offers{make(map[string]*process), make(map[string]bool)}
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
	w.startNodes()
	foreign, stopForeign := context.WithCancel(context.Background())
	defer stopForeign()
	if w.cfg.Foreign {
		go w.foreignClient(foreign)
	}
	if w.cfg.Readers {
		w.startReader()
	}
	if w.cfg.Visitors {
		w.resumes.Go(w.visits)
	}
	for _, a := range w.cfg.Actions {
		// never at the instant of a start or of another action
		time.Sleep(max(time.Until(w.began.Add(a.At)), time.Microsecond))
		w.act(a)
	}
	time.Sleep(time.Until(w.began.Add(w.cfg.Chaos)))
	w.endChaos()
	w.checkRecovery()
	if w.cfg.Long {
		w.checkOutage()
	}
	w.checkRequests()
	stopForeign()
	w.stopAll()
	w.checkReleased()
	w.trace.ends(&w.stats)
	out := w.outcome()
	out.Stats.Situations = w.reached()
	return out
}

func (w *world) startNodes() {
	r := w.rng("machines")
	for i := range w.nodes {
		rate := 1 + w.cfg.RateSpread*(2*r.Float64()-1)
		if r.IntN(2) == 0 { // the two extremes, side by side, find the most
			rate = 1 + w.cfg.RateSpread*float64(1-2*(i%2))
		}
		wall := time.Duration(0)
		if w.cfg.Skew > 0 {
			wall = time.Duration(r.Int64N(int64(2*w.cfg.Skew))) - w.cfg.Skew
		}
		c := newNodeClock(rate, wall, w.rng("jitter", i))
		c.tamed = w.cfg.Foreign
		time.Sleep(time.Duration(1 + r.Int64N(int64(time.Second))))
		w.start(i, 0, c, fmt.Sprint("node", i), w.cfg.Abandons && w.rng("reclaims", i).IntN(2) == 0)
	}
}

// endChaos repairs the network and resumes every machine.
func (w *world) endChaos() {
	w.mu.Lock()
	w.chaosOver = true
	nodes := slices.Clone(w.nodes)
	w.mu.Unlock()
	for _, p := range nodes {
		if p.repair() {
			w.thaw(p)
		}
	}
	w.log("world", "*** all faults are over")
}

// faultsOn reports whether requests may still go wrong. They stop before the last actions are
// undone.
func (w *world) faultsOn() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.chaosOver && time.Since(w.began) < w.cfg.Chaos*7/10
}

// stopAll stops every elector and waits until all that they left behind has ended.
func (w *world) stopAll() {
	w.mu.Lock()
	w.finished = true
	processes := slices.Clone(w.processes)
	w.mu.Unlock()
	if w.reader != nil {
		processes = append(processes, w.reader)
	}
	for _, p := range processes {
		p.stop()
	}
	w.resumes.Wait()
	for _, p := range processes {
		p.goroutines.Wait()
		p.checkCallbackPairs()
	}
	time.Sleep(w.cfg.longest() * 4) // for timers, and for requests that land late
}
