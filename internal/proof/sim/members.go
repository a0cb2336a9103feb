package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/membership"
	"github.com/leasehold-go/leasehold/internal/testkit/testopt"
)

// MemberConfig describes one world of members, each of which holds a lock of its own and judges all
// others. Of Config it uses the seed, the nodes, the TTL, margin and drift, the clocks, the faults
// of requests and the actions.
type MemberConfig struct {
	Config
	Named bool // members have names that outlive their processes
	Twins bool // and two nodes have one name
	Loose bool // the store ignores the condition of a DELETE
}

var memberActions = []string{
	"partition", "partition", "suspend", "suspend, wall clock set back", "step wall clock", "outage",
	"crash", "crash", "crash and restart", "crash and restart", "stop and start", "stop and start", "stop and start",
	"deny own object", "deny others' objects",
}

// Edits are what a person does to the object of a member.
var memberEdits = []string{"delete object", "replace object", "restore object", "damage object"}

// NewMemberConfig draws the world of a seed.
func NewMemberConfig(seed uint64) *MemberConfig {
	r := rand.New(rand.NewPCG(seed, 4))
	c := &MemberConfig{Config: Config{
		Seed: seed, Nodes: 2 + r.IntN(3), TTL: 15 * time.Second, RequestFaults: []float64{0, 0.05, 0.2}[r.IntN(3)],
		Slow: r.IntN(6) == 0, Skew: []time.Duration{0, time.Minute, 2 * time.Hour}[r.IntN(3)],
	}}
	c.drawClockBounds(r)
	c.Chaos = 12 * c.TTL
	c.Named, c.Loose = r.IntN(2) == 0, r.IntN(4) == 0
	c.Twins = c.Named && r.IntN(3) == 0
	for range 1 + r.IntN(9) {
		a := Action{
			At: time.Duration(r.Int64N(int64(c.Chaos * 7 / 10))), Node: r.IntN(c.Nodes),
			For:  time.Duration(r.Int64N(int64(3 * c.TTL))),
			Step: time.Duration(r.Int64N(int64(4*time.Hour))) - 2*time.Hour,
		}
		if r.IntN(2) == 0 {
			a.Kind = memberEdits[r.IntN(len(memberEdits))]
		} else {
			a.Kind = memberActions[r.IntN(len(memberActions))]
		}
		c.Actions = append(c.Actions, a)
	}
	c.sortActions()
	return c
}

// memberWorld is a run in progress.
type memberWorld struct {
	cfg *MemberConfig

	journal             // its mu guards what follows, and is locked last
	chaosOver, finished bool
	processes           []*memberProcess // all that ever ran
	nodes               []*memberProcess // the latest of each node
	pending             int              // processes that are to start again

	state    sync.Mutex // guards what follows
	objects  map[string]*memberObject
	versions int
	// What the group names stands for a table that everybody can always write.
	named      map[membership.Term]*namedTerm
	restoredAt map[string]time.Time // when a person last restored the object
}

// memberObject is an object of the store.
type memberObject struct {
	exists bool
	body   []byte
	etag   string
	former [][]byte // what members and judges have written
}

// namedTerm is a term that the group names.
type namedTerm struct {
	p     *memberProcess
	lease *leasehold.Lease
}

// memberProcess is one process on one node, from its start to its crash or stop.
type memberProcess struct {
	w       *memberWorld
	name    string
	node    int
	key     string
	clock   *nodeClock
	rand    *rand.Rand // guarded by w.mu
	group   *membership.Group
	member  *membership.Member
	life    context.Context
	die     context.CancelFunc
	work    context.Context // of Run
	stop    context.CancelFunc
	looking context.Context // of the judges
	blind   context.CancelFunc
	runs    sync.WaitGroup
	judges  sync.WaitGroup
	gone    atomic.Bool // its node has another process, or none
	crashed atomic.Bool
	cut     atomic.Bool // nothing gets through
	outage  atomic.Bool // every request is answered 503
	denied  atomic.Pointer[func(key string) bool]
}

