package main

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"cloud.google.com/go/storage"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/logging"
	"github.com/aws/smithy-go/middleware"
	"google.golang.org/api/iterator"
	"google.golang.org/api/option"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/gcsstore"
	"github.com/leasehold-go/leasehold/internal/s3api"
)

// requestLimit bounds every request, because a lock gives a request a share of its TTL, which may be hours.
const requestLimit = 10 * time.Second

// serverSlack is what is taken off the ages that a server's clock tells.
const serverSlack = 2 * time.Second

// backend is an open store. It is safe for concurrent use, except close.
type backend struct {
	*careful
	// keys are those of the objects in it. An error ends them, unless it comes with the name of one that has no key that can be read.
	keys  func(ctx context.Context, prefix string) iter.Seq2[string, error]
	close func()
}

// open opens the store that the URL names. It sends no request, but may read files and ask for credentials.
func (l location) open(ctx context.Context) (*backend, error) {
	switch l.scheme {
	case "s3":
		return l.openS3(ctx)
	case "gs":
		return l.openGS(ctx)
	case "azblob":
		return l.openAzure()
	}
	return l.openFile()
}

func (l location) s3Client(ctx context.Context) (*s3.Client, error) {
	cfg, err := config.LoadDefaultConfig(ctx, config.WithSharedConfigProfile(l.profile), config.WithLogger(logging.Nop{})) // errors say what matters
	if err != nil {
		return nil, fail(exitConfig, "reading the configuration of the AWS SDK: %w", err)
	}
	client := s3.NewFromConfig(cfg, func(o *s3.Options) {
		o.APIOptions = append(o.APIOptions, s3api.UnsignedEncoding, l.encrypt)
		if l.endpoint != "" {
			o.BaseEndpoint = &l.endpoint
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
	})
	if client.Options().Region == "" {
		return nil, fail(exitConfig, "there is no region: set AWS_REGION, or add ?region=NAME to the URL")
	}
	return client, nil
}

// encrypt has each write name the encryption that the URL asks for.
func (l location) encrypt(stack *middleware.Stack) error {
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

func (l location) openS3(ctx context.Context) (*backend, error) {
	client, err := l.s3Client(ctx)
	if err != nil {
		return nil, err
	}
	keys := func(ctx context.Context, prefix string) iter.Seq2[string, error] {
		return func(yield func(string, error) bool) {
			pages := s3.NewListObjectsV2Paginator(client, &s3.ListObjectsV2Input{Bucket: &l.bucket, Prefix: &prefix})
			for pages.HasMorePages() {
				page, err := pages.NextPage(ctx)
				if err != nil {
					yield("", s3api.NewBucket(l.bucket).Explain(err, s3api.Get, prefix))
					return
				}
				for _, o := range page.Contents {
					if !yield(aws.ToString(o.Key), nil) {
						return
					}
				}
			}
		}
	}
	return &backend{&careful{Store: leasehold.NewS3Store(client, l.bucket, leasehold.WithServerClock(serverSlack))}, keys, func() {}}, nil
}

func (l location) gsClient(ctx context.Context) (*storage.Client, error) {
	var opts []option.ClientOption
	if l.endpoint != "" {
		opts = append(opts, option.WithEndpoint(l.endpoint+"/storage/v1/"))
	}
	if strings.HasPrefix(l.endpoint, "http://") { // an emulator: credentials must not go over such a connection
		opts = append(opts, option.WithoutAuthentication())
	}
	client, err := gcsstore.NewClient(ctx, opts...)
	if err != nil {
		return nil, fail(exitConfig, "making a client of Google Cloud Storage: %w", err)
	}
	return client, nil
}

func (l location) openGS(ctx context.Context) (*backend, error) {
	client, err := l.gsClient(ctx)
	if err != nil {
		return nil, err
	}
	keys := func(ctx context.Context, prefix string) iter.Seq2[string, error] {
		return func(yield func(string, error) bool) {
			query := &storage.Query{Prefix: prefix}
			if err := query.SetAttrSelection([]string{"Name"}); err != nil {
				yield("", err)
				return
			}
			for objects := client.Bucket(l.bucket).Objects(ctx, query); ; {
				o, err := objects.Next()
				if errors.Is(err, iterator.Done) {
					return
				}
				if errors.Is(err, storage.ErrBucketNotExist) || statusOf(err) == http.StatusNotFound {
					err = fail(exitConfig, "there is no bucket %q (create it, or correct its name or the endpoint)", l.bucket)
				}
				if err != nil {
					yield("", err)
					return
				}
				if !yield(o.Name, nil) {
					return
				}
			}
		}
	}
	store := gcsstore.New(client, l.bucket, gcsstore.WithServerClock(serverSlack))
	return &backend{&careful{Store: store}, keys, func() { _ = client.Close() }}, nil
}

// careful bounds every request of a store. It remembers for people what a server's clock tells of ages, and keeps it from locks, which
// decide by their own clocks alone.
type careful struct {
	leasehold.Store
	local    bool     // the clock is this machine's
	ages     sync.Map // key to time.Duration
	requests atomic.Int64
}

// limit bounds a request, and counts it: on the wire, where there is one.
func (c *careful) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.local {
		c.requests.Add(1)
	} else {
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { c.requests.Add(1) }})
	}
	return context.WithTimeout(ctx, requestLimit)
}

func (c *careful) Get(ctx context.Context, key string) (leasehold.Object, error) {
	ctx, cancel := c.limit(ctx)
	defer cancel()
	o, err := c.Store.Get(ctx, key)
	if err == nil && o.Age > 0 {
		c.ages.Store(key, o.Age)
	}
	if !c.local {
		o.Age = 0
	}
	return o, err
}

func (c *careful) PutIfNoneMatch(ctx context.Context, key string, body []byte) (string, error) {
	ctx, cancel := c.limit(ctx)
	defer cancel()
	return c.Store.PutIfNoneMatch(ctx, key, body)
}

func (c *careful) PutIfMatch(ctx context.Context, key string, body []byte, etag string) (string, error) {
	ctx, cancel := c.limit(ctx)
	defer cancel()
	return c.Store.PutIfMatch(ctx, key, body, etag)
}

func (c *careful) DeleteIfMatch(ctx context.Context, key, etag string) error {
	ctx, cancel := c.limit(ctx)
	defer cancel()
	return c.Store.DeleteIfMatch(ctx, key, etag)
}

// Describe passes on what the store says of itself. The command trusts no server's clock.
func (c *careful) Describe() leasehold.StoreInfo {
	info := leasehold.Describe(c.Store)
	info.TellsAge = info.TellsAge && c.local
	return info
}

// age is how old the object is by the server's clock, at least, at the time of the last Get; 0 if that is not known.
func (c *careful) age(key string) time.Duration {
	age, _ := c.ages.Load(key)
	d, _ := age.(time.Duration)
	return d
}
