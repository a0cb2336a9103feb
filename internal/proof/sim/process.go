package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/testopt"
)

// process is one process on one node, from its start to its crash or stop.
type process struct {
	machine
	w          *world
	identity   string
	client     *client
	lock       *leasehold.Lock
	electors   []*elector
	candidates int              // goroutines that acquire the lock or read it
	reading    *reading         // what it reads without being a candidate; nil unless it does
	process    leasehold.Option // a process of its own
	reclaims   bool             // WithReclaim
	timing                      // of p.lock
	whims      *rand.Rand       // of how it ends its leases; guarded by w.mu
	running    context.Context  // ended by stop
	stop       context.CancelFunc
	goroutines sync.WaitGroup

	// Guarded by w.mu.
	lease *leasehold.Lease // of the function that runs now, or that began last
	// since its last renewal all its clocks stood still, or its term was broken: only fencing can
	// stop it
	excused         bool
	resumes         bool             // lease is of a term that another process has begun
	pausedNow       bool             // none of its clocks counts this pause
	newTerms        []time.Time      // when it saw a term begin
	released        []time.Time      // when it released, or failed to
	wakes           []time.Time      // when it was woken
	pauseEnded      time.Time        // end of the last such pause
	pausedInAcquire bool             // that pause was within the acquisition of the current term
	unguarded       *leasehold.Lease // its last lease that was acquired without a function
	// monotonic time before which the process may not acquire again, because unguarded was lost
	notBefore time.Duration
	dropping  bool // it acquires with a Lock of its own: see dropLock
}

// The nodes of processes that are not candidates.
const (
	administrator = -1 - iota // breaks locks
	reader                    // watches and inspects
	visitor                   // asks once
)

// elector is an Elector and the number of its callbacks.
type elector struct {
	*leasehold.Elector
	p                *process
	started, stopped int // guarded by w.mu
}

// newProcess is a process that does not run yet.
func (w *world) newProcess(node int, name, identity string, c *nodeClock) *process {
	p := &process{
		w: w, machine: w.newMachine(node, name, c), identity: identity, process: testopt.NewProcess(),
		timing: w.cfg.timing(name),
	}
	p.client = w.newClient(p)
	p.running, p.stop = context.WithCancel(context.Background())
	if node < 0 {
		p.lock = p.newLock(p.timing, false)
	}
	return p
}

// startNode starts a process on a node, unless the world is over and nobody would stop it.
func (w *world) startNode(node int, c *nodeClock, reclaim bool) {
	name := fmt.Sprintf("node%d.%d", node, c.generation)
	identity := fmt.Sprint("node", node)
	if w.cfg.Copies && c.generation > 0 { // a copy of this machine may have that name, and live
		identity = name
	}
	p := w.newProcess(node, name, identity, c)
	p.reclaims = reclaim || c.generation == 0 && w.cfg.Abandons && w.rng("reclaims", node).IntN(2) == 0
	if w.cfg.Copies && node > 0 && c.generation == 0 {
		p.copyOf(w.nodes[0])
	}
	p.lock = p.newLock(p.timing, p.reclaims)
	p.newElector()
	if w.cfg.Siblings {
		p.newElector()
	}
	w.log(p.name, "starts")
	w.mu.Lock()
	defer w.mu.Unlock()
	ctx := p.running
	if !w.joins(p) {
		p.stop()
		return
	}
	w.nodes[node] = p
	for i, e := range p.electors {
		p.goroutines.Go(func() {
			time.Sleep(time.Duration(i) * 1301 * time.Nanosecond) // no two goroutines act at one instant
			p.run(ctx, e)
		})
	}
	if w.cfg.Handles {
		p.candidates++
	}
	if w.cfg.Siblings {
		p.candidates += 2
		p.goroutines.Go(func() { p.repeat(ctx, p.runDo) })
		p.goroutines.Go(func() { p.repeat(ctx, p.holdUnguarded) })
		if p.dropsLocks() {
			p.candidates++
			p.goroutines.Go(func() { p.repeat(ctx, p.dropLock) })
		}
	}
}

// run runs an elector until ctx ends. A page that is taken for the lock object may end Run before
// its first good answer.
func (p *process) run(ctx context.Context, e *elector) {
	run := e.Run
	if p.w.cfg.Abandons && p.whim(2) == 0 {
		run = e.runOnce
	}
	err := run(ctx)
	for p.w.cfg.Pages && final(err) && ctx.Err() == nil {
		_ = p.clock.Sleep(ctx, p.draw(p.w.cfg.TTL/5))
		err = run(ctx)
	}
	if err != nil && !p.crashed.Load() && !mayEndRun(err) {
		p.w.violate("%s: Run returned early: %v", p.name, err)
	}
}

func (p *process) newLock(t timing, reclaim bool) *leasehold.Lock {
	cfg := p.w.cfg
	opts := []leasehold.Option{
		testopt.WithClock(p.clock), p.process, leasehold.WithTTL(t.ttl), leasehold.WithSafetyMargin(t.margin),
		leasehold.WithPollInterval(t.poll), leasehold.WithClockDrift(cfg.Drift),
		leasehold.WithHolder(p.identity), leasehold.WithLogger(slog.New(slog.DiscardHandler)),
		leasehold.WithObserver(p.observe),
	}
	if cfg.SlowCreates {
		opts = append(opts, leasehold.WithLogger(slog.New(listener(p.checkLog))))
	}
	if reclaim {
		opts = append(opts, leasehold.WithReclaim())
	}
	l, err := leasehold.NewLock(p.client.store(), lockKey, opts...)
	if err != nil {
		panic(err)
	}
	if cfg.Offers {
		heir(l, p.passOn)
	}
	return l
}

