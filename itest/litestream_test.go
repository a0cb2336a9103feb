package itest_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/benbjohnson/litestream"
	litestreams3 "github.com/benbjohnson/litestream/s3"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/faultproxy"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
)

// A write is applied but its reply is lost. This compares how leasehold and Litestream's published
// leaser, each with the SDK's default client, handle it: whether they recognise their own write,
// and what becomes of the token.
func TestLostReplyComparedWithLitestream(t *testing.T) {
	lostReply := faultproxy.Fault{Kind: faultproxy.DropReply}
	eachServer(t, func(t *testing.T, server testserver.S3) {
		ctx := t.Context()
		// Litestream's leaser uses the client's own retryer, three attempts.
		newLeaser := func(t *testing.T) (*litestreams3.Leaser, *link) {
			bucket := server.Bucket(t)
			l := newLink(t, server, bucket)
			leaser := litestreams3.NewLeaser()
			leaser.Bucket, leaser.Owner = bucket, "me"
			leaser.SetClient(server.Client(func(o *s3.Options) {
				o.HTTPClient = &http.Client{Transport: l.Transport}
				o.Retryer = aws.NopRetryer{}
			}))
			return leaser, l
		}
		withRetries := func(leaser *litestreams3.Leaser, l *link) {
			leaser.SetClient(server.Client(func(o *s3.Options) { o.HTTPClient = &http.Client{Transport: l.Transport} }))
		}

		t.Run("acquire", func(t *testing.T) {
			leaser, l := newLeaser(t)
			withRetries(leaser, l)
			l.fail("PUT", lostReply)
			_, err := leaser.AcquireLease(ctx)
			exists, ok := errors.AsType[*litestream.LeaseExistsError](err)
			require.True(t, ok, "%v", err)
			require.Equal(t, "me", exists.Owner, "locked out by itself")
			t.Logf("litestream: %v, which names itself as the holder", err)

			l = newLink(t, server, server.Bucket(t))
			l.fail("PUT", lostReply)
			lease, err := newLock(t, l.store).TryAcquire(ctx)
			require.NoError(t, err)
			t.Logf("leasehold: acquired, token %d", lease.Token())
			require.NoError(t, lease.Release(ctx))
		})
		t.Run("renew", func(t *testing.T) {
			leaser, l := newLeaser(t)
			theirs, err := leaser.AcquireLease(ctx)
			require.NoError(t, err)
			withRetries(leaser, l)
			l.fail("PUT", lostReply)
			_, err = leaser.RenewLease(ctx, theirs)
			require.ErrorIs(t, err, litestream.ErrLeaseNotHeld)
			t.Logf("litestream: %v, although it holds the lease", err)

			l = newLink(t, server, server.Bucket(t))
			ours, err := newLock(t, l.store, leasehold.WithManualRenewal()).TryAcquire(ctx)
			require.NoError(t, err)
			l.fail("PUT", lostReply)
			require.NoError(t, ours.Renew(ctx))
			t.Log("leasehold: renewed")
		})
		t.Run("release", func(t *testing.T) {
			leaser, l := newLeaser(t)
			theirs, err := leaser.AcquireLease(ctx)
			require.NoError(t, err)
			l.fail("DELETE", lostReply)
			withRetries(leaser, l)
			err = leaser.ReleaseLease(ctx, theirs)
			t.Logf("litestream: %v", err)
			again, err := leaser.AcquireLease(ctx)
			require.NoError(t, err)
			require.EqualValues(t, 1, again.Generation, "its fencing token starts again")
			t.Logf("litestream: the next term has generation %d again", again.Generation)

			l = newLink(t, server, server.Bucket(t))
			lock := newLock(t, l.store)
			ours, err := lock.TryAcquire(ctx)
			require.NoError(t, err)
			l.fail("PUT", lostReply)
			require.NoError(t, ours.Release(ctx))
			ours, err = lock.TryAcquire(ctx)
			require.NoError(t, err)
			require.EqualValues(t, 2, ours.Token())
			t.Logf("leasehold: released, the next term has token %d", ours.Token())
			require.NoError(t, ours.Release(ctx))
		})
	})
}

// A candidate whose wall clock is an hour ahead takes over a lease of Litestream's leaser that has
// not expired, because the leaser compares the holder's wall clock with the candidate's.
// TestWallClocksAnHourApart shows that leasehold does not.
func TestLitestreamTrustsWallClocks(t *testing.T) {
	t.Parallel()
	// just renewed by a holder whose clock is an hour behind
	behind := litestream.Lease{ExpiresAt: time.Now().Add(-time.Hour).Add(30 * time.Second)}
	require.True(t, behind.IsExpired())
}
