// Package fencehttp refuses HTTP requests of former leaders. A leader sends its token in the header
// Fencing-Token, and a [Fence] in the server refuses requests with lower tokens. See
// https://github.com/leasehold-go/leasehold/blob/main/docs/fencing.md.
//
//	request.Header.Set(fencehttp.Header, fencehttp.Format(lease.Token())) // the client
//
//	fence, err := fencehttp.New(marks, resource) // the server: one Fence for a resource's routes
//	mux.Handle("PUT /reports/{name}", authorise(fence.Middleware(put)))
//	mux.Handle("DELETE /reports/{name}", authorise(fence.Middleware(remove)))
package fencehttp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/canary"
	"github.com/leasehold-go/leasehold/internal/probe"
	"github.com/leasehold-go/leasehold/internal/storeapi"
	"github.com/leasehold-go/leasehold/internal/wire"
)

// Header is the name of the header that carries a token in decimal.
const Header = "Fencing-Token"

// Format returns a token as text for [Header].
func Format(token uint64) string { return strconv.FormatUint(token, 10) }

// Marks keeps the highest token that was seen for each resource: its mark. If the resource outlives
// the process, its mark must too. The marks of [StoreMarks] do, the marks of [MemMarks] do not.
// Implementations must be safe for concurrent use.
type Marks interface {
	// Raise sets the mark of resource to token if the mark is lower, and returns the resulting
	// mark. It must be atomic, must not return before the mark is as durable as the resource, and
	// must return when ctx ends.
	Raise(ctx context.Context, resource string, token uint64) (highest uint64, err error)
}

// Fence refuses requests of former leaders. Use one Fence for one set of resources, and wrap every
// route that writes to them with its [Fence.Middleware], because two Fences do not wait for each
// other's requests. A Fence is safe for concurrent use.
type Fence struct {
	marks    Marks
	resource func(*http.Request) string
	wait     time.Duration

	mu    sync.Mutex
	gates map[string]*gate // by resource; only resources with requests under way have one
}

// Option configures a [Fence].
type Option func(*Fence)

// WithWait limits the time that a request may wait in total, for the marks and for requests of
// lower tokens to end. After that time the answer is 503. d must be positive. The default is 10 s.
func WithWait(d time.Duration) Option { return func(f *Fence) { f.wait = d } }

// New returns a fence. resource returns the name of the resource that a request changes, for
// instance from its path. A request is compared only with requests of the same name. If resource
// returns "" for a request, the answer is 500. New refuses a nil argument or option, and a wait
// that is not positive.
func New(marks Marks, resource func(*http.Request) string, opts ...Option) (*Fence, error) {
	f := &Fence{marks: marks, resource: resource, wait: 10 * time.Second, gates: map[string]*gate{}}
	for _, opt := range opts {
		if opt == nil {
			return nil, errors.New("fencehttp: an Option is nil")
		}
		opt(f)
	}
	switch {
	case marks == nil || resource == nil:
		return nil, errors.New("fencehttp: marks and resource must not be nil")
	case f.wait <= 0:
		return nil, fmt.Errorf("fencehttp: WithWait(%v): the wait must be positive", f.wait)
	}
	return f, nil
}