func (p *process) newElector() {
	e := &elector{p: p}
	var err error
	if e.Elector, err = leasehold.NewElector(p.lock, leasehold.Callbacks{
		OnStartedLeading: e.startedLeading,
		OnStoppedLeading: e.stoppedLeading,
	}); err != nil {
		panic(err)
	}
	p.electors = append(p.electors, e)
	p.candidates++
}

// mayEndRun reports whether Run may end with err: its release failed, or the store has never
// answered.
func mayEndRun(err error) bool {
	return strings.Contains(err.Error(), "releasing") || errors.Is(err, context.Canceled)
}

func (e *elector) startedLeading(ctx context.Context, lease *leasehold.Lease) {
	e.p.w.mu.Lock()
	e.started++
	e.p.w.mu.Unlock()
	e.p.lead(ctx, lease)
}

func (e *elector) stoppedLeading(cause error) {
	w := e.p.w
	w.mu.Lock()
	e.stopped++
	unpaired := e.stopped != e.started
	w.mu.Unlock()
	if unpaired {
		w.violate("%s: OnStoppedLeading was not called once per OnStartedLeading", e.p.name)
	}
	w.log(e.p.name, "stopped leading: %v", firstLine(cause))
}

// lead is the function of every term: while its lease is valid, it writes to a fenced resource.
func (p *process) lead(ctx context.Context, lease *leasehold.Lease) {
	w := p.w
	w.mu.Lock()
	excused := w.broken[lease.Token()] || p.pausedInAcquire
	if p.lease != nil && !p.resumes {
		w.violateLocked("%s: a function starts under token %d while the function of token %d still runs in the "+
			"same process", p.name, lease.Token(), p.lease.Token())
	}
	p.lease, p.excused, p.resumes = lease, excused, false
	w.mu.Unlock()
	w.log(p.name, "leads with token %d", lease.Token())
	w.trace.holds(lease)
	if lease.Valid() {
		w.trace.works(p, lease)
	}
	p.fencedWrite(lease)
	for p.clock.Sleep(ctx, w.cfg.TTL/8+p.draw(time.Second)) == nil {
		w.checkOneValidLease()
		if lease.Valid() {
			p.fencedWrite(lease)
		}
		p.mayEndEarly(lease)
		p.mayHandOver(lease)
	}
	p.leaves(lease)
	windDown := p.draw(w.cfg.TTL / 10)
	if p.draw(20) == 0 && (!w.cfg.Long || w.faultsOn()) { // not when checkOutage cuts the leader off
		windDown = ttlOf(lease) // longer than its lease
	}
	_ = p.clock.Sleep(context.Background(), windDown)
	w.markIf(w.token.Load() > lease.Token(), "a function outlives its term")
	w.log(p.name, "function of token %d returns", lease.Token())
	w.trace.returns(lease)
	w.mu.Lock()
	if p.lease == lease {
		p.lease = nil
	}
	w.mu.Unlock()
}

// repeat calls use now and then while requests may go wrong.
func (p *process) repeat(ctx context.Context, use func(context.Context)) {
	for p.clock.Sleep(ctx, p.draw(2*p.w.cfg.TTL)) == nil && p.w.faultsOn() && !p.crashed.Load() {
		use(ctx)
	}
}

// runDo leads once by Lock.Do.
func (p *process) runDo(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, p.draw(3*p.w.cfg.TTL))
	defer cancel()
	valid, token := false, uint64(0)
	err := p.lock.Do(context.WithValue(ctx, waiterKey{}, ctx), func(ctx context.Context, lease *leasehold.Lease) error {
		work, stop := context.WithTimeout(ctx, p.draw(p.w.cfg.TTL))
		defer stop()
		p.lead(work, lease)
		valid, token = lease.Valid(), lease.Token()
		return nil
	})
	p.checkDo(valid, token, err)
}

// holdUnguarded holds a lease for which no function runs.
func (p *process) holdUnguarded(ctx context.Context) {
	waiting, cancel := context.WithTimeout(ctx, p.draw(3*p.w.cfg.TTL))
	lease, err := p.lock.Acquire(context.WithValue(waiting, waiterKey{}, waiting))
	cancel()
	if err != nil {
		return
	}
	p.w.trace.holds(lease)
	ended := make(chan struct{})
	p.w.mu.Lock()
	p.unguarded, p.notBefore = lease, 0
	p.w.mu.Unlock()
	defer context.AfterFunc(lease.Context(), func() {
		if errors.Is(context.Cause(lease.Context()), leasehold.ErrLost) {
			now := p.clock.Now().Mono
			p.w.mu.Lock()
			p.notBefore = now + p.margin
			p.w.mu.Unlock()
		}
		close(ended)
	})()
	_ = p.clock.Sleep(lease.Context(), p.draw(p.w.cfg.TTL))
	if lease.Context().Err() != nil {
		<-ended
	}
	if p.w.cfg.Abandons && p.whim(2) == 0 {
		p.abandon(lease)
		if p.whim(2) == 0 {
			return
		}
		_ = p.clock.Sleep(ctx, p.draw(p.w.cfg.TTL))
	}
	p.releaseNow(lease)
}

func (p *process) label() string {
	if p == nil {
		return "a foreign client"
	}
	return p.name
}

func firstLine(err error) string {
	s, _, _ := strings.Cut(fmt.Sprint(err), "\n")
	return s
}

// final reports whether err is one that Run and Watch do not retry.
func final(err error) bool {
	return errors.Is(err, leasehold.ErrPermanent)
}
