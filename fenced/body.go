package fenced

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/internal/storeapi"
)

const (
	patience  = time.Minute // for the answer to Backend.Get, and for each Read of the body
	drainSize = 256 << 10   // bytes that Close reads so that the connection can be used again
	drainTime = 100 * time.Millisecond
)

// errIdle ends the context of a Backend.Get that gets no data.
var errIdle = fmt.Errorf("time limit of an answer: %w", os.ErrDeadlineExceeded)

// limitedBody is the body of an object. A Read fails after a time limit without data, and at the
// end of a body that does not have its size. It is not safe for concurrent use, except Close.
type limitedBody struct {
	key    string
	size   int64           // that the body must have, in bytes; -1: unknown
	ctx    context.Context // of the backend
	cancel context.CancelCauseFunc
	idle   *time.Timer // cancels ctx

	mu  sync.Mutex // guards what follows, and the use of idle after open
	raw io.ReadCloser
	got int64
}

// open calls Get of the backend, under a time limit.
func (s *Store) open(ctx context.Context, key string) (Version, *limitedBody, error) {
	b := &limitedBody{key: key}
	b.ctx, b.cancel = context.WithCancelCause(ctx)
	b.idle = time.AfterFunc(patience, func() { b.cancel(errIdle) })
	v, raw, err := s.backend.Get(b.ctx, key)
	if !b.idle.Stop() && errors.Is(context.Cause(b.ctx), errIdle) {
		if err == nil {
			_ = raw.Close()
		}
		return Version{}, nil, b.stalled("no answer")
	}
	if err != nil {
		b.cancel(nil)
		return Version{}, nil, err
	}
	b.raw, b.size = raw, v.Size
	return v, b, nil
}

func (b *limitedBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.idle.Reset(patience)
	n, err := b.raw.Read(p)
	b.idle.Stop()
	b.got += int64(n)
	switch {
	case err == nil, err == io.EOF && (b.size < 0 || b.got == b.size):
		return n, err
	case err == io.EOF:
		err = fmt.Errorf("the body has %d bytes, not %d: %w", b.got, b.size, io.ErrUnexpectedEOF)
	case errors.Is(context.Cause(b.ctx), errIdle):
		return n, b.stalled("nothing came")
	}
	return n, &storeapi.Error{Doing: b.doing(), Cause: err}
}

func (b *limitedBody) doing() string { return fmt.Sprintf("reading %q", b.key) }

func (b *limitedBody) stalled(what string) error {
	return &storeapi.Error{
		Doing: b.doing(), Kind: os.ErrDeadlineExceeded, Cause: fmt.Errorf("%s for %v", what, patience),
	}
}

// Close reads the rest of the body if it is short, so that the connection can be used again. It
// interrupts a Read that is under way.
func (b *limitedBody) Close() error {
	if !b.mu.TryLock() { // the raw body is not safe for concurrent use
		b.cancel(nil)
		b.mu.Lock()
		defer b.mu.Unlock()
		_ = b.raw.Close() // may fail because of the interruption
		return nil
	}
	defer b.mu.Unlock()
	if b.size < 0 || b.size-b.got <= drainSize {
		late := time.AfterFunc(drainTime, func() { b.cancel(nil) })
		_, _ = io.CopyN(io.Discard, b.raw, drainSize)
		late.Stop()
	}
	err := b.raw.Close()
	if b.ctx.Err() != nil { // which the last Read has reported
		err = nil
	}
	b.cancel(nil)
	return err
}
