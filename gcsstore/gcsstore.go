// Package gcsstore stores leasehold's locks in a bucket of Google Cloud Storage, and writes fenced
// objects there ([NewFencedStore]).
//
// Every write names the generation that it replaces, so if many clients write at once, exactly one
// wins. Each call of the store is one HTTP request. The store turns the client's retries off. If
// the first try succeeded, a retry would fail with "precondition failed" although the write is
// yours. A lock resolves such doubts itself.
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

	"cloud.google.com/go/storage"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/storehttp"
)

// Store is a [leasehold.Store] in a bucket of Google Cloud Storage. It is safe for concurrent use.
//
// A Store needs the permissions storage.objects.get, storage.objects.create, storage.objects.delete
// (which Cloud Storage requires for overwriting) and storage.objects.list (without it, Cloud
// Storage may answer 403 for an object that does not exist yet). The role roles/storage.objectUser
// has all of them. No retention policy, object hold or lifecycle rule may cover the locks. Use a
// bucket without object versioning and without soft delete, because both keep every renewal.
//
// Errors that retrying cannot fix match [leasehold.ErrPermanent] and say what to do. Before the
// server's first answer, faults that keep every request from reaching the server match it too, such
// as an unknown host. After that answer such faults count as temporary.
//
// A reply that does not come from Cloud Storage, such as a proxy's page, says nothing about the
// object, so it is a temporary error. But if three such replies come before the first one of Cloud
// Storage, the third matches ErrPermanent, because the endpoint is probably wrong. Only a client on
// a [Transport], such as one made by [NewClient], shows all such replies to the store. With another
// client, a proxy's 404 to a read by the XML API looks like a missing object, and any success of a
// delete counts.
//
// The generation is the ETag. Cloud Storage refuses a write to a missing object in the same way as
// a write to a changed one, so PutIfMatch returns [leasehold.ErrPreconditionFailed] for both.
type Store struct {
	bucket      *storage.BucketHandle
	name        string // of the bucket
	prefix      string
	serverClock bool
	slack       time.Duration
	timeout     time.Duration
	minTTL      time.Duration
	invalid     error // why this store cannot work

	server storehttp.Server
}

var _ leasehold.Describer = (*Store)(nil)

// Option configures a [Store].
type Option func(*Store)

// WithKeyPrefix puts prefix before every key. No slash is added, so end the prefix with one.
func WithKeyPrefix(prefix string) Option { return func(s *Store) { s.prefix = prefix } }

// WithServerClock trusts the server's clock. Get then reports an object's Age: the reply's Date
// minus the object's Last-Modified minus slack. A candidate that has just started can then take
// over at once from a crashed holder. Age is 0 without this option, and with a client that is not
// on a [Transport] (a client of [NewClient] is). The conditions of [leasehold.WithServerClock]
// apply. slack must be at least 2 s. [Store.Describe] reports a lower value as an error.
func WithServerClock(slack time.Duration) Option {
	return func(s *Store) { s.serverClock, s.slack = true, slack }
}

const (
	defaultTimeout = 10 * time.Second
	minSlack       = 2 * time.Second
	// Cloud Storage accepts one write per second to one object name and answers 429 to more. A TTL
	// of 6 s is renewed every 2 s, which leaves the second in between for a repeated renewal, a
	// release, or the first write of the next leader.
	minTTL = 6 * time.Second
)

// New returns a store in bucket, which is the bare name without "gs://". The client is your own,
// usually from [NewClient]. It must use HTTP, not gRPC. Its settings apply, except that the store's
// requests are not retried. A request whose context has no deadline gets one of 10 s. New sends no
// request. [Store.Describe], [leasehold.NewLock] and every method of the store report arguments
// that cannot work.
func New(client *storage.Client, bucket string, opts ...Option) *Store {
	s := &Store{name: bucket, timeout: defaultTimeout, minTTL: minTTL}
	for _, opt := range opts {
		if opt == nil {
			s.invalid = bad("an Option is nil")
			return s
		}
		opt(s)
	}
	if s.invalid = s.check(client); s.invalid == nil {
		s.bucket = client.Bucket(bucket).Retryer(storage.WithPolicy(storage.RetryNever))
	}
	return s
}

// bad is the error of an argument that cannot work.
func bad(format string, args ...any) error {
	return &storehttp.Error{Kind: leasehold.ErrPermanent, Cause: fmt.Errorf(format, args...)}
}

