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

// S3Store is a [Store] in a bucket of Amazon S3, or of a server that speaks its protocol and
// enforces conditional writes. It is safe for concurrent use.
//
// Most servers require an ETag in the form in which they returned it. Ceph's gateway 16 and others
// require it without its quotes, and refuse every update otherwise. If an update is refused before
// the first one has succeeded, an S3Store finds out which form its server enforces, with an object
// ".leasehold-etag" next to the key. That object remains. [CheckStore] reports the form. See
// https://github.com/leasehold-go/leasehold/blob/main/docs/stores.md.
//
// An S3Store needs the permissions s3:GetObject, s3:PutObject and s3:ListBucket (without
// s3:ListBucket, S3 answers 403 for an object that does not exist yet), and s3:DeleteObject for
// DeleteIfMatch only.
//
// Errors that no retry can fix, such as a missing bucket or permission, or wrong keys, match
// [ErrPermanent] and say what to do. Before the server's first answer, errors from wrong settings
// of the client match it too: no region, no credentials, an unknown host, http where the server
// speaks https.
//
// A reply that does not come from an S3 server, such as a proxy's page, says nothing about the
// object, so the error is temporary. But if three such replies come before the first answer of an
// S3 server, the error matches ErrPermanent, because the endpoint is probably wrong.
//
// # ETags without quotes
//
// An S3Store sends ETags as it received them. The first update that succeeds settles this form for
// the S3Store. If an update is refused before that, the S3Store reads the object under the same
// ETag. If the object has another ETag, another process has written it, and the refusal is final.
// Other servers than Ceph see no more than this read.
//
// If the object still has the ETag, the S3Store sends four to seven requests on ".leasehold-etag".
// It sends ETags without quotes from then on only if the server takes the right ETag in that form
// and refuses a wrong one. It never relies on a form that the server might ignore. A server that
// refuses quotes on reads too is not found out.
type S3Store struct {
	objects     s3api.Objects
	minTTL      time.Duration
	serverClock bool
}

var _ Describer = (*S3Store)(nil)

// S3Option configures an [S3Store].
type S3Option func(*S3Store)

// WithKeyPrefix puts prefix before every key. No slash is added, so end the prefix with one. Choose
// a prefix whose objects no lifecycle rule expires.
func WithKeyPrefix(prefix string) S3Option { return func(s *S3Store) { s.objects.Prefix = prefix } }

// WithMinTTL sets the shortest TTL of a lock in this store: default 1 s, at least 1 s. [NewLock]
// refuses a shorter TTL. Use 6 s for a server that accepts one write per second to one object and
// answers 429 to more, as Cloudflare R2 does.
func WithMinTTL(d time.Duration) S3Option { return func(s *S3Store) { s.minTTL = d } }

// WithServerClock trusts the server's clock: Get reports an [Object]'s Age, which is the reply's
// Date minus its Last-Modified minus slack. A candidate that has just started can then take over at
// once from a crashed holder, instead of waiting for a TTL. Without this option Age is 0, and only
// a candidate's own monotonic clock decides.
//
// Use it only if Date and Last-Modified come from one clock that is not stepped, and no proxy on
// the way writes its own Date (nginx does by default). Otherwise a candidate can take the lock from
// a running holder. Locks limit this risk: see [Object]. [CheckStore] measures the ages and refuses
// a store whose Date runs ahead.
//
// slack is at least 2 s: 1 s because HTTP dates are whole seconds, and 1 s because the clocks of
// the store's own machines differ. Choose more for a cluster whose clocks are not synchronised. A
// lower value is refused: see [S3Store.Describe].
func WithServerClock(slack time.Duration) S3Option {
	return func(s *S3Store) { s.serverClock, s.objects.Slack = true, slack }
}

const minSlack = 2 * time.Second

// NewS3Store returns a store in bucket, with your own client for any endpoint, region and
// credentials. The client's settings apply, with two exceptions. The SDK does not retry requests,
// because locks reconcile them themselves. And each write has a Content-MD5 instead of the
// checksums of the client's settings, because all servers know Content-MD5 and buckets with a
// default retention require it. A request whose context has no deadline gets one of 10 s.
//
// Accept-Encoding is not signed, because proxies write their own. After a request that was not
// answered in time, the next one says "Connection: close", so that net/http gives up a broken
// HTTP/2 connection. If a bucket's policy requires that writes name their encryption, let the
// client name it, as the example does.
//
// NewS3Store sends no request. Arguments that cannot work are reported by [S3Store.Describe], by
// [NewLock], and by every method of the store that sends requests.
func NewS3Store(client S3Client, bucket string, opts ...S3Option) *S3Store {
	s := &S3Store{
		objects: s3api.Objects{Bucket: s3api.NewBucket(bucket), Client: client, Limit: MaxObjectSize},
		minTTL:  minTTL,
	}
	for _, opt := range opts {
		if opt == nil {
			s.objects.Wrong = s3api.Bad("an S3Option is nil")
			return s
		}
		opt(s)
	}
	switch err := s.objects.Validate(client); {
	case err != nil:
		s.objects.Wrong = err
	case s.minTTL < minTTL:
		s.objects.Wrong = s3api.Bad("WithMinTTL: %v is below %v", s.minTTL, minTTL)
	case s.serverClock && s.objects.Slack < minSlack:
		s.objects.Wrong = s3api.Bad("WithServerClock: slack %v is below %v: 1 s because HTTP dates are whole "+
			"seconds, and 1 s because the clocks of the store's own machines differ", s.objects.Slack, minSlack)
	}
	return s
}

// Describe returns what [WithMinTTL] and [WithServerClock] have set. Err matches [ErrPermanent] if
// the arguments of [NewS3Store] cannot work: no client, a name that no bucket can have, a key
// prefix that some servers change, a minimum TTL below 1 s, or slack below 2 s. It sends no
// request.
func (s *S3Store) Describe() StoreInfo {
	if err := s.made().Usable(); err != nil {
		return StoreInfo{Err: err}
	}
	return StoreInfo{MinTTL: s.minTTL, TellsAge: s.serverClock}
}

// made has no client if NewS3Store has not made s. The methods then return an error that says so.
func (s *S3Store) made() s3api.Objects {
	if s == nil {
		return s3api.Objects{}
	}
	return s.objects
}

// Get implements [Store]. Age is 0 without [WithServerClock].
func (s *S3Store) Get(ctx context.Context, key string) (Object, error) {
	o, err := s.made().Get(ctx, key)
	if err != nil || !s.serverClock {
		return Object{Body: o.Body, ETag: o.ETag}, err
	}
	return Object(o), nil
}

// PutIfNoneMatch implements [Store].
func (s *S3Store) PutIfNoneMatch(ctx context.Context, key string, body []byte) (string, error) {
	return s.made().Create(ctx, key, body)
}

// PutIfMatch implements [Store].
func (s *S3Store) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	return s.made().Replace(ctx, key, body, etag)
}

// DeleteIfMatch implements [Store]. MinIO and others ignore the condition: see [CheckStore].
func (s *S3Store) DeleteIfMatch(ctx context.Context, key, etag string) error {
	return s.made().Delete(ctx, key, etag)
}
