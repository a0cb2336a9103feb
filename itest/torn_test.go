package itest_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
	"github.com/leasehold-go/leasehold/internal/testkit/testsize"
)

// A read beside a writer shows one version, except on VersityGW, where the ETag of a GET may be
// older than the rest, which does no harm, and that of a HEAD newer, which package fenced allows
// for. A GET with a newer ETag would break locks.
func TestTornReads(t *testing.T) {
	eachServer(t, func(t *testing.T, server testserver.S3) {
		busy(t)
		reads := testsize.Pick(200, 1000)
		client, bucket, key := server.Client(), server.Bucket(t), "torn"
		put := func(ctx context.Context, number int) error {
			body := fmt.Sprint(number)
			_, err := client.PutObject(ctx, &s3.PutObjectInput{
				Bucket: &bucket, Key: &key, Body: strings.NewReader(body), Metadata: map[string]string{"number": body},
			})
			return err
		}
		require.NoError(t, put(t.Context(), 0))
		ctx, stop := context.WithCancel(t.Context())
		var writer sync.WaitGroup
		writer.Go(func() {
			for number := 1; ctx.Err() == nil; number++ {
				if err := put(ctx, number); ctx.Err() == nil {
					assert.NoError(t, err)
				}
			}
		})
		// ahead is by how many versions the ETag is newer than the metadata.
		ahead := func(etag string, metadata map[string]string) int {
			number, err := strconv.Atoi(metadata["number"])
			require.NoError(t, err)
			for by := range 1000 {
				for _, by := range []int{by, -by} {
					if etag == etagOf(fmt.Sprint(number+by)) {
						return by
					}
				}
			}
			t.Fatalf("ETag %s is not near version %d", etag, number)
			return 0
		}
		older, newer := map[string]int{}, map[string]int{}
		count := func(method string, by int) {
			older[method] += max(min(-by, 1), 0)
			newer[method] += max(min(by, 1), 0)
		}
		for range reads {
			head, err := client.HeadObject(t.Context(), &s3.HeadObjectInput{Bucket: &bucket, Key: &key})
			require.NoError(t, err)
			count("HEAD", ahead(*head.ETag, head.Metadata))
			get, err := client.GetObject(t.Context(), &s3.GetObjectInput{Bucket: &bucket, Key: &key})
			require.NoError(t, err)
			require.NoError(t, get.Body.Close())
			count("GET", ahead(*get.ETag, get.Metadata))
		}
		stop()
		writer.Wait()
		t.Logf("of %d reads each, ETags older than the metadata: %v, newer: %v", reads, older, newer)
		require.Zero(t, newer["GET"])
		if server.Name != "versitygw" {
			require.Zero(t, older["HEAD"]+older["GET"]+newer["HEAD"])
		}
	})
}