// check catches mistakes for which the server's answer would be obscure.
func (s *Store) check(client *storage.Client) error {
	if rest, ok := strings.CutPrefix(s.name, "gs://"); ok {
		name, prefix, _ := strings.Cut(rest, "/")
		return bad("bucket %q is a URL (give the bare name %q, and what follows it, %q, to WithKeyPrefix)",
			s.name, name, prefix)
	}
	switch {
	case s.name == "":
		return bad("the bucket has no name (pass it to the store; if an environment variable has it, set that)")
	case strings.ContainsFunc(s.name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && !strings.ContainsRune("-_.", r)
	}):
		return bad("bucket %q is not a bucket's name, which has only lower-case letters, digits, dashes, underscores "+
			"and dots", s.name)
	case client == nil:
		return bad("the Cloud Storage client is nil (make one with NewClient)")
	case s.serverClock && s.slack < minSlack:
		return bad("WithServerClock: slack %v is below %v: 1 s is needed because HTTP dates are whole seconds, and "+
			"1 s because the clocks of the store's own machines differ", s.slack, minSlack)
	}
	return storehttp.CheckPrefix(s.prefix)
}

// Describe returns that the store enforces conditions, and that the shortest TTL is 6 s. A lock
// with this TTL is renewed every 2 s, and Cloud Storage accepts one write per second to one object.
// Err matches [leasehold.ErrPermanent] if the arguments of [New] cannot work: a nil client, an
// invalid bucket name, an invalid key prefix, or a slack that is too small. Describe sends no
// request.
func (s *Store) Describe() leasehold.StoreInfo {
	if err := s.valid(); err != nil {
		return leasehold.StoreInfo{Err: err}
	}
	return leasehold.StoreInfo{MinTTL: s.minTTL, TellsAge: s.serverClock, Conditional: true}
}

func (s *Store) valid() error {
	if s == nil || s.bucket == nil && s.invalid == nil {
		return bad("the Store is nil or empty (make one with New)")
	}
	return s.invalid
}

// Get implements [leasehold.Store]. Age is 0 without [WithServerClock].
//
// If the bucket does not exist, the error matches [leasehold.ErrPermanent], provided that the
// client reads by the JSON API. Clients made by [NewClient] do, and so do those made by
// [storage.NewClient] with [storage.WithJSONReads]. With any other client a missing bucket looks
// like a missing object until the first write.
//
// If the connection breaks within the body, the client sends one more request, for the rest of the
// same generation.
func (s *Store) Get(ctx context.Context, key string) (leasehold.Object, error) {
	if err := s.valid(); err != nil {
		return leasehold.Object{}, err
	}
	object, err := s.object(key)
	if err != nil {
		return leasehold.Object{}, err
	}
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	ctx, heard := s.hear(ctx)
	r, err := object.NewReader(ctx)
	if err != nil {
		return leasehold.Object{}, s.explain(err, heard.Load(), opGet, key)
	}
	defer func() { _ = r.Close() }()
	err = heard.Load().foreign(http.StatusOK)
	if err == nil && r.Attrs.Generation <= 0 {
		err = errors.New("the answer has no generation")
	}
	if err != nil {
		return leasehold.Object{}, s.notCloudStorages(err, opGet, key)
	}
	s.server.Heard()
	now := heard.Load().date()
	o := leasehold.Object{ETag: formatETag(r.Attrs.Generation)}
	o.Body, err = io.ReadAll(io.LimitReader(r, leasehold.MaxObjectSize+1))
	switch {
	case err != nil:
		s.server.Unanswered(err)
		// Even a 404 says nothing about the object here: the server answers 404 to a request for
		// the rest of an overwritten generation.
		return leasehold.Object{}, &storehttp.Error{Doing: s.doing(opGet, key), Cause: err}
	case len(o.Body) > leasehold.MaxObjectSize:
		o.Body = nil
		return o, &storehttp.Error{
			Doing: s.doing(opGet, key),
			Kind:  leasehold.ErrCorruptRecord,
			Cause: fmt.Errorf("the object is larger than %d bytes", leasehold.MaxObjectSize),
		}
	}
	if s.serverClock {
		// Both are whole seconds, rounded down (RFC 9110, 5.6.7). A change of the metadata alone
		// makes an object look younger, so Age is still a lower bound.
		o.Age = storehttp.Age(now, r.Attrs.LastModified, s.slack)
	}
	return o, nil
}

