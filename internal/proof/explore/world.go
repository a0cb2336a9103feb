package explore

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold"
)

const lockKey = "lock"

// world is the walk along one path of clients of one lock. Between two steps every client waits, so
// only one goroutine runs at a time.
type world struct {
	stage
	cfg       Config
	clients   []*client // in the order of their machines
	abandons  int
	abandoned []abandonment
	offers    int // notes that have reached a client
	notes     []note
	tokens    map[uint64]*client
	lost      map[uint64]bool // terms that were over before their release
}

func newWorld(cfg Config) *world {
	w := &world{cfg: cfg, tokens: make(map[uint64]*client), lost: make(map[uint64]bool)}
	w.objects, w.changed, w.rounded = make(map[string]*request), w.checkWrite, true
	for i := range cfg.Rates {
		w.start(i, 0, 0)
	}
	return w
}

// object is the lock's object in the store; nil if there is none.
func (w *world) object() *request { return w.objects[lockKey] }

// checkWrite checks the token of a write.
func (w *world) checkWrite(r, before *request) {
	var old leasehold.Record
	if before != nil {
		old = before.rec
	}
	switch now := r.rec; {
	case r.kind == "delete":
		w.violate("%s sent a DELETE", r.label)
	case now.Token < old.Token || now.Token > old.Token+1:
		w.violate("%s changed the token from %d to %d", r.label, old.Token, now.Token)
	case now.Token == old.Token && old.Released() && !now.Released():
		w.violate("%s revived the released token %d", r.label, now.Token)
	}
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
		if o := w.object(); o != nil && o.rec.Token == a.token && o.rec.Released() {
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
	if o := w.object(); o != nil && !o.rec.Released() && !o.late && !w.lost[o.rec.Token] &&
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
	list := menu{s: &w.stage}
	list.addRequests(w.cfg.Faults)
	if _, ok := w.nextTimer(); ok {
		list.addUnlocked("time passes", func() { w.advance(w.observed) })
		for _, c := range w.clients {
			if w.suspends < w.cfg.Suspends && c.lease != nil {
				list.addUnlocked("time passes, "+c.name+" is suspended", func() { w.suspend(c) })
			}
		}
	}
	for _, c := range valid {
		list.addUnlocked(c.name+" abandons its lease", func() { w.abandon(c) })
	}
	list.list = append(list.list, w.arrivals()...)
	for i, c := range w.clients {
		if w.crashes < w.cfg.Crashes && c.lease != nil {
			list.add(c.name+" crashes and restarts", func() {
				w.crash(c.machine)
				w.start(i, c.incarnation+1, c.attempts)
			})
		}
	}
	return list.list
}

// observed is all that choices depend on. After other timers only the clocks are read.
func (w *world) observed() string {
	s := w.valid()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.clients {
		s += fmt.Sprint(" ", c.woken)
	}
	return s
}

// suspend moves time to the next timer of the other clients, while one is suspended.
func (w *world) suspend(c *client) {
	w.mu.Lock()
	w.suspends++
	c.sleepOrWake(true)
	next, ok := w.nextTimer()
	if !ok {
		next = w.now + ttl
	}
	w.moveTo(next)
	c.sleepOrWake(false)
	w.mu.Unlock()
	w.fireAll()
	w.valid() // a lease that is asked notices that it has run out, and its context ends within this step
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
