// Package gcsstore keeps leasehold's locks in a bucket of Google Cloud Storage.
//
// Every write names the generation that it replaces, so that of many writers at once exactly one wins. Each call of the
// store is one HTTP request: the client's own retries are switched off, because a retry of a write that has landed is
// refused by its own success, and a lock reconciles such doubts itself.
package gcsstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/storage"
	"golang.org/x/oauth2"
	"google.golang.org/api/googleapi"

	"github.com/leasehold-go/leasehold"
)

// Store is a [leasehold.Store] in a bucket of Google Cloud Storage. It is safe for concurrent use.
//
// It needs the permissions storage.objects.get, storage.objects.create, storage.objects.delete (Cloud Storage asks for it to
// overwrite an object) and storage.objects.list (without it, an object that does not exist yet may answer 403): the role
// roles/storage.objectUser has them all. A retention policy, an object hold or a lifecycle rule must not cover the locks.
// Object versioning would keep every renewal as a noncurrent version; soft delete does, for its retention time, so a
// bucket for locks is best without either.
//
// The generation is the ETag. A write to an object that is gone is refused by Cloud Storage like one to an object that has
// changed, so PutIfMatch returns [leasehold.ErrPreconditionFailed] for both.
type Store struct {
	bucket  *storage.BucketHandle
	name    string // of the bucket
	prefix  string
	slack   time.Duration
	timeout time.Duration
	minTTL  time.Duration
	invalid error // why this store cannot work
}

// Option configures a [Store].
type Option func(*Store)

// WithKeyPrefix puts every object below prefix, which is used as it is: end it with a slash.
func WithKeyPrefix(prefix string) Option { return func(s *Store) { s.prefix = prefix } }

// WithAgeSlack sets what is taken off an object's Age: default 2 s, one for the resolution of HTTP dates, and one for the
// clocks of Google's own machines to differ from each other.
func WithAgeSlack(d time.Duration) Option { return func(s *Store) { s.slack = d } }

const (
	defaultTimeout = 10 * time.Second
	defaultSlack   = 2 * time.Second
	// Cloud Storage takes one write per second to one object name and answers 429 to more. A TTL of 6 s is renewed every
	// 2 s: that leaves the second in between to a repeated renewal, a release, or the first write of the next leader.
	minTTL = 6 * time.Second
)

// New returns a store in bucket, the bare name without "gs://". The client is the user's own, made by [NewClient] or
// [storage.NewClient], or for HTTP in any other way; its settings stay, except that requests are not retried. Only a client
// that hears the store's clock, as that of NewClient does, tells an object's Age. A request whose context has no
// deadline is given one of 10 s. New sends no request: a name that can be no bucket's is reported by the first call.
func New(client *storage.Client, bucket string, opts ...Option) *Store {
	s := &Store{name: bucket, slack: defaultSlack, timeout: defaultTimeout, minTTL: minTTL}
	for _, opt := range opts {
		opt(s)
	}
	if s.invalid = checkBucket(bucket); s.invalid == nil && client == nil {
		s.invalid = fmt.Errorf("%w: gcsstore: client is nil", leasehold.ErrPermanent)
	}
	if s.invalid == nil {
		s.bucket = client.Bucket(bucket).Retryer(storage.WithPolicy(storage.RetryNever))
	}
	return s
}

// checkBucket catches what would otherwise be an obscure answer of some other service.
func checkBucket(bucket string) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: gcsstore: bucket %q "+format, append([]any{leasehold.ErrPermanent, bucket}, args...)...)
	}
	if rest, ok := strings.CutPrefix(bucket, "gs://"); ok {
		name, prefix, _ := strings.Cut(rest, "/")
		return bad("is a URL: give the bare name %q, and what follows it, %q, to WithKeyPrefix", name, prefix)
	}
	switch {
	case bucket == "":
		return bad("has no name")
	case strings.ContainsFunc(bucket, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && !strings.ContainsRune("-_.", r)
	}):
		return bad("is no bucket name: only lower-case letters, digits, dashes, underscores and dots can be in one")
	}
	return nil
}

// MinTTL is the shortest TTL of a lock in this store: 6 s, renewed every 2 s. Cloud Storage takes one write per second to
// one object, and answers 429 to more; a lock takes that for an error that passes, and backs off.
func (s *Store) MinTTL() time.Duration { return s.minTTL }

