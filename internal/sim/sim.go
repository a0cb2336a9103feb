// Package sim runs the real Lock, Lease and Elector on simulated machines, with clocks that lie, a network that loses,
// delays and repeats, and an unkind administrator, in virtual time. A seed decides everything that happens; every step is checked.
package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/fenced"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/export"
)

// Config is one world, before anything happens in it. NewConfig draws one from a seed.
type Config struct {
	Seed          uint64
	Nodes         int
	TTL           time.Duration
	Margin        time.Duration
	Drift         float64       // what the locks allow for
	Rates         float64       // clocks run at 1 ± Rates
	Skew          time.Duration // wall clocks are off by up to so much
	RequestFaults float64       // share of requests that go wrong
	Slow          bool          // every reply takes seconds
	Dates         Dates         // what the store's clock and the proxies before it do
	Torn          bool          // some reads show a body with the ETag of the version before
	Siblings      bool          // several goroutines and electors of each process use one Lock
	Foreign       bool          // a client that knows only expires_at and token takes part
	Chaos         time.Duration // for how long things go wrong
	Actions       []Action
}

// Dates says where Object.Age comes from.
type Dates string

// The clocks of stores, and who trusts them.
const (
	NoAges     Dates = "no ages"
	ToldAges   Dates = "ages told"            // true in the first reply that shows a version, too high by hours in all others
	WrongAges  Dates = "wrong ages told"      // too high by hours: leases may overlap, but within a bound
	WrongDates Dates = "wrong dates, ignored" // of a store clock or a proxy that is off by hours, read by the real S3Store
	Trusted    Dates = "dates trusted"        // as ToldAges, read by the real S3Store
)

// Action is one thing that happens to a node.
type Action struct {
	At   time.Duration
	Node int
	Kind string
	For  time.Duration // until it is undone
	Arg  time.Duration
}

func (a Action) String() string {
	return fmt.Sprintf("%v node%d %s for %v (%v)", a.At.Round(time.Millisecond), a.Node, a.Kind, a.For.Round(time.Millisecond), a.Arg.Round(time.Millisecond))
}

var actionKinds = []string{"partition", "partition", "suspend", "suspend, wall clock set back", "pause", "pause, wall clock set right", "crash", "crash and restart", "crash and reclaim", "resign", "break", "step wall clock", "stop and start"}

// NewConfig draws the world of a seed.
func NewConfig(seed uint64) *Config {
	r := rand.New(rand.NewPCG(seed, 0))
	c := &Config{Seed: seed, Nodes: 2 + r.IntN(3), TTL: 15 * time.Second, Dates: []Dates{NoAges, ToldAges}[r.IntN(2)], RequestFaults: []float64{0, 0.05, 0.2}[r.IntN(3)]}
	c.Foreign, c.Slow = r.IntN(6) == 0, r.IntN(4) == 0
	c.Skew = []time.Duration{0, time.Minute, 2 * time.Hour}[r.IntN(3)]
	if c.Foreign {
		c.Skew = 2 * time.Second // what such a client needs, see WithSkewAllowance
	}
	// Safe is (1-margin/TTL)(1+rates)/(1-rates) <= 1+drift: by the drift allowance alone, by the margin, or by both.
	switch r.IntN(4) {
	case 0:
		c.Margin, c.Drift, c.Rates = c.TTL/100, 0.02, 0.0099
	case 1:
		c.Margin, c.Drift, c.Rates = c.TTL/100, 0.1, 0.047
	case 2:
		c.Margin, c.Drift, c.Rates = c.TTL/5, 0.02, 0.01
	case 3:
		c.Margin, c.Drift, c.Rates = c.TTL/5, 0.02, 0.1
	}
	c.Chaos = 10 * c.TTL
	steady := r.IntN(2) == 0 // wall clocks are not stepped, so that they can tell of a pause
	for range r.IntN(8) {
		a := Action{
			At: time.Duration(r.Int64N(int64(c.Chaos * 7 / 10))), Node: r.IntN(c.Nodes), Kind: actionKinds[r.IntN(len(actionKinds))],
			For: time.Duration(r.Int64N(int64(2 * c.TTL))), Arg: time.Duration(r.Int64N(int64(4*time.Hour))) - 2*time.Hour,
		}
		if a.Kind == "step wall clock" && (c.Foreign || steady) {
			a.Kind = "partition"
		}
		if a.Kind == "pause, wall clock set right" && !steady {
			a.Kind = "pause"
		}
		c.Actions = append(c.Actions, a)
	}
	slices.SortFunc(c.Actions, func(a, b Action) int { return int(a.At - b.At) })
	if r.IntN(20) == 0 { // seldom: the real S3 client is slow
		c.Dates = []Dates{WrongDates, Trusted}[r.IntN(2)]
	} else if r.IntN(20) == 0 {
		c.Dates = WrongAges
	}
	c.Siblings = r.IntN(3) == 0
	c.Torn = c.Dates == NoAges && r.IntN(3) == 0
	return c
}

