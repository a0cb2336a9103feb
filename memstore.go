package leasehold

import (
	"bytes"
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// MemStore is a [Store] in memory, with the exact semantics of a strict S3. It is for tests, examples, and candidates within one
// process. It is safe for concurrent use and works under testing/synctest.
type MemStore struct {
	// ContentETags gives equal bodies equal ETags, as S3 does for plain objects. Otherwise no ETag ever repeats. Set it
	// before the first use.
	ContentETags bool
	// ServerClock makes Get tell the exact Age of an object. (An [S3Store] with [WithServerClock] tells a lower bound.)
	// Otherwise Age is 0. Set it before the first use.
	ServerClock bool

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

// MinTTL returns 1 ms, because there is no network between a lock and this store, only the scheduler.
func (*MemStore) MinTTL() time.Duration { return time.Millisecond }

// Validate refuses a nil store: see [Store].
func (m *MemStore) Validate() error {
	if m == nil {
		return errors.New("the MemStore is nil: make one with NewMemStore")
	}
	return nil
}

// TellsAge returns ServerClock: see [Store].
func (m *MemStore) TellsAge() bool { return m.ServerClock }

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
	if m.ServerClock {
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
	etag := fmt.Sprintf(`"%x"`, md5.Sum(body))
	if !m.ContentETags {
		etag = fmt.Sprintf(`"%s-%d"`, etag[1:9], m.writes)
	}
	m.objects[key] = memObject{body: bytes.Clone(body), etag: etag, written: time.Now()}
	return etag, nil
}
