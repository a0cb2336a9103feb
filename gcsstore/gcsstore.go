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
	"sync/atomic"
	"time"

	"cloud.google.com/go/storage"

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
// Errors that no retry can heal match [leasehold.ErrPermanent] and say what to do. Until the server has answered for the first
// time, so do faults that no request can get past, such as an unknown host. A reply that does not come from Cloud Storage,
// such as a proxy's page, says nothing about the object, so it is an error that may pass; but the third of that kind before the
// first answer of Cloud Storage matches ErrPermanent, because the endpoint is probably wrong. Only a client on a
// [Transport], such as that of [NewClient], lets the store see all such replies: with another one, a proxy's 404 reads like
// a missing object by the XML API, and any success of a delete counts.
//
// The generation is the ETag. A write to an object that is gone is refused by Cloud Storage like one to an object that has
// changed, so PutIfMatch returns [leasehold.ErrPreconditionFailed] for both.
type Store struct {
	bucket      *storage.BucketHandle
	name        string // of the bucket
	prefix      string
	serverClock bool
	slack       time.Duration
	timeout     time.Duration
	minTTL      time.Duration
	invalid     error // why this store cannot work

	answered atomic.Bool  // the server has given an HTTP answer
	sound    atomic.Bool  // and one that only Cloud Storage gives
	strange  atomic.Int32 // how many Cloud Storage does not give
}

// Option configures a [Store].
type Option func(*Store)

// WithKeyPrefix puts every object below prefix, which is used as it is: end it with a slash.
func WithKeyPrefix(prefix string) Option { return func(s *Store) { s.prefix = prefix } }

// WithServerClock trusts the server's clock: Get tells an object's Age, which is the reply's Date minus the object's
// Last-Modified minus slack, if the client is on a [Transport] as that of [NewClient] is. A candidate that has just started
// can then take over at once from a holder that is gone. Without this option Age is 0. Its terms, and the least slack of
// 2 s, are those of [leasehold.WithServerClock]; less is refused: see [Store.Validate].
func WithServerClock(slack time.Duration) Option {
	return func(s *Store) { s.serverClock, s.slack = true, slack }
}

const (
	defaultTimeout = 10 * time.Second
	minSlack       = 2 * time.Second
	strangeReplies = 3 // without one that is sound: the endpoint is wrong
	// Cloud Storage takes one write per second to one object name and answers 429 to more. A TTL of 6 s is renewed every
	// 2 s: that leaves the second in between to a repeated renewal, a release, or the first write of the next leader.
	minTTL = 6 * time.Second
)

// New returns a store in bucket, the bare name without "gs://". The client is the user's own, made by [NewClient] or
// [storage.NewClient], or for HTTP in any other way; its settings stay, except that requests are not retried. A request
// whose context has no deadline is given one of 10 s. New sends no request: arguments that cannot work are reported by
// [Store.Validate], by [leasehold.NewLock], and by every method of the store.
func New(client *storage.Client, bucket string, opts ...Option) *Store {
	s := &Store{name: bucket, timeout: defaultTimeout, minTTL: minTTL}
	for _, opt := range opts {
		opt(s)
	}
	if s.invalid = s.check(client); s.invalid == nil {
		s.bucket = client.Bucket(bucket).Retryer(storage.WithPolicy(storage.RetryNever))
	}
	return s
}

// check catches what would otherwise be an obscure answer of some other service.
func (s *Store) check(client *storage.Client) error {
	bad := func(format string, args ...any) error {
		return &storeError{kind: leasehold.ErrPermanent, cause: fmt.Errorf(format, args...)}
	}
	if rest, ok := strings.CutPrefix(s.name, "gs://"); ok {
		name, prefix, _ := strings.Cut(rest, "/")
		return bad("bucket %q is a URL: give the bare name %q, and what follows it, %q, to WithKeyPrefix", s.name, name, prefix)
	}
	switch {
	case s.name == "":
		return bad("the bucket has no name")
	case strings.ContainsFunc(s.name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && !strings.ContainsRune("-_.", r)
	}):
		return bad("bucket %q is not a bucket's name, which has only lower-case letters, digits, dashes, underscores and dots", s.name)
	case client == nil:
		return bad("the Cloud Storage client is nil: make one with NewClient")
	case s.prefix != "" && (strings.HasPrefix(s.prefix, "/") || strings.Contains(s.prefix, "//") || strings.Contains("/"+s.prefix+"/", "/../") || strings.Contains("/"+s.prefix+"/", "/./")):
		return bad("key prefix %.80q has an empty path segment, %q or %q: use a path such as \"locks/\"", s.prefix, ".", "..")
	case s.serverClock && s.slack < minSlack:
		return bad("WithServerClock: slack %v is below %v: 1 s because HTTP dates are whole seconds, and 1 s because the clocks of the store's own machines differ", s.slack, minSlack)
	}
	return nil
}

