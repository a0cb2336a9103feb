// Command criticalsection is a one-shot job that must not run twice at once, such as a migration: several instances are
// started together, each does its part under the lock, one after the other.
//
//	go run ./examples/criticalsection
//	go run ./examples/criticalsection -s3 http://127.0.0.1:9000 -bucket locks     (in several terminals)
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/examples/internal/storeflag"
	"github.com/leasehold-go/leasehold/fenced"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "criticalsection:", err)
		}
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("criticalsection", flag.ContinueOnError)
	where := storeflag.Add(flags)
	jobs := flags.Int("jobs", 3, "instances of the job to start at once")
	if err := flags.Parse(args); err != nil {
		return err
	}
	store, err := where.Open()
	if err != nil {
		return err
	}

	var table account
	errs := make([]error, *jobs)
	var wg sync.WaitGroup
	for i := range *jobs {
		wg.Go(func() { errs[i] = job(ctx, fmt.Sprint("job ", i+1), store, &table, out) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// job waits for its turn, does its work, and hands over.
func job(ctx context.Context, name string, store leasehold.Store, table *account, out io.Writer) error {
	lock, err := leasehold.NewLock(store, "examples/criticalsection", leasehold.WithPollInterval(200*time.Millisecond))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute) // for the wait and the work
	defer cancel()
	return lock.Do(ctx, func(ctx context.Context, lease *leasehold.Lease) error {
		balance := table.read()
		select { // the work, which ends early if the lease is lost
		case <-time.After(300 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := table.write(lease.Token(), balance+100); err != nil {
			return err
		}
		_, err := fmt.Fprintf(out, "%s with token %d: balance %d -> %d\n", name, lease.Token(), balance, balance+100)
		return err
	})
}

// account is the resource. It keeps the highest token with its data, and so refuses a job that has overslept its lease.
type account struct {
	fence fenced.Fence

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
