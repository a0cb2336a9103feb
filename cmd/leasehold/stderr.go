package main

import (
	"bytes"
	"io"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/exit"
)

// errorLines writes lines to standard error for goroutines that must not wait for a reader. A pager
// that is stopped, or a pipe that is full, would hold up renewals otherwise, and the guard would
// end the command. One goroutine writes. Lines that come while its queue is full are dropped.
type errorLines struct {
	to      io.Writer
	queue   chan queuedLine
	dropped atomic.Int64 // since report was called last
	report  func(lines int64)
}

// queuedLine is a line, a status, or a channel to close when all lines before it have been written.
type queuedLine struct {
	text    []byte
	status  bool
	written chan struct{}
}

// A status neither wraps nor ends its line, and whatever comes next takes its place.
const (
	eraseStatus = "\r\x1b[K"
	statusBegin = "\x1b[?7l"
	statusEnd   = "\x1b[?7h"
)

const (
	maxQueuedLines = 256
	maxFlush       = time.Second
)

// newErrorLines starts to write to a file. report is called when lines were dropped and others can
// be written again; it may write a line that says so.
func newErrorLines(to io.Writer, report func(lines int64)) *errorLines {
	l := &errorLines{to: to, queue: make(chan queuedLine, maxQueuedLines), report: report}
	go l.write()
	return l
}

func (l *errorLines) write() {
	shown := false // a status
	for line := range l.queue {
		if line.written != nil {
			close(line.written)
		} else {
			if shown {
				line.text = append([]byte(eraseStatus), line.text...)
			}
			shown = line.status
			_, _ = l.to.Write(line.text)
		}
		if len(l.queue) > 0 { // there may be no room for the line of report
			continue
		}
		if n := l.dropped.Swap(0); n > 0 {
			l.report(n)
		}
	}
}

// Write queues a line. It never fails.
func (l *errorLines) Write(line []byte) (int, error) {
	select {
	case l.queue <- queuedLine{text: bytes.Clone(line)}:
	default:
		l.dropped.Add(1)
	}
	return len(line), nil
}

// status shows a text of one line until the next line or status, and replaces the last status. It
// is for a terminal that obeys. A status for which there is no room is not missed.
func (l *errorLines) status(text string) {
	select {
	case l.queue <- queuedLine{text: []byte(statusBegin + exit.Printable(text) + statusEnd), status: true}:
	default:
	}
}

// endStatus removes the status, and returns when that is done, or when nothing is read.
func (l *errorLines) endStatus() {
	_, _ = l.Write(nil)
	l.flush()
}

// flush returns when everything is written, or when nothing was read for a while.
func (l *errorLines) flush() {
	written, late := make(chan struct{}), time.After(maxFlush)
	select {
	case l.queue <- queuedLine{written: written}:
	case <-late:
		return
	}
	select {
	case <-written:
	case <-late:
	}
}
