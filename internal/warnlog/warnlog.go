// Package warnlog has the logger of a library whose user has given none, and says which failures
// are worth a line.
package warnlog

import (
	"context"
	"log/slog"
	"time"
)

// New returns a logger that passes records from level Warn on to slog.Default, as that is at the
// time of logging. It ignores With and WithGroup: give all attributes with the record.
func New() *slog.Logger { return slog.New(handler{}) }

type handler struct{}

func (handler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && slog.Default().Enabled(ctx, level)
}

func (handler) Handle(ctx context.Context, r slog.Record) error {
	return slog.Default().Handler().Handle(ctx, r)
}

func (h handler) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h handler) WithGroup(string) slog.Handler      { return h }

// Failures counts failures in a row, and says which of them are worth a line. The zero value is
// ready. It is not safe for concurrent use.
type Failures struct {
	n      int
	logged time.Duration // monotonic time of the last line
}

// Note counts an outcome. It returns the number of failures in a row, and whether that is worth a
// line: the first one, then one in each interval, and the end.
func (f *Failures) Note(err error, now, interval time.Duration) (n int, worthLogging bool) {
	if err == nil {
		n, f.n = f.n, 0
		return n, n > 0
	}
	f.n++
	if worthLogging = f.n == 1 || now-f.logged >= interval; worthLogging {
		f.logged = now
	}
	return f.n, worthLogging
}
