package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testopt"
)

// The more frequent kinds are listed twice.
var shardActions = []string{
	"partition", "partition", "suspend", "suspend", "suspend, wall clock set back", "pause", "pause, wall clock set right", "step wall clock",
	"crash", "crash and restart", "crash and restart", "stop and start", "stop and start", "leave", "join", "twin", "outage",
	"depose", "damage roster", "old roster", "delete roster", "damage plan", "old plan", "delete plan", "deny shards", "deny plan",
	"fail to list", "hang in list",
}

func (c *ShardConfig) drawShardActions(r *rand.Rand) {
	steady := r.IntN(2) == 0 // no wall clock is stepped, so that wall clocks reveal a pause
	for range r.IntN(10) {
		a := Action{
			At: time.Duration(r.Int64N(int64(c.Chaos * 7 / 10))), Node: r.IntN(c.Nodes), Kind: shardActions[r.IntN(len(shardActions))],
			For: time.Duration(r.Int64N(int64(3 * c.TTL))), Step: time.Duration(r.Int64N(int64(4*time.Hour))) - 2*time.Hour,
		}
		switch {
		case a.Kind == "step wall clock" && steady, strings.HasSuffix(a.Kind, "list") && !c.Named:
			a.Kind = "partition"
		case a.Kind == "suspend, wall clock set back" && steady: // after a pause that only the wall clock has shown, no clock would show it
			a.Kind = "suspend"
		case a.Kind == "pause, wall clock set right" && !steady:
			a.Kind = "pause"
		}
		c.Actions = append(c.Actions, a)
	}
	c.sortActions()
}

// act does one thing to a node, and undoes it later.
func (w *shardWorld) act(a Action) {
	w.mu.Lock()
	p := w.nodes[a.Node]
	w.stats.Faults[a.Kind]++
	if w.cfg.Named && len(w.names) > 0 { // and the list changes
		if a.For%2 == 0 {
			w.names = w.names[1:]
		}
		w.names = append(w.names, w.newName(fmt.Sprint("new/", a.At.Nanoseconds())))
	}
	w.mu.Unlock()
	w.log(p.name, "*** %s for %v", a.Kind, a.For.Round(time.Millisecond))
	undo := func(f func()) { time.AfterFunc(a.For, f) }
	toggle := func(b *atomic.Bool) {
		b.Store(true)
		undo(func() { b.Store(false) })
	}
	restart := func() { undo(func() { w.restart(p) }) }
	switch a.Kind {
	case "partition":
		toggle(&p.cut)
	case "outage":
		toggle(&p.outage)
	case "suspend", "suspend, wall clock set back", "pause", "pause, wall clock set right":
		w.freeze(p, a)
	case "step wall clock":
		p.clock.step(a.Step)
	case "crash and restart":
		p.crash()
		restart()
	case "crash":
		if w.mayLeave(p) {
			p.crash()
		}
	case "stop and start":
		p.cancel()
		go func() {
			p.goroutines.Wait()
			restart()
		}()
	case "leave":
		if w.mayLeave(p) {
			p.cancel()
		}
	case "join":
		w.mu.Lock()
		n := len(w.nodes)
		w.mu.Unlock()
		w.start(n, 0, w.newClock(n))
	case "twin":
		w.startTwin(p, a)
	case "depose":
		go w.depose(a)
	case "damage roster":
		w.replace("g/roster", []byte("{damaged"))
	case "old roster":
		w.restore("g/roster", a)
	case "delete roster":
		w.remove("g/roster")
	case "damage plan":
		w.damagePlan(a)
	case "old plan":
		w.restore("g/planner", a)
	case "delete plan":
		w.remove("g/planner")
	case "deny shards", "deny plan":
		p.deny(a)
		undo(func() { p.denied.Store(nil) })
	case "fail to list", "hang in list":
		w.setUnlistable(a.Kind)
		undo(func() { w.setUnlistable("") })
	}
}

// freeze stops a machine for a while.
func (w *shardWorld) freeze(p *shardProcess, a Action) {
	if p.clock.isFrozen() {
		return // a machine stops once at a time
	}
	state, step := suspended, time.Duration(0)
	switch a.Kind {
	case "suspend, wall clock set back": // only CLOCK_BOOTTIME has counted the suspend
		step = -a.For
	case "pause": // no clock shows it, so only its tokens stop the process
		state = paused
		w.excuse(p, a.For+2*w.cfg.TTL)
	case "pause, wall clock set right": // only the wall clock shows the pause, because a time daemon corrected it
		state, step = paused, a.For
	}
	p.clock.freeze(state)
	p.clock.step(step)
	time.AfterFunc(a.For, func() { w.thaw(p) })
}

func (w *shardWorld) thaw(p *shardProcess) {
	w.mu.Lock()
	p.resumedAt = time.Now()
	w.mu.Unlock()
	w.log(p.name, "*** resumes")
	p.clock.thaw()
}

