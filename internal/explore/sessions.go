package explore

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"sync"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
)

// Sessions bounds a search through worlds in which each process holds its locks under a session of its own. A session renews itself.
// A request is answered, or fails, within the time that the library gives it, unless it hangs.
type Sessions struct {
	Rates     []float64  // of the processes' clocks, one process for each
	Plans     [][]string // what each process does: "1" holds lock 1, and "12" holds lock 2 while it holds lock 1
	Commit    bool       // each function begins with Lease.Commit
	Poll      time.Duration
	Steps     int  // of one path
	Faults    int  // on one path: requests that are lost, late or hang, and wrong answers
	Crashes   int  // on one path; a restarted process remembers nothing
	Suspends  int  // on one path: a process does nothing for up to 1.5 TTLs, and its monotonic clock stands still
	Narrow    bool // B begins when A has a lease, and what goes wrong goes wrong with A or its session; A does not restart
	Deletions int  // on one path, of the object of a session
	Delays    int  // on one path: times that a request is answered only just before its time is over
}

const (
	renewal = ttl * 3 / 5
	attempt = (ttl - margin - renewal) / 3 // as options.go has it
)

func (cfg Sessions) begin() space {
	w := &sessionWorld{cfg: cfg, first: make(chan struct{}), store: make(map[string]*version), tokens: make(map[string]*process)}
	for i := range cfg.Rates {
		go w.start(i, 0).run()
		synctest.Wait()
	}
	return w
}

func (cfg Sessions) limit() int { return cfg.Steps }

func sessionKey(process int) string { return "session/" + string(rune('A'+process)) }

// sessionWorld is the walk along one path of Sessions.
type sessionWorld struct {
	journal
	cfg       Sessions
	mu        sync.Mutex // guards all fields, those of the processes too
	processes []*process
	store     map[string]*version
	calls     []*call
	ghosts    []*version // on the network, though their writers have given them up
	faults    int
	crashes   int
	suspends  int
	deletions int
	delays    int
	events    int                 // that a choice may depend on
	first     chan struct{}       // closed when A has its first lease
	tokens    map[string]*process // who was given which token of which lock
}

func (w *sessionWorld) violateLocked(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.violate(format, args...)
}

// choices implements space.
func (w *sessionWorld) choices() []choice {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ghosts = slices.DeleteFunc(w.ghosts, func(v *version) bool { return !w.matches(v) && w.deletions == w.cfg.Deletions })
	slices.SortStableFunc(w.calls, func(a, b *call) int {
		return cmp.Or(cmp.Compare(a.p.index, b.p.index), cmp.Compare(a.name(), b.name()))
	})
	var list []choice
	add := func(name string, do func()) {
		list = append(list, choice{name, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			do()
		}})
	}
	for _, c := range w.calls {
		switch {
		case c.landed != nil && c.p.asleep:
			continue
		case c.landed != nil:
			add(c.name()+": answered", func() { c.answer(*c.landed) })
			continue
		case c.p.asleep:
			add(c.name()+": lands", func() { a := c.serve(); c.landed = &a })
			continue
		}
		add(c.name()+": served", func() { c.answer(c.serve()) })
		if w.faults < w.cfg.Faults && (c.key == sessionKey(0) || !w.cfg.Narrow) {
			for _, f := range c.faults() {
				add(c.name()+": "+f.name, func() {
					w.faults++
					f.do()
				})
			}
		}
	}
	for i, v := range w.ghosts {
		add(v.name+" is applied late", func() {
			w.ghosts = slices.Delete(slices.Clone(w.ghosts), i, i+1)
			w.apply(v)
		})
	}
	if _, ok := w.next(); ok {
		list = append(list, choice{"time passes", w.advance})
	}
	for i, p := range w.processes {
		if p.asleep {
			// In a narrow world it does so when B writes, and at the latest possible time.
			writes := slices.ContainsFunc(w.calls, func(c *call) bool { return c.p != p && c.put != nil })
			if _, ok := w.next(); writes || !ok || !w.cfg.Narrow {
				add(p.name+" wakes", p.wake)
			}
			continue
		}
		writes := slices.ContainsFunc(w.calls, func(c *call) bool { return c.p == p && c.put != nil })
		if len(p.held) == 0 && (!writes || w.cfg.Narrow) || i > 0 && w.cfg.Narrow {
			continue
		}
		if w.suspends < w.cfg.Suspends {
			add(p.name+" is suspended", func() {
				w.suspends++
				p.sleep()
			})
		}
		if w.crashes < w.cfg.Crashes {
			add(p.name+" crashes", func() {
				w.crashes++
				for _, c := range w.calls {
					if c.p == p && c.put != nil {
						w.ghosts = append(w.ghosts, c.put) // because it may have left the machine
					}
				}
				p.die()
				if p.over = w.cfg.Narrow; !p.over {
					go w.start(i, p.restarts+1).run()
				}
			})
		}
	}
	if w.deletions < w.cfg.Deletions {
		for i := range w.processes {
			if key := sessionKey(i); w.store[key] != nil && (i == 0 || !w.cfg.Narrow) {
				add(key+" is deleted", func() {
					w.deletions++
					delete(w.store, key)
				})
			}
		}
	}
	return list
}

