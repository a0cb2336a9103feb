// Package fenced protects data from late writes of former leaders, by the fencing tokens of a lock.
// A [Store] writes objects under the token of a lease. [leasehold.Fence] is the check for data in
// memory. See https://github.com/leasehold-go/leasehold/blob/main/docs/fencing.md.
//
//	files, err := fenced.NewS3Store(client, "bucket", fenced.PaddedBodies)
//	…
//	err = lock.Do(ctx, func(ctx context.Context, lease *leasehold.Lease) error {
//		if err := files.Seal(ctx, lease.Token(), "report.json"); err != nil { // before reading
//			return err
//		}
//		return files.Put(ctx, lease.Token(), "report.json", body)
//	})
package fenced

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"sync"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/s3api"
	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// Store writes ordinary objects under the fencing tokens of a lock. It keeps the token of the last
// writer in the object's metadata. Each write reads that token. If it is higher than the token of
// the write, the write fails with an [*leasehold.FencedError]. Otherwise the write replaces exactly
// the version that it has read. Once a token has written or sealed a key, no lower token ever
// writes that key again, whatever clocks and networks do.
//
// The guarantee holds for clients that write through a Store. Any other client with the permission
// can overwrite any object. A delete writes a tombstone. No lifecycle rule may expire tombstones
// while a former leader may still run. Writes of two objects are not atomic.
//
// The first write checks, with a separate object next to the key, that the server returns the
// metadata of an object and enforces the conditions of writes. If it does not, because the server
// or a proxy in front of it drops headers, every write fails with an error that matches
// [leasehold.ErrUnsafeStore], even with [WithAdoption]. So make one Store and keep it. Get checks
// nothing: if the server does not return metadata, Get returns token 0, and a tombstone as an empty
// object.
//
// Pass [leasehold.Lease.Token] as token and [leasehold.Lease.Context] as ctx: a leader that has
// lost its lease then stops by itself, and the token stops a leader that has not noticed the loss.
// A Store gives up a request that gets no answer after a minute, plus a second for each 128 KiB
// that the request carries, and the write continues with the next attempt.
//
// Errors match [leasehold.ErrFenced], [ErrUnfenced], [leasehold.ErrPermanent], or the error of ctx
// once ctx has ended. Other errors are temporary failures that have outlasted all attempts. Errors
// that match [leasehold.ErrUnsafeStore], or [leasehold.ErrCorruptRecord] (metadata that no Store
// writes), match ErrPermanent too. After any error the write may have landed, except after
// ErrFenced at the first attempt. It is safe to repeat the write. A reply that does not come from
// the server, such as a proxy's page, never counts as a success, and says nothing about the object.
//
// A Store is safe for concurrent use.
type Store struct {
	backend Backend
	adopt   bool
	noSeal  error // why Seal cannot work; nil: it can
	invalid error // why nothing can work; nil: it can

	checked gate   // of writes
	suffix  string // of the check's object, if it can be removed
}

// Option configures a [Store].
type Option func(*config)

type config struct {
	adopt    bool
	partSize int64 // S3: larger bodies go in parts of at least this size, in bytes; 0: the default
}

func init() {
	storeapi.PartSize = func(bytes int64) Option { return func(c *config) { c.partSize = bytes } }
}

// WithAdoption treats objects without a token, which other clients have written, as written with
// token 0. The first fenced write or seal gives such an object a token. Without this option, a
// write or seal of such an object fails with [ErrUnfenced].
func WithAdoption() Option { return func(c *config) { c.adopt = true } }

// ErrUnfenced says that an object has no token because it was not written through a [Store]. See
// [WithAdoption].
var ErrUnfenced = errors.New("object has no fencing token")

