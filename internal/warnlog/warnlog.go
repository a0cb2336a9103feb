// Package warnlog has the logger of a library whose user has given none.
package warnlog

import (
	"context"
	"log/slog"
)

// New returns a logger that passes records from level Warn on to slog.Default, as that is at the time of logging. It ignores With and
// WithGroup: give all attributes with the record.
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
