package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/tables"
	"github.com/leasehold-go/leasehold/internal/testkit/testopt"
	"github.com/leasehold-go/leasehold/locktable"
)

// TableConfig describes one world of members that share a table of locks. Of Config it uses the
// seed, the nodes, the locks' options, the clocks, the faults of requests, torn reads, wake-ups,
// visitors and the actions.
type TableConfig struct {
	Config
	Locks    []TableLock
	Workers  int           // goroutines of each Table
	Named    bool          // members have names that outlive their processes
	Twins    bool          // and two nodes have the same name
	Two      bool          // some processes have two Tables
	Loose    bool          // the store ignores the condition of a DELETE
	Overruns bool          // some functions return much later than they should
	Damage   bool          // a person edits the table and the members' objects
	Wrong    time.Duration // by which the wall clock of every other node is wrong from the start
	Mixed    bool          // processes count the slots of a semaphore differently, as during a deployment
}

// TableLock is one lock of a table.
type TableLock struct {
	Name string
	Of   int // the capacity of a semaphore; 0 if it is none
}

const tableKey = "t"

// NewTableConfig draws the world of a seed.
func NewTableConfig(seed uint64) *TableConfig {
	r := rand.New(rand.NewPCG(seed, 3))
	c := &TableConfig{Config: Config{
		Seed: seed, Nodes: 2 + r.IntN(4), TTL: 15 * time.Second, RequestFaults: []float64{0, 0.05, 0.2}[r.IntN(3)],
		Slow: r.IntN(6) == 0,
		Skew: []time.Duration{0, time.Minute, 2 * time.Hour}[r.IntN(3)], TornReads: r.IntN(6) == 0,
		Wakes: r.IntN(3) == 0,
	}}
	c.drawClockBounds(r)
	c.Chaos = []time.Duration{12, 12, 12, 30}[r.IntN(4)] * c.TTL
	for i := range 1 + r.IntN(4) {
		c.Locks = append(c.Locks, TableLock{Name: string(rune('a' + i)), Of: []int{0, 0, 2, 3}[r.IntN(4)]})
	}
	c.Workers = 1 + r.IntN(3)
	c.Named, c.Two, c.Loose = r.IntN(3) == 0, r.IntN(4) == 0, r.IntN(4) == 0
	c.Twins = c.Named && r.IntN(2) == 0
	c.Overruns, c.Damage = r.IntN(3) == 0, r.IntN(3) == 0
	c.drawTableActions(r)
	c.Mixed = r.IntN(3) == 0
	c.drawMemberCopies()
	c.drawHandOvers()
	c.drawVisits()
	return c
}

// tableWorld is a run in progress.
type tableWorld struct {
	cfg *TableConfig

	stage[*tableProcess]               // its mu guards longest, and is locked last
	longest              time.Duration // after the last fault until a lock was acquired

	// state guards what follows. It is held while the store carries out a request, and while the
	// invariants are checked. Methods of leases may be called meanwhile, so nothing that a Table
	// calls while it is locked may lock it.
	state       sync.Mutex
	objects     map[string]*tableObject
	former      map[string][][]byte      // what the objects were
	decoded     map[string]*tables.Table // tables by their bytes
	versions    int
	table       *tables.Table // in the store; the last one that was none of damage
	edit        int           // number of the last version of the table that a person has made
	seq         int           // number of the table's version
	history     []*tables.Table
	maxRevision uint64
	lowered     bool // by a person, since maxRevision was written
	edited      map[string]bool
	freed       map[tableRow]int          // of members that were handed over, by the version that has freed it
	restored    map[string]restoredObject // members' objects of which a person has brought back an older version
	holds       []*tableHold
	usedAt      map[string]time.Time   // when somebody last acted under a lock
	waits       map[tableRow]time.Time // when a request was first seen to wait
	damagedAt   time.Time              // when the table was last seen to be missing or damaged
	stuck       bool                   // it was told of that somebody waits for nothing
	toRemove    map[string]bool        // objects of members that were dead, and not yet judged, when the faults ended
	asked       map[tableRow]tableAsk  // rows of members that have a copy
	copied      map[string]bool        // objects of members that have had a copy
	handed      []*handedOver
}

