// Package faultproxy puts faults between an HTTP client and a server, request by request: delays, refusals, error
// answers, writes that are applied although the reply is lost, and writes that land after the client gave up.
//
// [Transport] does it inside the client and needs no socket, so that it works in a testing/synctest bubble;
// [Proxy] does it on the network for clients of any kind.
package faultproxy

import (
	"bytes"
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
)

// Kind is what happens to a request.
type Kind int

const (
	// Pass forwards the request and its reply.
	Pass Kind = iota
	// Refuse fails the request without forwarding it: connection refused. A proxy closes the connection.
	Refuse
	// Answer replies with Status and an S3 error body without forwarding.
	Answer
	// DropReply forwards the request, waits until the server has answered and loses the answer: io.EOF.
	// Note that net/http itself repeats a GET, but never a PUT, whose connection was closed without a reply.
	DropReply
	// AnswerAfter forwards the request, waits until the server has answered and replies with Status instead.
	AnswerAfter
	// Ghost forwards the request after the time Before has passed, whether or not the client still waits for it.
	// The client gets its context's error, or a time-out once the ghost has landed.
	Ghost
)

// Fault is what happens to one request. The zero value passes it on.
type Fault struct {
	Kind   Kind
	Before time.Duration // wait before forwarding or answering
	After  time.Duration // wait between the server's reply and the client's, or its loss
	Status int           // of Answer and AnswerAfter; default 500
	Code   string        // S3 error code of Answer and AnswerAfter; default: the usual one for Status
}

// Request is what is remembered of a request.
type Request struct {
	Method, Path         string
	IfMatch, IfNoneMatch string
	Fault                Fault
	Status               int // what the client was told; 0: nothing, or nothing yet
	Applied              int // what the server answered; 0: not forwarded, or not yet
}

// Transport is an http.RoundTripper that treats each request as Decide says. It may be used concurrently.
// Requests are read into memory first, so Decide may look at the body.
type Transport struct {
	Base   http.RoundTripper           // nil: http.DefaultTransport
	Decide func(r *http.Request) Fault // nil: all pass

	once     sync.Once
	mu       sync.Mutex
	requests []*Request
	behind   int           // requests that go on without their client
	landed   *sync.Cond    // broadcast when one has landed
	stop     chan struct{} // closed: ghosts that have not landed never will
	stopped  bool
}

// init happens on first use: the zero value is ready, and channels belong to the synctest bubble that makes them.
func (t *Transport) init() {
	t.once.Do(func() {
		t.landed = sync.NewCond(&t.mu)
		t.stop = make(chan struct{})
	})
}

// Requests returns what is remembered, in order of arrival.
func (t *Transport) Requests() []Request {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]Request, len(t.requests))
	for i, r := range t.requests {
		all[i] = *r
	}
	return all
}

// Count is the number of requests with one of the methods, or of all if none is given.
func (t *Transport) Count(methods ...string) int {
	n := 0
	for _, r := range t.Requests() {
		if len(methods) == 0 || slices.Contains(methods, r.Method) {
			n++
		}
	}
	return n
}

// Wait returns when everything that goes on without its client, ghosts above all, has landed.
// A test in a synctest bubble calls it before it ends.
func (t *Transport) Wait() {
	t.init()
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.behind > 0 {
		t.landed.Wait()
	}
}

// Close drops the ghosts that have not landed yet and waits for the rest. Requests after that create no ghosts.
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
	case f.Kind == Pass && f.After == 0: // as if we were not there
		resp, err := t.base().RoundTrip(replay(ctx, r, body))
		t.applied(entry, resp)
		return resp, err
	}

	// The fault is about the reply, so the request is applied for certain: not even a client that leaves stops it.
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

// forward sends the request after a delay, detached from its client.
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

// replay copies a request whose body has been read.
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
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
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
	status, code := f.Status, f.Code
	if status == 0 {
		status = http.StatusInternalServerError
	}
	if code == "" {
		code = codes[status]
	}
	if code == "" {
		code = "InternalError"
	}
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
