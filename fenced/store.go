package fenced

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/export"
	"github.com/leasehold-go/leasehold/internal/s3api"
	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// Store writes ordinary objects of an S3 bucket under the fencing tokens of a lock. Each writer's token stays in
// the object's metadata. A write reads it, refuses if it is higher than its own ([leasehold.FencedError]), and otherwise replaces
// exactly the version that it has read. Once a token has written or sealed a key, no lower one ever writes it again,
// whatever clocks and networks do.
//
// That holds among those who write through a Store: S3 lets anybody else with the permission overwrite anything.
// A delete is a write too, of a tombstone. Lifecycle rules must not expire tombstones while a former leader can still wake up.
// Each key stands alone: nothing here makes writes of two objects one.
//
// Give [Lease.Token] for token and [Lease.Context] for ctx: a leader that has lost its lease then stops by itself, and the
// token stops one that did not notice. A request that gets no answer is given up after a minute, plus a second for each 128 KiB
// that it carries, and the write goes on with the next attempt.
//
// Errors match [leasehold.ErrFenced], [ErrUnfenced], [leasehold.ErrUnsafeStore], [leasehold.ErrPermanent], [leasehold.ErrCorruptRecord] (metadata that no
// Store writes), or ctx's error. After any error but leasehold.ErrFenced at the first attempt, the write may have landed
// nevertheless; repeating it is right. An answer that is not the server's, such as a proxy's page, never counts as a
// success, and says nothing about the object. A Store is safe for concurrent use.
type Store struct {
	client   S3Client
	bucket   *s3api.Bucket
	versions Versions
	adopt    bool
	partSize int64         // bodies above go in parts of this size at least
	timeout  time.Duration // of a request without a body, and of each read of an answer's body

	checking chan struct{} // holds a token while one checks
	checked  [2]bool       // small and large writes; guarded by checking
}

// S3Client is the part of [*s3.Client] that a [Store] calls.
type S3Client interface {
	leasehold.S3Client
	HeadObject(context.Context, *s3.HeadObjectInput, ...func(*s3.Options)) (*s3.HeadObjectOutput, error)
	CreateMultipartUpload(context.Context, *s3.CreateMultipartUploadInput, ...func(*s3.Options)) (*s3.CreateMultipartUploadOutput, error)
	UploadPart(context.Context, *s3.UploadPartInput, ...func(*s3.Options)) (*s3.UploadPartOutput, error)
	CompleteMultipartUpload(context.Context, *s3.CompleteMultipartUploadInput, ...func(*s3.Options)) (*s3.CompleteMultipartUploadOutput, error)
	AbortMultipartUpload(context.Context, *s3.AbortMultipartUploadInput, ...func(*s3.Options)) (*s3.AbortMultipartUploadOutput, error)
}

// Versions says how the versions of one object come to differ in their ETags. S3's default ETag is a hash of the body
// alone: a body written again, by [Store.Seal] or after another, would look like the version that a former leader
// has read, and let it write.
type Versions uint8

const (
	// UniqueETags relies on a bucket whose ETags never repeat, as those of SSE-KMS, SSE-C and directory buckets. The first
	// write checks it.
	UniqueETags Versions = iota + 1
	// PaddedBodies adds 64 random spaces and tabs to the end of each body, which [Store.Get] takes off. Readers of
	// JSON, and of most other text, do not mind them. Compressed and binary formats may: Seal refuses to adopt an object that
	// has a Content-Encoding.
	PaddedBodies
	// DistinctBodies relies on the caller never to write the same body to one key twice, for example because each
	// has a unique number in it. Seal, which writes a body again, is refused.
	DistinctBodies
)

// Option configures a [Store].
type Option func(*Store)

// WithAdoption has objects without a token, which somebody else has written, count as token 0: the first fenced write or
// seal takes them over. Without it they are left alone, and writing them is [ErrUnfenced].
func WithAdoption() Option { return func(s *Store) { s.adopt = true } }

// ErrUnfenced says that an object has no token: it was not written through a [Store]. See [WithAdoption].
var ErrUnfenced = errors.New("object has no fencing token")

func init() {
	export.WithPartSize = func(size int64) Option { return func(s *Store) { s.partSize = size } }
}

