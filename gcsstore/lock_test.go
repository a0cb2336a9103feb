package gcsstore_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/gcsstore"
	"github.com/leasehold-go/leasehold/internal/testkit/faultproxy"
	"github.com/leasehold-go/leasehold/internal/testkit/locktest"
	"github.com/leasehold-go/leasehold/internal/testkit/testctx"
)

// These tests check the promises of a lock on fake-gcs-server in real time. The TTL is 1.5 s, below
// the minimum of 6 s, because that server has no rate limit.
const ttl = 1500 * time.Millisecond

// site is a bucket that several processes share.
type site struct{ bucket string }

func newSite(t *testing.T) site { return site{newWire(t, nil).createBucket(t)} }

// process returns a lock over a network connection of its own, which can be cut.
func (s site) process(t *testing.T, name string, opts ...leasehold.Option) (*leasehold.Lock, *wire) {
	w := newWire(t, nil)
	store := gcsstore.New(w.client, s.bucket, gcsstore.WithMinTTL(500*time.Millisecond),
		gcsstore.WithServerClock(2*time.Second))
	lock, err := leasehold.NewLock(store, key, append([]leasehold.Option{leasehold.WithTTL(ttl),
		leasehold.WithHolder(name)}, opts...)...)
	require.NoError(t, err)
	return lock, w
}

func TestLockBlocksUntilItIsUnlocked(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	alice, _ := s.process(t, "alice", leasehold.WithMetadata(map[string]string{"addr": "10.0.0.7:8200"}))
	bob, _ := s.process(t, "bob")
	lease, err := alice.Acquire(t.Context())
	require.NoError(t, err)

	impatient := testctx.Within(t, ttl/2)
	_, err = bob.Acquire(impatient)
	require.ErrorIs(t, err, leasehold.ErrHeld)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, `"alice"`)

	seen, err := bob.Inspect(t.Context())
	require.NoError(t, err)
	require.Equal(t, "10.0.0.7:8200", seen.Metadata["addr"])

	got := make(chan *leasehold.Lease, 1)
	go func() {
		lease, err := bob.Acquire(testctx.Within(t, 30*time.Second))
		if err == nil {
			got <- lease
		}
		close(got)
	}()
	time.Sleep(2 * ttl) // bob must not acquire, however long he waits, because alice keeps renewing
	require.True(t, lease.Valid())
	require.Empty(t, got)
	later, err := bob.Inspect(t.Context())
	require.NoError(t, err)
	require.Greater(t, later.RenewedAt.Sub(seen.RenewedAt), ttl)
	require.Equal(t, seen.Token, later.Token)

	require.NoError(t, lease.Release(t.Context()))
	next := <-got
	require.NotNil(t, next)
	require.EqualValues(t, lease.Token()+1, next.Token())
	require.NoError(t, next.Release(t.Context()))
}

func TestLossOfALockIsSignalled(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	alice, _ := s.process(t, "alice")
	lease, err := alice.Acquire(t.Context())
	require.NoError(t, err)
	admin, _ := s.process(t, "admin")
	require.NoError(t, admin.Break(t.Context(), lease.Token()))
	select {
	case <-lease.Context().Done():
	case <-time.After(ttl):
		t.Fatal("the lease did not end at the next renewal")
	}
	require.ErrorIs(t, context.Cause(lease.Context()), leasehold.ErrLost)
	require.ErrorContains(t, context.Cause(lease.Context()), "broken by an administrator")
	require.ErrorIs(t, lease.Release(t.Context()), leasehold.ErrLost)
}

func TestNewcomerTakesAnExpiredLockOverAtOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	locktest.Newcomer(t, 2*time.Second, func(name string, opts ...leasehold.Option) (*leasehold.Lock, func() int) {
		lock, w := s.process(t, name, opts...)
		return lock, func() int { return w.Count() }
	})
}

func TestElectorMovesOnWhenItsLeaderIsCutOff(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	locktest.LeaderCutOff(t, ttl, func(name string) (*leasehold.Lock, func(bool)) {
		lock, w := s.process(t, name)
		var isOff atomic.Bool
		w.Decide = func(*http.Request) faultproxy.Fault {
			if isOff.Load() {
				return faultproxy.Fault{Kind: faultproxy.Refuse}
			}
			return faultproxy.Fault{}
		}
		return lock, isOff.Store
	})
}

func TestTableOnStrictServer(t *testing.T) {
	locktest.Table(t, gcsstore.New(newWire(t, &fakeGCS{}).client, bucket))
}
