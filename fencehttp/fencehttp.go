// Package fencehttp carries fencing tokens over HTTP: a leader sends its token in the header Fencing-Token, and a [Fence]
// in the server turns away requests of former leaders.
//
//	request.Header.Set(fencehttp.Header, fencehttp.Format(lease.Token())) // the client
//
//	fence := fencehttp.New(marks, resource) // the server: one Fence for all routes that write the same resources
//	mux.Handle("PUT /reports/{name}", authorise(fence.Middleware(put)))
//	mux.Handle("DELETE /reports/{name}", authorise(fence.Middleware(remove)))
package fencehttp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/fenced"
)

// Header is the name of the header that carries a token in decimal.
const Header = "Fencing-Token"

// maxToken is the highest token that a lock issues: the largest integer that every JSON reader keeps exact.
const maxToken = 1<<53 - 1

// Format returns a token as [Header] has it.
func Format(token uint64) string { return strconv.FormatUint(token, 10) }

// Marks keeps the highest token that was seen for each resource. It must outlive the process, as the resource does:
// [NewStoreMarks] does, [MemMarks] does not. It must be safe for concurrent use.
type Marks interface {
	// Raise sets the mark of resource to token, if it is lower, and returns the mark that then stands. It must be atomic,
	// may return only when the mark is as durable as the resource, and must return when ctx ends.
	Raise(ctx context.Context, resource string, token uint64) (highest uint64, err error)
}

// Fence turns away requests of former leaders. One Fence belongs to one set of resources: wrap every route that writes
// them with [Fence.Middleware] of the same Fence, because two of them do not wait for each other's requests. It is safe for
// concurrent use.
type Fence struct {
	marks    Marks
	resource func(*http.Request) string
	wait     time.Duration

	mu    sync.Mutex
	gates map[string]*gate // of the resources that requests are under way for
}

// Option configures a [Fence].
type Option func(*Fence)

// WithWait sets how long a request may wait in all, for the marks and for requests of lower tokens to end, before it
// gets 503. It must be positive. The default is 10 s.
func WithWait(d time.Duration) Option { return func(f *Fence) { f.wait = d } }

// New returns a fence. Resource names what a request changes, from its path, for instance; requests with the same name
// fence each other off. A request for which it returns "" gets 500. New panics if marks or resource is nil, or the wait
// is not positive.
func New(marks Marks, resource func(*http.Request) string, opts ...Option) *Fence {
	f := &Fence{marks: marks, resource: resource, wait: 10 * time.Second, gates: map[string]*gate{}}
	for _, opt := range opts {
		opt(f)
	}
	switch {
	case marks == nil || resource == nil:
		panic("fencehttp: New needs marks, and a function that names the resource of a request")
	case f.wait <= 0:
		panic(fmt.Sprintf("fencehttp: WithWait(%v): the wait must be positive", f.wait))
	}
	return f
}

