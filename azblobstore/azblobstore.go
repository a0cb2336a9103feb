// Package azblobstore stores leasehold's locks in a container of Azure Blob Storage, and writes
// fenced objects there ([NewFencedStore]).
//
// Every write names the ETag that it replaces, so if many clients write at once, exactly one wins.
// Each call of the store is one HTTP request. The store turns the SDK's retries off. If the first
// try succeeded, a retry would fail with "condition not met" although the write is yours. A lock
// resolves such doubts itself.
package azblobstore

import (
	"bytes"
	"context"
	"crypto/fips140"
	"crypto/md5"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/storehttp"
)

// Store is a [leasehold.Store] in a container of Azure Blob Storage. It is safe for concurrent use.
//
// A Store needs the right to read, create, write and delete blobs: the role Storage Blob Data
// Contributor, or a SAS with the permissions r, c, w and d. Delete is for DeleteIfMatch only. No
// immutability policy, legal hold or lifecycle rule may cover the locks, and no other client may
// lease their blobs. Use an account without blob versioning and without soft delete, because both
// keep every renewal.
//
// Errors that retrying cannot fix match [leasehold.ErrPermanent] and say what to do. Before the
// server's first answer, faults that keep every request from reaching the server match it too, such
// as an unknown host or missing credentials. After that answer such faults count as temporary. No
// error text has the signature of a SAS.
//
// A reply counts as Azure's if it has the header x-ms-request-id, and, if it refuses,
// x-ms-error-code. Any other reply, such as a proxy's page, says nothing about the blob, so it is a
// temporary error. But if three such replies come before the first one of Azure, the third matches
// ErrPermanent, because the endpoint is probably wrong.
//
// If a write is refused because another client holds an Azure lease on the blob, the error says so.
// It matches ErrPermanent if the last read of the blob has shown a lease without end. A lease of 15
// to 60 s ends by itself, so in that case the error is temporary.
//
// PutIfMatch and DeleteIfMatch of a missing blob return [leasehold.ErrPreconditionFailed] if Azure
// answers "condition not met", and [leasehold.ErrNotExist] if it answers "blob not found".
type Store struct {
	container   *container.Client
	name        string // of the container
	prefix      string
	serverClock bool
	slack       time.Duration
	timeout     time.Duration
	invalid     error // why this store cannot work

	endless sync.Map // the keys whose last read has shown an Azure lease without end

	server storehttp.Server
}

var _ leasehold.Describer = (*Store)(nil)

// Option configures a [Store].
type Option func(*Store)

// WithKeyPrefix puts prefix before every key. No slash is added, so end the prefix with one.
func WithKeyPrefix(prefix string) Option { return func(s *Store) { s.prefix = prefix } }

// WithServerClock trusts the server's clock. Get then reports an object's Age: the reply's Date
// minus its Last-Modified minus slack. A candidate that has just started can then take over at once
// from a crashed holder. Age is 0 without this option, and if a reply lacks one of the two headers.
// The conditions of [leasehold.WithServerClock] apply. slack must be at least 2 s. [Store.Describe]
// reports a lower value as an error.
func WithServerClock(slack time.Duration) Option {
	return func(s *Store) { s.serverClock, s.slack = true, slack }
}

const (
	defaultTimeout = 10 * time.Second
	minSlack       = 2 * time.Second
	maxName        = 1024 // characters of a blob's name
)

// New returns a store in the container of this name, with your own client for any endpoint and
// credentials. The client's settings apply, except that the store's requests are not retried. A
// request whose context has no deadline gets one of 10 s. New sends no request. [Store.Describe],
// [leasehold.NewLock] and every method of the store report arguments that cannot work.
func New(client *azblob.Client, containerName string, opts ...Option) *Store {
	s := &Store{name: containerName, timeout: defaultTimeout}
	for _, opt := range opts {
		if opt == nil {
			s.invalid = bad("an Option is nil")
			return s
		}
		opt(s)
	}
	if s.invalid = s.check(client); s.invalid == nil {
		s.container = client.ServiceClient().NewContainerClient(containerName)
	}
	return s
}

