// Package faultproxy injects faults between an HTTP client and a server, request by request:
// delays, refusals, error replies, writes that are applied although their reply is lost, and writes
// that are applied after the client has given up.
//
// [Transport] injects them inside the client and needs no socket, so it works in a testing/synctest
// bubble. [Proxy] injects them on the network, for any client.
package faultproxy

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/leasehold-go/leasehold/internal/clock"
)

// Kind is what happens to a request.
type Kind int

const (
	// Pass forwards the request and its reply.
	Pass Kind = iota
	// Refuse fails the request without forwarding it: connection refused. A proxy closes the
	// connection.
	Refuse
	// Answer replies with Status and an S3 error body without forwarding.
	Answer
	// DropReply forwards the request, waits for the server's reply and drops it: the client gets
	// io.EOF. If a connection is closed without a reply, net/http itself repeats a GET, but never a
	// PUT.
	DropReply
	// AnswerAfter forwards the request, waits for the server's reply and replies with Status
	// instead.
	AnswerAfter
	// Ghost forwards the request once Before has passed, even if the client no longer waits for it.
	// The client gets its context's error, or a timeout after the server has replied.
	Ghost
)

// Fault is what happens to one request. The zero value passes it on.
type Fault struct {
	Kind   Kind
	Before time.Duration // wait before forwarding or answering
	After  time.Duration // wait after the server's reply, before the client gets it or loses it
	Status int           // of Answer and AnswerAfter; default 500
	Code   string        // S3 error code of Answer and AnswerAfter; default: the usual one for Status
}

// Request is the record of one request.
type Request struct {
	Method, Path         string
	IfMatch, IfNoneMatch string
	Fault                Fault
	Status               int // of the reply to the client; 0: none, or not yet
	Applied              int // status of the server's reply; 0: not forwarded, or not yet
}

// Transport is an http.RoundTripper that applies to each request the fault that Decide returns. It
// is safe for concurrent use. Requests are read into memory first, so Decide may read the body.
type Transport struct {
	Base   http.RoundTripper           // nil: http.DefaultTransport
	Decide func(r *http.Request) Fault // nil: no faults

	once     sync.Once
	mu       sync.Mutex
	requests []*Request
	behind   int           // requests in forward, with or without their client
	landed   *sync.Cond    // broadcast when behind goes down
	stop     chan struct{} // closed: delayed requests are dropped
	stopped  bool
}

// init runs on first use, so that the zero value is ready and the channel belongs to the synctest
// bubble that uses it.
func (t *Transport) init() {
	t.once.Do(func() {
		t.landed = sync.NewCond(&t.mu)
		t.stop = make(chan struct{})
	})
}

// Requests returns the records of all requests, in order of arrival.
func (t *Transport) Requests() []Request {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]Request, len(t.requests))
	for i, r := range t.requests {
		all[i] = *r
	}
	return all
}

// Count returns the number of requests with one of the methods, or of all requests if no method is
// given.
func (t *Transport) Count(methods ...string) int {
	n := 0
	for _, r := range t.Requests() {
		if len(methods) == 0 || slices.Contains(methods, r.Method) {
			n++
		}
	}
	return n
}

// Wait returns when every forwarded request that can outlive its client has been answered.
// A test in a synctest bubble must call it before it ends.
func (t *Transport) Wait() {
	t.init()
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.behind > 0 {
		t.landed.Wait()
	}
}

// Close drops the ghosts that are still delayed and waits for the others. Delayed ghosts of later
// requests are dropped as well.
func (t *Transport) Close() {
	t.init()
	t.mu.Lock()
	if !t.stopped {
		t.stopped = true
		close(t.stop)
	}
	t.mu.Unlock()
	t.Wait()
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		body, err = io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil {
			return nil, err
		}
	}
	var fault Fault
	if t.Decide != nil {
		fault = t.Decide(replay(r.Context(), r, body))
	}
	entry := &Request{
		Method: r.Method, Path: r.URL.Path, Fault: fault,
		IfMatch: r.Header.Get("If-Match"), IfNoneMatch: r.Header.Get("If-None-Match"),
	}
	t.mu.Lock()
	t.requests = append(t.requests, entry)
	t.mu.Unlock()

	resp, err := t.apply(r, body, fault, entry)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	entry.Status = resp.StatusCode
	t.mu.Unlock()
	return resp, nil
}