// restoredObject is what a member's object showed before a person brought back an older version. If
// that was of an earlier term, released, the next term of the same object begins at once and has a
// higher token, though the one of before does not know of it until its next renewal.
type restoredObject struct {
	at time.Time
	leasehold.Record
}

// tableProcess is one process on one node, from its start to its crash or stop. It has one Table or
// two.
type tableProcess struct {
	machine
	w       *tableWorld
	clients []*tableClient
	life    context.Context
	die     context.CancelFunc
	work    context.Context
	rest    context.CancelFunc // ends work
	workers sync.WaitGroup
	runs    sync.WaitGroup
	calm    bool // its requests go well

	// Guarded by w.mu.
	stop         context.CancelFunc // of its runs
	faulty       bool               // it stopped while requests went wrong
	leaves       bool
	unwellAt     time.Time // when something last kept it from the store
	excusedUntil time.Time // until then it may hold what others hold: all its clocks stood still
}

// Run runs the world to its end.
func (c *TableConfig) Run(t *testing.T, trace bool) (out Outcome) {
	InBubble(t, c.Seed, func() {
		w := &tableWorld{
			cfg: c, stage: newStage[*tableProcess](&c.Config, trace),
			objects: make(map[string]*tableObject), former: make(map[string][][]byte), table: tables.New(),
			edited: make(map[string]bool), freed: make(map[tableRow]int), restored: make(map[string]restoredObject),
			usedAt: make(map[string]time.Time), toRemove: make(map[string]bool),
			asked: make(map[tableRow]tableAsk), copied: make(map[string]bool),
		}
		w.start, w.acts = w.startNode, w.actOnTables
		w.history = []*tables.Table{w.table}
		out = w.run()
	})
	return out
}

func (w *tableWorld) run() Outcome {
	watching, stopWatching := context.WithCancel(context.Background())
	var watcher sync.WaitGroup
	watcher.Go(func() { w.watch(watching) })
	if w.cfg.Visitors {
		go w.visits(w.visit)
	}
	w.play()
	w.repair(0)
	w.findDead()
	w.endChaos()
	w.checkRest()
	for _, p := range w.haltAll() {
		p.ends(Action{})
	}
	w.checkNothingLeft()
	stopWatching()
	watcher.Wait()
	time.Sleep(w.cfg.TTL * 4) // for timers, and for requests that land late
	return w.outcome()
}

// startNode starts a process on a node.
func (w *tableWorld) startNode(node int, c *nodeClock, _ bool) {
	if c.generation == 0 && w.cfg.hasWrongClock(node) {
		c.step(w.cfg.Wrong - c.skew)
	}
	w.mu.Lock()
	last := w.nodes[node]
	w.mu.Unlock()
	p := w.newProcess(fmt.Sprintf("node%d.%d", node, c.generation), node, c)
	tables := 1
	if w.cfg.Two && p.draw(2) == 0 {
		tables = 2
	}
	for i := range tables {
		name, member := p.name, ""
		if w.cfg.Named {
			member = fmt.Sprint("pod", node)
			if w.cfg.Twins && node < 2 {
				member = "twin"
			}
		}
		if i > 0 {
			name += "b"
			if member != "" {
				member += "b"
			}
		}
		newTableClient(p, name, member)
	}
	if h := last.detached(); h != nil {
		p.clients[min(h.table, tables-1)].resumes(h)
	}
	w.log(p.name, "starts, with %d tables", tables)
	w.launch(p, func() {
		w.nodes[node] = p
		p.beginWork()
	})
}

// newProcess is a process that has no Tables yet, and does not run.
func (w *tableWorld) newProcess(name string, node int, c *nodeClock) *tableProcess {
	p := &tableProcess{w: w, machine: w.newMachine(node, name, c)}
	p.life, p.die = context.WithCancel(context.Background())
	p.work, p.rest = context.WithCancel(p.life)
	return p
}

// launch runs the Tables of a new process, and does what goes with that, under w.mu. It reports
// false if no process may start any more.
func (w *tableWorld) launch(p *tableProcess, as func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.joins(p) {
		p.die()
		return false
	}
	p.unwellAt = time.Now()
	p.begin()
	as()
	return true
}

// beginWork starts the goroutines that use the Tables.
func (p *tableProcess) beginWork() {
	for _, c := range p.clients {
		for range p.w.cfg.Workers {
			p.workers.Go(c.worker)
		}
	}
}

