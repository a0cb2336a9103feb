package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/export"
	"github.com/leasehold-go/leasehold/shards"
)

// ShardConfig describes one world of members that divide shards. Of Config it uses the seed, the nodes, the locks' options, the clocks,
// the faults of requests, torn reads and the actions.
type ShardConfig struct {
	Config
	Shards       int
	Named        bool // the shards have names, and some come and go
	Large        bool // there are many with long names, so that the plan stands in pieces
	NextShards   int  // another number of shards, which some of the processes that start later have; 0 if they have the same
	SlowHandlers bool // some handlers return late, or later than their lease
}

// NewShardConfig draws the world of a seed.
func NewShardConfig(seed uint64) *ShardConfig {
	r := rand.New(rand.NewPCG(seed, 1))
	c := &ShardConfig{Config: Config{
		Seed: seed, Nodes: 2 + r.IntN(4), TTL: 15 * time.Second, RequestFaults: []float64{0, 0.05, 0.2}[r.IntN(3)], Slow: r.IntN(6) == 0,
		Skew: []time.Duration{0, time.Minute, 2 * time.Hour}[r.IntN(3)], TornReads: r.IntN(4) == 0,
	}}
	c.drawClockBounds(r)
	c.Chaos = 12 * c.TTL
	c.Shards, c.Named, c.SlowHandlers = 1+r.IntN(12), r.IntN(3) == 0, r.IntN(3) == 0
	switch {
	case c.Named && r.IntN(10) == 0:
		c.Large, c.Shards = true, 40+r.IntN(20)
	case !c.Named && r.IntN(4) == 0:
		c.NextShards = 1 + r.IntN(12)
	}
	c.drawShardActions(r)
	return c
}

// shardWorld is a run in progress.
type shardWorld struct {
	cfg *ShardConfig

	journal    // its mu guards what follows
	objects    map[string]*object
	former     map[string][][]byte // what the roster and the planner's lock were
	versions   int
	writes     int             // of objects that are not sessions
	processes  []*shardProcess // all that ever ran
	nodes      []*shardProcess // the latest of each node
	tokens     map[string]uint64
	names      []string
	unlistable string // how the list of names cannot be had; "" if it can
	chaosOver  bool
	finished   bool // no process may start
}

// shardProcess is one member on one node, from its start to its crash or stop.
type shardProcess struct {
	w          *shardWorld
	name       string
	member     string
	node       int // -1 of a twin
	shards     int // that it divides, unless they are named
	clock      *nodeClock
	rand       *rand.Rand // guarded by w.mu
	group      *shards.Group
	cancel     context.CancelFunc
	goroutines sync.WaitGroup
	crashed    atomic.Bool
	cut        atomic.Bool                            // nothing gets through
	outage     atomic.Bool                            // every request is answered 503
	denied     atomic.Pointer[func(key string) error] // what writes are answered

	// Guarded by w.mu.
	runs         map[string]*shardRun // the handlers that run
	told         map[string]bool      // the shards that it has told to own, and "" if it has told that it is the planner
	resumedAt    time.Time
	excusedUntil time.Time // until then it may act as an owner: all its clocks stood still, or an administrator has broken its session
	leaves       bool      // for good
	stopped      bool
	recent       []shardRequest // within the last TTL
	stormy       bool           // it has sent too many
}

// shardRun is a handler that runs.
type shardRun struct {
	ctx   context.Context
	lease *leasehold.Lease
}

// RunShards runs one world to its end.
func RunShards(t *testing.T, cfg *ShardConfig, trace bool) Outcome {
	t.Helper()
	var out Outcome
	synctest.Test(t, func(*testing.T) {
		w := &shardWorld{
			cfg: cfg, journal: newJournal(trace), objects: make(map[string]*object), former: make(map[string][][]byte),
			nodes: make([]*shardProcess, cfg.Nodes), tokens: make(map[string]uint64),
		}
		for i := range cfg.Shards {
			w.names = append(w.names, w.newName(fmt.Sprint(i)))
		}
		out = w.run()
	})
	return out
}

