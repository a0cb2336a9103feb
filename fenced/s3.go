package fenced

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/middleware"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/s3api"
	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// S3Client is the part of [*s3.Client] that [NewS3Store] needs.
type S3Client interface {
	leasehold.S3Client
	HeadObject(context.Context, *s3.HeadObjectInput, ...func(*s3.Options)) (*s3.HeadObjectOutput, error)
	CreateMultipartUpload(context.Context, *s3.CreateMultipartUploadInput,
		...func(*s3.Options)) (*s3.CreateMultipartUploadOutput, error)
	UploadPart(context.Context, *s3.UploadPartInput, ...func(*s3.Options)) (*s3.UploadPartOutput, error)
	CompleteMultipartUpload(context.Context, *s3.CompleteMultipartUploadInput,
		...func(*s3.Options)) (*s3.CompleteMultipartUploadOutput, error)
	AbortMultipartUpload(context.Context, *s3.AbortMultipartUploadInput,
		...func(*s3.Options)) (*s3.AbortMultipartUploadOutput, error)
}

// ETagMode selects how two versions of one S3 object get different ETags. S3's default ETag is a
// hash of the body alone. If the same body is written again, for example by [Store.Seal], the ETag
// does not change, so a former leader that has read the older version could still replace it.
type ETagMode uint8

const (
	// UniqueETags relies on a bucket whose ETags never repeat, as with SSE-KMS, with SSE-C and in
	// directory buckets. The first write checks that.
	UniqueETags ETagMode = iota + 1
	// PaddedBodies adds 64 random spaces and tabs to the end of each body, which [Store.Get]
	// removes. Readers of JSON, and of most other text, tolerate them. Readers of compressed and
	// binary formats may not, so Seal refuses to adopt an object that has a Content-Encoding.
	PaddedBodies
	// DistinctBodies requires that you never write the same body to one key twice, for example by a
	// unique number in each body. Seal would write a body again, so with this mode it returns an
	// error.
	DistinctBodies
)

// NewS3Store returns a store of fenced objects in bucket. See [ETagMode] for the choice of mode.
// NewS3Store sends no request. For a nil client, an impossible bucket name or an unknown mode, the
// error matches [leasehold.ErrPermanent]. The client's settings apply, with the exceptions that
// [leasehold.NewS3Store] names.
//
// The client needs the permissions s3:GetObject, s3:PutObject and s3:ListBucket, and for bodies
// over 8 MiB, which are uploaded in parts, s3:AbortMultipartUpload.
//
// The check before the first write (see [Store]) sends 8 requests, or about twice as many if the
// server requires ETags without quotes (see [leasehold.S3Store]). The first write of a large body
// sends 14 more, because a server may keep the metadata of a PUT and drop the metadata of an upload
// in parts, or ignore a condition of CompleteMultipartUpload. Requests that fail temporarily are
// repeated within ctx, for a few seconds each, because some servers accept one write of an object
// per second. The check removes its object, which is next to the key. Without s3:DeleteObject the
// object is ".leasehold-check". It remains, and the next check uses it again.
func NewS3Store(client S3Client, bucket string, mode ETagMode, opts ...Option) (*Store, error) {
	b := &s3Backend{
		client: client, Bucket: s3api.NewBucket(bucket), mode: mode, partSize: 8 << 20, timeout: time.Minute,
		large: newGate(),
	}
	o, err := options(opts)
	if o.partSize > 0 {
		b.partSize = o.partSize
	}
	err = cmp.Or(b.Validate(client), err)
	if err == nil && (mode < UniqueETags || mode > DistinctBodies) {
		err = s3api.Bad("ETag mode %d is not UniqueETags, PaddedBodies or DistinctBodies", mode)
	}
	if err != nil {
		return nil, fmt.Errorf("leasehold: fenced.NewS3Store: %w", err)
	}
	s := NewStore(b, opts...)
	b.suffix = s.suffix
	if mode == DistinctBodies {
		s.noSeal = s3api.Bad("Seal writes a body again, which DistinctBodies excludes")
	}
	return s, nil
}

// s3Backend is a Backend in an S3 bucket. An ETag is the ID of a version.
type s3Backend struct {
	*s3api.Bucket
	client   S3Client
	mode     ETagMode
	partSize int64         // larger bodies go in parts of at least this size, in bytes
	timeout  time.Duration // of a request without a body, except a GET

	large   gate   // of writes in parts
	suffix  string // of the check's object, if it can be removed
	removes bool   // it can; set by the check of the Store
}

// Head implements Backend.
func (b *s3Backend) Head(ctx context.Context, key string) (Version, error) {
	ctx, cancel := b.deadline(ctx, 0)
	defer cancel()
	out, err := b.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &b.Name, Key: &key}, b.Patient)
	if _, missing := errors.AsType[*types.NotFound](err); missing {
		// A HEAD shows neither which server has answered nor whether the bucket exists. The
		// conditional write does.
		return Version{}, nil
	}
	if err != nil {
		return Version{}, b.Explain(err, s3api.Get, key)
	}
	v, err := b.version(key, out.ETag, out.ContentLength, out.ContentType, out.Metadata, out.ResultMetadata)
	if v.Metadata[metaPad] != "" {
		v.Size = max(v.Size-padding, -1)
	}
	return v, err
}