// Middleware returns a handler that passes a request to next if no higher token was seen for its
// resource. Otherwise the handler answers without calling next:
//
//   - 412 Precondition Failed if the token is too low; [Header] then has the highest token seen
//   - 428 Precondition Required if the request has no token
//   - 400 Bad Request if the header is anything but one number from 1 to 2^53-1, the highest token
//     that a lock issues
//   - 503 Service Unavailable if the mark could not be checked (the cause is logged as a warning to
//     [slog.Default]), or if the request's context or the time of [WithWait] ends before its turn
//     has come
//
// Authorise first, then fence: put the middleware that authorises around this one. Any request that
// reaches this middleware can raise the mark, and so lock out every lower token for good.
//
// A higher token interrupts the requests of lower tokens that are still running. Their contexts end
// at once with a cause that matches [leasehold.ErrFenced], reads of their bodies fail, and writes
// of their answers fail after a quarter of [WithWait]. The higher token's request runs once they
// have returned, so within one process none of their effects comes after it. If several processes
// serve the resource, only the resource itself can refuse late writes: see the condition in SQL on
// the page https://github.com/leasehold-go/leasehold/blob/main/docs/fencing.md.
//
// Rules for handlers and for other middleware:
//
//   - When its context ends, a handler must answer with an error. If it returns without writing an
//     answer, the answer is 200, as always in net/http.
//   - A handler must not leave work behind when it returns. [http.TimeoutHandler] does, so put it
//     around this middleware, not inside.
//   - A middleware around this one should not hide the server's ResponseWriter: it needs an Unwrap
//     method, which http.TimeoutHandler lacks (see [http.ResponseController]). Behind one that
//     hides it, a blocked read cannot be interrupted. Until the read ends, for instance by the
//     server's ReadTimeout, a new leader gets 503.
//
// Every method is fenced, even GET and HEAD, so wrap only the routes that write.
func (f *Fence) Middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, status, reason := tokenOf(r.Header.Values(Header))
		if status != 0 {
			http.Error(w, reason, status)
			return
		}
		name := f.resource(r)
		if name == "" {
			http.Error(w, "not carried out: the server does not know which resource this request changes",
				http.StatusInternalServerError)
			return
		}
		g := f.of(name)
		defer f.leave(name)
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		v := &visit{token, func(highest uint64) {
			cancel(&leasehold.FencedError{Key: name, Token: token, Highest: highest})
			// The context alone ends neither a read from a client that has stopped nor a write to
			// it. Deadlines do.
			conn := http.NewResponseController(w)
			_ = conn.SetReadDeadline(time.Unix(1, 0))
			// A client that still reads gets its answer. With one that does not, HTTP/1.1 over TLS
			// takes up to 5 s more, because crypto/tls tries to send a close notification.
			_ = conn.SetWriteDeadline(time.Now().Add(f.wait / 4))
		}}
		highest, err := f.enter(r.Context(), g, name, v)
		switch {
		case err != nil:
			http.Error(w, "not carried out: "+err.Error(), http.StatusServiceUnavailable)
			return
		case token < highest:
			w.Header().Set(Header, Format(highest))
			http.Error(w, fmt.Sprintf("not carried out: token %d is fenced off because token %d has been seen: a "+
				"newer leader has taken over, so stop", token, highest), http.StatusPreconditionFailed)
			return
		}
		defer g.exit(v)
		fenced := r.WithContext(ctx)
		// The server removes a form's temporary files, but looks for them only in its own request.
		defer func() { r.MultipartForm = fenced.MultipartForm }()
		next.ServeHTTP(w, fenced)
	})
}

// tokenOf returns the token from the values of the header, or the status and the reason of a
// refusal.
func tokenOf(values []string) (token uint64, status int, reason string) {
	if len(values) == 0 || len(values) == 1 && values[0] == "" {
		return 0, http.StatusPreconditionRequired, "the header " + Header + " is missing: send the token of your lease"
	}
	token, err := strconv.ParseUint(values[0], 10, 64)
	if err != nil || token == 0 || token > leasehold.MaxToken || len(values) > 1 {
		return 0, http.StatusBadRequest, fmt.Sprintf("%s: %.60q is not a token: send one number from 1 to %d", Header,
			values, leasehold.MaxToken)
	}
	return token, 0, ""
}

// The reasons for 503, as the client reads them.
var (
	errNever = errors.New("the server cannot check the fencing token")
	errMarks = errors.New("the fencing token could not be checked; try again")
	errBusy  = errors.New("requests with lower tokens are still running; try again")
	errEnded = errors.New("the server gave up waiting; try again")
)