// Outcome is what a run has shown.
type Outcome struct {
	Violations []string
	Trace      []string // if asked for
	Stats      Stats
}

// Stats counts what happened.
type Stats struct {
	Runs, Requests, Terms, Writes, Fenced int
	Virtual                               time.Duration
	Faults                                map[string]int
}

// Add adds the counts of another run.
func (s *Stats) Add(o Stats) {
	s.Runs += o.Runs
	s.Requests += o.Requests
	s.Terms += o.Terms
	s.Writes += o.Writes
	s.Fenced += o.Fenced
	s.Virtual += o.Virtual
	if s.Faults == nil {
		s.Faults = make(map[string]int)
	}
	for k, n := range o.Faults {
		s.Faults[k] += n
	}
}

// world is a run in progress.
type world struct {
	cfg   *Config
	began time.Time
	store *store
	fence fenced.Fence

	mu         sync.Mutex
	trace      *[]string // nil: not asked for
	violations []string
	stats      Stats
	lives      []*life // every process that ever ran, the dead included
	nodes      []*life // the one that runs on each node now
	requests   map[*life][]time.Time
	tokens     map[uint64]string // who was given each token
	broken     map[uint64]bool   // terms that an administrator has ended
	calm       bool              // chaos is over
	forgetful  bool              // a foreign client has erased the token
	taken      time.Time         // until when a foreign client that kept the ttl holds the lock
}

// life is one process on one node, from start to crash or stop.
type life struct {
	w        *world
	name     string
	node     int
	clock    *nodeClock
	client   *client
	lock     *leasehold.Lock
	electors []*elector
	rand     *rand.Rand // of its work; guarded by w.mu
	stop     context.CancelFunc
	running  sync.WaitGroup // its goroutines
	dead     atomic.Bool
	identity string

	// Guarded by w.mu.
	lease *leasehold.Lease // while its callback runs
	blind bool             // every clock stood still, or the term was broken, since the last renewal: only fencing can help
	woke  time.Time        // last thaw
	still bool             // paused, so that no clock will tell
	stood time.Time        // end of the last such pause
	dozed bool             // it lay within the acquisition of the present term
	bare  *leasehold.Lease // the last one that no function guards
	quiet time.Duration    // the monotonic time before which nobody may follow it
}

// elector is an Elector, and how often it was told to start and to stop.
type elector struct {
	*leasehold.Elector
	l                *life
	started, stopped int // guarded by w.mu
}

// Run runs one world to its end.
func Run(t *testing.T, cfg *Config, trace bool) Outcome {
	t.Helper()
	var out Outcome
	synctest.Test(t, func(*testing.T) { out = newWorld(cfg, trace).run() })
	return out
}

func newWorld(cfg *Config, trace bool) *world {
	w := &world{cfg: cfg, began: time.Now(), requests: make(map[*life][]time.Time), tokens: make(map[uint64]string), broken: make(map[uint64]bool), nodes: make([]*life, cfg.Nodes)}
	w.stats = Stats{Runs: 1, Faults: make(map[string]int)}
	w.store = &store{w: w}
	if trace {
		w.trace = new([]string)
	}
	return w
}