// RunMembers runs one world to its end.
func RunMembers(t *testing.T, cfg *MemberConfig, trace bool) (out Outcome) {
	t.Helper()
	InBubble(t, cfg.Seed, func() {
		w := &memberWorld{
			cfg: cfg, journal: newJournal(trace), nodes: make([]*memberProcess, cfg.Nodes),
			objects: make(map[string]*memberObject), named: make(map[membership.Term]*namedTerm),
			restoredAt: make(map[string]time.Time),
		}
		out = w.run()
	})
	return out
}

func (w *memberWorld) run() Outcome {
	r := w.cfg.rng("machines")
	for i := range w.nodes {
		time.Sleep(time.Duration(1 + r.Int64N(int64(w.cfg.TTL/4))))
		wall := time.Duration(0)
		if w.cfg.Skew > 0 {
			wall = time.Duration(r.Int64N(int64(2*w.cfg.Skew))) - w.cfg.Skew
		}
		rate := 1 + w.cfg.RateSpread*float64(1-2*(i%2))
		w.start(i, 0, newNodeClock(rate, wall, w.cfg.rng("jitter", i)))
	}
	for _, a := range w.cfg.Actions {
		time.Sleep(max(time.Until(w.began.Add(a.At)), time.Microsecond))
		w.act(a)
	}
	time.Sleep(time.Until(w.began.Add(w.cfg.Chaos)))
	w.endChaos()
	w.checkRest()
	w.stopAll()
	w.checkNothingLeft()
	time.Sleep(4 * w.cfg.TTL) // for timers, and for requests that land late
	return w.outcome()
}

// start starts a process on a node.
func (w *memberWorld) start(node, generation int, c *nodeClock) {
	p := &memberProcess{w: w, name: fmt.Sprintf("node%d.%d", node, generation), node: node, clock: c}
	p.rand = w.cfg.rng("work", p.name)
	switch {
	case w.cfg.Twins && node < 2:
		p.key = "members/twin"
	case w.cfg.Named:
		p.key = fmt.Sprint("members/pod", node)
	default:
		p.key = "members/" + p.name
	}
	p.group = membership.NewGroup(p, membership.Settings{
		TTL: w.cfg.TTL, Poll: w.cfg.TTL / 5, Drift: w.cfg.Drift, Identity: p.name, Log: slog.New(slog.DiscardHandler),
		Clock: c,
		Options: []leasehold.Option{
			leasehold.WithSafetyMargin(w.cfg.Margin), testopt.WithClock(c), testopt.NewProcess(),
		},
	})
	var err error
	if p.member, err = p.group.Member(p.key, !w.cfg.Named, p.serve); err != nil {
		panic(err)
	}
	p.life, p.die = context.WithCancel(context.Background())
	p.work, p.stop = context.WithCancel(p.life)
	p.looking, p.blind = context.WithCancel(p.life)
	w.log(p.name, "starts as %s", p.key)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.finished {
		p.die()
		return
	}
	w.processes = append(w.processes, p)
	w.nodes[node] = p
	p.runs.Go(p.run)
	p.judges.Go(p.watchAll)
}

// run is a member until the process ends.
func (p *memberProcess) run() {
	for p.work.Err() == nil {
		err := p.member.Run(p.work)
		p.w.log(p.name, "Run has returned: %s", firstLine(err))
		_ = p.clock.Sleep(p.work, p.w.cfg.TTL/5) // an object that is damaged has ended it, say
	}
}