func (w *shardWorld) run() Outcome {
	r := w.cfg.rng("machines")
	for i := range w.nodes {
		time.Sleep(time.Duration(1 + r.Int64N(int64(w.cfg.TTL/4))))
		w.start(i, 0, w.newClock(i))
	}
	for _, a := range w.cfg.Actions {
		time.Sleep(max(time.Until(w.began.Add(a.At)), time.Microsecond))
		w.act(a)
	}
	time.Sleep(time.Until(w.began.Add(w.cfg.Chaos)))
	w.endChaos()
	w.checkRest()
	w.mu.Lock()
	w.finished = true
	processes := slices.Clone(w.processes)
	w.mu.Unlock()
	for _, p := range processes {
		p.cancel()
	}
	for _, p := range processes {
		p.goroutines.Wait()
		p.checkTold()
	}
	time.Sleep(w.cfg.TTL * 4) // for timers, and for requests that land late
	return w.outcome()
}

// newClock is the clock of a machine.
func (w *shardWorld) newClock(node int) *nodeClock {
	r := w.cfg.rng("machine", node)
	wall := time.Duration(0)
	if w.cfg.Skew > 0 {
		wall = time.Duration(r.Int64N(int64(2*w.cfg.Skew))) - w.cfg.Skew
	}
	return newNodeClock(1+w.cfg.RateSpread*float64(1-2*(node%2)), wall, w.cfg.rng("jitter", node))
}

// newName is the name of a shard.
func (w *shardWorld) newName(name string) string {
	if w.cfg.Large {
		name += "/" + strings.Repeat("x", 900)
	}
	return name
}

// brief is the name of a shard as the trace shows it.
func brief(id string) string { return id[:min(len(id), 12)] }

// start starts a member on a node, which may be new.
func (w *shardWorld) start(node, generation int, c *nodeClock) {
	p := w.newProcess(fmt.Sprintf("node%d.%d", node, generation), fmt.Sprint("node", node), c)
	p.node = node
	if w.cfg.NextShards > 0 && generation > 0 && p.draw(4) > 0 {
		p.shards = w.cfg.NextShards
	}
	w.mu.Lock()
	if node == len(w.nodes) {
		w.nodes = append(w.nodes, nil)
	}
	w.nodes[node] = p
	w.mu.Unlock()
	p.run()
}

func (w *shardWorld) newProcess(name, member string, c *nodeClock) *shardProcess {
	return &shardProcess{
		w: w, name: name, member: member, node: -1, shards: w.cfg.Shards, clock: c, rand: w.cfg.rng("work", name),
		runs: make(map[string]*shardRun), told: make(map[string]bool),
	}
}

// run starts the process.
func (p *shardProcess) run() {
	w := p.w
	set := shards.Count(p.shards)
	if w.cfg.Named {
		set = shards.NamesFrom(w.list)
	}
	var err error
	p.group, err = shards.New(p, "g", set, p.handle, shards.WithMember(p.member), shards.WithTTL(w.cfg.TTL),
		shards.WithLogger(nil), shards.WithObserver(p.observe),
		shards.WithLockOptions(leasehold.WithSafetyMargin(w.cfg.Margin), leasehold.WithClockDrift(w.cfg.Drift)),
		export.ShardsWithClock.(func(clock.Clock) shards.Option)(p.clock))
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	w.mu.Lock()
	finished := w.finished
	if !finished {
		w.processes = append(w.processes, p)
	}
	w.mu.Unlock()
	if finished {
		cancel()
		return
	}
	w.log(p.name, "starts, for %d shards", p.shards)
	p.goroutines.Go(func() {
		if err := p.group.Run(ctx); err != nil && ctx.Err() == nil && p.denied.Load() == nil {
			w.violate("%s: Run returned early: %v", p.name, err)
		}
		w.mu.Lock()
		p.stopped = true
		w.mu.Unlock()
		w.log(p.name, "has ended")
	})
}

