package leasehold

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// MemStore is a [Store] in memory, with the exact semantics of a strict S3. It is for tests, examples, and candidates within one
// process. It is safe for concurrent use and works under testing/synctest.
type MemStore struct {
	contentETags bool
	tellsAge     bool

	mu      sync.Mutex
	objects map[string]memObject
	writes  uint64
}

var (
	_ TTLLimiter        = (*MemStore)(nil)
	_ ConditionEnforcer = (*MemStore)(nil)
	_ AgeTeller         = (*MemStore)(nil)
)

type memObject struct {
	body    []byte
	etag    string
	written time.Time
}

// MemOption is an option of [NewMemStore].
type MemOption func(*MemStore)

// WithContentETags gives equal bodies equal ETags, as S3 does for plain objects. Otherwise no ETag ever repeats.
func WithContentETags() MemOption { return func(m *MemStore) { m.contentETags = true } }

// WithExactAges makes [MemStore.Get] tell the exact Age of an object. (An [S3Store] with [WithServerClock] tells a lower bound.)
// Otherwise Age is 0.
func WithExactAges() MemOption { return func(m *MemStore) { m.tellsAge = true } }

// NewMemStore returns an empty store. Nil options are left out.
func NewMemStore(opts ...MemOption) *MemStore {
	m := new(MemStore)
	for _, opt := range opts {
		if opt != nil {
			opt(m)
		}
	}
	return m
}

// MinTTL returns 1 ms, because there is no network between a lock and this store, only the scheduler.
func (*MemStore) MinTTL() time.Duration { return time.Millisecond }

// EnforcesConditions returns true: see [Store].
func (*MemStore) EnforcesConditions() bool { return true }

// TellsAge reports whether [WithExactAges] is set: see [Store].
func (m *MemStore) TellsAge() bool { return m.tellsAge }

// Get implements [Store].
func (m *MemStore) Get(ctx context.Context, key string) (Object, error) {
	if err := ctx.Err(); err != nil {
		return Object{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.objects[key]
	if !ok {
		return Object{}, fmt.Errorf("reading %q: %w", key, ErrNotExist)
	}
	found := Object{Body: bytes.Clone(o.body), ETag: o.etag}
	if m.tellsAge {
		found.Age = time.Since(o.written)
	}
	return found, nil
}

// PutIfNoneMatch implements [Store].
func (m *MemStore) PutIfNoneMatch(ctx context.Context, key string, body []byte) (string, error) {
	return m.put(ctx, key, body, func(_ memObject, exists bool) error {
		if exists {
			return fmt.Errorf("writing %q: %w: it exists", key, ErrPreconditionFailed)
		}
		return nil
	})
}

// PutIfMatch implements [Store].
func (m *MemStore) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	return m.put(ctx, key, body, func(o memObject, exists bool) error { return o.match(exists, "writing", key, etag) })
}

// DeleteIfMatch implements [Store].
func (m *MemStore) DeleteIfMatch(ctx context.Context, key, etag string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	o, exists := m.objects[key]
	if err := o.match(exists, "deleting", key, etag); err != nil {
		return err
	}
	delete(m.objects, key)
	return nil
}

// match is the condition of If-Match. As S3 does, it tells a missing object from a changed one.
func (o memObject) match(exists bool, doing, key, etag string) error {
	switch {
	case !exists:
		return fmt.Errorf("%s %q: %w", doing, key, ErrNotExist)
	case o.etag != etag:
		return fmt.Errorf("%s %q: %w: it has changed", doing, key, ErrPreconditionFailed)
	}
	return nil
}

func (m *MemStore) put(ctx context.Context, key string, body []byte, allow func(memObject, bool) error) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if len(body) > MaxObjectSize {
		return "", storeapi.TooLarge(fmt.Sprintf("writing %q", key), len(body), MaxObjectSize)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	o, exists := m.objects[key]
	if err := allow(o, exists); err != nil {
		return "", err
	}
	if m.objects == nil {
		m.objects = make(map[string]memObject)
	}
	m.writes++
	sum := sha256.Sum256(body)
	etag := fmt.Sprintf(`"%x"`, sum[:16])
	if !m.contentETags {
		etag = fmt.Sprintf(`"%s-%d"`, etag[1:9], m.writes)
	}
	m.objects[key] = memObject{body: bytes.Clone(body), etag: etag, written: time.Now()}
	return etag, nil
}
