package locktable_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/locktable"
)

// join makes this process a member of a table. A service calls Run with the context of
// signal.NotifyContext, and waits for its end.
func join(store leasehold.Store, member string) (table *locktable.Table, leave func()) {
	table, err := locktable.New(store, "tables/example", locktable.WithMemberName(member),
		locktable.WithPollInterval(10*time.Millisecond)) // leave it out on a real store
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- table.Run(ctx) }()
	return table, func() {
		cancel()
		if err := <-ended; err != nil {
			log.Fatal(err)
		}
	}
}

func ExampleTable() {
	store := leasehold.NewMemStore() // in production NewS3Store
	table, err := locktable.New(store, "tables/tenants", locktable.WithMemberName("pod-7"))
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background()) // a service uses signal.NotifyContext
	ended := make(chan error)
	go func() { ended <- table.Run(ctx) }() // joins, and keeps the heartbeat

	err = table.Lock("tenant-42").Do(ctx, func(ctx context.Context, lease *locktable.Lease) error {
		state, err := table.Inspect(ctx)
		if err != nil {
			return err
		}
		for _, row := range state.Held {
			fmt.Println(row.Member, "holds", row.Locks, "with this lease's token:", row.Token == lease.Token())
		}
		return nil // a service works here, and returns soon after ctx is done
	})
	fmt.Println("error:", err)

	stop()
	fmt.Println("left:", <-ended) // Run has handed over what was held
	// Output:
	// pod-7 holds [tenant-42] with this lease's token: true
	// error: <nil>
	// left: <nil>
}

func ExampleTable_Semaphore() {
	table, leave := join(leasehold.NewMemStore(), "pod-7")
	defer leave()
	ctx := context.Background()

	training, err := table.Semaphore("gpu", 8).Slots(6).Acquire(ctx) // 6 of 8
	if err != nil {
		log.Fatal(err)
	}
	_, err = table.Semaphore("gpu", 8).Slots(3).TryAcquire(ctx) // only 2 are left
	fmt.Println("held:", errors.Is(err, leasehold.ErrHeld))
	if err := training.Release(ctx); err != nil {
		log.Fatal(err)
	}
	err = table.Semaphore("gpu", 8).Slots(3).Do(ctx, func(ctx context.Context, lease *locktable.Lease) error {
		state, err := table.Inspect(ctx)
		for _, row := range state.Held {
			fmt.Println(row.Member, "holds", row.Locks)
		}
		return err
	})
	fmt.Println("error:", err)
	// Output:
	// held: true
	// pod-7 holds [gpu (3 of 8)]
	// error: <nil>
}

func ExampleTable_All() {
	store := leasehold.NewMemStore()
	table, leave := join(store, "pod-7")
	defer leave()
	other, otherLeaves := join(store, "pod-9")
	defer otherLeaves()

	// The order of names does not matter: of two members that ask for the same locks, one gets all
	// of them, and then the other.
	transfer := table.All(table.Lock("account-1"), table.Lock("account-2"), table.Shared("rates"))
	err := transfer.Do(context.Background(), func(ctx context.Context, lease *locktable.Lease) error {
		rates, err := other.Shared("rates").Acquire(ctx) // any number of readers
		if err != nil {
			return err
		}
		_, err = other.Lock("account-2").TryAcquire(ctx)
		if held, ok := errors.AsType[*locktable.HeldError](err); ok {
			fmt.Println(held.Locks, "held by", held.By[0].Name)
		}
		return rates.Release(ctx)
	})
	fmt.Println("error:", err)
	// Output:
	// [account-2] held by pod-7
	// error: <nil>
}

func ExampleLease_Wanted() {
	store := leasehold.NewMemStore()
	table, leave := join(store, "pod-7")
	defer leave()
	other, otherLeaves := join(store, "pod-9")
	defer otherLeaves()
	ctx := context.Background()
	began, done := make(chan struct{}), make(chan error)
	go func() {
		done <- table.Lock("cache").Do(ctx, func(ctx context.Context, lease *locktable.Lease) error {
			close(began)
			select {
			case <-lease.Wanted(): // it holds the lock until somebody else wants it
				fmt.Println("pod-7: somebody waits")
			case <-ctx.Done():
			}
			return nil
		})
	}()
	<-began
	lease, err := other.Lock("cache").Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("pod-9 has the lock, with a higher token:", lease.Token() > 1)
	if err := lease.Release(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("error of pod-7:", <-done)
	// Output:
	// pod-7: somebody waits
	// pod-9 has the lock, with a higher token: true
	// error of pod-7: <nil>
}

func ExampleResume() {
	store := leasehold.NewMemStore()
	table, leave := join(store, "pod-7")
	ctx, stop := context.WithCancel(context.Background())
	lease, err := table.Lock("deploy").Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	handle, err := table.Detach(ctx) // a secret, for another process
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("valid here:", lease.Valid())
	leave() // Run has returned, and nothing was freed

	next, err := locktable.Resume(store, handle) // the other process
	if err != nil {
		log.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- next.Run(ctx) }()
	leases, err := next.Leases(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, there := range leases {
		same := there.Token() == lease.Token()
		fmt.Println("valid there:", there.Locks(), there.Valid(), "with the same token:", same)
		if err := there.Release(ctx); err != nil {
			log.Fatal(err)
		}
	}
	stop()
	fmt.Println("left:", <-ended)
	// Output:
	// valid here: false
	// valid there: [deploy] true with the same token: true
	// left: <nil>
}
