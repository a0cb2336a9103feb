// Command node is one elector of the cluster test. It prints what it observes as lines of JSON.
// SIGUSR1 sets its wall clock one hour forward, SIGUSR2 two hours back.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/testkit/testopt"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
)

// line is a line of output, which the test reads.
type line struct {
	At    int64 // Unix nanoseconds; containers share the host's clock
	Event string
	Token uint64 `json:",omitempty"`
	Text  string `json:",omitempty"`
}

func say(at time.Time, event string, token uint64, text string) {
	b, err := json.Marshal(line{at.UnixNano(), event, token, text})
	if err != nil {
		panic(err)
	}
	fmt.Println(string(b))
}

// movedClock is the machine's clock with its wall clock moved, as a bad time server would move it.
type movedClock struct {
	clock.Clock
	by atomic.Int64
}

func (c *movedClock) Now() clock.Reading {
	now := c.Clock.Now()
	now.Wall += time.Duration(c.by.Load())
	return now
}

// A leader checks its lease every tick. If a check comes more than paused after the one before, the
// process was paused.
const tick, paused = 10 * time.Millisecond, 2 * time.Second

// lead checks the lease again and again. A lease that is valid now was valid at all times since its
// start. Its context is looked at first, because Valid ends it.
func lead(ctx context.Context, lease *leasehold.Lease) {
	for last := time.Now(); ; time.Sleep(tick) {
		// Asked before the time, so that the last check is one after the end of the term, also if
		// the process was paused within a round.
		over := ctx.Err() != nil
		now := time.Now()
		open := lease.Context().Err() == nil
		valid := lease.Valid()
		if gap := now.Sub(last); gap > paused {
			say(now, "woke", lease.Token(), fmt.Sprintf("valid %t", valid))
		}
		switch gap := now.Sub(last); {
		case valid:
			say(now, "valid", lease.Token(), "")
		case open && gap <= paused: // after a pause it ends a little later
			say(now, "open", lease.Token(), "")
		}
		if over {
			return
		}
		last = now
	}
}

func main() {
	moved := &movedClock{Clock: clock.System}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1, syscall.SIGUSR2)
	go func() {
		for s := range signals {
			by := time.Hour
			if s == syscall.SIGUSR2 {
				by = -2 * time.Hour
			}
			moved.by.Add(int64(by))
			say(time.Now(), "clock", 0, by.String())
		}
	}()
	server := testserver.S3{
		Endpoint:  os.Getenv("ENDPOINT"),
		AccessKey: os.Getenv("ACCESS"),
		SecretKey: os.Getenv("SECRET"),
		Region:    os.Getenv("REGION"),
	}
	lock, err := leasehold.NewLock(leasehold.NewS3Store(server.Client(), os.Getenv("BUCKET")), "locks/cluster",
		leasehold.WithTTL(4*time.Second), leasehold.WithHolder(os.Getenv("NAME")), testopt.WithClock(moved))
	if err != nil {
		panic(err)
	}
	elector, err := leasehold.NewElector(lock, leasehold.Callbacks{
		OnStartedLeading: lead,
		OnStoppedLeading: func(cause error) { say(time.Now(), "stopped", 0, cause.Error()) },
	})
	if err != nil {
		panic(err)
	}
	say(time.Now(), "up", 0, "")
	if err := elector.Run(context.Background()); err != nil {
		say(time.Now(), "ended", 0, err.Error())
		os.Exit(1)
	}
}
