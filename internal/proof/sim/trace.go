package sim

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/proof/invariant"
)

// trace follows a world as the state machine of lease.spec, whose invariant is proven. Each write
// that is sent, lands or comes back, each answer, each use of a lease and the end of each process
// must be a step that the machine allows. The trace has no rule of its own: it chooses which action
// a step is, and never whether one is allowed.
//
// Now and then somebody leaves the contract on purpose. If that can harm one lease, this lease is
// excused: it does not count any more. Otherwise the rest of the world is not followed. Both are
// counted, with the reason.
type trace struct {
	w *world

	mu        sync.Mutex // guards what follows; store.mu, if held, was locked first, and w.mu later
	m         *invariant.Machine
	versions  map[string]int64 // writes, by ETag
	nonces    map[string]int64 // writes of locks that have landed
	records   []leasehold.Record
	ttls      map[int64]time.Duration // of leases; records may have longer ones
	leases    map[int64]*leasehold.Lease
	terms     map[term]int64     // leases
	processes map[*process]int64 // nil is the foreign client
	senders   []*process
	latest    map[int64]leasehold.Record // of the last term that each process has seen, with the longest TTL since
	firstSeen map[seen]time.Duration     // by the monotonic clock of the process
	offered   []int64                    // leases whose holders have signed that they are over
	excused   map[int64]bool             // leases
	excuses   map[string]int             // by reason
	left      string                     // why the world is not followed any more
}

type (
	// seen is a version that a process has seen, both by their numbers.
	seen struct{ process, version int64 }
	// term is a term of a process: its last lease with the token.
	term struct {
		process int64
		token   uint64
	}
)

// LeaseSpec is the protocol that each world follows.
var LeaseSpec = invariant.Parse(invariant.LeaseText)

// slack is for rounding: times of the machine are nanoseconds.
const slack = 3 * time.Microsecond

// newTrace returns nil where the contract does not hold, or the lock is another one.
func newTrace(w *world) *trace {
	if w.cfg.CreateOnly || w.cfg.Ages.wrong() {
		return nil
	}
	t := &trace{
		w: w, m: invariant.NewMachine(LeaseSpec), versions: make(map[string]int64), nonces: make(map[string]int64),
		ttls: make(map[int64]time.Duration), leases: make(map[int64]*leasehold.Lease),
		terms: make(map[term]int64), processes: make(map[*process]int64), latest: make(map[int64]leasehold.Record),
		firstSeen: make(map[seen]time.Duration), excused: make(map[int64]bool),
		excuses: make(map[string]int),
	}
	missing := t.makes(leasehold.Record{}, 0)
	for _, is := range []string{"gone", "landed", "sent", "rel", "ended"} {
		t.m.Set(is, 1, missing)
	}
	return t
}

// follow runs a step, unless the world is not followed.
func (t *trace) follow(step func()) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.left == "" {
		t.must("tick", t.now()-t.m.Get("now"))
		step()
	}
}

func (t *trace) now() int64 { return int64(time.Since(t.w.began)) }

// must takes a step that the machine has to allow.
func (t *trace) must(action string, args ...int64) {
	if err := t.m.Step(action, args); err != nil && t.left == "" {
		t.reject(err.Error())
	}
}

func (t *trace) reject(format string, args ...any) {
	t.left = "rejected"
	t.w.violate("trace: "+format, args...)
}

// leave ends the trace of this world.
func (t *trace) leave(why string) { t.left = why }

// excuse takes a lease out of the game.
func (t *trace) excuse(b int64, why string) {
	t.w.log("trace", "excuses the lease of token %d: %s", t.records[b].Token, why)
	t.excused[b] = true
	t.excuses[why]++
	t.stops(b)
	if t.m.Get("ended", b) == 0 {
		t.must("end", t.m.Get("by", b), b)
	}
}