func (w *world) rng(parts ...any) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprint(h, parts...)
	return rand.New(rand.NewPCG(w.cfg.Seed, h.Sum64()))
}

func (w *world) run() Outcome {
	r := w.rng("machines")
	for i := range w.nodes {
		rate := 1 + w.cfg.Rates*(2*r.Float64()-1)
		if r.IntN(2) == 0 { // the worst pair of clocks is the most telling
			rate = 1 + w.cfg.Rates*float64(1-2*(i%2))
		}
		wall := time.Duration(0)
		if w.cfg.Skew > 0 {
			wall = time.Duration(r.Int64N(int64(2*w.cfg.Skew))) - w.cfg.Skew
		}
		c := newNodeClock(rate, wall, w.rng("jitter", i))
		time.Sleep(time.Duration(1 + r.Int64N(int64(time.Second))))
		w.start(i, 0, c, fmt.Sprint("node", i), false)
	}
	foreign, stopForeign := context.WithCancel(context.Background())
	defer stopForeign()
	if w.cfg.Foreign {
		go w.foreignClient(foreign)
	}
	for _, a := range w.cfg.Actions {
		time.Sleep(max(time.Until(w.began.Add(a.At)), time.Microsecond)) // apart from a start, or from one another
		w.act(a)
	}
	time.Sleep(time.Until(w.began.Add(w.cfg.Chaos)))
	w.settle()
	stopForeign()
	w.stopAll()

	w.mu.Lock()
	defer w.mu.Unlock()
	w.stats.Virtual = time.Since(w.began)
	out := Outcome{Violations: w.violations, Stats: w.stats}
	if w.trace != nil {
		out.Trace = *w.trace
		slices.Sort(out.Trace) // lines of one instant come in any order
	}
	return out
}

// start begins a new life on a node.
func (w *world) start(node, generation int, c *nodeClock, identity string, reclaim bool) *life {
	l := &life{w: w, name: fmt.Sprintf("node%d.%d", node, generation), node: node, clock: c, identity: identity}
	l.client = &client{who: l, rand: w.rng("requests", l.name)}
	l.rand = w.rng("work", l.name)
	opts := []leasehold.Option{
		export.WithClock.(func(clock.Clock) leasehold.Option)(c), leasehold.WithTTL(w.cfg.TTL), leasehold.WithSafetyMargin(w.cfg.Margin),
		leasehold.WithClockDrift(w.cfg.Drift), leasehold.WithIdentity(identity), leasehold.WithLogger(nil), leasehold.WithObserver(l.observe),
	}
	if reclaim {
		opts = append(opts, leasehold.WithReclaim())
	}
	var err error
	if l.lock, err = leasehold.NewLock(l.client.store(), "lock", opts...); err != nil {
		panic(err)
	}
	l.elect()
	if w.cfg.Siblings {
		l.elect()
	}
	w.mu.Lock()
	w.lives = append(w.lives, l)
	w.nodes[node] = l
	w.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	l.stop = cancel
	w.log(l.name, "starts")
	for i, e := range l.electors {
		l.running.Go(func() {
			time.Sleep(time.Duration(i) * 1301 * time.Nanosecond) // nobody acts at one instant with another
			if err := e.Run(ctx); err != nil && !l.dead.Load() && !w.mayEndRun(err) {
				w.violate("%s: Run ended: %v", l.name, err)
			}
		})
	}
	if w.cfg.Siblings {
		l.running.Go(func() { l.visit(ctx, l.doOnce) })
		l.running.Go(func() { l.visit(ctx, l.holdBare) })
	}
	return l
}

func (l *life) elect() {
	e := &elector{l: l}
	var err error
	if e.Elector, err = leasehold.NewElector(l.lock, leasehold.Callbacks{OnStartedLeading: e.lead, OnStoppedLeading: e.stoppedLeading}); err != nil {
		panic(err)
	}
	l.electors = append(l.electors, e)
}