// next is the true time to which time can pass in one step. It cannot pass as long as a call is due.
func (w *sessionWorld) next() (at time.Duration, ok bool) {
	at = -1
	limit := time.Duration(math.MaxInt64)
	until := func(t time.Duration) {
		if at < 0 || t < at {
			at = t
		}
	}
	for _, p := range w.processes {
		switch {
		case p.asleep && w.now >= p.since+ttl*3/2:
			return 0, false
		case p.asleep:
			until(p.since + ttl*3/2)
			continue
		case len(p.timers) > 0:
			until(p.when(p.timers[0].due))
		}
	}
	for _, c := range w.calls {
		switch due := c.p.when(c.until); {
		case c.p.asleep:
		case due <= w.now || c.landed != nil:
			return 0, false
		case w.delays < w.cfg.Delays || c.hangs:
			until(due)
		default:
			limit = min(limit, due)
		}
	}
	return at, at >= 0 && at < limit
}

// advance moves time until something happens on which a choice may depend.
func (w *sessionWorld) advance() {
	began, before := w.now, w.happened()
	for {
		w.mu.Lock()
		at, ok := w.next()
		if ok && at > began+10*ttl {
			w.violate("nothing happens any more")
			ok = false
		}
		if !ok {
			w.mu.Unlock()
			return
		}
		w.now = at
		w.mu.Unlock()
		w.quiesce()
		w.mu.Lock()
		due := slices.ContainsFunc(w.calls, func(c *call) bool { return !c.p.asleep && c.p.when(c.until) <= w.now })
		if due {
			w.delays++
		}
		w.mu.Unlock()
		if due || w.happened() != before {
			return
		}
	}
}

// quiesce waits until every goroutine of the library waits for an answer, or for time to pass.
func (w *sessionWorld) quiesce() {
	synctest.Wait()
	for w.fire() {
		synctest.Wait()
	}
}

// fire starts one timer that is due, if there is one.
func (w *sessionWorld) fire() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.processes {
		if !p.asleep && len(p.timers) > 0 && p.timers[0].due <= p.reading().Mono {
			t := p.timers[0]
			t.stop()
			go t.f()
			return true
		}
	}
	return false
}

// happened counts what a choice may depend on.
func (w *sessionWorld) happened() (count [2]int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	count[0] = w.events
	for _, p := range w.processes {
		for _, h := range p.held {
			if h.lease.Context().Err() != nil {
				count[1]++
			}
		}
	}
	return count
}