// enter raises the mark, then enters the gate. It returns the highest token seen. If that is higher
// than v's, v is not let in.
func (f *Fence) enter(ctx context.Context, g *gate, name string, v *visit) (highest uint64, err error) {
	limited, stop := context.WithTimeout(ctx, f.wait)
	defer stop()
	if highest, err = f.marks.Raise(limited, name, v.token); err != nil {
		if ctx.Err() != nil {
			return 0, errEnded
		}
		// The client only learns that the check failed. The cause is for the operator of the
		// server.
		slog.WarnContext(ctx, "leasehold: fencing token could not be checked", "resource", name, "token", v.token,
			"error", err, "answer", http.StatusServiceUnavailable)
		if errors.Is(err, leasehold.ErrPermanent) {
			return 0, errNever
		}
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

// gate lets in requests of one token at a time, and none of a token lower than one it has seen.
type gate struct {
	users int // guarded by Fence.mu

	mu      sync.Mutex // guards what follows
	highest uint64
	inside  map[*visit]bool // requests let in, all of one token; true once interrupted
	changed chan struct{}   // closed when highest has risen or a request has left
}

// visit is a request at a gate.
type visit struct {
	token uint64
	// called at most once, under the gate's lock, and so never after exit, when w may be gone
	interrupt func(highest uint64)
}

// enter interrupts requests of lower tokens, waits until they have left, and lets v in. It returns
// the highest token seen. If that is higher than v's, v is not let in.
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

// MemMarks keeps marks in memory, for tests and for resources that are in memory too. The zero
// value is ready to use. It keeps one entry for each resource name and never removes any. It is
// safe for concurrent use.
type MemMarks struct {
	mu    sync.Mutex
	marks map[string]uint64
}

// Raise implements [Marks]. It never fails.
func (m *MemMarks) Raise(_ context.Context, resource string, token uint64) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.marks == nil {
		m.marks = map[string]uint64{}
	}
	m.marks[resource] = max(m.marks[resource], token)
	return m.marks[resource], nil
}

// StoreMarks keeps each mark in an object of a [leasehold.Store]. A token that raises the mark
// costs two requests, any other token one. The first token costs two writes more, which the store
// must refuse, unless the store is known to enforce conditions: see [leasehold.StoreInfo].
// StoreMarks is safe for concurrent use.
type StoreMarks struct {
	store  leasehold.Store
	prefix string
	canary *canary.Canary // tries the store's conditions; nil if they are known
}

// NewStoreMarks returns marks in store. Each resource has one object, with the key prefix +
// resource, which has the form of a lock's key: see [StoreMarks.Raise].
func NewStoreMarks(store leasehold.Store, prefix string) *StoreMarks {
	m := &StoreMarks{store: store, prefix: prefix}
	if !leasehold.Describe(store).Conditional {
		m.canary = canary.Of(store, "")
	}
	return m
}

type mark struct {
	Token uint64 `json:"token"`
}

// raiseTries is how often Raise tries to write a mark. Each lost race means that another request
// has raised the mark, and several lost races in a row mean that the store's reads and writes
// disagree.
const raiseTries = 8

// Raise implements [Marks]. If a write is refused, or its outcome is unknown, Raise tries again, up
// to 8 times within about 2 s, and then returns the write's error. Tokens that no lock issues (0,
// and above 2^53-1) are refused. If the object does not hold a token from 1 to 2^53-1, the error
// matches [leasehold.ErrCorruptRecord]. The same holds if the object is a lock or a table of locks,
// which Raise does not change. If the store has carried out a write whose condition did not hold,
// the error matches [leasehold.ErrUnsafeStore]: a lower token could replace a higher one there. If
// the key is one that stores could take for another one, such as a path with "..", or the store has
// a [leasehold.StoreInfo] with Err, the error matches [leasehold.ErrPermanent], and nothing was
// sent.
func (m *StoreMarks) Raise(ctx context.Context, resource string, token uint64) (uint64, error) {
	key := m.prefix + resource
	fail := func(err error) (uint64, error) { return 0, fmt.Errorf("leasehold: fencing mark %q: %w", key, err) }
	if token == 0 || token > leasehold.MaxToken {
		return fail(fmt.Errorf("token %d was not issued by a lock (pass Lease.Token, which is from 1 to %d)",
			token, leasehold.MaxToken))
	}
	if err := leasehold.Describe(m.store).Err; err != nil {
		return fail(fmt.Errorf("%w: %w", leasehold.ErrPermanent, err))
	}
	if why := storeapi.BadKey(key); why != "" { // the name may be a client's
		return fail(fmt.Errorf("%w: the key %s", leasehold.ErrPermanent, why))
	}
	body, err := json.Marshal(mark{token})
	if err != nil {
		return fail(err)
	}
	for try := 1; ; try++ {
		var etag string
		o, err := m.store.Get(ctx, key)
		switch {
		case errors.Is(err, leasehold.ErrNotExist):
			etag, err = m.store.PutIfNoneMatch(ctx, key, body)
		case err != nil:
			return fail(err)
		default:
			if kind := wire.KindOf(o.Body); kind == wire.Lock || kind == wire.Table {
				return fail(wire.Misplaced(wire.Mark, o.Body))
			}
			var stands mark
			if err := json.Unmarshal(o.Body, &stands); err != nil || stands.Token == 0 ||
				stands.Token > leasehold.MaxToken {
				return fail(fmt.Errorf("%w: %.80q (overwrite the object with {\"token\": N}, where N is no lower "+
					"than any token ever issued)",
					leasehold.ErrCorruptRecord, o.Body))
			}
			if stands.Token >= token {
				if err := m.tryStore(ctx, key, o.ETag, o.Body); err != nil {
					return fail(err)
				}
				return stands.Token, nil
			}
			etag, err = m.store.PutIfMatch(ctx, key, body, o.ETag)
		}
		switch {
		case err == nil:
			if err := m.tryStore(ctx, key, etag, body); err != nil {
				return fail(err)
			}
			return token, nil
		case errors.Is(err, leasehold.ErrPermanent):
			return fail(err)
		case try == raiseTries:
			return fail(fmt.Errorf("could not be raised in %d tries: %w", try, err))
		}
		// Another request was faster, or this write has landed without a reply. The next read shows
		// which.
		pause := 10 * time.Millisecond << try
		select {
		case <-time.After(pause/2 + rand.N(pause/2)):
		case <-ctx.Done():
			return fail(ctx.Err())
		}
	}
}

// trialTime bounds the two writes that try a store.
const trialTime = 10 * time.Second

// tryStore tries the store's conditions on a mark that was just read or written, once for each
// store, as a lock does on its record. An answer that proves nothing is as good as a refusal, and
// the next call asks again. The end of ctx cuts no write off, because that could land over a higher
// mark.
func (m *StoreMarks) tryStore(ctx context.Context, key, etag string, body []byte) error {
	if m.canary.Known() {
		return nil
	}
	var unsafe error
	var panicked any // of the store
	tried := make(chan struct{})
	go func() {
		defer close(tried)
		defer func() { panicked = recover() }()
		unsafe = m.tryAlone(ctx, key, etag, body)
	}()
	select {
	case <-tried:
		if panicked != nil {
			panic(panicked)
		}
		return unsafe
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m *StoreMarks) tryAlone(ctx context.Context, key, etag string, body []byte) (unsafe error) {
	white := canary.Mark()
	marked := slices.Concat(body, white)
	return m.canary.Try(false, func() error {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), trialTime)
		defer cancel()
		unsafe, _ := m.canary.Run(limited, canary.Trial{
			Write: func(ctx context.Context, over string) error {
				_, err := probe.Put(ctx, m.store, key, marked, over)
				return err
			},
			Pause: func(ctx context.Context) error { return storeapi.Pause(ctx, 10*time.Millisecond) },
			ReadBack: func(ctx context.Context) (same, carriedOut bool, err error) {
				now, err := m.store.Get(ctx, key)
				return now.ETag == etag, bytes.HasSuffix(now.Body, white), err
			},
		})
		return unsafe
	}, func(answered <-chan struct{}) {
		select {
		case <-answered:
		case <-ctx.Done():
		}
	})
}
