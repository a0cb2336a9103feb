package leasehold_test

import (
	"bytes"
	"context"
	"log"
	"net/http"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/fenced"
	"github.com/leasehold-go/leasehold/internal/testkit/fakes3"
)

// encrypting is a client for a bucket whose policy demands that each write names its encryption.
// fenced.NewS3Store needs both methods, NewS3Store the first.
type encrypting struct {
	*s3.Client
	key string // the ID, ARN or alias of a key of KMS
}

func (c encrypting) PutObject(
	ctx context.Context, in *s3.PutObjectInput, opts ...func(*s3.Options),
) (*s3.PutObjectOutput, error) {
	in.ServerSideEncryption, in.SSEKMSKeyId = types.ServerSideEncryptionAwsKms, aws.String(c.key)
	return c.Client.PutObject(ctx, in, opts...)
}

func (c encrypting) CreateMultipartUpload(
	ctx context.Context, in *s3.CreateMultipartUploadInput, opts ...func(*s3.Options),
) (*s3.CreateMultipartUploadOutput, error) {
	in.ServerSideEncryption, in.SSEKMSKeyId = types.ServerSideEncryptionAwsKms, aws.String(c.key)
	return c.Client.CreateMultipartUpload(ctx, in, opts...)
}

// A bucket's policy may demand that each write names its encryption. Let the client name it.
func ExampleNewS3Store_encryption() {
	client := s3.New(s3.Options{Region: "eu-central-1"}) // or s3.NewFromConfig
	store := leasehold.NewS3Store(&encrypting{client, "alias/locks"}, "my-bucket")
	if _, err := leasehold.NewLock(store, "locks/reports"); err != nil {
		log.Fatal(err)
	}
	// Output:
}

// The server refuses each write that does not name its encryption, as a bucket's policy may demand.
func TestEachWriteCanNameItsEncryption(t *testing.T) {
	server := &fakes3.Server{RandomETags: true}
	plain := fakes3.NewClient(fakes3.Transport{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begins := r.Method == http.MethodPut && !r.URL.Query().Has("uploadId") || r.URL.Query().Has("uploads")
		h := r.Header
		if begins && (h.Get("X-Amz-Server-Side-Encryption") != "aws:kms" ||
			h.Get("X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id") != "key") {
			w.Header().Set("X-Amz-Request-Id", "policy")
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(fakes3.Error("AccessDenied", "explicit deny in a resource-based policy")))
			return
		}
		server.ServeHTTP(w, r)
	})})
	lock, err := leasehold.NewLock(leasehold.NewS3Store(plain, fakes3.Bucket), "locks/a")
	require.NoError(t, err)
	_, err = lock.TryAcquire(t.Context())
	require.ErrorIs(t, err, leasehold.ErrPermanent)
	require.ErrorContains(t, err, "a bucket's policy may also demand that each write names its encryption")

	client := &encrypting{plain, "key"}
	lock, err = leasehold.NewLock(leasehold.NewS3Store(client, fakes3.Bucket), "locks/a")
	require.NoError(t, err)
	lease, err := lock.Acquire(t.Context())
	require.NoError(t, err)
	require.NoError(t, lease.Renew(t.Context()))
	require.NoError(t, lease.Release(t.Context()))
	files, err := fenced.NewS3Store(client, fakes3.Bucket, fenced.UniqueETags)
	require.NoError(t, err)
	require.NoError(t, files.Put(t.Context(), 1, "file", bytes.NewReader([]byte("small"))))
	require.NoError(t, files.Put(t.Context(), 2, "file", bytes.NewReader(make([]byte, 9<<20))))
	require.NoError(t, files.Seal(t.Context(), 3, "file"))
	require.NoError(t, files.Delete(t.Context(), 3, "file"))
}
