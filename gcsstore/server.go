package gcsstore

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold"
)

// storeError is an error of a Store: what it was doing, the cause, and what to do about it. It
// matches its kind, which is a sentinel that is not printed, and its cause.
type storeError struct {
	doing string
	kind  error // nil: it may pass by itself
	cause error
	hint  string
}

func (e *storeError) Error() string {
	text := e.cause.Error()
	if e.doing != "" {
		text = e.doing + ": " + text
	}
	if e.hint != "" {
		text += " (" + e.hint + ")"
	}
	return text
}

// Advice returns the hint, for a program that shows it apart from the error, or "".
func (e *storeError) Advice() string { return e.hint }

func (e *storeError) Unwrap() []error {
	if e.kind == nil {
		return []error{e.cause}
	}
	return []error{e.kind, e.cause}
}

// server is what a Store knows of the server that answers its requests. The zero value is ready. It
// is safe for concurrent use.
type server struct {
	answered atomic.Bool  // there was an HTTP answer
	genuine  atomic.Bool  // there was one that only Cloud Storage gives
	strange  atomic.Int32 // number of replies that it never gives
	late     atomic.Bool  // the last request was not answered in time
}

// answer notes an HTTP answer, whoever gave it.
func (s *server) answer() {
	s.answered.Store(true)
	s.late.Store(false)
}

// heard notes an answer that only Cloud Storage gives.
func (s *server) heard() {
	s.answer()
	s.genuine.Store(true)
}

// unanswered notes why a request got no answer, or only a part of its body.
func (s *server) unanswered(err error) {
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		s.late.Store(true)
	}
}

// silent reports whether the next request must say "Connection: close", because the last one was
// not answered in time. Over HTTP/2 all requests share one connection. If it is dead, net/http
// sends each request over it until the system gives it up, which takes 15 minutes. The request
// after the one that says so gets a new connection.
func (s *server) silent() bool { return s.late.Load() }

// stranger notes a reply that Cloud Storage never gives, and returns the kind of its error. The
// reply says nothing about the object, so the error is temporary, unless the endpoint has given
// three such replies and no other.
func (s *server) stranger() (kind error) {
	s.answer()
	if s.strange.Add(1) >= 3 && !s.genuine.Load() {
		return leasehold.ErrPermanent
	}
	return nil
}

// unsent returns the kind of an error that keeps a request from reaching the server. Once the
// server has answered, the error is temporary, because the settings have worked. passes says that
// it may pass even before.
func (s *server) unsent(passes bool) (kind error) {
	switch {
	case s.answered.Load():
		return nil
	case passes:
		return leasehold.ErrUnsent
	}
	return leasehold.ErrPermanent
}

// hintUnsent returns advice about a network error that keeps every request from the server, and
// whether it may pass. The hint is "" for any other error.
func hintUnsent(err error) (hint string, passes bool) {
	dns, isDNS := errors.AsType[*net.DNSError](err)
	addr, isAddr := errors.AsType[*net.AddrError](err)
	switch {
	case isDNS && dns.IsNotFound:
		return fmt.Sprintf("the host %q is unknown: check the endpoint", dns.Name), true
	case isAddr:
		return fmt.Sprintf("%q is not an address: check the endpoint", addr.Addr), false
	case errors.Is(err, http.ErrSchemeMismatch):
		return "this port speaks http, not https: correct the endpoint's scheme or port", false
	case strings.Contains(err.Error(), "unsupported protocol scheme"):
		return "the endpoint must begin with http:// or https://", false
	}
	return "", false
}

// age returns how old a version is at least, by the two times of one answer. It returns 0, which
// means unknown, if a time is missing or the two are too far apart to be true.
func age(now, written time.Time, slack time.Duration) time.Duration {
	const credible = 10 * 365 * 24 * time.Hour
	apart := now.Sub(written)
	if now.IsZero() || written.IsZero() || apart < slack || apart > credible {
		return 0
	}
	return apart - slack
}
