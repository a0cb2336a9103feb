package sim

import (
	"fmt"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
)

// store is the simulated object store: one linearizable register, whatever the network does to requests.
type store struct {
	w            *world
	mu           sync.Mutex
	exists       bool
	body         []byte
	rec          leasehold.Record // in body
	etag         string
	previousETag string
	writtenAt    time.Time
	versions     int
}

// request is one request as the server sees it.
type request struct {
	kind    string // "get", "create", "update"
	body    []byte
	ifMatch string
	torn    bool // a get that reads the ETag before the body, as some servers do, with a write in between
}

type reply struct {
	obj     leasehold.Object
	version string        // the ETag of the version that the body is from: the object's, unless the read was torn
	age     time.Duration // of the object, by the store's clock
	err     error
}

// apply carries out a request at one instant. The sender is nil for a foreign client.
func (s *store) apply(sender *process, r request) reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case r.kind == "get" && !s.exists, r.kind == "update" && !s.exists:
		return reply{err: leasehold.ErrNotExist}
	case r.kind == "get":
		if r.torn && s.previousETag != "" {
			return reply{obj: leasehold.Object{Body: s.body, ETag: s.previousETag}, version: s.etag}
		}
		age := time.Duration(float64(time.Since(s.writtenAt)) * (1 + s.w.cfg.RateSpread)) // its clock is as fast as any may be
		return reply{obj: leasehold.Object{Body: s.body, ETag: s.etag}, version: s.etag, age: age}
	case r.kind == "create" && s.exists, r.kind == "update" && r.ifMatch != s.etag:
		return reply{err: leasehold.ErrPreconditionFailed}
	}
	s.versions++
	s.previousETag = s.etag
	s.exists, s.body, s.etag, s.writtenAt = true, r.body, fmt.Sprintf("%q", fmt.Sprint("v", s.versions)), time.Now()
	old := s.rec
	s.rec = leasehold.Record{}
	if err := s.rec.UnmarshalJSON(r.body); err != nil {
		s.w.violate("a body that is not a record was written: %v", err)
	}
	s.w.checkWrite(sender, old, s.rec)
	return reply{obj: leasehold.Object{ETag: s.etag}}
}
