package azblobstore_test

import (
	"context"
	"io"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/azblobstore"
)

func ExampleNew() {
	_ = func(ctx context.Context, migrate func(ctx context.Context, token uint64) error) error {
		credential, err := azidentity.NewDefaultAzureCredential(nil)
		if err != nil {
			return err
		}
		client, err := azblob.NewClient("https://myaccount.blob.core.windows.net", credential, nil)
		if err != nil {
			return err
		}
		store := azblobstore.New(client, "my-container", azblobstore.WithKeyPrefix("locks/"))
		lock, err := leasehold.NewLock(store, "migration")
		if err != nil {
			return err
		}
		return lock.Do(ctx, func(ctx context.Context, lease *leasehold.Lease) error {
			return migrate(ctx, lease.Token()) // ctx ends if the lease is lost
		})
	}
}

func ExampleNewFencedStore() {
	_ = func(ctx context.Context, client *azblob.Client, lock *leasehold.Lock, report io.ReadSeeker) error {
		files, err := azblobstore.NewFencedStore(client, "my-container")
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
