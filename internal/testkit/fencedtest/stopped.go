package fencedtest

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/fenced"
)

// StoppedBody checks that a body which stops fails after a minute, and that the store then gives
// its connection up. It runs in a bubble of synctest. open connects a store through a transport
// that wraps the one given to it.
func StoppedBody(t *testing.T, open func(wrap func(http.RoundTripper) http.RoundTripper) *fenced.Store) {
	const key = "data/stopped"
	w := &stopping{}
	s := open(func(base http.RoundTripper) http.RoundTripper {
		w.base = base
		return w
	})
	require.NoError(t, s.Put(t.Context(), 1, key, strings.NewReader("whole")))
	require.False(t, w.closes.Load())
	w.on.Store(true)
	o, err := s.Get(t.Context(), key)
	require.NoError(t, err)
	began := time.Now()
	_, err = io.ReadAll(o.Body)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.ErrorContains(t, err, "nothing came for 1m0s")
	require.Equal(t, time.Minute, time.Since(began))
	require.NoError(t, o.Body.Close())
	synctest.Wait()
	w.on.Store(false)
	require.NoError(t, s.Put(t.Context(), 1, key, strings.NewReader("again")))
	require.True(t, w.closes.Load(), "no request says Connection: close")
}

// stopping is a transport. While it is on, bodies stop before their end.
type stopping struct {
	base   http.RoundTripper
	on     atomic.Bool
	closes atomic.Bool // a request has said "Connection: close"
}

func (s *stopping) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Close || r.Header.Get("Connection") == "close" {
		s.closes.Store(true)
	}
	resp, err := s.base.RoundTrip(r)
	media := !strings.Contains(r.URL.Path, "/storage/v1/") || r.URL.Query().Get("alt") == "media" // of Cloud Storage
	if err == nil && s.on.Load() && r.Method == http.MethodGet && media {
		resp.Body = &stopped{resp.Body, r.Context()}
	}
	return resp, err
}

type stopped struct {
	io.ReadCloser
	ctx context.Context
}

func (b *stopped) Read([]byte) (int, error) {
	<-b.ctx.Done()
	return 0, b.ctx.Err()
}

// Shortened returns a body that has one byte less than its size says. It must be read, not copied.
func Shortened(size int) io.ReadSeeker { return &shortened{bytes.NewReader(make([]byte, size))} }

type shortened struct{ *bytes.Reader }

func (s *shortened) Read(p []byte) (int, error) {
	if s.Len() <= 1 {
		return 0, io.EOF
	}
	return s.Reader.Read(p[:min(len(p), s.Len()-1)])
}

func (s *shortened) WriteTo(io.Writer) (int64, error) { panic("not to be used") }