// Middleware lets a request through to next if no higher token was seen for its resource. It answers the others, without
// having called next:
//
//   - 412 Precondition Failed to a token that is too low, with the highest token seen in [Header]
//   - 428 Precondition Required to a request without a token
//   - 400 Bad Request to anything but one number from 1 to 2^53-1, the highest token that a lock issues
//   - 503 Service Unavailable if the marks fail (the cause is a warning in [slog.Default]), or the request's context ends or
//     [WithWait] is over before its turn has come
//
// Authorise first, then fence: put the middleware that authorises around this one. Whoever gets as far as this can raise the
// mark, and so lock out every lower token for good.
//
// A higher token ends the requests of lower ones that were let through before: their contexts end at once, with a cause
// that matches [fenced.ErrFenced], reading their bodies fails, and writing an answer fails after a quarter of [WithWait].
// It is let through when they have returned, so in one process nothing of theirs happens after it. Where several processes
// serve a resource, only the resource itself can say no: see the guide for a condition in SQL.
//
// Three things to mind about handlers. One that returns without writing an answer when its context ends answers 200, as
// everywhere in net/http: answer with an error. None may leave work behind when it returns: http.TimeoutHandler does, so put it around this
// middleware, not inside. And a middleware around this one that hides the server's ResponseWriter (one without an Unwrap
// method, http.TimeoutHandler among them: see [http.ResponseController]) keeps a blocked read from being interrupted; until it
// ends, by the server's ReadTimeout for instance, a new leader gets 503.
//
// Every method is fenced, GET and HEAD too: wrap only the routes that write.
func (f *Fence) Middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, status, reason := tokenOf(r.Header.Values(Header))
		if status != 0 {
			http.Error(w, reason, status)
			return
		}
		name := f.resource(r)
		if name == "" {
			http.Error(w, "the server has no name for the resource of this request", http.StatusInternalServerError)
			return
		}
		g := f.of(name)
		defer f.leave(name)
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		v := &visit{token, func(highest uint64) {
			cancel(&fenced.Error{Key: name, Token: token, Highest: highest})
			// A context does not end a read from a client that has stopped, or a write to it. Deadlines do.
			conn := http.NewResponseController(w)
			_ = conn.SetReadDeadline(time.Unix(1, 0))
			// A client that still listens gets its answer. One that does not costs up to 5 s more over HTTP/1.1 with TLS, for which
			// crypto/tls tries to say goodbye.
			_ = conn.SetWriteDeadline(time.Now().Add(f.wait / 4))
		}}
		highest, err := f.enter(r.Context(), g, name, v)
		switch {
		case err != nil:
			http.Error(w, "not carried out: "+err.Error()+"; try again", http.StatusServiceUnavailable)
			return
		case token < highest:
			w.Header().Set(Header, Format(highest))
			http.Error(w, fmt.Sprintf("not carried out: token %d is fenced off, token %d has been seen; stop: a newer leader has taken over",
				token, highest), http.StatusPreconditionFailed)
			return
		}
		defer g.exit(v)
		fenced := r.WithContext(ctx)
		// The server removes a form's temporary files, and looks for them in the request that it knows.
		defer func() { r.MultipartForm = fenced.MultipartForm }()
		next.ServeHTTP(w, fenced)
	})
}

// tokenOf returns the token in the values of the header, or the status and the reason of a refusal.
func tokenOf(values []string) (token uint64, status int, reason string) {
	if len(values) == 0 || len(values) == 1 && values[0] == "" {
		return 0, http.StatusPreconditionRequired, "the header " + Header + " is missing: send the token of your lease"
	}
	token, err := strconv.ParseUint(values[0], 10, 64)
	if err != nil || token == 0 || token > maxToken || len(values) > 1 {
		return 0, http.StatusBadRequest, fmt.Sprintf("%s: %.60q is not a token: send one number from 1 to %d", Header, values, uint64(maxToken))
	}
	return token, 0, ""
}

// The reasons for 503: what the client reads.
var (
	errMarks = errors.New("the fencing token could not be checked")
	errBusy  = errors.New("requests of lower tokens are still under way")
	errEnded = errors.New("the server gave up waiting")
)

// enter raises the mark, then passes the gate. It returns the highest token seen: above that of v, v is not let in.
func (f *Fence) enter(ctx context.Context, g *gate, name string, v *visit) (highest uint64, err error) {
	limited, stop := context.WithTimeout(ctx, f.wait)
	defer stop()
	if highest, err = f.marks.Raise(limited, name, v.token); err != nil {
		if ctx.Err() != nil {
			return 0, errEnded
		}
		// The client only learns that it failed: the cause is for whoever runs the server.
		slog.WarnContext(ctx, "leasehold: fencing token could not be checked", "resource", name, "token", v.token, "error", err)
		return 0, errMarks
	}
	if highest, err = g.enter(limited, v, highest); err != nil && ctx.Err() != nil {
		return 0, errEnded
	}
	return highest, err
}

func (f *Fence) of(name string) *gate {
	f.mu.Lock()
	defer f.mu.Unlock()
	g, ok := f.gates[name]
	if !ok {
		g = &gate{inside: map[*visit]bool{}, changed: make(chan struct{})}
		f.gates[name] = g
	}
	g.users++
	return g
}

func (f *Fence) leave(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gates[name].users--; f.gates[name].users == 0 {
		delete(f.gates, name)
	}
}

