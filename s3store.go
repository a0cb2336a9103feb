package leasehold

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
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
type S3Store struct {
	client   S3Client
	bucket   string
	prefix   string
	slack    time.Duration
	timeout  time.Duration
	settings []func(*s3.Options)
}

// S3Option configures an [S3Store].
type S3Option func(*S3Store)

// WithKeyPrefix puts every object below prefix, which is used as it is: end it with a slash. Give locks a prefix that
// no lifecycle rule expires.
func WithKeyPrefix(prefix string) S3Option { return func(s *S3Store) { s.prefix = prefix } }

// WithAgeSlack sets what is taken off an [Object]'s Age: default 2 s, one for the resolution of HTTP dates, and one for
// the clocks of the store's own machines to differ from each other. Raise it for a cluster without synchronised clocks.
func WithAgeSlack(d time.Duration) S3Option { return func(s *S3Store) { s.slack = d } }

const (
	s3Timeout = 10 * time.Second
	s3Slack   = 2 * time.Second
)

// NewS3Store returns a store in bucket. The client is the user's own, so that every endpoint, region and credential that
// it can be given will do; its settings stay, except that requests are not retried by the SDK, because locks reconcile
// them themselves, and that checksums are sent only where S3 requires them, because other servers refuse them.
// A request whose context has no deadline is given one of 10 s.
func NewS3Store(client S3Client, bucket string, opts ...S3Option) *S3Store {
	s := &S3Store{client: client, bucket: bucket, slack: s3Slack, timeout: s3Timeout}
	for _, opt := range opts {
		opt(s)
	}
	s.settings = []func(*s3.Options){func(o *s3.Options) {
		o.Retryer = aws.NopRetryer{}
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
	}}
	return s
}

// Get implements [Store]. Age is the reply's Date less its Last-Modified, less the slack of [WithAgeSlack].
func (s *S3Store) Get(ctx context.Context, key string) (Object, error) {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	out, err := s.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &s.bucket, Key: s.key(key)}, s.settings...)
	if err != nil {
		return Object{}, s.explain(err, opGet, key)
	}
	defer func() { _ = out.Body.Close() }()
	o := Object{ETag: aws.ToString(out.ETag), Age: s.age(out)}
	if o.ETag == "" {
		return Object{}, fmt.Errorf("%w: bucket %q: the server gives no ETag for %q", ErrUnsafeStore, s.bucket, key)
	}
	o.Body, err = io.ReadAll(io.LimitReader(out.Body, MaxObjectSize+1))
	switch {
	case err != nil:
		return Object{}, fmt.Errorf("leasehold: reading %q from bucket %q: %w", key, s.bucket, err)
	case len(o.Body) > MaxObjectSize:
		o.Body = nil
		return o, fmt.Errorf("%w: %q in bucket %q is larger than %d bytes", ErrCorruptRecord, key, s.bucket, MaxObjectSize)
	case out.ContentLength != nil && *out.ContentLength != int64(len(o.Body)):
		return Object{}, fmt.Errorf("leasehold: reading %q from bucket %q: %w", key, s.bucket, io.ErrUnexpectedEOF)
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
		return "", fmt.Errorf("%w: %q: empty ETag", ErrPermanent, key)
	}
	return s.put(ctx, key, body, &etag, nil)
}

// DeleteIfMatch implements [Store]. MinIO and others ignore the condition: see [CheckStore].
func (s *S3Store) DeleteIfMatch(ctx context.Context, key, etag string) error {
	if etag == "" {
		return fmt.Errorf("%w: %q: empty ETag", ErrPermanent, key)
	}
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	_, err := s.client.DeleteObject(ctx, &s3.DeleteObjectInput{
		Bucket: &s.bucket, Key: s.key(key), IfMatch: &etag,
	}, s.settings...)
	return s.explain(err, opDelete, key)
}