// makes makes a write of a record, by a lease with this TTL.
func (t *trace) makes(rec leasehold.Record, ttl time.Duration) int64 {
	w := t.m.Make("W")
	t.records = append(t.records, rec)
	t.m.Set("life", int64(float64(ttl-t.w.cfg.marginOf(ttl))/t.slowest()), w)
	t.m.Set("sentR", t.now(), w)
	t.m.Set("tok", int64(rec.Token), w)
	if rec.Released() {
		t.m.Set("rel", 1, w)
	}
	for p := range t.senders {
		t.waits(int64(p), w)
	}
	return w
}

// replaces sets who has made a write, and which version it replaces.
func (t *trace) replaces(p, w, base int64) {
	t.m.Set("by", p, w)
	t.m.Set("base", base, w)
	object := w
	if t.m.Get("gone", base) == 0 {
		object = t.m.Get("obj", base)
	}
	t.m.Set("obj", object, w)
}

// waits sets how long a process waits for the holder of a version.
func (t *trace) waits(p, w int64) {
	t.m.Set("wait", t.wait(t.records[w].TTL), p, w)
}

func (t *trace) wait(ttl time.Duration) int64 {
	return int64(float64(ttl)*(1+t.w.cfg.Drift)/(1+t.w.cfg.RateSpread)) - int64(slack)
}

func (t *trace) number(p *process) int64 {
	n, ok := t.processes[p]
	if !ok {
		n = t.m.Make("P")
		t.processes[p], t.senders = n, append(t.senders, p)
		for w := range t.records {
			t.waits(n, int64(w))
		}
	}
	return n
}

// follows a write of a Lock that is sent, and returns its number; 0 if it can never land.
func (t *trace) sends(p *process, r request) (w int64) {
	var rec leasehold.Record
	if t == nil || !r.writes() || r.tries() || rec.UnmarshalJSON(r.body) != nil {
		return 0
	}
	t.w.mu.Lock()
	called, heir := t.w.calledRelease[rec.Token], t.w.heirs[rec.Token][p]
	t.w.mu.Unlock()
	t.follow(func() {
		base, known := t.versions[r.ifMatch]
		if r.kind == "update" && !known || t.w.cfg.TornReads && base != t.m.Get("cur") {
			return // the ETag of a page, or of another version than its record: nothing lands over that
		}
		n, b := t.number(p), t.m.Get("of", base)
		if before, ok := t.terms[term{n, rec.Token}]; ok && t.m.Get("old", base) == 1 {
			b = before
		}
		acquires, own := rec.Token > t.records[base].Token, t.m.Get("by", b) == n && b != 0
		ttl := rec.TTL
		switch {
		case acquires, p.node == administrator:
		case own:
			ttl = t.ttls[b]
		case heir:
			ttl = t.w.cfg.timing(p.name, rec.Token).ttl
		}
		w = t.makes(rec, ttl)
		if life := t.m.Get("life", w); !rec.Released() && life > t.wait(rec.TTL) { // an axiom of the proof
			t.reject("the clocks of this world leave their bounds: %v > %v", life, t.wait(rec.TTL))
		}
		t.replaces(n, w, base)
		if own && !acquires && p.node != administrator {
			t.m.Set("of", b, w)
			t.writesOn(b, w, base, called)
			return
		}
		t.ttls[w] = ttl
		t.m.Set("of", w, w)
		t.m.Set("term", w, w)
		if acquires {
			t.acquires(p, n, w, base)
			return
		}
		t.m.Set("term", t.m.Get("term", b), w)
		switch {
		case rec.Released() && p.node == administrator:
			t.settle(n, b)
			t.contract("break", b, n, w, base)
		case !rec.Released() && heir:
			t.settle(n, b)
			t.contract("resume", b, n, w, base)
		default:
			t.reject("%s writes token %d, of which it has neither a lease nor the handle", p.name, rec.Token)
		}
	})
	return w
}

// writesOn follows a renewal or a release.
func (t *trace) writesOn(b, w, base int64, called bool) {
	over := [2]string{"", "Old"}[t.m.Get("old", base)]
	if t.m.Get("rel", w) == 0 {
		t.contract("renew"+over, b, b, w, base)
		return
	}
	t.settle(t.m.Get("by", b), b)
	if called { // which says that the function has returned
		t.stops(b)
	}
	t.contract("release"+over, b, b, w, base)
}