// between is a time drawn for the life's work.
func (l *life) between(least, most time.Duration) time.Duration {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	return least + time.Duration(l.rand.Int64N(int64(most-least)))
}

// visit uses the lock now and then, until all is calm.
func (l *life) visit(ctx context.Context, use func(context.Context)) {
	for l.clock.Sleep(ctx, l.between(0, 2*l.w.cfg.TTL)) == nil && l.w.faulty() && !l.dead.Load() {
		use(ctx)
	}
}

// doOnce is a critical section of one of the process's goroutines.
func (l *life) doOnce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, l.between(0, 3*l.w.cfg.TTL))
	defer cancel()
	valid, token := false, uint64(0)
	err := l.lock.Do(ctx, func(ctx context.Context, lease *leasehold.Lease) error {
		work, stop := context.WithTimeout(ctx, l.between(0, l.w.cfg.TTL))
		defer stop()
		l.work(work, lease)
		valid, token = lease.Valid(), lease.Token()
		return nil
	})
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	if valid && errors.Is(err, leasehold.ErrLost) && l.w.cfg.Dates != WrongAges && !l.w.broken[token] && !l.client.misled && !l.blind && !l.dead.Load() {
		l.w.violateLocked("%s: Do says that token %d was lost, though it was valid when the function returned: %v", l.name, token, err)
	}
}

// holdBare holds a lease that no function guards.
func (l *life) holdBare(ctx context.Context) {
	waiting, cancel := context.WithTimeout(ctx, l.between(0, 3*l.w.cfg.TTL))
	lease, err := l.lock.Acquire(waiting)
	cancel()
	if err != nil {
		return
	}
	lost := make(chan struct{})
	l.w.mu.Lock()
	l.bare, l.quiet = lease, 0
	l.w.mu.Unlock()
	defer context.AfterFunc(lease.Context(), func() {
		if errors.Is(context.Cause(lease.Context()), leasehold.ErrLost) {
			now := l.clock.Now().Mono
			l.w.mu.Lock()
			l.quiet = now + l.w.cfg.Margin
			l.w.mu.Unlock()
		}
		close(lost)
	})()
	_ = l.clock.Sleep(lease.Context(), l.between(0, l.w.cfg.TTL))
	if lease.Context().Err() != nil {
		<-lost
	}
	_ = lease.Release(context.Background())
}

// mayEndRun reports whether Run may end with err: its release came to nothing, or the store has never answered.
func (w *world) mayEndRun(err error) bool {
	return strings.Contains(err.Error(), "releasing") || errors.Is(err, context.Canceled)
}

func (e *elector) lead(ctx context.Context, lease *leasehold.Lease) {
	e.l.w.mu.Lock()
	e.started++
	e.l.w.mu.Unlock()
	e.l.work(ctx, lease)
}

// work is a leader's: write, while the lease is valid, to a resource that is fenced.
func (l *life) work(ctx context.Context, lease *leasehold.Lease) {
	w := l.w
	w.mu.Lock()
	if l.lease != nil {
		w.violateLocked("%s: a function begins under token %d while that of token %d still runs in the same process", l.name, lease.Token(), l.lease.Token())
	}
	l.lease, l.blind = lease, w.broken[lease.Token()] || l.dozed
	w.mu.Unlock()
	w.log(l.name, "leads with token %d", lease.Token())
	l.write(lease)
	for l.clock.Sleep(ctx, w.cfg.TTL/8+l.between(0, time.Second)) == nil {
		w.check()
		if lease.Valid() {
			l.write(lease)
		}
	}
	windDown := l.between(0, w.cfg.TTL/10)
	if l.between(0, 20) == 0 {
		windDown = w.cfg.TTL // overruns
	}
	_ = l.clock.Sleep(context.Background(), windDown)
	w.log(l.name, "function of token %d returns", lease.Token())
	w.mu.Lock()
	l.lease = nil
	w.mu.Unlock()
}

