// Package teststore lets a test answer the requests of a client to its store, or take part in them:
// count, delay, change, refuse or lose them.
package teststore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
)

// Op is a method of a [leasehold.Store].
type Op string

// The methods of a store.
const (
	Get    Op = "get"
	Create Op = "create" // PutIfNoneMatch
	Update Op = "update" // PutIfMatch
	Delete Op = "delete" // DeleteIfMatch
)

// Puts are the methods that write an object.
var Puts = []Op{Create, Update}

var all = []Op{Get, Create, Update, Delete}

// Request is a call of a method of a store.
type Request struct {
	Op   Op
	Key  string
	Body []byte // of a Create or Update
	ETag string // of an Update or Delete
	to   leasehold.Store
}

// Puts reports whether the request is one of [Puts].
func (r Request) Puts() bool { return slices.Contains(Puts, r.Op) }

// Send sends the request to the store. The answer to a Create or Update has only the new ETag.
func (r Request) Send(ctx context.Context) (o leasehold.Object, err error) {
	switch r.Op {
	case Create:
		o.ETag, err = r.to.PutIfNoneMatch(ctx, r.Key, r.Body)
	case Update:
		o.ETag, err = r.to.PutIfMatch(ctx, r.Key, r.Body, r.ETag)
	case Delete:
		err = r.to.DeleteIfMatch(ctx, r.Key, r.ETag)
	default:
		o, err = r.Get(ctx)
	}
	return o, err
}

// Get reads the object that the request is about.
func (r Request) Get(ctx context.Context) (leasehold.Object, error) { return r.to.Get(ctx, r.Key) }

// Overwrite writes the object of a Create or Update unconditionally.
func (r Request) Overwrite(ctx context.Context) (leasehold.Object, error) {
	for {
		o, err := r.Get(ctx)
		if r.Op, r.ETag = Update, o.ETag; errors.Is(err, leasehold.ErrNotExist) {
			r.Op = Create
		} else if err != nil {
			return o, err
		}
		o, err = r.Send(ctx)
		if !errors.Is(err, leasehold.ErrPreconditionFailed) && !errors.Is(err, leasehold.ErrNotExist) {
			return o, err
		}
	}
}

// Do answers a request, with the object of a Get or the ETag of a Create or Update.
type Do func(ctx context.Context, r Request) (leasehold.Object, error)

// CheckThenPut answers as a store that reads before it writes: it refuses as it should, unless
// another client writes at the same time. In virtual time its pause ends when all others wait too.
func CheckThenPut(ctx context.Context, r Request) (leasehold.Object, error) {
	if !r.Puts() {
		return r.Send(ctx)
	}
	switch o, err := r.Get(ctx); {
	case r.Op == Update && err != nil:
		return o, err
	case r.Op == Create && err == nil, r.Op == Update && o.ETag != r.ETag:
		return o, leasehold.ErrPreconditionFailed
	}
	time.Sleep(time.Nanosecond)
	return r.Overwrite(ctx)
}

// Store is the store of a client, before another store. Its methods are safe for concurrent use.
type Store struct {
	leasehold.Store
	Info leasehold.StoreInfo // what it reports about itself: nothing is known unless the test says so
	do   Do

	mu    sync.Mutex // guards what follows
	sent  map[Op]int
	fails map[Op]error
}

// New returns a store whose requests do answers. Without do, [Request.Send] does.
func New(s leasehold.Store, do Do) *Store {
	if do == nil {
		do = func(ctx context.Context, r Request) (leasehold.Object, error) { return r.Send(ctx) }
	}
	return &Store{Store: s, do: do, sent: map[Op]int{}, fails: map[Op]error{}}
}

// Known returns a store as New does, which reports about itself what s does.
func Known(s leasehold.Store, do Do) *Store {
	known := New(s, do)
	known.Info = leasehold.Describe(s)
	return known
}

// Overtaken returns a store on which another client always writes first, and has released the lock
// again before the next read.
func Overtaken(s leasehold.Store) *Store {
	n := 0
	return New(s, func(ctx context.Context, r Request) (leasehold.Object, error) {
		if r.Puts() {
			n++
			other := r
			other.Body = fmt.Appendf(nil, `{"expires_at":0,"token":%d}`, n)
			if _, err := other.Overwrite(ctx); err != nil {
				return leasehold.Object{}, err
			}
		}
		return r.Send(ctx)
	})
}

// Fail fails all requests of these kinds, or of all kinds, with err from now on: none any more if
// err is nil.
func (s *Store) Fail(err error, ops ...Op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(ops) == 0 {
		ops = all
	}
	for _, op := range ops {
		s.fails[op] = err
	}
}

// Sent returns how many requests of these kinds, or of all kinds, there were, whatever the answer.
func (s *Store) Sent(ops ...Op) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(ops) == 0 {
		ops = all
	}
	for _, op := range ops {
		n += s.sent[op]
	}
	return n
}

// Forget begins to count anew.
func (s *Store) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.sent)
}

// Describe returns Info.
func (s *Store) Describe() leasehold.StoreInfo { return s.Info }

// Get reads an object.
func (s *Store) Get(ctx context.Context, key string) (leasehold.Object, error) {
	return s.answer(ctx, Request{Op: Get, Key: key})
}

// PutIfNoneMatch creates an object.
func (s *Store) PutIfNoneMatch(ctx context.Context, key string, body []byte) (string, error) {
	o, err := s.answer(ctx, Request{Op: Create, Key: key, Body: body})
	return o.ETag, err
}

// PutIfMatch replaces a version of an object.
func (s *Store) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	o, err := s.answer(ctx, Request{Op: Update, Key: key, Body: body, ETag: etag})
	return o.ETag, err
}

// DeleteIfMatch removes a version of an object.
func (s *Store) DeleteIfMatch(ctx context.Context, key, etag string) error {
	_, err := s.answer(ctx, Request{Op: Delete, Key: key, ETag: etag})
	return err
}

func (s *Store) answer(ctx context.Context, r Request) (leasehold.Object, error) {
	r.to = s.Store
	s.mu.Lock()
	s.sent[r.Op]++
	err := s.fails[r.Op]
	s.mu.Unlock()
	if err != nil {
		return leasehold.Object{}, err
	}
	return s.do(ctx, r)
}
