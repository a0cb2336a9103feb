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

// lossy is one client's way to a bucket: requests get lost before or after they have landed, land
// late, and land twice. Its worlds run in virtual time.
type lossy struct {
	*bucket
	mu     sync.Mutex
	random *rand.Rand
	late   time.Duration // at most
}

// send carries out land, or not, and returns an error if the client has no answer.
func (l *lossy) send(land func() error) error {
	l.mu.Lock()
	kind, pause, late := l.random.IntN(32), time.Duration(l.random.Int64N(int64(10*time.Millisecond))),
		time.Duration(l.random.Int64N(int64(l.late)))
	l.mu.Unlock()
	time.Sleep(pause)
	switch kind {
	case 0:
		return errReset
	case 1:
		time.AfterFunc(late, func() { _ = land() })
		return errReset
	case 2:
		time.AfterFunc(late, func() { _ = land() })
	case 3:
		_ = land()
		return errReset
	case 4: // its sender sleeps before it sends
		time.Sleep(late)
	}
	return land()
}

func (l *lossy) Create(ctx context.Context, name string, body []byte) error {
	return l.send(func() error { return l.bucket.Create(ctx, name, body) })
}

func (l *lossy) Delete(ctx context.Context, name string) error {
	return l.send(func() error { return l.bucket.Delete(context.WithoutCancel(ctx), name) })
}

func (l *lossy) List(ctx context.Context, prefix string) ([]string, error) {
	var names atomic.Pointer[[]string] // of the first of two requests, which may run at once
	err := l.send(func() error {
		found, err := l.bucket.List(ctx, prefix)
		names.CompareAndSwap(nil, &found)
		return err
	})
	if err != nil {
		return nil, err
	}
	return *names.Load(), nil
}
