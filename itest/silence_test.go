package itest_test

import (
	"context"
	"crypto/tls"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/azblobstore"
	"github.com/leasehold-go/leasehold/internal/testkit/faultproxy"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
)

// All connections of a holder and of a candidate fall silent, and each has but one, because they
// speak HTTP/2. Somebody holds the lock nevertheless: within a TTL somebody writes over a new
// connection.
func TestConnectionsFallSilent(t *testing.T) {
	eachServer(t, func(t *testing.T, server testserver.S3) {
		bucket := server.Bucket(t)
		link := faultproxy.StartLinkTo(t, server.Endpoint)
		survivesSilence(t, link, leasehold.NewS3Store(server.Client(), bucket), func() leasehold.Store {
			return leasehold.NewS3Store(server.Client(func(o *s3.Options) {
				o.BaseEndpoint = aws.String(link.URL())
				o.HTTPClient = awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
					t.TLSClientConfig = &tls.Config{RootCAs: link.Roots()}
				})
			}), bucket)
		})
	})
}

// As TestConnectionsFallSilent, on Azurite.
func TestAzureConnectionsFallSilent(t *testing.T) {
	t.Parallel()
	server := testserver.StartAzurite(t, testserver.AnyAPIVersion)
	link := faultproxy.StartLinkTo(t, strings.TrimSuffix(server.Endpoint, "/"+server.Account))
	direct := azureClient(t, server, sound)
	_, err := direct.CreateContainer(t.Context(), "silence", nil)
	require.NoError(t, err)
	over := server
	over.Endpoint = link.URL() + "/" + server.Account
	survivesSilence(t, link, azblobstore.New(direct, "silence"), func() leasehold.Store {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: link.Roots()}, ForceAttemptHTTP2: true}
		t.Cleanup(transport.CloseIdleConnections)
		client, err := azblob.NewClientFromConnectionString(over.ConnectionString(),
			&azblob.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: &http.Client{Transport: transport}}})
		require.NoError(t, err)
		return azblobstore.New(client, "silence")
	})
}

// survivesSilence runs a holder and a candidate over the link. The store direct does not lead
// through it.
func survivesSilence(t *testing.T, link *faultproxy.Link, direct leasehold.Store, store func() leasehold.Store) {
	const ttl = tableTTL // of which a request has a seventh, too
	holder := newLock(t, store(), leasehold.WithTTL(ttl), leasehold.WithHolder("holder"))
	lease, err := holder.Acquire(t.Context())
	require.NoError(t, err)
	waiting, stop := context.WithCancel(t.Context())
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		candidate := newLock(t, store(), leasehold.WithTTL(ttl), leasehold.WithHolder("candidate"))
		taken, err := candidate.Acquire(waiting)
		if err != nil {
			t.Log("the candidate: ", err)
			return
		}
		t.Log("the candidate has taken over")
		_ = taken.Release(context.WithoutCancel(waiting))
	}()
	defer func() {
		stop()
		<-waited
	}()
	look := newLock(t, direct)
	require.Eventually(t, func() bool { return link.Made() >= 2 }, patience, ttl/100)
	_ = lease.Renew(t.Context()) // a slow machine may have lost the lease, to the candidate
	// One or more of each: HTTP/1 opens another beside a request that takes long. On a slow
	// machine, one may have given its connection up a moment ago.
	require.Eventually(t, func() bool { return link.Silence() >= 2 }, patience, ttl/100, "connections that fell silent")
	before, err := look.Inspect(t.Context())
	require.NoError(t, err)
	began, made, now := time.Now(), link.Made(), before
	for err != nil || now.Nonce == before.Nonce {
		// For ever, if the connections are not given up.
		require.Less(t, time.Since(began), patience, "nobody writes: %d connections were made since, %v, %+v, %v",
			link.Made()-made, err, now, context.Cause(lease.Context()))
		time.Sleep(ttl / 100)
		now, err = look.Inspect(t.Context())
	}
	t.Logf("the next write came after %.2f TTL", time.Since(began).Seconds()/ttl.Seconds())
	_ = lease.Release(t.Context()) // likewise
}
