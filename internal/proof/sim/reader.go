package sim

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
)

// readerFaults is the share of a reader's requests that go wrong.
const readerFaults = 0.3

// reading is what a process reads of the lock without being a candidate, against what its Watch and
// its Inspect yield.
type reading struct {
	w       *world
	name    string
	mu      sync.Mutex // guards what follows
	read    state      // that the last reply to Watch showed, if ok
	known   uint64     // the highest token that was known when the read was sent to which that was the reply
	misread bool       // the last reply that Watch got was torn
	failed  bool       // the last reply to Watch showed nothing
	yielded state      // by Watch, last
	seen    state      // by Inspect, last

	inspected string // the ETag of the last reply to Inspect
	// ETags that came with another version's body: a reader that knows one goes by what it has read
	// under it
	torn map[string]bool
}

// state is what a record says of the lock.
type state struct {
	ok       bool // there is a record
	token    uint64
	holder   string
	acquired time.Time
	released bool
}

func stateOf(r leasehold.Record) state {
	return state{true, r.Token, r.Holder, r.AcquiredAt, r.Released()}
}

// before reports whether a reader that has seen b may not see s any more.
func (s state) before(b state) bool {
	return b.ok && (s.token < b.token || s.token == b.token && b.released && !s.released)
}

// watching is the key of a value in the contexts of Watch.
type watching struct{}

// startReader starts a process that watches and inspects the lock.
func (w *world) startReader() {
	p := w.newProcess(reader, "reader", "reader", newNodeClock(1, 0, w.rng("jitter", "reader")))
	p.client.faults, p.candidates = readerFaults, 2
	p.reading = &reading{w: w, name: p.name, torn: make(map[string]bool)}
	w.reader, w.processes = p, append(w.processes, p) // nothing else runs yet
	p.goroutines.Go(func() { p.watch(p.running) })
	p.goroutines.Go(func() { p.inspect(p.running) })
}

// watch watches until ctx ends. A page that is taken for the lock object ends Watch.
func (p *process) watch(ctx context.Context) {
	r := p.reading
	time.Sleep(1307 * time.Nanosecond) // no two goroutines act at one instant
	for ctx.Err() == nil {
		r.restart()
		for status, err := range p.lock.Watch(context.WithValue(ctx, watching{}, true)) {
			if err == nil {
				p.w.log(p.name, "sees token %d of %s: %s", status.Record.Token, status.Record.Holder, status.State)
			}
			r.got(status, err)
			if err != nil && final(err) && !p.w.cfg.Pages {
				p.w.violate("%s: Watch ended: %v", p.name, err)
			}
		}
		_ = p.clock.Sleep(ctx, p.draw(p.w.cfg.TTL/5))
	}
}

// inspect inspects now and then while requests may go wrong.
func (p *process) inspect(ctx context.Context) {
	r := p.reading
	for p.clock.Sleep(ctx, p.draw(p.w.cfg.TTL)) == nil && p.w.faultsOn() {
		rec, err := p.lock.Inspect(ctx)
		if err != nil {
			continue
		}
		r.mu.Lock()
		if !r.torn[r.inspected] {
			r.check("Inspect", &r.seen, stateOf(rec))
		}
		r.mu.Unlock()
	}
}

// check wants that what a reader sees never goes back. The caller holds r.mu.
func (r *reading) check(by string, last *state, now state) {
	erased := r.w.hasErased()
	if now.before(*last) && !erased {
		r.w.violate("%s: %s went back from %+v to %+v", r.name, by, *last, now)
	}
	*last = now
}

// hasErased reports whether somebody has erased the token, so that it may go back.
func (w *world) hasErased() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tokenErased
}

// restart begins a new Watch.
func (r *reading) restart() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read, r.failed = state{}, false
}

// saw is called with every reply to a read, before Watch gets it, and wants that Watch has yielded
// what the one before showed.
func (r *reading) saw(ctx context.Context, q request, got reply) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if q.torn {
		r.torn[got.obj.ETag] = true
	}
	if ctx.Value(watching{}) == nil {
		r.inspected = got.obj.ETag
		return
	}
	r.missing()
	r.known, r.misread = q.known, got.err == nil && r.torn[got.obj.ETag]
	var rec leasehold.Record
	switch {
	case errors.Is(got.err, leasehold.ErrNotExist), got.err == nil && r.torn[got.obj.ETag]:
		r.read, r.failed = state{}, false
	case got.err != nil || got.obj.ETag == "":
		r.failed = true
	default:
		if r.failed = rec.UnmarshalJSON(got.obj.Body) != nil; !r.failed {
			r.read = stateOf(rec)
			r.read.ok = true
		}
	}
}

// missing wants nothing read that has not been yielded. Who knows a later token, because a foreign
// client has erased it since, takes a release for a restored one, which says nothing. The caller
// holds r.mu.
func (r *reading) missing() {
	erased := r.w.hasErased()
	read := r.read
	if erased {
		read.released = r.yielded.released
	}
	switch {
	case r.failed:
		r.w.violate("%s: Watch did not yield the error of a read", r.name)
	case read.ok && read != r.yielded:
		r.w.violate("%s: Watch read %+v but last yielded %+v", r.name, r.read, r.yielded)
	}
}

// got is called with everything that Watch yields.
func (r *reading) got(status leasehold.Status, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.failed = false
		return
	}
	now := stateOf(status.Record)
	now.ok = status.State != leasehold.StateNeverTaken
	r.check("Watch", &r.yielded, now)
	r.w.checkStatus(r.name, status, r.known, r.misread)
}

// checkStatus wants that a reader is told the state of the record, and that a term has run out only
// once its lease is over. Who had seen a later token when the read was sent takes a release for one
// that was restored, beside which a later term may go on: a torn read shows a release under the
// ETag that it had before the later term. Nobody deletes the object.
func (w *world) checkStatus(name string, s leasehold.Status, known uint64, misread bool) {
	erased := w.hasErased()
	later := s.State == leasehold.StateHeld && s.Record.Token < known
	if told := s.State == leasehold.StateReleased; s.State == leasehold.StateDeleted ||
		told != (s.Record.Released() && s.Record.Token > 0) && !later && !erased {
		w.violate("%s: Watch has yielded %s, released: %v", name, s.State, s.Record.Released())
	}
	if s.State != leasehold.StateExpired || misread { // a torn read hides a renewal
		return
	}
	w.mark("a reader sees an expiry")
	for _, l := range w.accountable() {
		// A machine whose clocks stood still may renew, after the look, a lease that had run out.
		stoodStill := time.Since(l.resumedAt) <= ttlOf(l.lease)
		if token := l.lease.Token(); token == s.Record.Token && l.lease.Valid() && !erased && !w.hasMoved(token) &&
			!w.cfg.Ages.wrong() && !stoodStill {
			w.violate("%s: Watch has yielded that token %d has expired, but the lease of %s is valid",
				name, token, l.name)
		}
	}
}

// checkReader wants that a reader knows the leader, some time after the last fault.
func (w *world) checkReader(token uint64) {
	if w.reader == nil {
		return
	}
	r := w.reader.reading
	r.mu.Lock()
	defer r.mu.Unlock()
	r.missing()
	if r.yielded.token != token || r.yielded.released {
		w.violate("%s: Watch has last yielded %+v, but token %d leads", r.name, r.yielded, token)
	}
}
