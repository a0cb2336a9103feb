package leasehold

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	mathrand "math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// FencedStore writes ordinary objects of an S3 bucket under the fencing tokens of a lock: the token of each writer stays in
// the object's metadata, and a write reads it, refuses if it is higher than its own ([FencedError]), and else replaces
// exactly the version that it has read. Once a token has written or sealed a key, no lower one ever writes it again,
// whatever clocks and networks do.
//
// That holds among those who write through a FencedStore: S3 lets anybody else with the permission overwrite anything.
// A delete is a write too, of a tombstone; lifecycle rules must not expire these while a former leader can still wake up.
// Each key is by itself: nothing here makes writes of two objects one.
//
// Give [Lease.Token] for token and [Lease.Context] for ctx: then a leader that has lost its lease stops by itself, and the
// token stops the one that did not notice. Errors match [ErrFenced], [ErrUnfenced], [ErrUnsafeStore], [ErrPermanent],
// [ErrCorruptRecord] (a token that is not a number), or ctx's error; any error but ErrFenced at the first attempt may mean
// that the write has landed nevertheless, and doing it again is right. It is safe for concurrent use.
type FencedStore struct {
	client   *s3.Client
	at       *S3Store // for settings, time limits and errors
	versions Versions
	adopt    bool

	checking chan struct{} // holds a token while one checks
	checked  [2]bool       // small and large writes; guarded by checking
}

// Versions says how the versions of one object come to differ in their ETags. S3's default ETag is a hash of the body
// alone: a body written again, by [FencedStore.Seal] or after another, would look like the version that a former leader
// has read, and let it write.
type Versions uint8

const (
	// UniqueETags relies on a bucket whose ETags never repeat, as those of SSE-KMS, SSE-C and directory buckets. The first
	// write checks it.
	UniqueETags Versions = iota + 1
	// PaddedBodies adds 64 random spaces and tabs to the end of each body, which [FencedStore.Get] takes off. Readers of
	// JSON, and of most other text, do not mind them.
	PaddedBodies
	// DistinctBodies takes the caller's word that no two bodies written to one key are ever the same, by a number in them
	// that is unique, say. Seal, which writes a body again, is refused.
	DistinctBodies
)

// FencedOption configures a [FencedStore].
type FencedOption func(*FencedStore)

// WithAdoption has objects without a token, which somebody else has written, count as token 0: the first fenced write or
// seal takes them over. Without it they are left alone, and writing them is [ErrUnfenced].
func WithAdoption() FencedOption { return func(s *FencedStore) { s.adopt = true } }

// ErrUnfenced says that an object has no token: it was not written through a [FencedStore]. See [WithAdoption].
var ErrUnfenced = errors.New("leasehold: object has no fencing token")

// FencedError is the error of a write whose token is too low. It matches [ErrFenced].
type FencedError struct {
	Key            string // what was to be written; empty for a [Fence]
	Token, Highest uint64 // the writer's, and what is there
}

func (e *FencedError) Error() string {
	of := ""
	if e.Key != "" {
		of = fmt.Sprintf(": %q", e.Key)
	}
	return fmt.Sprintf("%v%s: token %d, seen %d", ErrFenced, of, e.Token, e.Highest)
}

// Unwrap returns [ErrFenced].
func (e *FencedError) Unwrap() error { return ErrFenced }

// NewFencedStore returns a store of fenced objects in bucket; see [Versions] for the choice to make. The client's settings
// stay, except as [NewS3Store] says. Needed are s3:GetObject, s3:PutObject and s3:ListBucket; s3:DeleteObject for the object
// of the check that the first write makes (5 requests), and s3:AbortMultipartUpload for bodies over 8 MiB (4 more).
func NewFencedStore(client *s3.Client, bucket string, versions Versions, opts ...FencedOption) *FencedStore {
	s := &FencedStore{client: client, at: NewS3Store(client, bucket), versions: versions, checking: make(chan struct{}, 1)}
	s.at.timeout = time.Minute
	for _, opt := range opts {
		opt(s)
	}
	return s
}

// PutOption says more about an object that is written.
type PutOption func(*fencedWrite)

// WithContentType sets the Content-Type, default application/octet-stream.
func WithContentType(t string) PutOption {
	return func(w *fencedWrite) { w.head.ContentType = &t }
}