// NewStore returns a store of fenced objects in b. It sends no request. The check of the first
// write leaves an object ".leasehold-check" next to the key: see [Backend]. If the Backend or an
// Option is nil, every method of the store returns an error that says so. See [NewS3Store] for S3,
// and NewFencedStore of the packages gcsstore and azblobstore for Google Cloud Storage and Azure.
func NewStore(b Backend, opts ...Option) *Store {
	o, err := options(opts)
	if storeapi.IsNil(b) {
		err = s3api.Bad("the Backend is nil")
	}
	return &Store{backend: b, adopt: o.adopt, invalid: err, checked: newGate(), suffix: rand.Text()}
}

func options(opts []Option) (o config, err error) {
	for _, opt := range opts {
		if opt == nil {
			return o, s3api.Bad("an Option is nil")
		}
		opt(&o)
	}
	return o, nil
}

// usable returns an error for a Store that cannot work.
func (s *Store) usable() error {
	if s == nil || s.backend == nil && s.invalid == nil {
		return s3api.Bad("the fenced.Store is nil or empty (make one with NewS3Store or NewStore)")
	}
	return s.invalid
}

// PutOption sets a property of an object that [Store.Put] writes.
type PutOption func(*Version)

// WithContentType sets the Content-Type. The default is application/octet-stream.
func WithContentType(t string) PutOption { return func(v *Version) { v.ContentType = t } }

// WithMetadata adds your own metadata. It copies m. Names must be in lower case and must not begin
// with "leasehold-". Values must be printable ASCII, and must not begin or end with a space, which
// HTTP would cut off.
func WithMetadata(m map[string]string) PutOption {
	m = maps.Clone(m)
	return func(v *Version) { v.Metadata = m }
}

// Put writes an object under token. It makes up to 10 attempts against concurrent writes and
// temporary failures, and reads the body from its start for each attempt. On S3 it sends two
// requests for a new object, three to replace an object, and more for a body over 8 MiB, which is
// uploaded in parts: see [NewS3Store].
func (s *Store) Put(ctx context.Context, token uint64, key string, body io.ReadSeeker, opts ...PutOption) error {
	var v Version
	err := s.usable()
	for _, opt := range opts {
		if opt == nil {
			return named(s3api.Bad("writing %q: a PutOption is nil", key))
		}
		opt(&v)
	}
	if err == nil {
		err = check(token, key)
	}
	if err == nil && body == nil {
		err = s3api.Bad("writing %q: the body is nil", key)
	}
	if err == nil {
		err = checkHeaders(key, v)
	}
	if err != nil {
		return named(err)
	}
	size, err := body.Seek(0, io.SeekEnd)
	if err != nil {
		return named(fmt.Errorf("size of the body of %q: %w", key, err))
	}
	v.Size = size
	return named(s.write(ctx, newWrite(token, key), func(w *write, old current) error {
		if _, err := body.Seek(0, io.SeekStart); err != nil {
			return &storeapi.Error{
				Doing: fmt.Sprintf("rewinding the body of %q", key),
				Kind:  leasehold.ErrPermanent,
				Cause: err,
			}
		}
		return s.send(ctx, w, old, v, io.LimitReader(body, size))
	}))
}

// Delete replaces an object with a tombstone, or creates the tombstone if there is no object. Get
// then returns [leasehold.ErrNotExist]. Readers without a Store see an empty object, which on S3
// has 64 bytes of white space.
func (s *Store) Delete(ctx context.Context, token uint64, key string) error {
	if err := s.usable(); err != nil {
		return named(err)
	}
	if err := check(token, key); err != nil {
		return named(err)
	}
	return named(s.write(ctx, newWrite(token, key), func(w *write, old current) error {
		return s.send(ctx, w, old, tombstone(), strings.NewReader(""))
	}))
}

