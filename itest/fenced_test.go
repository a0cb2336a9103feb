package itest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/fenced"
	"github.com/leasehold-go/leasehold/internal/testkit/fencedtest"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
)

func openFenced(t *testing.T, client fenced.S3Client, bucket string, mode fenced.ETagMode) *fenced.Store {
	t.Helper()
	s, err := fenced.NewS3Store(client, bucket, mode)
	require.NoError(t, err)
	return s
}

func TestFencedStore(t *testing.T) {
	eachServer(t, func(t *testing.T, server testserver.S3) { fencedWrites(t, server, 9<<20) })
}

func fencedWrites(t *testing.T, server testserver.S3, large int) {
	client, bucket := server.Client(), server.Bucket(t)
	fencedtest.Run(t, fencedtest.Backend{
		Open: func(opts ...fenced.Option) *fenced.Store {
			s, err := fenced.NewS3Store(server.Client(), bucket, fenced.PaddedBodies, opts...)
			require.NoError(t, err)
			return s
		},
		Plant: func(key, body string) {
			_, err := client.PutObject(t.Context(), &s3.PutObjectInput{
				Bucket: &bucket,
				Key:    &key,
				Body:   strings.NewReader(body),
			})
			require.NoError(t, err)
		},
		Large: large,
	})
	out, err := client.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: &bucket})
	require.NoError(t, err)
	for _, o := range out.Contents {
		require.NotContains(t, *o.Key, "check", "the check leaves nothing behind")
	}
}

func TestFencedStoreSaysWhatIsWrong(t *testing.T) {
	eachServer(t, func(t *testing.T, server testserver.S3) {
		client, bucket, ctx, key := server.Client(), server.Bucket(t), t.Context(), "reports/2026.json"
		err := openFenced(t, client, bucket, fenced.UniqueETags).Put(ctx, 1, key, strings.NewReader("x"))
		require.ErrorIs(t, err, leasehold.ErrUnsafeStore, "its ETags are hashes of the body")
		err = openFenced(t, client, "no-such-bucket", fenced.PaddedBodies).Put(ctx, 1, key, strings.NewReader("x"))
		require.ErrorIs(t, err, leasehold.ErrPermanent)
		require.ErrorContains(t, err, "create the bucket")
		wrong := server.Client(func(o *s3.Options) {
			o.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
				return aws.Credentials{AccessKeyID: server.AccessKey, SecretAccessKey: "wrong"}, nil
			})
		})
		err = openFenced(t, wrong, bucket, fenced.PaddedBodies).Put(ctx, 1, key, strings.NewReader("x"))
		require.ErrorIs(t, err, leasehold.ErrPermanent)
		require.ErrorContains(t, err, "wrong secret key")
	})
}

// forgetful is an option for a client that does not send one condition of CompleteMultipartUpload.
// To the client, the server seems to ignore that condition.
func forgetful(condition string) func(*s3.Options) {
	return func(o *s3.Options) { o.APIOptions = append(o.APIOptions, forget(condition)) }
}

func forget(condition string) func(*middleware.Stack) error {
	return func(stack *middleware.Stack) error {
		return stack.Build.Add(middleware.BuildMiddlewareFunc("forgetful", func(
			ctx context.Context, in middleware.BuildInput, next middleware.BuildHandler,
		) (middleware.BuildOutput, middleware.Metadata, error) {
			if r, ok := in.Request.(*smithyhttp.Request); ok && r.Method == http.MethodPost {
				r.Header.Del(condition)
			}
			return next.HandleBuild(ctx, in)
		}), middleware.After)
	}
}

// Bodies over 8 MiB are sent in parts, and the request that completes them is the conditional
// write.
func TestFencedLargeBodies(t *testing.T) {
	eachServer(t, func(t *testing.T, server testserver.S3) {
		client, bucket := server.Client(), server.Bucket(t)
		ctx, key := t.Context(), "dump"
		large := make([]byte, 20<<20+12345)
		_, _ = rand.NewChaCha8([32]byte{}).Read(large)

		for _, condition := range []string{"If-Match", "If-None-Match"} {
			key := key + "-" + condition
			store := openFenced(t, server.Client(forgetful(condition)), bucket, fenced.PaddedBodies)
			err := store.Put(ctx, 1, key, bytes.NewReader(large))
			require.ErrorIs(t, err, leasehold.ErrUnsafeStore)
			require.ErrorContains(t, err, condition+" of CompleteMultipartUpload")
			require.ErrorContains(t, err, fmt.Sprint("over ", 8<<20-64, " bytes"))
			_, err = store.Get(ctx, key)
			require.ErrorIs(t, err, leasehold.ErrNotExist, "nothing was written")
			require.NoError(t, store.Put(ctx, 1, key, bytes.NewReader(large[:8<<20-64])), "a body within the limit")
		}

		store := openFenced(t, client, bucket, fenced.PaddedBodies)
		require.NoError(t, store.Put(ctx, 1, key, bytes.NewReader(large)))
		require.NoError(t, store.Seal(ctx, 2, key))
		body, _ := fencedtest.Read(t, store, key)
		require.True(t, string(large) == body)
		uploads, err := client.ListMultipartUploads(ctx, &s3.ListMultipartUploadsInput{Bucket: &bucket})
		require.NoError(t, err)
		require.Empty(t, uploads.Uploads, "no upload is left open")
	})
}

