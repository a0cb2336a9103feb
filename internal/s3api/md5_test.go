package s3api_test

import (
	"bytes"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/s3api"
	"github.com/leasehold-go/leasehold/internal/testkit/fakes3"
)

func TestDirectoryBucketsGetNoMD5(t *testing.T) {
	for _, name := range []string{"locks--use1-az4--x-s3", "point--use1-az4--xa-s3"} {
		require.Nil(t, s3api.NewBucket(name).MD5(nil))
	}
	require.Equal(t, "1B2M2Y8AsgTpgAmY7PhCfg==", aws.ToString(s3api.NewBucket("locks").MD5(nil)))
}

// BenchmarkPut shows what the MD5 of a renewal costs.
func BenchmarkPut(b *testing.B) {
	bucket, client, body := s3api.NewBucket(fakes3.Bucket),
		fakes3.NewClient(fakes3.Transport{Handler: &fakes3.Server{}}), make([]byte, 600)
	for name, sum := range map[string]func([]byte) *string{
		"without": func([]byte) *string { return nil },
		"with":    bucket.MD5,
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, err := client.PutObject(b.Context(), &s3.PutObjectInput{
					Bucket: &bucket.Name, Key: aws.String("locks/report"), Body: bytes.NewReader(body),
					ContentMD5: sum(body),
				}, bucket.Once)
				require.NoError(b, err)
			}
		})
	}
}
