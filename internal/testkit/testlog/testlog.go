// Package testlog keeps what the code under test writes, for a test that reads it as it grows.
package testlog

import (
	"bytes"
	"io"
	"log/slog"
	"sync"
	"testing"
)

// Buffer is what was written to it. Its methods are safe for concurrent use.
type Buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write appends to the buffer.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String returns all that was written.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Take returns all that was written since the last Take.
func (b *Buffer) Take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.text.Reset()
	return b.text.String()
}

// Writer is a function that is an io.Writer.
type Writer func(p []byte) (int, error)

// Write calls the function.
func (w Writer) Write(p []byte) (int, error) { return w(p) }

// Default makes slog.Default write to w until the end of the test.
func Default(t *testing.T, w io.Writer) {
	before := slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	slog.SetDefault(slog.New(slog.NewTextHandler(w, nil)))
}