// In a bucket with SSE-KMS the same body never gets the same ETag twice, so it needs no padding.
func TestFencedStoreOnSSEKMS(t *testing.T) {
	t.Parallel()
	server := testserver.StartMinIOWithKMS(t)
	client, bucket := server.Client(), server.Bucket(t)
	_, err := client.PutBucketEncryption(t.Context(), &s3.PutBucketEncryptionInput{
		Bucket: &bucket,
		ServerSideEncryptionConfiguration: &types.ServerSideEncryptionConfiguration{
			Rules: []types.ServerSideEncryptionRule{{
				ApplyServerSideEncryptionByDefault: &types.ServerSideEncryptionByDefault{
					SSEAlgorithm: types.ServerSideEncryptionAwsKms, KMSMasterKeyID: aws.String("leasehold"),
				},
			}}},
	})
	require.NoError(t, err)
	store := openFenced(t, client, bucket, fenced.UniqueETags)
	require.NoError(t, store.Put(t.Context(), 1, "image", strings.NewReader("\x00\x01")))
	got, err := client.GetObject(t.Context(), &s3.GetObjectInput{Bucket: &bucket, Key: aws.String("image")})
	require.NoError(t, err)
	plain, err := io.ReadAll(got.Body)
	require.NoError(t, err)
	require.Equal(t, "\x00\x01", string(plain), "the body has no padding")
	require.NoError(t, store.Seal(t.Context(), 2, "image"))
	require.ErrorIs(t, store.Put(t.Context(), 1, "image", strings.NewReader("late")), leasehold.ErrFenced)
	again, err := store.Get(t.Context(), "image")
	require.NoError(t, err)
	require.NoError(t, again.Body.Close())
	require.NotEqual(t, *got.ETag, again.ETag, "the same bytes have another ETag")
}

// The bucket policy in docs/fencing.md demands a condition of every write and delete. MinIO and
// VersityGW refuse it, because they do not know its condition keys. A server that accepts it must
// enforce it, and must let everything pass that leasehold sends.
func TestBucketPolicy(t *testing.T) {
	page, err := os.ReadFile("../docs/fencing.md")
	require.NoError(t, err)
	_, block, ok := strings.Cut(string(page), "```json\n")
	require.True(t, ok)
	block, _, _ = strings.Cut(block, "```")
	eachServer(t, func(t *testing.T, server testserver.S3) {
		client, bucket, ctx := server.Client(), server.Bucket(t), t.Context()
		policy := strings.ReplaceAll(block, "my-bucket", bucket)
		_, err := client.PutBucketPolicy(ctx, &s3.PutBucketPolicyInput{Bucket: &bucket, Policy: &policy})
		if server.Name != "env" {
			refused, ok := errors.AsType[smithy.APIError](err)
			require.True(t, ok, "%v", err)
			require.Equal(t, "MalformedPolicy", refused.ErrorCode())
			require.Contains(t, refused.ErrorMessage(), "invalid condition key")
			return
		}
		require.NoError(t, err)
		key := "reports/today.json"
		lock, err := leasehold.NewLock(leasehold.NewS3Store(client, bucket), "reports/lock")
		require.NoError(t, err)
		require.NoError(t, lock.Do(ctx, func(ctx context.Context, lease *leasehold.Lease) error {
			store := openFenced(t, client, bucket, fenced.PaddedBodies)
			require.NoError(t, store.Put(ctx, lease.Token(), key, strings.NewReader(strings.Repeat("x", 9<<20))))
			return store.Put(ctx, lease.Token(), key, strings.NewReader("{}"))
		}))
		_, put := client.PutObject(ctx, &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: strings.NewReader("late")})
		_, remove := client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &bucket, Key: &key})
		_, removeAny := client.DeleteObject(ctx, &s3.DeleteObjectInput{
			Bucket:  &bucket,
			Key:     &key,
			IfMatch: aws.String("*"),
		})
		for _, err := range []error{put, remove, removeAny} {
			refused, ok := errors.AsType[smithy.APIError](err)
			require.True(t, ok, "%v", err)
			require.Equal(t, "AccessDenied", refused.ErrorCode())
		}
		_, err = client.DeleteBucketPolicy(ctx, &s3.DeleteBucketPolicyInput{Bucket: &bucket})
		require.NoError(t, err)
	})
}
