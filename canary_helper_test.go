package leasehold_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/fakes3"
	"github.com/leasehold-go/leasehold/internal/testkit/faultproxy"
)

// noVersion is the ETag of the update that must be refused.
const noVersion = `"0123456789abcdef0123456789abcdef"`

// tries returns how often the update and the create were sent that must be refused. A lock's own
// create carries other bytes, so the tests of this file take a lock that exists.
func tries(w *wire) (updates, creates int) {
	for _, r := range w.Requests() {
		switch {
		case r.IfMatch == noVersion:
			updates++
		case r.IfNoneMatch == "*":
			creates++
		}
	}
	return updates, creates
}

func requireTries(t *testing.T, w *wire, updates, creates int, why ...any) {
	t.Helper()
	u, c := tries(w)
	require.Equal(t, []int{updates, creates}, []int{u, c}, why...)
}

// isTrial tells the two writes from others, of a lock that exists.
func isTrial(r *http.Request) bool {
	return r.Header.Get("If-Match") == noVersion || r.Header.Get("If-None-Match") == "*"
}

var conflict = faultproxy.Fault{Kind: faultproxy.Answer, Status: 409, Code: "ConditionalRequestConflict"}

// failTrials gives f to so many of the updates and of the creates that must be refused.
func failTrials(w *wire, updates, creates int, f faultproxy.Fault) {
	var updated, created atomic.Int32
	w.Decide = func(r *http.Request) faultproxy.Fault {
		if r.Header.Get("If-Match") == noVersion && int(updated.Add(1)) <= updates ||
			r.Header.Get("If-None-Match") == "*" && int(created.Add(1)) <= creates {
			return f
		}
		return faultproxy.Fault{}
	}
}

// recordBodies has w note what is written from now on.
func recordBodies(w *wire) (written func() [][]byte) {
	var mu sync.Mutex
	var bodies [][]byte
	decide := w.Decide
	w.Decide = func(r *http.Request) (f faultproxy.Fault) {
		if r.Method == http.MethodPut {
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			mu.Lock()
			bodies = append(bodies, body)
			mu.Unlock()
		}
		if decide != nil {
			f = decide(r)
		}
		return f
	}
	return func() [][]byte {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(bodies)
	}
}

// acquisitions are the ways to a lock, which must not be got.
var acquisitions = map[string]func(ctx context.Context, t *testing.T, l *leasehold.Lock) error{
	"TryAcquire": func(ctx context.Context, _ *testing.T, l *leasehold.Lock) error {
		_, err := l.TryAcquire(ctx)
		return err
	},
	"Acquire": func(ctx context.Context, _ *testing.T, l *leasehold.Lock) error {
		_, err := l.Acquire(ctx)
		return err
	},
	"Do": func(ctx context.Context, t *testing.T, l *leasehold.Lock) error {
		return l.Do(ctx, func(context.Context, *leasehold.Lease) error { t.Error("it runs"); return nil })
	},
	"Run": func(ctx context.Context, t *testing.T, l *leasehold.Lock) error {
		e, err := leasehold.NewElector(l, leasehold.Callbacks{
			OnStartedLeading: func(context.Context, *leasehold.Lease) { t.Error("it leads") },
		})
		if err != nil {
			return err
		}
		return e.Run(ctx)
	},
}

// released is a lock object that is free.
const released = `{"expires_at":0,"token":7,"ttl":15,"nonce":"x","holder":"before"}`

func newServer() *fakes3.Server {
	s := &fakes3.Server{}
	s.Put(key, []byte(released))
	return s
}

// ignoring is a server that ignores some conditions of writes.
func ignoring(s *fakes3.Server, conditions ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			for _, c := range conditions {
				r.Header.Del(c)
			}
		}
		s.ServeHTTP(w, r)
	})
}

// afterwards is a server that ignores conditions, behind a proxy that evaluates them, on what the
// server has answered or on what was there before, when the write has been carried out.
func afterwards(s *fakes3.Server, before bool) http.Handler {
	var mu sync.Mutex
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ifMatch, ifNoneMatch := r.Header.Get("If-Match"), r.Header.Get("If-None-Match")
		if r.Method != http.MethodPut || ifMatch+ifNoneMatch == "" {
			s.ServeHTTP(w, r)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		answer := httptest.NewRecorder()
		s.ServeHTTP(answer, httptest.NewRequest(http.MethodHead, r.URL.Path, http.NoBody))
		old := answer.Header().Get("ETag")
		r.Header.Del("If-Match")
		r.Header.Del("If-None-Match")
		answer = httptest.NewRecorder()
		s.ServeHTTP(answer, r)
		if !before {
			old = answer.Header().Get("ETag")
		}
		if ifMatch != "" && ifMatch != old || ifNoneMatch != "" && old != "" {
			w.WriteHeader(http.StatusPreconditionFailed)
			_, _ = io.WriteString(w, fakes3.Error("PreconditionFailed",
				"evaluated when the write had been carried out"))
			return
		}
		w.Header().Set("ETag", answer.Header().Get("ETag"))
	})
}

type discard struct{ h http.Header }

func (d *discard) Header() http.Header {
	if d.h == nil {
		d.h = http.Header{}
	}
	return d.h
}
func (*discard) Write(p []byte) (int, error) { return len(p), nil }
func (*discard) WriteHeader(int)             {}

// far is a round trip of all tests of who waits that have one.
const far = 50 * time.Millisecond

func farWire(server http.Handler) *wire {
	w := newWire(server)
	w.Decide = func(*http.Request) faultproxy.Fault { return faultproxy.Fault{Before: far / 2, After: far / 2} }
	return w
}

// held is a server with a lock that is held for the test, by a process that knows the store.
func held(t *testing.T, server *fakes3.Server, opts ...leasehold.Option) (*leasehold.Lock, *leasehold.Lease) {
	lock := newLock(t, newWire(server).store, opts...)
	lease, err := lock.Acquire(t.Context())
	require.NoError(t, err)
	return lock, lease
}