// WithUserMetadata adds metadata of the user's own (x-amz-meta-…). Names are in lower case and do not begin with "leasehold-".
func WithUserMetadata(m map[string]string) PutOption {
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
	ContentType, ContentEncoding, ContentLanguage, ContentDisposition, CacheControl *string
}

// content is the body of one attempt.
type content struct {
	io.Reader
	size int64
}

const (
	metaPrefix = "leasehold-"
	metaToken  = metaPrefix + "token"
	metaNonce  = metaPrefix + "nonce"
	metaPad    = metaPrefix + "padding" // bytes at the end that are not the caller's
	metaGone   = metaPrefix + "deleted"
	padding    = 64

	fencedAttempts = 10
	partSize       = 8 << 20 // bodies above go in parts of this size at least
	maxParts       = 10_000
)

// Put writes an object in two requests, and a few more if something goes wrong: it is tried up to 10 times against
// concurrent writes and failures that may pass. Bodies over 8 MiB are sent in parts, and need a server that honours the
// condition of CompleteMultipartUpload; the first such write checks that, and an error that matches [ErrUnsafeStore] says
// that it does not. The body is read from its start at each attempt.
func (s *FencedStore) Put(ctx context.Context, token uint64, key string, body io.ReadSeeker, opts ...PutOption) error {
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
	return s.write(ctx, w, size, func(v *fencedVersion) error {
		if _, err := body.Seek(0, io.SeekStart); err != nil {
			return fmt.Errorf("%w: rewinding the body of %q: %w", ErrPermanent, key, err)
		}
		return s.send(ctx, w, v, content{body, size})
	})
}

// Delete puts a tombstone in the place of an object, in two requests: readers of a FencedStore see [ErrNotExist], others an
// object of 64 bytes of white space. An object that does not exist gets one, too.
func (s *FencedStore) Delete(ctx context.Context, token uint64, key string) error {
	w := s.newWrite(token, key)
	if err := w.check(); err != nil {
		return err
	}
	return s.write(ctx, w, 0, func(v *fencedVersion) error { return s.send(ctx, w.tombstone(), v, content{}) })
}

// Seal claims keys for token: from its return on no lower token writes them. A new leader seals what it is about to read
// and to act on, before it reads. It costs three requests per key (HEAD, GET, PUT), and moves the object's body down and up
// again; one that does not exist costs two, and gets a tombstone; one that the token has claimed already costs one. An
// error is that of the first key that failed; other keys may be sealed. What S3 keeps apart from body, metadata and headers,
// such as tags and the storage class, a rewrite loses.
func (s *FencedStore) Seal(ctx context.Context, token uint64, keys ...string) error {
	if s.versions == DistinctBodies {
		return fmt.Errorf("%w: Seal writes a body again, which DistinctBodies excludes", ErrPermanent)
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
	return context.Cause(ctx)
}

func (s *FencedStore) seal(ctx context.Context, token uint64, key string) error {
	w := s.newWrite(token, key)
	return s.write(ctx, w, 0, func(v *fencedVersion) error {
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
		defer func() { _ = out.Body.Close() }()
		if aws.ToString(out.ETag) != v.etag {
			return errConflict
		}
		if err := s.ready(ctx, key, o.Size); err != nil {
			return err
		}
		again := *w
		again.meta = o.Metadata
		again.head = objectHead{out.ContentType, out.ContentEncoding, out.ContentLanguage, out.ContentDisposition, out.CacheControl}
		return s.send(ctx, &again, v, content{o.Body, o.Size})
	})
}

// FencedObject is an object as [FencedStore.Get] returns it.
type FencedObject struct {
	Body        io.ReadCloser // to be closed by the caller
	Size        int64
	Token       uint64 // of its writer; 0 if it was not written through a FencedStore
	ContentType string
	Metadata    map[string]string // the user's
	ETag        string
}

// Get reads an object in one request, whoever wrote it. One that does not exist, or has a tombstone, is [ErrNotExist].
// A former leader can read as well as anybody: what it reads is true, but may be changed by the time it acts on it.
func (s *FencedStore) Get(ctx context.Context, key string) (*FencedObject, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	o, out, err := s.get(ctx, key)
	if err != nil {
		return nil, err
	}
	if out.Metadata[metaGone] != "" {
		_ = o.Body.Close()
		return nil, fmt.Errorf("%w: %q was deleted with token %d", ErrNotExist, key, o.Token)
	}
	return o, nil
}

func (s *FencedStore) get(ctx context.Context, key string) (*FencedObject, *s3.GetObjectOutput, error) {
	out, err := s.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &s.at.bucket, Key: &key}, s.patient()...)
	if err != nil {
		return nil, nil, s.at.explain(err, opGet, key)
	}
	v, err := s.version(key, out.ETag, out.Metadata)
	pad, padErr := strconv.ParseInt(cmp.Or(out.Metadata[metaPad], "0"), 10, 64)
	size := aws.ToInt64(out.ContentLength) - pad
	if err == nil && (padErr != nil || pad < 0 || size < 0) {
		err = fmt.Errorf("%w: %q has metadata %s=%q", ErrCorruptRecord, key, metaPad, out.Metadata[metaPad])
	}
	if err != nil {
		_ = out.Body.Close()
		return nil, nil, err
	}
	o := &FencedObject{
		Body: body{io.LimitReader(out.Body, size), out.Body}, Size: size, Token: v.token,
		ContentType: aws.ToString(out.ContentType), Metadata: maps.Clone(out.Metadata), ETag: v.etag,
	}
	maps.DeleteFunc(o.Metadata, func(name, _ string) bool { return strings.HasPrefix(name, metaPrefix) })
	return o, out, nil
}

