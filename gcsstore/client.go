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
	"google.golang.org/api/option"
	htransport "google.golang.org/api/transport/http"
)

// NewClient is [storage.NewClient] for locks. It reads by the JSON API, which tells a missing bucket from a missing object, and
// its transport shows a [Store] the replies themselves: a proxy's page is told from a success, and [WithServerClock] has a
// Date to go by. STORAGE_EMULATOR_HOST is honoured. The client cannot sign URLs. For mutual TLS or another universe
// domain give [storage.NewClient] an HTTP client on a [Transport].
func NewClient(ctx context.Context, opts ...option.ClientOption) (*storage.Client, error) {
	opts = append([]option.ClientOption{option.WithScopes(storage.ScopeReadWrite)}, opts...)
	if os.Getenv("STORAGE_EMULATOR_HOST") != "" {
		opts = append(opts, option.WithoutAuthentication())
	}
	shared, endpoint, err := htransport.NewClient(ctx, opts...)
	if err != nil {
		return nil, fmt.Errorf("gcsstore: %w", err)
	}
	client := *shared // which may be the user's own, of option.WithHTTPClient
	client.Transport = Transport(shared.Transport)
	// Its transport has the credentials: without this, those of the environment would be looked for again, and waited for.
	opts = []option.ClientOption{option.WithHTTPClient(&client), option.WithoutAuthentication(), storage.WithJSONReads()}
	if endpoint != "" {
		opts = append(opts, option.WithEndpoint(endpoint))
	}
	c, err := storage.NewClient(ctx, opts...)
	if err != nil {
		return nil, fmt.Errorf("gcsstore: %w", err)
	}
	return c, nil
}

// Transport returns base, nil meaning [http.DefaultTransport], with a hook that shows each reply to a [Store], as [NewClient]
// has it. base has to authenticate requests itself. Pass the result to [storage.NewClient] in [option.WithHTTPClient].
func Transport(base http.RoundTripper) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return &hearing{base}
}

type hearing struct{ base http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (h *hearing) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := h.base.RoundTrip(r)
	if last, ok := r.Context().Value(replyKey{}).(*atomic.Pointer[reply]); ok && err == nil {
		last.Store(&reply{resp.StatusCode, resp.Header, r.Response != nil})
	}
	return resp, err
}

// CloseIdleConnections is what http.Client looks for, and through it storage.Client.Close.
func (h *hearing) CloseIdleConnections() {
	if c, ok := h.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// reply is what a Store has to know of an HTTP reply. A nil one was not heard.
type reply struct {
	status   int
	header   http.Header
	followed bool // net/http has followed a redirect to it, as a GET even if the request was none
}

type replyKey struct{}

// hear returns a context for one request, and the last reply to it.
func hear(ctx context.Context) (context.Context, *atomic.Pointer[reply]) {
	last := new(atomic.Pointer[reply])
	return context.WithValue(ctx, replyKey{}, last), last
}

// date is zero if none was heard.
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

// foreign says why what the client takes for a success is not Cloud Storage's; nil if it may be.
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

// webPage reports whether an answer is HTML and not Cloud Storage's, which answers some failed downloads with HTML too.
func webPage(h http.Header) bool {
	return strings.HasPrefix(h.Get("Content-Type"), "text/html") && h.Get("X-Guploader-Uploadid") == ""
}
