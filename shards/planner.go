package shards

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// planner is one term of the member that makes the plan. It is used on the goroutine of the watch.
type planner struct {
	g       *Group
	ctx     context.Context // of the term
	lease   *leasehold.Lease
	decoded bool
	plan    *plan         // in force; nil if there is none
	wroteAt time.Duration // monotonic time at which that was written or, at first, read
	unsure  bool          // the store may have another one: a try to publish has failed, or what was there was damaged or deleted

	came     time.Duration   // monotonic time at which the last member came, or this term began
	pending  time.Duration   // monotonic time since which the plan is to be changed; 0 if it is not
	present  map[string]bool // at the last step
	cooling  map[string]*cooling
	listed   []string // the last list of the shards
	listedAt time.Duration
}

// cooling is a pause for a member that could not take shards.
type cooling struct {
	refused int           // shards reported
	times   int           // pauses in a row
	until   time.Duration // monotonic; after that it may try again
}

// Pauses, in TTLs.
const (
	coolDown   = 4  // of a member that could not take shards; twice as long each time, up to 64 times as long
	memoryTTLs = 20 // after so many a member that has left is forgotten, and its shards do not go back to it
)

func newPlanner(ctx context.Context, g *Group, lease *leasehold.Lease) *planner {
	return &planner{
		g: g, ctx: ctx, lease: lease, came: g.now(), wroteAt: g.now(), listedAt: -g.ttl, cooling: make(map[string]*cooling),
	}
}

// read reads the plan that the last planner left. If it is damaged or deleted, the one that this member has read last takes its place.
func (p *planner) read() error {
	if p.decoded {
		return nil
	}
	last, err := p.g.decodePlan(p.ctx, p.lease.Record().Payload)
	if err != nil && !errors.Is(err, errBadPlan) {
		return err
	}
	if last == nil {
		p.g.mu.Lock()
		last = p.g.plan
		p.g.mu.Unlock()
		p.unsure = true
	}
	p.plan, p.decoded = last, true
	return nil
}

// step does what follows from what the watch has seen.
func (p *planner) step(w *watch) {
	if err := p.decide(w); err != nil && p.ctx.Err() == nil {
		p.g.warn(p.ctx, "planning failed, will retry", err)
	}
}

func (p *planner) decide(w *watch) error {
	if !w.complete() {
		return nil
	}
	if err := p.tidy(w); err != nil {
		p.g.warn(p.ctx, "tidying the roster failed, will retry", err)
	}
	if elected := p.vote(w); elected != p.g.set.generation() {
		return p.yield(w, elected)
	}
	ids, err := p.list()
	if err != nil {
		return err
	}
	who := p.cast(w)
	next := assign(p.plan, ids, who)
	next.generation = p.g.set.generation()
	next.deputy = p.deputy(next.members[:next.present])
	if !p.due(w, next) {
		return nil
	}
	err = p.publish(next)
	p.unsure, p.wroteAt = err != nil, p.g.now()
	return err
}

// vote returns the generation that most members have; if there are several, that of the plan, or the planner's.
func (p *planner) vote(w *watch) string {
	votes := make(map[string]int)
	for name, m := range w.members {
		if m.live {
			votes[p.generationOf(w, name)]++
		}
	}
	best := p.g.set.generation()
	if p.plan != nil && votes[p.plan.generation] >= votes[best] {
		best = p.plan.generation
	}
	for _, generation := range slices.Sorted(maps.Keys(votes)) {
		if votes[generation] > votes[best] {
			best = generation
		}
	}
	return best
}

func (p *planner) generationOf(w *watch, name string) string {
	if e, found := w.roster.Members[name]; found {
		return e.Generation
	}
	if name == p.g.member || p.plan == nil {
		return p.g.set.generation()
	}
	return p.plan.generation // the roster was damaged
}

