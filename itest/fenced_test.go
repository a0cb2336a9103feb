package itest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/fenced"
	"github.com/leasehold-go/leasehold/internal/testserver"
	"github.com/leasehold-go/leasehold/itest"
)

func readAll(t *testing.T, s *fenced.Store, key string) ([]byte, *fenced.Object) {
	t.Helper()
	o, err := s.Get(t.Context(), key)
	require.NoError(t, err)
	body, err := io.ReadAll(o.Body)
	require.NoError(t, err)
	require.NoError(t, o.Body.Close())
	return body, o
}

func openFenced(t *testing.T, client fenced.S3Client, bucket string, mode fenced.ETagMode) *fenced.Store {
	t.Helper()
	s, err := fenced.NewS3Store(client, bucket, mode)
	require.NoError(t, err)
	return s
}

func TestFencedStore(t *testing.T) {
	eachServer(t, func(t *testing.T, server testserver.S3) {
		client, bucket := server.Client(), server.Bucket(t)
		store := openFenced(t, client, bucket, fenced.PaddedBodies)
		ctx, key := t.Context(), "reports/2026.json"
		require.NoError(t, store.Put(ctx, 1, key, strings.NewReader(`{"n":1}`),
			fenced.WithContentType("application/json"), fenced.WithMetadata(map[string]string{"made-by": "alice"})))
		require.NoError(t, store.Seal(ctx, 2, key, "reports/2027.json"))
		body, o := readAll(t, store, key)
		require.Equal(t, []any{`{"n":1}`, uint64(2), "application/json", map[string]string{"made-by": "alice"}},
			[]any{string(body), o.Token, o.ContentType, o.Metadata})
		for _, key := range []string{key, "reports/2027.json"} {
			require.ErrorIs(t, store.Put(ctx, 1, key, strings.NewReader("late")), fenced.ErrFenced)
			require.ErrorIs(t, store.Delete(ctx, 1, key), fenced.ErrFenced)
		}
		require.NoError(t, store.Delete(ctx, 2, key))
		_, err := store.Get(ctx, key)
		require.ErrorIs(t, err, leasehold.ErrNotExist)
		require.ErrorIs(t, store.Put(ctx, 1, key, strings.NewReader("late")), fenced.ErrFenced)

		err = openFenced(t, client, bucket, fenced.UniqueETags).Put(ctx, 1, "reports/other", strings.NewReader("x"))
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

		out, err := client.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: &bucket})
		require.NoError(t, err)
		require.Len(t, out.Contents, 2, "the check leaves nothing behind")
	})
}

// forgetful is an option for a client that does not send one condition of CompleteMultipartUpload. To the client, the server
// seems to ignore that condition.
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

// Bodies over 8 MiB are sent in parts, and the request that completes them is the conditional write.
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
		body, _ := readAll(t, store, key)
		require.True(t, bytes.Equal(large, body))
		require.NoError(t, store.Seal(ctx, 2, key))
		body, o := readAll(t, store, key)
		require.True(t, bytes.Equal(large, body))
		require.Equal(t, uint64(2), o.Token)
		require.ErrorIs(t, store.Put(ctx, 1, key, bytes.NewReader(large)), fenced.ErrFenced)
		uploads, err := client.ListMultipartUploads(ctx, &s3.ListMultipartUploadsInput{Bucket: &bucket})
		require.NoError(t, err)
		require.Empty(t, uploads.Uploads, "no upload is left open")
	})
}

// Writers with many tokens write one key at once. The object's token never goes back, and no write reports a false result.
func TestFencedRaces(t *testing.T) {
	eachServer(t, func(t *testing.T, server testserver.S3) {
		client, bucket := server.Client(), server.Bucket(t)
		const writers, rounds = 8, 25
		for _, large := range []bool{false, true} {
			t.Run(map[bool]string{false: "whole", true: "in parts"}[large], func(t *testing.T) {
				key := fmt.Sprint("race-", large)
				size, rounds := 10, rounds
				if large {
					size, rounds = 9<<20, 3
				}
				store := openFenced(t, client, bucket, fenced.PaddedBodies)
				body := bytes.Repeat([]byte("x"), size) // all writers write the same body
				require.NoError(t, store.Put(t.Context(), 1, key, bytes.NewReader(body)))
				var mu sync.Mutex
				highest, refused := uint64(1), 0
				for round := range rounds {
					var wg sync.WaitGroup
					for i := range writers {
						token := uint64(round*writers/2 + i + 1) // half of the tokens come again in the next round
						wg.Go(func() {
							mu.Lock()
							before := highest
							mu.Unlock()
							err := store.Put(t.Context(), token, key, bytes.NewReader(body))
							mu.Lock()
							defer mu.Unlock()
							switch {
							case err == nil && token < before:
								t.Errorf("token %d wrote after %d", token, before)
							case err == nil:
								highest = max(highest, token)
							case errors.Is(err, fenced.ErrFenced):
								refused++
							default:
								t.Log(err) // gave up because too many others wrote
							}
						})
					}
					wg.Wait()
					o, err := store.Get(t.Context(), key)
					require.NoError(t, err)
					require.NoError(t, o.Body.Close())
					require.GreaterOrEqual(t, o.Token, highest)
				}
				require.Positive(t, refused)
				t.Logf("%d writes, %d fenced off", rounds*writers, refused)
			})
		}
	})
}

// In a bucket with SSE-KMS the same body never gets the same ETag twice, so it needs no padding.
func TestFencedStoreOnSSEKMS(t *testing.T) {
	if err := itest.Docker(t.Context()); err != nil {
		t.Skipf("needs Docker: %v", err)
	}
	server := itest.StartMinIOWithKMS(t)
	client, bucket := server.Client(), server.Bucket(t)
	_, err := client.PutBucketEncryption(t.Context(), &s3.PutBucketEncryptionInput{
		Bucket: &bucket,
		ServerSideEncryptionConfiguration: &types.ServerSideEncryptionConfiguration{Rules: []types.ServerSideEncryptionRule{{
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
	require.ErrorIs(t, store.Put(t.Context(), 1, "image", strings.NewReader("late")), fenced.ErrFenced)
	again, err := store.Get(t.Context(), "image")
	require.NoError(t, err)
	require.NoError(t, again.Body.Close())
	require.NotEqual(t, *got.ETag, again.ETag, "the same bytes have another ETag")
}