// NewS3Store returns a store of fenced objects in bucket; see [Versions] for the choice to make. It sends no request. A nil
// client, a name that no bucket can have, and versions that are none of the three are an error that matches [leasehold.ErrPermanent].
// The client's settings stay, except as [NewS3Store] says.
//
// The client needs the permissions s3:GetObject, s3:PutObject and s3:ListBucket. The first write also makes a check of 5
// requests, and needs s3:DeleteObject for the check's object. The first body over 8 MiB makes another check, of 13 requests; such bodies
// need s3:AbortMultipartUpload.
func NewS3Store(client S3Client, bucket string, versions Versions, opts ...Option) (*Store, error) {
	s := &Store{
		client: client, bucket: &s3api.Bucket{Name: bucket}, versions: versions, partSize: 8 << 20, timeout: time.Minute,
		checking: make(chan struct{}, 1),
	}
	for _, opt := range opts {
		opt(s)
	}
	err := s.bucket.Validate(client)
	if err == nil && (versions < UniqueETags || versions > DistinctBodies) {
		err = &storeapi.Error{Kind: leasehold.ErrPermanent, Cause: fmt.Errorf("versions %d is none of UniqueETags, PaddedBodies, DistinctBodies", versions)}
	}
	if err != nil {
		return nil, fmt.Errorf("leasehold: NewS3Store: %w", err)
	}
	return s, nil
}

// named puts the package's name into an error that leaves it.
func named(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("leasehold: %w", err)
}

func checkKey(key string) error {
	if why := storeapi.BadKey(key); why != "" {
		return fmt.Errorf("leasehold: key %.80q %s: use a path such as \"data/report.json\"", key, why)
	}
	return nil
}

// PutOption says more about an object that is written.
type PutOption func(*fencedWrite)

// WithContentType sets the Content-Type, default application/octet-stream.
func WithContentType(t string) PutOption {
	return func(w *fencedWrite) { w.head.ContentType = &t }
}

// WithMetadata adds metadata of the user's own (x-amz-meta-…), of which it keeps a copy. Names are in lower case and
// do not begin with "leasehold-"; values are printable ASCII.
func WithMetadata(m map[string]string) PutOption {
	m = maps.Clone(m)
	return func(w *fencedWrite) { w.meta = m }
}

// fencedWrite is one write, however many attempts it takes.
type fencedWrite struct {
	key   string
	token uint64
	nonce string // tells its own landed write from others
	meta  map[string]string
	head  objectHead
}

// objectHead is what S3 keeps with a body and a rewrite must keep.
type objectHead struct {
	ContentType, ContentEncoding, ContentLanguage, ContentDisposition, CacheControl, redirect *string
	expires                                                                                   *time.Time
	class                                                                                     types.StorageClass
	encryption                                                                                types.ServerSideEncryption
	kmsKey                                                                                    *string
	bucketKey                                                                                 *bool
}

// content is the body of one attempt.
type content struct {
	io.Reader
	size int64 // that there must be; -1: unknown
}

const (
	metaPrefix = "leasehold-"
	metaToken  = metaPrefix + "token"
	metaNonce  = metaPrefix + "nonce"
	metaPad    = metaPrefix + "padding" // bytes at the end that are not the caller's
	metaGone   = metaPrefix + "deleted"
	padding    = 64

	fencedAttempts = 10
	maxParts       = 10_000
	leastRate      = 128 << 10 // bytes a second that a body must take on its way up
	drainSize      = 256 << 10 // what Close reads of an answer so that its connection can be used again
	drainTime      = 100 * time.Millisecond
)

// Put writes an object in two requests, and a few more if something goes wrong: it is tried up to 10 times against
// concurrent writes and failures that may pass. Bodies over 8 MiB are sent in parts, and need a server that honours both
// conditions of CompleteMultipartUpload; the first such write checks that, and an error that matches [leasehold.ErrUnsafeStore] says
// that it does not. The body is read from its start at each attempt.
func (s *Store) Put(ctx context.Context, token uint64, key string, body io.ReadSeeker, opts ...PutOption) error {
	w := s.newWrite(token, key)
	for _, opt := range opts {
		opt(w)
	}
	if err := w.check(); err != nil {
		return err
	}
	size, err := body.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("leasehold: size of the body of %q: %w", key, err)
	}
	return named(s.write(ctx, w, func(v *fencedVersion) error {
		if _, err := body.Seek(0, io.SeekStart); err != nil {
			return &storeapi.Error{Doing: fmt.Sprintf("rewinding the body of %q", key), Kind: leasehold.ErrPermanent, Cause: err}
		}
		return s.send(ctx, w, v, content{io.LimitReader(body, size), size})
	}))
}

// Delete puts a tombstone in the place of an object, in two requests: readers of a Store see [leasehold.ErrNotExist], others an
// object of 64 bytes of white space. An object that does not exist gets one, too.
func (s *Store) Delete(ctx context.Context, token uint64, key string) error {
	w := s.newWrite(token, key)
	if err := w.check(); err != nil {
		return err
	}
	return named(s.write(ctx, w, func(v *fencedVersion) error { return s.send(ctx, w.tombstone(), v, content{}) }))
}

