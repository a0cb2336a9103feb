package sim

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
)

// store is the simulated object store: linearizable registers, whatever the network does to requests. The lock is one of them, and
// the objects of sessions are the others.
type store struct {
	w        *world
	mu       sync.Mutex
	object   // the lock
	sessions map[string]*object
	versions int
	steps    []clockStep // of its clock, in order of time
}

// lockKey is the key of the lock.
const lockKey = "lock"

type object struct {
	exists       bool
	body         []byte
	rec          leasehold.Record // in body
	etag         string
	previousETag string
	writtenAt    time.Time
}

// at returns the object of a key. The caller holds s.mu.
func (s *store) at(key string) *object {
	if key == "" || key == lockKey {
		return &s.object
	}
	if s.sessions[key] == nil {
		s.sessions[key] = &object{}
	}
	return s.sessions[key]
}

// clockStep is how far the store's clock is off from so long after the start of the run on.
type clockStep struct{ at, off time.Duration }

// drawSteps draws a clock that is off by hours, and stepped up to three times, by seconds or by hours.
func drawSteps(r *rand.Rand, until time.Duration) []clockStep {
	anyOf := func(d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(2*d))) - d }
	steps := []clockStep{{0, anyOf(12 * time.Hour)}}
	for range r.IntN(4) {
		size := []time.Duration{10 * time.Second, 4 * time.Hour}[r.IntN(2)]
		last := steps[len(steps)-1]
		steps = append(steps, clockStep{last.at + time.Duration(r.Int64N(int64(until/3))), last.off + anyOf(size)})
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
	key     string // "" is that of the lock
	kind    string // "get", "create", "update"
	body    []byte
	ifMatch string // of an update, or of a read
	torn    bool   // a get that reads the ETag before the body, as some servers do, with a write in between
}

type reply struct {
	obj     leasehold.Object
	version string        // the ETag of the version that the body is from: the object's, unless the read was torn
	age     time.Duration // of the object, by a clock of the store that is not stepped
	stepped time.Duration // what the steps of its clock since the object was written add to that
	page    bool          // a proxy's answer, not the store's
	err     error
}

// apply carries out a request at one instant. The sender is nil for a foreign client.
func (s *store) apply(sender *process, r request) reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.at(r.key)
	switch {
	case r.kind == "get" && !o.exists, r.kind == "update" && !o.exists:
		return reply{err: leasehold.ErrNotExist}
	case r.kind == "get" && r.ifMatch != "" && r.ifMatch != o.etag:
		return reply{err: leasehold.ErrPreconditionFailed}
	case r.kind == "get":
		if r.torn && o.previousETag != "" {
			return reply{obj: leasehold.Object{Body: o.body, ETag: o.previousETag}, version: o.etag}
		}
		age := time.Duration(float64(time.Since(o.writtenAt)) * (1 + s.w.cfg.RateSpread)) // its clock is as fast as any may be
		stepped := s.off(time.Now()) - s.off(o.writtenAt)
		return reply{obj: leasehold.Object{Body: o.body, ETag: o.etag}, version: o.etag, age: age, stepped: stepped}
	case sender != nil && sender.node == reader:
		s.w.violate("a reader sent a %s", r.kind)
	case r.kind == "create" && o.exists, r.kind == "update" && r.ifMatch != o.etag:
		return reply{err: leasehold.ErrPreconditionFailed}
	}
	s.versions++
	o.previousETag = o.etag
	o.exists, o.body, o.etag, o.writtenAt = true, r.body, fmt.Sprintf("%q", fmt.Sprint("v", s.versions)), time.Now()
	old := o.rec
	o.rec = leasehold.Record{}
	if err := o.rec.UnmarshalJSON(r.body); err != nil {
		s.w.violate("a body that is not a record was written: %v", err)
	}
	if o == &s.object {
		s.w.checkWrite(sender, old, o.rec)
	} else {
		s.w.checkSessionWrite(sender, r, old, o.rec)
	}
	return reply{obj: leasehold.Object{ETag: o.etag}}
}
