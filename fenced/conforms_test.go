package fenced_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/fenced"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
	"github.com/leasehold-go/leasehold/storetest"
)

// The backend for S3 keeps what a Backend of another author is held to, also for bodies that go in
// parts.
func TestS3BackendConforms(t *testing.T) {
	server, _ := testserver.StartMinIO(t)
	bucket, client := server.Bucket(t), server.Client()
	storetest.RunFenced(t, func(t *testing.T) fenced.Backend {
		s, err := fenced.NewS3Store(client, bucket, fenced.PaddedBodies)
		require.NoError(t, err)
		return s.Backend()
	}, 9<<20)
}
