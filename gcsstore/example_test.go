package gcsstore_test

import (
	"context"
	"io"

	"cloud.google.com/go/storage"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/gcsstore"
)

func ExampleNewFencedStore() {
	_ = func(ctx context.Context, client *storage.Client, bucket string, lock *leasehold.Lock,
		report io.ReadSeeker) error {
		files, err := gcsstore.NewFencedStore(client, bucket)
		if err != nil {
			return err
		}
		return lock.Do(ctx, func(ctx context.Context, lease *leasehold.Lease) error {
			if err := files.Seal(ctx, lease.Token(), "report.json"); err != nil { // before reading
				return err
			}
			return files.Put(ctx, lease.Token(), "report.json", report)
		})
	}
}

// The client of NewClient reads by the JSON API and shows the store every reply.
func ExampleNew() {
	_ = func(ctx context.Context, migrate func(ctx context.Context, token uint64) error) error {
		client, err := gcsstore.NewClient(ctx) // with application default credentials
		if err != nil {
			return err
		}
		defer client.Close()
		store := gcsstore.New(client, "my-bucket", gcsstore.WithKeyPrefix("locks/"))
		lock, err := leasehold.NewLock(store, "migration")
		if err != nil {
			return err
		}
		return lock.Do(ctx, func(ctx context.Context, lease *leasehold.Lease) error {
			return migrate(ctx, lease.Token()) // ctx ends if the lease is lost
		})
	}
}
