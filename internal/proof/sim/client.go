package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/createonly"
	"github.com/leasehold-go/leasehold/internal/testkit/fakes3"
)

// client is the connection of one process to the store.
type client struct {
	p    *process
	rand *rand.Rand
	// it was told that a write failed which had landed, or got a page with an ETag; guarded by w.mu
	misled   bool
	mu       sync.Mutex // guards what follows; w.mu, if held, was locked first
	faults   float64    // the share of requests that go wrong
	sent     []sent     // in order of time
	troubled bool       // it has met more than slow replies

	token  uint64            // the highest that this process has seen
	learnt []byte            // what learns has seen last
	terms  map[string]uint64 // the tokens of those that it has seen, by their IDs

	// What this process has read. Times are of its monotonic clock, when the read was sent.
	hasRead     bool
	firstReadAt time.Duration
	lastVersion string
	lastReadAt  time.Duration
	// when its answer came
	lastAnswerAt time.Duration
	fooled       bool          // lastVersion has been replaced, and was restored with the same ETag
	fooledInto   uint64        // the token of the last term that it began so; it may have read its own write since
	otherSeen    bool          // a version before the last one, or a time in which the last one was out of sight
	otherAt      time.Duration // the last read before that

	conflicts   atomic.Int32  // so many more writes are answered 409 and do not land
	writing     atomic.Int32  // writes of the lock whose answer the process waits for
	releaseLost atomic.Uint64 // token of the last release that was lost on its way
}

// sent is a request that the process has sent.
type sent struct {
	at     time.Time
	failed bool // as far as the process knows
	beside bool // a write that was refused, as beside one that is going up: it has a read before and after it
	tries  bool // the store's conditions
}

func (w *world) newClient(p *process) *client {
	return &client{p: p, rand: w.rng("requests", p.name), faults: w.cfg.RequestFaults, terms: make(map[string]uint64)}
}

// send sends a request, and returns when the client has a reply and its machine runs.
func (c *client) send(ctx context.Context, r request) reply {
	w := c.p.w
	c.p.clock.waitWhileFrozen()
	sentAt := c.p.clock.Now().Mono
	r.known = c.highest()
	f := c.drawFault(&r)
	if c.p.crashed.Load() {
		return reply{err: errReset}
	}
	if f.name != "ok" && w.traced {
		w.log(c.p.name, "%s: %s", r.kind, f.name)
	}
	number := -1
	if !w.cfg.CreateOnly {
		number = c.note(r)
	}
	answered := c.sends(ctx, &r, &f)
	r.step = w.trace.sends(c.p, r)
	got := c.p.carry(ctx, f, server{
		apply: func() reply { return c.apply(r, f) },
		again: func() { w.store.apply(c.p, r.again()) },
		lost:  func() { c.loses(r) },
		alter: func(got *reply) {
			if f.page {
				*got = c.page(f)
			}
		},
		heard: func(got *reply) { answered(*got) },
	})
	c.received(ctx, number, r, &got, sentAt)
	return got
}

// note counts a request, and returns its number.
func (c *client) note(r request) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = append(c.sent, sent{at: time.Now(), tries: r.tries()})
	return len(c.sent) - 1
}

// received notes what the process learns from a reply, and fills in the age.
func (c *client) received(ctx context.Context, number int, r request, got *reply, sentAt time.Duration) {
	if got.err == nil && !got.page && (r.kind != "get" || got.version == got.obj.ETag) {
		c.p.w.trace.sees(c.p, got.obj.ETag)
	}
	absent := errors.Is(got.err, leasehold.ErrNotExist)
	if r.kind == "get" && (got.err == nil || absent) && !got.page && !c.p.w.cfg.CreateOnly {
		got.obj.Age = c.reportedAge(*got, sentAt)
	}
	switch {
	case got.err != nil || got.page || c.p.w.cfg.CreateOnly: // the lock hears only what package createonly tells it
	case r.kind == "get":
		c.learns(got.obj.Body)
	default:
		c.learns(r.body)
	}
	refused := errors.Is(got.err, leasehold.ErrPreconditionFailed)
	c.mu.Lock()
	c.troubled = c.troubled || got.err != nil && !absent && !refused
	if number >= 0 {
		c.sent[number].failed = got.page || got.err != nil && (!absent || r.kind != "get")
		busy := c.p.w.cfg.OneWriteASecond && r.kind != "get" && got.err != nil && !refused
		c.sent[number].beside = !r.tries() && (busy || r.kind == "create" && refused)
	}
	c.mu.Unlock()
	if r.kind == "get" && !c.p.w.cfg.CreateOnly {
		c.read(ctx, r, *got)
	}
}

// read notes what a reader gets.
func (c *client) read(ctx context.Context, r request, got reply) {
	if c.p.reading != nil {
		c.p.reading.saw(ctx, r, got)
	}
}