// PutIfNoneMatch implements [leasehold.Store].
func (s *Store) PutIfNoneMatch(ctx context.Context, key string, body []byte) (string, error) {
	if err := s.valid(); err != nil {
		return "", err
	}
	return s.put(ctx, key, body, storage.Conditions{DoesNotExist: true})
}

// PutIfMatch implements [leasehold.Store].
func (s *Store) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	if err := s.valid(); err != nil {
		return "", err
	}
	generation, err := s.generation(key, etag)
	if err != nil {
		return "", err
	}
	return s.put(ctx, key, body, storage.Conditions{GenerationMatch: generation})
}

// DeleteIfMatch implements [leasehold.Store]. fake-gcs-server ignores the condition: see
// [leasehold.CheckStore].
func (s *Store) DeleteIfMatch(ctx context.Context, key, etag string) error {
	if err := s.valid(); err != nil {
		return err
	}
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
	ctx, heard := s.hear(ctx)
	if err = object.If(storage.Conditions{GenerationMatch: generation}).Delete(ctx); err != nil {
		return s.explain(err, heard.Load(), opDelete, key)
	}
	if err := heard.Load().foreign(http.StatusNoContent, http.StatusOK); err != nil { // fake-gcs-server says 200
		return s.notCloudStorages(err, opDelete, key)
	}
	s.server.Heard()
	return nil
}

func (s *Store) put(ctx context.Context, key string, body []byte, only storage.Conditions) (string, error) {
	if len(body) > leasehold.MaxObjectSize {
		return "", &storehttp.Error{
			Doing: s.doing(opPut, key),
			Kind:  leasehold.ErrPermanent,
			Cause: fmt.Errorf("%d bytes exceed the limit of %d", len(body), leasehold.MaxObjectSize),
		}
	}
	object, err := s.object(key)
	if err != nil {
		return "", err
	}
	ctx, cancel := s.deadline(ctx)
	defer cancel() // this also ends an upload that Close did not end
	ctx, heard := s.hear(ctx)
	w := object.If(only).NewWriter(ctx)
	w.ChunkSize = 0 // one request, neither resumable nor buffered, so no layer below can repeat it
	w.ContentType = "application/json"
	w.CacheControl = "no-store" // otherwise a publicly readable object would be cached for an hour
	_, writeErr := w.Write(body)
	if err := w.Close(); err != nil {
		return "", s.explain(err, heard.Load(), opPut, key)
	}
	if writeErr != nil {
		return "", s.explain(writeErr, heard.Load(), opPut, key)
	}
	if err := s.genuine(w.Attrs(), heard.Load(), opPut, key); err != nil { // whether the write has landed is unknown
		return "", err
	}
	return formatETag(w.Attrs().Generation), nil
}

// object returns the handle of a key.
func (s *Store) object(key string) (*storage.ObjectHandle, error) {
	name := s.prefix + key
	switch {
	case name == "" || len(name) > 1024:
		return nil, &storehttp.Error{
			Kind:  leasehold.ErrPermanent,
			Cause: fmt.Errorf("object name %.80q has %d bytes with its prefix (use 1 to 1024)", name, len(name)),
		}
	}
	return s.bucket.Object(name), nil
}

func formatETag(generation int64) string { return strconv.FormatInt(generation, 10) }

// generation parses an ETag. Every version has a positive generation, so any other ETag is refused.
// In particular 0 must not pass, because to Cloud Storage it means "must not exist".
func (s *Store) generation(key, etag string) (int64, error) {
	if etag == "" {
		return 0, &storehttp.Error{
			Doing: fmt.Sprintf("%q in bucket %q", s.prefix+key, s.name),
			Kind:  leasehold.ErrPermanent,
			Cause: errors.New("the ETag is empty"),
		}
	}
	generation, err := strconv.ParseInt(etag, 10, 64)
	if err != nil || generation <= 0 || formatETag(generation) != etag {
		return 0, fmt.Errorf("%q in bucket %q: %w: ETag %q is not a generation number", s.prefix+key, s.name,
			leasehold.ErrPreconditionFailed, etag)
	}
	return generation, nil
}

func (s *Store) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, s.timeout)
}
