// Command shards shows how workers divide shards: five start at once, one is killed, one joins and one leaves. Each column of the
// picture is a shard, and each row a worker. The program checks that no shard ever has two owners.
//
//	go run ./examples/shards
//	go run ./examples/shards -s3 http://127.0.0.1:9000 -bucket locks
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
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "shards:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("shards", flag.ContinueOnError)
	where := storeflag.Add(flags, "Shards shows how workers divide shards when one is killed, one joins and one leaves.")
	shards := flags.Int("shards", 60, "number of shards")
	ttl := flags.Duration("ttl", 3*time.Second, "time to live of a worker's session: how long it lasts after its last renewal")
	prefix := flags.String("prefix", "examples/shards", "prefix of all keys")
	plain := flags.Bool("plain", false, "print lines instead of a moving picture, as where there is no terminal")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *shards < 1 || *ttl <= 0 {
		return fmt.Errorf("-shards is %d and -ttl is %v: both must be positive", *shards, *ttl)
	}
	store, err := where.Open(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Workers divide %d shards %s. The TTL is %v.\n\n", *shards, where.Place(), *ttl)

	d := newDemo(out, !*plain && isTerminal(out), store, *prefix, *shards, *ttl)
	ctx, cancel := context.WithCancel(ctx)
	stopPicture := d.watch()
	defer func() {
		cancel()
		d.stopAll()
		stopPicture()
	}()
	for _, name := range []string{"ada", "bob", "cyd", "dan", "eve"} {
		if err := d.start(ctx, name); err != nil {
			return err
		}
	}
	d.say("five workers START")
	steps := []struct {
		what string
		do   func() error
	}{
		{"bob is KILLED: its shards have no owner until its session has run out", func() error { d.kill("bob"); return nil }},
		{"fay JOINS: each of the others gives up a few shards", func() error { return d.start(ctx, "fay") }},
		{"cyd LEAVES: it ends its handlers, and releases all its shards with one request", func() error { d.leave("cyd"); return nil }},
	}
	if err := d.await(ctx); err != nil {
		return err
	}
	for _, step := range steps {
		time.Sleep(*ttl)
		d.say(step.what)
		if err := step.do(); err != nil {
			return err
		}
		if err := d.await(ctx); err != nil {
			return err
		}
	}
	time.Sleep(*ttl)
	d.say("all STOP")
	cancel()
	d.stopAll()
	stopPicture()
	return d.report()
}

// isTerminal reports whether out can show a moving picture.
func isTerminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
