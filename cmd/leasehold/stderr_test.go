package main

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/testkit/testlog"
)

// slowReader is a file that nobody reads until read is closed.
type slowReader struct {
	read chan struct{}
	testlog.Buffer
}

func (r *slowReader) Write(line []byte) (int, error) {
	<-r.read
	return r.Buffer.Write(line)
}

// Nobody waits for the reader. What is kept is whole and in order, and what is dropped is told.
func TestErrorLinesThatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &slowReader{read: make(chan struct{})}
		var l *errorLines
		l = newErrorLines(to, func(n int64) { fmt.Fprintf(l, "%d dropped\n", n) })
		defer close(l.queue)
		began := time.Now()
		line := make([]byte, 0, 16)
		for i := range 1000 {
			line = fmt.Appendf(line[:0], "line %d\n", i)
			n, err := l.Write(line)
			require.NoError(t, err)
			require.Equal(t, len(line), n)
			if i == 0 {
				synctest.Wait() // the first line is being written, so the queue is full of the next ones
			}
		}
		require.Zero(t, time.Since(began))
		l.flush()
		require.Equal(t, maxFlush, time.Since(began))

		close(to.read)
		synctest.Wait()
		got := strings.Split(strings.TrimSpace(to.String()), "\n")
		kept := len(got) - 1
		require.Equal(t, 1+maxQueuedLines, kept)
		for i, text := range got[:kept] {
			require.Equal(t, fmt.Sprintf("line %d", i), text)
		}
		require.Equal(t, fmt.Sprintf("%d dropped", 1000-kept), got[kept])
		fmt.Fprintln(l, "more")
		l.flush()
		require.True(t, strings.HasSuffix(to.String(), "dropped\nmore\n"))
	})
}