func (e *elector) stoppedLeading(cause error) {
	w := e.l.w
	w.mu.Lock()
	e.stopped++
	unbidden := e.stopped != e.started
	w.mu.Unlock()
	if unbidden {
		w.violate("%s: OnStoppedLeading is not called once for each OnStartedLeading", e.l.name)
	}
	w.log(e.l.name, "stopped leading: %v", short(cause))
}

func short(err error) string {
	s, _, _ := strings.Cut(fmt.Sprint(err), "\n")
	return s
}

// write is one fenced write. The moment a new leader has written, no older token may pass.
func (l *life) write(lease *leasehold.Lease) {
	w := l.w
	if l.dead.Load() {
		return
	}
	err := w.fence.Check(lease.Token())
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stats.Writes++
	if err == nil {
		return
	}
	w.stats.Fenced++
	if !l.blind && !w.forgetful && w.cfg.Dates != WrongAges { // a client that erases the token takes fencing away
		w.violateLocked("%s: a valid lease with token %d was fenced off by %d, though its clocks ran", l.name, lease.Token(), w.fence.Token())
	}
}

// observe checks at each acquisition that every other leader's context has ended.
func (l *life) observe(e leasehold.Event) {
	if l.dead.Load() {
		return
	}
	w := l.w
	switch e.Kind {
	case leasehold.EventRequest:
		return
	case leasehold.EventAcquired:
		w.mu.Lock()
		w.stats.Terms++
		l.dozed = time.Since(l.stood) <= e.Duration+e.Duration/4
		if who, taken := w.tokens[e.Token]; taken && !w.forgetful {
			w.violateLocked("token %d was given to %s and to %s", e.Token, who, l.name)
		}
		w.tokens[e.Token] = l.name
		if l.bare != nil && (l.bare.Context().Err() == nil || l.clock.Now().Mono < l.quiet) {
			w.violateLocked("%s acquired token %d before the safety margin of its own token %d was over", l.name, e.Token, l.bare.Token())
		}
		l.bare = nil
		for _, other := range w.lives {
			if other == l || l.dozed || w.broken[e.Token] || !other.accountable() {
				continue
			}
			justWoken := time.Since(other.woke) <= w.cfg.TTL/5*11/10
			if other.lease.Context().Err() == nil && !justWoken {
				w.violateLocked("%s acquired token %d while the context of %s (token %d) goes on", l.name, e.Token, other.name, other.lease.Token())
			}
		}
		w.mu.Unlock()
		w.check()
	case leasehold.EventLost:
		w.lost(l, e)
	case leasehold.EventRenewed:
		w.mu.Lock()
		if time.Since(l.woke) > e.Duration+e.Duration/4 { // sent since, not just answered
			l.blind = false
		}
		w.mu.Unlock()
	}
	if w.trace != nil {
		w.log(l.name, "%s token %d %s", e.Kind, e.Token, short(e.Err))
	}
}

// lost checks that a lease which ends before its time is really gone.
func (w *world) lost(l *life, e leasehold.Event) {
	w.store.mu.Lock()
	rec := w.store.rec
	w.store.mu.Unlock()
	if !strings.Contains(e.Err.Error(), "not renewed in time") && rec.Token == e.Token && rec.Holder == l.identity && !rec.Released() {
		w.violate("%s gave up token %d, which still is its own: %v", l.name, e.Token, e.Err)
	}
}

// accountable reports whether the life leads and could know if it may. The caller holds w.mu.
func (l *life) accountable() bool {
	return l.w.cfg.Dates != WrongAges && l.lease != nil && !l.blind && !l.dead.Load() && !l.clock.isFrozen()
}

