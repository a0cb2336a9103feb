package explore

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
)

// stage is what all worlds have: machines, a store, and a network between them.
type stage struct {
	story
	mu         sync.Mutex // guards all fields of the world against the goroutines of its processes
	machines   []*machine
	objects    map[string]*request // the writes that the store shows, by key
	ghosts     []*request          // on the network, though the sender has its answer or crashed
	duplicates int                 // applied
	faults     int
	crashes    int
	suspends   int
	// rounded clocks show whole nanoseconds from move to move, so that what they show next does
	// not depend on when they were started. It decides which states are the same.
	rounded bool
	// changed checks the change of an object by a request. The old version is nil if there is none.
	changed func(r, old *request)
}

// request is one request, from when it is sent. A write that is applied becomes a version of its
// object, which is a copy.
type request struct {
	by        *machine
	kind, key string
	label     string // tells it from all others of its sender, if it is a write
	version   string // once applied; in a copy, the ETag
	body      []byte
	ifMatch   string
	reply     chan reply
	at        time.Duration // of a version: when it was applied
	late      bool          // of a version: by a late or repeated request

	// of a lock's record
	rec     leasehold.Record
	attempt int // of the client
	seq     int // in that attempt
}

func (r *request) writes() bool { return r.kind != "get" }

type reply struct {
	obj leasehold.Object
	err error
	of  *request // the version in obj
}

// apply carries out a request.
func (s *stage) apply(r *request, late bool) reply {
	o := s.objects[r.key]
	switch {
	case o == nil && r.kind != "create":
		return reply{err: leasehold.ErrNotExist}
	case r.kind == "get":
		return reply{obj: leasehold.Object{Body: o.body, ETag: o.version}, of: o}
	case r.kind == "create" && o != nil, r.kind != "create" && o.version != r.ifMatch:
		return reply{err: leasehold.ErrPreconditionFailed}
	case r.kind == "delete":
		delete(s.objects, r.key)
		s.changed(r, o)
		return reply{}
	}
	v := *r
	v.at, v.late = s.now, late
	if r.version == "" {
		r.version = r.label
		v.version = r.label
	} else { // a duplicate
		s.duplicates++
		v.version = fmt.Sprint(r.label, " again ", s.duplicates)
	}
	s.objects[r.key] = &v
	s.changed(r, o)
	return reply{obj: leasehold.Object{ETag: v.version}, of: &v}
}

// menu collects the choices of a step.
type menu struct {
	s    *stage
	list []choice
}

// choice is one thing that can happen next.
type choice struct {
	name string
	do   func()
}

// add adds a choice whose function holds s.mu.
func (m *menu) add(name string, do func()) {
	m.addUnlocked(name, func() {
		m.s.mu.Lock()
		defer m.s.mu.Unlock()
		do()
	})
}

func (m *menu) addUnlocked(name string, do func()) { m.list = append(m.list, choice{name, do}) }

// addRequests adds what can happen on the network, and reports whether requests are under way. The
// caller holds s.mu.
func (m *menu) addRequests(faults int) (underWay bool) {
	s := m.s
	for _, p := range s.machines {
		if p.asleep || p.dead {
			continue
		}
		for _, r := range p.pending {
			underWay = true
			m.addRequest(r, s.faults < faults)
		}
	}
	for i, g := range s.ghosts {
		m.add(g.label+" is applied late", func() {
			s.ghosts = slices.Delete(slices.Clone(s.ghosts), i, i+1)
			s.apply(g, true)
		})
	}
	return underWay
}

// addRequest adds what can happen to a request.
func (m *menu) addRequest(r *request, faults bool) {
	s := m.s
	m.add(r.label+": served", func() { r.answer(s.apply(r, false)) })
	if !faults {
		return
	}
	fault := func(name string, do func()) {
		m.add(r.label+": "+name, func() {
			s.faults++
			do()
		})
	}
	fault("lost, timed out", func() { r.answer(reply{err: context.DeadlineExceeded}) })
	if !r.writes() {
		return
	}
	fault("applied, no reply", func() { s.apply(r, false); r.answer(reply{err: io.ErrUnexpectedEOF}) })
	fault("applied, answered 412", func() {
		s.apply(r, false)
		r.answer(reply{err: leasehold.ErrPreconditionFailed})
	})
	fault("timed out, may be applied later", func() {
		s.ghosts = append(s.ghosts, r)
		r.answer(reply{err: context.DeadlineExceeded})
	})
	fault("applied, sent twice", func() {
		s.ghosts = append(s.ghosts, r)
		r.answer(s.apply(r, false))
	})
}