// Seal claims keys for token: after it has returned, no lower token writes them. A new leader seals what it is about to read
// and to act on, before it reads. It costs three requests per key (HEAD, GET, PUT), and moves the object's body down and up
// again. A key without an object costs two, and gets a tombstone; one that the token has claimed already costs one. An
// error is that of the first key that failed; other keys may be sealed.
//
// Headers, metadata, storage class and KMS key stay as they are; objects encrypted without KMS get the bucket's encryption. An
// object with tags, a legal hold, a retention period, or anything else that its GET shows and a rewrite would lose, is refused
// ([leasehold.ErrPermanent]). What a GET does not show is lost: the ACL, the encryption context, checksums beside
// the ETag, and tags if the client lacks s3:GetObjectTagging.
func (s *Store) Seal(ctx context.Context, token uint64, keys ...string) error {
	if s.versions == DistinctBodies {
		return named(&storeapi.Error{Kind: leasehold.ErrPermanent, Cause: errors.New("Seal writes a body again, which DistinctBodies excludes")})
	}
	for _, key := range keys {
		if err := s.newWrite(token, key).check(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	lane := make(chan struct{}, 8) // so many keys at a time
	for _, key := range keys {
		lane <- struct{}{}
		wg.Go(func() {
			if err := s.seal(ctx, token, key); err != nil {
				cancel(err)
			}
			<-lane
		})
	}
	wg.Wait()
	return named(context.Cause(ctx))
}

func (s *Store) seal(ctx context.Context, token uint64, key string) error {
	w := s.newWrite(token, key)
	return s.write(ctx, w, func(v *fencedVersion) error {
		if v.exists && v.token == token {
			return nil
		}
		if !v.exists || v.gone {
			return s.send(ctx, w.tombstone(), v, content{})
		}
		o, out, err := s.get(ctx, key)
		if err != nil {
			return err
		}
		defer func() { _ = o.Body.Close() }()
		if o.ETag != v.etag {
			return storeapi.ErrConflict
		}
		if b := o.Body.(*fencedBody); b.want < 0 {
			b.want = v.size
		}
		again := *w
		again.meta = o.Metadata
		if again.head, err = s.keep(out); err != nil {
			return &storeapi.Error{Doing: fmt.Sprintf("sealing %q with token %d", key, token), Kind: leasehold.ErrPermanent, Cause: err}
		}
		return s.send(ctx, &again, v, content{o.Body, o.Size})
	})
}

// keep returns what a rewrite of an object must keep, or what it would lose.
func (s *Store) keep(out *s3.GetObjectOutput) (objectHead, error) {
	h := objectHead{
		out.ContentType, out.ContentEncoding, out.ContentLanguage, out.ContentDisposition, out.CacheControl, out.WebsiteRedirectLocation,
		nil, out.StorageClass, out.ServerSideEncryption, out.SSEKMSKeyId, out.BucketKeyEnabled,
	}
	if h.encryption == types.ServerSideEncryptionAes256 {
		h.encryption = "" // with UniqueETags, the bucket's own is better: it has ETags that never repeat
	}
	lost := ""
	if text := aws.ToString(out.ExpiresString); text != "" {
		expires, err := http.ParseTime(text)
		if err != nil {
			lost = fmt.Sprintf("the header Expires: %q, which is not a date", text)
		}
		h.expires = &expires
	}
	switch {
	case aws.ToInt32(out.TagCount) > 0:
		lost = fmt.Sprintf("%d tags", *out.TagCount)
	case out.ObjectLockLegalHoldStatus == types.ObjectLockLegalHoldStatusOn:
		lost = "a legal hold"
	case out.ObjectLockMode != "" || out.ObjectLockRetainUntilDate != nil:
		lost = "a retention period"
	case aws.ToInt32(out.MissingMeta) > 0:
		lost = "metadata that S3 cannot show in headers"
	}
	if lost != "" {
		return h, fmt.Errorf("the object has %s, which a rewrite would lose", lost)
	}
	switch encoding := strings.ToLower(aws.ToString(out.ContentEncoding)); encoding {
	case "", "identity", "aws-chunked":
	default:
		if s.versions == PaddedBodies {
			return h, fmt.Errorf("the object has Content-Encoding %q, and white space after a compressed body breaks its readers: "+
				"use a store with UniqueETags, or Put it with DistinctBodies", encoding)
		}
	}
	return h, nil
}

// Object is an object as [Store.Get] returns it.
type Object struct {
	// Body is to be closed by the caller. A read fails after a minute in which nothing came, or if less comes than the server said.
	// Reads may be as far apart as the server allows. It is not safe for concurrent use, except Close.
	Body        io.ReadCloser
	Size        int64  // in bytes; -1 if the server does not say
	Token       uint64 // of its writer; 0 if it was not written through a Store
	ContentType string
	Metadata    map[string]string // the user's
	ETag        string
}

// Get reads an object in one request, whoever wrote it. One that does not exist, or has a tombstone, is [leasehold.ErrNotExist].
// A former leader can read as well as anybody: what it reads is true, but may be changed by the time it acts on it.
func (s *Store) Get(ctx context.Context, key string) (*Object, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	o, out, err := s.get(ctx, key)
	if err != nil {
		return nil, named(err)
	}
	if out.Metadata[metaGone] != "" {
		_ = o.Body.Close()
		return nil, fmt.Errorf("leasehold: %s: %w (it was deleted with token %d)", s.bucket.Doing(s3api.Get, key), leasehold.ErrNotExist, o.Token)
	}
	o.Body = namedBody{o.Body}
	return o, nil
}

// namedBody is a body whose errors are the user's to see.
type namedBody struct{ io.ReadCloser }

func (b namedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = named(err)
	}
	return n, err
}

func (s *Store) get(ctx context.Context, key string) (*Object, *s3.GetObjectOutput, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	idle := time.AfterFunc(s.timeout, func() { cancel(errIdle) })
	out, err := s.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &s.bucket.Name, Key: &key}, s.bucket.Patient)
	if !idle.Stop() && context.Cause(ctx) == errIdle {
		if err == nil {
			_ = out.Body.Close()
		}
		return nil, nil, stalled(s.bucket.Doing(s3api.Get, key), "no answer", s.timeout)
	}
	if err != nil {
		cancel(nil)
		return nil, nil, s.bucket.Explain(err, s3api.Get, key)
	}
	b := &fencedBody{raw: out.Body, doing: s.bucket.Doing(s3api.Get, key), ctx: ctx, cancel: cancel, idle: idle, limit: s.timeout}
	b.buffered = bufio.NewReader(readerFunc(b.receive))
	v, err := s.version(key, out.ETag, out.ContentLength, out.Metadata, out.ResultMetadata)
	size := int64(-1)
	if err == nil {
		b.want = v.size
		size, err = b.expect(out, v.nonce)
	}
	if err != nil {
		_ = b.Close()
		return nil, nil, err
	}
	o := &Object{
		Body: b, Size: size, Token: v.token, ContentType: aws.ToString(out.ContentType), Metadata: maps.Clone(out.Metadata), ETag: v.etag,
	}
	maps.DeleteFunc(o.Metadata, func(name, _ string) bool { return strings.HasPrefix(name, metaPrefix) })
	return o, out, nil
}

