// Package place opens what the URL of a lock, or of a prefix of locks, names: a bucket of S3, of
// Google Cloud Storage or of Azure Blob Storage, or a directory. It bounds and counts the requests.
//
// An error that a user of the command can fix is an [exit.Error].
package place

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"cloud.google.com/go/storage"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/logging"
	"github.com/aws/smithy-go/middleware"
	"google.golang.org/api/iterator"
	"google.golang.org/api/option"
	htransport "google.golang.org/api/transport/http"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold-go/leasehold/createonly"
	"github.com/leasehold-go/leasehold/gcsstore"
	"github.com/leasehold-go/leasehold/internal/s3api"
)

// RequestLimit bounds every request, with the credentials that it asks for and the tries of an SDK.
// A lock gives a request a share of its TTL, which may be hours, and the SDKs give it forever.
const RequestLimit = 10 * time.Second

// ServerSlack is subtracted from ages by a server's clock.
const ServerSlack = 2 * time.Second

// Store is an open store, which Location.Open and NewStore make. It is safe for concurrent use,
// except Close. Each of its requests ends within RequestLimit.
//
// Its field Store is the one below, without the layer that counts requests and keeps the server's
// clock from locks.
type Store struct {
	*careful
	dir   string // of a file URL
	page  PageReader
	keyOf func(object string) (key string, ok bool) // of an object that is one of many of its key; nil if none is
	Close func()                                    // closes what Open has opened; to be called once
}

// PageReader reads one page of the objects whose keys begin with prefix. The first page has the
// token "", and the last one names no next.
type PageReader func(ctx context.Context, prefix, token string) (objects []Object, next string, err error)

// Object is an object in a list. If Err is not nil, it has no key that can be read, and Key is its
// name.
type Object struct {
	Key string
	Err error
}

// NewStore puts every request to a store under RequestLimit. A store without page has no list, and
// one without close needs no Close.
func NewStore(store leasehold.Store, page PageReader, close func()) *Store {
	return &Store{careful: &careful{Store: &limited{store}, Failed: make(chan struct{})}, page: page, Close: close}
}

