package sim

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold"
)

// machine is where a process runs, and its link to the store, in the worlds of locks and of tables
// alike.
type machine struct {
	name    string // of the process
	node    int    // or administrator, reader or visitor
	clock   *nodeClock
	rand    *rand.Rand // of its work
	journal *journal   // of its world
	crashed atomic.Bool
	cut     atomic.Bool // nothing gets through in either direction
	outage  atomic.Bool // every request is answered 503 at once
	denied  atomic.Pointer[func(kind, key string) error]
	harmed  atomic.Bool // it was denied something

	// The journal's mutex guards rand and these.
	halted    bool // the process has crashed, or is to stop
	crashedAt time.Time
	resumedAt time.Time // when the machine last resumed, or the term of its process was broken
}

func (m *machine) on() *machine { return m }

// draw draws a duration below d.
func (m *machine) draw(d time.Duration) time.Duration {
	m.journal.mu.Lock()
	defer m.journal.mu.Unlock()
	return below(m.rand, d)
}

func (m *machine) isHalted() bool {
	m.journal.mu.Lock()
	defer m.journal.mu.Unlock()
	return m.halted
}

// suffers cuts a machine from the store for a while, as the kind of the action says.
func (m *machine) suffers(a Action) {
	link := &m.cut
	if a.Kind == "outage" {
		link = &m.outage
	}
	link.Store(true)
	time.AfterFunc(a.For, func() { link.Store(false) })
}

// freeze stops the machine, as the kind of the action says.
func (m *machine) freeze(a Action) {
	state, step := suspended, time.Duration(0)
	switch a.Kind {
	case "suspend, wall clock set back": // only CLOCK_BOOTTIME has counted the suspend
		step = -a.For
	case "pause": // no clock shows it, so only its tokens stop the process
		state = paused
	case "pause, wall clock set right": // only the wall clock shows the pause, because a time daemon corrected it
		state, step = paused, a.For
	}
	m.clock.freeze(state)
	m.clock.step(step)
}

// dies lets nothing more of a process reach the store, except requests that are on the network.
func (m *machine) dies() {
	m.journal.mu.Lock()
	m.halted, m.crashedAt = true, time.Now()
	m.journal.mu.Unlock()
	m.crashed.Store(true)
	m.clock.thaw() // because the goroutines of the simulation itself must end
}

// deny lets the store refuse a process some requests for a while, always with the same answer.
func (m *machine) deny(a Action, which func(kind, key string) bool, answers ...error) {
	answer := answers[int(a.For)%len(answers)]
	refuse := func(kind, key string) error {
		if which(kind, key) {
			return answer
		}
		return nil
	}
	m.harmed.Store(true)
	m.denied.Store(&refuse)
	time.AfterFunc(a.For, func() { m.denied.CompareAndSwap(&refuse, nil) })
}

// repair ends all that keeps requests from the store, and reports whether the machine is to be
// resumed.
func (m *machine) repair() (frozen bool) {
	m.cut.Store(false)
	m.outage.Store(false)
	m.denied.Store(nil)
	return m.clock.isFrozen() && !m.crashed.Load()
}

// befalls is what happens to a request that was to meet a fault, and whether the state of the link
// has changed that.
func (m *machine) befalls(f networkFault, kind, key string) (now networkFault, changed bool) {
	refused := func(name string, err error) (networkFault, bool) {
		return networkFault{
			name: name, requestDelay: time.Millisecond, replyDelay: f.replyDelay, dropRequest: true, err: err,
		}, true
	}
	var denied error
	if d := m.denied.Load(); d != nil {
		denied = (*d)(kind, key)
	}
	switch {
	case m.cut.Load():
		return networkFault{name: "partitioned", dropRequest: true, dropReply: true}, true
	case m.outage.Load():
		return refused("outage", err503)
	case denied != nil:
		return refused("denied", denied)
	}
	return f, false
}

// server is what a link leads to. The methods carry out the request of one call of carry.
type server struct {
	apply func() reply        // at this instant
	again func()              // once more, as a duplicate; nobody gets its reply
	lost  func()              // the request never arrives; nil if nobody wants to know
	alter func(*reply)        // what a client gets instead of the server's reply; nil if it gets that
	heard func(answer *reply) // the client has an answer, though its machine may be frozen; nil as above
}

// carry takes a request to the server, and returns when the client has a reply and its machine
// runs.
func (m *machine) carry(ctx context.Context, f networkFault, s server) reply {
	replies := make(chan reply, 1)
	go func() {
		time.Sleep(f.requestDelay)
		var got reply
		if !f.dropRequest {
			got = s.apply()
			if f.duplicateAfter > 0 {
				time.AfterFunc(f.duplicateAfter, s.again)
			}
		} else if s.lost != nil {
			s.lost()
		}
		time.Sleep(f.replyDelay)
		if f.err != nil {
			got = reply{err: f.err}
		} else if s.alter != nil {
			s.alter(&got)
		}
		if !f.dropReply && !m.cut.Load() {
			replies <- got
		}
	}()
	var got reply
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
	if s.heard != nil {
		s.heard(&got)
	}
	m.clock.waitWhileFrozen()
	if m.crashed.Load() {
		return reply{err: errReset}
	}
	return got
}

// face is a process's connection to the store, as a Store.
type face struct {
	leasehold.StoreInfo
	sender interface {
		send(ctx context.Context, r request) reply
	}
}

// Describe implements leasehold.Store.
func (f face) Describe() leasehold.StoreInfo { return f.StoreInfo }

// Get implements leasehold.Store.
func (f face) Get(ctx context.Context, key string) (leasehold.Object, error) {
	got := f.sender.send(ctx, request{kind: "get", key: key})
	return got.obj, got.err
}

// PutIfNoneMatch implements leasehold.Store.
func (f face) PutIfNoneMatch(ctx context.Context, key string, body []byte) (string, error) {
	got := f.sender.send(ctx, request{kind: "create", key: key, body: body})
	return got.obj.ETag, got.err
}

// PutIfMatch implements leasehold.Store.
func (f face) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	got := f.sender.send(ctx, request{kind: "update", key: key, body: body, ifMatch: etag})
	return got.obj.ETag, got.err
}

// DeleteIfMatch implements leasehold.Store.
func (f face) DeleteIfMatch(ctx context.Context, key, etag string) error {
	return f.sender.send(ctx, request{kind: "delete", key: key, ifMatch: etag}).err
}
