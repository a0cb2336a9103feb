// Package explore runs two or three real Locks through every interleaving of a small world: each request waits until the
// explorer delivers it, loses it, or leaves its reply out; time stands still until the explorer moves it to the next
// timer. The search is complete up to a number of steps and faults. Where internal/sim goes far, this leaves nothing out.
package explore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/export"
)

// Config bounds a search.
type Config struct {
	Rates    []float64 // of the clients' clocks: one client each
	Terms    int       // that a client tries for
	Steps    int       // of one path
	Faults   int       // on one path: lost requests and replies, ghosts, duplicates, wrong answers
	Crashes  int       // on one path: a client's next life knows nothing of the last
	Suspends int       // on one path: the monotonic clock of a client misses a step in time
	TellsAge bool      // the store tells Object.Age: the true one in the first reply that shows a version, an hour more in all others
}

const (
	ttl    = 100 * time.Second // of no meaning but in proportion
	margin = ttl / 100
	drift  = 0.02 // of which ttl and margin leave clocks 1 % each
)

// Result is what a search has found.
type Result struct {
	Paths, States int
	Cut           int // paths that ended for want of steps
	Terms         int // the most on one path
	Violation     string
	Trace         []string // of the path that shows it
}

// Search walks every path. It ends at the first violation.
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
	seen   map[[16]byte]struct{} // fingerprints of states
	todo   [][]int8              // beginnings of paths, each a list of choices
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

// walk follows a path to its end: through the given choices, and then the first of each step; it notes all others.
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
		if w.violation != "" {
			s.mu.Lock()
			s.result.Violation, s.result.Trace = w.violation, w.trace
			s.mu.Unlock()
			return
		}
		choices := w.choices()
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

// world is one path under way. Between two steps everybody in it waits, so that only one goroutine runs at a time.
type world struct {
	cfg       Config
	now       time.Duration // true time
	mu        sync.Mutex    // guards all of it against the clients' goroutines
	clients   []*client
	object    *write // what stands in the store
	landedAt  time.Duration
	copies    int
	ghosts    []*write
	faults    int
	crashes   int
	suspends  int
	tokens    map[uint64]*client
	violation string
	trace     []string
	over      context.Context
	stop      context.CancelFunc
}

// write is one conditional PUT on its way.
type write struct {
	by      *client
	round   int // of by
	seq     int // in that round
	name    string
	body    []byte
	rec     leasehold.Record
	create  bool
	ifMatch string
	etag    string // once landed
}

// request is one that a client waits for.
type request struct {
	get   bool
	put   *write
	reply chan reply
}

type reply struct {
	obj leasehold.Object
	err error
	of  *write // the version in obj
}

// client is one process. Its history is all it has ever observed, and so determines its state.
type client struct {
	w       *world
	name    string
	life    int
	rate    float64
	base    clock.Reading // at true time since
	since   time.Duration
	timers  []*timer
	pending *request
	writes  int
	lease   *leasehold.Lease
	dead    bool
	ctx     context.Context
	kill    context.CancelFunc
	rounds  int
	shown   *write // by the last read of this round
	history []event
}

// event is something that a client has observed, or done.
type event struct {
	at   time.Duration // true time, which the client's clocks tell but for a constant and the suspends
	what string
	of   *write // the version it was about, if any
}

func newWorld(cfg Config) *world {
	w := &world{cfg: cfg, tokens: make(map[uint64]*client)}
	w.over, w.stop = context.WithCancel(context.Background())
	for i := range cfg.Rates {
		w.start(i, 0, 0)
	}
	return w
}

func (w *world) start(i, life, rounds int) {
	c := &client{w: w, name: fmt.Sprint(string(rune('A'+i)), life), life: life, rate: w.cfg.Rates[i], rounds: rounds}
	c.ctx, c.kill = context.WithCancel(w.over)
	if i < len(w.clients) {
		w.clients[i] = c
	} else {
		w.clients = append(w.clients, c)
	}
	go c.run()
}

