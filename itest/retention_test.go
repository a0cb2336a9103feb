package itest_test

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
)

// A bucket with Object Lock and a default retention keeps each version of a lock. A server that
// keeps objects as files has but one, so it takes the first write and refuses all others.
func TestDefaultRetention(t *testing.T) {
	eachServer(t, defaultRetention)
}

func defaultRetention(t *testing.T, server testserver.S3) {
	bucket, client := "retention-"+server.Bucket(t)[10:30], server.Client()
	_, err := client.CreateBucket(t.Context(), &s3.CreateBucketInput{
		Bucket:                     &bucket,
		ObjectLockEnabledForBucket: aws.Bool(true),
	})
	require.NoError(t, err)
	_, err = client.PutObjectLockConfiguration(t.Context(), &s3.PutObjectLockConfigurationInput{
		Bucket: &bucket, ObjectLockConfiguration: &types.ObjectLockConfiguration{
			ObjectLockEnabled: types.ObjectLockEnabledEnabled,
			Rule: &types.ObjectLockRule{DefaultRetention: &types.DefaultRetention{
				Mode: types.ObjectLockRetentionModeGovernance,
				Days: aws.Int32(1),
			}},
		},
	})
	require.NoError(t, err)
	ttl := 15 * time.Second
	if server.Name == "versitygw" { // where the renewal is tried until the lease is over
		ttl /= 5
	}
	lease, err := newLock(t, leasehold.NewS3Store(client, bucket), leasehold.WithManualRenewal(),
		leasehold.WithTTL(ttl)).TryAcquire(t.Context())
	if server.Name == "radosgw" { // it checks no conditions in a bucket with versions
		require.ErrorIs(t, err, leasehold.ErrUnsafeStore)
		return
	}
	require.NoError(t, err)
	err = lease.Renew(t.Context())
	if server.Name == "versitygw" {
		require.ErrorIs(t, err, leasehold.ErrPermanent)
		require.ErrorContains(t, err, "remove the bucket's default retention")
		return
	}
	require.NoError(t, err)
	require.NoError(t, lease.Release(t.Context()))
}
