package leasehold

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/leasehold-go/leasehold/internal/s3api"
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
	objects     s3api.Objects
	serverClock bool
	slack       time.Duration // what age loses
}

// S3Option configures an [S3Store].
type S3Option func(*S3Store)

// WithKeyPrefix puts every object below prefix, which is used as it is: end it with a slash. Give locks a prefix that
// no lifecycle rule expires.
func WithKeyPrefix(prefix string) S3Option { return func(s *S3Store) { s.objects.Prefix = prefix } }

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

const minSlack = 2 * time.Second

// NewS3Store returns a store in bucket. The client is the user's own, so that every endpoint, region and credential that
// it can be given will do; its settings stay, except that requests are not retried by the SDK, because locks reconcile
// them themselves, and that checksums are sent only where S3 requires them, because other servers refuse them.
// A request whose context has no deadline is given one of 10 s.
//
// NewS3Store sends no request. Arguments that cannot work are reported by [S3Store.Validate], by [NewLock], and by every
// method of the store.
func NewS3Store(client S3Client, bucket string, opts ...S3Option) *S3Store {
	s := &S3Store{objects: s3api.Objects{Bucket: &s3api.Bucket{Name: bucket}, Client: client, Limit: MaxObjectSize}}
	for _, opt := range opts {
		opt(s)
	}
	return s
}

// Validate returns an error that matches [ErrPermanent] if the arguments of [NewS3Store] cannot work: no client, a name that
// no bucket can have, a key prefix that some servers change, too small a slack. It sends no request.
func (s *S3Store) Validate() error {
	if err := s.objects.Validate(s.objects.Client); err != nil {
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
	o, err := s.objects.Get(ctx, key)
	if !s.serverClock {
		o.Age = 0
	}
	o.Age = max(o.Age-s.slack, 0)
	return Object(o), err
}

// PutIfNoneMatch implements [Store].
func (s *S3Store) PutIfNoneMatch(ctx context.Context, key string, body []byte) (string, error) {
	if err := s.Validate(); err != nil {
		return "", err
	}
	return s.objects.Create(ctx, key, body)
}

// PutIfMatch implements [Store].
func (s *S3Store) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	if err := s.Validate(); err != nil {
		return "", err
	}
	return s.objects.Replace(ctx, key, body, etag)
}

// DeleteIfMatch implements [Store]. MinIO and others ignore the condition: see [CheckStore].
func (s *S3Store) DeleteIfMatch(ctx context.Context, key, etag string) error {
	if err := s.Validate(); err != nil {
		return err
	}
	return s.objects.Delete(ctx, key, etag)
}