// errIdle ends the context of a request to which nothing comes.
var errIdle = errors.New("time limit of an answer")

func stalled(doing, what string, limit time.Duration) error {
	return &storeapi.Error{Doing: doing, Kind: os.ErrDeadlineExceeded, Cause: fmt.Errorf("%s for %v", what, limit)}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// fencedBody is the body of an answer without its padding.
type fencedBody struct {
	raw      io.ReadCloser
	buffered *bufio.Reader // of receive
	want     int64         // bytes on the wire; -1: unknown
	got      atomic.Int64
	pad      []byte // what must come last
	doing    string

	ctx    context.Context // of the request
	cancel context.CancelCauseFunc
	idle   *time.Timer // cancels it
	limit  time.Duration
}

// expect reads from the headers what is to come, and returns the size of it without the padding.
func (b *fencedBody) expect(out *s3.GetObjectOutput, nonce string) (size int64, err error) {
	if out.ContentRange != nil { // nobody asked for a part
		return 0, &storeapi.Error{Doing: b.doing, Cause: fmt.Errorf("the answer is a part of the object: %s", *out.ContentRange)}
	}
	if text, ok := out.Metadata[metaPad]; ok {
		if text != strconv.Itoa(padding) || len(nonce) != padding/4 || b.want >= 0 && b.want < padding {
			return 0, &storeapi.Error{Doing: b.doing, Kind: leasehold.ErrCorruptRecord, Cause: fmt.Errorf("metadata %s is %q, of a body of %d bytes", metaPad, text, b.want)}
		}
		b.pad = pad(nonce)
	}
	if b.want < 0 {
		return -1, nil
	}
	return b.want - int64(len(b.pad)), nil
}

// Read holds back as many bytes as the padding has, until it knows whether they are the last.
func (b *fencedBody) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	ahead, err := b.buffered.Peek(len(b.pad) + 1)
	if err == nil {
		return b.buffered.Read(p[:min(len(p), b.buffered.Buffered()-len(b.pad))])
	}
	switch {
	case err == io.EOF && b.want >= 0 && b.got.Load() != b.want:
		err = io.ErrUnexpectedEOF
	case err == io.EOF && bytes.Equal(ahead, b.pad):
		return 0, io.EOF
	case err == io.EOF && b.want >= 0: // somebody else's body under our metadata
		return 0, &storeapi.Error{Doing: b.doing, Kind: leasehold.ErrCorruptRecord, Cause: errors.New("the body does not end with its padding")}
	case err == io.EOF:
		err = fmt.Errorf("the body does not end with its padding: %w", io.ErrUnexpectedEOF)
	case context.Cause(b.ctx) == errIdle:
		return 0, stalled(b.doing, "nothing came", b.limit)
	}
	return 0, &storeapi.Error{Doing: b.doing, Cause: err}
}

