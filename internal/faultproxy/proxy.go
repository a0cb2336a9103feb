package faultproxy

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"
)

// Proxy is a reverse proxy with faults. A request that the fault leaves without a reply ends in a closed connection.
type Proxy struct {
	*Transport
	server *httptest.Server
}

// Start runs a proxy on loopback in front of the server at the URL upstream, until the test ends.
// The Host header reaches the server as the client sent it, for AWS signatures cover it.
func Start(tb testing.TB, upstream string, decide func(r *http.Request) Fault) *Proxy {
	tb.Helper()
	target, err := url.Parse(upstream)
	if err != nil {
		tb.Fatal(err)
	}
	// Compression would be a header that the client did not sign.
	base := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64}
	t := &Transport{Base: base, Decide: decide}
	p := &Proxy{Transport: t, server: httptest.NewServer(t.Handler(target))}
	tb.Cleanup(func() {
		p.server.CloseClientConnections() // ends requests that are being held
		p.Close()
		p.server.Close()
		base.CloseIdleConnections()
	})
	return p
}

// Handler is the proxy as a handler, for programs of their own.
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

// URL is what the client uses as its endpoint.
func (p *Proxy) URL() string { return p.server.URL }