// serve is one term of the member: it is named as long as it lasts.
func (p *memberProcess) serve(ctx context.Context, lease *leasehold.Lease,
	term membership.Term) (forgotten bool, rest func()) {
	w := p.w
	w.log(p.name, "has term %s", brief(term))
	w.state.Lock()
	for other, n := range w.named {
		if n.p == p && n.lease.Valid() {
			w.violate("%s has term %s while its term %s is valid", p.name, brief(term), brief(other))
		}
	}
	maps.DeleteFunc(w.named, func(_ membership.Term, n *namedTerm) bool { return n.p == p })
	w.named[term] = &namedTerm{p, lease}
	w.state.Unlock()
	<-ctx.Done()
	late := p.draw(w.cfg.TTL / 10)
	if p.draw(5) == 0 && w.faultsOn() {
		late = p.draw(2 * w.cfg.TTL)
	}
	_ = p.clock.Sleep(p.life, late)
	w.log(p.name, "ends term %s", brief(term))
	if p.crashed.Load() || !lease.Valid() || p.draw(2) == 0 && w.faultsOn() {
		return false, nil
	}
	w.state.Lock()
	defer w.state.Unlock()
	delete(w.named, term)
	return true, nil
}

// watchAll has each term judged that the group names.
func (p *memberProcess) watchAll() {
	watched := make(map[membership.Term]bool)
	for p.clock.Sleep(p.looking, p.w.cfg.TTL/20) == nil {
		for _, term := range p.w.namesOfOthers(p) {
			if !watched[term] {
				watched[term] = true
				p.judges.Go(func() { p.watch(term) })
			}
		}
	}
}

// namesOfOthers are the terms that the group names, but for those of one process.
func (w *memberWorld) namesOfOthers(p *memberProcess) (terms []membership.Term) {
	w.state.Lock()
	defer w.state.Unlock()
	for term, n := range w.named {
		if n.p != p {
			terms = append(terms, term)
		}
	}
	slices.SortFunc(terms, func(a, b membership.Term) int { return strings.Compare(a.TermID, b.TermID) })
	return terms
}

// watch judges a term until the group does not name it any more.
func (p *memberProcess) watch(term membership.Term) {
	w := p.w
	judge, err := p.group.Judge(term, w.cfg.TTL)
	if err != nil {
		panic(err)
	}
	for w.names(term) {
		v, err := judge.Look(p.looking)
		if p.crashed.Load() || p.looking.Err() != nil {
			return
		}
		w.log(p.name, "%s: %s %.100s", brief(term), v.Reason, firstLine(err))
		switch {
		case err != nil:
			w.count("look: " + v.Reason)
			if v.State != membership.Unknown {
				w.violate("%s: a look that has failed says that %s is over, or not: %v", p.name, brief(term), err)
			}
		case v.State == membership.Over:
			w.count("over: " + v.Reason)
			w.evict(p, term, v.Reason)
		}
		if p.clock.Sleep(p.looking, max(judge.Next(), w.cfg.TTL/100)) != nil {
			return
		}
	}
	_ = judge.Evicted(p.looking)
}

func (w *memberWorld) names(term membership.Term) bool {
	w.state.Lock()
	defer w.state.Unlock()
	return w.named[term] != nil
}

// evict is the invariant: a term that is judged to be over is not valid, by any clock of the
// process that has it.
func (w *memberWorld) evict(by *memberProcess, term membership.Term, why string) {
	w.state.Lock()
	defer w.state.Unlock()
	n := w.named[term]
	if n == nil {
		return
	}
	// After a person has restored the release of an earlier term, the next one of this object
	// begins at once, and with the one after it the token is higher.
	restored := time.Since(w.restoredAt[term.Key]) < w.cfg.TTL*3/2 && strings.Contains(why, "a later term")
	if n.lease.Valid() && !restored {
		w.violate("%s says that %s of %s is over (%s), and it is valid", by.name, brief(term), n.p.name, why)
	}
	delete(w.named, term)
}

func (w *memberWorld) faultsOn() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.chaosOver && time.Since(w.began) < w.cfg.Chaos*7/10
}

// draw draws a duration below d.
func (p *memberProcess) draw(d time.Duration) time.Duration {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	return time.Duration(p.rand.Int64N(int64(d)))
}

