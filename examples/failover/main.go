// Command failover shows what leasehold is for. Three candidates want to lead: the first leader crashes, the next is cut off
// from the store, the third steps down. A referee looks every millisecond whether two of them could act at once.
//
//	go run ./examples/failover
//	go run ./examples/failover -s3 http://127.0.0.1:9000 -bucket locks
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/leasehold-go/leasehold/examples/internal/storeflag"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "failover:", err)
		}
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("failover", flag.ContinueOnError)
	where := storeflag.Add(flags)
	ttl := flags.Duration("ttl", 2*time.Second, "for how long a lease is good: after a crash nobody leads for that long")
	key := flags.String("key", "examples/failover", "key of the lock")
	if err := flags.Parse(args); err != nil {
		return err
	}
	store, err := where.Open()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute+30**ttl)
	defer cancel()

	t := newTheatre(out, *ttl)
	for _, name := range []string{"ada", "bob", "cyd"} {
		if err := t.enter(ctx, name, store, *key); err != nil {
			return err
		}
	}
	stopReferee := t.referee()
	defer stopReferee()
	defer t.close()

	leader, err := t.nextLeader(ctx)
	if err != nil {
		return err
	}

	t.fault()
	t.say(leader.name, "CRASHES: no more requests, nothing is released")
	leader.crash()
	if leader, err = t.nextLeader(ctx); err != nil {
		return err
	}

	t.fault()
	t.say(leader.name, "IS CUT OFF from the store, and runs on")
	leader.store.cut(true)
	if leader, err = t.nextLeader(ctx); err != nil {
		return err
	}
	t.heal()
	t.say("", "the network is whole again")

	t.say(leader.name, "STEPS DOWN")
	t.fault()
	if err := leader.elector.Resign(ctx); err != nil {
		return err
	}
	if _, err = t.nextLeader(ctx); err != nil {
		return err
	}
	t.close()
	stopReferee()
	return t.verdict()
}

// nextLeader waits for the next term of anybody.
func (t *theatre) nextLeader(ctx context.Context) (*candidate, error) {
	select {
	case c := <-t.led:
		time.Sleep(t.ttl / 2) // let it lead for a while
		return c, nil
	case err := <-t.failed:
		return nil, err
	case <-ctx.Done():
		return nil, fmt.Errorf("no leader: %w", ctx.Err())
	}
}

// verdict is an error unless there was never more than one leader at a time.
func (t *theatre) verdict() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(t.out, "\n%-10s %8s %8s %8s\n", "requests", "GET", "PUT", "failed")
	for _, c := range t.candidates {
		fmt.Fprintf(t.out, "%-10s %8d %8d %8d\n", c.name, c.store.gets.Load(), c.store.puts.Load(), c.store.failed.Load())
	}
	fmt.Fprintf(t.out, "\nThe referee looked %d times and saw two leaders %d times. Tokens: %v. Of %d steps of work, %d came from a former leader.\n",
		t.looks, t.double, t.tokens, t.steps, t.refused)
	for i := 1; i < len(t.tokens); i++ {
		if t.tokens[i] <= t.tokens[i-1] {
			return fmt.Errorf("tokens went back: %v", t.tokens)
		}
	}
	switch {
	case t.double > 0:
		return fmt.Errorf("two candidates held a valid lease at once, %d times", t.double)
	case t.refused > 0:
		return fmt.Errorf("a former leader went on working: %d steps", t.refused)
	case len(t.tokens) < 4:
		return fmt.Errorf("only %d terms", len(t.tokens))
	}
	return nil
}
