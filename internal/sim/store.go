package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/fakes3"
)

// store is the object store of a simulated world: one linearizable register per key, however badly the network treats requests.
type store struct {
	w        *world
	mu       sync.Mutex
	exists   bool
	body     []byte
	rec      leasehold.Record // in body
	etag     string
	replaced string // the ETag of the version before
	written  time.Time
	versions int
}

// op is one request as the server sees it.
type op struct {
	kind    string // "get", "create", "update"
	body    []byte
	ifMatch string
	torn    bool // the ETag is read before the body, as some servers do, and the object was replaced in between
}

type result struct {
	obj leasehold.Object
	age time.Duration // since the object was written
	err error
}

// apply carries a request out, at one instant.
func (s *store) apply(who *life, o op) result {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case o.kind == "get" && !s.exists, o.kind == "update" && !s.exists:
		return result{err: leasehold.ErrNotExist}
	case o.kind == "get":
		// The store's clock may run as fast as any.
		age := time.Duration(float64(time.Since(s.written)) * (1 + s.w.cfg.Rates))
		if o.torn && s.replaced != "" {
			return result{obj: leasehold.Object{Body: s.body, ETag: s.replaced}}
		}
		return result{obj: leasehold.Object{Body: s.body, ETag: s.etag}, age: age}
	case o.kind == "create" && s.exists, o.kind == "update" && o.ifMatch != s.etag:
		return result{err: leasehold.ErrPreconditionFailed}
	}
	s.versions++
	s.replaced = s.etag
	s.exists, s.body, s.etag, s.written = true, o.body, fmt.Sprintf("%q", fmt.Sprint("v", s.versions)), time.Now()
	old := s.rec
	s.rec = leasehold.Record{}
	if err := s.rec.UnmarshalJSON(o.body); err != nil {
		s.w.violate("a write that is no record landed: %v", err)
	}
	s.w.landed(who, old, s.rec)
	return result{obj: leasehold.Object{ETag: s.etag}}
}

var (
	errReset = errors.New("connection reset by peer")
	err500   = errors.New("500 InternalError")
	err503   = errors.New("503 SlowDown")
	err409   = errors.New("409 ConditionalRequestConflict")
)

// fate is what the network does to one request.
type fate struct {
	name    string
	before  time.Duration // until it reaches the server
	after   time.Duration // until the reply reaches the client
	lost    bool          // it never reaches the server
	again   time.Duration // it reaches the server a second time, so much later
	err     error         // the client sees this instead of the reply; at once if early
	early   bool
	silence bool // the client sees nothing until its own deadline
}

// newFate draws a fate. Ghosts are late by up to three TTLs.
func newFate(r *rand.Rand, cfg *Config, faulty bool) fate {
	ms := func(least, most int) time.Duration {
		return time.Duration(least)*time.Millisecond + time.Duration(r.Int64N(int64(time.Duration(most-least)*time.Millisecond)))
	}
	f := fate{name: "ok", before: ms(1, 30), after: ms(1, 30)}
	p, kind, slow, late, flip := r.Float64(), r.IntN(10), ms(100, 3000), time.Duration(r.Int64N(int64(3*cfg.TTL))), r.IntN(2) == 0
	if faulty && cfg.Slow {
		f.name, f.after = "slow", slow
	}
	if !faulty || p >= cfg.RequestFaults {
		return f
	}
	answers := []error{err500, err503, err409, leasehold.ErrPreconditionFailed, leasehold.ErrNotExist, errReset}
	switch kind {
	case 0, 1:
		f.name = "slow"
		if flip {
			f.before += slow
		} else {
			f.after += slow
		}
	case 2:
		f.name, f.lost, f.silence = "lost before it lands, no reply", true, true
	case 3:
		f.name, f.lost, f.err = "refused before it lands", true, answers[r.IntN(3)]
	case 4:
		f.name, f.silence = "applied, no reply", true
	case 5, 6:
		f.name, f.err = "applied, answered otherwise", answers[r.IntN(len(answers))]
	case 7:
		f.name, f.before, f.silence = "ghost: lands late, no reply", late, true
	case 8:
		f.name, f.before, f.err, f.early = "ghost: lands late, connection reset", late, io.ErrUnexpectedEOF, true
	case 9:
		f.name, f.again = "applied twice", late
	}
	return f
}

// client is one life's way to the store.
type client struct {
	who    *life
	rand   *rand.Rand
	misled bool       // was told that a write was refused that has landed; guarded by w.mu
	mu     sync.Mutex // guards what follows
	cut    bool       // partitioned: nothing gets through in either direction
	// What reads have shown to this process, by its monotonic clock.
	asked     bool          // anything
	shown     string        // the ETag
	shownAt   time.Duration // when the last read that showed it was sent
	other     bool          // there was another before
	lastOther time.Duration // when the last read that showed that one was sent
}

func (c *client) partition(cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = cut
}

