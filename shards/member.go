package shards

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/clock"
)

// follow is what a member does: it reads the plan, owns what the plan gives to it, and stands in for a planner that is gone. It ends
// with ctx, or with an error that retrying cannot fix. Its workers go on until work ends.
func (g *Group) follow(ctx, work context.Context, workers *sync.WaitGroup) error {
	entrance := &entrance{g: g}
	candidacy := &candidacy{g: g, workers: workers, seen: g.now()}
	for ctx.Err() == nil {
		rung := g.bell.Listen()
		p, found, err := g.readPlan(ctx, candidacy)
		if err == nil || errors.Is(err, errBadPlan) {
			if g.session.Held() {
				g.reconcile(work, workers, p)
			}
			candidacy.decide(ctx, work, p, found)
		}
		if err != nil && ctx.Err() == nil {
			g.warn(ctx, "reading the plan failed, will retry", err)
		}
		if err := entrance.visit(ctx, p); err != nil && ctx.Err() == nil {
			if errors.Is(err, leasehold.ErrPermanent) && !entrance.joined {
				return err
			}
			g.warn(ctx, "entering the roster failed, will retry", err)
		}
		wait := clock.Jitter(g.clock, g.poll)
		if left := entrance.at - g.now(); left > 0 && !entrance.joined { // without a session it waits on
			wait = min(wait, left)
		}
		g.sleep(ctx, wait, rung)
	}
	candidacy.end()
	return nil
}

