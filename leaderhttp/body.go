package leaderhttp

import (
	"io"
	"net/http"
	"sync"
	"sync/atomic"
)

const maxKept = 64 << 10 // bytes of a body that are kept, so that it can be sent again

// keptBody is the body of a request that may be sent more than once. What was read of it is kept,
// if it is small and its length is known. It is not read ahead, so it may be a stream.
type keptBody struct {
	source  io.Reader
	small   bool
	empty   bool
	touched atomic.Bool

	mu   sync.Mutex // guards what follows, of a small one. A Read of source is under it.
	read []byte
	err  error // of source, after what was read
}

func keep(r *http.Request) *keptBody {
	n := r.ContentLength
	b := &keptBody{source: r.Body, small: 0 < n && n <= maxKept, empty: n == 0}
	if r.Body == nil { // of a handler in front of this one
		b.source = http.NoBody
	}
	return b
}

// spoilt reports whether some of the body was read that is not kept. Close its readers first.
func (b *keptBody) spoilt() bool { return !b.small && !b.empty && b.touched.Load() }

// reader returns the body from its beginning. If it is not small, only one reader may be used.
func (b *keptBody) reader() io.ReadCloser { return &bodyReader{of: b} }

// bodyReader is a body for one try to send it. The server closes the body itself.
type bodyReader struct {
	of     *keptBody
	at     int
	closed atomic.Bool
}

func (r *bodyReader) Read(p []byte) (int, error) {
	b := r.of
	b.touched.Store(true) // before it looks at closed, so that no reader takes what seems untouched
	if r.closed.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	if !b.small {
		return b.source.Read(p)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.at == len(b.read) && b.err == nil {
		n, err := b.source.Read(p)
		b.read, b.err = append(b.read, p[:n]...), err
	}
	n := copy(p, b.read[r.at:])
	if r.at += n; r.at == len(b.read) {
		return n, b.err
	}
	return n, nil
}

func (r *bodyReader) Close() error {
	r.closed.Store(true)
	return nil
}