// check asks every leader that runs whether it is valid: at most one may be.
func (w *world) check() {
	w.mu.Lock()
	var leases []*leasehold.Lease
	var names []string
	for _, l := range w.lives {
		if l.accountable() {
			leases, names = append(leases, l.lease), append(names, l.name)
		}
	}
	w.mu.Unlock()
	var valid []string
	for i, lease := range leases {
		if lease.Valid() {
			valid = append(valid, fmt.Sprintf("%s (token %d)", names[i], lease.Token()))
		}
	}
	if len(valid) > 1 {
		w.violate("several valid leaders: %s", strings.Join(valid, ", "))
	}
}

// landed checks every change of the register. The caller holds the store's lock.
func (w *world) landed(who *life, old, now leasehold.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if who != nil && time.Now().Before(w.taken) && w.cfg.Dates != WrongAges {
		w.violateLocked("%s wrote token %d while a foreign client holds the lock", who.label(), now.Token)
	}
	if who != nil && who.node >= 0 && now.Token == old.Token+1 && !old.Released() && old.TTL > 0 && old.Holder != who.identity {
		// Whatever ages were told: not before a TTL has passed since this process last saw something else there.
		since, ok := who.client.sawOther()
		if least := time.Duration(float64(old.TTL) * (1 + w.cfg.Drift)); ok && who.clock.Now().Mono-since < least {
			w.violateLocked("%s took token %d over after %v", who.name, old.Token, who.clock.Now().Mono-since)
		}
	}
	switch {
	case now.Token < old.Token && !w.forgetful:
		w.violateLocked("token went back from %d to %d by %v", old.Token, now.Token, who.label())
	case now.Token > old.Token+1 && !w.forgetful:
		w.violateLocked("token jumped from %d to %d by %v", old.Token, now.Token, who.label())
	case now.Token == old.Token && now.Token > 0 && old.Released() && !now.Released(): // a client without tokens writes 0 again and again
		w.violateLocked("token %d came back to life by %v", now.Token, who.label())
	}
	if !now.Released() || old.Released() || who == nil {
		return
	}
	w.broken[now.Token] = who.node < 0
	// A release: nobody's callback may still run under that token, unless an administrator broke it.
	for _, l := range w.lives {
		if l.lease == nil || l.lease.Token() != now.Token || l.dead.Load() {
			continue
		}
		if l == who {
			w.violateLocked("%s released token %d while its callback runs", l.name, now.Token)
		}
		l.blind, l.woke = true, time.Now()
	}
}

func (l *life) label() string {
	if l == nil {
		return "a foreign client"
	}
	return l.name
}

// act does one thing to a node, and undoes it later.
func (w *world) act(a Action) {
	w.mu.Lock()
	l := w.nodes[a.Node]
	if l.clock.isFrozen() && (strings.Contains(a.Kind, "wall clock") || strings.Contains(a.Kind, "pause") || a.Kind == "suspend") {
		w.mu.Unlock()
		return // one sleep at a time
	}
	w.stats.Faults[a.Kind]++
	w.mu.Unlock()
	w.log(l.name, "*** %s for %v", a.Kind, a.For.Round(time.Millisecond))
	undo := func(f func()) { time.AfterFunc(a.For, f) }
	switch a.Kind {
	case "partition":
		l.client.partition(true)
		undo(func() { l.client.partition(false) })
	case "suspend":
		w.freeze(l, suspended, a.For, 0)
	case "suspend, wall clock set back": // only BOOTTIME has counted the sleep
		w.freeze(l, suspended, a.For, -a.For)
	case "pause":
		w.mu.Lock()
		l.blind, l.still = true, true
		w.mu.Unlock()
		w.freeze(l, paused, a.For, 0)
	case "pause, wall clock set right": // only the wall clock, which a time daemon has set
		w.freeze(l, paused, a.For, a.For)
	case "crash", "crash and restart", "crash and reclaim":
		l.crash()
		undo(func() { w.restart(l, a.Kind == "crash and reclaim") })
	case "resign":
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		if !l.clock.isFrozen() {
			for _, e := range l.electors {
				_ = e.Resign(ended)
			}
		}
	case "break":
		w.breakLock(l, a)
	case "step wall clock":
		l.clock.step(a.Arg)
	case "stop and start":
		l.stop()
		go func() {
			l.running.Wait()
			time.Sleep(a.For)
			w.restart(l, false)
		}()
	}
}

