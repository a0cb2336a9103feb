// Package memstore is objects in memory, with the exact semantics of a strict S3.
package memstore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// Objects are objects by key. It has the methods of leasehold.Store, which documents them, and is
// safe for concurrent use.
type Objects struct {
	Limit        int  // of a body, in bytes
	ContentETags bool // equal bodies have equal ETags, as S3 has it for plain objects
	TellsAge     bool // Get reports the exact Age

	mu     sync.Mutex
	of     map[string]stored
	writes uint64
}

// Object has the fields of leasehold.Object.
type Object struct {
	Body []byte
	ETag string
	Age  time.Duration
}

type stored struct {
	body    []byte
	etag    string
	written time.Time
}

// Store is a func(*Objects) leasehold.Store, which package leasehold sets. Package testopt has it
// with its type.
var Store any

// Get implements leasehold.Store.
func (s *Objects) Get(ctx context.Context, key string) (Object, error) {
	if err := ctx.Err(); err != nil {
		return Object{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.of[key]
	if !ok {
		return Object{}, fmt.Errorf("reading %q: %w", key, storeapi.ErrNotExist)
	}
	found := Object{Body: bytes.Clone(o.body), ETag: o.etag}
	if s.TellsAge {
		found.Age = time.Since(o.written)
	}
	return found, nil
}

// PutIfNoneMatch implements leasehold.Store.
func (s *Objects) PutIfNoneMatch(ctx context.Context, key string, body []byte) (string, error) {
	return s.put(ctx, key, body, func(_ stored, exists bool) error {
		if exists {
			return fmt.Errorf("writing %q: %w: it exists", key, storeapi.ErrPreconditionFailed)
		}
		return nil
	})
}

// PutIfMatch implements leasehold.Store.
func (s *Objects) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	return s.put(ctx, key, body, func(o stored, exists bool) error { return o.match(exists, "writing", key, etag) })
}

// DeleteIfMatch implements leasehold.Store.
func (s *Objects) DeleteIfMatch(ctx context.Context, key, etag string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o, exists := s.of[key]
	if err := o.match(exists, "deleting", key, etag); err != nil {
		return err
	}
	delete(s.of, key)
	return nil
}

// match is the condition of If-Match. As S3 does, it distinguishes a missing object from a changed
// one.
func (o stored) match(exists bool, doing, key, etag string) error {
	switch {
	case !exists:
		return fmt.Errorf("%s %q: %w", doing, key, storeapi.ErrNotExist)
	case o.etag != etag:
		return fmt.Errorf("%s %q: %w: it has changed", doing, key, storeapi.ErrPreconditionFailed)
	}
	return nil
}

func (s *Objects) put(ctx context.Context, key string, body []byte, allow func(stored, bool) error) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if len(body) > s.Limit {
		return "", storeapi.TooLarge(fmt.Sprintf("writing %q", key), len(body), s.Limit)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o, exists := s.of[key]
	if err := allow(o, exists); err != nil {
		return "", err
	}
	s.writes++
	sum := sha256.Sum256(body)
	etag := fmt.Sprintf(`"%x"`, sum[:16])
	if !s.ContentETags {
		etag = fmt.Sprintf(`"%s-%d"`, etag[1:9], s.writes)
	}
	if s.of == nil {
		s.of = make(map[string]stored)
	}
	s.of[key] = stored{body: bytes.Clone(body), etag: etag, written: time.Now()}
	return etag, nil
}
