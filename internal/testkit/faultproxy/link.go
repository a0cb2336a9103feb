package faultproxy

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// Link is a TCP connection that can fall silent: what is sent over it arrives nowhere, and no end
// learns of that, as behind a firewall that has forgotten a connection. Connections that are made
// later work. It leads to a server that speaks HTTP/2 over TLS.
type Link struct {
	server   *httptest.Server
	listener net.Listener
	mu       sync.Mutex
	open     map[*relay]bool
	made     int
	ended    sync.WaitGroup
}

// relay is one connection through a link.
type relay struct {
	near, far net.Conn
	mu        sync.Mutex // held while a piece is passed on, and for ever by a silent relay
	silent    bool
}

// StartLink runs a server with handler behind a link on loopback, until the test ends.
func StartLink(tb testing.TB, handler http.Handler) *Link {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	l := &Link{server: httptest.NewUnstartedServer(handler), listener: listener, open: make(map[*relay]bool)}
	l.server.EnableHTTP2 = true
	l.server.StartTLS()
	l.ended.Go(l.accept)
	tb.Cleanup(func() {
		_ = listener.Close()
		l.mu.Lock()
		for r := range l.open {
			_, _ = r.near.Close(), r.far.Close()
		}
		l.mu.Unlock()
		l.ended.Wait()
		l.server.CloseClientConnections()
		l.server.Close()
	})
	return l
}

// StartLinkTo is StartLink in front of the server at the URL upstream. The client's Host header is
// kept, because signatures cover it.
func StartLinkTo(tb testing.TB, upstream string) *Link {
	tb.Helper()
	target, err := url.Parse(upstream)
	if err != nil {
		tb.Fatal(err)
	}
	base := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64}
	tb.Cleanup(base.CloseIdleConnections)
	return StartLink(tb, &httputil.ReverseProxy{Transport: base, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host
	}})
}

// URL is the endpoint for the client.
func (l *Link) URL() string { return "https://" + l.listener.Addr().String() }

// Roots has the certificate of the server.
func (l *Link) Roots() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(l.server.Certificate())
	return pool
}

// CertFile writes the certificate of the server to a file, for the environment variable
// SSL_CERT_FILE.
func (l *Link) CertFile(tb testing.TB) string {
	tb.Helper()
	name := filepath.Join(tb.TempDir(), "link.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: l.server.Certificate().Raw})
	if err := os.WriteFile(name, text, 0o600); err != nil {
		tb.Fatal(err)
	}
	return name
}

// Silence makes all connections silent that are there now, and returns their number.
func (l *Link) Silence() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	for r := range l.open {
		r.mu.Lock()
		r.silent = true
		r.mu.Unlock()
	}
	return len(l.open)
}

// CheckRecovery has all connections fall silent, and fails the test unless a store works again
// after two requests without an answer. request sends one of its requests, which must succeed.
func (l *Link) CheckRecovery(tb testing.TB, request func(context.Context) error) {
	tb.Helper()
	within := func(d time.Duration) error {
		ctx, cancel := context.WithTimeout(tb.Context(), d)
		defer cancel()
		return request(ctx)
	}
	const patience = 10 * time.Second
	if err := within(patience); err != nil {
		tb.Fatal("before the silence: ", err)
	}
	// A request before may have ended while it connected, and the client keeps that connection,
	// too.
	for tries := 1; ; tries++ {
		if l.Silence() == 0 {
			tb.Fatal("the client keeps no connection")
		}
		made := l.Made()
		err := within(100 * time.Millisecond)
		if err != nil && l.Made() == made {
			break
		}
		if tries == 5 {
			tb.Fatalf("the connection has not fallen silent: error %v, %d connections more", err, l.Made()-made)
		}
	}
	// On a machine with time the second of these is answered. On a busy one a request may have
	// ended before it was sent.
	for limit := 100 * time.Millisecond; ; limit *= 2 {
		err := within(limit)
		if err == nil {
			break
		}
		if limit > patience/2 {
			tb.Fatal("requests without an answer have not led to a new connection: ", err)
		}
	}
	_ = within(patience) // the one before has closed its connection
	made := l.Made()
	if err := within(patience); err != nil || l.Made() != made {
		tb.Fatalf("after the silence no connection is kept: error %v, %d connections more", err, l.Made()-made)
	}
}

// Made is the number of connections so far.
func (l *Link) Made() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.made
}

func (l *Link) accept() {
	for {
		near, err := l.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", l.server.Listener.Addr().String())
		if err != nil {
			_ = near.Close()
			continue
		}
		r := &relay{near: near, far: far}
		l.mu.Lock()
		l.open[r] = true
		l.made++
		l.mu.Unlock()
		l.ended.Go(func() {
			var both sync.WaitGroup
			both.Go(func() { r.pass(r.far, r.near) })
			both.Go(func() { r.pass(r.near, r.far) })
			both.Wait()
			_, _ = near.Close(), far.Close()
			l.mu.Lock()
			delete(l.open, r)
			l.mu.Unlock()
		})
	}
}

// pass copies from one end to the other. A silent relay swallows what it reads, also the end.
func (r *relay) pass(to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		r.mu.Lock()
		silent := r.silent
		if !silent {
			_, _ = to.Write(buffer[:n])
		}
		r.mu.Unlock()
		if err == nil {
			continue
		}
		if half, ok := to.(*net.TCPConn); ok && err == io.EOF && !silent {
			_ = half.CloseWrite()
		}
		return
	}
}