// settle notes that a lease has ended, if it has, as far as p can know.
func (t *trace) settle(p, b int64) {
	lease, by := t.leases[b], t.senders[t.m.Get("by", b)]
	mine := t.m.Get("by", b) == p
	switch {
	case t.m.Get("ended", b) == 1 && (!mine || t.m.Get("gaveUp", p, b) == 1):
	case lease == nil && (mine || by != nil && by.crashed.Load()),
		lease != nil && lease.Context().Err() != nil && !lease.Valid():
		t.must("end", t.m.Get("by", b), b)
	}
}

// acquires follows a write that begins a term: one of the reasons must allow it.
func (t *trace) acquires(p *process, n, w, v int64) {
	b := t.m.Get("of", v)
	age := int64(float64(p.clock.Now().Mono-t.firstSeen[seen{n, v}]) / (1 + t.w.cfg.RateSpread))
	if t.m.Get("owns", n, v) == 1 {
		t.settle(n, b)
	}
	rec := t.records[v]
	t.m.Set("waitOld", t.wait(max(rec.TTL, t.latest[n].TTL)), n, v)
	type reason struct {
		action string
		args   []int64
	}
	reasons := []reason{
		{"acquireReleased", []int64{n, w, v}},
		{"acquireOwn", []int64{n, w, v}},
		{"acquireOffered", []int64{n, w, v}},
		{"acquireExpired", []int64{n, w, v, age}},
		{"acquireForeign", []int64{n, w, v}},
		{"acquireOld", []int64{n, w, v, age}},
	}
	if own, ok := t.terms[term{n, t.records[v].Token}]; ok && t.m.Get("old", v) == 1 {
		t.settle(n, own)
		reasons = append(reasons, reason{"acquireOwnOld", []int64{n, w, v, own}})
	}
	for _, b := range t.offered {
		if t.m.Get("old", v) == 1 {
			reasons = append(reasons, reason{"acquireOfferedOld", []int64{n, w, v, b}})
		}
	}
	if t.w.cfg.Ages == ReportedAges || t.w.cfg.Ages == TrustedDates {
		aged := []int64{n, w, v, t.now() - t.m.Get("landR", v)}
		reasons = append(reasons, reason{"acquireAged", aged}, reason{"acquireOld", aged})
	}
	var refused []string
	for _, r := range reasons {
		err := t.m.Step(r.action, r.args)
		if err == nil {
			t.w.log(p.name, "%s: token %d", r.action, t.records[w].Token)
			return
		}
		refused = append(refused, err.Error())
	}
	switch {
	case p.reclaims && rec.Holder == p.identity:
		t.settle(n, b)
		t.contract("acquireReclaim", b, n, w, v)
	case t.m.Get("old", v) == 1 && t.m.Get("cur") != v: // nothing lands over it any more
	case t.m.Get("old", v) == 1 && t.fooled(p) && rec.Released():
		t.contract("acquireReleased", b, n, w, v)
	case t.m.Get("old", v) == 1 && t.fooled(p):
		t.contract("acquireReclaim", b, n, w, v)
	default:
		t.reject("%s begins token %d, and no reason holds: %s", p.name, t.records[w].Token, strings.Join(refused, "; "))
	}
}

// fooled reports whether nothing shows a process that a restored version is old: it has not seen
// the term that may go on, or has seen that version last, with its ETag, as far as it can tell.
func (t *trace) fooled(p *process) bool {
	p.client.mu.Lock()
	defer p.client.mu.Unlock()
	return p.client.terms[t.records[t.m.Get("who")].TermID] == 0 || p.client.fooled ||
		t.w.cfg.HashETags && t.w.cfg.TornReads
}