// freeze stops a machine for a while; on waking its wall clock is found to have been moved.
func (w *world) freeze(l *life, how frozen, d, step time.Duration) {
	l.clock.freeze(how)
	l.clock.step(step)
	time.AfterFunc(d, func() { w.thaw(l) })
}

func (w *world) thaw(l *life) {
	w.mu.Lock()
	l.woke = time.Now()
	if l.still {
		l.still, l.stood = false, time.Now()
	}
	w.mu.Unlock()
	w.log(l.name, "*** goes on")
	l.clock.thaw()
}

// breakLock has an administrator on another machine break the term that is there.
func (w *world) breakLock(l *life, a Action) {
	admin := &life{w: w, name: fmt.Sprintf("admin%d", a.At), node: -1, clock: newNodeClock(1, 0, w.rng("admin", a.At))}
	admin.client = &client{who: admin, rand: w.rng("requests", admin.name)}
	lock, err := leasehold.NewLock(admin.client.store(), "lock", export.WithClock.(func(clock.Clock) leasehold.Option)(admin.clock), leasehold.WithLogger(nil))
	if err != nil {
		panic(err)
	}
	go func() {
		if rec, err := lock.Inspect(context.Background()); err == nil {
			_ = lock.Break(context.Background(), rec.Token)
		}
	}()
}

// crash ends a process with everything in it, except what is on its way to the store.
func (l *life) crash() {
	l.dead.Store(true)
	l.clock.thaw() // the simulation's own goroutines must come to an end
	l.stop()
}

// restart begins the next life of a node whose last one is over.
func (w *world) restart(l *life, reclaim bool) {
	w.mu.Lock()
	current := w.nodes[l.node] == l
	generation := 0
	for _, other := range w.lives {
		if other.node == l.node {
			generation++
		}
	}
	w.mu.Unlock()
	if !current {
		return
	}
	c := newNodeClock(l.clock.rate, 0, w.rng("jitter", l.node, generation))
	c.base = l.clock.Now()
	w.start(l.node, generation, c, fmt.Sprint("node", l.node), reclaim)
}

// settle ends the chaos, and expects a leader within a bound, and no other after it.
func (w *world) settle() {
	w.mu.Lock()
	w.calm = true
	lives := slices.Clone(w.nodes)
	w.mu.Unlock()
	for _, l := range lives {
		l.client.partition(false)
		if !l.dead.Load() && l.clock.isFrozen() {
			w.thaw(l)
		}
	}
	w.log("world", "*** all is well from here on")
	// A last ghost's TTL, a candidate's longest back-off, a cool-off, and a request or two.
	time.Sleep(4 * w.cfg.TTL)
	leader := func() (who *life, token uint64) {
		w.mu.Lock()
		nodes := slices.Clone(w.nodes)
		w.mu.Unlock()
		for _, l := range nodes {
			for _, e := range l.electors {
				if e.IsLeader() {
					rec, _ := e.Leader()
					return l, rec.Token
				}
			}
		}
		return nil, 0
	}
	first, token := leader()
	if first == nil && !w.cfg.Foreign {
		w.violate("no leader %v after the last fault", 4*w.cfg.TTL)
	}
	time.Sleep(2 * w.cfg.TTL)
	if second, again := leader(); first != nil && w.cfg.Dates != WrongAges && (second != first || again != token) {
		w.violate("leadership changed without cause: %s with %d, then %s with %d", first.label(), token, second.label(), again)
	}
	w.mu.Lock()
	for l, times := range w.requests {
		if n := busiest(times, w.cfg.TTL); n > maxRequests {
			w.violateLocked("request storm: %s sent %d requests within a TTL", l.name, n)
		}
	}
	w.mu.Unlock()
}

// maxRequests bounds what one node may send within one TTL, whatever happens.
const maxRequests = 60

