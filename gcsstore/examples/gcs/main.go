// Command gcs is a candidate in an election through a bucket of Google Cloud Storage: "gcs my-bucket". Start it twice and
// stop the leader. It takes credentials from the environment and honours STORAGE_EMULATOR_HOST.
package main

import (
	"context"
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
	if len(os.Args) != 2 {
		log.Fatal("usage: gcs BUCKET")
	}
	if err := run(ctx, os.Args[1]); err != nil {
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