// excuse lets a process act as an owner of what others own, for a while.
func (w *shardWorld) excuse(p *shardProcess, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if until := time.Now().Add(d); until.After(p.excusedUntil) {
		p.excusedUntil = until
	}
}

// restart starts the next process of a node, unless another has already replaced p.
func (w *shardWorld) restart(p *shardProcess) {
	w.mu.Lock()
	current, generation := w.nodes[p.node] == p, 0
	for _, other := range w.processes {
		if other.node == p.node {
			generation++
		}
	}
	w.mu.Unlock()
	if current {
		w.start(p.node, generation, w.sameMachine(p, generation))
	}
}

// sameMachine is the clock of another process on the machine of p.
func (w *shardWorld) sameMachine(p *shardProcess, purpose any) *nodeClock {
	c := newNodeClock(p.clock.rate, 0, w.cfg.rng("jitter", p.node, purpose))
	c.base, c.skew = p.clock.Now(), p.clock.skew
	return c
}

func (p *shardProcess) crash() {
	p.crashed.Store(true)
	p.clock.thaw() // because the goroutines of the simulation itself must end
	p.cancel()
}

// mayLeave reports whether a member may go for good, because another one stays.
func (w *shardWorld) mayLeave(p *shardProcess) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	stays := func(other *shardProcess) bool { return other != p && !other.leaves }
	p.leaves = p.leaves || slices.ContainsFunc(w.nodes, stays)
	return p.leaves
}

// startTwin starts a process under the name of another that may live, and stops it later.
func (w *shardWorld) startTwin(p *shardProcess, a Action) {
	twin := w.newProcess(fmt.Sprint("twin", p.node, ".", a.At.Milliseconds()), p.member, w.sameMachine(p, a.At))
	twin.shards = p.shards
	twin.run()
	time.AfterFunc(a.For, twin.cancel)
}

// depose breaks the session of the planner.
func (w *shardWorld) depose(a Action) {
	admin := w.newProcess(fmt.Sprint("admin", a.At.Milliseconds()), "admin", newNodeClock(1, 0, w.cfg.rng("admin", a.At)))
	planner, err := leasehold.NewLock(admin, "g/planner", testopt.WithClock(admin.clock), leasehold.WithLogger(nil))
	if err != nil {
		panic(err)
	}
	rec, err := planner.Inspect(context.Background())
	if err != nil || rec.Session == nil {
		return
	}
	w.mu.Lock()
	processes := slices.Clone(w.processes)
	w.mu.Unlock()
	for _, p := range processes {
		if rec.Holder == p.member {
			w.excuse(p, 2*w.cfg.TTL) // it notices at its next renewal
		}
	}
	session, err := leasehold.NewLock(admin, rec.Session.Key, testopt.WithClock(admin.clock), leasehold.WithLogger(nil))
	if err == nil {
		_ = session.Break(context.Background(), rec.Session.Token)
	}
}

// replace replaces an object, as a person might.
func (w *shardWorld) replace(key string, body []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if o := w.objects[key]; o != nil {
		w.versions++
		o.previousETag = o.etag
		o.body, o.etag = body, fmt.Sprintf("%q", fmt.Sprint("v", w.versions))
	}
}

func (w *shardWorld) remove(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.objects, key)
}

// restore brings back an older version of an object.
func (w *shardWorld) restore(key string, a Action) {
	w.mu.Lock()
	former := w.former[key]
	w.mu.Unlock()
	if len(former) > 0 {
		w.replace(key, former[int(a.For)%len(former)])
	}
}

// damagePlan replaces the plan, or a piece of it, by what is none.
func (w *shardWorld) damagePlan(a Action) {
	if a.For%2 == 0 {
		w.replace("g/plan/0", []byte("{damaged"))
	}
	var rec leasehold.Record
	if rec.UnmarshalJSON(w.body("g/planner")) == nil {
		rec.Payload = []byte("{damaged")
		if body, err := rec.MarshalJSON(); err == nil {
			w.replace("g/planner", body)
		}
	}
}

// deny lets the store refuse writes of one kind.
func (p *shardProcess) deny(a Action) {
	answer, which := err403, "g/shards/"
	if a.Kind == "deny plan" {
		which = "g/plan" // the planner's lock, and the pieces
	}
	if a.For%2 == 0 {
		answer = err503
	}
	refuse := func(key string) error {
		if strings.HasPrefix(key, which) {
			return answer
		}
		return nil
	}
	p.denied.Store(&refuse)
}

func (w *shardWorld) setUnlistable(how string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unlistable = how
}

// endChaos repairs the network, resumes every machine, and stops twins.
func (w *shardWorld) endChaos() {
	w.setUnlistable("")
	w.mu.Lock()
	w.chaosOver = true
	processes := slices.Clone(w.processes)
	w.mu.Unlock()
	for _, p := range processes {
		p.cut.Store(false)
		p.outage.Store(false)
		p.denied.Store(nil)
		if p.clock.isFrozen() && !p.crashed.Load() {
			w.thaw(p)
		}
		if p.node < 0 {
			p.cancel()
		}
	}
	w.log("world", "*** all faults are over")
}
