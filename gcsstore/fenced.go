package gcsstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"cloud.google.com/go/storage"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/fenced"
	"github.com/leasehold-go/leasehold/storehttp"
)

// NewFencedStore returns a store of fenced objects in bucket: see [fenced.Store]. Client and bucket
// are the same as for [New]. For arguments that cannot work, the error matches
// [leasehold.ErrPermanent]. NewFencedStore sends no request.
//
// Every write carries ifGenerationMatch with the generation whose token it has read. A generation
// never repeats, so bodies are stored unchanged. A write sends two requests and a read two. A seal
// of an existing object sends four: it reads the object and uploads it again, because a change of
// the metadata alone would keep the generation, and a former leader's write would succeed. Cloud
// Storage accepts one write per second to one object. A write that gets 429 is tried again.
//
// The first write of a store sends three more, to check that the server returns metadata: see
// [fenced.Store].
//
// A body over 16 MiB is sent by a resumable upload, whose session carries the condition. The client
// itself repeats chunks.
//
// Seal keeps content headers, metadata, storage class, Cloud KMS key, custom time and object
// contexts. An object with a separate ACL gets the bucket's default ACL. Cloud Storage refuses to
// replace an object under a hold or a retention policy.
func NewFencedStore(client *storage.Client, bucket string, opts ...fenced.Option) (*fenced.Store, error) {
	s := New(client, bucket)
	if err := s.valid(); err != nil {
		return nil, fmt.Errorf("leasehold: gcsstore.NewFencedStore: %w", err)
	}
	for _, opt := range opts {
		if opt == nil {
			return nil, fmt.Errorf("leasehold: gcsstore.NewFencedStore: %w", bad("an Option is nil"))
		}
	}
	return fenced.NewStore(fencedBackend{s}, opts...), nil
}

const (
	patience   = time.Minute // for the answer to a request
	leastRate  = 128 << 10   // bytes of a body that must go up in a second
	maxRequest = 16 << 20    // bytes; larger bodies go in chunks, of this size by default
	maxReads   = 5
)

// opUpload is opPut in several requests. A 404 may be about the upload's session.
var opUpload = op{"uploading", opPut.permissions}

// fencedBackend is a fenced.Backend. The generation is the ID of a version.
type fencedBackend struct{ *Store }

// Head implements fenced.Backend.
func (b fencedBackend) Head(ctx context.Context, key string) (fenced.Version, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ctx, heard := b.hear(ctx)
	attrs, err := b.bucket.Object(key).Attrs(ctx)
	if err != nil {
		err = b.explain(err, heard.Load(), opGet, key)
		if errors.Is(err, leasehold.ErrNotExist) {
			return fenced.Version{}, nil
		}
		return fenced.Version{}, err
	}
	if err := b.genuine(attrs, heard.Load(), opGet, key); err != nil {
		return fenced.Version{}, err
	}
	return fenced.Version{
		ID: formatETag(attrs.Generation), Size: attrs.Size, ContentType: attrs.ContentType,
		Metadata: attrs.Metadata, Settings: attrs,
	}, nil
}

// Get implements fenced.Backend. It reads the body of the generation that Head has described, and
// starts again if that has been replaced.
func (b fencedBackend) Get(ctx context.Context, key string) (fenced.Version, io.ReadCloser, error) {
	context.AfterFunc(ctx, func() { b.server.Unanswered(context.Cause(ctx)) })
	for range maxReads {
		v, err := b.Head(ctx, key)
		if err != nil {
			return fenced.Version{}, nil, err
		}
		if v.ID == "" {
			return fenced.Version{}, nil, &storehttp.Error{Doing: b.doing(opGet, key), Cause: leasehold.ErrNotExist}
		}
		body, err := b.open(ctx, key, &v)
		if err == nil {
			return v, body, nil
		}
		if !errors.Is(err, leasehold.ErrNotExist) {
			return fenced.Version{}, nil, err
		}
	}
	return fenced.Version{}, nil, &storehttp.Error{
		Doing: b.doing(opGet, key),
		Cause: fmt.Errorf("the object was replaced during each of %d reads", maxReads),
	}
}

