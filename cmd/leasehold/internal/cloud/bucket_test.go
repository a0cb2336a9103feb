package cloud

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/azblobstore"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold-go/leasehold/fenced"
	"github.com/leasehold-go/leasehold/gcsstore"
	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// bucket is what the kinds of stores do each in their own way.
type bucket struct {
	put    func(ctx context.Context, key string, body []byte) error
	remove func(ctx context.Context, key string) error
	region func(ctx context.Context) string // "" if the server does not tell
	fenced func(opts ...fenced.Option) (*fenced.Store, error)
}

func openBucket(ctx context.Context, at place.Location) (b bucket, err error) {
	switch at.Scheme {
	case "gs":
		return gsBucket(ctx, at)
	case "azblob":
		return azureBucket(at)
	}
	return s3Bucket(ctx, at)
}

func s3Bucket(ctx context.Context, at place.Location) (b bucket, err error) {
	client, err := at.S3Client(ctx)
	if err != nil {
		return b, err
	}
	b.put = func(ctx context.Context, key string, body []byte) error {
		_, err := client.PutObject(ctx, &s3.PutObjectInput{Bucket: &at.Bucket, Key: &key, Body: bytes.NewReader(body)},
			func(o *s3.Options) { o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired })
		return err
	}
	b.remove = func(ctx context.Context, key string) error {
		_, err := client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &at.Bucket, Key: &key})
		return err
	}
	b.region = func(ctx context.Context) string {
		out, err := client.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: &at.Bucket})
		if err == nil && out.BucketRegion != nil {
			return *out.BucketRegion
		}
		if reply, ok := errors.AsType[*smithyhttp.ResponseError](err); ok && reply.Response != nil {
			return reply.Response.Header.Get("X-Amz-Bucket-Region")
		}
		return ""
	}
	b.fenced = func(opts ...fenced.Option) (*fenced.Store, error) {
		return fenced.NewS3Store(client, at.Bucket, fenced.PaddedBodies, opts...)
	}
	return b, nil
}

func gsBucket(ctx context.Context, at place.Location) (b bucket, err error) {
	client, err := at.GSClient(ctx)
	if err != nil {
		return b, err
	}
	handle := client.Bucket(at.Bucket)
	b.put = func(ctx context.Context, key string, body []byte) error {
		w := handle.Object(key).NewWriter(ctx)
		_, err := w.Write(body)
		return errors.Join(err, w.Close())
	}
	b.remove = func(ctx context.Context, key string) error { return handle.Object(key).Delete(ctx) }
	b.region = func(ctx context.Context) string {
		attrs, err := handle.Attrs(ctx)
		if err != nil {
			return ""
		}
		return strings.ToLower(attrs.Location)
	}
	b.fenced = func(opts ...fenced.Option) (*fenced.Store, error) {
		return gcsstore.NewFencedStore(client, at.Bucket, opts...)
	}
	return b, nil
}

func azureBucket(at place.Location) (b bucket, err error) {
	client, err := at.AzureClient()
	if err != nil {
		return b, err
	}
	b.put = func(ctx context.Context, key string, body []byte) error {
		_, err := client.UploadBuffer(ctx, at.Bucket, key, body, nil)
		return err
	}
	b.remove = func(ctx context.Context, key string) error {
		_, err := client.DeleteBlob(ctx, at.Bucket, key, nil)
		return err
	}
	b.region = func(context.Context) string { return "" }
	b.fenced = func(opts ...fenced.Option) (*fenced.Store, error) {
		return azblobstore.NewFencedStore(client, at.Bucket, opts...)
	}
	return b, nil
}

// serverName is what the row of the table calls a server, by the header Server of its answers.
func serverName(header string, at place.Location) string {
	known := map[string]string{
		"AmazonS3": "Amazon S3", "UploadServer": "Google Cloud Storage", "MinIO": "MinIO", "VERSITYGW": "VersityGW",
	}
	product, _, _ := strings.Cut(header, "/")
	if product == "Windows-Azure-Blob" {
		return "Azure Blob Storage"
	}
	where := at.Scheme
	if at.Endpoint != "" {
		where += " at " + place.WithoutSecrets(at.Endpoint)
	}
	return cmp.Or(known[product], strings.ReplaceAll(header, "|", ""), where)
}

// under is a store whose keys all begin with a prefix. It sends nothing once the run is stopped. A
// write that is answered 429 is sent again if it is the only one of its key, because Cloud Storage
// takes one write a second to each object. In a race, 429 is an answer like others.
type under struct {
	leasehold.Store
	prefix string
	meter  *meter

	mu      sync.Mutex
	writing map[string]int // writes under way, by key
}

func (u *under) Describe() leasehold.StoreInfo { return leasehold.Describe(u.Store) }

func (u *under) Get(ctx context.Context, key string) (leasehold.Object, error) {
	if err := u.over(); err != nil {
		return leasehold.Object{}, err
	}
	return u.Store.Get(ctx, u.prefix+key)
}

func (u *under) PutIfNoneMatch(ctx context.Context, key string, body []byte) (etag string, err error) {
	err = u.write(ctx, key, func() error {
		etag, err = u.Store.PutIfNoneMatch(ctx, u.prefix+key, body)
		return err
	})
	return etag, err
}

func (u *under) PutIfMatch(ctx context.Context, key string, body []byte, old string) (etag string, err error) {
	err = u.write(ctx, key, func() error {
		etag, err = u.Store.PutIfMatch(ctx, u.prefix+key, body, old)
		return err
	})
	return etag, err
}

func (u *under) DeleteIfMatch(ctx context.Context, key, etag string) error {
	return u.write(ctx, key, func() error { return u.Store.DeleteIfMatch(ctx, u.prefix+key, etag) })
}

// count adds to the writes of a key that are under way.
func (u *under) count(key string, n int) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.writing[key] += n
	return u.writing[key]
}

func (u *under) write(ctx context.Context, key string, send func() error) error {
	const tries = 10 // for about eight seconds
	defer u.count(key, -1)
	alone := u.count(key, 1) == 1
	for try := 1; ; try++ {
		if err := u.over(); err != nil {
			return err
		}
		err := send()
		alone = alone && u.count(key, 0) == 1
		limited := exit.HTTPStatus(err) == http.StatusTooManyRequests
		if !limited || !alone || try == tries || storeapi.Rest(ctx, try) != nil {
			return err
		}
	}
}

// over is permanent, so that nobody tries again.
func (u *under) over() error {
	if why := u.meter.why(); why != nil {
		return errors.Join(leasehold.ErrPermanent, why)
	}
	return nil
}

// through is a location whose requests pass these, the first one nearest to the network.
func through(at place.Location, layers ...func(http.RoundTripper) http.RoundTripper) place.Location {
	at.Through = func(base http.RoundTripper) http.RoundTripper {
		for _, layer := range layers {
			base = layer(base)
		}
		return base
	}
	return at
}
