// Package fencehttp carries fencing tokens over HTTP: a leader sends its token in the header Fencing-Token, and [Middleware]
// turns away requests of former leaders.
//
//	request.Header.Set(fencehttp.Header, fencehttp.Format(lease.Token()))           // the client
//	http.Handle("PUT /reports/", fencehttp.Middleware(marks, byPath)(handler))      // the server
package fencehttp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"

	"github.com/leasehold-go/leasehold"
)

// Header is the name of the header that carries a token in decimal.
const Header = "Fencing-Token"

// Format returns a token as [Header] has it.
func Format(token uint64) string { return strconv.FormatUint(token, 10) }

// Marks keeps the highest token that was seen for each resource. It must outlive the process, as the resource does:
// [NewStoreMarks] does, [MemMarks] does not. It must be safe for concurrent use.
type Marks interface {
	// Raise sets the mark of resource to token, if it is lower, and returns the mark that then stands. It must be atomic,
	// and may return only when the mark is as durable as the resource.
	Raise(ctx context.Context, resource string, token uint64) (highest uint64, err error)
}

// Middleware lets a request through if no higher token was seen for its resource. Others get 412 Precondition Failed, with
// the highest token in [Header]; requests without a token 428 Precondition Required; a token that is not a number above
// 0 is 400 Bad Request; and if the marks fail, 503 Service Unavailable.
//
// A request of a new leader waits until those of former leaders that were let through before have been answered: in one
// process, nothing of theirs happens after it. Where several processes serve a resource, or the handler leaves work behind
// when it returns, only the resource itself can say no: see the guide for a condition in SQL.
//
// Resource names what a request changes; requests that only read do not belong behind this.
func Middleware(marks Marks, resource func(*http.Request) string) func(http.Handler) http.Handler {
	gates := &gates{open: map[string]*gate{}}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			text := r.Header.Get(Header)
			token, err := strconv.ParseUint(text, 10, 64)
			switch {
			case text == "":
				http.Error(w, "the header "+Header+" is missing: send the token of your lease", http.StatusPreconditionRequired)
				return
			case err != nil || token == 0 || len(r.Header.Values(Header)) > 1:
				http.Error(w, fmt.Sprintf("%s: %q is no token", Header, text), http.StatusBadRequest)
				return
			}
			name := resource(r)
			g := gates.of(name)
			defer gates.leave(name)
			highest, err := marks.Raise(r.Context(), name, token)
			if err != nil {
				http.Error(w, "fencing token cannot be checked", http.StatusServiceUnavailable)
				return
			}
			highest, err = g.enter(r.Context(), token, highest)
			if err != nil {
				return // the client has gone
			}
			if token < highest {
				w.Header().Set(Header, Format(highest))
				http.Error(w, (&leasehold.FencedError{Key: name, Token: token, Highest: highest}).Error(), http.StatusPreconditionFailed)
				return
			}
			defer g.exit(token)
			next.ServeHTTP(w, r)
		})
	}
}

// gates are those of the resources that requests are under way for.
type gates struct {
	mu   sync.Mutex
	open map[string]*gate
}

func (s *gates) of(name string) *gate {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, ok := s.open[name]
	if !ok {
		g = &gate{inside: map[uint64]int{}, changed: make(chan struct{})}
		s.open[name] = g
	}
	g.users++
	return g
}

func (s *gates) leave(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[name].users--; s.open[name].users == 0 {
		delete(s.open, name)
	}
}

// gate lets one token at a time in, and none after a higher one has come.
type gate struct {
	users int // guarded by gates.mu

	mu      sync.Mutex // guards what follows
	highest uint64
	inside  map[uint64]int // requests by token
	changed chan struct{}  // closed when one has gone
}

// enter waits until no lower token is inside, and lets token in, unless a higher one was seen, which it returns.
func (g *gate) enter(ctx context.Context, token, highest uint64) (uint64, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		g.highest = max(g.highest, highest, token)
		if token < g.highest {
			return g.highest, nil
		}
		lower := false
		for t := range g.inside {
			lower = lower || t < token
		}
		if !lower {
			g.inside[token]++
			return g.highest, nil
		}
		changed := g.changed
		g.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		g.mu.Lock()
		if err := ctx.Err(); err != nil {
			return 0, err
		}
	}
}

func (g *gate) exit(token uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside[token]--; g.inside[token] == 0 {
		delete(g.inside, token)
		close(g.changed)
		g.changed = make(chan struct{})
	}
}

// MemMarks keeps marks in memory, for tests and for resources that live there as well. The zero value is ready.
type MemMarks struct {
	mu    sync.Mutex
	marks map[string]uint64
}

// Raise implements [Marks].
func (m *MemMarks) Raise(_ context.Context, resource string, token uint64) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.marks == nil {
		m.marks = map[string]uint64{}
	}
	m.marks[resource] = max(m.marks[resource], token)
	return m.marks[resource], nil
}

// StoreMarks keeps each mark in an object of a [leasehold.Store]. A token that is not new costs one request, one that
// raises the mark two.
type StoreMarks struct {
	store  leasehold.Store
	prefix string
}

// NewStoreMarks returns marks in store, in one object per resource with the key prefix + resource.
func NewStoreMarks(store leasehold.Store, prefix string) *StoreMarks {
	return &StoreMarks{store, prefix}
}

type mark struct {
	Token uint64 `json:"token"`
}

// Raise implements [Marks]. An object that it cannot read is an error that matches [leasehold.ErrCorruptRecord].
func (m *StoreMarks) Raise(ctx context.Context, resource string, token uint64) (uint64, error) {
	key := m.prefix + resource
	body, err := json.Marshal(mark{token})
	if err != nil {
		return 0, err
	}
	for {
		o, err := m.store.Get(ctx, key)
		switch {
		case errors.Is(err, leasehold.ErrNotExist):
			_, err = m.store.PutIfNoneMatch(ctx, key, body)
		case err == nil:
			var stands mark
			if err := json.Unmarshal(o.Body, &stands); err != nil || stands.Token == 0 {
				return 0, fmt.Errorf("%w: mark %q: %.80q", leasehold.ErrCorruptRecord, key, o.Body)
			}
			if stands.Token >= token {
				return stands.Token, nil
			}
			_, err = m.store.PutIfMatch(ctx, key, body, o.ETag)
		}
		switch {
		case err == nil:
			return token, nil
		case errors.Is(err, leasehold.ErrPreconditionFailed), errors.Is(err, leasehold.ErrNotExist):
			// another request was faster, or this one's own write has landed unnoticed: read again
			if ctx.Err() != nil {
				return 0, ctx.Err()
			}
		default:
			return 0, fmt.Errorf("fencehttp: mark %q: %w", key, err)
		}
	}
}
