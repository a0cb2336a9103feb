package itest_test

import (
	"bytes"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/fenced"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
	"github.com/leasehold-go/leasehold/itest"
)

// nginx writes an Accept-Encoding of its own, as Cloudflare's tunnel does, or removes it. The
// server checks the signature, which must not cover this header. The SDK by itself fails there.
func TestBehindAProxyThatWritesAcceptEncoding(t *testing.T) {
	t.Parallel()
	for name, directive := range map[string]string{
		"another": `proxy_set_header Accept-Encoding "gzip, br";`, "none": `proxy_set_header Accept-Encoding "";`,
	} {
		for _, server := range itest.Servers(t) {
			t.Run(name+"/"+server.Name, func(t *testing.T) {
				t.Parallel()
				bucket := server.Bucket(t)
				proxy := testserver.StartNginx(t, server.Endpoint, directive)
				client := server.Client(func(o *s3.Options) { o.BaseEndpoint = &proxy })
				_, err := client.GetObject(t.Context(), &s3.GetObjectInput{Bucket: &bucket, Key: aws.String("none")})
				require.Error(t, err)
				require.Regexp(t, "SignatureDoesNotMatch|not signed", err.Error())

				store := leasehold.NewS3Store(client, bucket)
				_, err = leasehold.CheckStore(t.Context(), store, "check/")
				require.NoError(t, err)
				lease, err := newLock(t, store).Acquire(t.Context())
				require.NoError(t, err)
				require.NoError(t, lease.Renew(t.Context()))
				require.NoError(t, lease.Release(t.Context()))
				files, err := fenced.NewS3Store(client, bucket, fenced.PaddedBodies)
				require.NoError(t, err)
				require.NoError(t, files.Put(t.Context(), 1, "file", bytes.NewReader(make([]byte, 9<<20))))
				require.NoError(t, files.Seal(t.Context(), 2, "file"))
				require.NoError(t, files.Delete(t.Context(), 2, "file"))
			})
		}
	}
}
