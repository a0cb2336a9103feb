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
	"github.com/leasehold-go/leasehold/internal/faultproxy"
	"github.com/leasehold-go/leasehold/internal/testserver"
)

// The same fault, a write that is applied though its reply is lost, for leasehold and for Litestream's published leaser, each
// with the SDK's client as it comes: what counts as one's own, and what becomes of the token.
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
			t.Logf("litestream: %v, its own name", err)

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
			t.Logf("litestream: %v, though it is", err)

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

// A candidate whose wall clock is an hour ahead takes a living lease from Litestream's leaser, and none from leasehold: that
// half is TestWallClocksAnHourApart. Here is theirs: expiry is the holder's wall time against the candidate's.
func TestLitestreamTrustsWallClocks(t *testing.T) {
	behind := litestream.Lease{ExpiresAt: time.Now().Add(-time.Hour).Add(30 * time.Second)} // just renewed, on a clock an hour behind
	require.True(t, behind.IsExpired())
}