func brief(t membership.Term) string {
	return fmt.Sprintf("%s/%.4s/%d/%.4s", strings.TrimPrefix(t.Key, "members/"), t.ObjectID, t.Token, t.TermID)
}

// act does one thing to a node or its object, and undoes it later.
func (w *memberWorld) act(a Action) {
	w.mu.Lock()
	p := w.nodes[a.Node]
	w.stats.Faults[a.Kind]++
	w.mu.Unlock()
	w.log(p.name, "*** %s for %v", a.Kind, a.For.Round(time.Millisecond))
	undo := func(f func()) { time.AfterFunc(a.For, f) }
	toggle := func(b *atomic.Bool) {
		b.Store(true)
		undo(func() { b.Store(false) })
	}
	switch a.Kind {
	case "partition":
		toggle(&p.cut)
	case "outage":
		toggle(&p.outage)
	case "suspend", "suspend, wall clock set back":
		if p.clock.isFrozen() || p.crashed.Load() {
			return
		}
		p.clock.freeze(suspended)
		if a.Kind != "suspend" { // only CLOCK_BOOTTIME has counted it
			p.clock.step(-a.For)
		}
		undo(p.clock.thaw)
	case "step wall clock":
		p.clock.step(a.Step)
	case "crash", "crash and restart", "stop and start":
		w.end(p, a)
	case "deny own object":
		p.deny(a.For, func(key string) bool { return key == p.key })
	case "deny others' objects":
		p.deny(a.For, func(key string) bool { return key != p.key })
	default:
		w.edit(p, a)
	}
}

func (p *memberProcess) deny(d time.Duration, which func(key string) bool) {
	p.denied.Store(&which)
	time.AfterFunc(d, func() { p.denied.CompareAndSwap(&which, nil) })
}

