// Command failover shows how another candidate takes over: three candidates share one lock; the
// first leader crashes, the second is cut off from the store, and the third resigns. Every
// millisecond the program checks that at most one of them may act.
//
//	go run ./examples/failover
//	go run ./examples/failover -s3 http://127.0.0.1:9000 -bucket locks
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/leasehold-go/leasehold/examples/internal/stage"
	"github.com/leasehold-go/leasehold/examples/internal/storeflag"
)

func main() { stage.Main("failover", run) }

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("failover", flag.ContinueOnError)
	where := storeflag.Add(flags, "Failover shows how another candidate takes over when the leader crashes, is cut "+
		"off from the store, or resigns.")
	ttl := flags.Duration("ttl", 2*time.Second, "time to live of a lease: how long it lasts after its last renewal")
	key := flags.String("key", "examples/failover", "key of the lock")
	if err := flags.Parse(args); err != nil {
		return err
	}
	store, err := where.Open(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Three candidates share one lock %s.\n", where.Place())
	fmt.Fprintf(out, "A lease lasts one TTL, %v, after its last renewal; the leader renews it about every %v.\n", *ttl,
		(*ttl / 3).Round(time.Millisecond))
	fmt.Fprintln(out, "Until that TTL has passed, nobody else may lead, unless the leader releases the lock.")
	fmt.Fprintf(out, "Takeover times are in TTLs since the former leader's last renewal, or since its release.\n\n")

	d := newDemo(out, *ttl)
	for _, name := range []string{"ada", "bob", "cyd"} {
		if err := d.start(ctx, name, store, *key); err != nil {
			return err
		}
	}
	stopCounting := d.countLeaders()
	defer stopCounting()
	defer d.stopAll()

	leader, err := d.nextLeader(ctx)
	if err != nil {
		return err
	}

	d.Print(leader.name, "CRASHES: it sends nothing more, and does not release the lock")
	leader.crash()
	if leader, err = d.nextLeader(ctx); err != nil {
		return err
	}

	d.Print(leader.name, "IS CUT OFF from the store, and runs on")
	leader.network.Cut(true)
	if leader, err = d.nextLeader(ctx); err != nil {
		return err
	}
	d.Print("", "the network works again")
	d.reconnect()

	d.Print(leader.name, "RESIGNS: it releases the lock")
	if err := leader.elector.Resign(ctx); err != nil {
		return err
	}
	if _, err = d.nextLeader(ctx); err != nil {
		return err
	}
	d.stopAll()
	stopCounting()
	return d.report(out)
}