// run is the client's program: take the lock, prove the lease, release it. Each term is of a new Lock, as in a program that
// is started anew, so that what came before is forgotten by all but the store.
func (c *client) run() {
	for c.rounds-c.life < c.w.cfg.Terms {
		c.forget()
		lock, err := leasehold.NewLock(c, "lock", export.WithClock.(func(clock.Clock) leasehold.Option)(c), leasehold.WithTTL(ttl),
			leasehold.WithSafetyMargin(margin), leasehold.WithClockDrift(drift), leasehold.WithManualRenewal(), leasehold.WithIdentity("x"), leasehold.WithLogger(nil))
		if err != nil {
			panic(err)
		}
		lease, err := lock.TryAcquire(c.ctx)
		if held, ok := errors.AsType[*leasehold.HeldError](err); ok {
			_ = c.Sleep(c.ctx, held.Wait)
			lease, err = lock.TryAcquire(c.ctx)
		}
		if err != nil {
			_ = c.Sleep(c.ctx, ttl/2)
			continue
		}
		c.acquired(lease)
		_ = lease.Renew(c.ctx)
		_ = c.Sleep(lease.Context(), ttl/3)
		_ = lease.Release(c.ctx)
	}
	c.forget()
}

// forget begins a new life. That of the old lease is over.
func (c *client) forget() {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.rounds++
	c.writes, c.shown = 0, nil
	c.base, c.since = clock.Reading{Wall: time.Hour}, c.w.now
	c.lease, c.timers, c.history = nil, nil, nil
}

func (c *client) acquired(lease *leasehold.Lease) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if c.dead {
		return
	}
	c.lease = lease
	if other, taken := c.w.tokens[lease.Token()]; taken {
		c.w.violate("token %d was given to %s and to %s", lease.Token(), other.name, c.name)
	}
	c.w.tokens[lease.Token()] = c
	c.note("acquired", nil)
}

func (w *world) violate(format string, args ...any) {
	if w.violation == "" {
		w.violation = fmt.Sprintf(format, args...)
		w.log("!!!! %s", w.violation)
	}
}

func (w *world) log(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%8.3f  ", w.now.Seconds())+fmt.Sprintf(format, args...))
}

// valid lists the leases that are valid now.
func (w *world) valid() string {
	var valid []string
	for _, c := range w.clients {
		if c.lease != nil && c.lease.Valid() {
			valid = append(valid, fmt.Sprintf("%s (token %d)", c.name, c.lease.Token()))
		}
	}
	return strings.Join(valid, ", ")
}

// check holds at every step: at most one valid lease, and no context of another's goes on beside it.
func (w *world) check() {
	valid := w.valid()
	if strings.Contains(valid, ",") {
		w.violate("several valid leases: %s", valid)
	}
	if w.suspends > 0 { // Context is promised to lag then
		return
	}
	for _, c := range w.clients {
		if c.lease != nil && c.lease.Context().Err() == nil && valid != "" && !strings.HasPrefix(valid, c.name+" ") {
			w.violate("the context of %s goes on beside the lease of %s", c.name, valid)
		}
	}
}

// choice is one thing that can happen next.
type choice struct {
	name string
	do   func()
}

