package leasehold

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/leasehold-go/leasehold/internal/s3api"
	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// S3Client is the part of [*s3.Client] that an [S3Store] calls.
type S3Client interface {
	GetObject(context.Context, *s3.GetObjectInput, ...func(*s3.Options)) (*s3.GetObjectOutput, error)
	PutObject(context.Context, *s3.PutObjectInput, ...func(*s3.Options)) (*s3.PutObjectOutput, error)
	DeleteObject(context.Context, *s3.DeleteObjectInput, ...func(*s3.Options)) (*s3.DeleteObjectOutput, error)
}

// S3Store is a [Store] in a bucket of Amazon S3 or a server that speaks its protocol and enforces conditional writes.
// It is safe for concurrent use.
//
// It needs the permissions s3:GetObject, s3:PutObject and s3:ListBucket (without the last, S3 answers 403 for an object
// that does not exist yet), and s3:DeleteObject for DeleteIfMatch only.
//
// Errors that no retry can heal match [ErrPermanent] and say what to do: a missing bucket or permission, wrong keys. Until
// the server has answered for the first time, so do faults that no request can get past: no region, no credentials, an
// unknown host, http where https is spoken. A reply that does not come from an S3, such as a proxy's page, says
// nothing about the object, so it is an error that may pass; but the third of that kind before the first answer of an S3
// matches ErrPermanent, because the endpoint is probably wrong.
type S3Store struct {
	client      S3Client
	bucket      *s3api.Bucket
	serverClock bool
	slack       time.Duration
	timeout     time.Duration
}

// S3Option configures an [S3Store].
type S3Option func(*S3Store)

// WithKeyPrefix puts every object below prefix, which is used as it is: end it with a slash. Give locks a prefix that
// no lifecycle rule expires.
func WithKeyPrefix(prefix string) S3Option { return func(s *S3Store) { s.bucket.Prefix = prefix } }

// WithServerClock trusts the server's clock: Get tells an [Object]'s Age, which is the reply's Date minus its Last-Modified
// minus slack. A candidate that has just started can then take over at once from a holder that is gone, where it
// would otherwise watch for a TTL. Without this option Age is 0, and no clock but a candidate's own monotonic one decides.
//
// Use it only if Date and Last-Modified come from one clock that is not stepped, and no proxy on the way writes a Date of
// its own (nginx does by default). If that is wrong, a living holder's lock can be taken over. Locks limit the harm:
// they use only the first reply that shows a version, and never take it for older than their own looks allow.
// [CheckStore] measures the ages told and refuses a store whose Date runs ahead.
//
// slack is at least 2 s: 1 s because HTTP dates are whole seconds, and 1 s because the clocks of the store's own machines
// differ. Choose more for a cluster whose clocks are not synchronised. Less is refused: see [S3Store.Validate].
func WithServerClock(slack time.Duration) S3Option {
	return func(s *S3Store) { s.serverClock, s.slack = true, slack }
}

const (
	s3Timeout = 10 * time.Second
	minSlack  = 2 * time.Second
)

// NewS3Store returns a store in bucket. The client is the user's own, so that every endpoint, region and credential that
// it can be given will do; its settings stay, except that requests are not retried by the SDK, because locks reconcile
// them themselves, and that checksums are sent only where S3 requires them, because other servers refuse them.
// A request whose context has no deadline is given one of 10 s.
//
// NewS3Store sends no request. Arguments that cannot work are reported by [S3Store.Validate], by [NewLock], and by every
// method of the store.
func NewS3Store(client S3Client, bucket string, opts ...S3Option) *S3Store {
	s := &S3Store{client: client, bucket: &s3api.Bucket{Name: bucket}, timeout: s3Timeout}
	for _, opt := range opts {
		opt(s)
	}
	return s
}

// Validate returns an error that matches [ErrPermanent] if the arguments of [NewS3Store] cannot work: no client, a name that
// no bucket can have, a key prefix that some servers change, too small a slack. It sends no request.
func (s *S3Store) Validate() error {
	if err := s.bucket.Validate(s.client); err != nil {
		return err
	}
	if s.serverClock && s.slack < minSlack {
		return s3api.Bad("WithServerClock: slack %v is below %v: 1 s because HTTP dates are whole seconds, and 1 s because the clocks of the store's own machines differ", s.slack, minSlack)
	}
	return nil
}

