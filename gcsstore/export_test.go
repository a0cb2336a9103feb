package gcsstore

import (
	"time"

	"cloud.google.com/go/storage"

	"github.com/leasehold-go/leasehold/fenced"
)

// NewFencedBackend returns the Backend of NewFencedStore.
func NewFencedBackend(client *storage.Client, bucket string) fenced.Backend {
	return fencedBackend{New(client, bucket)}
}

// WithMinTTL lets tests use short leases on a server without a rate limit.
func WithMinTTL(d time.Duration) Option { return func(s *Store) { s.minTTL = d } }
