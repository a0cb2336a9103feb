package azblobstore_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/azblobstore"
	"github.com/leasehold-go/leasehold/internal/faultproxy"
	"github.com/leasehold-go/leasehold/internal/testserver"
	"github.com/leasehold-go/leasehold/internal/testsize"
	"github.com/leasehold-go/leasehold/storetest"
)

// azurite is Microsoft's emulator of Azure Storage, as a process.
type azurite struct {
	testserver.Azurite
	t *testing.T
}

func startAzurite(t *testing.T, flags ...string) azurite {
	t.Helper()
	return azurite{testserver.StartAzurite(t, flags...), t}
}

// connect returns a client with connections of its own. decide, which may be nil, makes requests go wrong.
func (a azurite) connect(decide func(*http.Request) faultproxy.Fault) (*azblob.Client, *faultproxy.Transport) {
	a.t.Helper()
	connections := &http.Transport{MaxIdleConnsPerHost: 64}
	a.t.Cleanup(connections.CloseIdleConnections)
	if decide == nil {
		decide = func(*http.Request) faultproxy.Fault { return faultproxy.Fault{} }
	}
	network := &faultproxy.Transport{Base: connections, Decide: decide}
	a.t.Cleanup(network.Wait)
	return newClient(a.t, a.Endpoint, &http.Client{Transport: network}), network
}

// newContainer makes a container, whose name the parts of one test share.
func (a azurite) newContainer() {
	a.t.Helper()
	client, _ := a.connect(nil)
	_, err := client.CreateContainer(a.t.Context(), container, nil)
	require.NoError(a.t, err)
}

func TestConformsOnAzurite(t *testing.T) {
	a := startAzurite(t, testserver.AnyAPIVersion)
	a.newContainer()
	client, _ := a.connect(nil)
	store := azblobstore.New(client, container, azblobstore.WithServerClock(2*time.Second))
	storetest.Run(t, func(*testing.T) leasehold.Store { return store }, storetest.Rounds(40), storetest.MissingIsPreconditionFailed())
}

// Candidates with connections of their own take turns on one lock. One is inside, and tokens rise by one.
func TestContentionOnAzurite(t *testing.T) {
	a := startAzurite(t, testserver.AnyAPIVersion)
	a.newContainer()
	const candidates = 8
	terms := testsize.Pick(40, 800)
	var inside, taken atomic.Int64
	var last uint64 // of who is inside
	var all sync.WaitGroup
	for i := range candidates {
		client, _ := a.connect(nil)
		lock, err := leasehold.NewLock(azblobstore.New(client, container), key, leasehold.WithIdentity(fmt.Sprint("c", i)),
			leasehold.WithPollInterval(50*time.Millisecond), leasehold.WithLogger(nil))
		require.NoError(t, err)
		all.Go(func() {
			for taken.Load() < int64(terms) {
				err := lock.Do(t.Context(), func(_ context.Context, lease *leasehold.Lease) error {
					assert.EqualValues(t, 1, inside.Add(1), "two are inside")
					assert.Equal(t, last+1, lease.Token())
					last = lease.Token()
					taken.Add(1)
					inside.Add(-1)
					return nil
				})
				assert.NoError(t, err)
			}
		})
	}
	all.Wait()
	t.Logf("%d terms", taken.Load())
}

// Every third write loses its reply, in one way or another. No term is lost or doubled.
func TestWritesOfUnknownOutcomeOnAzurite(t *testing.T) {
	a := startAzurite(t, testserver.AnyAPIVersion)
	a.newContainer()
	faults := []faultproxy.Fault{
		{Kind: faultproxy.DropReply}, {Kind: faultproxy.AnswerAfter, Status: http.StatusInternalServerError},
		{Kind: faultproxy.AnswerAfter, Status: http.StatusServiceUnavailable}, {Kind: faultproxy.Ghost, Before: 100 * time.Millisecond},
	}
	var puts atomic.Int64
	client, network := a.connect(func(r *http.Request) faultproxy.Fault {
		if r.Method != http.MethodPut {
			return faultproxy.Fault{}
		}
		if n := puts.Add(1); n%3 == 0 {
			return faults[n/3%int64(len(faults))]
		}
		return faultproxy.Fault{}
	})
	lock, err := leasehold.NewLock(azblobstore.New(client, container), key, leasehold.WithPollInterval(time.Second), leasehold.WithLogger(nil))
	require.NoError(t, err)
	for i := range testsize.Pick(12, 60) {
		err := lock.Do(t.Context(), func(_ context.Context, lease *leasehold.Lease) error {
			assert.EqualValues(t, i+1, lease.Token())
			return lease.Renew(t.Context())
		})
		require.NoError(t, err)
	}
	network.Wait()
	rec, err := lock.Inspect(t.Context())
	require.NoError(t, err)
	require.True(t, rec.Released())
}

// A holder is cut off, and a candidate gets the lock.
func TestTakeoverOnAzurite(t *testing.T) {
	a := startAzurite(t, testserver.AnyAPIVersion)
	a.newContainer()
	var cut atomic.Bool
	process := func(decide func(*http.Request) faultproxy.Fault) *leasehold.Lock {
		client, _ := a.connect(decide)
		lock, err := leasehold.NewLock(azblobstore.New(client, container), key, leasehold.WithTTL(5*time.Second), leasehold.WithLogger(nil))
		require.NoError(t, err)
		return lock
	}
	held, err := process(func(*http.Request) faultproxy.Fault {
		if cut.Load() {
			return faultproxy.Fault{Kind: faultproxy.Refuse}
		}
		return faultproxy.Fault{}
	}).Acquire(t.Context())
	require.NoError(t, err)
	cut.Store(true)
	next, err := process(nil).Acquire(t.Context())
	require.NoError(t, err)
	require.False(t, held.Valid())
	require.True(t, next.Valid())
	require.Greater(t, next.Token(), held.Token())
	require.NoError(t, next.Release(t.Context()))
}

// What Azurite says of settings that cannot work.
func TestErrorsOnAzurite(t *testing.T) {
	a := startAzurite(t, testserver.AnyAPIVersion)
	a.newContainer()
	get := func(client *azblob.Client, container string) error {
		_, err := azblobstore.New(client, container).Get(t.Context(), key)
		return err
	}
	client, _ := a.connect(nil)
	err := get(client, "another")
	requireOnly(t, leasehold.ErrPermanent, err)
	require.ErrorContains(t, err, "create the container")

	wrong, err := azblob.NewSharedKeyCredential(account, "d3Jvbmc=")
	require.NoError(t, err)
	other, err := azblob.NewClientWithSharedKeyCredential(a.Endpoint, wrong, nil)
	require.NoError(t, err)
	err = get(other, container)
	requireOnly(t, leasehold.ErrPermanent, err)
	require.ErrorContains(t, err, "check the account key")

	strict := startAzurite(t) // knows versions of the API up to its own
	client, _ = strict.connect(nil)
	if err = get(client, container); !strings.Contains(err.Error(), "create the container") { // else it knows this version
		requireOnly(t, leasehold.ErrPermanent, err)
		require.ErrorContains(t, err, testserver.AnyAPIVersion)
	}
}