// body reads a part of what it closes.
type body struct {
	io.Reader
	io.Closer
}

func (s *FencedStore) newWrite(token uint64, key string) *fencedWrite {
	random := make([]byte, padding/8)
	_, _ = rand.Read(random) // never fails
	return &fencedWrite{key: key, token: token, nonce: hex.EncodeToString(random)}
}

func (w *fencedWrite) check() error {
	if err := checkKey(w.key); err != nil {
		return err
	}
	if w.token == 0 {
		return fmt.Errorf("leasehold: writing %q: token 0, which no lease has: give lease.Token()", w.key)
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

// pad is the nonce in white space.
func (w *fencedWrite) pad() []byte {
	bits, _ := hex.DecodeString(w.nonce)
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
}

// look asks what stands at key.
func (s *FencedStore) look(ctx context.Context, key string) (*fencedVersion, error) {
	ctx, cancel := s.at.deadline(ctx)
	defer cancel()
	out, err := s.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &s.at.bucket, Key: &key}, s.patient()...)
	if missing := (*types.NotFound)(nil); errors.As(err, &missing) {
		return &fencedVersion{}, nil // if the bucket is missing, the write says so: HEAD has no body that could
	}
	if err != nil {
		return nil, s.at.explain(err, opGet, key)
	}
	return s.version(key, out.ETag, out.Metadata)
}

func (s *FencedStore) version(key string, etag *string, meta map[string]string) (*fencedVersion, error) {
	v := &fencedVersion{exists: true, etag: aws.ToString(etag), nonce: meta[metaNonce], gone: meta[metaGone] != ""}
	if v.etag == "" {
		return nil, fmt.Errorf("%w: bucket %q: the server gives no ETag for %q", ErrUnsafeStore, s.at.bucket, key)
	}
	text, ok := meta[metaToken]
	if !ok {
		v.tokenless = true
		return v, nil
	}
	token, err := strconv.ParseUint(text, 10, 64)
	if err != nil || token == 0 {
		return nil, fmt.Errorf("%w: %q has metadata %s=%q", ErrCorruptRecord, key, metaToken, text)
	}
	v.token = token
	return v, nil
}

// write repeats look, judge, send until it is known that the write has landed, or cannot.
func (s *FencedStore) write(ctx context.Context, w *fencedWrite, size int64, send func(*fencedVersion) error) error {
	var failed error
	for attempt := range fencedAttempts + 1 { // the last one only looks
		err := s.ready(ctx, w.key, size)
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
					return fmt.Errorf("%w (an earlier attempt may have landed before that: %w)", &FencedError{w.key, w.token, v.token}, failed)
				}
				return &FencedError{w.key, w.token, v.token}
			case v.exists && v.tokenless && !s.adopt:
				return fmt.Errorf("%w: %q in bucket %q was written by somebody else: WithAdoption would take it over", ErrUnfenced, w.key, s.at.bucket)
			case attempt == fencedAttempts:
				return fmt.Errorf("leasehold: writing %q with token %d: given up after %d attempts: %w", w.key, w.token, attempt, failed)
			}
			if err = send(v); err == nil {
				return nil
			}
		}
		if permanent(err) || ctx.Err() != nil || attempt == fencedAttempts {
			return err
		}
		failed = err
		pause := time.NewTimer(time.Duration(float64(20*time.Millisecond<<min(attempt, 6)) * (0.5 + mathrand.Float64())))
		select {
		case <-ctx.Done():
			pause.Stop()
			return fmt.Errorf("leasehold: writing %q: %w: %w", w.key, ctx.Err(), err)
		case <-pause.C:
		}
	}
	panic("unreachable")
}

