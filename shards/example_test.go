package shards_test

import (
	"context"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/shards"
)

func Example() {
	store := leasehold.NewMemStore() // or leasehold.NewS3Store(client, "my-bucket")
	ctx, stop := context.WithTimeout(context.Background(), time.Second)
	defer stop()
	group, err := shards.New(store, "workers", shards.Count(1), func(ctx context.Context, s shards.Shard) error {
		fmt.Println("shard", s.ID, "with token", s.Token())
		<-ctx.Done() // work until the shard moves, or this process stops
		return nil
	}, shards.WithTTL(500*time.Millisecond)) // a second at least on a real store
	if err != nil {
		panic(err)
	}
	if err := group.Run(ctx); err != nil { // joins, works, leaves
		panic(err)
	}
	// Output: shard 0 with token 1
}

func ExampleNamesFrom() {
	tenants := func(ctx context.Context) ([]string, error) { // of a database, for example
		return []string{"acme", "globex"}, nil
	}
	group, err := shards.New(leasehold.NewMemStore(), "tenants", shards.NamesFrom(tenants), func(ctx context.Context, s shards.Shard) error {
		<-ctx.Done()
		return nil
	}, shards.WithMember("pod-3"))
	fmt.Println(group.Member(), err)
	// Output: pod-3 <nil>
}

func ExampleShard_Lease() {
	store := leasehold.NewMemStore()
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	group, err := shards.New(store, "queues", shards.Names("orders"), func(ctx context.Context, s shards.Shard) error {
		defer stop()
		if err := s.Lease().Commit(ctx, []byte("offset 42")); err != nil { // the next owner finds it
			return err
		}
		fmt.Printf("%s: %s\n", s.ID, s.Lease().Record().Payload)
		return nil
	}, shards.WithTTL(100*time.Millisecond))
	if err != nil {
		panic(err)
	}
	if err := group.Run(ctx); err != nil {
		panic(err)
	}
	// Output: orders: offset 42
}

func ExampleWithObserver() {
	var owned int // a gauge
	observe := func(e shards.Event) {
		switch e.Kind {
		case shards.EventStarted:
			owned++ // the observer of a real program is safe for concurrent use
		case shards.EventStopped:
			owned--
		case shards.EventPlanned:
			fmt.Println(e.Moved, "of", e.Shards, "shards move, imbalance", e.Imbalance)
		}
	}
	_, err := shards.New(leasehold.NewMemStore(), "workers", shards.Count(10), func(ctx context.Context, s shards.Shard) error {
		<-ctx.Done()
		return nil
	}, shards.WithObserver(observe))
	fmt.Println(err)
	// Output: <nil>
}
