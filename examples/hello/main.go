// Command hello does ten seconds of work that one process at a time may do. Run it in two
// terminals.
package main

import (
	"context"
	"log"
	"time"

	"github.com/leasehold-go/leasehold"
)

func main() {
	store := leasehold.NewFileStore(".") // in a bucket: leasehold.NewS3Store(s3.NewFromConfig(cfg), "my-bucket")
	lock, err := leasehold.NewLock(store, "hello")
	if err != nil {
		log.Fatal(err)
	}
	err = lock.Do(context.Background(), func(ctx context.Context, lease *leasehold.Lease) error {
		log.Print("I alone work now, with token ", lease.Token())
		time.Sleep(10 * time.Second) // your work; let it stop when ctx ends, because the lease is lost then
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
}
