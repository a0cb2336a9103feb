package leasehold_test

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/testopt"
)

// faultStore is the connection of one client to a store. It can be cut, and each request can have a fault of its own.
type faultStore struct {
	leasehold.Store
	see  func(context.Context) // if set, receives the context of every request
	down atomic.Bool           // no request reaches the store, and each hangs until its context ends

	mu       sync.Mutex
	plan     []fault
	requests []string
}

// fault is what happens to one request.
type fault struct {
	op    string        // "get", "put" or "delete": the fault waits for such a request, and the faults planned after it wait too
	apply bool          // the request reaches the store
	later time.Duration // if set, the request reaches the store that long after it was sent, and the client gets no result of it
	delay time.Duration // until the client is answered
	err   error         // the answer, if not the store's own
}

// Describe says that the store is a known one, so that no requests but the planned ones are sent, and allows any TTL.
func (*faultStore) Describe() leasehold.StoreInfo {
	return leasehold.StoreInfo{MinTTL: time.Millisecond, Conditional: true}
}

// next plans faults for the next requests.
func (s *faultStore) next(faults ...fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plan = append(s.plan, faults...)
}

// count returns the kinds of all requests since its last call.
func (s *faultStore) count() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.requests
	s.requests = nil
	return r
}

func do[T any](ctx context.Context, s *faultStore, op string, request func(context.Context) (T, error)) (T, error) {
	if s.see != nil {
		s.see(ctx)
	}
	s.mu.Lock()
	s.requests = append(s.requests, op)
	f := fault{apply: true}
	if len(s.plan) > 0 && s.plan[0].op == op {
		f, s.plan = s.plan[0], s.plan[1:]
	}
	s.mu.Unlock()
	var got, none T
	var err error
	if s.down.Load() {
		<-ctx.Done()
		return none, ctx.Err()
	}
	switch {
	case f.apply && f.later > 0:
		go func() {
			time.Sleep(f.later)
			_, _ = request(context.WithoutCancel(ctx))
		}()
	case f.apply:
		got, err = request(context.WithoutCancel(ctx))
	}
	select {
	case <-time.After(f.delay):
	case <-ctx.Done():
		return none, ctx.Err()
	}
	if f.err != nil {
		return none, f.err
	}
	return got, err
}

func (s *faultStore) Get(ctx context.Context, key string) (leasehold.Object, error) {
	o, err := do(ctx, s, "get", func(ctx context.Context) (leasehold.Object, error) { return s.Store.Get(ctx, key) })
	return o, err
}

func (s *faultStore) PutIfNoneMatch(ctx context.Context, key string, body []byte) (string, error) {
	return do(ctx, s, "put", func(ctx context.Context) (string, error) { return s.Store.PutIfNoneMatch(ctx, key, body) })
}

func (s *faultStore) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	return do(ctx, s, "put", func(ctx context.Context) (string, error) { return s.Store.PutIfMatch(ctx, key, body, etag) })
}

func (s *faultStore) DeleteIfMatch(ctx context.Context, key, etag string) error {
	_, err := do(ctx, s, "delete", func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.Store.DeleteIfMatch(ctx, key, etag)
	})
	return err
}

// brokenClock is the bubble's clock with an offset for each kind of clock, as on a machine whose clocks are wrong.
type brokenClock struct {
	clock.Clock
	mu     sync.Mutex
	offset clock.Reading
}

func newBrokenClock() *brokenClock { return &brokenClock{Clock: clock.System} }

func (c *brokenClock) Now() clock.Reading {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.Clock.Now()
	now.Boot = now.Mono // because CLOCK_BOOTTIME is not virtual
	now.Mono += c.offset.Mono
	now.Wall += c.offset.Wall
	now.Boot += c.offset.Boot
	return now
}

// move adds to the clock's offsets.
func (c *brokenClock) move(by clock.Reading) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset.Mono += by.Mono
	c.offset.Wall += by.Wall
	c.offset.Boot += by.Boot
}

// suspend makes the clocks read as after a suspend of d: all but the monotonic clock have advanced.
func (c *brokenClock) suspend(d time.Duration) {
	time.Sleep(d)
	c.move(clock.Reading{Mono: -d})
}

func withClock(c clock.Clock) leasehold.Option { return testopt.WithClock(c) }