func (s *S3Store) put(ctx context.Context, key string, body []byte, ifMatch, ifNoneMatch *string) (string, error) {
	if len(body) > MaxObjectSize {
		return "", fmt.Errorf("%w: %q: %d bytes are over %d", ErrPermanent, key, len(body), MaxObjectSize)
	}
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	out, err := s.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &s.bucket, Key: s.key(key), Body: bytes.NewReader(body), ContentLength: aws.Int64(int64(len(body))),
		ContentType: aws.String("application/json"), CacheControl: aws.String("no-store"),
		IfMatch: ifMatch, IfNoneMatch: ifNoneMatch,
	}, s.settings...)
	if err != nil {
		return "", s.explain(err, opPut, key)
	}
	if aws.ToString(out.ETag) == "" { // a proxy's own page, say: whether the write has landed is unknown
		return "", fmt.Errorf("leasehold: writing %q in bucket %q: the answer has no ETag", s.prefix+key, s.bucket)
	}
	return *out.ETag, nil
}

func (s *S3Store) key(key string) *string { return aws.String(s.prefix + key) }

func (s *S3Store) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, s.timeout)
}

// age is how old the version is by the server's clock alone. Both dates are cut to whole seconds (RFC 9110, 5.6.7).
func (s *S3Store) age(out *s3.GetObjectOutput) time.Duration {
	now, ok := awsmiddleware.GetServerTime(out.ResultMetadata)
	if !ok || now.IsZero() || out.LastModified == nil || out.LastModified.IsZero() {
		return 0
	}
	return max(now.Sub(*out.LastModified)-s.slack, 0)
}

// s3Op says what a request needs, for error messages.
type s3Op struct{ verb, permissions string }

var (
	opGet = s3Op{"reading", "s3:GetObject on the object, and s3:ListBucket on the bucket: " +
		"without that S3 answers 403 for an object that does not exist"}
	opPut    = s3Op{"writing", "s3:PutObject and s3:GetObject on the object"}
	opDelete = s3Op{"deleting", "s3:DeleteObject and s3:GetObject on the object"}
)

// explain turns an SDK error into the errors of Store. The HTTP status decides first, the S3 error code second.
func (s *S3Store) explain(err error, op s3Op, key string) error {
	if err == nil {
		return nil
	}
	status, code := 0, ""
	if http, ok := errors.AsType[interface {
		error
		HTTPStatusCode() int
	}](err); ok {
		status = http.HTTPStatusCode()
	}
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		code = api.ErrorCode()
	}
	as := func(sentinel error, hint string) error {
		if hint != "" {
			hint = " (" + hint + ")"
		}
		return fmt.Errorf("%w: %s %q in bucket %q%s: %w", sentinel, op.verb, s.prefix+key, s.bucket, hint, err)
	}
	switch {
	case status == http.StatusPreconditionFailed, code == "PreconditionFailed": // some servers send the code with status 200
		return as(ErrPreconditionFailed, "")
	case status == http.StatusConflict:
		return as(errConflict, "")
	case code == "NoSuchBucket":
		return as(ErrPermanent, "create the bucket, or correct its name or the endpoint")
	case status == http.StatusNotFound && code == "NoSuchKey":
		return as(ErrNotExist, "")
	case passing[code], status >= 500 && status != http.StatusNotImplemented, status == http.StatusTooManyRequests:
	case status == http.StatusNotImplemented, code == "NotImplemented":
		return as(ErrUnsafeStore, "the server does not implement conditional writes")
	case status == http.StatusForbidden, status == http.StatusUnauthorized:
		return as(ErrPermanent, "check the credentials; they need "+op.permissions)
	case status == http.StatusMovedPermanently, status == http.StatusTemporaryRedirect, code == "AuthorizationHeaderMalformed":
		return as(ErrPermanent, "the bucket is in another region than the client's, or at another endpoint")
	case status == http.StatusBadRequest, status == http.StatusMethodNotAllowed:
		return as(ErrPermanent, "the server refuses the request: check bucket name, key and endpoint")
	}
	return fmt.Errorf("leasehold: %s %q in bucket %q: %w", op.verb, s.prefix+key, s.bucket, err)
}

// passing are the codes of 4xx answers that pass by themselves, or when the client has new credentials.
var passing = map[string]bool{
	"RequestTimeout": true, "RequestTimeTooSkewed": true,
	"ExpiredToken": true, "ExpiredTokenException": true, "TokenRefreshRequired": true, "RequestExpired": true,
	"SlowDown": true, "Throttling": true, "ThrottlingException": true, "TooManyRequests": true,
	"IncompleteBody": true, "BadDigest": true, "OperationAborted": true,
}
