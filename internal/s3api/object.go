package s3api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/leasehold-go/leasehold/internal/storeapi"
	"github.com/leasehold-go/leasehold/storehttp"
)

// Client is leasehold.S3Client.
type Client interface {
	GetObject(context.Context, *s3.GetObjectInput, ...func(*s3.Options)) (*s3.GetObjectOutput, error)
	PutObject(context.Context, *s3.PutObjectInput, ...func(*s3.Options)) (*s3.PutObjectOutput, error)
	DeleteObject(context.Context, *s3.DeleteObjectInput, ...func(*s3.Options)) (*s3.DeleteObjectOutput, error)
}

// Objects are the small objects of a bucket, each read and written whole, by one request that is
// never repeated.
type Objects struct {
	*Bucket
	Client Client
	Limit  int           // of a body, in bytes
	Slack  time.Duration // is subtracted from each age
	Wrong  error         // why they cannot work, as their maker has seen
}

// Usable returns why no request can be sent.
func (o Objects) Usable() error {
	if o.Bucket == nil {
		return Bad("the S3Store is nil or empty (make one with NewS3Store)")
	}
	return o.Wrong
}

// Object has the fields of leasehold.Object.
type Object struct {
	Body []byte
	ETag string
	Age  time.Duration
}

// timeout bounds a request whose context has no deadline.
const timeout = 10 * time.Second

func deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, timeout)
}

// Get reads an object. If it is larger than Limit, the error matches storeapi.ErrCorruptRecord and
// the ETag is filled in.
func (o Objects) Get(ctx context.Context, key string) (Object, error) {
	if err := o.Usable(); err != nil {
		return Object{}, err
	}
	ctx, cancel := deadline(ctx)
	defer cancel()
	out, err := o.Client.GetObject(ctx, &s3.GetObjectInput{Bucket: &o.Name, Key: o.Key(key)}, o.Once)
	if err != nil {
		return Object{}, o.Explain(err, Get, key)
	}
	defer func() { _ = out.Body.Close() }()
	if err := o.Genuine(Get, key, out.ETag, out.ResultMetadata); err != nil {
		return Object{}, err
	}
	body, err := io.ReadAll(io.LimitReader(out.Body, int64(o.Limit)+1))
	switch {
	case err != nil:
		o.server.Unanswered(err)
		return Object{}, &storehttp.Error{Doing: o.Doing(Get, key), Cause: err}
	case len(body) > o.Limit:
		return Object{ETag: *out.ETag}, &storehttp.Error{
			Doing: o.Doing(Get, key), Kind: storeapi.ErrCorruptRecord,
			Cause: fmt.Errorf("it is larger than %d bytes", o.Limit),
		}
	case out.ContentLength != nil && *out.ContentLength != int64(len(body)):
		return Object{}, &storehttp.Error{Doing: o.Doing(Get, key), Cause: io.ErrUnexpectedEOF}
	}
	return Object{Body: body, ETag: *out.ETag, Age: o.age(out)}, nil
}

// age is the reply's Date minus its Last-Modified: how old the version is by the server's clock
// alone. Both dates are cut to whole seconds (RFC 9110, 5.6.7).
func (o Objects) age(out *s3.GetObjectOutput) time.Duration {
	now, _ := awsmiddleware.GetServerTime(out.ResultMetadata)
	return storehttp.Age(now, aws.ToTime(out.LastModified), o.Slack)
}

// Create writes an object that does not exist yet.
func (o Objects) Create(ctx context.Context, key string, body []byte) (etag string, err error) {
	if err := o.Usable(); err != nil {
		return "", err
	}
	return o.put(ctx, key, body, nil, aws.String("*"))
}

// Replace writes over the version that etag names.
func (o Objects) Replace(ctx context.Context, key string, body []byte, etag string) (newETag string, err error) {
	if err := o.Usable(); err != nil {
		return "", err
	}
	if etag == "" { // some servers read an empty If-Match as "create"
		return "", o.emptyETag(Put, key)
	}
	err = o.Update(ctx, key, etag, func(ifMatch *string) (err error) {
		newETag, err = o.put(ctx, key, body, ifMatch, nil)
		return err
	})
	return newETag, err
}

func (o Objects) put(ctx context.Context, key string, body []byte, ifMatch, ifNoneMatch *string) (string, error) {
	if len(body) > o.Limit {
		return "", storeapi.TooLarge(o.Doing(Put, key), len(body), o.Limit)
	}
	ctx, cancel := deadline(ctx)
	defer cancel()
	out, err := o.Client.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &o.Name, Key: o.Key(key), Body: bytes.NewReader(body), ContentLength: aws.Int64(int64(len(body))),
		ContentMD5: o.MD5(body), ContentType: aws.String("application/json"), CacheControl: aws.String("no-store"),
		IfMatch: ifMatch, IfNoneMatch: ifNoneMatch,
	}, o.Once)
	if err != nil {
		return "", o.Explain(err, PutIf(ifMatch), key)
	}
	if err := o.Genuine(Put, key, out.ETag, out.ResultMetadata); err != nil { // whether the write has landed is unknown
		return "", err
	}
	return *out.ETag, nil
}

// Delete removes the version that etag names.
func (o Objects) Delete(ctx context.Context, key, etag string) error {
	if err := o.Usable(); err != nil {
		return err
	}
	if etag == "" {
		return o.emptyETag(Delete, key)
	}
	ctx, cancel := deadline(ctx)
	defer cancel()
	out, err := o.Client.DeleteObject(ctx, &s3.DeleteObjectInput{
		Bucket:  &o.Name,
		Key:     o.Key(key),
		IfMatch: o.IfMatch(etag),
	}, o.Once)
	if err != nil {
		return o.Explain(err, Delete, key)
	}
	return o.GenuineDelete(key, out.ResultMetadata)
}

func (o Objects) emptyETag(op Op, key string) error {
	return &storehttp.Error{
		Doing: o.Doing(op, key), Kind: storeapi.ErrPermanent, Cause: errors.New("the ETag is empty"),
	}
}
