package leasehold_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/leasehold-go/leasehold"
)

// Two candidates campaign for one lock. The first leads until it stops, and then the second leads.
func Example() {
	store := leasehold.NewMemStore() // in production NewS3Store, and each candidate is a process
	leads := make(chan struct{})
	campaign := func(name string) (stop func()) {
		lock, err := leasehold.NewLock(store, "leaders/reports", leasehold.WithHolder(name))
		if err != nil {
			log.Fatal(err)
		}
		elector, err := leasehold.NewElector(lock, leasehold.Callbacks{
			OnStartedLeading: func(ctx context.Context, lease *leasehold.Lease) {
				fmt.Println(name, "leads with token", lease.Token())
				leads <- struct{}{}
				<-ctx.Done() // the leader's work ends with ctx
				fmt.Println(name, "stops its work")
			},
		})
		if err != nil {
			log.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background()) // a service uses signal.NotifyContext
		ended := make(chan error)
		go func() { ended <- elector.Run(ctx) }()
		return func() {
			cancel()
			if err := <-ended; err != nil { // nil after a step-down that has released the lock
				log.Fatal(err)
			}
		}
	}
	stopAda := campaign("ada")
	<-leads
	stopBob := campaign("bob")
	stopAda()
	<-leads
	stopBob()
	// Output:
	// ada leads with token 1
	// ada stops its work
	// bob leads with token 2
	// bob stops its work
}

// A leader that is to be replaced, or that cannot do its work, gives the others a turn.
func ExampleElector_Resign() {
	store := leasehold.NewMemStore() // in production NewS3Store
	ctx, stop := context.WithCancel(context.Background())
	lock, err := leasehold.NewLock(store, "leaders/resign")
	if err != nil {
		log.Fatal(err)
	}
	leads := make(chan struct{})
	elector, err := leasehold.NewElector(lock, leasehold.Callbacks{
		OnStartedLeading: func(ctx context.Context, _ *leasehold.Lease) {
			leads <- struct{}{}
			<-ctx.Done()
		},
		OnStoppedLeading: func(cause error) { fmt.Println("stopped:", cause) },
	})
	if err != nil {
		log.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- elector.Run(ctx) }()
	<-leads
	err = elector.Resign(ctx) // waits until the work has ended and the lock is free
	fmt.Println(err, elector.IsLeader())
	record, err := lock.Inspect(ctx)
	fmt.Println("free for the others:", record.Released(), err)
	stop()
	fmt.Println(<-ended)
	// Output:
	// stopped: lease released: resigned
	// <nil> false
	// free for the others: true <nil>
	// <nil>
}