// contract takes a step whose user may leave the contract, or whose process cannot know better.
// Then the lease of the version that is replaced is excused, or the one that may be valid.
func (t *trace) contract(action string, b int64, args ...int64) {
	err := t.m.Step(action, args)
	for range 2 { // both may be
		refused, _ := errors.AsType[*invariant.Refused](err)
		switch {
		case err == nil:
			return
		case refused.Who == "user":
			t.excuse(b, action+" while the lease goes on")
		case refused.Who == "knows":
			t.excuse(t.m.Get("who"), action+" of a restored version that nothing shows to be old")
			if b != t.m.Get("who") && t.m.Get("ended", b) == 0 {
				t.excuse(b, action+" of a restored version that nothing shows to be old")
			}
		}
		err = t.m.Step(action, args, "knows")
	}
	if err != nil {
		t.reject(err.Error())
	}
}

// foreignSends follows a write of the foreign client, which holds the lock until then. It begins a
// term, or goes on with the one that it has.
func (t *trace) foreignSends(body []byte, etag string, first bool, until time.Time) (w int64) {
	var rec leasehold.Record
	_ = rec.UnmarshalJSON(body)
	t.follow(func() {
		n, base := t.number(nil), t.versions[etag]
		w = t.makes(rec, 0)
		t.replaces(n, w, base)
		b := t.m.Get("of", base)
		if !first {
			t.m.Set("of", b, w)
			if until.IsZero() {
				t.must("end", n, b)
				t.must("release", b, w, base)
				return
			}
		}
		t.m.Set("life", int64(time.Until(until)), w)
		if !first {
			t.must("renew", b, w, base)
			return
		}
		t.m.Set("of", w, w)
		t.m.Set("term", w, w)
		t.m.Set("foreign", 1, w)
		var err error
		for _, action := range []string{"acquireReleased", "acquireForeign", "acquireErasing"} {
			if err = t.m.Step(action, []int64{n, w, base}); err == nil {
				return
			}
		}
		t.reject("the foreign client: %v", err)
	})
	return w
}

// foreignHolds follows the foreign client, which knows that its write has landed.
func (t *trace) foreignHolds(w int64) {
	t.follow(func() {
		b := t.m.Get("of", w)
		if t.excused[b] { // by a Break that has not landed, say
			return
		}
		t.must("learn", b, w)
		t.must("act", b, 1)
	})
}

// lands follows a write that lands.
func (t *trace) lands(r request, etag string) {
	t.follow(func() {
		if t.w.isLate(r) && t.m.Get("base", r.step) != t.m.Get("cur") {
			t.leave("a late write landed over a restored version that has its old ETag")
			return
		}
		t.must("land", r.step)
		t.versions[etag] = r.step
		rec, b := t.records[r.step], t.m.Get("of", r.step)
		if t.m.Get("foreign", b) == 0 {
			t.nonces[rec.Nonce] = r.step
			t.terms[term{t.m.Get("by", b), rec.Token}] = b
		}
	})
}

// restores follows an old version that comes back.
func (t *trace) restores(v old, etag string) {
	t.follow(func() {
		w := t.makes(v.rec, 0)
		t.replaces(t.number(backup), w, v.step)
		t.m.Set("of", w, w)
		t.m.Set("term", t.m.Get("term", t.m.Get("of", v.step)), w)
		t.m.Set("old", 1, w)
		t.must("restore", w, v.step)
		t.versions[etag] = w
	})
}

// sees follows an answer that shows a version, or that the process has written it.
func (t *trace) sees(p *process, etag string) {
	t.follow(func() {
		n := t.number(p)
		v, ok := t.versions[etag]
		if ok && t.m.Get("seen", n, v) == 0 {
			t.must("see", n, v)
			t.firstSeen[seen{n, v}] = p.clock.Now().Mono
			rec, latest := t.records[v], t.latest[n]
			if rec.Token < latest.Token || rec.Token == latest.Token && rec.TermID != latest.TermID {
				latest.TTL = max(latest.TTL, rec.TTL)
			} else {
				latest = rec
			}
			t.latest[n] = latest
		}
	})
}

