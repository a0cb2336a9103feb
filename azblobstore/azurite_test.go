package azblobstore_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/azblobstore"
	"github.com/leasehold-go/leasehold/fenced"
	"github.com/leasehold-go/leasehold/internal/testkit/faultproxy"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
	"github.com/leasehold-go/leasehold/internal/testkit/testsize"
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

// connect returns a client with connections of its own. decide, which may be nil, makes requests go
// wrong.
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
	storetest.Run(t, func(*testing.T) leasehold.Store {
		return store
	}, storetest.Rounds(40), storetest.MissingIsPreconditionFailed())
}

// Candidates with connections of their own take turns on one lock. One is inside, and tokens rise
// by one.
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
		lock, err := leasehold.NewLock(azblobstore.New(client, container), key,
			leasehold.WithHolder(fmt.Sprint("c", i)),
			leasehold.WithPollInterval(50*time.Millisecond), leasehold.WithLogger(slog.New(slog.DiscardHandler)))
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

// A holder is cut off, and a candidate gets the lock.
func TestTakeoverOnAzurite(t *testing.T) {
	a := startAzurite(t, testserver.AnyAPIVersion)
	a.newContainer()
	var cut atomic.Bool
	process := func(decide func(*http.Request) faultproxy.Fault) *leasehold.Lock {
		client, _ := a.connect(decide)
		lock, err := leasehold.NewLock(azblobstore.New(client, container), key, leasehold.WithTTL(5*time.Second),
			leasehold.WithLogger(slog.New(slog.DiscardHandler)))
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

// A blob that somebody is uploading in blocks is there for creates and not for reads.
func TestCreateBesideAnUploadOnAzurite(t *testing.T) {
	a := startAzurite(t, testserver.AnyAPIVersion)
	a.newContainer()
	mem := leasehold.NewMemStore()
	first, err := leasehold.NewLock(mem, key)
	require.NoError(t, err)
	require.NoError(t, first.Do(t.Context(), func(context.Context, *leasehold.Lease) error { return nil }))
	record, err := mem.Get(t.Context(), key)
	require.NoError(t, err)

	client, _ := a.connect(nil)
	blob := client.ServiceClient().NewContainerClient(container).NewBlockBlobClient(key)
	const id = "MDAwMA=="
	_, err = blob.StageBlock(t.Context(), id, streaming.NopCloser(bytes.NewReader(record.Body)), nil)
	require.NoError(t, err)
	lock, err := leasehold.NewLock(azblobstore.New(client, container), key, leasehold.WithPollInterval(time.Second))
	require.NoError(t, err)
	soon, cancel := context.WithTimeout(t.Context(), 5*time.Second) // too soon to outlast the upload
	defer cancel()
	_, err = lock.TryAcquire(soon)
	require.ErrorIs(t, err, leasehold.ErrHeld)
	require.ErrorContains(t, err, "another candidate is creating it")
	_, err = blob.CommitBlockList(t.Context(), []string{id}, nil)
	require.NoError(t, err)
	lease, err := lock.Acquire(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2, lease.Token())
	require.NoError(t, lease.Release(t.Context()))
}

// With a token of Microsoft Entra a lock and a fenced object work. A token that is not for storage
// is a permanent error.
func TestMicrosoftEntraOnAzurite(t *testing.T) {
	a, certificate := testserver.StartAzuriteForTokens(t, testserver.AnyAPIVersion)
	roots := x509.NewCertPool()
	public, err := os.ReadFile(certificate)
	require.NoError(t, err)
	require.True(t, roots.AppendCertsFromPEM(public))
	network := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	t.Cleanup(network.CloseIdleConnections)
	options := &azblob.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: &http.Client{Transport: network}}}
	open := func(credential azcore.TokenCredential) *azblob.Client {
		client, err := azblob.NewClient(a.Endpoint, credential, options)
		require.NoError(t, err)
		return client
	}
	for name, value := range testserver.ManagedIdentity(t, "https://storage.azure.com") {
		t.Setenv(name, value)
	}
	credential, err := azidentity.NewDefaultAzureCredential(nil)
	require.NoError(t, err)
	client := open(credential)
	_, err = client.CreateContainer(t.Context(), container, nil)
	require.NoError(t, err)
	lock, err := leasehold.NewLock(azblobstore.New(client, container), key)
	require.NoError(t, err)
	files, err := azblobstore.NewFencedStore(client, container)
	require.NoError(t, err)
	require.NoError(t, lock.Do(t.Context(), func(ctx context.Context, lease *leasehold.Lease) error {
		require.NoError(t, lease.Renew(ctx))
		return files.Put(ctx, lease.Token(), "report", strings.NewReader("{}"))
	}))

	store := azblobstore.New(open(token(testserver.EntraToken("https://management.azure.com/"))), container)
	for call, do := range storeCalls {
		_, err := do(t.Context(), store, `"0x1"`)
		requireOnly(t, leasehold.ErrPermanent, err)
		require.ErrorContains(t, err, "Invalid token audience", call)
		require.ErrorContains(t, err, "check that the token is for https://storage.azure.com", call)
	}
}