func (c *client) drawFault(r *request) networkFault {
	w := c.p.w
	on := w.faultsOn()
	c.mu.Lock()
	f := drawFault(c.rand, w.cfg, c.faults, on)
	r.torn = w.cfg.TornReads && on && c.rand.IntN(10) == 0
	if w.cfg.Pages && on && c.rand.IntN(20) == 0 {
		f = drawPage(c.rand, r.kind, w.cfg.Ages.real())
	}
	c.troubled = c.troubled || r.torn || c.p.cut.Load() || c.p.outage.Load() || f.name != "ok" && f.name != "slow"
	c.mu.Unlock()
	w.mu.Lock()
	w.stats.Requests++
	if f.name != "ok" {
		w.stats.Events[f.name]++
	}
	w.mu.Unlock()
	if !r.writes() {
		f = f.ofRead()
	}
	f, changed := c.p.befalls(f, r.kind, lockKey)
	if changed {
		return f
	}
	if r.writes() && c.conflicts.Load() > 0 {
		c.conflicts.Add(-1)
		f.name, f.dropRequest, f.err = "refused with a 409", true, errConflict
	}
	return f
}

// apply carries out a request that has reached the server.
func (c *client) apply(r request, f networkFault) (got reply) {
	if r.kind == "create" {
		got = c.p.w.store.create(c.p, r, c.drawUpload())
	} else {
		got = c.p.w.store.apply(c.p, r)
	}
	if got.err == nil && c.refusal(f.err) {
		c.mislead()
	}
	return got
}

// page is a reply that a proxy gives.
func (c *client) page(f networkFault) reply {
	if f.pageETag != "" {
		c.mislead()
	}
	return reply{
		obj:  leasehold.Object{Body: []byte("<!DOCTYPE html><title>Sign in</title>"), ETag: f.pageETag},
		page: true,
	}
}

// refusal reports whether an answer says that a write has not landed. A 409 does so if the real
// S3Store reads it.
func (c *client) refusal(err error) bool {
	return errors.Is(err, leasehold.ErrPreconditionFailed) || errors.Is(err, leasehold.ErrNotExist) ||
		c.p.w.cfg.Ages.real() && errors.Is(err, err409)
}

func (c *client) mislead() {
	c.p.w.mu.Lock()
	defer c.p.w.mu.Unlock()
	c.misled = true
}

// reportedAge is the Object.Age of a reply to a read. Unless the world has other ages, it is true
// in the first reply that shows a version, or that shows it again after it was out of sight. After
// that it is hours too high, as after a step of the store's clock.
func (c *client) reportedAge(got reply, sent time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := c.lastVersion != got.version || !c.hasRead || sent-c.lastAnswerAt > c.p.outOfSight(got.obj.Body)
	c.p.w.markIf(c.fooled && c.lastVersion == got.version, "a restored version not seen as new")
	if late := c.hasRead && sent < c.lastReadAt; !late { // else it shows what was there before
		if !c.hasRead {
			c.firstReadAt = sent
		}
		if first {
			c.otherSeen, c.otherAt = c.hasRead, c.lastReadAt
		}
		c.hasRead, c.lastVersion, c.lastReadAt, c.fooled = true, got.version, sent, c.fooled && !first
		c.lastAnswerAt = c.p.clock.Now().Mono
	}
	switch ages := c.p.w.cfg.Ages; {
	case ages == NoAges || got.err != nil:
		return 0
	case ages == SteppedAges || ages == IgnoredDates && c.rand.IntN(2) == 0:
		return got.age + got.stepped
	case first && ages != IgnoredDates && ages != WrongAges:
		return max(got.age.Truncate(time.Second)-2*time.Second, 0)
	}
	return got.age + time.Hour + below(c.rand, 4*time.Hour)
}

// otherVersionReadAt is when this process sent the last read that showed it a version other than
// the one it knows now, or else its first.
func (c *client) otherVersionReadAt() (at time.Duration, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.otherSeen && c.p.w.cfg.Ages == NoAges { // then nothing tells it what was before its first read
		return c.firstReadAt, c.hasRead
	}
	return c.otherAt, c.otherSeen
}

// store is the client as a Store. Where dates matter, the real S3Store is on top of it.
func (c *client) store() leasehold.Store {
	if c.p.w.cfg.CreateOnly {
		s := createonly.New(objects{c})
		return face{s.Describe(), calls{c, s}}
	}
	switch c.p.w.cfg.Ages {
	case IgnoredDates:
		return anyTTL{leasehold.NewS3Store(fakes3.NewClient(s3Transport{c}), fakes3.Bucket)}
	case TrustedDates:
		return anyTTL{leasehold.NewS3Store(fakes3.NewClient(s3Transport{c}), fakes3.Bucket,
			leasehold.WithServerClock(2*time.Second))}
	}
	return face{leasehold.StoreInfo{MinTTL: time.Millisecond, Conditional: !c.p.w.cfg.Tried}, c}
}

// anyTTL is an S3Store that allows any TTL.
type anyTTL struct{ *leasehold.S3Store }

// Describe allows any TTL.
func (anyTTL) Describe() leasehold.StoreInfo { return leasehold.StoreInfo{MinTTL: time.Millisecond} }
