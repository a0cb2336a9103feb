package azblobstore

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/fenced"
)

// NewFencedStore returns a store of fenced objects in a container: see [fenced.Store]. Client,
// container and the rights needed are the same as for [New]. For arguments that cannot work, the
// error matches [leasehold.ErrPermanent]. NewFencedStore sends no request.
//
// Every write carries If-Match with the ETag whose token it has read. An ETag never repeats, so
// bodies are stored unchanged. A write sends two requests and a read one. A seal sends two,
// whatever the size of the object: Set Blob Metadata changes the ETag but not the body, so a former
// leader's write is refused.
//
// The first write of a store sends three more, to check that the server returns metadata: see
// [fenced.Store]. The object of that check is ".leasehold-check" next to the key. It remains if the
// client may not delete.
//
// A body over 8 MiB is sent in blocks, and the condition is on the Put Block List that makes them
// the blob. An upload that breaks off leaves blocks behind, which cannot be read and which cost
// storage. The next write of that key removes them, or Azure itself after a week. If several writes
// to one key are under way, the write that ends first removes the blocks of the others, which then
// start again.
//
// Seal keeps everything, but writes the names of metadata in lower case. Put and Delete keep
// nothing of the blob that they replace. Headers, tags, tier and metadata come from the call of
// Put, or else from the container's defaults. Names of metadata must be C# identifiers in lower
// case, such as "author_id", and must not begin with "leasehold_". In the container the store's own
// names have underscores instead of dashes. A proxy must pass such names: nginx drops request
// headers with underscores, unless it has "underscores_in_headers on".
func NewFencedStore(client *azblob.Client, containerName string, opts ...fenced.Option) (*fenced.Store, error) {
	s := New(client, containerName)
	if err := s.valid(); err != nil {
		return nil, fmt.Errorf("leasehold: azblobstore.NewFencedStore: %w", err)
	}
	for _, opt := range opts {
		if opt == nil {
			return nil, fmt.Errorf("leasehold: azblobstore.NewFencedStore: %w", bad("an Option is nil"))
		}
	}
	return fenced.NewStore(fencedBackend{s}, opts...), nil
}

const (
	patience   = time.Minute // for the answer to a request
	leastRate  = 128 << 10   // bytes of a body that must go up in a second
	maxRequest = 8 << 20     // bytes; larger bodies go up in blocks of this size, or larger ones
	maxBlocks  = 50_000      // of a blob
)

var (
	opBlock    = op{"uploading a block of", http.StatusCreated, "to create and write blobs (c and w of a SAS)"}
	opMetadata = op{"writing the metadata of", http.StatusOK, "to write blobs (w of a SAS)"}
)

// fencedBackend is a fenced.Backend and a fenced.MetadataSetter. The ETag is the ID of a version.
type fencedBackend struct{ *Store }

// Head implements fenced.Backend.
func (b fencedBackend) Head(ctx context.Context, key string) (fenced.Version, error) {
	object, err := b.blob(key)
	if err != nil {
		return fenced.Version{}, err
	}
	ctx, cancel, reply := b.within(ctx, 0)
	defer cancel()
	if r, err := object.GetProperties(ctx, nil); err != nil {
		err = b.explain(err, *reply, opGet, key)
		if errors.Is(err, leasehold.ErrNotExist) {
			return fenced.Version{}, nil
		}
		return fenced.Version{}, err
	} else if err := b.genuine(*reply, opGet, key); err != nil {
		return fenced.Version{}, err
	} else {
		return b.version(key, *reply, r.ContentLength, r.ContentType, r.Metadata)
	}
}