// readPlan reads the planner's lock, and the plan in it. There is no plan, without an error, before the first planner. If the plan
// is damaged, which is errBadPlan, or cannot be read, the last one stays. Once per TTL the planner also reads the pieces of a plan that
// it has read before, because nobody else might notice what became of them, until a member starts.
func (g *Group) readPlan(ctx context.Context, c *candidacy) (p *plan, found bool, err error) {
	asked := g.now()
	obj, err := g.get(ctx, g.key("planner"))
	now := g.now()
	missing := errors.Is(err, leasehold.ErrNotExist)
	g.mu.Lock()
	checks := g.planner != nil && asked >= c.checked+g.ttl
	g.mu.Unlock()
	fresh := missing || err == nil && (obj.ETag != c.etag || !c.decoded || checks)
	if fresh {
		var rec leasehold.Record
		if !missing {
			err = rec.UnmarshalJSON(obj.Body)
		} else {
			err = nil
		}
		if err == nil {
			if missing || obj.ETag != c.etag {
				c.etag, c.session, c.seen = obj.ETag, rec.Session, now
				g.plannerLock.Wake() // or a candidate might wait for the session that it has seen there
			}
			p, err = g.decodePlan(ctx, rec.Payload)
			c.decoded, c.checked = err == nil, asked
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if fresh && err == nil {
		g.planless = p == nil
	}
	if p != nil { // a plan that was deleted stays in force until there is another
		g.plan = p
	}
	if g.readError = err; err == nil {
		g.answered = now
	}
	if err == nil || errors.Is(err, errBadPlan) {
		g.asked = asked
	}
	return g.plan, !missing, err
}

// reconcile starts the workers of the shards that the plan gives to this member, and stops the others.
func (g *Group) reconcile(ctx context.Context, workers *sync.WaitGroup, p *plan) {
	var mine map[string]bool
	if p != nil && p.generation == g.set.generation() {
		mine = p.of(g.member)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for id := range mine {
		if g.workers[id] == nil {
			w := &worker{g: g, id: id}
			var ctx2 context.Context
			ctx2, w.stop = context.WithCancelCause(ctx)
			g.workers[id] = w
			workers.Go(func() { w.run(ctx2) })
		}
	}
	for id, w := range g.workers {
		if !mine[id] {
			w.stop(errMoved)
		}
	}
}

// candidacy decides whether this member stands as planner. The planner's deputy does. The others stand only if the planner has shown
// no sign of life for a while, because each candidate reads the planner's session.
type candidacy struct {
	g       *Group
	workers *sync.WaitGroup
	etag    string                 // of the planner's lock
	decoded bool                   // the plan in that was read
	checked time.Duration          // monotonic time of the last such read
	session *leasehold.SessionTerm // that it leans on
	seen    time.Duration          // monotonic time of the last sign of life
	nonce   string                 // of the planner's session, as last seen
	lookAt  time.Duration          // monotonic time of the next look at it
	stop    context.CancelFunc     // ends the candidacy; nil if there is none
	ended   chan struct{}
	stuck   time.Duration         // monotonic time since which this member has resigned, but could not release the planner's lock; 0 if it has
	left    leasehold.SessionTerm // that was ended for that
}

// silence is for how long, in TTLs, a planner is taken to be alive without a sign of life.
const silence = 2

func (c *candidacy) decide(ctx, work context.Context, p *plan, found bool) {
	g, now := c.g, c.g.now()
	deputy := p != nil && p.deputy == g.member
	g.mu.Lock()
	paused := now < g.pause
	watches := deputy && !paused
	changed := watches != g.watches
	g.watches = watches
	g.mu.Unlock()
	if changed {
		g.role.Ring()
	}
	stands := deputy || !found || p == nil
	if !stands {
		c.lookForLife(ctx, now)
		stands = now-c.seen >= silence*g.ttl
	}
	if c.stop != nil {
		select {
		case <-c.ended:
			c.stop()
			c.stop = nil
		default:
		}
	}
	switch {
	case stands && !paused && c.stop == nil:
		c.begin(work)
	case !stands || paused:
		c.end()
	}
	c.free(now, paused)
}

// free frees the planner's lock if a planner that has resigned cannot: only the end of its session does then.
func (c *candidacy) free(now time.Duration, paused bool) {
	g := c.g
	mine := c.session != nil && c.session.Key == g.memberKey(g.member) && *c.session != c.left
	switch {
	case !paused || !mine || g.elector.IsLeader():
		c.stuck = 0
	case c.stuck == 0:
		c.stuck = now
	case now-c.stuck >= g.ttl:
		g.warn(context.Background(), "the planner's lock could not be released: starting a new session, so that another member can plan", nil)
		c.stuck, c.left = 0, *c.session
		g.mu.Lock()
		g.pause = now + coolDown*g.ttl
		g.endSession()
		g.mu.Unlock()
	}
}

// lookForLife reads the planner's session once per TTL.
func (c *candidacy) lookForLife(ctx context.Context, now time.Duration) {
	g := c.g
	if now < c.lookAt || c.session == nil || c.session.Key == g.memberKey(g.member) {
		return
	}
	c.lookAt = now + clock.Jitter(g.clock, g.ttl)
	obj, err := g.get(ctx, c.session.Key)
	var rec leasehold.Record
	if err == nil && rec.UnmarshalJSON(obj.Body) == nil && !rec.Released() && rec.Nonce != c.nonce {
		c.nonce, c.seen = rec.Nonce, now
	}
}

func (c *candidacy) begin(work context.Context) {
	ctx, cancel := context.WithCancel(work)
	c.stop, c.ended = cancel, make(chan struct{})
	ended := c.ended
	c.workers.Go(func() {
		defer close(ended)
		if err := c.g.elector.Run(ctx); err != nil && ctx.Err() == nil {
			c.g.warn(ctx, "this member cannot be the planner now", err)
			c.g.resign(c.g.ttl * coolDown)
		}
	})
}

// end ends the candidacy, unless this member is the planner: then the end of its session does.
func (c *candidacy) end() {
	if c.stop != nil && !c.g.elector.IsLeader() {
		c.stop()
	}
}

// lead runs during each term as planner.
func (g *Group) lead(ctx context.Context, lease *leasehold.Lease) {
	p := newPlanner(ctx, g, lease)
	g.setPlanner(p)
	<-ctx.Done()
	g.setPlanner(nil)
}

func (g *Group) setPlanner(p *planner) {
	g.mu.Lock()
	g.planner = p
	g.mu.Unlock()
	g.role.Ring()
}

// resign ends the term as planner, if there is one, and lets others try for a while.
func (g *Group) resign(pause time.Duration) {
	g.mu.Lock()
	g.pause = g.now() + pause
	g.mu.Unlock()
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_ = g.elector.Resign(ended)
}

// runWatch watches the members while this member is the planner or its deputy, and makes the plan if it is the planner.
func (g *Group) runWatch(ctx context.Context) {
	var elected *planner
	retire := func() {
		if elected != nil {
			elected = nil
			g.emit(Event{Kind: EventRetired})
		}
	}
	defer retire()
	for ctx.Err() == nil {
		rung := g.role.Listen()
		g.mu.Lock()
		planner, watches, p := g.planner, g.watches, g.plan
		g.mu.Unlock()
		if planner != elected {
			retire()
		}
		if planner == nil && !watches {
			select {
			case <-rung:
			case <-ctx.Done():
			}
			continue
		}
		if planner != nil {
			if err := planner.read(); err != nil {
				g.warn(ctx, "reading the last plan failed, will retry", err)
				g.sleep(ctx, clock.Jitter(g.clock, g.poll), rung)
				continue
			}
			if elected == nil {
				elected = planner
				g.emit(planner.plan.event(EventElected))
			}
			p = planner.plan
		}
		next := g.watch.look(ctx, p, planner != nil)
		if planner != nil {
			planner.step(g.watch)
		}
		g.sleep(ctx, next-g.now(), rung)
	}
}
