package createonly_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/createonly"
)

// bucket is objects in memory. Its faults are set before it is used.
type bucket struct {
	overwrites bool // as a server that ignores If-None-Match
	lag        int  // LIST shows the bucket as it was so many creates ago

	mu       sync.Mutex
	objects  map[string][]byte
	before   []map[string][]byte // each create
	requests map[string]int
}

func newBucket() *bucket {
	return &bucket{objects: map[string][]byte{}, requests: map[string]int{}}
}

// onBucket runs a test in virtual time, on a store over a bucket of its own.
func onBucket(t *testing.T, f func(t *testing.T, b *bucket, s *createonly.Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBucket()
		f(t, b, createonly.New(b))
	})
}

// Describe allows any TTL, and does not say whether conditions are enforced.
func (*bucket) Describe() leasehold.StoreInfo {
	return leasehold.StoreInfo{MinTTL: time.Millisecond, TellsAge: true}
}

// request locks b for one request.
func (b *bucket) request(ctx context.Context, kind string) (unlock func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b.mu.Lock()
	b.requests[kind]++
	return b.mu.Unlock, nil
}

func (b *bucket) Create(ctx context.Context, name string, body []byte) error {
	unlock, err := b.request(ctx, "create")
	if err != nil {
		return err
	}
	defer unlock()
	if _, exists := b.objects[name]; exists && !b.overwrites {
		return fmt.Errorf("creating %q: %w", name, leasehold.ErrPreconditionFailed)
	}
	if b.lag > 0 {
		b.before = append(b.before, maps.Clone(b.objects))
	}
	b.objects[name] = bytes.Clone(body)
	return nil
}

func (b *bucket) Get(ctx context.Context, name string) ([]byte, error) {
	unlock, err := b.request(ctx, "get")
	if err != nil {
		return nil, err
	}
	defer unlock()
	body, exists := b.objects[name]
	switch {
	case !exists:
		return nil, fmt.Errorf("reading %q: %w", name, leasehold.ErrNotExist)
	case len(body) > leasehold.MaxObjectSize:
		return nil, fmt.Errorf("reading %q: %w", name, leasehold.ErrCorruptRecord)
	}
	return bytes.Clone(body), nil
}

// List shows the names in any order.
func (b *bucket) List(ctx context.Context, prefix string) ([]string, error) {
	unlock, err := b.request(ctx, "list")
	if err != nil {
		return nil, err
	}
	defer unlock()
	objects := b.objects
	if n := len(b.before); b.lag > 0 && n > 0 {
		objects = b.before[max(n-b.lag, 0)]
	}
	var names []string
	for name := range objects {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	return names, nil
}

func (b *bucket) Delete(ctx context.Context, name string) error {
	unlock, err := b.request(ctx, "delete")
	if err != nil {
		return err
	}
	defer unlock()
	delete(b.objects, name)
	return nil
}

// put writes an object as somebody else does.
func (b *bucket) put(name string, body []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.objects[name] = body
}

// remove deletes an object as somebody else does.
func (b *bucket) remove(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.objects, name)
}

// names are those of all objects.
func (b *bucket) names() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(maps.Keys(b.objects))
}

// counted returns the requests since the last call.
func (b *bucket) counted() map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer func() { b.requests = map[string]int{} }()
	return b.requests
}

var errReset = errors.New("connection reset")

// client is one client's way to a bucket.
type client struct {
	*bucket
	do     func(ctx context.Context, kind string, send func(context.Context) error) error // each request
	listed func(names []string) []string                                                  // what LIST shows, if set
}

// on returns a way to the bucket on which do carries out the requests of one kind.
func (b *bucket) on(kind string, do func(ctx context.Context, send func(context.Context) error) error) *client {
	return &client{bucket: b, do: func(ctx context.Context, is string, send func(context.Context) error) error {
		if is != kind {
			return send(ctx)
		}
		return do(ctx, send)
	}}
}

// failing returns a way to the bucket on which all requests of one kind fail.
func (b *bucket) failing(kind string, err error) *client {
	return b.on(kind, func(context.Context, func(context.Context) error) error { return err })
}

// listing returns a way to the bucket on which a LIST shows what listed makes of it.
func (b *bucket) listing(listed func(names []string) []string) *client {
	c := b.on("", nil)
	c.listed = listed
	return c
}

func (c *client) Create(ctx context.Context, name string, body []byte) error {
	return c.do(ctx, "create", func(ctx context.Context) error { return c.bucket.Create(ctx, name, body) })
}

func (c *client) Get(ctx context.Context, name string) (body []byte, err error) {
	err = c.do(ctx, "get", func(ctx context.Context) (err error) {
		body, err = c.bucket.Get(ctx, name)
		return err
	})
	return body, err
}

func (c *client) List(ctx context.Context, prefix string) ([]string, error) {
	var first atomic.Pointer[[]string] // of two requests, which may run at once
	err := c.do(ctx, "list", func(ctx context.Context) error {
		names, err := c.bucket.List(ctx, prefix)
		first.CompareAndSwap(nil, &names)
		return err
	})
	if err != nil {
		return nil, err
	}
	names := *first.Load()
	if c.listed != nil {
		names = c.listed(names)
	}
	return names, nil
}

func (c *client) Delete(ctx context.Context, name string) error {
	return c.do(ctx, "delete", func(ctx context.Context) error { return c.bucket.Delete(ctx, name) })
}

// lossy is a client's way to a bucket on which requests get lost before or after they have landed,
// land up to a minute late, and land twice. Its worlds run in virtual time.
func lossy(b *bucket, random *rand.Rand) *client {
	var mu sync.Mutex // guards random
	return &client{bucket: b, do: func(ctx context.Context, is string, send func(context.Context) error) error {
		if is == "get" {
			return send(ctx)
		}
		if is == "delete" {
			ctx = context.WithoutCancel(ctx)
		}
		mu.Lock()
		kind, pause := random.IntN(32), time.Duration(random.Int64N(int64(10*time.Millisecond)))
		late := time.Duration(random.Int64N(int64(time.Minute)))
		mu.Unlock()
		time.Sleep(pause)
		switch kind {
		case 0:
			return errReset
		case 1:
			time.AfterFunc(late, func() { _ = send(ctx) })
			return errReset
		case 2:
			time.AfterFunc(late, func() { _ = send(ctx) })
		case 3:
			_ = send(ctx)
			return errReset
		case 4: // its sender sleeps before it sends
			time.Sleep(late)
		}
		return send(ctx)
	}}
}