// TellsAge reports whether [WithServerClock] is set: see [Store].
func (s *S3Store) TellsAge() bool { return s.serverClock }

// Get implements [Store]. Age is 0 without [WithServerClock].
func (s *S3Store) Get(ctx context.Context, key string) (Object, error) {
	if err := s.Validate(); err != nil {
		return Object{}, err
	}
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	out, err := s.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &s.bucket.Name, Key: s.bucket.Key(key)}, s.bucket.Once)
	if err != nil {
		return Object{}, s.bucket.Explain(err, s3api.Get, key)
	}
	defer func() { _ = out.Body.Close() }()
	if err := s.bucket.Genuine(s3api.Get, key, out.ETag, out.ResultMetadata); err != nil {
		return Object{}, err
	}
	o := Object{ETag: *out.ETag}
	if s.serverClock {
		o.Age = max(s3api.Age(out)-s.slack, 0)
	}
	o.Body, err = io.ReadAll(io.LimitReader(out.Body, MaxObjectSize+1))
	switch {
	case err != nil:
		return Object{}, &storeapi.Error{Doing: s.bucket.Doing(s3api.Get, key), Cause: err}
	case len(o.Body) > MaxObjectSize:
		o.Body = nil
		return o, &storeapi.Error{Doing: s.bucket.Doing(s3api.Get, key), Kind: ErrCorruptRecord, Cause: fmt.Errorf("it is larger than %d bytes", MaxObjectSize)}
	case out.ContentLength != nil && *out.ContentLength != int64(len(o.Body)):
		return Object{}, &storeapi.Error{Doing: s.bucket.Doing(s3api.Get, key), Cause: io.ErrUnexpectedEOF}
	}
	return o, nil
}

// PutIfNoneMatch implements [Store].
func (s *S3Store) PutIfNoneMatch(ctx context.Context, key string, body []byte) (string, error) {
	return s.put(ctx, key, body, nil, aws.String("*"))
}

// PutIfMatch implements [Store].
func (s *S3Store) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	if etag == "" { // some servers read an empty If-Match as "create"
		return "", s.emptyETag(s3api.Put, key)
	}
	return s.put(ctx, key, body, &etag, nil)
}

// DeleteIfMatch implements [Store]. MinIO and others ignore the condition: see [CheckStore].
func (s *S3Store) DeleteIfMatch(ctx context.Context, key, etag string) error {
	if err := s.Validate(); err != nil {
		return err
	}
	if etag == "" {
		return s.emptyETag(s3api.Delete, key)
	}
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	out, err := s.client.DeleteObject(ctx, &s3.DeleteObjectInput{
		Bucket: &s.bucket.Name, Key: s.bucket.Key(key), IfMatch: &etag,
	}, s.bucket.Once)
	if err != nil {
		return s.bucket.Explain(err, s3api.Delete, key)
	}
	return s.bucket.GenuineDelete(key, out.ResultMetadata)
}

func (s *S3Store) put(ctx context.Context, key string, body []byte, ifMatch, ifNoneMatch *string) (string, error) {
	if err := s.Validate(); err != nil {
		return "", err
	}
	if len(body) > MaxObjectSize {
		return "", tooLarge(s.bucket.Doing(s3api.Put, key), body)
	}
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	out, err := s.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &s.bucket.Name, Key: s.bucket.Key(key), Body: bytes.NewReader(body), ContentLength: aws.Int64(int64(len(body))),
		ContentType: aws.String("application/json"), CacheControl: aws.String("no-store"),
		IfMatch: ifMatch, IfNoneMatch: ifNoneMatch,
	}, s.bucket.Once)
	if err != nil {
		return "", s.bucket.Explain(err, s3api.Put, key)
	}
	if err := s.bucket.Genuine(s3api.Put, key, out.ETag, out.ResultMetadata); err != nil { // whether the write has landed is unknown
		return "", err
	}
	return *out.ETag, nil
}

func (s *S3Store) emptyETag(op s3api.Op, key string) error {
	return &storeapi.Error{Doing: s.bucket.Doing(op, key), Kind: ErrPermanent, Cause: errors.New("the ETag is empty")}
}

func (s *S3Store) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, s.timeout)
}