// end ends a process, and starts another in its place unless it is to stay away. One node always
// comes back, because somebody must judge the dead.
func (w *memberWorld) end(p *memberProcess, a Action) {
	if p.gone.Swap(true) {
		return
	}
	w.mu.Lock()
	w.pending++
	w.mu.Unlock()
	if a.Kind != "stop and start" {
		p.crashed.Store(true)
		p.clock.thaw() // because the goroutines of the simulation itself must end
		p.die()
	}
	p.blind()
	p.stop()
	go func() {
		p.runs.Wait()
		p.judges.Wait()
		time.AfterFunc(a.For, func() {
			if a.Kind != "crash" || p.node == 0 {
				w.restart(p)
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.pending--
		})
	}()
}

// restart starts the next process of a node.
func (w *memberWorld) restart(p *memberProcess) {
	c, generation := p.clock.next(&w.cfg.Config, p.node)
	w.start(p.node, generation, c)
}

// edit is what a person does to the object of a member by hand. Every other time the member does
// not see it soon.
func (w *memberWorld) edit(p *memberProcess, a Action) {
	w.state.Lock()
	defer w.state.Unlock()
	o := w.objects[p.key]
	if o == nil || len(o.former) == 0 {
		return
	}
	var rec leasehold.Record
	readable := o.exists && rec.UnmarshalJSON(o.body) == nil
	switch a.Kind {
	case "delete object":
		o.exists = false
	case "replace object":
		if !readable {
			return
		}
		rec.ObjectID, rec.Nonce = fmt.Sprint("by hand ", w.versions), fmt.Sprint("by hand ", w.versions)
		if a.For%2 == 0 {
			rec.ExpiresAt = time.Time{}
		}
		if a.For%4 != 0 { // else it is what Group.Break writes
			rec.TermID = "by hand"
			rec.Token += uint64(a.For) % 3
		}
		body, err := rec.MarshalJSON()
		if err != nil {
			panic(err)
		}
		w.put(o, body)
	case "restore object":
		w.restoredAt[p.key] = time.Now()
		w.put(o, w.earlier(o, rec, int(a.For)))
	case "damage object":
		w.put(o, []byte(`{"expires_at":`))
		time.AfterFunc(a.For, func() { w.repair(p.key) })
	}
	w.log("world", "*** %s: %.200s", p.key, o.body)
	if a.For%4 < 2 {
		p.cut.Store(true)
		time.AfterFunc(a.For/2, func() { p.cut.Store(false) })
	}
}

// earlier is a former version of an object, of another term than the present one if there is any.
// The caller holds w.state.
func (w *memberWorld) earlier(o *memberObject, now leasehold.Record, which int) []byte {
	var others [][]byte
	for _, body := range o.former {
		var rec leasehold.Record
		if rec.UnmarshalJSON(body) == nil && rec.ObjectID == now.ObjectID && rec.TermID != now.TermID {
			others = append(others, body)
		}
	}
	if len(others) == 0 {
		others = o.former
	}
	return others[which%len(others)]
}

// repair brings the last good version of a damaged object back, or removes it.
func (w *memberWorld) repair(key string) {
	w.state.Lock()
	defer w.state.Unlock()
	o := w.objects[key]
	var rec leasehold.Record
	if o.exists && rec.UnmarshalJSON(o.body) != nil {
		w.put(o, o.former[len(o.former)-1])
		o.exists = w.versions%2 == 0
	}
}

// put writes an object. The caller holds w.state.
func (w *memberWorld) put(o *memberObject, body []byte) {
	w.versions++
	o.exists, o.body, o.etag = true, body, fmt.Sprintf("%q", fmt.Sprint("v", w.versions))
}

// endChaos repairs the network and the objects, and resumes every machine.
func (w *memberWorld) endChaos() {
	w.mu.Lock()
	w.chaosOver = true
	processes := slices.Clone(w.processes)
	w.mu.Unlock()
	w.state.Lock()
	keys := slices.Collect(maps.Keys(w.objects))
	w.state.Unlock()
	for _, key := range keys {
		w.repair(key)
	}
	for _, p := range processes {
		p.cut.Store(false)
		p.outage.Store(false)
		p.denied.Store(nil)
		p.clock.thaw()
	}
	w.log("world", "*** all faults are over")
}

// live are the processes that run.
func (w *memberWorld) live() (live []*memberProcess) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.nodes {
		if !p.gone.Load() {
			live = append(live, p)
		}
	}
	return live
}

// memberPatience is how many TTLs after the last fault all must be well.
const memberPatience = 12

// checkRest wants that some time after the last fault each name has a member whose term is valid,
// and that the group names no other.
func (w *memberWorld) checkRest() {
	for ended := time.Now(); ; time.Sleep(w.cfg.TTL / 10) {
		why := w.unrest()
		if why == "" {
			return
		}
		if time.Since(ended) > memberPatience*w.cfg.TTL {
			w.violate("%d TTLs after the last fault: %s", memberPatience, why)
			return
		}
	}
}

// unrest says what is not yet as it should be; "" if all is.
func (w *memberWorld) unrest() string {
	w.mu.Lock()
	pending := w.pending
	w.mu.Unlock()
	if pending > 0 {
		return "a process has not ended, or not begun"
	}
	w.state.Lock()
	defer w.state.Unlock()
	well := make(map[string]bool)
	for term, n := range w.named {
		if n.p.gone.Load() || !n.lease.Valid() {
			return fmt.Sprintf("the group names %s of %s, which is over", brief(term), n.p.name)
		}
		well[term.Key] = true
	}
	for _, p := range w.live() {
		if !well[p.key] {
			return fmt.Sprintf("%s has no term", p.name)
		}
		if err := p.member.Check(nil); err != nil {
			return fmt.Sprintf("%s is not healthy: %v", p.name, err)
		}
	}
	return ""
}