// Objects are those whose keys begin with prefix, in the order of the store. An error ends them. Of
// a key that has many objects there is one.
func (b *Store) Objects(ctx context.Context, prefix string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		seen := make(map[string]bool)
		for token := ""; ; {
			soon, cancel := context.WithTimeout(ctx, RequestLimit)
			page, next, err := b.page(soon, prefix, token)
			cancel()
			if err == nil && next == token && next != "" {
				err = exit.Errorf(exit.Store, "the server gives the same page of the list again and again "+
					"(is the endpoint right? look for a proxy on the way)")
			}
			if err != nil {
				yield(Object{}, err)
				return
			}
			for _, o := range page {
				if key, ok := b.keyIn(o); ok {
					if seen[key] || !strings.HasPrefix(key, prefix) {
						continue
					}
					seen[key], o.Key = true, key
				}
				if !yield(o, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			token = next
		}
	}
}

// keyIn is the key of an object that is one of many.
func (b *Store) keyIn(o Object) (key string, ok bool) {
	if b.keyOf == nil || o.Err != nil {
		return "", false
	}
	return b.keyOf(o.Key)
}

// notAList is the error of an answer that looks like a success, and has no list in it.
func notAList(server string) error {
	return exit.Errorf(exit.Store, "the answer is not a list of objects: this is no %s "+
		"(check the host, port and path of the endpoint, and proxies on the way)", server)
}

// Open opens the store that the URL names. It sends no request, but may read files and ask for
// credentials. The caller closes the store.
func (l Location) Open(ctx context.Context) (*Store, error) {
	switch l.Scheme {
	case "s3":
		return l.openS3(ctx)
	case "gs":
		return l.openGS(ctx)
	case "azblob":
		return l.openAzure()
	}
	return l.openFile()
}

// S3Client is a client with the settings of the URL, and otherwise of the environment and of the
// files of the AWS SDK. If they do not suffice, the error is of the code exit.Config.
func (l Location) S3Client(ctx context.Context) (*s3.Client, error) {
	// errors say what matters
	cfg, err := config.LoadDefaultConfig(ctx, config.WithSharedConfigProfile(l.profile),
		config.WithLogger(logging.Nop{}))
	if err != nil {
		return nil, exit.Errorf(exit.Config, "reading the configuration of the AWS SDK: %w", err)
	}
	client := s3.NewFromConfig(cfg, func(o *s3.Options) {
		o.APIOptions = append(o.APIOptions, s3api.UnsignedEncoding, l.encrypt)
		if l.Endpoint != "" {
			o.BaseEndpoint = &l.Endpoint
		}
		if l.region != "" {
			o.Region = l.region
		}
		o.UsePathStyle = o.BaseEndpoint != nil // the host names of other servers rarely begin with buckets
		if l.pathStyle != nil {
			o.UsePathStyle = *l.pathStyle
		}
		if o.Region == "" && o.BaseEndpoint != nil { // servers other than Amazon's take any
			o.Region = "us-east-1"
		}
		if l.Through != nil {
			o.HTTPClient = doer{l.Through(tripper{o.HTTPClient})}
		}
	})
	if client.Options().Region == "" {
		return nil, exit.Errorf(exit.Config, "there is no region (set AWS_REGION, or add ?region=NAME to the URL)")
	}
	return client, nil
}

// doer is a transport as the SDKs of AWS and Azure want it, and tripper the way back.
type (
	doer    struct{ http.RoundTripper }
	tripper struct {
		to interface {
			Do(*http.Request) (*http.Response, error)
		}
	}
)

func (d doer) Do(r *http.Request) (*http.Response, error)           { return d.RoundTrip(r) }
func (t tripper) RoundTrip(r *http.Request) (*http.Response, error) { return t.to.Do(r) }

// newTransport is a transport for the clients whose SDKs do not show theirs.
func newTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = 64
	return t
}

// encrypt has each write name the encryption that the URL asks for.
func (l Location) encrypt(stack *middleware.Stack) error {
	if l.sse == "" {
		return nil
	}
	return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("encryption", func(
		ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler,
	) (middleware.InitializeOutput, middleware.Metadata, error) {
		if write, ok := in.Parameters.(*s3.PutObjectInput); ok {
			write.ServerSideEncryption = types.ServerSideEncryption(l.sse)
			if l.sseKey != "" {
				write.SSEKMSKeyId = &l.sseKey
			}
		}
		return next.HandleInitialize(ctx, in)
	}), middleware.Before)
}

func (l Location) openS3(ctx context.Context) (*Store, error) {
	client, err := l.S3Client(ctx)
	if err != nil {
		return nil, err
	}
	page := func(ctx context.Context, prefix, token string) (objects []Object, next string, err error) {
		in := &s3.ListObjectsV2Input{
			Bucket: &l.Bucket, Prefix: &prefix, EncodingType: types.EncodingTypeUrl, // XML has no control characters
		}
		if token != "" {
			in.ContinuationToken = &token
		}
		out, err := client.ListObjectsV2(ctx, in)
		switch {
		case err != nil:
			return nil, "", s3api.NewBucket(l.Bucket).Explain(err, s3api.Get, prefix)
		case out.IsTruncated == nil && out.Name == nil && out.MaxKeys == nil && out.KeyCount == nil: // a web page, say
			return nil, "", notAList("S3 server")
		}
		for _, o := range out.Contents {
			objects = append(objects, listedKey(aws.ToString(o.Key), out.EncodingType))
		}
		if aws.ToBool(out.IsTruncated) {
			if next = aws.ToString(out.NextContinuationToken); next == "" {
				err = exit.Errorf(exit.Store, "the server's list is cut off, and does not say how to continue (is the "+
					"endpoint right? look for a proxy on the way)")
			}
		}
		return objects, next, err
	}
	if l.CreateOnly {
		store := createonly.New(createonly.NewS3(client, l.Bucket))
		b := NewStore(store, page, func() {})
		b.keyOf = createonly.KeyOf
		return b, nil
	}
	store := leasehold.NewS3Store(client, l.Bucket, leasehold.WithServerClock(ServerSlack))
	return NewStore(store, page, func() {}), nil
}