// gate lets one token at a time in, and none after a higher one has come.
type gate struct {
	users int // guarded by Fence.mu

	mu      sync.Mutex // guards what follows
	highest uint64
	inside  map[*visit]bool // requests let in, all of one token; true once interrupted
	changed chan struct{}   // closed when highest has risen, or one has gone
}

// visit is a request at a gate.
type visit struct {
	token     uint64
	interrupt func(highest uint64) // called at most once, under the gate's lock: never after exit, when w may be gone
}

// enter interrupts lower tokens that are inside, waits until they have gone, and lets v in, unless a higher token was seen,
// which it returns.
func (g *gate) enter(ctx context.Context, v *visit, highest uint64) (uint64, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if highest = max(highest, v.token); highest > g.highest {
		g.highest = highest
		for lower, interrupted := range g.inside {
			if !interrupted {
				g.inside[lower] = true
				lower.interrupt(highest)
			}
		}
		g.signal()
	}
	for {
		if v.token < g.highest {
			return g.highest, nil
		}
		if !g.lowerInside(v.token) {
			g.inside[v] = false
			return g.highest, nil
		}
		changed, over := g.changed, false
		g.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			over = true
		}
		g.mu.Lock()
		if over {
			return 0, errBusy
		}
	}
}

func (g *gate) lowerInside(token uint64) bool {
	for v := range g.inside {
		if v.token < token {
			return true
		}
	}
	return false
}

func (g *gate) exit(v *visit) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.inside, v)
	g.signal()
}

func (g *gate) signal() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// MemMarks keeps marks in memory, for tests and for resources that live there as well. The zero value is ready. It keeps one
// entry for each resource name, and never removes any. It is safe for concurrent use.
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
// raises the mark two. It is safe for concurrent use.
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

// raiseTries is how often Raise tries to write a mark. Each lost race means that another request has raised the mark, so
// more than a few in a row mean a store whose reads and writes disagree.
const raiseTries = 8

// Raise implements [Marks]. It tries a write that is refused, or whose outcome is unknown, up to 8 times within about 2 s,
// and then returns its error. It refuses tokens that no lock issues: 0, and those above 2^53-1. An object that does not hold a
// token from 1 to 2^53-1 is an error that matches [leasehold.ErrCorruptRecord].
func (m *StoreMarks) Raise(ctx context.Context, resource string, token uint64) (uint64, error) {
	key := m.prefix + resource
	fail := func(err error) (uint64, error) { return 0, fmt.Errorf("leasehold: fencing mark %q: %w", key, err) }
	if token == 0 || token > maxToken {
		return fail(fmt.Errorf("token %d is not one that a lock issues (they go from 1 to %d)", token, uint64(maxToken)))
	}
	body, err := json.Marshal(mark{token})
	if err != nil {
		return fail(err)
	}
	for try := 1; ; try++ {
		o, err := m.store.Get(ctx, key)
		switch {
		case errors.Is(err, leasehold.ErrNotExist):
			_, err = m.store.PutIfNoneMatch(ctx, key, body)
		case err != nil:
			return fail(err)
		default:
			var stands mark
			if err := json.Unmarshal(o.Body, &stands); err != nil || stands.Token == 0 || stands.Token > maxToken {
				return fail(fmt.Errorf("%w: %.80q (write {\"token\": N} there, with N no lower than any token ever issued)",
					leasehold.ErrCorruptRecord, o.Body))
			}
			if stands.Token >= token {
				return stands.Token, nil
			}
			_, err = m.store.PutIfMatch(ctx, key, body, o.ETag)
		}
		switch {
		case err == nil:
			return token, nil
		case errors.Is(err, leasehold.ErrPermanent) || errors.Is(err, leasehold.ErrUnsafeStore):
			return fail(err)
		case try == raiseTries:
			return fail(fmt.Errorf("not raised in %d tries: %w", try, err))
		}
		// Another request was faster, or this write has landed unnoticed: the next read tells.
		pause := 10 * time.Millisecond << try
		select {
		case <-time.After(pause/2 + rand.N(pause/2)):
		case <-ctx.Done():
			return fail(ctx.Err())
		}
	}
}
