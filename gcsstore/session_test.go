package gcsstore_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/gcsstore"
	"github.com/leasehold-go/leasehold/internal/faultproxy"
)

// openSession runs a session over a connection of its own until end is called, which waits for its release.
func openSession(t *testing.T, server http.Handler, name string, opts ...leasehold.Option) (s *leasehold.Session, w *wire, end func()) {
	t.Helper()
	w = newWire(t, server)
	s, err := leasehold.NewSession(gcsstore.New(w.client, bucket), "sessions/"+name, append([]leasehold.Option{
		leasehold.WithIdentity(name), leasehold.WithLogger(nil)}, opts...)...)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		assert.NoError(t, s.Run(ctx))
	}()
	end = func() {
		cancel()
		<-over
	}
	t.Cleanup(end)
	return s, w, end
}

// acquireAll acquires 20 locks that lean on s.
func acquireAll(t *testing.T, s *leasehold.Session, within time.Duration) (leases []*leasehold.Lease) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	for i := range 20 {
		lock, err := s.Lock(fmt.Sprint("locks/", i))
		require.NoError(t, err)
		lease, err := lock.Acquire(ctx)
		require.NoError(t, err)
		leases = append(leases, lease)
	}
	return leases
}

func TestSessionsWithinTheRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &fakeGCS{limited: true}
		minimum := leasehold.WithTTL(gcsstore.New(newWire(t, server).client, bucket).MinTTL())
		a, first, _ := openSession(t, server, "a", minimum)
		leases := acquireAll(t, a, time.Minute)
		before := len(first.Requests())
		time.Sleep(10 * time.Minute)
		puts := 0
		for _, r := range first.Requests()[before:] {
			if r.Method == http.MethodPost {
				require.Contains(t, r.Path, "/upload/", "only the session writes")
				puts++
			}
		}
		require.InDelta(t, 300, puts, 30, "a renewal every 2 s for all the locks")
		require.Zero(t, server.throttled)

		first.failAll(faultproxy.Fault{Kind: faultproxy.Refuse})
		b, _, endB := openSession(t, server, "b", minimum)
		next := acquireAll(t, b, 20*time.Second)
		for i, lease := range next {
			require.ErrorIs(t, context.Cause(leases[i].Context()), leasehold.ErrLost)
			require.EqualValues(t, 2, lease.Token())
		}
		first.failAll(faultproxy.Fault{})
		endB()
		for _, lease := range next {
			require.ErrorIs(t, context.Cause(lease.Context()), leasehold.ErrReleased)
		}
		for _, lease := range acquireAll(t, a, 10*time.Second) {
			require.EqualValues(t, 3, lease.Token())
		}
	})
}
