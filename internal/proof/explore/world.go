package explore

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
)

// world is the walk along one path. Between two steps every client waits, so only one goroutine
// runs at a time.
type world struct {
	story
	cfg        Config
	mu         sync.Mutex // guards all fields against the clients' goroutines
	clients    []*client
	object     *write // in the store; nil if there is none
	writtenAt  time.Duration
	duplicates int      // applied
	ghosts     []*write // on the network, though the client has its answer or crashed
	faults     int
	crashes    int
	suspends   int
	abandons   int
	abandoned  []abandonment
	offers     int // notes that have reached a client
	notes      []note
	tokens     map[uint64]*client
	lost       map[uint64]bool // terms that were over before their release
	ghostly    bool            // the object is what a late or repeated request wrote
	ctx        context.Context // ends with the walk
	stop       context.CancelFunc
}

func newWorld(cfg Config) *world {
	w := &world{cfg: cfg, tokens: make(map[uint64]*client), lost: make(map[uint64]bool)}
	w.ctx, w.stop = context.WithCancel(context.Background())
	for i := range cfg.Rates {
		w.start(i, 0, 0)
	}
	return w
}

// abandonment is a term that its holder has abandoned. Nobody may lead before the lease would have
// ended.
type abandonment struct {
	token uint64
	until time.Duration // true time
}

// check runs at every step. It wants at most one valid lease, and the context of every other lease
// ended.
func (w *world) check() {
	valid := w.valid()
	for _, a := range w.abandoned {
		if o := w.object; o != nil && o.rec.Token == a.token && o.rec.Released() {
			w.violate("token %d was released, although it was abandoned", a.token)
		}
		if w.now < a.until && valid != "" {
			w.violate("%s leads %v before abandoned token %d has run out", valid, a.until-w.now, a.token)
		}
	}
	if strings.Contains(valid, ",") {
		w.violate("several valid leases: %s", valid)
	}
	if w.suspends > 0 { // because after a suspend a context may end late
		return
	}
	for _, c := range w.clients {
		if c.lease != nil && c.lease.Context().Err() == nil && valid != "" && !strings.HasPrefix(valid, c.name+" ") {
			w.violate("the context of %s has not ended, but the lease of %s is valid", c.name, valid)
		}
	}
}

// checkEnd wants the lock free at the end of a path, unless its holder crashed, lost it, abandoned
// it, or has not learned that it got it.
func (w *world) checkEnd() {
	abandoned := func(token uint64) bool {
		return slices.ContainsFunc(w.abandoned, func(a abandonment) bool { return a.token == token })
	}
	if o := w.object; o != nil && !o.rec.Released() && !w.ghostly && !w.lost[o.rec.Token] &&
		!abandoned(o.rec.Token) && w.crashes == 0 {
		w.violate("at the end the lock is held with token %d", o.rec.Token)
	}
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

// choice is one thing that can happen next.
type choice struct {
	name string
	do   func()
}

// choices lists everything that can happen next, in an order that depends only on the state.
func (w *world) choices() []choice {
	var valid []*client
	if w.abandons < w.cfg.Abandons {
		valid = slices.DeleteFunc(slices.Clone(w.clients), func(c *client) bool {
			return c.lease == nil || !c.lease.Valid()
		})
	}
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
		fault("timed out, may be applied later", func() {
			w.ghosts = append(w.ghosts, r.put)
			c.answer(reply{err: context.DeadlineExceeded})
		})
		fault("applied, sent twice", func() {
			w.ghosts = append(w.ghosts, r.put)
			c.answer(w.serve(r))
		})
	}
	for i, g := range w.ghosts {
		add(g.name+" is applied late", func() {
			w.ghosts = slices.Delete(slices.Clone(w.ghosts), i, i+1)
			if w.apply(g).err == nil {
				w.ghostly = true
			}
		})
	}
	if _, ok := w.nextTimer(nil); ok {
		list = append(list, choice{"time passes", func() { w.advance(nil) }})
		for _, c := range w.clients {
			if w.suspends < w.cfg.Suspends && c.lease != nil {
				list = append(list, choice{"time passes, " + c.name + " is suspended", func() {
					w.suspends++
					w.advance(c)
				}})
			}
		}
	}
	for _, c := range valid {
		list = append(list, choice{c.name + " abandons its lease", func() { w.abandon(c) }})
	}
	list = append(list, w.arrivals()...)
	for i, c := range w.clients {
		if w.crashes < w.cfg.Crashes && c.lease != nil {
			add(c.name+" crashes and restarts", func() {
				w.crashes++
				c.dead, c.lease, c.timers = true, nil, nil
				if c.pending != nil && c.pending.put != nil {
					w.ghosts = append(w.ghosts, c.pending.put) // because it may have left the machine
				}
				c.pending = nil
				c.kill()
				w.start(i, c.incarnation+1, c.attempts)
			})
		}
	}
	return list
}

// abandon makes a client abandon its lease, which is valid. The term stands for at least as long as
// the lease would have been valid.
func (w *world) abandon(c *client) {
	left := time.Until(c.lease.Deadline())
	w.mu.Lock()
	w.abandons++
	c.abandoned = true
	c.note("abandons", nil)
	w.abandoned = append(w.abandoned, abandonment{c.lease.Token(), w.now + time.Duration(float64(left)/c.rate)})
	w.mu.Unlock()
	c.lease.Abandon()
}

func (w *world) terms() int { return len(w.tokens) }

// end makes every goroutine of the world return.
func (w *world) end() {
	w.mu.Lock()
	for _, c := range w.clients {
		c.dead = true
	}
	w.mu.Unlock()
	w.stop()
}