func ExampleElector() {
	store := leasehold.NewMemStore()                      // in production NewS3Store
	ctx, stop := context.WithCancel(context.Background()) // a service uses signal.NotifyContext
	lock, err := leasehold.NewLock(store, "locks/reports")
	if err != nil {
		log.Fatal(err)
	}
	elector, err := leasehold.NewElector(lock, leasehold.Callbacks{
		OnStartedLeading: func(ctx context.Context, lease *leasehold.Lease) {
			fmt.Println("leading with token", lease.Token())
			stop() // a service works here until ctx is done
			<-ctx.Done()
		},
		OnStoppedLeading: func(cause error) { fmt.Println("stopped:", cause) },
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := elector.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// leading with token 1
	// stopped: context canceled
}

// The code of docs/start.md, which a test compares with this.
func readmeCriticalSection(ctx context.Context, store leasehold.Store,
	migrate func(ctx context.Context, token uint64) error) error {
	lock, err := leasehold.NewLock(store, "locks/migration")
	if err != nil {
		return err
	}
	return lock.Do(ctx, func(ctx context.Context, lease *leasehold.Lease) error {
		return migrate(ctx, lease.Token()) // ctx ends if the lease is lost
	})
}

func TestReadmeCode(t *testing.T) {
	var ran atomic.Bool
	err := readmeCriticalSection(t.Context(), leasehold.NewMemStore(), func(context.Context, uint64) error {
		ran.Store(true)
		return nil
	})
	if err != nil || !ran.Load() {
		t.Fatal(err, ran.Load())
	}
}

func ExampleLock_Do() {
	store := leasehold.NewMemStore() // in production NewS3Store
	lock, err := leasehold.NewLock(store, "locks/migration")
	if err != nil {
		log.Fatal(err)
	}
	err = lock.Do(context.Background(), func(ctx context.Context, lease *leasehold.Lease) error {
		fmt.Println("migrating under token", lease.Token())
		return nil
	})
	fmt.Println(err)
	// Output:
	// migrating under token 1
	// <nil>
}

func ExampleLock_TryAcquire() {
	migrate := func(_ context.Context, token uint64) error {
		fmt.Println("migrating under token", token)
		return nil
	}
	store := leasehold.NewMemStore() // in production NewS3Store
	ctx := context.Background()
	first, err := leasehold.NewLock(store, "locks/try", leasehold.WithHolder("first"))
	if err != nil {
		log.Fatal(err)
	}
	second, err := leasehold.NewLock(store, "locks/try", leasehold.WithHolder("second"))
	if err != nil {
		log.Fatal(err)
	}
	lease, err := first.TryAcquire(ctx)
	if err != nil {
		log.Fatal(err)
	}

	job := func(ctx context.Context, lock *leasehold.Lock) error {
		lease, err := lock.TryAcquire(ctx)
		if errors.Is(err, leasehold.ErrHeld) {
			fmt.Println("another process is at it")
			return nil
		}
		if err != nil {
			return err
		}
		return lease.Do(ctx, func(ctx context.Context, lease *leasehold.Lease) error {
			return migrate(ctx, lease.Token())
		})
	}
	fmt.Println(job(ctx, second))
	fmt.Println("released:", lease.Release(ctx))
	fmt.Println(job(ctx, second))
	// Output:
	// another process is at it
	// <nil>
	// released: <nil>
	// migrating under token 2
	// <nil>
}

// A program hands its lock over to its new version, which goes on under the same token.
func ExampleLock_Resume() {
	store := leasehold.NewMemStore() // in production NewS3Store
	ctx := context.Background()
	lock, err := leasehold.NewLock(store, "locks/resume")
	if err != nil {
		log.Fatal(err)
	}
	lease, err := lock.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	lease.Abandon() // stops acting under it, and leaves the lock held
	handle := lease.Handle()

	// The new version gets the handle, in an environment variable for instance.
	lock, err = leasehold.NewLock(store, "locks/resume")
	if err != nil {
		log.Fatal(err)
	}
	resumed, err := lock.Resume(ctx, handle)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("token", lease.Token(), "goes on as", resumed.Token())
	fmt.Println("released:", resumed.Release(ctx))
	_, err = lock.Resume(ctx, handle)
	fmt.Println(errors.Is(err, leasehold.ErrReleased))
	// Output:
	// token 1 goes on as 1
	// released: <nil>
	// true
}

func ExampleLease_Renew() {
	store := leasehold.NewMemStore() // in production NewS3Store
	ctx := context.Background()
	lock, err := leasehold.NewLock(store, "locks/steps", leasehold.WithManualRenewal())
	if err != nil {
		log.Fatal(err)
	}
	lease, err := lock.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release(ctx)
	for _, step := range []string{"copy", "switch", "delete"} {
		if err := lease.Renew(ctx); err != nil { // confirms the lease with the store before each step
			log.Fatal(err)
		}
		fmt.Println(step)
	}
	// Output:
	// copy
	// switch
	// delete
}

func ExampleLease_Commit() {
	store := leasehold.NewMemStore() // in production NewS3Store
	ctx := context.Background()
	lock, err := leasehold.NewLock(store, "locks/commit")
	if err != nil {
		log.Fatal(err)
	}
	err = lock.Do(ctx, func(ctx context.Context, lease *leasehold.Lease) error {
		return lease.Commit(ctx, []byte("offset 4711")) // fails if this is no longer the leader
	})
	if err != nil {
		log.Fatal(err)
	}
	record, err := lock.Inspect(ctx) // the next leader, or anyone
	fmt.Printf("%s, released: %v, %v\n", record.Payload, record.Released(), err)
	// Output: offset 4711, released: true, <nil>
}

func ExampleLock_Watch() {
	store := leasehold.NewMemStore() // in production NewS3Store
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	lock, err := leasehold.NewLock(store, "locks/watch", leasehold.WithHolder("ada"))
	if err != nil {
		log.Fatal(err)
	}
	lease, err := lock.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}

	for status, err := range lock.Watch(ctx) { // from any process, which need not be a candidate
		if err != nil {
			log.Print(err) // it goes on, unless the error is permanent
			continue
		}
		fmt.Println(status.State, "by", status.Record.Holder, "with token", status.Record.Token)
		if status.State != leasehold.StateHeld { // or expired, deleted, never taken
			break
		}
		if err := lease.Release(ctx); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// held by ada with token 1
	// released by ada with token 1
}

func ExampleLock_Break() {
	store := leasehold.NewMemStore() // in production NewS3Store
	ctx := context.Background()
	lock, err := leasehold.NewLock(store, "locks/stuck")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := lock.Acquire(ctx); err != nil {
		log.Fatal(err)
	}
	record, err := lock.Inspect(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(lock.Break(ctx, record.Token)) // exactly that term
	record, err = lock.Inspect(ctx)
	fmt.Println(record.Token, record.Released(), err)
	// Output:
	// <nil>
	// 1 true <nil>
}

func ExampleNewS3Store() {
	// For AWS, make the client with config.LoadDefaultConfig of aws-sdk-go-v2/config. Any other
	// server needs an endpoint.
	client := s3.New(s3.Options{
		BaseEndpoint: aws.String("http://127.0.0.1:9000"),
		UsePathStyle: true,
		Region:       "us-east-1",
	})
	store := leasehold.NewS3Store(client, "my-bucket", leasehold.WithKeyPrefix("locks/"))
	_, err := leasehold.NewLock(store, "reports")
	fmt.Println(err)
	// Output: <nil>
}

func ExampleCheckStore() {
	store := leasehold.NewMemStore() // in production NewS3Store
	report, err := leasehold.CheckStore(context.Background(), store, "locks/check")
	fmt.Println(report.ConditionalPuts, report.ConditionalDeletes, len(report.Leftover), err)
	// Output: true true 0 <nil>
}

func ExampleWithObserver() {
	store := leasehold.NewMemStore() // in production NewS3Store
	ctx := context.Background()
	var requests, terms int
	lock, err := leasehold.NewLock(store, "locks/observed",
		leasehold.WithObserver(func(_ context.Context, e leasehold.Event) {
			switch e.Kind { // called on several goroutines, if the program keeps a lease
			case leasehold.EventRequest:
				requests++
			case leasehold.EventAcquired:
				terms++
			}
		}))
	if err != nil {
		log.Fatal(err)
	}
	err = lock.Do(ctx, func(context.Context, *leasehold.Lease) error { return nil })
	fmt.Println(requests, "requests,", terms, "term,", err)
	// Output: 3 requests, 1 term, <nil>
}