// Seal claims keys for token: after it has returned nil, no lower token writes them. A new leader
// must seal every key that it will read and act on, before it reads it. A key without an object
// gets a tombstone. If several keys fail, Seal returns the first error, and the other keys may be
// sealed.
//
// Seal writes an object again with the same body. On S3 it sends a HEAD, a GET and a PUT for each
// key, so it downloads the body and uploads it again. A key without an object costs two requests. A
// key that this token has already claimed costs one.
//
// On S3, headers, metadata, storage class and KMS key do not change. An object that is encrypted
// without KMS gets the bucket's encryption. Seal refuses an object with tags, a legal hold, a
// retention period, or anything else that its GET shows and a rewrite would lose
// ([leasehold.ErrPermanent]). Seal loses settings that a GET does not show: the ACL, the encryption
// context, checksums other than the ETag, and tags if the client lacks s3:GetObjectTagging.
func (s *Store) Seal(ctx context.Context, token uint64, keys ...string) error {
	if err := s.usable(); err != nil {
		return named(err)
	}
	if s.noSeal != nil {
		return named(s.noSeal)
	}
	for _, key := range keys {
		if err := check(token, key); err != nil {
			return named(err)
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var first error
	var failed sync.Once
	var wg sync.WaitGroup
	slots := make(chan struct{}, 8) // keys at a time
	for _, key := range keys {
		slots <- struct{}{}
		wg.Go(func() {
			if err := s.seal(ctx, token, key); err != nil {
				failed.Do(func() { first = err })
				cancel()
			}
			<-slots
		})
	}
	wg.Wait()
	return named(first)
}

func (s *Store) seal(ctx context.Context, token uint64, key string) error {
	return s.write(ctx, newWrite(token, key), func(w *write, old current) error {
		if old.ID != "" && old.token == token {
			return nil
		}
		if old.ID == "" || old.gone {
			return s.send(ctx, w, old, tombstone(), strings.NewReader(""))
		}
		if b, ok := s.backend.(MetadataSetter); ok {
			return b.SetMetadata(ctx, key, old.Version, w.metadata(users(old.Metadata)))
		}
		v, body, err := s.open(ctx, key)
		if err != nil {
			return err
		}
		defer func() { _ = body.Close() }()
		if !old.same(v) {
			return fmt.Errorf("sealing %q: %w", key, storeapi.ErrConflict)
		}
		if v.Size < 0 {
			v.Size = old.Size
		}
		v.Metadata = users(v.Metadata)
		return s.send(ctx, w, old, v, body)
	})
}

// Object is an object as [Store.Get] returns it.
type Object struct {
	// Body must be closed by the caller. A Read fails after a minute without data, and at the end
	// of a body that is shorter than the server said. You may pause between Reads as long as the
	// server allows. Body is not safe for concurrent use, except Close.
	Body        io.ReadCloser
	Size        int64  // in bytes; -1 if the server does not say
	Token       uint64 // of the last writer; 0 if the object was not written through a Store
	ContentType string
	Metadata    map[string]string // your own
	ETag        string            // identifies the version; on Google Cloud Storage the generation
}

// Get returns an object, even if another client wrote it, with one request on S3. If there is no
// object, or a tombstone, the error matches [leasehold.ErrNotExist]. Former leaders can read too.
// The object was current at the read, and may have changed when the reader acts on it.
func (s *Store) Get(ctx context.Context, key string) (*Object, error) {
	if err := s.usable(); err != nil {
		return nil, named(err)
	}
	if err := checkKey(key); err != nil {
		return nil, named(err)
	}
	v, body, err := s.open(ctx, key)
	if err != nil {
		return nil, named(err)
	}
	now, err := parse(key, v)
	if err == nil && now.gone {
		err = fmt.Errorf("reading %q: %w (it was deleted with token %d)", key, leasehold.ErrNotExist, now.token)
	}
	if err != nil {
		_ = body.Close()
		return nil, named(err)
	}
	return &Object{
		Body: namedBody{body}, Size: v.Size, Token: now.token, ContentType: v.ContentType,
		Metadata: users(v.Metadata), ETag: v.ID,
	}, nil
}

// namedBody is a body whose errors the user sees.
type namedBody struct{ io.ReadCloser }

func (b namedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = named(err)
	}
	return n, err
}

// named puts the project's name into an error that leaves the package.
func named(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("leasehold: %w", err)
}