// bad is the error of an argument that cannot work.
func bad(format string, args ...any) error {
	return &storehttp.Error{Kind: leasehold.ErrPermanent, Cause: fmt.Errorf(format, args...)}
}

// check catches mistakes for which the server's answer would be obscure.
func (s *Store) check(client *azblob.Client) error {
	switch {
	case s.name == "":
		return bad("the container has no name (pass it to the store; if an environment variable has it, set that)")
	case strings.Contains(s.name, "://"):
		return bad("container %.200q is a URL (give the account's URL to the client, the bare name to New, and what "+
			"follows it to WithKeyPrefix)", s.name)
	case len(s.name) < 3 || len(s.name) > 63 || strings.Contains("-"+s.name+"-", "--") ||
		strings.ContainsFunc(s.name, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-'
		}):
		return bad("container %.80q is not a container's name, which has 3 to 63 lower-case letters, digits and "+
			"single dashes between them", s.name)
	case client == nil:
		return bad("the Azure client is nil (make one with azblob.NewClient)")
	case s.serverClock && s.slack < minSlack:
		return bad("WithServerClock: slack %v is below %v: 1 s is needed because HTTP dates are whole seconds, and "+
			"1 s because the clocks of the store's own machines differ", s.slack, minSlack)
	}
	// A secondary region lags behind and takes no writes. An emulator has the account in the path,
	// and would take them for the primary's.
	if u, err := url.Parse(client.URL()); err == nil {
		host, _, _ := strings.Cut(u.Hostname(), ".")
		path, _, _ := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
		if strings.HasSuffix(host, "-secondary") || strings.HasSuffix(path, "-secondary") {
			endpoint := u.Host + u.Path
			return bad("endpoint %q is an account's secondary region, which is read-only and lags behind (use %q)",
				endpoint, strings.Replace(endpoint, "-secondary", "", 1))
		}
	}
	return storehttp.CheckPrefix(s.prefix)
}

// Describe returns that the store enforces conditions, and whether [WithServerClock] is set. Err
// matches [leasehold.ErrPermanent] if the arguments of [New] cannot work: a nil client, a client of
// a secondary region, an invalid container name, an invalid key prefix, or a slack that is too
// small. It sends no request.
func (s *Store) Describe() leasehold.StoreInfo {
	if err := s.valid(); err != nil {
		return leasehold.StoreInfo{Err: err}
	}
	return leasehold.StoreInfo{TellsAge: s.serverClock, Conditional: true}
}

func (s *Store) valid() error {
	if s == nil || s.container == nil && s.invalid == nil {
		return bad("the Store is nil or empty (make one with New)")
	}
	return s.invalid
}

// Get implements [leasehold.Store]. Age is 0 without [WithServerClock]. A body that breaks off, or
// does not have the MD5 that the reply names, is a temporary error. Get reads nothing a second
// time, so body and ETag come from one reply.
func (s *Store) Get(ctx context.Context, key string) (leasehold.Object, error) {
	if err := s.valid(); err != nil {
		return leasehold.Object{}, err
	}
	object, err := s.blob(key)
	if err != nil {
		return leasehold.Object{}, err
	}
	ctx, cancel, reply := s.request(ctx)
	defer cancel()
	r, err := object.DownloadStream(ctx, nil)
	if *reply != nil { // even if the SDK could not read a header: then it leaves the body open
		defer func() { _ = (*reply).Body.Close() }()
	}
	if err != nil {
		return leasehold.Object{}, s.explain(err, *reply, opGet, key)
	}
	if err := s.genuine(*reply, opGet, key); err != nil {
		return leasehold.Object{}, err
	}
	if err := s.look(*reply, key); err != nil {
		return leasehold.Object{}, err
	}
	o := leasehold.Object{ETag: (*reply).Header.Get("ETag")}
	o.Body, err = io.ReadAll(io.LimitReader(r.Body, leasehold.MaxObjectSize+1))
	switch {
	case err != nil:
		s.server.Unanswered(err)
		return leasehold.Object{}, &storehttp.Error{Doing: s.doing(opGet, key), Cause: err}
	case len(o.Body) > leasehold.MaxObjectSize:
		o.Body = nil
		return o, &storehttp.Error{
			Doing: s.doing(opGet, key),
			Kind:  leasehold.ErrCorruptRecord,
			Cause: fmt.Errorf("the object is larger than %d bytes", leasehold.MaxObjectSize),
		}
	case damaged(o.Body, r.ContentMD5):
		return leasehold.Object{}, &storehttp.Error{
			Doing: s.doing(opGet, key),
			Cause: errors.New("the body does not have the MD5 that the reply names"),
		}
	}
	if s.serverClock {
		now, _ := http.ParseTime((*reply).Header.Get("Date")) // the zero time if there is none
		written, _ := http.ParseTime((*reply).Header.Get("Last-Modified"))
		// Both are whole seconds, rounded down. A change of the metadata alone makes an object look
		// younger, so Age is still a lower bound.
		o.Age = storehttp.Age(now, written, s.slack)
	}
	return o, nil
}