// holds notes a lease that a process has got.
func (t *trace) holds(lease *leasehold.Lease) {
	nonce := lease.Record().Nonce
	t.follow(func() { t.leases[t.m.Get("of", t.nonces[nonce])] = lease })
}

// offers follows a holder that signs that its lease, which has written rec last, is over.
func (t *trace) offers(p *process, rec leasehold.Record) {
	if t == nil {
		return
	}
	t.w.mu.Lock()
	called := t.w.calledRelease[rec.Token]
	t.w.mu.Unlock()
	t.follow(func() {
		b := t.m.Get("of", t.nonces[rec.Nonce])
		t.settle(t.number(p), b)
		if called { // which says that the function has returned
			t.stops(b)
		}
		t.must("offer", b)
		t.offered = append(t.offered, b)
	})
}

// acts follows a lease that says that it is valid, and for how long.
func (t *trace) acts(p *process, lease *leasehold.Lease) {
	until := time.Until(lease.Deadline())
	t.uses(p, lease, func(b int64) { t.must("act", b, int64(float64(until)/t.slowest())-int64(slack)) })
}

// slowest is the rate of the slowest clock that may be. If time daemons keep wall clocks, a holder
// goes by its wall clock where that is faster.
func (t *trace) slowest() float64 {
	if t.w.cfg.Foreign {
		return 1
	}
	return 1 - t.w.cfg.RateSpread
}

// works follows a function that begins under a lease.
func (t *trace) works(p *process, lease *leasehold.Lease) {
	t.uses(p, lease, func(b int64) { t.must("work", b) })
}

// uses follows a use of a lease by the number of the write that began it.
func (t *trace) uses(p *process, lease *leasehold.Lease, use func(b int64)) {
	nonce := lease.Record().Nonce
	t.follow(func() {
		w, ok := t.nonces[nonce]
		b := t.m.Get("of", w)
		if !ok || t.excused[b] || p.crashed.Load() {
			return
		}
		t.leases[b] = lease
		if t.m.Get("begun", b) == 0 || t.m.Get("trusts", b) != w {
			t.must("learn", b, w)
		}
		use(b)
	})
}

// returns follows the end of the function of a lease.
func (t *trace) returns(lease *leasehold.Lease) {
	nonce := lease.Record().Nonce
	t.follow(func() { t.stops(t.m.Get("of", t.nonces[nonce])) })
}

// stops follows the end of the function of a lease, if one runs.
func (t *trace) stops(b int64) {
	if t.m.Get("works", b) == 1 {
		t.must("return", b)
	}
}

// dies follows the crash of a process: nothing acts under its leases.
func (t *trace) dies(p *process) {
	t.follow(func() {
		n := t.number(p)
		for w := range int64(len(t.records)) {
			if t.m.Get("sent", w) == 0 || t.m.Get("by", w) != n || t.m.Get("of", w) != w || t.m.Get("ended", w) == 1 {
				continue
			}
			t.stops(w)
			t.must("end", n, w)
		}
	})
}

// snapshot stands for a machine that has done nothing when its snapshot was taken, and backup for
// whoever restores old versions.
var snapshot, backup = new(process), new(process)

// starts follows a machine that starts from that snapshot.
func (t *trace) starts(p *process) {
	t.follow(func() { t.must("copy", t.number(snapshot), t.number(p)) })
}

// ends wants the invariant to hold in the last state of some worlds, and counts what was followed.
func (t *trace) ends(stats *Stats) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if broken := t.m.Broken; t.left == "" && t.w.cfg.Seed%20 == 1 {
		if names := broken(); len(names) > 0 {
			t.w.violate("trace: parts of the invariant do not hold: %v", names)
		}
	}
	stats.Steps, stats.Excused = t.m.Taken(), t.excuses
	if t.left == "" {
		stats.Followed = 1
	} else {
		stats.Excused = map[string]int{fmt.Sprint("not followed to the end: ", t.left): 1}
		maps.Copy(stats.Excused, t.excuses)
	}
}
