package leasehold_test

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold"
)

// faultStore is one client's way to a store: it can be cut, and each request can be given a fault of its own.
type faultStore struct {
	leasehold.Store
	see  func(context.Context) // is shown the context of every request, if set
	down atomic.Bool           // nothing gets through, every request hangs until its context ends

	mu       sync.Mutex
	plan     []fault
	requests []string
}

// fault is what happens to one request.
type fault struct {
	op    string        // "get" or "put"; the fault waits for the first request of that kind
	apply bool          // the request reaches the store
	later time.Duration // it does so only this long after the client was answered
	delay time.Duration // before the client is answered
	err   error         // the answer, if not the store's own
}

// next plans faults for the requests to come.
func (s *faultStore) next(faults ...fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plan = append(s.plan, faults...)
}

// count returns how many requests were sent since it was last asked.
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

// MinTTL is that of a MemStore.
func (s *faultStore) MinTTL() time.Duration { return 0 }