// open reads the body of v. If the body is stored with gzip, the client decompresses it, and its
// size is unknown.
func (b fencedBackend) open(ctx context.Context, key string, v *fenced.Version) (io.ReadCloser, error) {
	generation, err := b.generation(key, v.ID)
	if err != nil {
		return nil, err
	}
	ctx, heard := b.hear(ctx)
	r, err := b.bucket.Object(key).Generation(generation).NewReader(ctx)
	if err != nil {
		return nil, b.explain(err, heard.Load(), opGet, key)
	}
	if reply := heard.Load(); reply != nil && reply.header.Get("X-Goog-Generation") != v.ID {
		_ = r.Close()
		return nil, b.notCloudStorages(fmt.Errorf("the answer is not generation %s", v.ID), opGet, key)
	}
	if r.Attrs.Decompressed {
		v.Size = -1
	}
	return r, nil
}

// Put implements fenced.Backend.
func (b fencedBackend) Put(ctx context.Context, key string, old, next fenced.Version, body io.Reader) error {
	if a, again := next.Settings.(*storage.ObjectAttrs); again && a.ContentEncoding == "gzip" {
		return &storehttp.Error{
			Doing: b.doing(opPut, key), Kind: leasehold.ErrPermanent,
			Cause: errors.New("the object has Content-Encoding gzip, and the client reads it decompressed, so it " +
				"cannot be written again as it is"), Hint: "Put it instead",
		}
	}
	only := storage.Conditions{DoesNotExist: true}
	if old.ID != "" {
		generation, err := b.generation(key, old.ID)
		if err != nil {
			return err
		}
		only = storage.Conditions{GenerationMatch: generation}
	}
	ctx, cancel := context.WithTimeout(ctx, patience+time.Duration(max(next.Size, 0)/leastRate)*time.Second)
	defer cancel() // an upload that has not been closed ends here, and writes nothing
	ctx, heard := b.hear(ctx)
	w := b.bucket.Object(key).If(only).NewWriter(ctx)
	op := opPut
	if next.Size >= 0 && next.Size <= maxRequest {
		w.ChunkSize = 0 // one request, which no layer below repeats
	} else {
		op, w.ChunkTransferTimeout = opUpload, patience+time.Duration(w.ChunkSize)*time.Second/leastRate
	}
	keep(w, next)
	from := &source{Reader: body}
	_, err := io.Copy(w, from)
	if from.err != nil {
		return fmt.Errorf("reading the body of %q: %w", key, from.err)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return b.explain(err, heard.Load(), op, key)
	}
	return b.genuine(w.Attrs(), heard.Load(), op, key)
}

// source is a body that remembers why it could not be read. Otherwise the upload's error could pass
// for an answer to the upload, because the body may be the answer to another request.
type source struct {
	io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err != io.EOF {
		s.err = err
	}
	return n, err
}

// keep sets what is stored with the body.
func keep(w *storage.Writer, next fenced.Version) {
	if a, again := next.Settings.(*storage.ObjectAttrs); again {
		w.ContentEncoding, w.ContentLanguage, w.ContentDisposition = a.ContentEncoding,
			a.ContentLanguage, a.ContentDisposition
		w.CacheControl, w.StorageClass, w.CustomTime, w.Contexts = a.CacheControl, a.StorageClass,
			a.CustomTime, a.Contexts
		// a write names the key, a read also its version
		w.KMSKeyName, _, _ = strings.Cut(a.KMSKeyName, "/cryptoKeyVersions/")
	}
	w.Metadata, w.ContentType = next.Metadata, next.ContentType
	if w.ContentType == "" {
		w.ContentType = "application/octet-stream"
	}
}
