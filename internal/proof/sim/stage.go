package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// actor is a process of a world, as the stage knows it.
type actor interface {
	comparable
	on() *machine
	meets(a Action)          // notes what is about to happen to it
	goesOn(was machineState) // notes that its machine runs again
	crash()                  // lets nothing more of it reach the store
	halt()                   // begins to stop it gracefully
	ends(a Action)           // waits until it has stopped; a is why, if it is not the end of the world
	wake()                   // tells it that the object has changed, if it runs
}

// stage has the processes of a world, and does to them what happens in the worlds of locks and of
// tables alike. P is the kind of the processes.
type stage[P actor] struct {
	cfg   *Config
	start func(node int, c *nodeClock, reclaim bool) // the next process of a node
	acts  func(p P, a Action)                        // what happens in such worlds only

	journal              // its mu guards what follows
	processes []P        // all that ever ran
	nodes     []P        // the latest process of each node
	messages  *rand.Rand // of the channel that wakes processes
	pending   int        // processes that are to start again, and others that are to end by themselves
	chaosOver bool
	finished  bool // no process may start
}

func newStage[P actor](cfg *Config, trace bool) stage[P] {
	return stage[P]{
		cfg: cfg, journal: newJournal(trace), nodes: make([]P, cfg.Nodes), messages: cfg.rng("messages"),
	}
}

// play starts the nodes and lets happen what is to happen, until all faults are to end.
func (s *stage[P]) play() {
	r := s.cfg.rng("starts")
	for node := range s.nodes {
		time.Sleep(time.Duration(1 + r.Int64N(int64(s.cfg.TTL/15))))
		s.start(node, s.newClock(node, fmt.Sprint("node", node)), false)
	}
	for _, a := range s.cfg.Actions {
		// never at the instant of a start or of another action
		time.Sleep(max(time.Until(s.began.Add(a.At)), time.Microsecond))
		s.act(a)
	}
	time.Sleep(time.Until(s.began.Add(s.cfg.Chaos)))
}

// newClock is the clock of a machine. The wall clock of some visitors is right.
func (s *stage[P]) newClock(node int, name string) *nodeClock {
	r := s.cfg.rng("machine", name)
	rate, wall := 1+s.cfg.RateSpread*(2*r.Float64()-1), time.Duration(0)
	if r.IntN(2) == 0 && node >= 0 { // the two extremes, side by side, find the most
		rate = 1 + s.cfg.RateSpread*float64(1-2*(node%2))
	}
	if s.cfg.Skew > 0 && (node >= 0 || r.IntN(2) == 0) {
		wall = below(r, 2*s.cfg.Skew) - s.cfg.Skew
	}
	c := newNodeClock(rate, wall, s.cfg.rng("jitter", name))
	c.tamed = s.cfg.Foreign
	return c
}

// newMachine is the machine of a process.
func (s *stage[P]) newMachine(node int, name string, c *nodeClock) machine {
	return machine{name: name, node: node, clock: c, rand: s.cfg.rng("work", name), journal: &s.journal}
}

// joins notes a process that starts. It reports false if none may any more. The caller holds s.mu.
func (s *stage[P]) joins(p P) bool {
	if !s.finished {
		s.processes = append(s.processes, p)
	}
	return !s.finished
}

// act does one thing to a node, and undoes it later.
func (s *stage[P]) act(a Action) {
	s.mu.Lock()
	p := s.nodes[a.Node]
	m := p.on()
	s.stats.Events[a.Kind]++
	s.mu.Unlock()
	s.log(m.name, "*** %s for %v", a.Kind, a.For.Round(time.Millisecond))
	stands := m.clock.isFrozen() || m.crashed.Load() // a machine stops once at a time
	switch a.Kind {
	case "partition", "outage":
		m.suffers(a)
	case "step wall clock":
		if !stands {
			p.meets(a)
			m.clock.step(a.Step)
		}
	case "suspend", "suspend, wall clock set back", "pause", "pause, wall clock set right":
		if !stands {
			p.meets(a)
			m.freeze(a)
			time.AfterFunc(a.For, func() { s.thaw(p) })
		}
	case "crash and restart", "crash and reclaim":
		if !m.crashed.Load() {
			p.crash()
			s.expect(1)
			time.AfterFunc(a.For, func() { s.restart(p, a.Kind == "crash and reclaim") })
		}
	case "stop and start":
		s.stopAnd(p, a, func() { s.restart(p, false) })
	case "forged wake-ups":
		go func() {
			for range 1000 { // within a TTL
				time.Sleep(15013 * time.Microsecond)
				p.wake()
			}
		}()
	default:
		s.acts(p, a)
	}
}