// choices lists them in an order that depends on nothing but the state.
func (w *world) choices() []choice {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []choice
	add := func(name string, do func()) {
		list = append(list, choice{name, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			do()
		}})
	}
	for _, c := range w.clients {
		if c.pending == nil {
			continue
		}
		r := c.pending
		what := c.name + " get"
		if r.put != nil {
			what = r.put.name
		}
		add(what+": served", func() { c.answer(w.serve(r)) })
		if w.faults == w.cfg.Faults {
			continue
		}
		fault := func(name string, do func()) {
			add(what+": "+name, func() {
				w.faults++
				do()
			})
		}
		fault("lost, timed out", func() { c.answer(reply{err: context.DeadlineExceeded}) })
		if r.get {
			continue
		}
		fault("applied, no reply", func() { w.serve(r); c.answer(reply{err: io.ErrUnexpectedEOF}) })
		fault("applied, answered 412", func() { w.serve(r); c.answer(reply{err: leasehold.ErrPreconditionFailed}) })
		fault("timed out, still on its way", func() {
			w.ghosts = append(w.ghosts, r.put)
			c.answer(reply{err: context.DeadlineExceeded})
		})
		fault("applied, sent twice", func() {
			w.ghosts = append(w.ghosts, r.put)
			c.answer(w.serve(r))
		})
	}
	for i, g := range w.ghosts {
		add(g.name+" lands late", func() {
			w.ghosts = slices.Delete(slices.Clone(w.ghosts), i, i+1)
			w.land(g)
		})
	}
	if _, ok := w.nextTimer(nil); ok {
		list = append(list, choice{"time passes", func() { w.wait(nil) }})
		for _, c := range w.clients {
			if w.suspends < w.cfg.Suspends && c.lease != nil {
				list = append(list, choice{"time passes, " + c.name + " is suspended", func() {
					w.suspends++
					w.wait(c)
				}})
			}
		}
	}
	for i, c := range w.clients {
		if w.crashes < w.cfg.Crashes && c.lease != nil {
			add(c.name+" crashes and starts again", func() {
				w.crashes++
				c.dead, c.lease, c.timers = true, nil, nil
				if c.pending != nil && c.pending.put != nil {
					w.ghosts = append(w.ghosts, c.pending.put) // it may have left the machine
				}
				c.pending = nil
				c.kill()
				w.start(i, c.life+1, c.rounds)
			})
		}
	}
	return list
}

// serve carries out a request that arrives.
func (w *world) serve(r *request) reply {
	if r.put != nil {
		return w.land(r.put)
	}
	if w.object == nil {
		return reply{err: leasehold.ErrNotExist}
	}
	obj := leasehold.Object{Body: w.object.body, ETag: w.object.etag}
	if w.cfg.TellsAge {
		obj.Age = w.now - w.landedAt
	}
	return reply{obj: obj, of: w.object}
}

// land applies a write, and checks what may never happen to the register.
func (w *world) land(p *write) reply {
	switch {
	case p.create && w.object != nil, !p.create && w.object != nil && w.object.etag != p.ifMatch:
		return reply{err: leasehold.ErrPreconditionFailed}
	case !p.create && w.object == nil:
		return reply{err: leasehold.ErrNotExist}
	}
	var old leasehold.Record
	if w.object != nil {
		old = w.object.rec
	}
	switch now := p.rec; {
	case now.Token < old.Token || now.Token > old.Token+1:
		w.violate("%s: token went from %d to %d", p.name, old.Token, now.Token)
	case now.Token == old.Token && old.Released() && !now.Released():
		w.violate("%s: token %d came back to life", p.name, now.Token)
	}
	landed := *p
	if landed.etag != "" { // a second copy
		w.copies++
	}
	landed.etag = fmt.Sprintf("%q", fmt.Sprint(p.name, "/", w.copies))
	p.etag = landed.etag
	w.object, w.landedAt = &landed, w.now
	return reply{obj: leasehold.Object{ETag: landed.etag}, of: &landed}
}

func (c *client) answer(r reply) {
	pending := c.pending
	c.pending = nil
	if pending.get && r.err == nil {
		if c.w.cfg.TellsAge && c.shown == r.of { // the store's clock was stepped
			r.obj.Age += time.Hour
		}
		c.shown = r.of
	}
	c.note(fmt.Sprint(r.err, r.obj.Age), r.of)
	pending.reply <- r
}

// note adds to the client's history.
func (c *client) note(what string, of *write) {
	c.history = append(c.history, event{c.w.now, what, of})
}