// Get implements [leasehold.Store]. Age is the reply's Date less the object's Last-Modified, less the slack of
// [WithAgeSlack], if the client hears the Date: see [NewClient]. It is 0 otherwise.
// A bucket that does not exist is [leasehold.ErrPermanent] if the client reads by the JSON API, as that of NewClient does
// and that of [storage.NewClient] with [storage.WithJSONReads]; else it reads like a missing object, until the first write.
//
// If the connection breaks within the body, the client asks for the rest of the same generation: one more request.
func (s *Store) Get(ctx context.Context, key string) (leasehold.Object, error) {
	object, err := s.object(key)
	if err != nil {
		return leasehold.Object{}, err
	}
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	ctx, date := withDate(ctx)
	r, err := object.NewReader(ctx)
	if err != nil {
		return leasehold.Object{}, s.explain(err, opGet, key)
	}
	defer func() { _ = r.Close() }()
	if r.Attrs.Generation <= 0 {
		return leasehold.Object{}, fmt.Errorf("%w: bucket %q: the server gives no generation for %q", leasehold.ErrUnsafeStore, s.name, s.prefix+key)
	}
	o := leasehold.Object{ETag: formatETag(r.Attrs.Generation)}
	o.Body, err = io.ReadAll(io.LimitReader(r, leasehold.MaxObjectSize+1))
	switch {
	case err != nil:
		// Not even a 404 means anything here: asked for the rest of this generation, the server says so of an overwritten one.
		return leasehold.Object{}, fmt.Errorf("leasehold: reading %q from bucket %q: %w", s.prefix+key, s.name, err)
	case len(o.Body) > leasehold.MaxObjectSize:
		o.Body = nil
		return o, fmt.Errorf("%w: %q in bucket %q is larger than %d bytes", leasehold.ErrCorruptRecord, s.prefix+key, s.name, leasehold.MaxObjectSize)
	}
	if now := date.time(); !now.IsZero() && !r.Attrs.LastModified.IsZero() {
		// Both are cut to whole seconds (RFC 9110, 5.6.7). A change of the metadata alone makes an object seem younger: still a lower bound.
		o.Age = max(now.Sub(r.Attrs.LastModified)-s.slack, 0)
	}
	return o, nil
}

// PutIfNoneMatch implements [leasehold.Store].
func (s *Store) PutIfNoneMatch(ctx context.Context, key string, body []byte) (string, error) {
	return s.put(ctx, key, body, storage.Conditions{DoesNotExist: true})
}

// PutIfMatch implements [leasehold.Store].
func (s *Store) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	generation, err := s.generation(key, etag)
	if err != nil {
		return "", err
	}
	return s.put(ctx, key, body, storage.Conditions{GenerationMatch: generation})
}

// DeleteIfMatch implements [leasehold.Store]. fake-gcs-server ignores the condition: see [leasehold.CheckStore].
func (s *Store) DeleteIfMatch(ctx context.Context, key, etag string) error {
	generation, err := s.generation(key, etag)
	if err != nil {
		return err
	}
	object, err := s.object(key)
	if err != nil {
		return err
	}
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	err = object.If(storage.Conditions{GenerationMatch: generation}).Delete(ctx)
	return s.explain(err, opDelete, key)
}

func (s *Store) put(ctx context.Context, key string, body []byte, only storage.Conditions) (string, error) {
	if len(body) > leasehold.MaxObjectSize {
		return "", fmt.Errorf("%w: %q: %d bytes are over %d", leasehold.ErrPermanent, s.prefix+key, len(body), leasehold.MaxObjectSize)
	}
	object, err := s.object(key)
	if err != nil {
		return "", err
	}
	ctx, cancel := s.deadline(ctx)
	defer cancel() // also what ends an upload that Close has not
	w := object.If(only).NewWriter(ctx)
	w.ChunkSize = 0 // one request, neither resumable nor buffered, so that no layer below can repeat it
	w.ContentType = "application/json"
	w.CacheControl = "no-store" // a publicly readable object would otherwise be cached for an hour
	_, writeErr := w.Write(body)
	if err := w.Close(); err != nil {
		return "", s.explain(err, opPut, key)
	}
	if writeErr != nil {
		return "", s.explain(writeErr, opPut, key)
	}
	if w.Attrs() == nil || w.Attrs().Generation <= 0 { // a proxy's own page, say: whether the write has landed is unknown
		return "", fmt.Errorf("leasehold: writing %q in bucket %q: the answer has no generation", s.prefix+key, s.name)
	}
	return formatETag(w.Attrs().Generation), nil
}