// listedKey is the key that a server has put into a list, which is XML. VersityGW 1.8 does not
// encode it, and so writes "\ufffd" for characters that XML does not have.
func listedKey(text string, encoding types.EncodingType) Object {
	if encoding != types.EncodingTypeUrl {
		if strings.ContainsRune(text, utf8.RuneError) {
			return Object{text, errors.New("the server's list does not show the whole key")}
		}
		return Object{Key: text}
	}
	key, err := url.QueryUnescape(text)
	if err != nil {
		return Object{text, err}
	}
	return Object{Key: key}
}

// GSClient is a client with Google's application default credentials, or without any for an
// endpoint that is not encrypted. The caller closes it. If it cannot be made, the error is of the
// code exit.Config.
func (l Location) GSClient(ctx context.Context) (*storage.Client, error) {
	var opts []option.ClientOption
	if l.Endpoint != "" {
		opts = append(opts, option.WithEndpoint(l.Endpoint+"/storage/v1/"))
	}
	if strings.HasPrefix(l.Endpoint, "http://") { // an emulator: credentials must not go over such a connection
		opts = append(opts, option.WithoutAuthentication())
	}
	const making = "making a client of Google Cloud Storage: %w"
	if l.Through != nil {
		signing, err := htransport.NewTransport(ctx, l.Through(newTransport()),
			append(opts, option.WithScopes(storage.ScopeReadWrite))...)
		if err != nil {
			return nil, exit.Errorf(exit.Config, making, err)
		}
		opts = append(opts, option.WithHTTPClient(&http.Client{Transport: signing}))
	}
	client, err := gcsstore.NewClient(ctx, opts...)
	if err != nil {
		return nil, exit.Errorf(exit.Config, making, err)
	}
	return client, nil
}

func (l Location) openGS(ctx context.Context) (*Store, error) {
	client, err := l.GSClient(ctx)
	if err != nil {
		return nil, err
	}
	page := func(ctx context.Context, prefix, token string) (objects []Object, next string, err error) {
		query := &storage.Query{Prefix: prefix}
		if err := query.SetAttrSelection([]string{"Name"}); err != nil {
			return nil, "", err
		}
		var all []*storage.ObjectAttrs
		next, err = iterator.NewPager(client.Bucket(l.Bucket).Objects(ctx, query), gsPage, token).NextPage(&all)
		switch {
		case errors.Is(err, storage.ErrBucketNotExist), exit.HTTPStatus(err) == http.StatusNotFound:
			return nil, "", exit.Errorf(exit.Config,
				"there is no bucket %q (create it, or correct its name or the endpoint)", l.Bucket)
		case errors.As(err, new(*json.SyntaxError)):
			return nil, "", notAList("Cloud Storage")
		}
		for _, o := range all {
			objects = append(objects, Object{Key: o.Name})
		}
		return objects, next, err
	}
	store := gcsstore.New(client, l.Bucket, gcsstore.WithServerClock(ServerSlack))
	return NewStore(store, page, func() { _ = client.Close() }), nil
}

// gsPage is how many objects Cloud Storage gives at once.
const gsPage = 1000

// limited puts the requests of a store under RequestLimit.
type limited struct{ leasehold.Store }

func (l *limited) Get(ctx context.Context, key string) (leasehold.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, RequestLimit)
	defer cancel()
	return l.Store.Get(ctx, key)
}

func (l *limited) PutIfNoneMatch(ctx context.Context, key string, body []byte) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, RequestLimit)
	defer cancel()
	return l.Store.PutIfNoneMatch(ctx, key, body)
}

func (l *limited) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, RequestLimit)
	defer cancel()
	return l.Store.PutIfMatch(ctx, key, body, etag)
}

