package storeapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

const (
	drainSize = 256 << 10 // bytes that Close reads so that the connection can be used again
	drainTime = 100 * time.Millisecond
)

// errIdle ends the context of a request that gets no data.
var errIdle = errors.New("time limit of an answer")

// Body is the body of an answer. A Read fails after a time limit without data, and at the end of a
// body that does not have its size. It is not safe for concurrent use, except Close.
type Body struct {
	Size int64 // that the body must have, in bytes; -1: unknown

	server *Server
	doing  string
	ctx    context.Context // of the request
	cancel context.CancelCauseFunc
	idle   *time.Timer // cancels ctx
	limit  time.Duration

	mu  sync.Mutex // guards what follows, and the use of idle after OpenBody
	raw io.ReadCloser
	got int64
}

// OpenBody sends a request with open, and returns the body of the answer with an unknown size.
// limit is the time until the answer, and then the time of each Read. doing begins the text of
// errors.
func (s *Server) OpenBody(ctx context.Context, doing string, limit time.Duration,
	open func(context.Context) (io.ReadCloser, error)) (*Body, error) {
	b := &Body{Size: -1, server: s, doing: doing, limit: limit}
	b.ctx, b.cancel = context.WithCancelCause(ctx)
	b.idle = time.AfterFunc(limit, func() { b.cancel(errIdle) })
	raw, err := open(b.ctx)
	if !b.idle.Stop() && context.Cause(b.ctx) == errIdle {
		if err == nil {
			_ = raw.Close()
		}
		return nil, b.stalled("no answer")
	}
	if err != nil {
		b.cancel(nil)
		return nil, err
	}
	b.raw = raw
	return b, nil
}

func (b *Body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.idle.Reset(b.limit)
	n, err := b.raw.Read(p)
	b.idle.Stop()
	b.got += int64(n)
	switch {
	case err == nil, err == io.EOF && (b.Size < 0 || b.got == b.Size):
		return n, err
	case err == io.EOF:
		err = fmt.Errorf("the body has %d bytes, not %d: %w", b.got, b.Size, io.ErrUnexpectedEOF)
	case context.Cause(b.ctx) == errIdle:
		return n, b.stalled("nothing came")
	}
	return n, &Error{Doing: b.doing, Cause: err}
}

func (b *Body) stalled(what string) error {
	b.server.Unanswered(os.ErrDeadlineExceeded)
	return &Error{Doing: b.doing, Kind: os.ErrDeadlineExceeded, Cause: fmt.Errorf("%s for %v", what, b.limit)}
}

// Close reads a small rest of the body, so that the connection can be used again. It interrupts a
// Read that is under way.
func (b *Body) Close() error {
	if !b.mu.TryLock() { // the raw body is not safe for concurrent use
		b.cancel(nil)
		b.mu.Lock()
		defer b.mu.Unlock()
		_ = b.raw.Close() // may fail because of the interruption
		return nil
	}
	defer b.mu.Unlock()
	if b.Size < 0 || b.Size-b.got <= drainSize {
		b.idle.Reset(drainTime)
		_, _ = io.CopyN(io.Discard, b.raw, drainSize)
		b.idle.Stop()
	}
	err := b.raw.Close()
	b.cancel(nil)
	return err
}