// send makes one attempt to put c in the place of v. Its caller has seen that v may be replaced.
func (s *FencedStore) send(ctx context.Context, w *fencedWrite, v *fencedVersion, c content) error {
	pad := 0
	if s.versions == PaddedBodies || w.meta[metaGone] != "" { // tombstones are all alike otherwise
		pad = padding
		c = content{io.MultiReader(io.LimitReader(c.orEmpty(), c.size), bytes.NewReader(w.pad())), c.size + int64(pad)}
	}
	ifMatch, ifNoneMatch := v.conditions()
	if c.size > partSize {
		return s.sendParts(ctx, w, w.metadata(pad), ifMatch, ifNoneMatch, c)
	}
	whole, err := io.ReadAll(io.LimitReader(c.orEmpty(), c.size))
	if err != nil || int64(len(whole)) != c.size {
		return fmt.Errorf("leasehold: reading the body of %q (%d of %d bytes): %w", w.key, len(whole), c.size, orUnexpectedEOF(err))
	}
	_, err = s.put(ctx, w, w.metadata(pad), ifMatch, ifNoneMatch, whole)
	return err
}

func (c content) orEmpty() io.Reader {
	if c.Reader == nil {
		return bytes.NewReader(nil)
	}
	return c.Reader
}

func orUnexpectedEOF(err error) error {
	if err == nil {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (v *fencedVersion) conditions() (ifMatch, ifNoneMatch *string) {
	if v.exists {
		return &v.etag, nil
	}
	return nil, aws.String("*")
}

func (s *FencedStore) put(ctx context.Context, w *fencedWrite, meta map[string]string, ifMatch, ifNoneMatch *string, body []byte) (etag string, err error) {
	ctx, cancel := s.at.deadline(ctx)
	defer cancel()
	out, err := s.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &s.at.bucket, Key: &w.key, Body: bytes.NewReader(body), ContentLength: aws.Int64(int64(len(body))), Metadata: meta,
		ContentType: w.head.ContentType, ContentEncoding: w.head.ContentEncoding, ContentLanguage: w.head.ContentLanguage,
		ContentDisposition: w.head.ContentDisposition, CacheControl: w.head.CacheControl,
		IfMatch: ifMatch, IfNoneMatch: ifNoneMatch,
	}, s.at.settings...)
	if err != nil {
		return "", s.at.explain(err, opPut, w.key)
	}
	if aws.ToString(out.ETag) == "" { // a proxy's own page, say
		return "", fmt.Errorf("leasehold: writing %q in bucket %q: the answer has no ETag", w.key, s.at.bucket)
	}
	return *out.ETag, nil
}

// sendParts sends a body that is too large to be kept. Only its last request makes it visible, and has the condition.
func (s *FencedStore) sendParts(ctx context.Context, w *fencedWrite, meta map[string]string, ifMatch, ifNoneMatch *string, c content) error {
	upload, err := s.client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{
		Bucket: &s.at.bucket, Key: &w.key, Metadata: meta,
		ContentType: w.head.ContentType, ContentEncoding: w.head.ContentEncoding, ContentLanguage: w.head.ContentLanguage,
		ContentDisposition: w.head.ContentDisposition, CacheControl: w.head.CacheControl,
	}, s.patient()...)
	if err != nil {
		return s.at.explain(err, opPut, w.key)
	}
	done := false
	defer func() {
		if !done { // if it has landed after all, there is nothing left to abort
			ctx, cancel := s.at.deadline(context.WithoutCancel(ctx))
			defer cancel()
			_, _ = s.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &s.at.bucket, Key: &w.key, UploadId: upload.UploadId}, s.patient()...)
		}
	}()
	var parts []types.CompletedPart
	buffer := make([]byte, max(partSize, (c.size+maxParts-1)/maxParts))
	for left := c.size; left > 0; {
		n, err := io.ReadFull(c.Reader, buffer[:min(left, int64(len(buffer)))])
		if err != nil {
			return fmt.Errorf("leasehold: reading the body of %q (%d bytes missing): %w", w.key, left-int64(n), err)
		}
		left -= int64(n)
		number := aws.Int32(int32(len(parts) + 1))
		part, err := s.uploadPart(ctx, &s3.UploadPartInput{
			Bucket: &s.at.bucket, Key: &w.key, UploadId: upload.UploadId, PartNumber: number,
			Body: bytes.NewReader(buffer[:n]), ContentLength: aws.Int64(int64(n)),
		})
		if err != nil {
			return s.at.explain(err, opPut, w.key)
		}
		parts = append(parts, types.CompletedPart{ETag: part.ETag, PartNumber: number})
	}
	ctx, cancel := s.at.deadline(ctx)
	defer cancel()
	_, err = s.client.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
		Bucket: &s.at.bucket, Key: &w.key, UploadId: upload.UploadId, IfMatch: ifMatch, IfNoneMatch: ifNoneMatch,
		MultipartUpload: &types.CompletedMultipartUpload{Parts: parts},
	}, s.at.settings...)
	done = err == nil
	return s.at.explain(err, opPut, w.key)
}