// thaw lets a machine run again.
func (s *stage[P]) thaw(p P) {
	m := p.on()
	was := m.clock.current()
	s.mu.Lock()
	m.resumedAt = time.Now()
	s.mu.Unlock()
	s.log(m.name, "*** resumes")
	m.clock.thaw()
	p.goesOn(was)
}

// expect changes how much is pending.
func (s *stage[P]) expect(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending += n
}

// restart starts the next process of a node, unless another has already replaced p.
func (s *stage[P]) restart(p P, reclaim bool) {
	defer s.expect(-1)
	m := p.on()
	s.mu.Lock()
	current := s.nodes[m.node] == p
	s.mu.Unlock()
	if current {
		s.start(m.node, m.clock.next(s.cfg, m.node), reclaim)
	}
}

// stopAnd stops a process gracefully, unless it is to stop already, and does something else a while
// later. Until next says otherwise, that is pending.
func (s *stage[P]) stopAnd(p P, a Action, next func()) {
	m := p.on()
	s.mu.Lock()
	stops := !m.halted
	m.halted = true
	s.mu.Unlock()
	if !stops {
		return
	}
	s.expect(1)
	p.halt()
	go func() {
		p.ends(a)
		time.AfterFunc(a.For, next)
	}()
}

// notifyLocked sends every process a message that the object has changed. Some messages are lost,
// repeated, or late by up to two TTLs. The caller holds s.mu.
func (s *stage[P]) notifyLocked() {
	if !s.cfg.Wakes {
		return
	}
	for _, p := range s.processes {
		delay := time.Duration(1+s.messages.Int64N(100)) * time.Millisecond
		late := below(s.messages, 2*s.cfg.TTL)
		switch s.messages.IntN(10) {
		case 0: // lost
			continue
		case 1:
			delay = late
		case 2:
			time.AfterFunc(late, p.wake)
		}
		time.AfterFunc(delay, p.wake)
	}
}

// visits sends one visitor after the other while requests may go wrong.
func (s *stage[P]) visits(visit func(i int, r *rand.Rand)) {
	r := s.cfg.rng("visits")
	for i := 0; ; i++ {
		time.Sleep(below(r, s.cfg.TTL))
		if !s.faultsOn() {
			return
		}
		visit(i, r)
	}
}

// faultsOn reports whether requests may still go wrong. They stop before the last actions are
// undone.
func (s *stage[P]) faultsOn() bool { return !s.over() && time.Since(s.began) < s.cfg.Chaos*7/10 }

func (s *stage[P]) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.chaosOver
}

// endChaos repairs the network and resumes every machine.
func (s *stage[P]) endChaos() {
	for _, p := range s.all(&s.chaosOver) {
		if p.on().repair() {
			s.thaw(p)
		}
	}
	s.log("world", "*** all faults are over")
}

// haltAll begins to stop all processes, and returns them.
func (s *stage[P]) haltAll() []P {
	processes := s.all(&s.finished)
	for _, p := range processes {
		p.halt()
	}
	return processes
}

// all returns all processes that ever ran, from now on, which is true of the world.
func (s *stage[P]) all(now *bool) []P {
	s.mu.Lock()
	defer s.mu.Unlock()
	*now = true
	return slices.Clone(s.processes)
}

// onNodes returns the latest process of each node.
func (s *stage[P]) onNodes() []P {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.nodes)
}