// version describes the blob of a reply.
func (b fencedBackend) version(key string, reply *http.Response, size *int64, contentType *string,
	metadata map[string]*string) (fenced.Version, error) {
	if err := b.look(reply, key); err != nil {
		return fenced.Version{}, err
	}
	v := fenced.Version{ID: reply.Header.Get("ETag"), Size: -1, Metadata: map[string]string{}}
	if size != nil {
		v.Size = *size
	}
	if contentType != nil {
		v.ContentType = *contentType
	}
	for name, value := range metadata {
		name = strings.ToLower(name) // as net/http has it, the first letter is a capital
		if ours, ok := strings.CutPrefix(name, "leasehold_"); ok {
			name = "leasehold-" + ours
		}
		if value != nil {
			v.Metadata[name] = *value
		}
	}
	return v, nil
}

var identifier = regexp.MustCompile(`^[a-z_][a-z0-9_]*$`)

// encode returns the metadata under names that Azure accepts.
func encode(key string, metadata map[string]string) (map[string]*string, error) {
	encoded := map[string]*string{}
	for name, value := range metadata {
		ours, own := strings.CutPrefix(name, "leasehold-")
		switch {
		case own:
			name = "leasehold_" + ours
		case strings.HasPrefix(name, "leasehold_"):
			return nil, bad("writing %q: metadata name %q: names must not begin with %q", key, name, "leasehold_")
		}
		if !identifier.MatchString(name) {
			return nil, bad("writing %q: metadata name %q: Azure wants a C# identifier, such as %q",
				key, name, "author_id")
		}
		encoded[name] = &value
	}
	return encoded, nil
}

// within returns the context of a request that carries size bytes.
func (b fencedBackend) within(ctx context.Context, size int64) (context.Context, context.CancelFunc, **http.Response) {
	ctx, cancel := context.WithTimeout(ctx, patience+time.Duration(size/leastRate)*time.Second)
	ctx, _, reply := b.request(ctx) // which has a deadline
	return ctx, cancel, reply
}

// Get implements fenced.Backend.
func (b fencedBackend) Get(ctx context.Context, key string) (fenced.Version, io.ReadCloser, error) {
	object, err := b.blob(key)
	if err != nil {
		return fenced.Version{}, nil, err
	}
	context.AfterFunc(ctx, func() { b.server.Unanswered(context.Cause(ctx)) })
	ctx, reply := b.once(ctx)
	r, err := object.DownloadStream(ctx, nil)
	if err == nil {
		err = b.genuine(*reply, opGet, key)
	} else {
		err = b.explain(err, *reply, opGet, key)
	}
	var v fenced.Version
	if err == nil {
		v, err = b.version(key, *reply, r.ContentLength, r.ContentType, r.Metadata)
	}
	if err != nil {
		if *reply != nil { // even if the SDK could not read a header: then it leaves the body open
			_ = (*reply).Body.Close()
		}
		return fenced.Version{}, nil, err
	}
	return v, r.Body, nil
}

// conditions returns the conditions of a write that replaces old.
func conditions(old fenced.Version) (op, *blob.AccessConditions) {
	if old.ID == "" {
		return opCreate, &blob.AccessConditions{
			ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: to.Ptr(azcore.ETagAny)},
		}
	}
	return opReplace, &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: to.Ptr(
		azcore.ETag(old.ID))}}
}

// Put implements fenced.Backend.
func (b fencedBackend) Put(ctx context.Context, key string, old, next fenced.Version, body io.Reader) error {
	object, err := b.blob(key)
	if err != nil {
		return err
	}
	metadata, err := encode(key, next.Metadata)
	if err != nil {
		return err
	}
	if next.ContentType == "" {
		next.ContentType = "application/octet-stream"
	}
	headers := &blob.HTTPHeaders{BlobContentType: &next.ContentType}
	op, only := conditions(old)
	if next.Size <= maxRequest {
		content, err := io.ReadAll(body)
		if err != nil {
			return fmt.Errorf("reading the body of %q: %w", key, err)
		}
		err = b.putBlob(ctx, object, op, key, content, &blockblob.UploadOptions{
			HTTPHeaders: headers, Metadata: metadata, AccessConditions: only,
			TransactionalValidation: checksum(content),
		})
		if op != opCreate || !errors.Is(err, leasehold.ErrPreconditionFailed) {
			return err
		}
		// An upload that has broken off leaves blocks behind. Azure then refuses a Put Blob with
		// If-None-Match, but not a Put Block List.
		if now, headErr := b.Head(ctx, key); headErr != nil || now.ID != "" {
			return err
		}
		body = bytes.NewReader(content)
	}
	blocks, err := b.upload(ctx, object, key, next.Size, body)
	if err != nil {
		return err
	}
	ctx, cancel, reply := b.within(ctx, 0)
	defer cancel()
	_, err = object.CommitBlockList(ctx, blocks, &blockblob.CommitBlockListOptions{
		HTTPHeaders:      headers,
		Metadata:         metadata,
		AccessConditions: only,
	})
	return b.outcome(err, *reply, op, key)
}

