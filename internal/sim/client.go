package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/fakes3"
)

// client is the connection of one process to the store.
type client struct {
	p           *process
	rand        *rand.Rand
	misled      bool       // it was told that a write failed which had landed; guarded by w.mu
	mu          sync.Mutex // guards what follows
	partitioned bool       // nothing gets through in either direction

	// What this process has read. Times are of its monotonic clock, when the read was sent.
	hasRead     bool
	lastVersion string
	lastReadAt  time.Duration
	otherSeen   bool          // a version before the last one
	otherAt     time.Duration // the last read that showed that version
}

func (c *client) setPartitioned(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.partitioned = on
}

func (c *client) isPartitioned() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.partitioned
}

// send sends a request, and returns when the client has a reply and its machine runs.
func (c *client) send(ctx context.Context, r request) reply {
	w := c.p.w
	c.p.clock.waitWhileFrozen()
	sent := c.p.clock.Now().Mono
	f := c.drawFault(&r)
	if c.p.crashed.Load() {
		return reply{err: errReset}
	}
	if f.name != "ok" && w.trace != nil {
		w.log(c.p.name, "%s: %s", r.kind, f.name)
	}
	if r.kind == "get" && (errors.Is(f.err, leasehold.ErrNotExist) || errors.Is(f.err, leasehold.ErrPreconditionFailed)) {
		f.err = err500 // no linearizable store gives such an answer to a read of an object that exists
	}
	replies := make(chan reply, 1)
	go c.transmit(r, f, replies)
	var got reply
	if f.errAtOnce {
		time.Sleep(f.replyDelay)
		got = reply{err: f.err}
	} else {
		select {
		case got = <-replies:
		case <-ctx.Done():
			got = reply{err: ctx.Err()}
		}
	}
	c.p.clock.waitWhileFrozen()
	if c.p.crashed.Load() {
		return reply{err: errReset}
	}
	if r.kind == "get" && (got.err == nil || errors.Is(got.err, leasehold.ErrNotExist)) {
		got.obj.Age = c.reportedAge(got, sent)
	}
	return got
}

func (c *client) drawFault(r *request) networkFault {
	w := c.p.w
	c.mu.Lock()
	f := drawFault(c.rand, w.cfg, w.faultsOn())
	r.torn = w.cfg.TornReads && w.faultsOn() && c.rand.IntN(10) == 0
	c.mu.Unlock()
	w.countRequest(c.p, f)
	if c.isPartitioned() {
		return networkFault{name: "partitioned", dropRequest: true, dropReply: true}
	}
	return f
}

// transmit is the way of a request to the server, and of its reply back.
func (c *client) transmit(r request, f networkFault, replies chan<- reply) {
	w := c.p.w
	time.Sleep(f.requestDelay)
	var got reply
	if !f.dropRequest {
		got = w.store.apply(c.p, r)
		if got.err == nil && (errors.Is(f.err, leasehold.ErrPreconditionFailed) || errors.Is(f.err, leasehold.ErrNotExist)) {
			w.mu.Lock()
			c.misled = true
			w.mu.Unlock()
		}
		if f.duplicateAfter > 0 {
			time.AfterFunc(f.duplicateAfter, func() { w.store.apply(c.p, r) })
		}
	}
	time.Sleep(f.replyDelay)
	if f.err != nil {
		got = reply{err: f.err}
	}
	if !f.dropReply && !c.isPartitioned() {
		replies <- got
	}
}

// reportedAge is the Object.Age of a reply to a read. Unless the world has other ages, it is true in the first reply that
// shows a version. After that it is hours too high, as after a step of the store's clock.
func (c *client) reportedAge(got reply, sent time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := c.lastVersion != got.version || !c.hasRead
	if first {
		c.otherSeen, c.otherAt = c.hasRead, c.lastReadAt
	}
	c.hasRead, c.lastVersion, c.lastReadAt = true, got.version, sent
	switch ages := c.p.w.cfg.Ages; {
	case ages == NoAges || got.err != nil:
		return 0
	case first && ages != IgnoredDates && ages != WrongAges:
		return max(got.age.Truncate(time.Second)-2*time.Second, 0)
	}
	return got.age + time.Hour + time.Duration(c.rand.Int64N(int64(4*time.Hour)))
}

// otherVersionReadAt is when this process sent the last read that showed it a version other than the one it knows now.
func (c *client) otherVersionReadAt() (at time.Duration, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.otherAt, c.otherSeen
}

// store is the client as a Store. Where dates matter, the real S3Store is on top of it.
func (c *client) store() leasehold.Store {
	switch c.p.w.cfg.Ages {
	case IgnoredDates:
		return anyTTL{leasehold.NewS3Store(fakes3.NewClient(s3Transport{c}), fakes3.Bucket)}
	case TrustedDates:
		return anyTTL{leasehold.NewS3Store(fakes3.NewClient(s3Transport{c}), fakes3.Bucket, leasehold.WithServerClock(2*time.Second))}
	}
	return c
}

// anyTTL is an S3Store that allows any TTL.
type anyTTL struct{ *leasehold.S3Store }

// MinTTL allows any TTL.
func (anyTTL) MinTTL() time.Duration { return 0 }

// Get implements leasehold.Store.
func (c *client) Get(ctx context.Context, _ string) (leasehold.Object, error) {
	got := c.send(ctx, request{kind: "get"})
	return got.obj, got.err
}

// PutIfNoneMatch implements leasehold.Store.
func (c *client) PutIfNoneMatch(ctx context.Context, _ string, body []byte) (string, error) {
	got := c.send(ctx, request{kind: "create", body: body})
	return got.obj.ETag, got.err
}

// PutIfMatch implements leasehold.Store.
func (c *client) PutIfMatch(ctx context.Context, _ string, body []byte, etag string) (string, error) {
	got := c.send(ctx, request{kind: "update", body: body, ifMatch: etag})
	return got.obj.ETag, got.err
}

// DeleteIfMatch implements leasehold.Store. No lock may ever call it.
func (c *client) DeleteIfMatch(context.Context, string, string) error {
	c.p.w.violate("%s sent a DELETE", c.p.name)
	return errReset
}

// MinTTL allows any TTL.
func (*client) MinTTL() time.Duration { return 0 }