// receive reads what comes over the wire.
func (b *fencedBody) receive(p []byte) (int, error) {
	b.idle.Reset(b.limit)
	n, err := b.raw.Read(p)
	b.idle.Stop()
	b.got.Add(int64(n))
	return n, err
}

// Close reads a small rest, such as the padding, so that the connection can be used again.
func (b *fencedBody) Close() error {
	if b.want < 0 || b.want-b.got.Load() <= drainSize {
		b.idle.Reset(drainTime)
		_, _ = io.CopyN(io.Discard, b.raw, drainSize)
		b.idle.Stop()
	}
	err := b.raw.Close()
	b.cancel(nil)
	return err
}

func (s *Store) newWrite(token uint64, key string) *fencedWrite {
	random := make([]byte, padding/8)
	_, _ = rand.Read(random) // never fails
	return &fencedWrite{key: key, token: token, nonce: hex.EncodeToString(random)}
}

func (w *fencedWrite) check() error {
	if err := checkKey(w.key); err != nil {
		return err
	}
	if w.token == 0 || w.token > storeapi.MaxToken {
		return fmt.Errorf("leasehold: writing %q: token %d is not from 1 to 2^53-1, as a lease's are: give lease.Token()", w.key, w.token)
	}
	for name, value := range w.meta {
		for _, c := range []byte(name + value) {
			if c < ' ' || c > '~' {
				return fmt.Errorf("leasehold: writing %q: metadata %q is not printable ASCII", w.key, name)
			}
		}
		if name == "" || name != strings.ToLower(name) || strings.HasPrefix(name, metaPrefix) || strings.ContainsAny(name, ` ()<>@,;:\"/[]?={}`) {
			return fmt.Errorf("leasehold: writing %q: metadata name %q: use the letters of an HTTP header in lower case, "+
				"and not %q in front", w.key, name, metaPrefix)
		}
	}
	return nil
}

func (w *fencedWrite) tooLow(highest uint64) error {
	return &leasehold.FencedError{Key: w.key, Token: w.token, Highest: highest}
}

// tombstone returns w as the deletion of its object.
func (w *fencedWrite) tombstone() *fencedWrite {
	gone := *w
	gone.meta, gone.head = map[string]string{metaGone: "true"}, objectHead{}
	return &gone
}

func (w *fencedWrite) metadata(pad int) map[string]string {
	m := map[string]string{metaToken: strconv.FormatUint(w.token, 10), metaNonce: w.nonce}
	if pad > 0 {
		m[metaPad] = strconv.Itoa(pad)
	}
	maps.Copy(m, w.meta)
	return m
}

// pad is a nonce in white space; nil if it is none of ours.
func pad(nonce string) []byte {
	bits, _ := hex.DecodeString(nonce)
	space := make([]byte, 0, padding)
	for _, b := range bits {
		for i := range 8 {
			space = append(space, " \t"[b>>i&1])
		}
	}
	return space
}

// fencedVersion is what stands in an object's place.
type fencedVersion struct {
	exists, gone bool
	etag         string
	token        uint64
	tokenless    bool
	nonce        string
	size         int64 // with the padding; -1: unknown
}

// look asks what stands at key.
func (s *Store) look(ctx context.Context, key string) (*fencedVersion, error) {
	ctx, cancel := s.deadline(ctx, 0)
	defer cancel()
	out, err := s.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &s.bucket.Name, Key: &key}, s.bucket.Patient)
	if missing := (*types.NotFound)(nil); errors.As(err, &missing) {
		// If it was not the server who said so, or if the bucket is missing, the conditional write finds out.
		return &fencedVersion{}, nil
	}
	if err != nil {
		return nil, s.bucket.Explain(err, s3api.Get, key)
	}
	return s.version(key, out.ETag, out.ContentLength, out.Metadata, out.ResultMetadata)
}