func (b fencedBackend) putBlob(ctx context.Context, object *blockblob.Client, op op, key string, content []byte,
	options *blockblob.UploadOptions) error {
	ctx, cancel, reply := b.within(ctx, int64(len(content)))
	defer cancel()
	_, err := object.Upload(ctx, streaming.NopCloser(bytes.NewReader(content)), options)
	return b.outcome(err, *reply, op, key)
}

// outcome returns the error of a write.
func (b fencedBackend) outcome(err error, reply *http.Response, op op, key string) error {
	if err != nil {
		return b.explain(err, reply, op, key)
	}
	return b.genuine(reply, op, key)
}

// upload sends the blocks of a body, which do not change the blob yet, and returns their IDs. All
// IDs of a blob must have one length. Each upload has different IDs, so that no list can mix the
// blocks of two.
func (b fencedBackend) upload(ctx context.Context, object *blockblob.Client, key string, size int64,
	body io.Reader) (ids []string, err error) {
	id := make([]byte, 24)
	_, _ = rand.Read(id[:16]) // never fails
	buffer := make([]byte, min(size, max(maxRequest, (size+maxBlocks-1)/maxBlocks)))
	for sent := int64(0); sent < size; {
		part := buffer[:min(int64(len(buffer)), size-sent)]
		if _, err := io.ReadFull(body, part); err != nil {
			return nil, fmt.Errorf("reading the body of %q: %w", key, err)
		}
		binary.BigEndian.PutUint64(id[16:], uint64(len(ids)))
		ids = append(ids, base64.StdEncoding.EncodeToString(id))
		if err := b.block(ctx, object, key, ids[len(ids)-1], part); err != nil {
			return nil, err
		}
		sent += int64(len(part))
	}
	if n, err := body.Read(make([]byte, 1)); n > 0 || err != io.EOF { // the reader checks its length at its end
		return nil, fmt.Errorf("the body of %q does not end after %d bytes: %w", key, size, err)
	}
	return ids, nil
}

func (b fencedBackend) block(ctx context.Context, object *blockblob.Client, key, id string, part []byte) error {
	ctx, cancel, reply := b.within(ctx, int64(len(part)))
	defer cancel()
	_, err := object.StageBlock(ctx, id, streaming.NopCloser(bytes.NewReader(part)),
		&blockblob.StageBlockOptions{TransactionalValidation: checksum(part)})
	return b.outcome(err, *reply, opBlock, key)
}

// SetMetadata implements fenced.MetadataSetter.
func (b fencedBackend) SetMetadata(ctx context.Context, key string, old fenced.Version,
	metadata map[string]string) error {
	object, err := b.blob(key)
	if err != nil {
		return err
	}
	encoded, err := encode(key, metadata)
	if err != nil {
		return err
	}
	_, only := conditions(old)
	ctx, cancel, reply := b.within(ctx, 0)
	defer cancel()
	_, err = object.SetMetadata(ctx, encoded, &blob.SetMetadataOptions{AccessConditions: only})
	return b.outcome(err, *reply, opMetadata, key)
}