func (c *client) isCut() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cut
}

func (c *client) do(ctx context.Context, o op) result {
	w := c.who.w
	c.who.clock.gate()
	sent := c.who.clock.Now().Mono
	c.mu.Lock()
	f := newFate(c.rand, w.cfg, w.faulty())
	o.torn = w.cfg.Torn && w.faulty() && c.rand.IntN(10) == 0
	c.mu.Unlock()
	w.count(c.who, f)
	if c.isCut() {
		f = fate{name: "partitioned", lost: true, silence: true}
	}
	if c.who.dead.Load() {
		return result{err: errReset}
	}
	if f.name != "ok" && w.trace != nil {
		w.log(c.who.name, "%s: %s", o.kind, f.name)
	}
	if o.kind == "get" && (errors.Is(f.err, leasehold.ErrNotExist) || errors.Is(f.err, leasehold.ErrPreconditionFailed)) {
		f.err = err500 // no linearizable store says that of an object that is there
	}
	reply := make(chan result, 1)
	go func() {
		time.Sleep(f.before)
		var r result
		if !f.lost {
			r = w.store.apply(c.who, o)
			if r.err == nil && (errors.Is(f.err, leasehold.ErrPreconditionFailed) || errors.Is(f.err, leasehold.ErrNotExist)) {
				w.mu.Lock()
				c.misled = true
				w.mu.Unlock()
			}
			if f.again > 0 {
				time.AfterFunc(f.again, func() { w.store.apply(c.who, o) })
			}
		}
		time.Sleep(f.after)
		if f.err != nil {
			r = result{err: f.err}
		}
		if !f.silence && !c.isCut() {
			reply <- r
		}
	}()
	var r result
	if f.early {
		time.Sleep(f.after)
		r = result{err: f.err}
	} else {
		select {
		case r = <-reply:
		case <-ctx.Done():
			r = result{err: ctx.Err()}
		}
	}
	c.who.clock.gate()
	if c.who.dead.Load() {
		return result{err: errReset}
	}
	if o.kind == "get" && (r.err == nil || errors.Is(r.err, leasehold.ErrNotExist)) {
		r.obj.Age = c.told(r, sent)
	}
	return r
}

// told is the age that the store's clock tells: the true one in the first reply that shows a version, and after that too much by
// hours, as after a step of that clock, or through a proxy that writes dates of its own.
func (c *client) told(r result, sent time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := c.shown != r.obj.ETag || !c.asked
	if first {
		c.other, c.lastOther = c.asked, c.shownAt
	}
	c.asked, c.shown, c.shownAt = true, r.obj.ETag, sent
	switch dates := c.who.w.cfg.Dates; {
	case dates == NoAges || r.err != nil:
		return 0
	case first && dates != WrongDates && dates != WrongAges:
		return max(r.age.Truncate(time.Second)-2*time.Second, 0)
	}
	return r.age + time.Hour + time.Duration(c.rand.Int64N(int64(4*time.Hour)))
}

// sawOther is when the last read was sent that showed this process another version than the one it saw last.
func (c *client) sawOther() (since time.Duration, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lastOther, c.other
}

// store is the client as a Store: the real S3Store on top of it where dates are what matters.
func (c *client) store() leasehold.Store {
	switch c.who.w.cfg.Dates {
	case WrongDates:
		return s3Sim{leasehold.NewS3Store(fakes3.NewClient(wire{c}), fakes3.Bucket)}
	case Trusted:
		return s3Sim{leasehold.NewS3Store(fakes3.NewClient(wire{c}), fakes3.Bucket)}
	}
	return c
}

// s3Sim is an S3Store that allows any TTL.
type s3Sim struct{ *leasehold.S3Store }

// MinTTL allows any TTL.
func (s3Sim) MinTTL() time.Duration { return 0 }

// Get implements leasehold.Store.
func (c *client) Get(ctx context.Context, _ string) (leasehold.Object, error) {
	r := c.do(ctx, op{kind: "get"})
	return r.obj, r.err
}

// PutIfNoneMatch implements leasehold.Store.
func (c *client) PutIfNoneMatch(ctx context.Context, _ string, body []byte) (string, error) {
	r := c.do(ctx, op{kind: "create", body: body})
	return r.obj.ETag, r.err
}

// PutIfMatch implements leasehold.Store.
func (c *client) PutIfMatch(ctx context.Context, _ string, body []byte, etag string) (string, error) {
	r := c.do(ctx, op{kind: "update", body: body, ifMatch: etag})
	return r.obj.ETag, r.err
}

// DeleteIfMatch implements leasehold.Store. No lock may ever call it.
func (c *client) DeleteIfMatch(context.Context, string, string) error {
	c.who.w.violate("%s sent a DELETE", c.who.name)
	return errReset
}

// MinTTL allows any TTL.
func (*client) MinTTL() time.Duration { return 0 }