// busiest is the largest number of times within any window.
func busiest(times []time.Time, window time.Duration) int {
	most, from := 0, 0
	for i := range times {
		for times[i].Sub(times[from]) > window {
			from++
		}
		most = max(most, i-from+1)
	}
	return most
}

// stopAll ends every elector, which must leave a released lock.
func (w *world) stopAll() {
	w.mu.Lock()
	lives := slices.Clone(w.lives)
	w.mu.Unlock()
	for _, l := range lives {
		l.stop()
	}
	for _, l := range lives {
		l.running.Wait()
		for _, e := range l.electors {
			if e.started != e.stopped {
				w.violate("%s: OnStartedLeading was called %d times, OnStoppedLeading %d times", l.name, e.started, e.stopped)
			}
		}
	}
	time.Sleep(w.cfg.TTL * 4) // timers and ghosts run out
	if rec := w.store.rec; w.store.exists && !rec.Released() && !w.cfg.Foreign {
		w.violate("the lock was left held by %s, token %d", rec.Holder, rec.Token)
	}
}

// foreignClient knows only expires_at and token, and takes only what is released. Now and then it erases the token, or keeps
// the members that it does not know.
func (w *world) foreignClient(ctx context.Context) {
	r := w.rng("foreign")
	for ctx.Err() == nil {
		time.Sleep(time.Duration(r.Int64N(int64(2 * w.cfg.TTL))))
		if w.faulty() {
			w.foreignTake(r)
		}
	}
}

func (w *world) foreignTake(r *rand.Rand) {
	got := w.store.apply(nil, op{kind: "get"})
	var rec leasehold.Record
	if got.err != nil || json.Unmarshal(got.obj.Body, &rec) != nil || !rec.Released() {
		return
	}
	expires := time.Now().Add(time.Duration(r.Int64N(int64(w.cfg.TTL)))).UnixMilli()
	body := fmt.Sprintf(`{"expires_at": %d.%03d, "token": %d}`, expires/1000, expires%1000, rec.Token+1)
	if r.IntN(3) == 0 {
		w.mu.Lock()
		w.forgetful = true
		w.mu.Unlock()
		body = fmt.Sprintf(`{"expires_at": %d.%03d}`, expires/1000, expires%1000)
	}
	if r.IntN(3) == 0 { // it keeps the members that it does not know
		members := map[string]any{}
		_ = json.Unmarshal(got.obj.Body, &members)
		until := time.Now().Add(time.Duration(r.Int64N(int64(w.cfg.TTL / 2))))
		members["token"], members["expires_at"] = rec.Token+1, float64(until.UnixMilli())/1000
		kept, _ := json.Marshal(members)
		body = string(kept)
		w.mu.Lock()
		w.taken = until
		w.mu.Unlock()
	}
	r2 := w.store.apply(nil, op{kind: "update", body: []byte(body), ifMatch: got.obj.ETag})
	w.log("foreign", "takes the lock: %s %v", body, r2.err)
}

func (w *world) faulty() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.calm && time.Since(w.began) < w.cfg.Chaos*7/10
}

func (w *world) count(l *life, f fate) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stats.Requests++
	w.requests[l] = append(w.requests[l], time.Now())
	if f.name != "ok" {
		w.stats.Faults[f.name]++
	}
}

func (w *world) log(who, format string, args ...any) {
	if w.trace == nil {
		return
	}
	line := fmt.Sprintf("%12.6f  %-8s %s", time.Since(w.began).Seconds(), who, fmt.Sprintf(format, args...))
	w.mu.Lock()
	defer w.mu.Unlock()
	*w.trace = append(*w.trace, line)
}

func (w *world) violate(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.violateLocked(format, args...)
}

func (w *world) violateLocked(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	w.violations = append(w.violations, text)
	if w.trace != nil {
		*w.trace = append(*w.trace, fmt.Sprintf("%12.6f  %-8s %s", time.Since(w.began).Seconds(), "!!!!", text))
	}
}