// stopAll stops every process gracefully, first those who judge.
func (w *memberWorld) stopAll() {
	w.mu.Lock()
	w.finished = true
	processes := slices.Clone(w.processes)
	w.mu.Unlock()
	for _, p := range processes {
		p.blind()
	}
	for _, p := range processes {
		p.judges.Wait()
	}
	for _, p := range processes {
		p.stop()
	}
	for _, p := range processes {
		p.runs.Wait()
		p.die()
	}
}

// checkNothingLeft wants that those who have stopped leave nothing but, where a DELETE ignores its
// condition, released objects.
func (w *memberWorld) checkNothingLeft() {
	w.mu.Lock()
	failed := len(w.violations) > 0
	w.mu.Unlock()
	if failed {
		return
	}
	live := w.live()
	w.state.Lock()
	defer w.state.Unlock()
	for _, p := range live {
		o := w.objects[p.key]
		if o == nil || !o.exists {
			continue
		}
		var rec leasehold.Record
		switch err := rec.UnmarshalJSON(o.body); {
		case err != nil || !rec.Released():
			w.violate("all have stopped, and %s is held: %.200s", p.key, o.body)
		case !w.cfg.Loose && !w.cfg.Twins: // of two that stop together, one may just have created it
			w.violate("all have stopped, and %s is left: %.200s", p.key, o.body)
		}
	}
}

// send sends a request, and returns when the process has a reply and its machine runs.
func (p *memberProcess) send(
	ctx context.Context, kind, key string, body []byte, etag string,
) (leasehold.Object, error) {
	w := p.w
	p.clock.waitWhileFrozen()
	on := w.faultsOn()
	w.mu.Lock()
	f := drawFault(p.rand, &w.cfg.Config, w.cfg.RequestFaults, on)
	w.stats.Requests++
	w.mu.Unlock()
	if kind == "get" && (errors.Is(f.err, leasehold.ErrNotExist) || errors.Is(f.err, leasehold.ErrPreconditionFailed)) {
		f.err = err500
	}
	deny := p.denied.Load()
	switch {
	case p.crashed.Load():
		return leasehold.Object{}, errReset
	case p.cut.Load():
		f = networkFault{name: "partitioned", dropRequest: true, dropReply: true}
	case p.outage.Load():
		f = networkFault{name: "outage", replyDelay: f.replyDelay, dropRequest: true, err: err503}
	case deny != nil && (*deny)(key):
		f = networkFault{name: "denied", replyDelay: f.replyDelay, dropRequest: true, err: errAccess}
	}
	if f.name != "ok" {
		w.log(p.name, "%s %s: %s", kind, key, f.name)
	}
	type answer struct {
		obj leasehold.Object
		err error
	}
	replies := make(chan answer, 1)
	go func() {
		time.Sleep(f.requestDelay)
		var got answer
		if !f.dropRequest {
			got.obj, got.err = w.apply(p, kind, key, body, etag)
			if f.duplicateAfter > 0 {
				time.AfterFunc(f.duplicateAfter, func() { _, _ = w.apply(p, kind, key, body, etag) })
			}
		}
		time.Sleep(f.replyDelay)
		if f.err != nil {
			got = answer{err: f.err}
		}
		if !f.dropReply && !p.cut.Load() {
			replies <- got
		}
	}()
	var got answer
	if f.errAtOnce {
		time.Sleep(f.replyDelay)
		got.err = f.err
	} else {
		select {
		case got = <-replies:
		case <-ctx.Done():
			got.err = ctx.Err()
		}
	}
	p.clock.waitWhileFrozen()
	if p.crashed.Load() {
		return leasehold.Object{}, errReset
	}
	return got.obj, got.err
}

// errAccess is what a policy answers that somebody has just changed.
var errAccess = fmt.Errorf("%w: 403 AccessDenied", leasehold.ErrPermanent)

