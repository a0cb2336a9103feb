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
	age    time.Duration // of the object that the last request has read, or 0 if unknown
	answer time.Time     // of the last answer, or of the first request before there was one; zero before any request
	err    error         // of the last request, if it got no answer
	asking int           // requests under way
	began  time.Time     // when the oldest of them began, or a later one was answered
}

// Describe passes on what the store reports about itself.
func (s *watchedStore) Describe() leasehold.StoreInfo { return leasehold.Describe(s.Store) }

// Get implements [leasehold.Store].
func (s *watchedStore) Get(ctx context.Context, key string) (leasehold.Object, error) {
	s.asked()
	obj, err := s.Store.Get(ctx, key)
	s.answered(err, obj.Age)
	return obj, err
}

// PutIfNoneMatch implements [leasehold.Store].
func (s *watchedStore) PutIfNoneMatch(ctx context.Context, key string, body []byte) (string, error) {
	s.asked()
	etag, err := s.Store.PutIfNoneMatch(ctx, key, body)
	s.answered(err, 0)
	return etag, err
}

// PutIfMatch implements [leasehold.Store].
func (s *watchedStore) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	s.asked()
	newETag, err := s.Store.PutIfMatch(ctx, key, body, etag)
	s.answered(err, 0)
	return newETag, err
}

func (s *watchedStore) asked() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.answer.IsZero() {
		s.answer = now
	}
	if s.asking++; s.asking == 1 {
		s.began = now
	}
}

func (s *watchedStore) answered(err error, age time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.age, s.began = age, time.Now()
	s.asking--
	switch {
	case err == nil, errors.Is(err, leasehold.ErrNotExist), errors.Is(err, leasehold.ErrPreconditionFailed):
		s.answer, s.err = time.Now(), nil
	case !errors.Is(err, context.Canceled): // a cancelled request says nothing about the store
		s.err = err
	}
}

// lastAge returns the age of the object that the last request has read, or 0 if it is unknown.
func (s *watchedStore) lastAge() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.age
}

// silence returns for how long the store has not answered, and the error of the last request, or of
// one that is still under way. The error is nil if nothing is amiss.
func (s *watchedStore) silence() (time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil && s.asking > 0 {
		return min(time.Since(s.answer), time.Since(s.began)), errors.New("the request is still under way")
	}
	return time.Since(s.answer), s.err
}