// fingerprint implements space. Two states with one fingerprint have the same futures, because the library forgets what
// process.remembers leaves out. What a search relies on, it checks: there must be as many choices.
func (w *sessionWorld) fingerprint() [16]byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := fmt.Append(nil, w.faults, w.crashes, w.suspends, w.deletions, w.delays)
	for _, p := range w.processes {
		b = p.remembers(b)
	}
	keys := make([]string, 0, len(w.store))
	for key := range w.store {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		b = w.store[key].describe(append(b, "\nstore "...))
	}
	for _, c := range w.calls {
		b = fmt.Append(b, "\ncall ", c.name(), rounded(c.until-c.p.reading().Mono), c.hangs)
		if c.put != nil {
			b = c.put.describe(b)
		}
		if c.landed != nil {
			b = fmt.Append(b, c.landed.err, c.landed.of != nil)
			if c.landed.of != nil {
				b = c.landed.of.describe(b)
			}
		}
	}
	for _, v := range w.ghosts {
		b = v.describe(append(b, "\nghost "...))
	}
	h := fnv.New128a()
	_, _ = h.Write(b)
	return [16]byte(h.Sum(nil))
}

// rounded is a time in a fingerprint. The allowances are a thousand times longer.
func rounded(d time.Duration) int64 { return d.Round(time.Millisecond).Milliseconds() }

func (v *version) describe(b []byte) []byte {
	b = fmt.Append(b, v.name, v.rec.Token, v.rec.Released(), v.create, v.ifMatch)
	if v.rec.Session != nil {
		b = fmt.Append(b, v.rec.Session.Token)
	}
	return b
}

// check implements space. It wants at most one valid lease of each lock, and the context of every earlier one ended.
func (w *sessionWorld) check() {
	w.quiesce()
	defer w.quiesce() // what is looked at may end
	w.mu.Lock()
	held := make(map[string][]*hold)
	for _, p := range w.processes {
		for _, h := range p.held {
			held[h.key] = append(held[h.key], h)
		}
	}
	w.mu.Unlock()
	for key, all := range held {
		if len(all) < 2 {
			continue
		}
		slices.SortFunc(all, func(a, b *hold) int { return cmp.Compare(a.lease.Token(), b.lease.Token()) })
		for _, h := range all[:len(all)-1] {
			if w.suspends == 0 && h.lease.Context().Err() == nil { // after a suspend it may end late
				w.violate("the context of %s has not ended, but token %d of %s was given away", h, all[len(all)-1].lease.Token(), key)
			}
		}
		valid := slices.DeleteFunc(all, func(h *hold) bool { return !h.lease.Valid() })
		if len(valid) > 1 {
			w.violate("several valid leases of %s: %v", key, valid)
		}
	}
}

func (h *hold) String() string { return fmt.Sprintf("%s (token %d)", h.p.name, h.lease.Token()) }

// guards reports whether the function of h runs within the time that it has: others cannot take its session yet, by the process's own
// clocks.
func (h *hold) guards() bool { return h.running && h.p.reading().Elapsed(h.p.known) < ttl }

func (w *sessionWorld) began(h *hold) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h.p.dead {
		return
	}
	h.running = true
	h.p.held = append(h.p.held, h)
	w.terms++
	h.p.step()
	if w.terms == 1 {
		close(w.first)
	}
	token := fmt.Sprint(h.key, " ", h.lease.Token())
	if other := w.tokens[token]; other != nil {
		w.violate("token %d of %s was given to %s and to %s", h.lease.Token(), h.key, other.name, h.p.name)
	}
	w.tokens[token] = h.p
}

// committed checks what Commit has said. No time has passed since.
func (w *sessionWorld) committed(h *hold, err error) {
	valid := h.lease.Valid()
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case h.p.dead:
	case err == nil && !valid:
		w.violate("%s has committed although its lease is over", h)
	case err == nil:
		if string(w.store[h.key].rec.Payload) != h.payload() {
			w.violate("what %s has committed is not there", h)
		}
	case valid:
		w.violate("%s could not commit although its lease is valid: %v", h, err)
	case !errors.Is(err, leasehold.ErrLost):
		w.violate("%s could not commit, with an error that is not ErrLost: %v", h, err)
	}
}