// begin runs the Tables. The caller holds w.mu.
func (p *tableProcess) begin() {
	ctx, cancel := context.WithCancel(p.life)
	p.stop, p.halted = cancel, false
	for _, c := range p.clients {
		if !c.detaching.Load() {
			p.runs.Go(func() { c.run(ctx) })
		}
	}
}

// halt ends the runs of the Tables, gracefully.
func (p *tableProcess) halt() {
	p.w.mu.Lock()
	stop := p.stop
	p.halted = true
	p.faulty = p.faulty || !p.w.chaosOver
	p.w.mu.Unlock()
	stop()
}

// ends waits until the runs have ended. A process that is not to run again ends with them.
func (p *tableProcess) ends(a Action) {
	p.runs.Wait()
	if a.Kind != "stop and run again" {
		p.rest()
		p.workers.Wait()
		p.die()
	}
}

// goes ends a process that was not to run for long, by a crash or gracefully.
func (p *tableProcess) goes(crashes bool) {
	if crashes {
		p.crash()
	} else {
		p.halt()
	}
	p.ends(Action{})
}

// crash ends a process: from now on nothing of it reaches the store.
func (p *tableProcess) crash() {
	p.dies()
	p.die()
}

// run calls Table.Run, and again if a refusal has ended it.
func (c *tableClient) run(ctx context.Context) {
	w, p := c.p.w, c.p
	for {
		err := c.tab.Run(ctx)
		w.log(c.name, "Run has returned: %s", firstLine(err))
		switch {
		case ctx.Err() != nil, err == nil && c.detaching.Load():
			return
		case c.heir != nil && err != nil && !c.hasWritten():
			c.notResumed(err)
			return
		case !p.harmed.Load():
			w.violate("%s: Run returned early: %v", c.name, err)
			return
		}
		if p.clock.Sleep(ctx, w.cfg.TTL/5) != nil {
			return
		}
	}
}

// tableClient is one Table of a process, and its connection to the store.
type tableClient struct {
	p     *tableProcess
	name  string
	key   string // of the member's object
	tab   *locktable.Table
	marks int         // guarded by w.mu
	copy  *memberCopy // nil if its machine is no copy

	heir      *handedOver // what it goes on with; nil if it does not
	detaching atomic.Bool // so its Run may end
	late      atomic.Bool // its next write of the table is to arrive late

	// Guarded by w.state.
	known    uint64                   // the highest revision that it was shown
	shown    int                      // number of the newest version of the table that it was shown
	asked    map[tableRow]bool        // its rows in versions that it was shown
	sent     map[string]clock.Reading // when its own renewals and acquisitions were sent, by nonce
	renewed  clock.Reading            // the last of them that it knows to have landed
	term     string                   // TermID of its present term; "" if it has none, as far as it knows
	aliveAt  time.Time                // when it last learnt that it has a term
	idle     bool                     // it was told of that it has none
	requests int                      // of the table, under way
	settled  time.Time                // when the last of them ended
	well     bool                     // and whether it succeeded
	barred   time.Time                // since when its writes of the table fail; zero if the last one has succeeded
	recent   []sent                   // within the last TTL
	stormy   bool                     // it has sent too many
	wrote    bool                     // it has written the table
	detached *handedOver              // nil unless its member was detached
}

// tableRow names a request for ever.
type tableRow struct {
	term   tables.Term
	number uint64
}

// newTableClient adds a Table to a process that does not run yet.
func newTableClient(p *tableProcess, name, member string) *tableClient {
	c := &tableClient{
		p:     p,
		name:  name,
		asked: make(map[tableRow]bool),
		sent:  make(map[string]clock.Reading),
	}
	opts := c.options()
	if member != "" {
		opts = append(opts, locktable.WithMemberName(member))
	}
	var err error
	if c.tab, err = locktable.New(c.store(), tableKey, opts...); err != nil {
		panic(err)
	}
	c.key = tableKey + ".members/" + c.tab.MemberName()
	p.clients = append(p.clients, c)
	return c
}

func (c *tableClient) options() []locktable.Option {
	w := c.p.w
	return []locktable.Option{
		locktable.WithObserver(c.observe),
		locktable.WithTTL(w.cfg.TTL), locktable.WithLogger(slog.New(listener(w.hears))),
		locktable.WithSafetyMargin(w.cfg.Margin), locktable.WithClockDrift(w.cfg.Drift),
		testopt.WithTableClock(c.p.clock),
	}
}