// look notes whether another client has leased the blob without end, for the error of a refused
// write. It returns an error if the blob has a type that the store cannot replace.
func (s *Store) look(reply *http.Response, key string) error {
	if reply.Header.Get("X-Ms-Lease-Duration") == string(lease.DurationTypeInfinite) {
		s.endless.Store(key, true)
	} else {
		s.endless.Delete(key)
	}
	if kind := reply.Header.Get("X-Ms-Blob-Type"); kind != "" && kind != string(blob.BlobTypeBlockBlob) {
		return &storehttp.Error{
			Doing: s.doing(opGet, key),
			Kind:  leasehold.ErrPermanent,
			Cause: fmt.Errorf("it is of the type %s", kind),
			Hint:  hintType,
		}
	}
	return nil
}

// damaged reports whether body differs from the MD5 that the service keeps with a blob, if it keeps
// one.
func damaged(body, sum []byte) bool {
	if len(sum) == 0 || fips140.Enforced() { // where MD5 panics
		return false
	}
	got := md5.Sum(body) // finds damage, not forgery
	return !bytes.Equal(got[:], sum)
}

// PutIfNoneMatch implements [leasehold.Store].
func (s *Store) PutIfNoneMatch(ctx context.Context, key string, body []byte) (string, error) {
	if err := s.valid(); err != nil {
		return "", err
	}
	return s.put(ctx, opCreate, key, body, blob.ModifiedAccessConditions{IfNoneMatch: to.Ptr(azcore.ETagAny)})
}

// PutIfMatch implements [leasehold.Store].
func (s *Store) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	if err := s.valid(); err != nil {
		return "", err
	}
	if err := s.checkETag(key, etag); err != nil {
		return "", err
	}
	return s.put(ctx, opReplace, key, body, blob.ModifiedAccessConditions{IfMatch: to.Ptr(azcore.ETag(etag))})
}

// DeleteIfMatch implements [leasehold.Store]. A blob that has snapshots is not deleted.
func (s *Store) DeleteIfMatch(ctx context.Context, key, etag string) error {
	if err := s.valid(); err != nil {
		return err
	}
	if err := s.checkETag(key, etag); err != nil {
		return err
	}
	object, err := s.blob(key)
	if err != nil {
		return err
	}
	ctx, cancel, reply := s.request(ctx)
	defer cancel()
	only := blob.AccessConditions{
		ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: to.Ptr(azcore.ETag(etag))},
	}
	if _, err := object.Delete(ctx, &blob.DeleteOptions{AccessConditions: &only}); err != nil {
		return s.explain(err, *reply, opDelete, key)
	}
	return s.genuine(*reply, opDelete, key)
}

// checksum lets the service detect a body that was damaged on the way. Azurite refuses a CRC64
// unless it runs with --loose.
func checksum(body []byte) blob.TransferValidationType {
	if fips140.Enforced() { // where MD5 panics
		return blob.TransferValidationTypeComputeCRC64()
	}
	sum := md5.Sum(body) // finds damage, not forgery
	return blob.TransferValidationTypeMD5(sum[:])
}