// checkWrite checks what v changes. The caller holds w.mu.
func (w *sessionWorld) checkWrite(v, old *version) {
	now, was := v.rec, leasehold.Record{}
	if old != nil {
		was = old.rec
	}
	again := old == nil && w.deletions > 0 // the object of a session that was deleted begins anew
	switch {
	case now.Token < was.Token, now.Token > was.Token+1 && !again:
		w.violate("%s changed the token from %d to %d", v.name, was.Token, now.Token)
	case old != nil && now.Token == was.Token && was.Released() && !now.Released():
		w.violate("%s revived the released token %d", v.name, now.Token)
	}
	taken := now.Token > was.Token
	if old == nil {
		return
	}
	if taken && v.key[0] == 'l' && string(now.Payload) != string(was.Payload) {
		w.violate("%s dropped what was committed", v.name)
	}
	if was.Session != nil && taken && v.by != old.by {
		if k := w.store[was.Session.Key]; k != nil && k.rec.SessionID == was.Session.ID && k.rec.Token == was.Session.Token && !k.rec.Released() {
			w.violate("%s took the lock from a term of %s that goes on", v.name, was.Session.Key)
		}
	}
	for _, p := range w.processes {
		for _, h := range p.held {
			switch {
			case h.key == v.key && taken && h.lease.Token() < now.Token && h.guards():
				w.violate("%s took the lock while the function of %s had time left", v.name, h)
			case v.key != sessionKey(p.index):
			case taken && h.guards():
				w.violate("%s took the session anew while the function of %s had time left", v.name, h)
			case now.Released() && !was.Released() && v.by == p && h.running:
				w.violate("%s released the session while the function of %s ran", v.name, h)
			case now.Released() && !was.Released() && v.by != p && w.suspends == 0 && h.lease.Context().Err() == nil:
				w.violate("%s sealed the session, but the context of %s has not ended", v.name, h)
			}
		}
	}
}

// checkEnd implements space. It wants every process to end, and a newcomer to get every lock.
func (w *sessionWorld) checkEnd() {
	w.mu.Lock()
	keys := make(map[string]bool)
	for _, p := range w.processes {
		if !p.over {
			w.violate("at the end %s waits for ever", p.name)
		}
		for _, locks := range w.cfg.Plans[p.index] {
			for _, l := range locks {
				keys["lock/"+string(l)] = true
			}
		}
	}
	newcomer := w.start(len(w.processes), 0)
	w.mu.Unlock()
	defer newcomer.end()
	for key := range keys {
		go newcomer.take(key)
	}
	began := w.now
	for taken := 0; taken < len(keys) && w.violation == ""; {
		synctest.Wait()
		w.mu.Lock()
		taken = len(newcomer.held)
		for _, c := range slices.Clone(w.calls) {
			c.answer(c.serve())
		}
		w.mu.Unlock()
		if taken < len(keys) {
			w.settle()
		}
		if w.now > began+3*ttl {
			w.violate("at the end a newcomer got %d of %d locks in 3 TTLs", taken, len(keys))
		}
	}
}

// settle lets the newcomer go on: its calls first, then time.
func (w *sessionWorld) settle() {
	synctest.Wait()
	w.mu.Lock()
	at, ok := w.next()
	if ok = ok && len(w.calls) == 0; ok {
		w.now = at
	}
	w.mu.Unlock()
	w.quiesce()
}

// take takes a lock without a session.
func (p *process) take(key string) {
	lock, err := leasehold.NewLock(p, key, append(p.options(), leasehold.WithManualRenewal())...)
	if err != nil {
		panic(err)
	}
	lease, err := lock.Acquire(p.ctx)
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if err == nil {
		p.held = append(p.held, &hold{p: p, key: key, lease: lease})
	} else if !p.dead {
		p.w.violate("at the end a newcomer could not take %s: %v", key, err)
	}
}

func (p *process) end() {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.die()
}

// end implements space.
func (w *sessionWorld) end() {
	for _, p := range w.processes {
		p.end()
	}
}