// hasWritten reports whether the table has a version that this Table has written.
func (c *tableClient) hasWritten() bool {
	c.p.w.state.Lock()
	defer c.p.w.state.Unlock()
	return c.wrote
}

// store is a known store, which nothing needs to try.
func (c *tableClient) store() leasehold.Store {
	return face{leasehold.StoreInfo{MinTTL: time.Millisecond, Conditional: true}, c}
}

// reasons are the situations of what a Table logs of the terms of others. The texts are those of
// membership.
var reasons = map[string]string{
	"a later term of its object has begun":             "over by a later term",
	"it was released":                                  "over by a release",
	"it was not renewed for its TTL":                   "over by time",
	"its object has shown another term for its TTL":    "over by a restored term",
	"another object has been in its place for its TTL": "over by another object",
	"a member's state is unknown, will retry":          "a member's object is unreadable",
}

// hears marks a text that a Table logs.
func (w *tableWorld) hears(text string) {
	if situation, ok := reasons[text]; ok {
		w.mark(situation)
	}
}

// observe runs while the Table is locked.
func (c *tableClient) observe(_ context.Context, e locktable.Event) {
	if c.p.w.traced {
		c.p.w.log(c.name, "%s %v token %d, revision %d, asked %d, dropped %d, evicted %d: %.160s", e.Kind,
			e.Locks, e.Token, e.Revision,
			e.Asked, e.Dropped, e.Evicted, firstLine(e.Err))
	}
}

// drawClaims draws what a caller wants: one lock, or several.
func (c *tableClient) drawClaims() (claims []tables.Claim) {
	locks := c.p.w.cfg.Locks
	first, n := int(c.p.draw(time.Duration(len(locks)))), 1
	if c.p.draw(3) == 0 {
		n += int(c.p.draw(time.Duration(len(locks))))
	}
	for i := range n {
		l := locks[(first+i)%len(locks)]
		claim := tables.Claim{Name: l.Name, Of: l.Of}
		if l.Of > 0 {
			if c.p.w.cfg.Mixed {
				claim.Of = max(1, l.Of-1+c.p.node%3)
			}
			claim.Slots = 1 + int(c.p.draw(time.Duration(claim.Of)))
		} else {
			claim.Shared = c.p.draw(3) == 0
		}
		claims = append(claims, claim)
	}
	if !slices.ContainsFunc(claims, func(c tables.Claim) bool { return c.Of == 0 && !c.Shared }) {
		// One write may grant the same to several callers of a Table. A lock that nobody else wants
		// tells which lease is which.
		c.p.w.mu.Lock()
		c.marks++
		claims = append(claims, tables.Claim{Name: fmt.Sprint("mark ", c.name, " ", c.marks), Shared: true})
		c.p.w.mu.Unlock()
	}
	return claims
}

// lock is the lock of the claims.
func (c *tableClient) lock(claims ...tables.Claim) *locktable.Lock {
	var locks []*locktable.Lock
	for _, claim := range claims {
		switch {
		case claim.Of > 0:
			locks = append(locks, c.tab.Semaphore(claim.Name, claim.Of).Slots(claim.Slots))
		case claim.Shared:
			locks = append(locks, c.tab.Shared(claim.Name))
		default:
			locks = append(locks, c.tab.Lock(claim.Name))
		}
	}
	if len(locks) == 1 {
		return locks[0]
	}
	return c.tab.All(locks...)
}

// worker is a goroutine that uses locks until the process is to rest.
func (c *tableClient) worker() {
	p, ttl := c.p, c.p.w.cfg.TTL
	for p.clock.Sleep(p.work, p.draw([]time.Duration{ttl / 100, ttl / 2, 2 * ttl}[p.draw(3)])+1) == nil {
		c.use(c.drawClaims())
	}
}

