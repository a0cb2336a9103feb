package azblobstore_test

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/azblobstore"
	"github.com/leasehold-go/leasehold/internal/testkit/bubble"
	"github.com/leasehold-go/leasehold/internal/testkit/faultproxy"
	"github.com/leasehold-go/leasehold/internal/testkit/locktest"
)

const ttl = 15 * time.Second // of locks, by default

// process returns a lock over a connection of its own, which can be cut.
func process(t *testing.T, server http.Handler, name string, opts ...leasehold.Option) (*leasehold.Lock, *wire) {
	w := newWire(t, server)
	store := azblobstore.New(w.client, container, azblobstore.WithServerClock(2*time.Second))
	lock, err := leasehold.NewLock(store, key, append([]leasehold.Option{leasehold.WithHolder(name),
		leasehold.WithLogger(slog.New(slog.DiscardHandler))}, opts...)...)
	require.NoError(t, err)
	return lock, w
}

func TestElectorMovesOnWhenItsLeaderIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &fakeAzure{}
		locktest.LeaderCutOff(t, ttl, func(name string) (*leasehold.Lock, func(bool)) {
			lock, w := process(t, server, name)
			return lock, func(off bool) {
				fault := faultproxy.Fault{}
				if off {
					fault.Kind = faultproxy.Refuse
				}
				w.FailAlways(fault)
			}
		})
	})
}

func TestNewcomerTakesAnExpiredLockOverAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &fakeAzure{ahead: time.Hour}
		locktest.Newcomer(t, ttl, func(name string, opts ...leasehold.Option) (*leasehold.Lock, func() int) {
			lock, w := process(t, server, name, opts...)
			return lock, func() int { return w.Count() }
		})
	})
}

// Writes whose outcome is unknown neither lose the lock nor give it to two: the lock reads, and
// finds its own nonce or not.
func TestWritesOfUnknownOutcomeAreResolved(t *testing.T) {
	for name, fault := range map[string]faultproxy.Fault{
		"reply lost":         {Kind: faultproxy.DropReply},
		"500 though written": {Kind: faultproxy.AnswerAfter, Status: http.StatusInternalServerError},
		"503 though written": {Kind: faultproxy.AnswerAfter, Status: http.StatusServiceUnavailable},
		"page of a proxy":    {Kind: faultproxy.AnswerAfter, Status: http.StatusForbidden},
		"412 of a proxy":     {Kind: faultproxy.AnswerAfter, Status: http.StatusPreconditionFailed},
		"404 of a proxy":     {Kind: faultproxy.AnswerAfter, Status: http.StatusNotFound},
		"not written":        {Kind: faultproxy.Answer, Status: http.StatusServiceUnavailable},
		"written late":       {Kind: faultproxy.Ghost, Before: time.Second},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			server := &fakeAzure{}
			alice, w := process(t, server, "alice")
			defer w.Wait()
			var puts atomic.Int32
			w.Decide = func(r *http.Request) faultproxy.Fault {
				if r.Method == http.MethodPut && puts.Add(1)%2 == 1 { // every second write, the first among them
					return fault
				}
				return faultproxy.Fault{}
			}
			lease, err := alice.Acquire(t.Context())
			require.NoError(t, err)
			require.EqualValues(t, 1, lease.Token())
			time.Sleep(20 * ttl)
			require.True(t, lease.Valid(), "%v", context.Cause(lease.Context()))
			require.Greater(t, puts.Load(), int32(40))
			bob, _ := process(t, server, "bob")
			_, err = bob.TryAcquire(t.Context())
			require.ErrorIs(t, err, leasehold.ErrHeld)
			require.NoError(t, lease.Release(t.Context()))
			next, err := bob.Acquire(t.Context())
			require.NoError(t, err)
			require.EqualValues(t, 2, next.Token())
			require.NoError(t, next.Release(t.Context()))
		})
	}
}

// An Azure lease on the blob is not a lock of leasehold. Its holder neither wins nor loses by it:
// whoever needs to write is told.
func TestBlobThatSomebodyLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &fakeAzure{}
		alice, _ := process(t, server, "alice")
		lease, err := alice.Acquire(t.Context())
		require.NoError(t, err)
		server.plant(key, nil, func(b *fakeBlob) { b.leased = true })
		_, err = alice.TryAcquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrHeld)
		err = lease.Renew(t.Context())
		require.ErrorContains(t, err, "break the lease")
		<-lease.Context().Done()
		bob, _ := process(t, server, "bob")
		ctx, cancel := context.WithTimeout(t.Context(), 10*ttl)
		defer cancel()
		_, err = bob.Acquire(ctx)
		require.ErrorContains(t, err, "break the lease")
		require.NotErrorIs(t, err, leasehold.ErrPermanent)
		server.plant(key, nil, func(b *fakeBlob) { b.endless = true })
		carol, _ := process(t, server, "carol")
		ctx, cancel = context.WithTimeout(t.Context(), 2*ttl) // enough for its first write
		defer cancel()
		_, err = carol.Acquire(ctx)
		require.ErrorIs(t, err, leasehold.ErrPermanent)
		require.ErrorContains(t, err, "break the lease")
		_, err = carol.Inspect(t.Context())
		require.NoError(t, err, "reads go on")
		server.plant(key, nil, func(b *fakeBlob) { b.leased = false })
		next, err := bob.Acquire(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 2, next.Token())
		require.NoError(t, next.Release(t.Context()))
	})
}

// Whoever wants to create a blob whose upload has begun elsewhere has lost a race. The upload may
// still break off.
func TestCreateBesideAnUploadThatHasNotEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &fakeAzure{}
		upload := func(name string) {
			server.mu.Lock()
			defer server.mu.Unlock()
			server.goingUp = name
		}
		upload(key)
		alice, _ := process(t, server, "alice")
		hurried, cancel := context.WithTimeout(t.Context(), time.Second) // no time to wait for the upload
		defer cancel()
		_, err := alice.TryAcquire(hurried)
		require.ErrorIs(t, err, leasehold.ErrHeld)
		time.AfterFunc(10*time.Second, func() { upload("") })
		lease, err := alice.Acquire(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 1, lease.Token())
		require.NoError(t, lease.Release(t.Context()))
	})
}

func TestTableOnStrictServer(t *testing.T) {
	locktest.Table(t, azblobstore.New(newWire(t, &fakeAzure{}).client, container))
}
