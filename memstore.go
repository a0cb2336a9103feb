package leasehold

import (
	"bytes"
	"context"
	"crypto/md5"
	"fmt"
	"sync"
	"time"
)

// MemStore is a [Store] in memory, with the exact semantics of a strict S3: for tests, examples, and candidates within one
// process. It is safe for concurrent use, works under testing/synctest, and tells the exact Age.
type MemStore struct {
	// ContentETags gives equal bodies equal ETags, as S3 does for plain objects; otherwise no ETag ever repeats. Set it
	// before the first use.
	ContentETags bool

	mu      sync.Mutex
	objects map[string]memObject
	writes  uint64
}

type memObject struct {
	body    []byte
	etag    string
	written time.Time
}

// NewMemStore returns an empty store.
func NewMemStore() *MemStore { return new(MemStore) }

// MinTTL returns 0: with an exact clock and no network, a TTL may be as short as one likes.
func (*MemStore) MinTTL() time.Duration { return 0 }

// Get implements [Store].
func (m *MemStore) Get(ctx context.Context, key string) (Object, error) {
	if err := ctx.Err(); err != nil {
		return Object{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.objects[key]
	if !ok {
		return Object{}, fmt.Errorf("%w: %q", ErrNotExist, key)
	}
	return Object{Body: bytes.Clone(o.body), ETag: o.etag, Age: time.Since(o.written)}, nil
}

// PutIfNoneMatch implements [Store].
func (m *MemStore) PutIfNoneMatch(ctx context.Context, key string, body []byte) (string, error) {
	return m.put(ctx, key, body, func(_ memObject, exists bool) error {
		if exists {
			return fmt.Errorf("%w: %q exists", ErrPreconditionFailed, key)
		}
		return nil
	})
}

// PutIfMatch implements [Store].
func (m *MemStore) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	return m.put(ctx, key, body, func(o memObject, exists bool) error { return o.match(exists, key, etag) })
}

// DeleteIfMatch implements [Store].
func (m *MemStore) DeleteIfMatch(ctx context.Context, key, etag string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	o, exists := m.objects[key]
	if err := o.match(exists, key, etag); err != nil {
		return err
	}
	delete(m.objects, key)
	return nil
}

// match is the condition of If-Match: as S3, it tells a missing object from a changed one.
func (o memObject) match(exists bool, key, etag string) error {
	switch {
	case !exists:
		return fmt.Errorf("%w: %q", ErrNotExist, key)
	case o.etag != etag:
		return fmt.Errorf("%w: %q has changed", ErrPreconditionFailed, key)
	}
	return nil
}

func (m *MemStore) put(ctx context.Context, key string, body []byte, allow func(memObject, bool) error) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if len(body) > MaxObjectSize {
		return "", fmt.Errorf("%w: %q: %d bytes are over %d", ErrPermanent, key, len(body), MaxObjectSize)
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
	etag := fmt.Sprintf(`"%x"`, md5.Sum(body))
	if !m.ContentETags {
		etag = fmt.Sprintf(`"%s-%d"`, etag[1:9], m.writes)
	}
	m.objects[key] = memObject{body: bytes.Clone(body), etag: etag, written: time.Now()}
	return etag, nil
}