func (s *Store) version(key string, etag *string, size *int64, meta map[string]string, reply middleware.Metadata) (*fencedVersion, error) {
	if err := s.sound(s3api.Get, key, etag, reply); err != nil {
		return nil, err
	}
	v := &fencedVersion{exists: true, etag: *etag, nonce: meta[metaNonce], gone: meta[metaGone] != "", size: -1}
	if size != nil {
		v.size = *size
	}
	text, ok := meta[metaToken]
	if !ok {
		v.tokenless = true
		return v, nil
	}
	token, err := strconv.ParseUint(text, 10, 64)
	if err != nil || token == 0 || token > storeapi.MaxToken {
		return nil, &storeapi.Error{
			Doing: s.bucket.Doing(s3api.Get, key), Kind: leasehold.ErrCorruptRecord, Cause: fmt.Errorf("metadata %s is %q, which is not a token", metaToken, text),
			Hint: "write the object anew without this metadata, then use WithAdoption",
		}
	}
	v.token = token
	return v, nil
}

// sound returns an error if an answer that says it is a success is not the server's: nothing is known then.
func (s *Store) sound(op s3api.Op, key string, etag *string, reply middleware.Metadata) error {
	if raw, ok := awsmiddleware.GetRawResponse(reply).(*smithyhttp.Response); ok && raw != nil {
		for r := raw.Request; r != nil && r.Response != nil; r = r.Response.Request {
			// net/http has followed a redirect; a 307 or 308 repeats the request, any other is a GET, whatever was asked.
			if status := r.Response.StatusCode; status != http.StatusTemporaryRedirect && status != http.StatusPermanentRedirect {
				return s.bucket.NotS3(fmt.Errorf("the request was redirected to %s", raw.Request.URL.Redacted()), op, key)
			}
		}
	}
	if aws.ToString(etag) == "" {
		return s.bucket.NotS3(errors.New("the answer has no ETag"), op, key)
	}
	s.bucket.Heard()
	return nil
}

// write repeats look, judge, send until it is known that the write has landed, or cannot.
func (s *Store) write(ctx context.Context, w *fencedWrite, send func(*fencedVersion) error) error {
	doing := fmt.Sprintf("writing %q with token %d", w.key, w.token)
	var failed error
	for attempt := range fencedAttempts + 1 { // the last one only looks
		err := s.ready(ctx, w.key, false)
		var v *fencedVersion
		if err == nil {
			v, err = s.look(ctx, w.key)
		}
		if err == nil {
			switch {
			case v.exists && v.nonce == w.nonce: // an attempt whose answer was lost
				return nil
			case v.token > w.token:
				if failed != nil {
					return fmt.Errorf("%w (an earlier attempt may have landed before that: %w)", w.tooLow(v.token), failed)
				}
				return w.tooLow(v.token)
			case v.exists && v.tokenless && !s.adopt:
				return &storeapi.Error{Doing: doing, Cause: ErrUnfenced, Hint: "somebody else has written it: WithAdoption would take it over"}
			case attempt == fencedAttempts:
				return fmt.Errorf("%s: given up after %d attempts: %w", doing, attempt, failed)
			}
			if err = send(v); err == nil {
				return nil
			}
		}
		if storeapi.Permanent(err) || ctx.Err() != nil || attempt == fencedAttempts {
			return err
		}
		failed = err
		pause := time.NewTimer(time.Duration(float64(20*time.Millisecond<<min(attempt, 6)) * (0.5 + mathrand.Float64())))
		select {
		case <-ctx.Done():
			pause.Stop()
			return fmt.Errorf("%s: %w: %w", doing, ctx.Err(), err)
		case <-pause.C:
		}
	}
	panic("unreachable")
}

// send makes one attempt to put c in the place of v. Its caller has seen that v may be replaced.
func (s *Store) send(ctx context.Context, w *fencedWrite, v *fencedVersion, c content) error {
	body, meta, size := c.Reader, w.metadata(0), c.size
	if body == nil {
		body = bytes.NewReader(nil)
	}
	if s.versions == PaddedBodies || w.meta[metaGone] != "" { // tombstones are all alike otherwise
		meta = w.metadata(padding)
		body = io.MultiReader(body, bytes.NewReader(pad(w.nonce)))
		if size >= 0 {
			size += padding
		}
	}
	ifMatch, ifNoneMatch := v.conditions()
	first, err := io.ReadAll(io.LimitReader(body, s.partSize+1))
	if err != nil {
		return fmt.Errorf("reading the body of %q: %w", w.key, err)
	}
	if int64(len(first)) > s.partSize {
		if err := s.ready(ctx, w.key, true); err != nil {
			return err
		}
		return s.sendParts(ctx, w, meta, ifMatch, ifNoneMatch, content{io.MultiReader(bytes.NewReader(first), body), size})
	}
	if size >= 0 && int64(len(first)) != size {
		return fmt.Errorf("reading the body of %q: %d bytes are missing: %w", w.key, size-int64(len(first)), io.ErrUnexpectedEOF)
	}
	_, err = s.put(ctx, w, meta, ifMatch, ifNoneMatch, first)
	return err
}

