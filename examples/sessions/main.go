// Command sessions shows how one heartbeat keeps many locks: two processes want the same 1,000 locks, and the locks of each lean on
// its session. The first process stops and hands over, then the second is cut off from the store. The program counts requests.
//
//	go run ./examples/sessions
//	go run ./examples/sessions -s3 http://127.0.0.1:9000 -bucket locks
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
		fmt.Fprintln(os.Stderr, "sessions:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("sessions", flag.ContinueOnError)
	where := storeflag.Add(flags, "Sessions shows how a process keeps many locks with one heartbeat, and how another process takes over all of them.")
	locks := flags.Int("locks", 1000, "number of locks")
	ttl := flags.Duration("ttl", 3*time.Second, "time to live of a session: how long it lasts after its last renewal")
	prefix := flags.String("prefix", "examples/sessions", "prefix of all keys")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *locks < 1 {
		return fmt.Errorf("-locks is %d, but at least one lock is needed", *locks)
	}
	store, err := where.Open(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Two processes want the same %d locks %s.\n", *locks, where.Place())
	fmt.Fprintf(out, "Each process has a session, an object that it renews about every %v. The TTL is %v.\n", (*ttl / 3).Round(time.Millisecond), *ttl)
	fmt.Fprintf(out, "A lock that leans on a session is never renewed. It is held until it is released or the session ends.\n\n")

	d := newDemo(out, *ttl, *prefix, *locks)
	ada, err := d.start(ctx, "ada", store)
	if err != nil {
		return err
	}
	defer func() { ada.stop() }()
	stopCounting := d.countLeaders()
	defer stopCounting()
	byAda := ada.network.counted()
	if err := d.await(ctx, ada, *locks); err != nil {
		return err
	}
	d.print("ada", "LEADS %d locks, with %v", *locks, byAda())
	bob, err := d.start(ctx, "bob", store)
	if err != nil {
		return err
	}
	defer bob.stop()
	d.print("bob", "WAITS for %d locks", *locks)
	time.Sleep(2 * *ttl) // bob looks at all locks once more, because ada's first renewal tells from where on releases are told

	const ttls = 3
	byAda = ada.network.counted()
	byBob := bob.network.counted()
	time.Sleep(ttls * *ttl)
	holding, waiting := byAda(), byBob()
	d.print("", "in %d TTLs ada, which holds all locks, has sent %v", ttls, holding)
	d.print("", "in %d TTLs bob, which waits for all locks, has sent %v", ttls, waiting)

	d.print("ada", "STOPS: it ends its functions, and releases its session")
	byAda, byBob = ada.network.counted(), bob.network.counted()
	stopped := time.Now()
	ada.stop()
	d.print("ada", "has stopped, with %v", byAda())
	if err := d.await(ctx, bob, *locks); err != nil {
		return err
	}
	d.print("bob", "LEADS %d locks %.2f TTL after ada was told to stop, with %v", *locks, d.ttls(time.Since(stopped)), byBob())

	if ada, err = d.start(ctx, "ada", store); err != nil { // a new process with the same session key
		return err
	}
	d.print("ada", "STARTS AGAIN, and waits for %d locks", *locks)
	time.Sleep(*ttl)
	d.print("bob", "IS CUT OFF from the store, and runs on")
	byAda = ada.network.counted()
	cut := time.Now()
	bob.network.cut(true)
	if err := d.await(ctx, bob, 0); err != nil {
		return err
	}
	d.print("bob", "has ended all its functions %.2f TTL after the cut, because its session has run out", d.ttls(time.Since(cut)))
	if err := d.await(ctx, ada, *locks); err != nil {
		return err
	}
	d.print("ada", "LEADS %d locks %.2f TTL after the cut, with %v", *locks, d.ttls(time.Since(cut)), byAda())
	bob.network.cut(false)
	d.print("bob", "is connected again")
	time.Sleep(*ttl)
	bob.stop()
	ada.stop()
	stopCounting()
	d.printCosts(holding, waiting, ttls)
	return d.report()
}
