package cloud

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// class is what a request costs.
type class int

const (
	read class = iota
	write
	remove
)

// classOf is the class of a request. A list costs as much as a write on all three clouds.
func classOf(r *http.Request) class {
	query := r.URL.Query()
	list := query.Has("list-type") || query.Get("comp") == "list" || strings.HasSuffix(r.URL.Path, "/o")
	switch {
	case r.Method == http.MethodDelete:
		return remove
	case !list && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		return read
	}
	return write
}

// writes reports whether a request writes an object, or begins to.
func writes(r *http.Request) bool { return classOf(r) == write && r.Method != http.MethodGet }

// prices are dollars, as listed in November 2026: for S3 Standard in us-east-1, and for Cloud
// Storage and Azure the higher ones of buckets in several regions. Deletes are free, except on
// Azure, where they cost no more than reads.
type prices struct{ read, write, remove, gigabyte float64 }

var pricesOf = map[string]prices{
	"s3":     {read: 0.0004 / 1000, write: 0.005 / 1000, gigabyte: 0.09},
	"gs":     {read: 0.0004 / 1000, write: 0.01 / 1000, gigabyte: 0.12},
	"azblob": {read: 0.0005 / 1000, write: 0.01 / 1000, remove: 0.0005 / 1000, gigabyte: 0.087},
}

// count is a number of requests of each class, and the bytes of their answers.
type count struct {
	Reads   int64 `json:"reads"`
	Writes  int64 `json:"writes"`
	Deletes int64 `json:"deletes"`
	Bytes   int64 `json:"bytes"`
}

func (c count) dollars(p prices) float64 {
	return float64(c.Reads)*p.read + float64(c.Writes)*p.write + float64(c.Deletes)*p.remove +
		float64(c.Bytes)/1e9*p.gigabyte
}

func (c count) String() string {
	return fmt.Sprintf("%d writes and lists, %d reads, %d deletes", c.Writes, c.Reads, c.Deletes)
}

// bound is what a run never goes beyond. What removes its objects has a share of its own in it.
var bound = count{Reads: 20_000, Writes: 8_000, Deletes: 9_000, Bytes: 40_000_000}

const forRemoval = 200 // of the writes: lists

var errBound = errors.New("the bound of requests is reached")

// meter counts the requests of a run, and stops it at its bound.
type meter struct {
	stop func(error) // is told the reason; may be called more than once

	mu      sync.Mutex
	used    count
	stopped error // nothing is sent any more, except by removers
	flying  int   // requests under way, except by removers
	server  string
	told    func(class) // of a child: tells its parent
}

// stopNow has all later requests fail, except those of removers.
func (m *meter) stopNow(why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped == nil {
		m.stopped = why
	}
}

func (m *meter) why() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stopped
}

func (m *meter) total() count {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}

// add counts a request before it is sent. It refuses one that would go beyond the bound.
func (m *meter) add(c class, removing bool) error {
	m.mu.Lock()
	if m.stopped != nil && !removing {
		defer m.mu.Unlock()
		return m.stopped
	}
	next, limit := m.used, bound
	switch c {
	case read:
		next.Reads++
	case write:
		next.Writes++
	case remove:
		next.Deletes++
	}
	if !removing {
		limit.Writes -= forRemoval
	}
	if next.Reads > limit.Reads || next.Writes > limit.Writes || next.Deletes > limit.Deletes ||
		next.Bytes > limit.Bytes {
		m.mu.Unlock()
		m.stop(errBound)
		return errBound
	}
	m.used = next
	if !removing {
		m.flying++
	}
	if m.told != nil {
		m.told(c)
	}
	m.mu.Unlock()
	return nil
}

// landed waits until the requests that are under way have ended.
func (m *meter) landed(within time.Duration) {
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		m.mu.Lock()
		flying := m.flying
		m.mu.Unlock()
		if flying == 0 {
			return
		}
	}
}

// through counts the requests of a client. Those of a remover are sent after the end, too.
func (m *meter) through(base http.RoundTripper, removing bool) http.RoundTripper {
	return metered{m, base, removing}
}

type metered struct {
	m        *meter
	base     http.RoundTripper
	removing bool
}

func (t metered) RoundTrip(r *http.Request) (*http.Response, error) {
	m := t.m
	if err := m.add(classOf(r), t.removing); err != nil {
		return nil, err
	}
	resp, err := t.base.RoundTrip(r)
	m.mu.Lock()
	defer m.mu.Unlock()
	if !t.removing {
		m.flying--
	}
	if err == nil {
		m.used.Bytes += max(resp.ContentLength, 0)
		if name := resp.Header.Get("Server"); name != "" {
			m.server = name
		}
	}
	return resp, err
}

// twice sends each write that it is told to a second time, as a proxy does that has not seen the
// first answer, and hands out the second answer.
type twice struct {
	base http.RoundTripper
	next atomic.Bool // the next write is sent twice
}

func (t *twice) RoundTrip(r *http.Request) (*http.Response, error) {
	if !writes(r) || !t.next.CompareAndSwap(true, false) {
		return t.base.RoundTrip(r)
	}
	body, err := io.ReadAll(r.Body)
	_ = r.Body.Close()
	if err != nil {
		return nil, err
	}
	first, again := r.Clone(r.Context()), r.Clone(r.Context())
	first.Body, again.Body = io.NopCloser(bytes.NewReader(body)), io.NopCloser(bytes.NewReader(body))
	resp, err := t.base.RoundTrip(first)
	if err != nil {
		return nil, err
	}
	_ = resp.Body.Close()
	return t.base.RoundTrip(again)
}
