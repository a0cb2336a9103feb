package fakes3

import (
	"net/http"
	"sync"

	"github.com/leasehold-go/leasehold/internal/testkit/faultproxy"
)

// Wire is a client's way to a server in the test's process, with faults and a log of requests in
// between. It is safe for concurrent use.
type Wire struct {
	faultproxy.Transport

	mu     sync.Mutex
	plan   []planned
	always faultproxy.Fault // of the requests that are not planned for
}

// planned is a fault for the next request with that method.
type planned struct {
	method string
	fault  faultproxy.Fault
}

// NewWire returns a way to server without faults.
func NewWire(server http.Handler) *Wire {
	w := &Wire{}
	w.Base = Transport{Handler: server}
	w.Decide = w.next
	return w
}

// Fail plans a fault for the next request with that method, after those that are planned already.
func (w *Wire) Fail(method string, f faultproxy.Fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.plan = append(w.plan, planned{method, f})
}

// FailAlways sets the fault of all requests for which no fault is planned.
func (w *Wire) FailAlways(f faultproxy.Fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.always = f
}

func (w *Wire) next(r *http.Request) faultproxy.Fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.plan) == 0 || w.plan[0].method != r.Method {
		return w.always
	}
	f := w.plan[0].fault
	w.plan = w.plan[1:]
	return f
}

// Methods returns the methods of all requests so far, from the given one on.
func (w *Wire) Methods(from int) []string {
	var m []string
	for _, r := range w.Requests()[from:] {
		m = append(m, r.Method)
	}
	return m
}
