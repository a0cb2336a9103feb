// Package stage is what examples have in common that play several processes in one: how they start
// and end, a timeline, waiting for an event, and a network that is cut and counted.
package stage

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"time"
)

// Main runs an example until it ends or the user interrupts it. If it fails, Main prints the error
// and ends the process with status 1.
func Main(name string, run func(ctx context.Context, args []string, out io.Writer) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Timeline prints what happens, and when. Its methods are safe for concurrent use.
type Timeline struct {
	began time.Time

	mu  sync.Mutex // guards out
	out io.Writer
}

// NewTimeline returns a timeline that begins now.
func NewTimeline(out io.Writer) *Timeline { return &Timeline{out: out, began: time.Now()} }

// Print prints a line about a process, or about all of them if the name is empty.
func (t *Timeline) Print(name, format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(t.out, "%7.3fs  %-4s %s\n", time.Since(t.began).Seconds(), name, fmt.Sprintf(format, args...))
}

// Stage is where the processes of an example play. Its methods are safe for concurrent use.
type Stage struct {
	*Timeline
	ttl    time.Duration
	failed chan error
}

// New returns a stage for leases with this time to live.
func New(out io.Writer, ttl time.Duration) *Stage {
	return &Stage{Timeline: NewTimeline(out), ttl: ttl, failed: make(chan error, 1)}
}

// TTLs returns how many times to live a time is.
func (s *Stage) TTLs(t time.Duration) float64 { return t.Seconds() / s.ttl.Seconds() }

// Fail notes an error that nobody expects. It ends [Stage.Await].
func (s *Stage) Fail(err error) {
	select {
	case s.failed <- err:
	default: // one is enough
	}
}

// Await calls done at once and then in each interval, until it returns true or an error, which
// Await returns. Await also returns the error of [Stage.Fail], and after 30 seconds and five TTLs
// one that says what is otherwise. The context of done ends then, too.
func (s *Stage) Await(ctx context.Context, every time.Duration, otherwise string,
	done func(context.Context) (bool, error)) error {
	limit := 30*time.Second + 5*s.ttl
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%s within %v", otherwise, limit))
	defer cancel()
	tick := time.NewTicker(max(every, 1))
	defer tick.Stop()
	for {
		if ok, err := done(ctx); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case err := <-s.failed:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
