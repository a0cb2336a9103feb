package azblobstore

import (
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"

	"github.com/leasehold-go/leasehold/fenced"
)

// NewFencedBackend returns the Backend of NewFencedStore.
func NewFencedBackend(client *azblob.Client, containerName string) fenced.Backend {
	return fencedBackend{New(client, containerName)}
}