// object returns the handle of a key.
func (s *Store) object(key string) (*storage.ObjectHandle, error) {
	name := s.prefix + key
	switch {
	case s.invalid != nil:
		return nil, s.invalid
	case name == "" || len(name) > 1024:
		return nil, fmt.Errorf("%w: gcsstore: object name %.80q has %d bytes with its prefix, must have 1 to 1024", leasehold.ErrPermanent, name, len(name))
	}
	return s.bucket.Object(name), nil
}

func formatETag(generation int64) string { return strconv.FormatInt(generation, 10) }

// generation reads an ETag. No version ever has one that is no generation; 0 must not get through, for Cloud Storage takes it for "must not exist".
func (s *Store) generation(key, etag string) (int64, error) {
	if etag == "" {
		return 0, fmt.Errorf("%w: %q: empty ETag", leasehold.ErrPermanent, s.prefix+key)
	}
	generation, err := strconv.ParseInt(etag, 10, 64)
	if err != nil || generation <= 0 || formatETag(generation) != etag {
		return 0, fmt.Errorf("%w: %q in bucket %q: ETag %q is no generation number", leasehold.ErrPreconditionFailed, s.prefix+key, s.name, etag)
	}
	return generation, nil
}

func (s *Store) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, s.timeout)
}

// op says what a request needs, for error messages.
type op struct{ verb, permissions string }

var (
	opGet    = op{"reading", "storage.objects.get on the object, and storage.objects.list on the bucket: without that, an object that does not exist may answer 403"}
	opPut    = op{"writing", "storage.objects.create, and to overwrite storage.objects.delete, on the object; a retention policy or hold that forbids overwriting has to go"}
	opDelete = op{"deleting", "storage.objects.delete on the object; a retention policy or hold that forbids deleting has to go"}
)

// explain turns a client error into the errors of Store.
func (s *Store) explain(err error, op op, key string) error {
	if err == nil {
		return nil
	}
	as := func(sentinel error, hint string) error {
		if hint != "" {
			hint = " (" + hint + ")"
		}
		return fmt.Errorf("%w: %s %q in bucket %q%s: %w", sentinel, op.verb, s.prefix+key, s.name, hint, err)
	}
	status, text := 0, ""
	if reply, ok := errors.AsType[*googleapi.Error](err); ok {
		status, text = reply.Code, reply.Message+" "+reply.Body // the text of a failed download is not taken apart by the client
	} else if errors.Is(err, storage.ErrObjectNotExist) { // by the XML API
		status = http.StatusNotFound
	}
	switch {
	case status == http.StatusPreconditionFailed:
		return as(leasehold.ErrPreconditionFailed, "")
	case status == http.StatusNotFound && (op == opPut || noBucket(text)): // nothing else can be missing for a write
		return as(leasehold.ErrPermanent, "create the bucket, or correct its name or the endpoint")
	case status == http.StatusNotFound:
		return as(leasehold.ErrNotExist, "")
	case strings.Contains(text, "ateLimitExceeded"): // rate or userRate: some quotas answer 403
	case status == http.StatusTooManyRequests, status == http.StatusRequestTimeout, status == http.StatusConflict, status >= 500:
	case status == http.StatusForbidden, status == http.StatusUnauthorized:
		return as(leasehold.ErrPermanent, "check the credentials; they need "+op.permissions)
	case status == http.StatusBadRequest, status == http.StatusMethodNotAllowed, status == http.StatusLengthRequired:
		return as(leasehold.ErrPermanent, "the server refuses the request: check bucket name, key and endpoint")
	case tokenRefused(err):
		return as(leasehold.ErrPermanent, "Google gives no access token for these credentials: the key may be wrong, deleted or disabled")
	}
	return fmt.Errorf("leasehold: %s %q in bucket %q: %w", op.verb, s.prefix+key, s.name, err)
}

func noBucket(text string) bool {
	text = strings.ToLower(text)
	return strings.Contains(text, "nosuchbucket") || strings.Contains(text, "bucket does not exist")
}

// tokenRefused reports whether it was the credentials' own server that refused, for good.
func tokenRefused(err error) bool {
	var reply *http.Response
	if e, ok := errors.AsType[*auth.Error](err); ok {
		reply = e.Response
	} else if e, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		reply = e.Response
	}
	return reply != nil && (reply.StatusCode == http.StatusBadRequest || reply.StatusCode == http.StatusUnauthorized || reply.StatusCode == http.StatusForbidden)
}