// yield hands over to a member of the generation that most members have: it becomes the deputy, and then this planner resigns.
func (p *planner) yield(w *watch, elected string) error {
	for _, name := range slices.Sorted(maps.Keys(w.members)) {
		if !w.members[name].live || p.generationOf(w, name) != elected {
			continue
		}
		next := &plan{generation: elected, deputy: name}
		if p.plan != nil {
			kept := *p.plan
			kept.deputy = name
			next = &kept
		}
		p.g.warn(p.ctx, "most members have another set of shards: handing over to them", nil, "generation", elected, "mine", p.g.set.generation())
		if err := p.publish(next); err != nil {
			return err
		}
		p.g.resign(p.g.ttl * coolDown)
		return nil
	}
	return nil
}

// list returns the shards.
func (p *planner) list() ([]string, error) {
	g := p.g
	if g.set.numbered() {
		if p.listed == nil {
			p.listed = numbers(g.set.count)
		}
		return p.listed, nil
	}
	now := g.now()
	if now < p.listedAt+g.ttl {
		return p.listed, nil
	}
	ctx, cancel := context.WithTimeout(p.ctx, g.ttl/2) // meanwhile nobody watches the members
	defer cancel()
	names, err := g.set.list(ctx)
	switch {
	case err == nil:
		names = slices.DeleteFunc(sorted(names), func(name string) bool {
			why := storeapi.BadKey(shardKey(g.prefix, name))
			if why != "" {
				g.warn(p.ctx, "a shard is left out because its key "+why, nil, "shard", name)
			}
			return why != ""
		})
		p.listed, p.listedAt = names, now
	case p.listed == nil && (p.plan == nil || p.plan.generation != g.set.generation()):
		return nil, fmt.Errorf("listing the shards: %w", err)
	default:
		g.warn(p.ctx, "listing the shards failed: the last list stays", err)
		if p.listed == nil {
			p.listed = p.plan.ids
		}
		p.listedAt = g.now() - g.ttl/2
	}
	return p.listed, nil
}

// cast says who may own shards now.
func (p *planner) cast(w *watch) cast {
	g, now := p.g, p.g.now()
	who := cast{wary: make(map[string]map[string]bool), away: make(map[string]bool)}
	var recovering []string
	present := make(map[string]bool)
	for _, name := range slices.Sorted(maps.Keys(w.members)) {
		m := w.members[name]
		switch refused := w.roster.Members[name].Refused; {
		case !m.live:
			if now-m.absent < memoryTTLs*g.ttl {
				who.away[name] = true
			}
			continue
		case p.generationOf(w, name) != g.set.generation():
			continue
		case now < m.grace:
			recovering = append(recovering, name)
			continue
		case len(refused) > 0:
			who.wary[name] = make(map[string]bool)
			for _, id := range refused {
				who.wary[name][id] = true
			}
		default:
			who.fit = append(who.fit, name)
		}
		present[name] = true
		if p.present != nil && !p.present[name] {
			p.came = now
		}
	}
	if len(present) == 0 { // better them than nobody
		who.fit = recovering
	} else {
		for _, name := range recovering {
			who.away[name] = true
		}
	}
	p.present = present
	return who
}

// deputy is the one of the plan if it is still there, or the first of the others.
func (p *planner) deputy(present []string) string {
	if p.plan != nil && p.plan.deputy != p.g.member && slices.Contains(present, p.plan.deputy) {
		return p.plan.deputy
	}
	for _, name := range present {
		if name != p.g.member {
			return name
		}
	}
	return ""
}

// due reports whether next is to be published now: at once if a shard has lost its owner, and otherwise when the roster has shown for a
// poll interval that nobody comes, but not later than in a TTL.
func (p *planner) due(w *watch, next *plan) bool {
	g, now := p.g, p.g.now()
	if p.plan.says(next) && !p.unsure && p.inForce() {
		p.pending = 0
		return false
	}
	if p.pending == 0 {
		p.pending = now
	}
	return p.urgent(next) || w.readAt-p.came >= g.poll*8/10 || now-p.pending >= g.ttl
}

// inForce reports whether what the store has is p.plan, as far as this member has read it since. It may have been damaged or replaced.
func (p *planner) inForce() bool {
	g := p.g
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.asked <= p.wroteAt || !g.planless && !errors.Is(g.readError, errBadPlan) && g.plan.says(p.plan)
}

