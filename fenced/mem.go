package fenced

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strconv"
	"sync"

	"github.com/leasehold-go/leasehold"
)

// NewMemStore returns an empty store in memory, for tests.
func NewMemStore(opts ...Option) *Store { return NewStore(&MemBackend{}, opts...) }

// MemBackend is a [Backend] in memory, for tests that inject faults between a Backend and a
// [Store]. The zero value is ready to use. It is safe for concurrent use.
type MemBackend struct {
	mu      sync.Mutex
	last    uint64 // the number of versions so far
	objects map[string]memObject
}

type memObject struct {
	Version
	body []byte
}

// version returns a copy, because a caller may change the metadata.
func (o memObject) version() Version {
	v := o.Version
	v.Metadata = maps.Clone(v.Metadata)
	return v
}

// Head implements [Backend].
func (m *MemBackend) Head(ctx context.Context, key string) (Version, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.objects[key].version(), ctx.Err()
}

// Get implements [Backend].
func (m *MemBackend) Get(ctx context.Context, key string) (Version, io.ReadCloser, error) {
	if err := ctx.Err(); err != nil {
		return Version{}, nil, fmt.Errorf("reading %q: %w", key, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.objects[key]
	if !ok {
		return Version{}, nil, fmt.Errorf("reading %q: %w", key, leasehold.ErrNotExist)
	}
	return o.version(), io.NopCloser(bytes.NewReader(o.body)), nil
}

// Put implements [Backend]. If old is not the current version, its error matches
// [leasehold.ErrPreconditionFailed].
func (m *MemBackend) Put(ctx context.Context, key string, old, next Version, body io.Reader) error {
	content, err := io.ReadAll(body)
	if err = errors.Join(err, ctx.Err()); err != nil {
		return fmt.Errorf("writing %q: %w", key, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.objects[key].ID != old.ID {
		return fmt.Errorf("writing %q: %w", key, leasehold.ErrPreconditionFailed)
	}
	m.last++
	next.Metadata = maps.Clone(next.Metadata)
	next.ID, next.Size = strconv.FormatUint(m.last, 10), int64(len(content))
	if m.objects == nil {
		m.objects = map[string]memObject{}
	}
	m.objects[key] = memObject{next, content}
	return nil
}