// list is the list of the names.
func (w *shardWorld) list(ctx context.Context) ([]string, error) {
	w.mu.Lock()
	names, unlistable := slices.Clone(w.names), w.unlistable
	w.mu.Unlock()
	switch unlistable {
	case "fail to list":
		return nil, errors.New("the database is down")
	case "hang in list":
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return names, nil
}

func (p *shardProcess) observe(e shards.Event) {
	p.checkEvent(e)
	switch e.Kind {
	case shards.EventPlanned:
		p.w.log(p.name, "plans: %d members, %d shards, %d moved, imbalance %d", e.Members, e.Shards, e.Moved, e.Imbalance)
	case shards.EventRefused:
		p.w.mu.Lock()
		p.w.stats.Faults["shard refused"]++
		p.w.mu.Unlock()
		p.w.log(p.name, "refuses %s: %.160s", brief(e.Shard), firstLine(e.Err))
	default:
		p.w.log(p.name, "%s %s token %d %.160s", e.Kind, brief(e.Shard), e.Token, firstLine(e.Err))
	}
}

// draw draws a duration below d.
func (p *shardProcess) draw(d time.Duration) time.Duration {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	return time.Duration(p.rand.Int64N(int64(d)))
}

// handle is the handler of every shard.
func (p *shardProcess) handle(ctx context.Context, s shards.Shard) error {
	w, run := p.w, &shardRun{ctx, s.Lease()}
	w.begin(p, s, run)
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if p.runs[s.ID] == run {
			delete(p.runs, s.ID)
		}
	}()
	for p.clock.Sleep(ctx, w.cfg.TTL/4+p.draw(w.cfg.TTL)) == nil {
		switch p.draw(40) {
		case 0:
			return errors.New("it fails")
		case 1:
			panic("it fails badly")
		}
	}
	late := p.draw(w.cfg.TTL / 30)
	if w.cfg.SlowHandlers && !w.over() {
		late = p.draw(2 * w.cfg.TTL)
	}
	_ = p.clock.Sleep(context.Background(), late)
	return nil
}

func (w *shardWorld) over() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.chaosOver
}

// ShardReport describes a failure: the smallest world found that still fails, its violations, and the timeline.
func ShardReport(t *testing.T, cfg *ShardConfig, out Outcome) string {
	t.Helper()
	best := *cfg
	try := func(change func(c *ShardConfig)) bool {
		c := best
		c.Actions = slices.Clone(best.Actions)
		change(&c)
		o := RunShards(t, &c, true)
		if len(o.Violations) > 0 {
			best, out = c, o
		}
		return len(o.Violations) > 0
	}
	if len(out.Trace) == 0 {
		try(func(*ShardConfig) {})
	}
	for i := len(best.Actions) - 1; i >= 0; i-- {
		try(func(c *ShardConfig) { c.Actions = slices.Delete(c.Actions, i, i+1) })
	}
	try(func(c *ShardConfig) { c.RequestFaults = 0 })
	try(func(c *ShardConfig) { c.Slow, c.SlowHandlers, c.TornReads = false, false, false })
	try(func(c *ShardConfig) { c.NextShards = 0 })
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %d nodes, %d shards (named %v, large %v, next %d), margin %v, drift allowance %v, clock rates 1±%v, "+
		"request faults %v, torn reads %v, slow replies %v, slow handlers %v\n", best.Seed, best.Nodes, best.Shards, best.Named, best.Large,
		best.NextShards, best.Margin, best.Drift, best.RateSpread, best.RequestFaults, best.TornReads, best.Slow, best.SlowHandlers)
	for _, a := range best.Actions {
		fmt.Fprintf(&b, "  %v\n", a)
	}
	for _, v := range out.Violations[:min(len(out.Violations), 5)] {
		fmt.Fprintf(&b, "VIOLATION: %s\n", v)
	}
	for _, line := range out.Trace {
		fmt.Fprintln(&b, line)
	}
	return b.String()
}