// answer gives the sender its reply.
func (r *request) answer(got reply) {
	m := r.by
	m.pending = slices.DeleteFunc(slices.Clone(m.pending), func(other *request) bool { return other == r })
	m.hears(r, &got)
	r.reply <- got
}

// crash ends a process. Its writes may have left the machine. The caller holds s.mu.
func (s *stage) crash(m *machine) {
	s.crashes++
	for _, r := range m.pending {
		if r.writes() {
			s.ghosts = append(s.ghosts, r)
		}
	}
	m.die()
}

// end makes every goroutine of the world return: nothing reaches the store any more, and the clocks
// run as fast as anybody waits.
func (s *stage) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.machines {
		m.die()
	}
}

// advance moves time, from timer to timer, until what is observed has changed. No choice follows
// from other timers.
func (s *stage) advance(observed func() string) {
	before := observed()
	for range 1000 {
		s.mu.Lock()
		next, ok := s.nextTimer()
		if !ok {
			s.mu.Unlock()
			return
		}
		s.moveTo(next)
		s.mu.Unlock()
		s.fireAll()
		if observed() != before {
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.violate("timers go on, and nothing happens")
}

// moveTo moves time. The caller holds s.mu.
func (s *stage) moveTo(now time.Duration) {
	s.now = now
	if !s.rounded {
		return
	}
	for _, m := range s.machines {
		m.base, m.since = m.reading(), now
	}
}

// fireAll fires the timers that are due one after the other, so that what follows from two does not
// depend on the order in which goroutines run.
func (s *stage) fireAll() {
	for s.fireOne() {
		synctest.Wait()
	}
}

func (s *stage) fireOne() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.machines {
		if m.asleep || m.dead {
			continue
		}
		for _, t := range m.timers {
			if t.due <= m.reading().Mono {
				t.stop()
				m.note("timer", nil)
				go t.f()
				return true
			}
		}
	}
	return false
}

// send sends a request, and waits until the explorer answers it.
func (m *machine) send(kind, key string, body []byte, ifMatch string) (leasehold.Object, error) {
	r := &request{by: m, kind: kind, key: key, body: body, ifMatch: ifMatch, reply: make(chan reply, 1)}
	m.s.mu.Lock()
	if m.dead {
		m.s.mu.Unlock()
		return leasehold.Object{}, io.ErrClosedPipe
	}
	m.sends(r)
	m.pending = append(m.pending, r)
	slices.SortFunc(m.pending, func(a, b *request) int { return strings.Compare(a.label, b.label) })
	m.s.mu.Unlock()
	select {
	case got := <-r.reply:
		return got.obj, got.err
	case <-m.life.Done():
		return leasehold.Object{}, io.ErrClosedPipe
	}
}

// Describe keeps the worlds small: no request tries the store.
func (*machine) Describe() leasehold.StoreInfo { return leasehold.StoreInfo{Conditional: true} }

// Get implements leasehold.Store.
func (m *machine) Get(_ context.Context, key string) (leasehold.Object, error) {
	return m.send("get", key, nil, "")
}

// PutIfNoneMatch implements leasehold.Store.
func (m *machine) PutIfNoneMatch(_ context.Context, key string, body []byte) (string, error) {
	o, err := m.send("create", key, body, "")
	return o.ETag, err
}

// PutIfMatch implements leasehold.Store.
func (m *machine) PutIfMatch(_ context.Context, key string, body []byte, etag string) (string, error) {
	o, err := m.send("update", key, body, etag)
	return o.ETag, err
}

// DeleteIfMatch implements leasehold.Store.
func (m *machine) DeleteIfMatch(_ context.Context, key, etag string) error {
	_, err := m.send("delete", key, nil, etag)
	return err
}

// digest is the fingerprint of a state that is described in full.
func digest(state []byte) [16]byte {
	h := fnv.New128a()
	_, _ = h.Write(state)
	return [16]byte(h.Sum(nil))
}