func (l *limited) DeleteIfMatch(ctx context.Context, key, etag string) error {
	ctx, cancel := context.WithTimeout(ctx, RequestLimit)
	defer cancel()
	return l.Store.DeleteIfMatch(ctx, key, etag)
}

func (l *limited) Describe() leasehold.StoreInfo { return leasehold.Describe(l.Store) }

// careful counts the requests of a store. It keeps the ages by a server's clock for messages, and
// hides them from locks, which decide by their own clocks alone.
type careful struct {
	leasehold.Store
	local    bool                  // the clock is this machine's
	seen     sync.Map              // key to Seen
	failed   atomic.Pointer[error] // nil if the store has answered since
	Failed   chan struct{}         // closed at the first failure
	failing  sync.Once
	Requests atomic.Int64 // sent so far
}

// Failure is why the last request has got no answer, or one that is no answer to it. It is nil
// before the first request, and after what every store answers: there is no object, or another one.
// A request that was cut off does not count.
func (c *careful) Failure() error {
	if err := c.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// ended takes the outcome of a request.
func (c *careful) ended(ctx context.Context, err error) {
	switch {
	case err == nil, errors.Is(err, leasehold.ErrNotExist), errors.Is(err, leasehold.ErrPreconditionFailed),
		errors.Is(err, leasehold.ErrConflict):
		c.failed.Store(nil)
	case ctx.Err() == nil:
		c.failed.Store(&err)
		c.failing.Do(func() { close(c.Failed) })
	}
}

// count counts a request: on the wire, where there is one.
func (c *careful) count(ctx context.Context) context.Context {
	if c.local {
		c.Requests.Add(1)
		return ctx
	}
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteRequest: func(httptrace.WroteRequestInfo) { c.Requests.Add(1) },
	})
}

func (c *careful) Get(ctx context.Context, key string) (leasehold.Object, error) {
	o, err := c.Store.Get(c.count(ctx), key)
	c.ended(ctx, err)
	if err == nil {
		c.sees(key, o)
	}
	if !c.local {
		o.Age = 0
	}
	return o, err
}

func (c *careful) PutIfNoneMatch(ctx context.Context, key string, body []byte) (string, error) {
	etag, err := c.Store.PutIfNoneMatch(c.count(ctx), key, body)
	c.ended(ctx, err)
	return etag, err
}

func (c *careful) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	written, err := c.Store.PutIfMatch(c.count(ctx), key, body, etag)
	c.ended(ctx, err)
	return written, err
}

func (c *careful) DeleteIfMatch(ctx context.Context, key, etag string) error {
	err := c.Store.DeleteIfMatch(c.count(ctx), key, etag)
	c.ended(ctx, err)
	return err
}

// Describe passes on what the store says of itself. The command trusts no server's clock.
func (c *careful) Describe() leasehold.StoreInfo {
	info := leasehold.Describe(c.Store)
	info.TellsAge = info.TellsAge && c.local
	return info
}

// Seen is what the last Get has shown of an object.
type Seen struct {
	Body  []byte
	Age   time.Duration // by the server's clock, at least; 0 if it is not known
	Since time.Time     // since when this version is there, as far as this machine's clock knows

	etag string
}

// Seen returns what the last Get of a key has shown; nothing if there was none.
func (c *careful) Seen(key string) Seen {
	seen, _ := c.seen.Load(key)
	s, _ := seen.(Seen)
	return s
}

func (c *careful) sees(key string, o leasehold.Object) {
	now := Seen{o.Body, o.Age, time.Now(), o.ETag}
	if before := c.Seen(key); before.etag == o.ETag {
		now.Since = before.Since
	} else if c.local {
		now.Since = now.Since.Add(-o.Age)
	}
	c.seen.Store(key, now)
}

// Age is how old the object is by the server's clock, at least, at the time of the last Get; 0 if
// that is not known.
func (c *careful) Age(key string) time.Duration { return c.Seen(key).Age }
