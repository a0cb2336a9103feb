package leasehold

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"
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
	bucket      string
	prefix      string
	serverClock bool
	slack       time.Duration
	timeout     time.Duration
	settings    []func(*s3.Options)

	answered atomic.Bool  // the server has given an HTTP answer
	sound    atomic.Bool  // and one that only an S3 gives
	strange  atomic.Int32 // how many no S3 gives
}

// S3Option configures an [S3Store].
type S3Option func(*S3Store)

// WithKeyPrefix puts every object below prefix, which is used as it is: end it with a slash. Give locks a prefix that
// no lifecycle rule expires.
func WithKeyPrefix(prefix string) S3Option { return func(s *S3Store) { s.prefix = prefix } }

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
	s := &S3Store{client: client, bucket: bucket, timeout: s3Timeout}
	for _, opt := range opts {
		opt(s)
	}
	s.settings = []func(*s3.Options){func(o *s3.Options) {
		o.Retryer = aws.NopRetryer{}
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		o.APIOptions = append(o.APIOptions, s.listen)
	}}
	return s
}

// Validate returns an error that matches [ErrPermanent] if the arguments of [NewS3Store] cannot work: no client, a name that
// no bucket can have, a key prefix that some servers change, too small a slack. It sends no request.
func (s *S3Store) Validate() error {
	bad := func(format string, args ...any) error {
		return &storeError{kind: ErrPermanent, cause: fmt.Errorf(format, args...)}
	}
	if c, ok := s.client.(*s3.Client); s.client == nil || ok && c == nil {
		return bad("the S3 client is nil: make one with s3.New or s3.NewFromConfig")
	}
	if rest, ok := strings.CutPrefix(s.bucket, "s3://"); ok {
		name, prefix, _ := strings.Cut(rest, "/")
		return bad("bucket %q is a URL: give the bare name %q, and what follows it, %q, to WithKeyPrefix", s.bucket, name, prefix)
	}
	if s.bucket == "" {
		return bad("the bucket has no name")
	}
	if !strings.HasPrefix(s.bucket, "arn:") && strings.ContainsFunc(s.bucket, notInBucketName) {
		return bad("bucket %q is not a bucket's name, which has only lower-case letters, digits, dots and dashes (a path belongs into WithKeyPrefix)", s.bucket)
	}
	if s.prefix != "" {
		if why := badKey(s.prefix + "x"); why != "" {
			return bad("key prefix %.80q %s: use a path such as \"locks/\"", s.prefix, why)
		}
	}
	if s.serverClock && s.slack < minSlack {
		return bad("WithServerClock: slack %v is below %v: 1 s because HTTP dates are whole seconds, and 1 s because the clocks of the store's own machines differ", s.slack, minSlack)
	}
	return nil
}

// notInBucketName allows what old buckets and other servers allow: underscores, and colons after a tenant's name.
func notInBucketName(r rune) bool {
	return r > unicode.MaxASCII || !unicode.IsLower(r) && !unicode.IsDigit(r) && !strings.ContainsRune(".-_:", r)
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
	out, err := s.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &s.bucket, Key: s.key(key)}, s.settings...)
	if err != nil {
		return Object{}, s.explain(err, opGet, key)
	}
	defer func() { _ = out.Body.Close() }()
	if err := noS3Reply(out.ResultMetadata, out.ETag, http.StatusOK); err != nil {
		return Object{}, s.notS3(err, opGet, key)
	}
	s.heard()
	o := Object{ETag: *out.ETag, Age: s.age(out)}
	o.Body, err = io.ReadAll(io.LimitReader(out.Body, MaxObjectSize+1))
	switch {
	case err != nil:
		return Object{}, &storeError{doing: s.doing(opGet, key), cause: err}
	case len(o.Body) > MaxObjectSize:
		o.Body = nil
		return o, &storeError{doing: s.doing(opGet, key), kind: ErrCorruptRecord, cause: fmt.Errorf("it is larger than %d bytes", MaxObjectSize)}
	case out.ContentLength != nil && *out.ContentLength != int64(len(o.Body)):
		return Object{}, &storeError{doing: s.doing(opGet, key), cause: io.ErrUnexpectedEOF}
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
		return "", s.emptyETag(opPut, key)
	}
	return s.put(ctx, key, body, &etag, nil)
}

// DeleteIfMatch implements [Store]. MinIO and others ignore the condition: see [CheckStore].
func (s *S3Store) DeleteIfMatch(ctx context.Context, key, etag string) error {
	if err := s.Validate(); err != nil {
		return err
	}
	if etag == "" {
		return s.emptyETag(opDelete, key)
	}
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	out, err := s.client.DeleteObject(ctx, &s3.DeleteObjectInput{
		Bucket: &s.bucket, Key: s.key(key), IfMatch: &etag,
	}, s.settings...)
	if err != nil {
		return s.explain(err, opDelete, key)
	}
	if err := noS3Delete(out.ResultMetadata); err != nil {
		return s.notS3(err, opDelete, key)
	}
	s.heard()
	return nil
}

func (s *S3Store) put(ctx context.Context, key string, body []byte, ifMatch, ifNoneMatch *string) (string, error) {
	if err := s.Validate(); err != nil {
		return "", err
	}
	if len(body) > MaxObjectSize {
		return "", tooLarge(s.doing(opPut, key), body)
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
	if err := noS3Reply(out.ResultMetadata, out.ETag, http.StatusOK); err != nil { // whether the write has landed is unknown
		return "", s.notS3(err, opPut, key)
	}
	s.heard()
	return *out.ETag, nil
}

func (s *S3Store) key(key string) *string { return aws.String(s.prefix + key) }

// doing begins an error's text.
func (s *S3Store) doing(op s3Op, key string) string {
	return fmt.Sprintf("%s %q in bucket %q", op.verb, s.prefix+key, s.bucket)
}

func (s *S3Store) emptyETag(op s3Op, key string) error {
	return &storeError{doing: s.doing(op, key), kind: ErrPermanent, cause: errors.New("the ETag is empty")}
}

func (s *S3Store) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, s.timeout)
}

// age is how old the version is by the server's clock alone. Both dates are cut to whole seconds (RFC 9110, 5.6.7).
func (s *S3Store) age(out *s3.GetObjectOutput) time.Duration {
	now, ok := awsmiddleware.GetServerTime(out.ResultMetadata)
	if !s.serverClock || !ok || now.IsZero() || out.LastModified == nil || out.LastModified.IsZero() {
		return 0
	}
	return max(now.Sub(*out.LastModified)-s.slack, 0)
}
