// Command tables shows how one object holds many locks: ada takes 10,000 locks, and bob and cyd
// wait for half of them each. Then ada is cut off from the store, bob ends gracefully, and all
// three share a semaphore. The program counts requests.
//
//	go run ./examples/tables
//	go run ./examples/tables -s3 http://127.0.0.1:9000 -bucket locks
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/leasehold-go/leasehold/examples/internal/stage"
	"github.com/leasehold-go/leasehold/examples/internal/storeflag"
	"github.com/leasehold-go/leasehold/locktable"
)

func main() { stage.Main("tables", run) }

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("tables", flag.ContinueOnError)
	where := storeflag.Add(flags, "Tables shows how one object holds many locks, what they cost, and how other "+
		"members take them over.")
	locks := flags.Int("locks", 10_000, "number of locks")
	ttl := flags.Duration("ttl", 3*time.Second, "time to live of a member: how long it lasts after its last renewal")
	prefix := flags.String("prefix", "examples/tables", "key of the table, and prefix of the keys of its members")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *locks < 2 || *ttl <= 0 {
		return fmt.Errorf("-locks is %d and -ttl is %v: use at least 2 locks and a positive time", *locks, *ttl)
	}
	store, err := where.Open(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Three members share a table of %d locks %s. The table is one object.\n", *locks, where.Place())
	fmt.Fprintf(out, "Each member renews an object of its own about every %v. The TTL is %v.\n",
		(*ttl / 3).Round(time.Millisecond), *ttl)
	takes := time.Duration(0)
	if where.InMemory() {
		takes = 10 * time.Millisecond
		fmt.Fprintf(out, "Each request takes %v longer than in memory, so that it is about as slow as one to a "+
			"bucket.\n", takes)
	}
	fmt.Fprintln(out)

	ctx, cancel := context.WithCancel(ctx)
	d := &demo{Stage: stage.New(out, *ttl), store: store, ttl: *ttl, key: *prefix, locks: *locks, takes: takes}
	defer func() {
		cancel()
		d.stopAll()
	}()
	if err := d.play(ctx); err != nil {
		return err
	}
	d.stopAll()
	fmt.Fprintf(out, "\n%d leases of %d locks, and %d leases of the semaphore.\n", d.leases, d.locks, d.ran)
	return nil
}

// play runs the timeline.
func (d *demo) play(ctx context.Context) error {
	all, half := d.locks, d.locks/2
	ada, err := d.start(ctx, "ada")
	if err != nil {
		return err
	}
	byAda, began := ada.network.Counted(), time.Now()
	d.want(ada, 0, all)
	if err := d.await(ctx, holds{ada, all}); err != nil {
		return err
	}
	d.Print("ada", "HOLDS %d locks after %v, with %v", all, time.Since(began).Round(time.Millisecond), byAda())

	bob, err := d.start(ctx, "bob")
	if err != nil {
		return err
	}
	cyd, err := d.start(ctx, "cyd")
	if err != nil {
		return err
	}
	d.want(bob, 0, half)
	d.want(cyd, half, all)
	state, err := d.awaitTable(ctx, cyd, func(s locktable.State) bool { return len(s.Waiting) == all })
	if err != nil {
		return err
	}
	d.Print("", "bob WAITS for %d locks, and cyd for the other %d", half, all-half)
	d.Print("", "the table has %d members, %d requests that hold and %d that wait, in %d KB",
		len(state.Members), len(state.Held), len(state.Waiting), state.Size/1000)

	const ttls = 3
	time.Sleep(d.ttl) // what the start has caused is over then
	byAda, byBob := ada.network.Counted(), bob.network.Counted()
	time.Sleep(ttls * d.ttl)
	holding, waiting := byAda(), byBob()
	d.Print("ada", "has sent %v in %d TTLs, while it held", holding, ttls)
	d.Print("bob", "has sent %v in %d TTLs, while it waited", waiting, ttls)

	if err := d.loss(ctx, ada, bob, cyd); err != nil {
		return err
	}
	if bob, err = d.handOver(ctx, bob, cyd); err != nil {
		return err
	}
	return d.semaphore(ctx, ada, bob, cyd)
}

// loss cuts ada off from the store. All its locks pass to bob and cyd, which wait for them.
func (d *demo) loss(ctx context.Context, ada, bob, cyd *member) error {
	all, half := d.locks, d.locks/2
	d.Print("ada", "IS CUT OFF from the store, and runs on")
	byBob, byCyd, cut := bob.network.Counted(), cyd.network.Counted(), time.Now()
	ada.cut(true)
	if err := d.await(ctx, holds{ada, 0}); err != nil {
		return err
	}
	d.Print("ada", "has ended all its functions %.2f TTL after the cut, because its term has run out",
		d.TTLs(time.Since(cut)))
	if err := d.await(ctx, holds{bob, half}, holds{cyd, all - half}); err != nil {
		return err
	}
	d.Print("", "bob and cyd HOLD all %d locks %.2f TTL after the cut", all, d.TTLs(time.Since(cut)))
	d.Print("", "since the cut bob has sent %v, and cyd %v", byBob(), byCyd())
	ada.cut(false)
	d.Print("ada", "is connected again, and begins a new term")
	return nil
}

// handOver ends bob gracefully. All its locks pass to cyd. The result is a new process with the
// name of bob.
func (d *demo) handOver(ctx context.Context, bob, cyd *member) (*member, error) {
	all, half := d.locks, d.locks/2
	d.want(cyd, 0, half)
	if _, err := d.awaitTable(ctx, cyd, func(s locktable.State) bool { return len(s.Waiting) == half }); err != nil {
		return nil, err
	}
	d.Print("cyd", "WAITS for bob's %d locks, too", half)
	d.Print("bob", "STOPS: it ends its functions, and leaves the table")
	byBob, byCyd, stopped := bob.network.Counted(), cyd.network.Counted(), time.Now()
	bob.stop()
	sent := byBob()
	d.Print("bob", "has HANDED OVER %d locks with %d PUT of the table; all that it has sent is %v",
		half, sent.ObjectPuts, sent)
	if err := d.await(ctx, holds{cyd, all}); err != nil {
		return nil, err
	}
	d.Print("cyd", "HOLDS all %d locks %.2f TTL after bob was told to stop, with %v", all,
		d.TTLs(time.Since(stopped)), byCyd())
	bob, err := d.start(ctx, "bob")
	if err != nil {
		return nil, err
	}
	_, err = d.awaitTable(ctx, cyd, func(s locktable.State) bool { return len(s.Members) == 3 })
	return bob, err
}

// semaphore lets all members run more functions than the semaphore has slots.
func (d *demo) semaphore(ctx context.Context, members ...*member) error {
	const each = 4
	total := each * len(members)
	d.Print("", "ada, bob and cyd WANT %d times each one of the %d slots of a semaphore", each, slots)
	began := time.Now()
	for _, m := range members {
		for range each {
			d.wantSlot(m)
		}
	}
	most := 0
	if err := d.awaitThat(ctx, fmt.Sprintf("not all %d functions have run", total), func() bool {
		most = d.most
		return d.ran == total
	}); err != nil {
		return err
	}
	d.Print("", "all %d functions have run after %.2f TTL, at most %d at once", total,
		d.TTLs(time.Since(began)), most)
	return nil
}
