package fencehttp_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/fencehttp"
)

// TestTokensOfALockUnderSessions has an administrator break the session of one leader, and another process take over.
func TestTokensOfALockUnderSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasehold.NewMemStore() // of the sessions, the lock and the marks
		fence := fencehttp.New(fencehttp.NewStoreMarks(store, "marks/"), byPath)
		h := fence.Middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		lead := func(name string) *leasehold.Lease {
			s, err := leasehold.NewSession(store, "sessions/"+name, leasehold.WithLogger(nil))
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(context.Background())
			over := make(chan struct{})
			go func() {
				defer close(over)
				assert.NoError(t, s.Run(ctx))
			}()
			t.Cleanup(func() {
				cancel()
				<-over
			})
			lock, err := s.Lock("leader")
			require.NoError(t, err)
			lease, err := lock.Acquire(t.Context())
			require.NoError(t, err)
			return lease
		}
		status := func(lease *leasehold.Lease) int {
			return put(t.Context(), h, "/report", fencehttp.Format(lease.Token())).Code
		}
		former := lead("a")
		require.Equal(t, http.StatusOK, status(former))
		admin, err := leasehold.NewLock(store, "sessions/a", leasehold.WithLogger(nil))
		require.NoError(t, err)
		require.NoError(t, admin.Break(t.Context(), former.Record().Session.Token))
		leader := lead("b")
		require.Equal(t, http.StatusOK, status(leader))
		require.Equal(t, http.StatusPreconditionFailed, status(former), "it may not have noticed yet")
		<-former.Context().Done()
		require.ErrorIs(t, context.Cause(former.Context()), leasehold.ErrLost)
		require.Equal(t, http.StatusOK, status(leader))
	})
}
