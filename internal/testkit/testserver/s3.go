package testserver

import (
	"cmp"
	"context"
	"crypto/rand"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// S3 is a server that speaks the S3 protocol.
type S3 struct {
	Name          string // "minio", "versitygw", "env" or, from itest, "minio-container" and the like
	Endpoint      string // URL
	AccessKey     string
	SecretKey     string
	Region        string
	DeleteIfMatch bool     // the server honours If-Match on DELETE
	Queues        []string // ARNs of the receivers of bucket notifications
}

// FromEnv returns the server that LEASEHOLD_TEST_S3_ENDPOINT, _ACCESS_KEY, _SECRET_KEY and _REGION
// describe, if the first is set.
func FromEnv() (S3, bool) {
	s := S3{
		Name:      "env",
		Endpoint:  os.Getenv("LEASEHOLD_TEST_S3_ENDPOINT"),
		AccessKey: os.Getenv("LEASEHOLD_TEST_S3_ACCESS_KEY"),
		SecretKey: os.Getenv("LEASEHOLD_TEST_S3_SECRET_KEY"),
		Region:    cmp.Or(os.Getenv("LEASEHOLD_TEST_S3_REGION"), region),
	}
	return s, s.Endpoint != ""
}

// Client returns an SDK client for the server. Options may change it, such as its endpoint (to a
// fault proxy) or HTTP client.
func (s S3) Client(options ...func(*s3.Options)) *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint: aws.String(s.Endpoint),
		UsePathStyle: true,
		Region:       s.Region,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: s.AccessKey, SecretAccessKey: s.SecretKey}, nil
		}),
		// With the default of 2, concurrent clients would open a connection for nearly every
		// request.
		HTTPClient: &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 64}},
		// Optional checksums do not work with some servers other than Amazon's.
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired,
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenRequired,
	}, options...)
}

// Bucket creates a bucket with a new name. On a server that outlives the tests, it is emptied and
// removed after the test.
func (s S3) Bucket(tb testing.TB) string {
	tb.Helper()
	name := "leasehold-" + strings.ToLower(rand.Text())
	in := &s3.CreateBucketInput{Bucket: &name}
	if s.Region != "us-east-1" { // S3 accepts no location constraint for this region
		in.CreateBucketConfiguration = &types.CreateBucketConfiguration{
			LocationConstraint: types.BucketLocationConstraint(s.Region),
		}
	}
	client := s.Client()
	if _, err := client.CreateBucket(tb.Context(), in); err != nil {
		tb.Fatalf("testserver: creating a bucket on %s (%s): %v", s.Name, s.Endpoint, err)
	}
	if s.Name == "env" {
		tb.Cleanup(func() { removeBucket(tb, client, name) })
	}
	return name
}

// Notify makes a server with [S3.Queues] inform each of them of every PUT of an object whose key
// has the prefix.
func (s S3) Notify(tb testing.TB, bucket, prefix string) {
	tb.Helper()
	filter := &types.NotificationConfigurationFilter{Key: &types.S3KeyFilter{FilterRules: []types.FilterRule{
		{Name: types.FilterRuleNamePrefix, Value: &prefix},
	}}}
	config := &types.NotificationConfiguration{}
	for _, arn := range s.Queues {
		config.QueueConfigurations = append(config.QueueConfigurations, types.QueueConfiguration{
			QueueArn: &arn, Events: []types.Event{types.EventS3ObjectCreatedPut}, Filter: filter,
		})
	}
	_, err := s.Client().PutBucketNotificationConfiguration(tb.Context(), &s3.PutBucketNotificationConfigurationInput{
		Bucket: &bucket, NotificationConfiguration: config,
	})
	if err != nil {
		tb.Fatalf("testserver: setting bucket notifications of %s on %s (%s): %v", bucket, s.Name, s.Endpoint, err)
	}
}

func removeBucket(tb testing.TB, client *s3.Client, name string) {
	ctx := context.WithoutCancel(tb.Context()) // because it has ended when a cleanup runs
	pages := s3.NewListObjectsV2Paginator(client, &s3.ListObjectsV2Input{Bucket: &name})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			tb.Logf("testserver: bucket %s was not removed: %v", name, err)
			return
		}
		for _, o := range page.Contents {
			if _, err := client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &name, Key: o.Key}); err != nil {
				tb.Logf("testserver: object %s in bucket %s was not removed: %v", aws.ToString(o.Key), name, err)
			}
		}
	}
	if _, err := client.DeleteBucket(ctx, &s3.DeleteBucketInput{Bucket: &name}); err != nil {
		tb.Logf("testserver: bucket %s was not removed: %v", name, err)
	}
}