// use acquires locks once, in one of the ways that there are, holds them for a while and releases
// them.
func (c *tableClient) use(claims []tables.Claim) {
	p, ttl := c.p, c.p.w.cfg.TTL
	patience := []time.Duration{ttl / 200, ttl / 10, ttl, 4 * ttl, 8 * ttl}[p.draw(5)]
	ctx, cancel := context.WithTimeout(p.work, 1+p.draw(patience))
	defer cancel()
	lock, how := c.lock(claims...), p.draw(5)
	if p.w.cfg.Handles && p.draw(4) > 0 {
		how = 3 // while a function runs, no member can be handed over
	}
	if how < 2 { // the function's context ends with the caller's, so it must not end with its patience
		whole, cancel := context.WithCancel(p.work)
		defer cancel()
		began := make(chan struct{})
		defer time.AfterFunc(p.draw(patience), func() {
			select {
			case <-began:
			default:
				cancel()
			}
		}).Stop()
		c.do(claims, func(f func(context.Context, *locktable.Lease) error) error {
			return lock.Do(whole, func(ctx context.Context, lease *locktable.Lease) error {
				close(began)
				return f(ctx, lease)
			})
		})
		return
	}
	var lease *locktable.Lease
	var err error
	if how == 2 {
		began := time.Now()
		lease, err = lock.TryAcquire(ctx)
		if err == nil && time.Since(began) > ttl/2 {
			p.w.mark("a try outlived a dead one")
		}
	} else {
		lease, err = lock.Acquire(ctx)
	}
	if err != nil {
		if how > 2 { // TryAcquire fails with the first request
			c.checkRefusal(err)
		}
		return
	}
	if how == 4 {
		c.do(claims, func(f func(context.Context, *locktable.Lease) error) error { return lease.Do(p.work, f) })
		return
	}
	c.keep(c.hold(lease, claims, lease.Context(), false))
}

// keep keeps a lease for a while, or until another wants it, and releases it.
func (c *tableClient) keep(h *tableHold) {
	p, ttl, lease := c.p, c.p.w.cfg.TTL, h.lease
	hold, stop := context.WithCancel(lease.Context())
	defer stop()
	if p.draw(3) == 0 {
		go func() {
			select {
			case <-lease.Wanted():
				stop()
			case <-hold.Done():
			}
		}()
	}
	defer context.AfterFunc(p.work, stop)()
	_ = p.clock.Sleep(hold, c.drawHold())
	lasting, done := context.WithTimeout(context.Background(), 1+p.draw(8*ttl))
	defer done()
	if p.draw(4) == 0 {
		done() // the table goes on freeing it
	}
	c.released(h, lease.Release(lasting))
}

// drawHold draws how long to hold what was acquired.
func (c *tableClient) drawHold() time.Duration {
	ttl := c.p.w.cfg.TTL
	if c.p.w.cfg.Chaos > 12*ttl && c.p.draw(20) == 0 && !c.p.w.over() { // in the end all take turns, within a bound
		return 14 * ttl
	}
	return c.p.draw([]time.Duration{1, ttl / 50, ttl / 4, ttl, 4 * ttl}[c.p.draw(5)])
}

var errFails = errors.New("it fails")

// beside is what else went wrong if the function has failed: Do returns its error unchanged only if
// nothing did. A lease may be lost, or its release given up, while the function fails.
func beside(err error) error {
	if unchanged := any(err) == any(errFails); unchanged {
		return nil
	}
	return err
}

// do lets run call a function under a lease, and checks the end.
func (c *tableClient) do(claims []tables.Claim, run func(func(context.Context, *locktable.Lease) error) error) {
	var h *tableHold
	err := run(func(ctx context.Context, lease *locktable.Lease) error {
		h = c.hold(lease, claims, ctx, true)
		defer c.returns(h)
		return c.function(ctx)
	})
	if h != nil {
		c.released(h, beside(err))
	}
}

// function is what runs under a lease.
func (c *tableClient) function(ctx context.Context) error {
	p, w := c.p, c.p.w
	_ = p.clock.Sleep(ctx, c.drawHold())
	if ctx.Err() != nil {
		late := p.draw(w.cfg.TTL / 30)
		if w.cfg.Overruns && !w.over() {
			late = p.draw(3 * w.cfg.TTL)
		}
		_ = p.clock.Sleep(p.life, late)
	}
	if p.draw(10) == 0 {
		return errFails
	}
	return nil
}

// tableObject is an object of the store.
type tableObject struct {
	body         []byte
	etag         string
	previousETag string
	rec          leasehold.Record // zero if it is the table's
	writtenAt    time.Time
}