// Get implements Backend.
func (b *s3Backend) Get(ctx context.Context, key string) (Version, io.ReadCloser, error) {
	context.AfterFunc(ctx, func() { b.Unanswered(context.Cause(ctx)) })
	out, err := b.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &b.Name, Key: &key}, b.Patient)
	if err != nil {
		return Version{}, nil, b.Explain(err, s3api.Get, key)
	}
	v, err := b.version(key, out.ETag, out.ContentLength, out.ContentType, out.Metadata, out.ResultMetadata)
	body := out.Body
	if err == nil {
		v.Settings = out
		body, err = unpad(&v, out.Body, b.Doing(s3api.Get, key), func() bool {
			now, err := b.Head(ctx, key)
			return err == nil && now.ID == v.ID
		})
	}
	if err != nil {
		_ = out.Body.Close()
		return Version{}, nil, err
	}
	return v, body, nil
}

// version describes the object of an answer. Its size is the size on the wire, with the padding.
func (b *s3Backend) version(key string, etag *string, size *int64, contentType *string, meta map[string]string,
	reply middleware.Metadata) (Version, error) {
	if err := b.GenuineObject(key, etag, reply); err != nil {
		return Version{}, err
	}
	v := Version{ID: *etag, Size: -1, ContentType: aws.ToString(contentType), Metadata: meta}
	if size != nil {
		v.Size = *size
	}
	return v, nil
}

// Put implements Backend.
func (b *s3Backend) Put(ctx context.Context, key string, old, next Version, body io.Reader) error {
	w := s3Over(key, old.ID, next.Metadata)
	if got, again := next.Settings.(*s3.GetObjectOutput); again {
		var err error
		if w.settings, err = b.keep(got); err != nil {
			return &storeapi.Error{
				Doing: fmt.Sprintf("writing %q again", key),
				Kind:  leasehold.ErrPermanent,
				Cause: err,
			}
		}
	} else if next.ContentType != "" {
		w.ContentType = &next.ContentType
	}
	if old.ID != "" && next.Settings == nil { // Seal has read the object a second time already
		if err := b.confirm(ctx, key, old); err != nil {
			return err
		}
	}
	// Otherwise all tombstones have the same ETag. What has no nonce is not a Store's.
	if (b.mode == PaddedBodies || w.meta[metaGone] != "") && w.meta[metaNonce] != "" {
		body = w.pad(body, &next.Size)
	}
	first, err := io.ReadAll(io.LimitReader(body, b.partSize+1))
	if err != nil {
		return fmt.Errorf("reading the body of %q: %w", key, err)
	}
	if int64(len(first)) <= b.partSize {
		_, err = b.put(ctx, w, first)
		return err
	}
	if err := b.large.pass(ctx, func() error { return b.checkLarge(ctx, key) }); err != nil {
		return err
	}
	return b.putParts(ctx, w, io.MultiReader(bytes.NewReader(first), body), next.Size)
}

// confirm looks a second time at the version that a write will replace. VersityGW reads the
// metadata before the ETag, so a HEAD during a replacement may show the old token with the new
// ETag. If two reads, one after the other, show one ETag, the object did not change between them,
// and the metadata of the second belongs to that ETag or to a later one.
func (b *s3Backend) confirm(ctx context.Context, key string, old Version) error {
	now, err := b.Head(ctx, key)
	if err == nil && !old.same(now) {
		err = fmt.Errorf("writing %q: %w", key, storeapi.ErrConflict)
	}
	return err
}

// s3Write is one attempt to write an object.
type s3Write struct {
	key                  string
	ifMatch, ifNoneMatch *string
	meta                 map[string]string
	settings
}

// s3Over is a write over the version of an ETag, or a create if that is empty.
func s3Over(key, etag string, meta map[string]string) s3Write {
	w := s3Write{key: key, meta: meta, ifMatch: &etag}
	if etag == "" {
		w.ifMatch, w.ifNoneMatch = nil, aws.String("*")
	}
	return w
}

// put sends a body in one request. The check of the server begins with it, so the form of ETags is
// known from then on.
func (b *s3Backend) put(ctx context.Context, w s3Write, body []byte) (etag string, err error) {
	if w.ifMatch == nil {
		return b.send(ctx, w, body)
	}
	objects := s3api.Objects{Bucket: b.Bucket, Client: b.client, Limit: 1 << 10}
	err = objects.Update(ctx, w.key, *w.ifMatch, func(ifMatch *string) (err error) {
		w.ifMatch = ifMatch
		etag, err = b.send(ctx, w, body)
		return err
	})
	return etag, err
}

func (b *s3Backend) send(ctx context.Context, w s3Write, body []byte) (etag string, err error) {
	ctx, cancel := b.deadline(ctx, int64(len(body)))
	defer cancel()
	out, err := b.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &b.Name, Key: &w.key, Body: bytes.NewReader(body),
		ContentLength: aws.Int64(int64(len(body))), Metadata: w.meta,
		ContentMD5: b.MD5(body), ContentType: w.ContentType, ContentEncoding: w.ContentEncoding,
		ContentLanguage:    w.ContentLanguage,
		ContentDisposition: w.ContentDisposition, CacheControl: w.CacheControl, Expires: w.expires,
		WebsiteRedirectLocation: w.redirect, StorageClass: w.class,
		ServerSideEncryption: w.encryption, SSEKMSKeyId: w.kmsKey, BucketKeyEnabled: w.bucketKey,
		IfMatch: w.ifMatch, IfNoneMatch: w.ifNoneMatch,
	}, b.Once)
	if err != nil {
		return "", b.Explain(err, s3api.PutIf(w.ifMatch), w.key)
	}
	if err := b.Genuine(s3api.Put, w.key, out.ETag, out.ResultMetadata); err != nil {
		return "", err
	}
	return *out.ETag, nil
}

// leastRate is how many bytes of a body must go up in a second.
const leastRate = 128 << 10

// deadline limits the time of a request that carries size bytes, even if ctx allows more.
func (b *s3Backend) deadline(ctx context.Context, size int64) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, b.timeout+time.Duration(size)*time.Second/leastRate)
}