// What cannot work is told at once, by all methods, with cause and cure. Azurite has neither a
// firewall nor immutable blobs.
func TestErrorsOnAzurite(t *testing.T) {
	a := startAzurite(t, testserver.AnyAPIVersion)
	a.newContainer()
	client, _ := a.connect(nil)
	store := azblobstore.New(client, container)
	etag, err := store.PutIfNoneMatch(t.Context(), key, []byte("{}"))
	require.NoError(t, err)
	as := func(endpoint, name, key string) *azblob.Client {
		credential, err := azblob.NewSharedKeyCredential(name, key)
		require.NoError(t, err)
		client, err := azblob.NewClientWithSharedKeyCredential(endpoint, credential, nil)
		require.NoError(t, err)
		return client
	}
	signed := func(may sas.AccountPermissions, expires time.Time) *azblob.Client {
		url, err := client.ServiceClient().GetSASURL(sas.AccountResourceTypes{Object: true}, may, expires, nil)
		require.NoError(t, err)
		client, err := azblob.NewClientWithNoCredential(url, nil)
		require.NoError(t, err)
		return client
	}
	all := sas.AccountPermissions{Read: true, Create: true, Write: true, Delete: true}
	old := startAzurite(t) // knows versions of the API up to its own
	outdated, _ := old.connect(nil)
	const calls = "Get PutIfNoneMatch PutIfMatch DeleteIfMatch"
	for name, c := range map[string]struct {
		store *azblobstore.Store
		calls string
		say   string
	}{
		"missing container": {azblobstore.New(client, "another"), calls, "create the container"},
		"wrong key": {azblobstore.New(as(a.Endpoint, account, "d3Jvbmc="), container), calls,
			"check the account key"},
		"unknown account": {
			azblobstore.New(as(strings.Replace(a.Endpoint, account, "nobody", 1), "nobody", a.Key), container),
			calls,
			"check the account's name",
		},
		"secondary": {azblobstore.New(as(a.Endpoint+"-secondary", account, a.Key), container), calls,
			"secondary region"},
		"SAS that may read": {
			azblobstore.New(signed(sas.AccountPermissions{Read: true}, time.Now().Add(time.Hour)), container),
			"PutIfNoneMatch PutIfMatch DeleteIfMatch",
			"of a SAS",
		},
		"SAS that may write": {
			azblobstore.New(signed(sas.AccountPermissions{Write: true}, time.Now().Add(time.Hour)), container),
			"Get DeleteIfMatch",
			"of a SAS",
		},
		"expired SAS": {azblobstore.New(signed(all, time.Now().Add(-time.Minute)), container), calls,
			"the SAS and its expiry"},
		"unknown API version": {azblobstore.New(outdated, container), calls, testserver.AnyAPIVersion},
	} {
		for call, do := range storeCalls {
			if !strings.Contains(" "+c.calls+" ", " "+call+" ") {
				continue
			}
			began := time.Now()
			_, err := do(t.Context(), c.store, etag)
			require.Less(t, time.Since(began), 5*time.Second, "no retries")
			if name == "unknown API version" && strings.Contains(err.Error(), "create the container") {
				continue // it is as new as the SDK
			}
			requireOnly(t, leasehold.ErrPermanent, err)
			require.ErrorContains(t, err, c.say, "%s, %s", name, call)
		}
	}
	_, err = azblobstore.New(signed(all, time.Now().Add(time.Hour)), container).Get(t.Context(), key)
	require.NoError(t, err, "a SAS that may do all")

	blobs := client.ServiceClient().NewContainerClient(container)
	leased, err := lease.NewBlobClient(blobs.NewBlobClient(key), nil)
	require.NoError(t, err)
	files, err := azblobstore.NewFencedStore(client, container, fenced.WithAdoption())
	require.NoError(t, err)
	for _, c := range []struct {
		seconds int32
		want    error
	}{{-1, leasehold.ErrPermanent}, {60, nil}} {
		_, err = leased.AcquireLease(t.Context(), c.seconds, nil)
		require.NoError(t, err)
		_, err = store.Get(t.Context(), key)
		require.NoError(t, err, "reads go on")
		_, err = store.PutIfMatch(t.Context(), key, []byte("{}"), etag)
		requireOnly(t, c.want, err)
		require.ErrorContains(t, err, "break the lease")
		if c.want != nil {
			err := files.Seal(t.Context(), 1, key)
			require.ErrorIs(t, err, c.want)
			require.ErrorContains(t, err, "break the lease")
		}
		_, err = leased.BreakLease(t.Context(), &lease.BlobBreakOptions{BreakPeriod: to.Ptr(int32(0))})
		require.NoError(t, err)
		_, err = store.Get(t.Context(), key)
		require.NoError(t, err)
		etag, err = store.PutIfMatch(t.Context(), key, []byte("{}"), etag)
		require.NoError(t, err)
	}

	_, err = blobs.NewPageBlobClient("page").Create(t.Context(), 512, nil)
	require.NoError(t, err)
	lock, err := leasehold.NewLock(store, "page")
	require.NoError(t, err)
	_, err = lock.Acquire(t.Context())
	require.ErrorIs(t, err, leasehold.ErrPermanent)
	require.ErrorContains(t, err, "page or append blob")
}
