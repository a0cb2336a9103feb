package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/exit"
)

// isTerminal reports whether a file is the terminal that controls this process.
func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err == nil
}

// obeys reports whether a file is a terminal that obeys the codes which all but dumb ones obey.
func obeys(f *os.File) bool {
	kind := os.Getenv("TERM")
	return kind != "" && kind != "dumb" && isTerminal(f)
}

// inForeground reports whether this process may write to its terminal without disturbing another.
func inForeground(f *os.File) bool {
	group, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// counts reports whether standard error is a terminal on which seconds can be counted.
func (a *app) counts() bool { return a.stderr != nil && !a.json() && obeys(os.Stderr) }

// colours reports whether text in a file is to have colours: see https://no-color.org.
func colours(f *os.File) bool { return os.Getenv("NO_COLOR") == "" && obeys(f) }

// colourOf has the colours of the states of locks. What is missing is in the terminal's own.
var colourOf = map[string]string{
	stateHeld: green, stateExpired: yellow, stateWaiting: yellow,
	stateCorrupt: red, stateDenied: red, stateUnknown: red, stateDeleted: red,
}

const red, green, yellow, plain = "31", "32", "33", "39"

// painted is text in a colour. The codes of all colours are of one length, so that columns which
// count them are even.
func painted(colour, text string) string {
	if colour == "" {
		colour = plain
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// spoken writes log lines for people, in the form of error lines.
type spoken struct {
	slog.Handler // writes the attributes to line
	line         *bytes.Buffer
	mu           *sync.Mutex // guards line
	to           io.Writer
}

func newSpoken(to io.Writer, opts slog.HandlerOptions) spoken {
	line, replace := new(bytes.Buffer), opts.ReplaceAttr
	opts.ReplaceAttr = func(groups []string, attr slog.Attr) slog.Attr {
		if len(groups) == 0 && (attr.Key == slog.TimeKey || attr.Key == slog.LevelKey || attr.Key == slog.MessageKey) {
			return slog.Attr{}
		}
		return replace(groups, attr)
	}
	return spoken{slog.NewTextHandler(line, &opts), line, new(sync.Mutex), to}
}

// Handle writes one line.
func (s spoken) Handle(ctx context.Context, r slog.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line.Reset()
	if err := s.Handler.Handle(ctx, r); err != nil {
		return err
	}
	attributes := bytes.TrimSpace(s.line.Bytes())
	text := []byte("leasehold: ")
	if r.Level == slog.LevelWarn {
		text = append(text, "warning: "...)
	}
	text = append(text, exit.Printable(exit.Reword(r.Message))...)
	if len(attributes) > 0 {
		text = append(append(append(text, " ("...), attributes...), ')')
	}
	_, err := s.to.Write(append(text, '\n'))
	return err
}

// WithAttrs is of a [slog.Handler].
func (s spoken) WithAttrs(attrs []slog.Attr) slog.Handler {
	s.Handler = s.Handler.WithAttrs(attrs)
	return s
}

// WithGroup is of a [slog.Handler].
func (s spoken) WithGroup(name string) slog.Handler {
	s.Handler = s.Handler.WithGroup(name)
	return s
}
