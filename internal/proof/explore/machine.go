package explore

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/internal/clock"
)

// program is what runs on a machine. The caller of its methods holds s.mu.
type program interface {
	sends(r *request)             // labels a request that is sent, and notes it
	hears(r *request, got *reply) // notes a reply, which it may change
}

// machine is where one process runs: its clock, its timers, and its connection to the store, of
// which its program makes use as a clock.Clock and a leasehold.Store. The history of the process is
// all that it has observed, and therefore determines its state.
type machine struct {
	program
	s       *stage
	rate    float64
	base    clock.Reading // at true time since
	since   time.Duration
	asleep  bool
	dead    bool
	timers  []*timer
	pending []*request // whose replies it waits for
	life    context.Context
	kill    context.CancelFunc
	woken   int // sleeps of goroutines that have ended
	history []event
}

// event is something that a process observed or did.
type event struct {
	at   time.Duration // true time, from which the clocks differ by a constant, their rate and suspends
	what string
	of   *request // the version concerned, if any
}

func (s *stage) newMachine(p program, rate float64) *machine {
	m := &machine{program: p, s: s, rate: rate, base: clock.Reading{Wall: time.Hour}, since: s.now}
	m.life, m.kill = context.WithCancel(context.Background())
	return m
}

// note adds an event to the history. The caller holds s.mu.
func (m *machine) note(what string, of *request) {
	m.history = append(m.history, event{m.s.now, what, of})
}

// die ends the process. The caller holds s.mu.
func (m *machine) die() {
	m.dead = true
	m.kill()
	for _, t := range m.timers {
		m.fires(t)
	}
	m.timers, m.pending = nil, nil
}

// reading is what the machine's clocks show. The caller holds s.mu.
func (m *machine) reading() clock.Reading {
	d := time.Duration(math.Round(float64(m.s.now-m.since) * m.rate))
	r := m.base
	r.Wall, r.Boot = r.Wall+d, r.Boot+d
	if !m.asleep {
		r.Mono += d
	}
	return r
}

// sleepOrWake suspends or resumes the machine. Its monotonic clock stands still meanwhile.
func (m *machine) sleepOrWake(asleep bool) {
	m.base, m.since = m.reading(), m.s.now
	m.asleep = asleep
	m.note(fmt.Sprint("asleep ", asleep), nil)
}

// nextTimer is the true time at which the next timer of a machine that runs is due.
func (s *stage) nextTimer() (time.Duration, bool) {
	next := time.Duration(math.MaxInt64)
	for _, m := range s.machines {
		for _, t := range m.timers {
			if !m.asleep {
				left := max(t.due-m.reading().Mono, 0)
				next = min(next, s.now+time.Duration(math.Ceil(float64(left)/m.rate))+1)
			}
		}
	}
	return next, next < math.MaxInt64
}

// timer is a timer of a machine.
type timer struct {
	m   *machine
	due time.Duration
	f   func()
}

// Now implements clock.Clock.
func (m *machine) Now() clock.Reading {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	return m.reading()
}

// Rand implements clock.Clock. There is no jitter.
func (*machine) Rand() float64 { return 0.5 }

// AfterFunc implements clock.Clock.
func (m *machine) AfterFunc(d time.Duration, f func()) clock.Timer {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	t := &timer{m: m, f: f}
	t.start(d)
	return t
}

func (t *timer) start(d time.Duration) {
	m := t.m
	t.due = m.reading().Mono + d
	if m.dead {
		m.fires(t)
		return
	}
	m.timers = append(m.timers, t)
	slices.SortStableFunc(m.timers, func(a, b *timer) int { return cmp.Compare(a.due, b.due) })
}

// fires lets a timer of a process that is dead fire at once: whatever it still waits for has
// passed.
func (m *machine) fires(t *timer) {
	m.base.Mono += max(t.due-m.reading().Mono, 0)
	go t.f()
}

// stop is Stop for a caller that holds s.mu.
func (t *timer) stop() bool {
	i := slices.Index(t.m.timers, t)
	if i < 0 {
		return false
	}
	t.m.timers = slices.Delete(slices.Clone(t.m.timers), i, i+1)
	return true
}

// Stop implements clock.Timer.
func (t *timer) Stop() bool {
	t.m.s.mu.Lock()
	defer t.m.s.mu.Unlock()
	return t.stop()
}

// Reset implements clock.Timer.
func (t *timer) Reset(d time.Duration) bool {
	t.m.s.mu.Lock()
	defer t.m.s.mu.Unlock()
	was := t.stop()
	t.start(d)
	return was
}

// Sleep implements clock.Clock.
func (m *machine) Sleep(ctx context.Context, d time.Duration) error {
	passed := make(chan struct{})
	t := m.AfterFunc(d, func() {
		m.s.mu.Lock()
		m.woken++
		m.s.mu.Unlock()
		close(passed)
	})
	defer t.Stop()
	select {
	case <-passed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-m.life.Done():
		return m.life.Err()
	}
}