func (v *fencedVersion) conditions() (ifMatch, ifNoneMatch *string) {
	if v.exists {
		return &v.etag, nil
	}
	return nil, aws.String("*")
}

func (s *Store) put(ctx context.Context, w *fencedWrite, meta map[string]string, ifMatch, ifNoneMatch *string, body []byte) (etag string, err error) {
	ctx, cancel := s.deadline(ctx, int64(len(body)))
	defer cancel()
	out, err := s.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &s.bucket.Name, Key: &w.key, Body: bytes.NewReader(body), ContentLength: aws.Int64(int64(len(body))), Metadata: meta,
		ContentType: w.head.ContentType, ContentEncoding: w.head.ContentEncoding, ContentLanguage: w.head.ContentLanguage,
		ContentDisposition: w.head.ContentDisposition, CacheControl: w.head.CacheControl, Expires: w.head.expires,
		WebsiteRedirectLocation: w.head.redirect, StorageClass: w.head.class,
		ServerSideEncryption: w.head.encryption, SSEKMSKeyId: w.head.kmsKey, BucketKeyEnabled: w.head.bucketKey,
		IfMatch: ifMatch, IfNoneMatch: ifNoneMatch,
	}, s.bucket.Once)
	if err != nil {
		return "", s.bucket.Explain(err, s3api.Put, w.key)
	}
	if err := s.sound(s3api.Put, w.key, out.ETag, out.ResultMetadata); err != nil {
		return "", err
	}
	return *out.ETag, nil
}

// sendParts sends a body that is too large to be kept. Only its last request makes it visible, and has the condition.
func (s *Store) sendParts(ctx context.Context, w *fencedWrite, meta map[string]string, ifMatch, ifNoneMatch *string, c content) error {
	id, err := s.createUpload(ctx, w, meta)
	if err != nil {
		return err
	}
	done := false
	defer func() {
		if !done { // if it has landed after all, there is nothing left to abort
			ctx, cancel := s.deadline(context.WithoutCancel(ctx), 0)
			defer cancel()
			_, _ = s.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &s.bucket.Name, Key: &w.key, UploadId: id}, s.bucket.Patient)
		}
	}()
	var parts []types.CompletedPart
	partSize := max(s.partSize, (c.size+maxParts-1)/maxParts)
	var buffer bytes.Buffer
	buffer.Grow(int(partSize) + bytes.MinRead)
	for sent := int64(0); ; {
		buffer.Reset()
		n, err := buffer.ReadFrom(io.LimitReader(c.Reader, partSize))
		if err != nil {
			return fmt.Errorf("reading the body of %q (%d bytes read): %w", w.key, sent+n, err)
		}
		sent += n
		if n < partSize && c.size >= 0 && sent != c.size {
			return fmt.Errorf("reading the body of %q: %d bytes are missing: %w", w.key, c.size-sent, io.ErrUnexpectedEOF)
		}
		if n == 0 {
			break
		}
		number := aws.Int32(int32(len(parts) + 1))
		etag, err := s.uploadPart(ctx, w.key, &s3.UploadPartInput{
			Bucket: &s.bucket.Name, Key: &w.key, UploadId: id, PartNumber: number,
			Body: bytes.NewReader(buffer.Bytes()), ContentLength: &n,
		})
		if err != nil {
			return err
		}
		parts = append(parts, types.CompletedPart{ETag: etag, PartNumber: number})
		if n < partSize {
			break
		}
	}
	ctx, cancel := s.deadline(ctx, 0)
	defer cancel()
	out, err := s.client.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
		Bucket: &s.bucket.Name, Key: &w.key, UploadId: id, IfMatch: ifMatch, IfNoneMatch: ifNoneMatch,
		MultipartUpload: &types.CompletedMultipartUpload{Parts: parts},
	}, s.bucket.Once)
	if err != nil {
		return s.bucket.Explain(err, s3api.Put, w.key)
	}
	err = s.sound(s3api.Put, w.key, out.ETag, out.ResultMetadata)
	done = err == nil
	return err
}

