// Command azblob is a candidate in an election through a container of Azure Blob Storage: "azblob
// my-container". Start it twice and stop the leader. It takes the account and its key from
// AZURE_STORAGE_CONNECTION_STRING; or the account's URL, such as
// https://myaccount.blob.core.windows.net, from AZURE_STORAGE_ENDPOINT, and Microsoft Entra's
// credentials from the environment.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/azblobstore"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	flag.Usage = func() { fmt.Fprintln(flag.CommandLine.Output(), "Usage: azblob CONTAINER") }
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(ctx, flag.Arg(0)); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, container string) error {
	client, err := newClient()
	if err != nil {
		return err
	}
	lock, err := leasehold.NewLock(azblobstore.New(client, container), "examples/azblob")
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

func newClient() (*azblob.Client, error) {
	if account := os.Getenv("AZURE_STORAGE_CONNECTION_STRING"); account != "" {
		return azblob.NewClientFromConnectionString(account, nil)
	}
	credential, err := azidentity.NewDefaultAzureCredential(nil)
	if err != nil {
		return nil, err
	}
	return azblob.NewClient(os.Getenv("AZURE_STORAGE_ENDPOINT"), credential, nil)
}