// fingerprint is equal for two states only if everything to come is equal too: a client is a function of its history.
// Times count by how long ago they were, and versions by the order in which they are met here.
func (w *world) fingerprint() [16]byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	var b []byte
	tokens := uint64(0) // count from the last one
	if w.object != nil {
		tokens = w.object.rec.Token
	}
	names := make(map[string]int)
	version := func(v *write) {
		n, met := names[v.etag]
		if !met {
			n = len(names)
			names[v.etag] = n
			b = w.appendWrite(b, v, tokens)
		}
		b = fmt.Append(b, " #", n)
	}
	sent := func(p *write) {
		b = w.appendWrite(b, p, tokens)
		n, met := names[p.ifMatch] // a version that is neither known to anyone nor in the store is gone for good
		b = fmt.Append(b, p.create, met, n)
	}
	b = fmt.Append(b, w.faults, w.crashes, w.suspends, w.object != nil)
	if w.object != nil {
		version(w.object)
		if w.cfg.TellsAge {
			b = fmt.Append(b, w.now-w.landedAt)
		}
	}
	for _, c := range w.clients {
		b = fmt.Append(b, "\n", c.rounds, c.pending != nil, c.lease != nil)
		for _, e := range c.history {
			b = fmt.Append(b, " ", w.now-e.at, e.what)
			if e.of != nil {
				version(e.of)
			}
		}
		for _, t := range c.timers {
			b = fmt.Append(b, " timer ", t.due-c.read().Mono)
		}
	}
	for _, c := range w.clients {
		if c.pending != nil && c.pending.put != nil {
			sent(c.pending.put)
		}
	}
	for _, g := range w.ghosts {
		sent(g)
	}
	h := fnv.New128a()
	_, _ = h.Write(b)
	return [16]byte(h.Sum(nil))
}

// appendWrite describes a write: its term, and whose it is if its writer would still know it.
func (w *world) appendWrite(b []byte, p *write, tokens uint64) []byte {
	b = fmt.Append(b, " token ", int64(p.rec.Token-tokens), p.rec.Released())
	if i := slices.Index(w.clients, p.by); i >= 0 && p.by.rounds == p.round {
		b = fmt.Append(b, " by ", i, ".", p.seq)
	}
	return b
}

// end lets every goroutine of the world come to its end.
func (w *world) end() {
	w.mu.Lock()
	for _, c := range w.clients {
		c.dead = true
	}
	w.mu.Unlock()
	w.stop()
}

// What follows is the client's store: every request waits for the explorer.

func (c *client) do(put *write) (leasehold.Object, error) {
	c.w.mu.Lock()
	if c.dead {
		c.w.mu.Unlock()
		return leasehold.Object{}, io.ErrClosedPipe
	}
	if put != nil {
		c.writes++
		put.by, put.round, put.seq = c, c.rounds, c.writes
		put.name = fmt.Sprintf("%s.%d put %d", c.name, put.round, put.seq)
		if err := json.Unmarshal(put.body, &put.rec); err != nil {
			c.w.violate("%s is no record: %v", put.name, err)
		}
	}
	r := &request{get: put == nil, put: put, reply: make(chan reply, 1)}
	c.pending = r
	c.note("sends", nil)
	c.w.mu.Unlock()
	select {
	case answer := <-r.reply:
		return answer.obj, answer.err
	case <-c.ctx.Done():
		return leasehold.Object{}, io.ErrClosedPipe
	}
}

// Get implements leasehold.Store.
func (c *client) Get(context.Context, string) (leasehold.Object, error) { return c.do(nil) }

// PutIfNoneMatch implements leasehold.Store.
func (c *client) PutIfNoneMatch(_ context.Context, _ string, body []byte) (string, error) {
	o, err := c.do(&write{body: body, create: true})
	return o.ETag, err
}

// PutIfMatch implements leasehold.Store.
func (c *client) PutIfMatch(_ context.Context, _ string, body []byte, etag string) (string, error) {
	o, err := c.do(&write{body: body, ifMatch: etag})
	return o.ETag, err
}

// DeleteIfMatch implements leasehold.Store.
func (c *client) DeleteIfMatch(context.Context, string, string) error {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.w.violate("%s sent a DELETE", c.name)
	return errors.ErrUnsupported
}

