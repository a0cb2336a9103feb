package main_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
)

// Where a default retention lets no renewal pass, doctor names it, rather than a permission.
func TestDoctorNamesADefaultRetention(t *testing.T) {
	t.Parallel()
	retained := func(server testserver.S3) bucket {
		b := bucket{t, server, "retention-" + server.Bucket(t)[10:30]}
		_, err := server.Client().CreateBucket(t.Context(), &s3.CreateBucketInput{
			Bucket:                     &b.name,
			ObjectLockEnabledForBucket: aws.Bool(true),
		})
		require.NoError(t, err)
		_, err = server.Client().PutObjectLockConfiguration(t.Context(), &s3.PutObjectLockConfigurationInput{
			Bucket: &b.name, ObjectLockConfiguration: &types.ObjectLockConfiguration{
				ObjectLockEnabled: types.ObjectLockEnabledEnabled,
				Rule: &types.ObjectLockRule{DefaultRetention: &types.DefaultRetention{
					Mode: types.ObjectLockRetentionModeGovernance,
					Days: aws.Int32(1),
				}},
			},
		})
		require.NoError(t, err)
		return b
	}
	b := retained(testserver.VersityGW(t))
	d := doctor(t, 77, b.command("doctor", b.url("locks/report")))
	require.Equal(t, finding{"object lock", "failed", "a lock can be written but not renewed or released for 1 days",
		"remove the default retention, or use another bucket"}, d.checks["object lock"])
	require.Contains(t, d.checks["etag"].Advice, "remove the bucket's default retention")

	// Amazon's rule: no write without a checksum.
	b = retained(testserver.MinIO(t))
	minio, err := url.Parse(b.server.Endpoint)
	require.NoError(t, err)
	strict := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut && r.Header.Get("Content-Md5") == "" {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, "<Error><Code>InvalidRequest</Code><Message>Content-MD5 is "+
				"required</Message></Error>")
			return
		}
		(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(minio)
			r.Out.Host = r.In.Host
		}}).ServeHTTP(w, r)
	}))
	t.Cleanup(strict.Close)
	d = doctor(t, 78, b.command("doctor", b.urlAt(strict.URL, "locks/report")))
	require.Equal(t, "ok", d.checks["etag"].Result, d.checks["etag"])
	require.Equal(t, "ok", d.checks["overwriting"].Result, d.checks["overwriting"])
	require.Equal(t, "warning", d.checks["object lock"].Result)
	b.run("run", b.urlAt(strict.URL, "locks/report"), "--", "true").succeeds(t)
}
