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

type memStore struct {
	contentETags bool // equal bodies have equal ETags, as S3 has it for plain objects
	tellsAge     bool // Get tells the exact Age

	mu      sync.Mutex
	objects map[string]memObject
	writes  uint64
}

type memObject struct {
	body    []byte
	etag    string
	written time.Time
}

// NewMemStore returns an empty [Store] in memory, with the exact semantics of a strict S3. It is for tests, examples, and candidates
// within one process. It is safe for concurrent use and works under testing/synctest. No ETag ever repeats, and Age is always 0.
func NewMemStore() Store { return &memStore{objects: make(map[string]memObject)} }

// Describe says that any TTL from 1 ms on will do, because there is no network between a lock and this store, only the scheduler.
func (m *memStore) Describe() StoreInfo {
	return StoreInfo{MinTTL: time.Millisecond, TellsAge: m.tellsAge, Conditional: true}
}

func (m *memStore) Get(ctx context.Context, key string) (Object, error) {
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

func (m *memStore) PutIfNoneMatch(ctx context.Context, key string, body []byte) (string, error) {
	return m.put(ctx, key, body, func(_ memObject, exists bool) error {
		if exists {
			return fmt.Errorf("writing %q: %w: it exists", key, ErrPreconditionFailed)
		}
		return nil
	})
}

func (m *memStore) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	return m.put(ctx, key, body, func(o memObject, exists bool) error { return o.match(exists, "writing", key, etag) })
}

func (m *memStore) DeleteIfMatch(ctx context.Context, key, etag string) error {
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

func (m *memStore) put(ctx context.Context, key string, body []byte, allow func(memObject, bool) error) (string, error) {
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
	m.writes++
	sum := sha256.Sum256(body)
	etag := fmt.Sprintf(`"%x"`, sum[:16])
	if !m.contentETags {
		etag = fmt.Sprintf(`"%s-%d"`, etag[1:9], m.writes)
	}
	m.objects[key] = memObject{body: bytes.Clone(body), etag: etag, written: time.Now()}
	return etag, nil
}

func init() {
	storeapi.NewMemStore = func(contentETags, tellsAge bool) Store {
		return &memStore{contentETags: contentETags, tellsAge: tellsAge, objects: make(map[string]memObject)}
	}
}
