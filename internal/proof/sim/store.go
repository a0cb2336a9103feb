package sim

import (
	"crypto/md5"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
)

// store is the simulated object store: one linearizable register, whatever the network does to
// requests.
type store struct {
	w             *world
	mu            sync.Mutex
	exists        bool
	body          []byte
	rec           leasehold.Record // in body
	etag          string
	previousETag  string
	previousToken uint64
	writtenAt     time.Time
	creating      bool // a create is going up
	history       []old
	restored      bool      // the version is an old one that somebody has restored
	restoredAt    time.Time // when somebody last did so
	versions      int
	steps         []clockStep    // of its clock, in order of time
	objects       map[int]object // by version, in a world with CreateOnly
	written       [][]byte       // versions from 1 on, in a world with CreateOnly
}

// lockKey is the key of the lock.
const lockKey = "lock"

// clockStep is how far the store's clock is off from so long after the start of the run on.
type clockStep struct{ at, off time.Duration }

// drawSteps draws a clock that is off by hours, and stepped up to three times, by seconds or by
// hours.
func drawSteps(r *rand.Rand, until time.Duration) []clockStep {
	anyOf := func(d time.Duration) time.Duration { return below(r, 2*d) - d }
	steps := []clockStep{{0, anyOf(12 * time.Hour)}}
	for range r.IntN(4) {
		size := []time.Duration{10 * time.Second, 4 * time.Hour}[r.IntN(2)]
		last := steps[len(steps)-1]
		steps = append(steps, clockStep{last.at + below(r, until/3), last.off + anyOf(size)})
	}
	return steps
}

// off is how far the store's clock was off at a time.
func (s *store) off(at time.Time) time.Duration {
	off := s.steps[0].off
	for _, step := range s.steps {
		if at.Sub(s.w.began) >= step.at {
			off = step.off
		}
	}
	return off
}

// request is one request as the server sees it.
type request struct {
	kind    string // "get", "create", "update", "delete"; with CreateOnly also "list"
	key     string // of the object, in worlds of tables
	version int    // of the object, with CreateOnly
	body    []byte
	ifMatch string // of an update, or of a read
	torn    bool   // a get that reads the ETag before the body, as some servers do, with a write in between
	fate    *fate  // nil for a foreign client
	step    int64  // the number of a write in the trace
	known   uint64 // the highest token, or revision of a table, that its sender had seen when it was sent
}

type reply struct {
	seq      int // number of the version of a table that it shows, in worlds of tables
	obj      leasehold.Object
	version  string        // the ETag of the version that the body is from: the object's, unless the read was torn
	age      time.Duration // of the object, by a clock of the store that is not stepped
	stepped  time.Duration // what the steps of its clock since the object was written add to that
	page     bool          // a proxy's answer, not the store's
	versions []int         // of a list, in order
	err      error
}

// writes reports whether the request writes the lock.
func (r request) writes() bool { return r.kind == "create" || r.kind == "update" }

// apply carries out a request at one instant. The sender is nil for a foreign client.
func (s *store) apply(sender *process, r request) reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.kind == "delete" && r.version == 0 {
		s.w.violate("%s sent a DELETE", sender.label()) // no lock may ever
		return reply{err: errReset}
	}
	if s.w.cfg.CreateOnly && sender != nil {
		return s.serveObjects(sender, r)
	}
	if r.kind != "get" {
		s.w.arrives(r)
	}
	if err := s.tooSoon(); r.kind != "get" && err != nil {
		return reply{err: err}
	}
	switch {
	case r.kind == "get" && !s.exists, r.kind == "update" && !s.exists:
		return reply{err: leasehold.ErrNotExist}
	case r.kind == "get" && r.ifMatch != "" && r.ifMatch != s.etag:
		return reply{err: leasehold.ErrPreconditionFailed}
	case r.kind == "get":
		if r.torn && s.previousETag != "" {
			s.w.readTorn()
			return reply{obj: leasehold.Object{Body: s.body, ETag: s.previousETag}, version: s.etag}
		}
		// its clock is as fast as any may be
		age := time.Duration(float64(time.Since(s.writtenAt)) * (1 + s.w.cfg.RateSpread))
		stepped := s.off(time.Now()) - s.off(s.writtenAt)
		return reply{obj: leasehold.Object{Body: s.body, ETag: s.etag}, version: s.etag, age: age, stepped: stepped}
	case sender != nil && sender.node == reader:
		s.w.violate("a reader sent a %s", r.kind)
	case r.kind == "create" && s.exists, r.kind == "update" && r.ifMatch != s.etag:
		if r.tries() {
			s.tried(sender, r)
		} else {
			s.w.refuses(sender, r)
		}
		return reply{err: leasehold.ErrPreconditionFailed}
	}
	return s.land(sender, r)
}

// etagOf is the ETag of the version that has just been written.
func (s *store) etagOf(body []byte) string {
	if s.w.cfg.HashETags {
		return fmt.Sprintf("%q", fmt.Sprintf("%x", md5.Sum(body)))
	}
	return etagOf(s.versions)
}

// land carries out a write of the lock. The caller holds s.mu.
func (s *store) land(sender *process, r request) reply {
	if r.tries() {
		s.w.violate("%s has written over token %d by trying the store", sender.label(), s.rec.Token)
	}
	s.versions++
	s.previousETag, s.previousToken = s.etag, s.rec.Token
	s.exists, s.body, s.etag, s.writtenAt = true, r.body, s.etagOf(r.body), time.Now()
	s.keep()
	before := s.rec
	s.rec = leasehold.Record{}
	if err := s.rec.UnmarshalJSON(r.body); err != nil {
		s.w.violate("a body that is not a record was written: %v", err)
	}
	s.w.trace.lands(r, s.etag)
	s.w.excuseFromLateWrite(sender, r)
	s.w.checkWrite(sender, r, before, s.rec)
	s.w.lands(sender, r, before, s.rec)
	s.history, s.restored = append(s.history, old{s.body, s.rec, s.writtenAt, r.step}), false
	return reply{obj: leasehold.Object{ETag: s.etag}}
}
