package k8slock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
)

// watchedStore records what a [Lock] needs to know about its store besides the record.
type watchedStore struct {
	leasehold.Store

	mu     sync.Mutex    // guards what follows; never held over I/O
	key    string        // of the last request
	age    time.Duration // of the object that it has read, or 0 if unknown
	answer time.Time     // of the last answer, or of the first request before there was one; zero before any request
	err    error         // of the last request, if it got no answer
}

// MinTTL passes on the optional method of the store. Without it the limit is client-go's, one second.
func (s *watchedStore) MinTTL() time.Duration {
	if m, ok := s.Store.(interface{ MinTTL() time.Duration }); ok {
		return m.MinTTL()
	}
	return time.Second
}

// Validate passes on the optional method of the store.
func (s *watchedStore) Validate() error {
	if v, ok := s.Store.(interface{ Validate() error }); ok {
		return v.Validate()
	}
	return nil
}

// TellsAge passes on the optional method of the store.
func (s *watchedStore) TellsAge() bool {
	a, ok := s.Store.(interface{ TellsAge() bool })
	return ok && a.TellsAge()
}

// Get implements [leasehold.Store].
func (s *watchedStore) Get(ctx context.Context, key string) (leasehold.Object, error) {
	s.asked()
	obj, err := s.Store.Get(ctx, key)
	s.answered(err, key, obj.Age)
	return obj, err
}

// PutIfNoneMatch implements [leasehold.Store].
func (s *watchedStore) PutIfNoneMatch(ctx context.Context, key string, body []byte) (string, error) {
	s.asked()
	etag, err := s.Store.PutIfNoneMatch(ctx, key, body)
	s.answered(err, key, 0)
	return etag, err
}

// PutIfMatch implements [leasehold.Store].
func (s *watchedStore) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	s.asked()
	newETag, err := s.Store.PutIfMatch(ctx, key, body, etag)
	s.answered(err, key, 0)
	return newETag, err
}

func (s *watchedStore) asked() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.answer.IsZero() {
		s.answer = time.Now()
	}
}

func (s *watchedStore) answered(err error, key string, age time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.key, s.age = key, age
	switch {
	case err == nil, errors.Is(err, leasehold.ErrNotExist), errors.Is(err, leasehold.ErrPreconditionFailed):
		s.answer, s.err = time.Now(), nil
	case !errors.Is(err, context.Canceled): // a cancelled request says nothing about the store
		s.err = err
	}
}

// ageOf returns the age of the object at key, or 0 if that is unknown or the last request was for another one. s may be nil.
func (s *watchedStore) ageOf(key string) time.Duration {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.key != key {
		return 0
	}
	return s.age
}

// silence returns how long the store has not answered, and the error of the last request, nil if that was answered.
func (s *watchedStore) silence() (time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.answer), s.err
}