// Validate returns an error that matches [leasehold.ErrPermanent] if the arguments of [New] cannot work: no client, a name that
// no bucket can have, a bad key prefix, too small a slack. It sends no request.
func (s *Store) Validate() error { return s.invalid }

// TellsAge reports whether [WithServerClock] is set: see [leasehold.Store].
func (s *Store) TellsAge() bool { return s.serverClock }

// MinTTL is the shortest TTL of a lock in this store: 6 s, renewed every 2 s. Cloud Storage takes one write per second to
// one object, and answers 429 to more; a lock takes that for an error that passes, and backs off.
func (s *Store) MinTTL() time.Duration { return s.minTTL }

// Get implements [leasehold.Store]. Age is 0 without [WithServerClock].
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
	ctx, heard := hear(ctx)
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
	s.heard()
	now := heard.Load().date()
	o := leasehold.Object{ETag: formatETag(r.Attrs.Generation)}
	o.Body, err = io.ReadAll(io.LimitReader(r, leasehold.MaxObjectSize+1))
	switch {
	case err != nil:
		// Not even a 404 means anything here: asked for the rest of this generation, the server says so of an overwritten one.
		return leasehold.Object{}, &storeError{doing: s.doing(opGet, key), cause: err}
	case len(o.Body) > leasehold.MaxObjectSize:
		o.Body = nil
		return o, &storeError{doing: s.doing(opGet, key), kind: leasehold.ErrCorruptRecord, cause: fmt.Errorf("it is larger than %d bytes", leasehold.MaxObjectSize)}
	}
	if s.serverClock && !now.IsZero() && !r.Attrs.LastModified.IsZero() {
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
	ctx, heard := hear(ctx)
	if err = object.If(storage.Conditions{GenerationMatch: generation}).Delete(ctx); err != nil {
		return s.explain(err, heard.Load(), opDelete, key)
	}
	if err := heard.Load().foreign(http.StatusNoContent, http.StatusOK); err != nil { // fake-gcs-server says 200
		return s.notCloudStorages(err, opDelete, key)
	}
	s.heard()
	return nil
}

func (s *Store) put(ctx context.Context, key string, body []byte, only storage.Conditions) (string, error) {
	if len(body) > leasehold.MaxObjectSize {
		return "", &storeError{doing: s.doing(opPut, key), kind: leasehold.ErrPermanent, cause: fmt.Errorf("%d bytes are over the limit of %d", len(body), leasehold.MaxObjectSize)}
	}
	object, err := s.object(key)
	if err != nil {
		return "", err
	}
	ctx, cancel := s.deadline(ctx)
	defer cancel() // also what ends an upload that Close has not
	ctx, heard := hear(ctx)
	w := object.If(only).NewWriter(ctx)
	w.ChunkSize = 0 // one request, neither resumable nor buffered, so that no layer below can repeat it
	w.ContentType = "application/json"
	w.CacheControl = "no-store" // a publicly readable object would otherwise be cached for an hour
	_, writeErr := w.Write(body)
	if err := w.Close(); err != nil {
		return "", s.explain(err, heard.Load(), opPut, key)
	}
	if writeErr != nil {
		return "", s.explain(writeErr, heard.Load(), opPut, key)
	}
	err = heard.Load().foreign(http.StatusOK)
	if err == nil && (w.Attrs() == nil || w.Attrs().Generation <= 0) {
		err = errors.New("the answer has no generation")
	}
	if err != nil { // whether the write has landed is unknown
		return "", s.notCloudStorages(err, opPut, key)
	}
	s.heard()
	return formatETag(w.Attrs().Generation), nil
}

// object returns the handle of a key.
func (s *Store) object(key string) (*storage.ObjectHandle, error) {
	name := s.prefix + key
	switch {
	case s.invalid != nil:
		return nil, s.invalid
	case name == "" || len(name) > 1024:
		return nil, &storeError{kind: leasehold.ErrPermanent, cause: fmt.Errorf("object name %.80q has %d bytes with its prefix, must have 1 to 1024", name, len(name))}
	}
	return s.bucket.Object(name), nil
}

func formatETag(generation int64) string { return strconv.FormatInt(generation, 10) }

// generation reads an ETag. No version ever has one that is no generation; 0 must not get through, for Cloud Storage takes it for "must not exist".
func (s *Store) generation(key, etag string) (int64, error) {
	if etag == "" {
		return 0, &storeError{doing: fmt.Sprintf("%q in bucket %q", s.prefix+key, s.name), kind: leasehold.ErrPermanent, cause: errors.New("the ETag is empty")}
	}
	generation, err := strconv.ParseInt(etag, 10, 64)
	if err != nil || generation <= 0 || formatETag(generation) != etag {
		return 0, fmt.Errorf("%q in bucket %q: %w: ETag %q is not a generation number", s.prefix+key, s.name, leasehold.ErrPreconditionFailed, etag)
	}
	return generation, nil
}

func (s *Store) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, s.timeout)
}