func (s *Store) createUpload(ctx context.Context, w *fencedWrite, meta map[string]string) (id *string, err error) {
	ctx, cancel := s.deadline(ctx, 0)
	defer cancel()
	out, err := s.client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{
		Bucket: &s.bucket.Name, Key: &w.key, Metadata: meta,
		ContentType: w.head.ContentType, ContentEncoding: w.head.ContentEncoding, ContentLanguage: w.head.ContentLanguage,
		ContentDisposition: w.head.ContentDisposition, CacheControl: w.head.CacheControl, Expires: w.head.expires,
		WebsiteRedirectLocation: w.head.redirect, StorageClass: w.head.class,
		ServerSideEncryption: w.head.encryption, SSEKMSKeyId: w.head.kmsKey, BucketKeyEnabled: w.head.bucketKey,
	}, s.bucket.Patient)
	if err != nil {
		return nil, s.bucket.Explain(err, s3api.Put, w.key)
	}
	if aws.ToString(out.UploadId) == "" {
		return nil, s.bucket.NotS3(errors.New("the answer has no upload ID"), s3api.Put, w.key)
	}
	return out.UploadId, nil
}

func (s *Store) uploadPart(ctx context.Context, key string, in *s3.UploadPartInput) (etag *string, err error) {
	ctx, cancel := s.deadline(ctx, *in.ContentLength)
	defer cancel()
	out, err := s.client.UploadPart(ctx, in, s.bucket.Patient)
	if err != nil {
		return nil, s.bucket.Explain(err, s3api.Put, key)
	}
	return out.ETag, s.sound(s3api.Put, key, out.ETag, out.ResultMetadata)
}

// deadline limits a request that carries size bytes. A later deadline of the caller's does not replace it.
func (s *Store) deadline(ctx context.Context, size int64) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.timeout+time.Duration(size)*time.Second/leastRate)
}

// ready checks, before the first write and the first large one, what their safety rests on.
func (s *Store) ready(ctx context.Context, key string, large bool) error {
	select {
	case s.checking <- struct{}{}:
		defer func() { <-s.checking }()
	case <-ctx.Done():
		return fmt.Errorf("waiting for the check of bucket %q: %w", s.bucket.Name, ctx.Err())
	}
	if s.checked[0] && (s.checked[1] || !large) {
		return nil
	}
	// Beside the object: permissions are often given by prefix.
	w := s.newWrite(1, key[:strings.LastIndex(key, "/")+1]+".leasehold-check-"+rand.Text())
	defer func() {
		ctx, cancel := s.deadline(context.WithoutCancel(ctx), 0)
		defer cancel()
		_, _ = s.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &s.bucket.Name, Key: &w.key}, s.bucket.Patient)
	}()
	if err := s.probe(ctx, w, large); err != nil {
		return fmt.Errorf("checking bucket %q for fenced writes: %w", s.bucket.Name, err)
	}
	s.checked = [2]bool{true, s.checked[1] || large}
	return nil
}

// probe tries each condition that writes rely on, in the very kind of request that will have it.
func (s *Store) probe(ctx context.Context, w *fencedWrite, large bool) error {
	unsafe := func(what string) error {
		return &storeapi.Error{Kind: leasehold.ErrUnsafeStore, Cause: errors.New(what)}
	}
	refused := func(err error, ignored string) error {
		if err == nil {
			return unsafe(ignored)
		}
		if errors.Is(err, leasehold.ErrPreconditionFailed) {
			return nil
		}
		return err
	}
	create := aws.String("*")
	put := func(body string, ifMatch, ifNoneMatch *string) (string, error) {
		return s.put(ctx, w, w.metadata(0), ifMatch, ifNoneMatch, []byte(body))
	}
	first, err := put("1", nil, create)
	if err != nil {
		return err
	}
	_, err = put("2", nil, create)
	if err := refused(err, "the server ignores If-None-Match: a PUT with it replaced an object"); err != nil {
		return err
	}
	body := "3"
	if s.versions == UniqueETags {
		body = "1"
	}
	second, err := put(body, &first, nil)
	if err != nil {
		return err
	}
	if first == second {
		return unsafe("UniqueETags: the same body has the same ETag again: encrypt the bucket with SSE-KMS, or choose PaddedBodies")
	}
	_, err = put("4", &first, nil)
	if err := refused(err, "the server ignores If-Match: a PUT with it replaced another version"); err != nil || !large {
		return err
	}
	for _, c := range []struct {
		name                 string
		ifMatch, ifNoneMatch *string
	}{{"If-Match", &first, nil}, {"If-None-Match", nil, create}} {
		err := s.sendParts(ctx, w, w.metadata(0), c.ifMatch, c.ifNoneMatch, content{strings.NewReader("5"), 1})
		err = refused(err, fmt.Sprintf("the server ignores %s of CompleteMultipartUpload: bodies over %d bytes cannot be fenced here", c.name, s.partSize-padding))
		if err != nil {
			return err
		}
	}
	return nil
}
