package itest_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/fenced"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
	"github.com/leasehold-go/leasehold/storetest"
)

// TestCeph runs what other tests run on MinIO and VersityGW on Ceph's gateway, which wants ETags
// without quotes, answers 500 to whoever loses a race, deletes on any condition, and takes no
// condition for bodies in parts.
func TestCeph(t *testing.T) {
	t.Parallel()
	server := testserver.Radosgw(t)
	run := func(name string, test func(t *testing.T)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
	run("store", func(t *testing.T) {
		busy(t)
		store := leasehold.NewS3Store(server.Client(), server.Bucket(t))
		storetest.Run(t, func(*testing.T) leasehold.Store {
			return store
		}, storetest.Rounds(raceRounds), storetest.IgnoresDeleteCondition(), storetest.MissingIsPreconditionFailed())
	})
	run("check", func(t *testing.T) {
		store := leasehold.NewS3Store(server.Client(), server.Bucket(t))
		report, err := leasehold.CheckStore(t.Context(), store, "locks/check")
		require.NoError(t, err)
		require.True(t, report.ConditionalPuts)
		require.False(t, report.ConditionalDeletes)
		require.True(t, report.BareETags)
		require.Empty(t, report.Leftover)
	})
	run("default retention", func(t *testing.T) { defaultRetention(t, server) })
	run("contention", func(t *testing.T) { contention(t, server) })
	run("ambiguous writes", func(t *testing.T) { ambiguousWrites(t, linksOnS3(server)) })
	run("linearizable register", func(t *testing.T) { linearizableRegister(t, server.Name, false, onS3(t, server)) })
	run("linearizable lock", func(t *testing.T) { linearizableLock(t, server.Name, onS3(t, server)) })
	run("suspended process", func(t *testing.T) {
		bucket := server.Bucket(t)
		suspend(t, leasehold.NewS3Store(server.Client(), bucket), append(holderEnv(server, bucket), "HOLDER_MANUAL=1"))
	})
	run("table of a process", func(t *testing.T) { tableOfAProcess(t, server) })
	run("held-back DELETE of a member", func(t *testing.T) { heldBackDelete(t, server) })
	run("fenced writes", func(t *testing.T) { fencedWrites(t, server, 0) })
	run("fenced writes of large bodies", func(t *testing.T) {
		store := openFenced(t, server.Client(), server.Bucket(t), fenced.PaddedBodies)
		large := make([]byte, 9<<20)
		err := store.Put(t.Context(), 1, "dump", bytes.NewReader(large))
		require.ErrorIs(t, err, leasehold.ErrUnsafeStore)
		require.ErrorContains(t, err, "If-Match of CompleteMultipartUpload")
		_, err = store.Get(t.Context(), "dump")
		require.ErrorIs(t, err, leasehold.ErrNotExist, "nothing was written")
	})
}
