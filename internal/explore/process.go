package explore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/testopt"
)

// process holds locks under a session. All that it has observed, and when, determines its state.
type process struct {
	w        *sessionWorld
	index    int
	name     string
	restarts int
	ctx      context.Context
	kill     context.CancelFunc
	history  []heard // what it remembers
	steps    int     // of its program
	puts     map[string]int
	sent     map[string]clock.Reading // by version: just before it was sent
	known    clock.Reading            // just before the last write of its session was sent that it knows to have landed
	terms    map[string]bool          // of other sessions that it has seen
	held     []*hold
	dead     bool
	over     bool // its program has ended, and so has its session

	rate    float64
	started time.Duration // true time
	asleep  bool
	since   time.Duration // true time at which it fell asleep
	frozen  time.Duration // what its monotonic clock shows meanwhile
	slept   time.Duration // that its monotonic clock has not counted
	skipped time.Duration // by a dead process, which need not wait
	timers  []*alarm
}

// hold is a lease of a process, from when its function begins until Do has returned.
type hold struct {
	p       *process
	key     string
	lease   *leasehold.Lease
	running bool // the function
}

func (h *hold) payload() string { return fmt.Sprint(h.p.name, " ", h.lease.Token()) }

func (w *sessionWorld) start(index, restarts int) *process {
	p := &process{
		w: w, index: index, restarts: restarts, name: fmt.Sprint(string(rune('A'+index)), restarts),
		terms: make(map[string]bool), puts: make(map[string]int), sent: make(map[string]clock.Reading), rate: 1, started: w.now,
	}
	if index < len(w.cfg.Rates) {
		p.rate = w.cfg.Rates[index]
	}
	p.ctx, p.kill = context.WithCancel(context.Background())
	if index < len(w.processes) {
		w.processes[index] = p
	} else {
		w.processes = append(w.processes, p)
	}
	return p
}

func (p *process) options() []leasehold.Option {
	return []leasehold.Option{
		testopt.WithClock(p), leasehold.WithTTL(ttl), leasehold.WithSafetyMargin(margin), leasehold.WithClockDrift(drift),
		leasehold.WithRenewInterval(renewal), leasehold.WithPollInterval(p.w.cfg.Poll), leasehold.WithIdentity(p.name), leasehold.WithLogger(nil),
	}
}

// run is the program: hold one lock after the other, or one within the other, then end the session.
func (p *process) run() {
	if p.w.cfg.Narrow && p.index > 0 {
		select {
		case <-p.w.first:
		case <-p.ctx.Done():
		}
	}
	session, err := leasehold.NewSession(p, sessionKey(p.index), p.options()...)
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(p.ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := session.Run(ctx); err != nil && p.w.faults == 0 && !p.dead {
			p.w.violateLocked("the session of %s has ended: %v", p.name, err)
		}
	}()
	for _, locks := range p.w.cfg.Plans[p.index] {
		p.hold(p.ctx, session, locks)
		_ = p.Sleep(p.ctx, 0) // until the session has noticed
	}
	stop()
	<-ended
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.over = true
	p.step()
}

// step notes a step of the program. The caller holds w.mu.
func (p *process) step() {
	p.steps++
	p.w.events++
}

// hold holds the first of some locks and, meanwhile, the rest.
func (p *process) hold(ctx context.Context, session *leasehold.Session, locks string) {
	if locks == "" {
		_ = p.Sleep(ctx, ttl/4)
		return
	}
	h := &hold{p: p, key: "lock/" + locks[:1]}
	lock, err := session.Lock(h.key)
	if err != nil {
		panic(err)
	}
	err = lock.Do(ctx, func(ctx context.Context, lease *leasehold.Lease) error {
		h.lease = lease
		p.w.began(h)
		if p.w.cfg.Commit {
			p.w.committed(h, lease.Commit(p.ctx, []byte(h.payload())))
		}
		p.hold(ctx, session, locks[1:])
		if ctx.Err() != nil { // as late as it may
			_ = p.Sleep(p.ctx, margin*9/10)
		}
		p.w.mu.Lock()
		defer p.w.mu.Unlock()
		h.running = false
		p.step()
		return nil
	})
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.held = slices.DeleteFunc(p.held, func(other *hold) bool { return other == h })
	p.step()
	switch {
	case err == nil, p.dead, ctx.Err() != nil, errors.Is(err, leasehold.ErrLost), errors.Is(err, leasehold.ErrReleased):
	case h.lease == nil || p.w.faults == 0:
		p.w.violate("%s could not hold %s: %v", p.name, h.key, err)
	}
}

// heard is an answer that a process has heard.
type heard struct {
	key   string
	get   bool
	sent  time.Duration // by its monotonic clock
	first time.Duration // of a GET: when this version was first known
	err   error
	of    *version
}

