package main_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/testkit/faultproxy"
)

// behind starts a proxy in front of the bucket's server, and returns its endpoint: see proxy. The
// requests are signed anew.
func (b bucket) behind(request func(*http.Request) *http.Response, reply func(*http.Response)) string {
	credentials, err := b.server.Client().Options().Credentials.Retrieve(b.t.Context())
	require.NoError(b.t, err)
	sign := func(r *http.Request) {
		err := v4.NewSigner().SignHTTP(context.Background(), credentials, r, r.Header.Get("X-Amz-Content-Sha256"), "s3",
			b.server.Region, time.Now(),
			func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
		if err != nil {
			panic(err)
		}
	}
	return proxy(b.t, b.server.Endpoint, sign, request, reply)
}

// counted is a way to the bucket's server. sent tells the methods of the requests since it was last
// called.
func (b bucket) counted() (endpoint string, sent func() []string) {
	var mu sync.Mutex
	var methods []string
	proxy := faultproxy.Start(b.t, b.server.Endpoint, func(r *http.Request) faultproxy.Fault {
		mu.Lock()
		defer mu.Unlock()
		methods = append(methods, r.Method)
		return faultproxy.Fault{}
	})
	return proxy.URL(), func() []string {
		mu.Lock()
		defer mu.Unlock()
		last := methods
		methods = nil
		return last
	}
}

// proxy starts a proxy that may change requests, or answer them itself, and may change the server's
// answers.
func proxy(t testing.TB, upstream string, sign func(*http.Request), request func(*http.Request) *http.Response,
	reply func(*http.Response)) string {
	target, err := url.Parse(upstream)
	require.NoError(t, err)
	base := &http.Transport{DisableCompression: true}
	t.Cleanup(base.CloseIdleConnections)
	server := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			if request != nil {
				if own := request(r); own != nil {
					own.Request = r
					return own, nil
				}
			}
			if sign != nil {
				sign(r)
			}
			return base.RoundTrip(r)
		}),
		ModifyResponse: func(r *http.Response) error {
			if reply != nil {
				reply(r)
			}
			return nil
		},
	})
	t.Cleanup(server.Close)
	return server.URL
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// s3Error is an error of S3.
func s3Error(status int, code string) *http.Response {
	return xmlReply(status, "<Error><Code>"+code+"</Code><Message>so the test wants it</Message></Error>")
}

// xmlReply is an answer of S3, with its time, and with the headers of another answer if there are
// any.
func xmlReply(status int, body string, headers ...http.Header) *http.Response {
	h := http.Header{}
	for _, other := range headers {
		h = other.Clone()
	}
	h.Set("Content-Type", "application/xml")
	h.Set("X-Amz-Request-Id", "proxy")
	h.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	h.Del("Content-Length")
	return &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: h,
		Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
	}
}

// caching makes a proxy a cache that never forgets what was read; also that nothing is there, if it
// is given that status.
func caching(statuses ...int) (request func(*http.Request) *http.Response, reply func(*http.Response)) {
	type answer struct {
		status int
		header http.Header
		body   string
	}
	var mu sync.Mutex
	kept := make(map[string]answer)
	return func(r *http.Request) *http.Response {
			mu.Lock()
			defer mu.Unlock()
			if old, ok := kept[r.URL.RequestURI()]; ok && r.Method == http.MethodGet {
				return xmlReply(old.status, old.body, old.header)
			}
			return nil
		}, func(r *http.Response) {
			if r.Request.Method != http.MethodGet || !slices.Contains(append(statuses, http.StatusOK), r.StatusCode) {
				return
			}
			body, _ := io.ReadAll(r.Body) // cut off, it is cut off at the client
			r.Body = io.NopCloser(bytes.NewReader(body))
			mu.Lock()
			defer mu.Unlock()
			kept[r.Request.URL.RequestURI()] = answer{r.StatusCode, r.Header.Clone(), string(body)}
		}
}
