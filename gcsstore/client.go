package gcsstore

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"cloud.google.com/go/storage"
	"google.golang.org/api/option"
	htransport "google.golang.org/api/transport/http"
)

// NewClient is [storage.NewClient] for locks: the client also hears the Date of each reply, so that objects have an Age
// and a candidate that has just started can take over an expired lock at once, where it would otherwise watch it for a
// TTL; and it reads by the JSON API, which tells a missing bucket from a missing object. STORAGE_EMULATOR_HOST is honoured.
// It cannot sign URLs. For mutual TLS or another universe domain give [storage.NewClient] an HTTP client on a [Transport].
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

// Transport returns base, nil meaning [http.DefaultTransport], with a hook by which a [Store] hears the Date of each reply.
// base has to authenticate requests itself. Pass the result to [storage.NewClient] in [option.WithHTTPClient].
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
	if d, ok := r.Context().Value(dateKey{}).(*date); ok && err == nil {
		if t, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
			d.unix.Store(t.Unix())
		}
	}
	return resp, err
}

// CloseIdleConnections is what http.Client looks for, and through it storage.Client.Close.
func (h *hearing) CloseIdleConnections() {
	if c, ok := h.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// date is the Date of the last reply to the requests of one context.
type date struct{ unix atomic.Int64 }

type dateKey struct{}

func withDate(ctx context.Context) (context.Context, *date) {
	d := new(date)
	return context.WithValue(ctx, dateKey{}, d), d
}

// time is zero if none was heard.
func (d *date) time() time.Time {
	unix := d.unix.Load()
	if unix == 0 {
		return time.Time{}
	}
	return time.Unix(unix, 0)
}
