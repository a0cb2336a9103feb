// Command criticalsection shows a one-shot job that must not run twice at once, such as a
// migration: several instances start together, one holds the lock and works, and the others wait
// until the lock is released.
//
//	go run ./examples/criticalsection
//	go run ./examples/criticalsection -s3 http://127.0.0.1:9000 -bucket locks
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/examples/internal/stage"
	"github.com/leasehold-go/leasehold/examples/internal/storeflag"
)

func main() { stage.Main("criticalsection", run) }

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("criticalsection", flag.ContinueOnError)
	where := storeflag.Add(flags, "Criticalsection shows jobs that start together, wait for one lock, and run one "+
		"after the other.")
	jobs := flags.Int("jobs", 3, "number of jobs to start")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *jobs < 1 {
		return fmt.Errorf("-jobs is %d, but at least one job is needed", *jobs)
	}
	store, err := where.Open(ctx)
	if err != nil {
		return err
	}

	fmt.Fprintf(out, "Process %d starts %d job(s) at once, with one lock %s.\n\n", os.Getpid(), *jobs, where.Place())
	log := stage.NewTimeline(out)
	var table account
	errs := make([]error, *jobs)
	var wg sync.WaitGroup
	for i := range *jobs {
		wg.Go(func() { errs[i] = job(ctx, fmt.Sprint("job ", i+1), store, &table, log) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// job waits for the lock, does its work, and releases the lock.
func job(ctx context.Context, name string, store leasehold.Store, table *account, log *stage.Timeline) error {
	me := fmt.Sprintf("%s of process %d", name, os.Getpid())
	lock, err := leasehold.NewLock(store, "examples/criticalsection",
		leasehold.WithHolder(me),
		leasehold.WithPollInterval(200*time.Millisecond),
		leasehold.WithObserver(func(_ context.Context, e leasehold.Event) {
			if e.Kind == leasehold.EventNewLeader && e.Holder != me {
				log.Print(name, "waits, because %s holds the lock (token %d)", e.Holder, e.Token)
			}
		}),
	)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute) // for the wait and the work
	defer cancel()
	began := time.Now()
	err = lock.Do(ctx, func(ctx context.Context, lease *leasehold.Lease) error {
		log.Print(name, "HOLDS the lock (token %d) after %v", lease.Token(), time.Since(began).Round(time.Millisecond))
		balance := table.read()
		select { // the work, which ends early if the lease is lost
		case <-time.After(300 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := table.write(lease.Token(), balance+100); err != nil {
			return err
		}
		log.Print(name, "changes the balance from %d to %d", balance, balance+100)
		return nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	log.Print(name, "has released the lock")
	return nil
}

// account is the resource. It keeps the highest token with its data, so that it refuses a job whose
// lease has ended without the job's knowledge. Each process has its own.
type account struct {
	fence leasehold.Fence

	mu      sync.Mutex
	balance int
}

func (a *account) read() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.balance
}

func (a *account) write(token uint64, balance int) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.fence.Check(token); err != nil {
		return err
	}
	a.balance = balance
	return nil
}