// put sends one Put Blob.
func (s *Store) put(ctx context.Context, op op, key string, body []byte,
	only blob.ModifiedAccessConditions) (string, error) {
	if len(body) > leasehold.MaxObjectSize {
		return "", &storehttp.Error{
			Doing: s.doing(op, key),
			Kind:  leasehold.ErrPermanent,
			Cause: fmt.Errorf("%d bytes exceed the limit of %d", len(body), leasehold.MaxObjectSize),
		}
	}
	object, err := s.blob(key)
	if err != nil {
		return "", err
	}
	ctx, cancel, reply := s.request(ctx)
	defer cancel()
	_, err = object.Upload(ctx, streaming.NopCloser(bytes.NewReader(body)), &blockblob.UploadOptions{
		// Without no-store, caches would keep an object that may be read without credentials.
		HTTPHeaders: &blob.HTTPHeaders{
			BlobContentType:  to.Ptr("application/json"),
			BlobCacheControl: to.Ptr("no-store"),
		},
		AccessConditions:        &blob.AccessConditions{ModifiedAccessConditions: &only},
		TransactionalValidation: checksum(body),
	})
	if err != nil {
		return "", s.explain(err, *reply, op, key)
	}
	if err := s.genuine(*reply, op, key); err != nil { // whether the write has landed is unknown
		return "", err
	}
	return (*reply).Header.Get("ETag"), nil
}

// blob returns the client of a key.
func (s *Store) blob(key string) (*blockblob.Client, error) {
	name := s.prefix + key
	switch {
	case name == "" || utf8.RuneCountInString(name) > maxName:
		return nil, bad("blob name %.80q has %d characters with its prefix (use 1 to %d)", name,
			utf8.RuneCountInString(name), maxName)
	case strings.Contains(name+"/", "./"): // Azure advises against them, because some layers drop the dot
		return nil, bad("blob name %.80q has a path segment that ends in a dot, which Azure may drop", name)
	}
	return s.container.NewBlockBlobClient(name), nil
}

// checkETag refuses an ETag that names no version. In particular "*" must not pass, because to
// Azure it means "any version".
func (s *Store) checkETag(key, etag string) error {
	doing := fmt.Sprintf("%q in container %q", s.prefix+key, s.name)
	switch {
	case etag == "":
		return &storehttp.Error{Doing: doing, Kind: leasehold.ErrPermanent, Cause: errors.New("the ETag is empty")}
	case !isETag(etag):
		return fmt.Errorf("%s: %w: %q is not an ETag of Azure", doing, leasehold.ErrPreconditionFailed, etag)
	}
	return nil
}

// isETag reports whether etag is one strong ETag in quotes, as Azure gives them.
func isETag(etag string) bool {
	inner, ok := strings.CutPrefix(etag, `"`)
	inner, closed := strings.CutSuffix(inner, `"`)
	return ok && closed && inner != "" && !strings.ContainsFunc(inner, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || r == '"' || r == ','
	})
}

// request returns a context for a request that is sent once, and the place where the SDK stores the
// reply.
func (s *Store) request(ctx context.Context) (context.Context, context.CancelFunc, **http.Response) {
	cancel := context.CancelFunc(func() {})
	if _, ok := ctx.Deadline(); !ok {
		ctx, cancel = context.WithTimeout(ctx, s.timeout)
	}
	ctx, reply := s.once(ctx)
	return ctx, cancel, reply
}

// once is like request, without a time limit.
func (s *Store) once(ctx context.Context) (context.Context, **http.Response) {
	if s.server.Silent() {
		ctx = policy.WithHTTPHeader(ctx, http.Header{"Connection": {"close"}})
	}
	reply := new(*http.Response)
	ctx = policy.WithRetryOptions(ctx, policy.RetryOptions{MaxRetries: -1})
	return policy.WithCaptureResponse(ctx, reply), reply
}
