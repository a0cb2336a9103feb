package faultproxy

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"
)

// Proxy is a reverse proxy with faults. If a fault leaves a request without a reply, its connection
// is closed.
type Proxy struct {
	*Transport
	server *httptest.Server
}

// Start runs a proxy on loopback in front of the server at the URL upstream, until the test ends.
// The proxy keeps the client's Host header, because AWS signatures cover it.
func Start(tb testing.TB, upstream string, decide func(r *http.Request) Fault) *Proxy {
	tb.Helper()
	target, err := url.Parse(upstream)
	if err != nil {
		tb.Fatal(err)
	}
	// Otherwise the transport would add an Accept-Encoding header that the client did not sign.
	base := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64}
	t := &Transport{Base: base, Decide: decide}
	p := &Proxy{Transport: t, server: httptest.NewServer(t.Handler(target))}
	tb.Cleanup(func() {
		p.server.CloseClientConnections() // ends delayed requests
		p.Close()
		p.server.Close()
		base.CloseIdleConnections()
	})
	return p
}

// Handler returns the proxy as an http.Handler, for programs that are not tests.
func (t *Transport) Handler(upstream *url.URL) http.Handler {
	return &httputil.ReverseProxy{
		Transport: t,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(upstream)
			r.Out.Host = r.In.Host
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
}

// URL is the endpoint for the client.
func (p *Proxy) URL() string { return p.server.URL }