func (t *Transport) apply(r *http.Request, body []byte, f Fault, entry *Request) (*http.Response, error) {
	ctx := r.Context()
	if f.Kind == Ghost {
		landed := t.forward(r, body, f.Before, entry)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-landed:
			return nil, &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}
		}
	}
	if err := sleep(ctx, f.Before); err != nil {
		return nil, err
	}
	switch {
	case f.Kind == Refuse:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	case f.Kind == Answer:
		return answer(r, f), nil
	case f.Kind == Pass && f.After == 0: // untouched, as without this transport
		resp, err := t.base().RoundTrip(replay(ctx, r, body))
		t.applied(entry, resp)
		return resp, err
	}

	// The fault concerns the reply, so the request must be applied even if the client gives up.
	var got reply
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case got = <-t.forward(r, body, 0, entry):
	}
	if err := sleep(ctx, f.After); err != nil {
		return nil, err
	}
	switch {
	case got.err != nil:
		return nil, got.err
	case f.Kind == DropReply:
		return nil, io.EOF
	case f.Kind == AnswerAfter:
		return answer(r, f), nil
	default:
		return got.resp, nil
	}
}

type reply struct {
	resp *http.Response // with its body in memory
	err  error
}

// forward sends the request after a delay, independent of its client's context.
func (t *Transport) forward(r *http.Request, body []byte, after time.Duration, entry *Request) <-chan reply {
	t.init()
	t.mu.Lock()
	t.behind++
	t.mu.Unlock()
	done := make(chan reply, 1)
	go func() {
		defer func() {
			t.mu.Lock()
			t.behind--
			t.mu.Unlock()
			t.landed.Broadcast()
		}()
		if after > 0 {
			timer := time.NewTimer(after)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-t.stop:
				done <- reply{err: net.ErrClosed}
				return
			}
		}
		resp, err := t.base().RoundTrip(replay(context.WithoutCancel(r.Context()), r, body))
		if err != nil {
			done <- reply{err: err}
			return
		}
		content, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		t.applied(entry, resp)
		resp.Body, resp.Request = io.NopCloser(bytes.NewReader(content)), r
		done <- reply{resp, err}
	}()
	return done
}

func (t *Transport) base() http.RoundTripper {
	if t.Base == nil {
		return http.DefaultTransport
	}
	return t.Base
}

func (t *Transport) applied(entry *Request, resp *http.Response) {
	if resp == nil {
		return
	}
	t.mu.Lock()
	entry.Applied = resp.StatusCode
	t.mu.Unlock()
}

// replay copies a request, with the body that has been read from it.
func replay(ctx context.Context, r *http.Request, body []byte) *http.Request {
	c := r.Clone(ctx)
	if c.Body != nil && c.Body != http.NoBody {
		c.Body = io.NopCloser(bytes.NewReader(body))
		c.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	}
	return c
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	return clock.System.Sleep(ctx, d)
}

var codes = map[int]string{
	http.StatusForbidden:           "AccessDenied",
	http.StatusNotFound:            "NoSuchKey",
	http.StatusConflict:            "ConditionalRequestConflict",
	http.StatusPreconditionFailed:  "PreconditionFailed",
	http.StatusNotImplemented:      "NotImplemented",
	http.StatusServiceUnavailable:  "SlowDown",
	http.StatusInternalServerError: "InternalError",
}

func answer(r *http.Request, f Fault) *http.Response {
	status := cmp.Or(f.Status, http.StatusInternalServerError)
	code := cmp.Or(f.Code, codes[status], "InternalError")
	body := fmt.Sprintf(`<?xml version="1.0" encoding="UTF-8"?>`+"\n"+
		`<Error><Code>%s</Code><Message>injected fault</Message><RequestId>faultproxy</RequestId></Error>`, code)
	if r.Method == http.MethodHead {
		body = ""
	}
	return &http.Response{
		Status:     fmt.Sprintf("%d %s", status, http.StatusText(status)),
		StatusCode: status,
		Proto:      "HTTP/1.1",
		ProtoMajor: 1,
		ProtoMinor: 1,
		Header: http.Header{
			"Content-Type": {"application/xml"},
			"Date":         {time.Now().UTC().Format(http.TimeFormat)},
		},
		Body:          io.NopCloser(strings.NewReader(body)),
		ContentLength: int64(len(body)),
		Request:       r,
	}
}
