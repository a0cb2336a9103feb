package createonly

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/leasehold-go/leasehold"
)

// S3Client is the part of [*s3.Client] that an [S3] calls.
type S3Client interface {
	leasehold.S3Client
	ListObjectsV2(context.Context, *s3.ListObjectsV2Input, ...func(*s3.Options)) (*s3.ListObjectsV2Output, error)
}

// S3 is the implementation of [Objects] for a bucket of S3 or a compatible server. It is safe for
// concurrent use.
//
// An S3 needs the permissions s3:GetObject, s3:PutObject and s3:DeleteObject on the objects, and
// s3:ListBucket on the bucket. It returns the same errors as a [leasehold.S3Store].
type S3 struct {
	objects *leasehold.S3Store // on calls, which sends other requests than it is given
	invalid error
}

var _ leasehold.Describer = (*S3)(nil)

// S3Option configures an [S3].
type S3Option func(*s3Options)

type s3Options struct {
	prefix, header, value string
	invalid               error
}

// WithKeyPrefix puts prefix before every name. No slash is added, so end the prefix with one.
func WithKeyPrefix(prefix string) S3Option { return func(o *s3Options) { o.prefix = prefix } }

// WithCreateHeader sends this header with every create, instead of If-None-Match. Aliyun OSS
// accepts "x-oss-forbid-overwrite", Tencent COS "x-cos-forbid-overwrite" and IBM COS
// "x-ibm-forbid-overwrite", each with the value "true". IBM COS ignores its header in buckets with
// versioning, and if the header has not been enabled. A server that ignores the header overwrites
// objects: check with [leasehold.CheckStore].
func WithCreateHeader(name, value string) S3Option {
	return func(o *s3Options) {
		o.header, o.value = name, value
		if name == "" || value == "" {
			o.invalid = fmt.Errorf("%w: WithCreateHeader: the header's name %q or value %q is empty",
				leasehold.ErrPermanent, name, value)
		}
	}
}

// NewS3 returns the objects of bucket, with your own client. The client's settings apply as
// [leasehold.NewS3Store] says. NewS3 sends no request. [S3.Describe], [leasehold.NewLock] and every
// method report arguments that cannot work.
func NewS3(client S3Client, bucket string, opts ...S3Option) *S3 {
	var o s3Options
	for _, opt := range opts {
		if opt == nil {
			o.invalid = fmt.Errorf("%w: an S3Option is nil", leasehold.ErrPermanent)
			break
		}
		opt(&o)
	}
	prefix := leasehold.WithKeyPrefix(o.prefix)
	s := &S3{leasehold.NewS3Store(client, bucket, prefix), o.invalid}
	if s.Describe().Err == nil {
		s.objects = leasehold.NewS3Store(&calls{client, o.header, o.value}, bucket, prefix)
	}
	return s
}

// Describe reports arguments that cannot work in Err, which matches [leasehold.ErrPermanent]: see
// [leasehold.S3Store.Describe]. It sends no request.
func (s *S3) Describe() leasehold.StoreInfo {
	if s == nil {
		return (*leasehold.S3Store)(nil).Describe()
	}
	if s.invalid != nil {
		return leasehold.StoreInfo{Err: s.invalid}
	}
	return s.objects.Describe()
}

// Create implements [Objects].
func (s *S3) Create(ctx context.Context, name string, body []byte) error {
	_, err := s.objects.PutIfNoneMatch(ctx, name, body)
	return err
}

// Get implements [Objects].
func (s *S3) Get(ctx context.Context, name string) ([]byte, error) {
	o, err := s.objects.Get(ctx, name)
	return o.Body, err
}

// List implements [Objects].
func (s *S3) List(ctx context.Context, prefix string) ([]string, error) {
	l := new(listing)
	if _, err := s.objects.Get(context.WithValue(ctx, listingKey{}, l), prefix); err != nil {
		return nil, err
	}
	names := make([]string, len(l.suffixes))
	for i, suffix := range l.suffixes {
		names[i] = prefix + suffix
	}
	return names, nil
}

// Delete implements [Objects].
func (s *S3) Delete(ctx context.Context, name string) error {
	return s.objects.DeleteIfMatch(ctx, name, "*") // which calls leaves out
}

// calls is the client of a [leasehold.S3Store] that also sends LISTs, deletes without a condition,
// and creates with another header. So all requests have the errors, the time limits and the
// handling of proxies and broken connections of an S3Store.
type calls struct {
	client        S3Client
	header, value string
}

// PutObject creates an object.
func (c *calls) PutObject(ctx context.Context, in *s3.PutObjectInput,
	opts ...func(*s3.Options)) (*s3.PutObjectOutput, error) {
	if c.header != "" {
		in.IfNoneMatch = nil
		opts = append(opts, s3.WithAPIOptions(smithyhttp.SetHeaderValue(c.header, c.value)))
	}
	return c.client.PutObject(ctx, in, opts...)
}

// DeleteObject deletes an object without a condition.
func (c *calls) DeleteObject(ctx context.Context, in *s3.DeleteObjectInput,
	opts ...func(*s3.Options)) (*s3.DeleteObjectOutput, error) {
	in.IfMatch = nil
	return c.client.DeleteObject(ctx, in, opts...)
}

// listing is a LIST, passed to GetObject as the value of listingKey in its context.
type listing struct {
	suffixes []string // what comes after the prefix
}

type listingKey struct{}

// GetObject reads an object, or lists those that begin with the key.
func (c *calls) GetObject(ctx context.Context, in *s3.GetObjectInput,
	opts ...func(*s3.Options)) (*s3.GetObjectOutput, error) {
	l, ok := ctx.Value(listingKey{}).(*listing)
	if !ok {
		return c.client.GetObject(ctx, in, opts...)
	}
	l.suffixes = nil
	list := &s3.ListObjectsV2Input{Bucket: in.Bucket, Prefix: in.Key}
	for {
		out, err := c.client.ListObjectsV2(ctx, list, opts...)
		switch {
		case err != nil:
			return nil, err
		case aws.ToString(out.Prefix) != *in.Key: // a page of a proxy may look like an empty list
			return nil, fmt.Errorf("the answer to LIST is for the prefix %q", aws.ToString(out.Prefix))
		}
		for _, o := range out.Contents {
			l.suffixes = append(l.suffixes, strings.TrimPrefix(aws.ToString(o.Key), *in.Key))
		}
		// Some servers send a token with the last page too. Where LIST has no order, the highest
		// version may be on any page, so all are read.
		enough := len(l.suffixes) >= Listed && slices.IsSorted(l.suffixes)
		next := aws.ToString(out.NextContinuationToken)
		if enough || !aws.ToBool(out.IsTruncated) {
			slices.Sort(l.suffixes)
			return &s3.GetObjectOutput{
				Body:           io.NopCloser(strings.NewReader("")),
				ETag:           aws.String("list"),
				ResultMetadata: out.ResultMetadata,
			}, nil
		}
		if next == "" || next == aws.ToString(list.ContinuationToken) {
			return nil, errors.New("the answer to LIST is cut off, and does not say how to continue")
		}
		list.ContinuationToken = &next
	}
}