// apply carries out a request at one instant.
func (w *memberWorld) apply(p *memberProcess, kind, key string, body []byte, etag string) (leasehold.Object, error) {
	w.state.Lock()
	defer w.state.Unlock()
	o := w.objects[key]
	if o == nil {
		o = &memberObject{}
		w.objects[key] = o
	}
	var rec leasehold.Record
	damaged := o.exists && rec.UnmarshalJSON(o.body) != nil
	switch {
	case !o.exists && kind != "create":
		return leasehold.Object{}, leasehold.ErrNotExist
	case kind == "get":
		return leasehold.Object{Body: o.body, ETag: o.etag}, nil
	case kind == "delete" && (etag == o.etag || w.cfg.Loose):
		w.log(p.name, "deletes %s: token %d", key, rec.Token)
		o.exists = false
		return leasehold.Object{}, nil
	case kind == "create" && o.exists, kind != "create" && etag != o.etag:
		return leasehold.Object{}, leasehold.ErrPreconditionFailed
	case damaged:
		w.violate("%s overwrites the damaged object %s", p.name, key)
	}
	w.put(o, body)
	o.former = append(o.former, body)
	if w.traced && rec.UnmarshalJSON(body) == nil {
		w.log(p.name, "%s %s: token %d, released %v, object %.4s, term %.4s", kind, key, rec.Token, rec.Released(),
			rec.ObjectID, rec.TermID)
	}
	w.mu.Lock()
	w.stats.Writes++
	w.mu.Unlock()
	return leasehold.Object{ETag: o.etag}, nil
}

// Describe says that nothing needs to try the store.
func (p *memberProcess) Describe() leasehold.StoreInfo {
	return leasehold.StoreInfo{MinTTL: time.Millisecond, Conditional: true}
}

// Get implements leasehold.Store.
func (p *memberProcess) Get(ctx context.Context, key string) (leasehold.Object, error) {
	return p.send(ctx, "get", key, nil, "")
}

// PutIfNoneMatch implements leasehold.Store.
func (p *memberProcess) PutIfNoneMatch(ctx context.Context, key string, body []byte) (string, error) {
	obj, err := p.send(ctx, "create", key, body, "")
	return obj.ETag, err
}

// PutIfMatch implements leasehold.Store.
func (p *memberProcess) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	obj, err := p.send(ctx, "update", key, body, etag)
	return obj.ETag, err
}

// DeleteIfMatch implements leasehold.Store.
func (p *memberProcess) DeleteIfMatch(ctx context.Context, key, etag string) error {
	_, err := p.send(ctx, "delete", key, nil, etag)
	return err
}

// MemberReport describes a failure: the world, its violations and its timeline.
func MemberReport(t *testing.T, cfg *MemberConfig, out Outcome) string {
	t.Helper()
	// Names are random, and goroutines that act at one instant do so in any order, so the same
	// world may fail only at a later try.
	best, violations := *cfg, out.Violations
	try := func(c MemberConfig) {
		if o := RunMembers(t, &c, true); len(o.Violations) > 0 {
			best, out, violations = c, o, o.Violations
		}
	}
	for range 20 {
		if try(best); len(out.Trace) > 0 {
			break
		}
	}
	for i := len(best.Actions) - 1; i >= 0; i-- {
		c := best
		c.Actions = slices.Delete(slices.Clone(best.Actions), i, i+1)
		try(c)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %d nodes, named %v, twins %v, loose deletes %v, margin %v, drift allowance %v, clock "+
		"rates 1±%v, request faults %v, slow replies %v\n", best.Seed, best.Nodes, best.Named, best.Twins, best.Loose,
		best.Margin, best.Drift, best.RateSpread, best.RequestFaults, best.Slow)
	for _, a := range best.Actions {
		fmt.Fprintf(&b, "  %v\n", a)
	}
	for _, v := range violations[:min(len(violations), 5)] {
		fmt.Fprintf(&b, "VIOLATION: %s\n", v)
	}
	for _, line := range out.Trace {
		b.WriteString(line + "\n")
		if strings.Contains(line, "!!!!") {
			b.WriteString("  (the rest of the timeline is left out)\n")
			break
		}
	}
	return b.String()
}