// heard notes an answer, and forgets those that it outdates for the library: after an own PUT, and after a GET that shows another
// version, the earlier ones of this key that went well. What failed stays, because a write of unknown outcome may be remembered.
func (p *process) hears(c *call, a answer) {
	e := heard{key: c.key, get: c.put == nil, sent: c.sent, first: p.reading().Mono, err: a.err, of: a.of}
	if c.put != nil {
		e.first = c.sent
	}
	wellKnown := a.err == nil || e.get && errors.Is(a.err, leasehold.ErrNotExist)
	if wellKnown {
		p.history = slices.DeleteFunc(p.history, func(o heard) bool {
			if o.key != e.key || o.err != nil && (!o.get || !errors.Is(o.err, leasehold.ErrNotExist)) {
				return false
			}
			if e.get && o.of == e.of {
				e.first = o.first
			}
			if of := o.of; of != nil && of != e.of && of.by != p && of.rec.SessionID != "" { // terms of which it may know that they are over
				p.terms[fmt.Sprint(o.key, of.rec.SessionID == w0(e.of), of.rec.Token, of.rec.Released())] = true
			}
			return true
		})
	}
	p.history = append(p.history, e)
}

func w0(v *version) string {
	if v == nil {
		return ""
	}
	return v.rec.SessionID
}

// remembers describes the process's state: what it has heard, and when its timers are due.
func (p *process) remembers(b []byte) []byte {
	if p.dead {
		return append(b, "dead"...)
	}
	now := p.reading()
	b = fmt.Append(b, "\n\n", p.name, p.steps, p.asleep, p.over, rounded(now.Elapsed(p.known)), rounded(now.Boot-now.Mono))
	if p.asleep {
		b = fmt.Append(b, rounded(p.w.now-p.since))
	}
	for _, e := range p.history {
		b = fmt.Append(b, "\n", e.key, e.get, rounded(now.Mono-e.sent), rounded(now.Mono-e.first), e.err)
		if e.of != nil {
			b = e.of.describe(b)
		}
	}
	for _, t := range p.timers {
		b = fmt.Append(b, " ", rounded(t.due-now.Mono))
	}
	terms := slices.Sorted(maps.Keys(p.terms))
	b = fmt.Append(b, terms)
	for _, h := range p.held {
		b = fmt.Append(b, "\n", h.key, h.lease.Token(), h.running, h.lease.Context().Err() != nil)
	}
	return b
}

// reading is what the clocks show. The caller holds w.mu.
func (p *process) reading() clock.Reading {
	d := p.counted(p.w.now)
	r := clock.Reading{Mono: d - p.slept, Wall: time.Hour + d, Boot: d}
	if p.asleep {
		r.Mono = p.frozen
	}
	r.Mono, r.Wall, r.Boot = r.Mono+p.skipped, r.Wall+p.skipped, r.Boot+p.skipped
	return r
}

// counted is what the clocks have counted at a true time.
func (p *process) counted(at time.Duration) time.Duration {
	return time.Duration(math.Round(float64(at-p.started) * p.rate))
}

// when is the first true time at which the monotonic clock, if it goes, shows at least mono.
func (p *process) when(mono time.Duration) time.Duration {
	at := p.started + time.Duration(float64(mono+p.slept)/p.rate) - 1
	for p.counted(at)-p.slept < mono {
		at++
	}
	return max(at, p.w.now)
}

func (p *process) sleep() {
	p.frozen = p.reading().Mono
	p.asleep, p.since = true, p.w.now
}

func (p *process) wake() {
	p.asleep, p.slept = false, p.counted(p.w.now)-p.frozen
}

// die makes every goroutine of the process return, the sooner the better. The caller holds w.mu.
func (p *process) die() {
	p.dead, p.asleep, p.held = true, false, nil
	p.kill()
	for _, c := range slices.Clone(p.w.calls) {
		if c.p == p {
			c.answer(answer{err: errDead})
		}
	}
	for _, t := range p.timers {
		p.skipped += max(t.due-p.reading().Mono, 0)
		go t.f()
	}
	p.timers = nil
}

var errDead = fmt.Errorf("%w: the process is dead", leasehold.ErrPermanent)

// Now implements clock.Clock.
func (p *process) Now() clock.Reading {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	return p.reading()
}

// Rand implements clock.Clock. There is no jitter.
func (p *process) Rand() float64 { return 0.5 }

// AfterFunc implements clock.Clock.
func (p *process) AfterFunc(d time.Duration, f func()) clock.Timer {
	t := &alarm{p: p, f: f}
	t.Reset(d)
	return t
}

// Sleep implements clock.Clock.
func (p *process) Sleep(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return clock.Wait(ctx, p, d, nil)
}

// alarm is a timer.
type alarm struct {
	p   *process
	due time.Duration // monotonic
	f   func()
}

// stop is Stop for a caller that holds w.mu.
func (t *alarm) stop() bool {
	before := len(t.p.timers)
	t.p.timers = slices.DeleteFunc(t.p.timers, func(other *alarm) bool { return other == t })
	return len(t.p.timers) < before
}

func (t *alarm) Stop() bool {
	t.p.w.mu.Lock()
	defer t.p.w.mu.Unlock()
	return t.stop()
}

func (t *alarm) Reset(d time.Duration) bool {
	p := t.p
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	was := t.stop()
	if p.dead {
		p.skipped += max(d, 0)
		go t.f()
		return was
	}
	t.due = p.reading().Mono + max(d, 0)
	p.timers = append(p.timers, t)
	slices.SortStableFunc(p.timers, func(a, b *alarm) int { return cmp.Compare(a.due, b.due) })
	return was
}
