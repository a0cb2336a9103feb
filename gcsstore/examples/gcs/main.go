// Command gcs is a candidate in an election through a bucket of Google Cloud Storage: "gcs
// my-bucket". Start it twice and stop the leader. It takes credentials from the environment and
// honours STORAGE_EMULATOR_HOST.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/gcsstore"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	flag.Usage = func() { fmt.Fprintln(flag.CommandLine.Output(), "Usage: gcs BUCKET") }
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(ctx, flag.Arg(0)); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, bucket string) error {
	client, err := gcsstore.NewClient(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	lock, err := leasehold.NewLock(gcsstore.New(client, bucket), "examples/gcs")
	if err != nil {
		return err
	}
	elector, err := leasehold.NewElector(lock, leasehold.Callbacks{
		OnStartedLeading: func(ctx context.Context, lease *leasehold.Lease) {
			fmt.Println("leading with token", lease.Token())
			<-ctx.Done() // the leader's work goes here, and ends when ctx does
		},
		OnStoppedLeading: func(cause error) { fmt.Println("stopped:", cause) },
	})
	if err != nil {
		return err
	}
	return elector.Run(ctx) // until interrupted; then it releases the lock
}