// And its clock, which moves only with the explorer's.

// read is what the clocks say. The caller holds w.mu.
func (c *client) read() clock.Reading {
	d := time.Duration(math.Round(float64(c.w.now-c.since) * c.rate))
	r := c.base
	r.Mono, r.Wall, r.Boot = r.Mono+d, r.Wall+d, r.Boot+d
	return r
}

// nextTimer is the true time at which the first timer of all clients but one is due.
func (w *world) nextTimer(except *client) (time.Duration, bool) {
	next := time.Duration(math.MaxInt64)
	for _, c := range w.clients {
		for _, t := range c.timers {
			if c == except {
				break
			}
			left := max(t.due-c.read().Mono, 0)
			next = min(next, w.now+time.Duration(math.Ceil(float64(left)/c.rate))+1)
		}
	}
	return next, next < math.MaxInt64
}

// wait lets time pass until somebody wakes up or a lease ends: timers that only look at the clocks are no place to stop.
func (w *world) wait(suspended *client) {
	before := w.valid()
	for {
		w.mu.Lock()
		next, ok := w.nextTimer(suspended)
		if !ok && suspended != nil {
			next, ok = w.now+ttl, true
		}
		woke := !ok || w.pass(next, suspended) || suspended != nil
		w.mu.Unlock()
		synctest.Wait()
		if after := w.valid(); woke || after != before {
			return
		}
	}
}

// pass moves time and fires what is due; the monotonic clock of a suspended client stands still meanwhile.
// It reports whether that woke anybody.
func (w *world) pass(to time.Duration, suspended *client) (woke bool) {
	for _, c := range w.clients {
		before := c.read()
		c.base, c.since = before, w.now
	}
	was := w.now
	w.now = to
	for _, c := range w.clients {
		now := c.read()
		if c == suspended {
			now.Mono = c.base.Mono
			c.note(fmt.Sprint("asleep for ", to-was), nil)
		}
		c.base, c.since = now, w.now
	}
	for _, c := range w.clients {
		for _, t := range slices.Clone(c.timers) {
			if t.due <= c.read().Mono {
				t.stop()
				c.note("timer", nil)
				woke = woke || t.sleeper
				go t.f()
			}
		}
	}
	return woke
}

type timer struct {
	c       *client
	due     time.Duration
	f       func()
	sleeper bool // somebody waits for it
}

// Now implements clock.Clock.
func (c *client) Now() clock.Reading {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	return c.read()
}

// Rand implements clock.Clock: no jitter.
func (c *client) Rand() float64 { return 0.5 }

// AfterFunc implements clock.Clock.
func (c *client) AfterFunc(d time.Duration, f func()) clock.Timer { return c.after(d, f, false) }

func (c *client) after(d time.Duration, f func(), sleeper bool) *timer {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	t := &timer{c: c, due: c.read().Mono + d, f: f, sleeper: sleeper}
	if !c.dead {
		c.timers = append(c.timers, t)
	}
	return t
}

// Sleep implements clock.Clock.
func (c *client) Sleep(ctx context.Context, d time.Duration) error {
	done := make(chan struct{})
	t := c.after(d, func() { close(done) }, true)
	defer t.Stop()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
}

// stop is Stop for a caller who holds w.mu.
func (t *timer) stop() bool {
	i := slices.Index(t.c.timers, t)
	if i < 0 {
		return false
	}
	t.c.timers = slices.Delete(slices.Clone(t.c.timers), i, i+1)
	return true
}

func (t *timer) Stop() bool {
	t.c.w.mu.Lock()
	defer t.c.w.mu.Unlock()
	return t.stop()
}

func (t *timer) Reset(d time.Duration) bool {
	t.c.w.mu.Lock()
	defer t.c.w.mu.Unlock()
	was := t.stop()
	t.due = t.c.read().Mono + d
	if !t.c.dead {
		t.c.timers = append(t.c.timers, t)
	}
	return was
}