func (s *FencedStore) uploadPart(ctx context.Context, in *s3.UploadPartInput) (*s3.UploadPartOutput, error) {
	ctx, cancel := s.at.deadline(ctx)
	defer cancel()
	return s.client.UploadPart(ctx, in, s.patient()...)
}

// patient are the settings of requests that may be repeated: the client's own retryer is welcome.
func (s *FencedStore) patient() []func(*s3.Options) {
	return []func(*s3.Options){func(o *s3.Options) {
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
	}}
}

// ready checks, before the first write and the first large one, what their safety rests on.
func (s *FencedStore) ready(ctx context.Context, key string, size int64) error {
	if s.versions < UniqueETags || s.versions > DistinctBodies {
		return fmt.Errorf("%w: NewFencedStore: versions %d is none of UniqueETags, PaddedBodies, DistinctBodies", ErrPermanent, s.versions)
	}
	select {
	case s.checking <- struct{}{}:
		defer func() { <-s.checking }()
	case <-ctx.Done():
		return ctx.Err()
	}
	large := size+padding > partSize
	if s.checked[0] && (s.checked[1] || !large) {
		return nil
	}
	// Beside the object: permissions are often given by prefix.
	w := s.newWrite(1, key[:strings.LastIndex(key, "/")+1]+".leasehold-check-"+rand.Text())
	defer func() {
		ctx, cancel := s.at.deadline(context.WithoutCancel(ctx))
		defer cancel()
		_, _ = s.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &s.at.bucket, Key: &w.key}, s.patient()...)
	}()
	if err := s.probe(ctx, w, large); err != nil {
		return fmt.Errorf("leasehold: checking bucket %q for fenced writes: %w", s.at.bucket, err)
	}
	s.checked = [2]bool{true, s.checked[1] || large}
	return nil
}

func (s *FencedStore) probe(ctx context.Context, w *fencedWrite, large bool) error {
	refused := func(what string, err error) error {
		if err == nil {
			return fmt.Errorf("%w: %s", ErrUnsafeStore, what)
		}
		if errors.Is(err, ErrPreconditionFailed) {
			return nil
		}
		return err
	}
	put := func(body string, ifMatch, ifNoneMatch *string) (string, error) {
		return s.put(ctx, w, w.metadata(0), ifMatch, ifNoneMatch, []byte(body))
	}
	first, err := put("1", nil, aws.String("*"))
	if err != nil {
		return err
	}
	_, err = put("2", nil, aws.String("*"))
	if err := refused("a PUT with If-None-Match replaced an object", err); err != nil {
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
		return fmt.Errorf("%w: UniqueETags: the same body has the same ETag again: encrypt the bucket with SSE-KMS, or choose PaddedBodies", ErrUnsafeStore)
	}
	_, err = put("4", &first, nil)
	if err := refused("a PUT with If-Match replaced another version", err); err != nil || !large {
		return err
	}
	err = s.sendParts(ctx, w, w.metadata(0), nil, aws.String("*"), content{strings.NewReader("5"), 1})
	return refused(fmt.Sprintf("it ignores the condition of CompleteMultipartUpload: bodies over %d bytes cannot be fenced here", partSize-padding), err)
}
