package storehttp

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// Error is an error of a store, with its kind, its cause, and a hint. The fields are
//
//	Doing string // what was being done, such as `reading "a" in bucket "b"`; it begins the text
//	Kind  error  // a sentinel of package leasehold; nil if the error may pass by itself
//	Cause error  // what has happened; never nil
//	Hint  string // what to do about it, or ""; it ends the text, in parentheses
//
// [errors.Is] and [errors.As] see Kind, which is not in the text, and Cause. The method Advice
// returns the hint, for programs that show it separately. If there is no Hint, and there was no
// connection to a server, the text ends with the advice to check the server and the endpoint.
type Error = storeapi.Error

// maxStrange is how many replies must come from something else than the store, and none from the
// store, until the endpoint counts as wrong.
const maxStrange = 3

// Server remembers what a store knows of the server that answers its requests: see the package's
// comment. The zero value is ready to use. A Server is safe for concurrent use. Methods that return
// a kind return it for an [Error]: nil, leasehold.ErrPermanent, or leasehold.ErrUnsent.
type Server struct {
	answered atomic.Bool  // there was an HTTP answer
	genuine  atomic.Bool  // there was one that only the store's own server gives
	strange  atomic.Int32 // number of replies that it never gives
	silent   atomic.Bool  // the last request was not answered in time
}

// Answer notes an HTTP answer, from the store's server or from any other.
func (s *Server) Answer() {
	s.answered.Store(true)
	s.silent.Store(false)
}

// Unanswered notes why a request has got no answer, or only a part of its body.
func (s *Server) Unanswered(err error) {
	if late, ok := errors.AsType[net.Error](err); ok && late.Timeout() {
		s.silent.Store(true)
	}
}

// Silent reports whether the last request was not answered in time. The next request must then say
// "Connection: close", so that net/http uses its connection for no other request.
//
// Over HTTP/2 all requests share one connection. If the connection is broken, net/http sends each
// request over it until the system gives it up, which takes 15 minutes. The request that says
// "Connection: close" may be lost too, but not the request after it. HTTP/1.1 needs no help,
// because there the end of a request without an answer closes the connection.
func (s *Server) Silent() bool { return s.silent.Load() }

// Heard notes an answer that only the store's own server gives.
func (s *Server) Heard() {
	s.Answer()
	s.genuine.Store(true)
}

// Stranger notes a reply that the store's own server never gives, and returns the kind of its
// error. Such a reply says nothing about the object, so the error is temporary, unless the endpoint
// has never given another answer.
func (s *Server) Stranger() (kind error) {
	s.Answer()
	if s.strange.Add(1) >= maxStrange && !s.genuine.Load() {
		return storeapi.ErrPermanent
	}
	return nil
}

// Unheard returns the kind of an error that is final until the store's own server has answered for
// the first time.
func (s *Server) Unheard() (kind error) {
	if s.genuine.Load() {
		return nil
	}
	return storeapi.ErrPermanent
}

// Unsent returns the kind of an error that keeps a request from reaching the server. It is
// permanent before the server's first answer, and temporary after that, because the settings have
// worked once. passes says that the error may be temporary even before the first answer.
func (s *Server) Unsent(passes bool) (kind error) {
	switch {
	case s.answered.Load():
		return nil
	case passes:
		return storeapi.ErrUnsent
	}
	return storeapi.ErrPermanent
}

// CheckPrefix returns an [Error] that matches leasehold.ErrPermanent if a store must not put prefix
// before every key, because servers would read the keys differently from one another. It accepts
// "".
func CheckPrefix(prefix string) error {
	if prefix == "" {
		return nil
	}
	if why := storeapi.BadKey(prefix + "x"); why != "" {
		return &Error{
			Kind: storeapi.ErrPermanent, Cause: fmt.Errorf("key prefix %.80q %s", prefix, why),
			Hint: `use a path such as "locks/"`,
		}
	}
	return nil
}

// HintUnsent returns what to do about an error of the network because of which no request can reach
// the server, and whether the error may be temporary. It returns "" for any other error.
func HintUnsent(err error) (hint string, passes bool) {
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

// Age returns how long ago a version was written, from the two times of one answer, such as its
// Date and Last-Modified, minus slack. It returns 0, which means unknown, if a time is missing, or
// if the difference is too large to be true. HTTP's dates are whole seconds, so slack is at least a
// second.
func Age(now, written time.Time, slack time.Duration) time.Duration {
	if now.IsZero() || written.IsZero() {
		return 0
	}
	return max(storeapi.CredibleAge(now.Sub(written))-slack, 0)
}