func (p *planner) urgent(next *plan) bool {
	if p.plan == nil || p.plan.generation != next.generation {
		return false
	}
	stays := false // somebody was there, and is
	for _, name := range p.plan.members[:p.plan.present] {
		stays = stays || next.has(name)
	}
	if !stays {
		return false
	}
	owners, _ := p.plan.byID()
	for _, id := range next.ids {
		owner := owners[id]
		if owner == "" || !next.has(owner) || slices.Contains(p.refused(owner), id) {
			return true
		}
	}
	return p.plan.deputy != "" && p.plan.deputy != next.deputy
}

func (p *planner) refused(member string) []string { return p.g.watch.roster.Members[member].Refused }

// publish writes the plan into the planner's lock. If that fails for a TTL, the planner resigns.
func (p *planner) publish(next *plan) error {
	g := p.g
	ctx, cancel := context.WithTimeout(p.ctx, g.ttl)
	defer cancel()
	body, err := next.encode(g.set.numbered())
	if err != nil {
		return err
	}
	if len(body) > maxInline {
		body, err = g.writePieces(ctx, p.lease.Token(), body, p.confirm)
		if errors.Is(err, leasehold.ErrPreconditionFailed) {
			return err // at the next step
		}
	}
	if err == nil {
		err = p.lease.Commit(ctx, body)
	}
	switch {
	case err == nil:
	case p.ctx.Err() != nil:
		return nil
	case ctx.Err() != nil, errors.Is(err, leasehold.ErrPermanent):
		g.resign(2 * g.ttl)
		return fmt.Errorf("the plan could not be published, so another member is to try: %w", err)
	default:
		return err
	}
	e := next.event(EventPlanned)
	e.Moved = p.plan.moved(next)
	p.plan, p.pending = next, 0
	g.bell.Ring()
	g.log.InfoContext(ctx, "plan published", "prefix", g.prefix, "members", e.Members, "shards", e.Shards, "moved", e.Moved)
	g.emit(e)
	return nil
}

// confirm asks the store whether this member is still the planner: it writes the planner's lock as it is.
func (p *planner) confirm(ctx context.Context) error {
	return p.lease.Commit(ctx, p.lease.Record().Payload)
}

// tidy removes members from the roster that left long ago, lets those try again that could not take shards, and corrects what an old
// roster says of this member. It does all with one write, or none.
func (p *planner) tidy(w *watch) error {
	now, mine := p.g.now(), entry{Generation: p.g.set.generation()}
	me, found := w.roster.Members[p.g.member]
	stale := found && me.Generation != mine.Generation
	old, again := make(map[string]bool), make(map[string]bool)
	for name, e := range w.roster.Members {
		m := w.members[name]
		switch {
		case m == nil, !m.live && now-m.absent >= memoryTTLs*p.g.ttl:
			old[name] = true
		case p.cooled(name, len(e.Refused), now):
			again[name] = true
		}
	}
	if len(old)+len(again) == 0 && !stale {
		return nil
	}
	after, err := p.g.editRoster(p.ctx, func(r roster) {
		if stale {
			r.Members[p.g.member] = mine
		}
		for name, e := range r.Members {
			if old[name] {
				delete(r.Members, name)
			} else if again[name] {
				e.Refused = nil
				r.Members[name] = e
			}
		}
	})
	if err != nil {
		w.rosterAt = min(w.rosterAt, now+clock.Jitter(p.g.clock, p.g.poll/4))
		return err
	}
	w.roster = after
	return nil
}

// cooled reports whether the pause of a member is over that has reported so many shards.
func (p *planner) cooled(name string, refused int, now time.Duration) bool {
	c := p.cooling[name]
	if c == nil {
		c = &cooling{}
		p.cooling[name] = c
	}
	pause := func() time.Duration { return coolDown * p.g.ttl << max(min(c.times, 7)-1, 0) }
	switch {
	case refused == 0:
		c.refused = 0
		if now > c.until+2*pause() {
			c.times = 0
		}
	case refused != c.refused: // it has reported more
		if c.refused == 0 {
			c.times++
		}
		c.refused, c.until = refused, now+pause()
	case now >= c.until:
		return true
	}
	return false
}
