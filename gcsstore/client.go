package gcsstore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"cloud.google.com/go/storage"
	"github.com/googleapis/gax-go/v2/callctx"
	"google.golang.org/api/option"
	htransport "google.golang.org/api/transport/http"
)

// NewClient returns a client for locks, with the options of [storage.NewClient]. The client reads
// by the JSON API, which distinguishes a missing bucket from a missing object. Its [Transport]
// shows a [Store] the raw replies, so that the Store can distinguish a proxy's page from a success,
// and [WithServerClock] can read the Date header. NewClient honours STORAGE_EMULATOR_HOST. The
// client cannot sign URLs. For mutual TLS or another universe domain, pass your own HTTP client on
// a [Transport] to [storage.NewClient].
func NewClient(ctx context.Context, opts ...option.ClientOption) (*storage.Client, error) {
	opts = append([]option.ClientOption{option.WithScopes(storage.ScopeReadWrite)}, opts...)
	if os.Getenv("STORAGE_EMULATOR_HOST") != "" {
		opts = append(opts, option.WithoutAuthentication())
	}
	shared, endpoint, err := htransport.NewClient(ctx, opts...)
	if err != nil {
		return nil, fmt.Errorf("gcsstore: %w", err)
	}
	client := *shared // a copy, because shared may be the user's own (option.WithHTTPClient)
	client.Transport = Transport(shared.Transport)
	// The transport has the credentials. Without WithoutAuthentication, storage.NewClient would
	// search the environment again, and wait.
	opts = []option.ClientOption{option.WithHTTPClient(&client), option.WithoutAuthentication(),
		storage.WithJSONReads()}
	if endpoint != "" {
		opts = append(opts, option.WithEndpoint(endpoint))
	}
	c, err := storage.NewClient(ctx, opts...)
	if err != nil {
		return nil, fmt.Errorf("gcsstore: %w", err)
	}
	return c, nil
}

// Transport returns base with a hook that shows each reply to a [Store]. Use it to build your own
// HTTP client instead of [NewClient]: pass a client with this transport to [storage.NewClient] in
// [option.WithHTTPClient]. base must authenticate requests itself. nil means
// [http.DefaultTransport]. The result is safe for concurrent use if base is.
func Transport(base http.RoundTripper) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return &replyRecorder{base}
}

type replyRecorder struct{ base http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (h *replyRecorder) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := h.base.RoundTrip(r)
	if last, ok := r.Context().Value(replyKey{}).(*atomic.Pointer[reply]); ok && err == nil {
		last.Store(&reply{resp.StatusCode, resp.Header, r.Response != nil})
	}
	return resp, err
}

// CloseIdleConnections is called by http.Client, and through it by storage.Client.Close.
func (h *replyRecorder) CloseIdleConnections() {
	if c, ok := h.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// reply is what a Store has to know about an HTTP reply. It is nil if no replyRecorder saw one.
type reply struct {
	status   int
	header   http.Header
	followed bool // net/http followed a redirect to it, perhaps with a GET instead of another method
}

type replyKey struct{}

// hear returns a context for one request, and the place where a replyRecorder stores the last
// reply.
func (s *Store) hear(ctx context.Context) (context.Context, *atomic.Pointer[reply]) {
	if s.server.Silent() {
		ctx = callctx.SetHeaders(ctx, "Connection", "close")
	}
	last := new(atomic.Pointer[reply])
	return context.WithValue(ctx, replyKey{}, last), last
}

// date returns the Date header, or the zero time if there is none.
func (r *reply) date() time.Time {
	if r == nil {
		return time.Time{}
	}
	date, err := http.ParseTime(r.header.Get("Date"))
	if err != nil {
		return time.Time{}
	}
	return date
}

// foreign says why a reply that the client takes for a success does not come from Cloud Storage, or
// returns nil if it may.
func (r *reply) foreign(statuses ...int) error {
	switch {
	case r == nil:
		return nil
	case r.followed:
		return errors.New("the request was redirected")
	case webPage(r.header):
		return errors.New("the answer is a web page")
	case !slices.Contains(statuses, r.status):
		return fmt.Errorf("the answer has status %d", r.status)
	}
	return nil
}

// webPage reports whether an answer is HTML from another server. Cloud Storage itself answers some
// failed downloads with HTML.
func webPage(h http.Header) bool {
	return strings.HasPrefix(h.Get("Content-Type"), "text/html") && h.Get("X-Guploader-Uploadid") == ""
}
