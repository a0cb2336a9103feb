// Package s3api is what both users of S3 in this module need, the store of locks and fenced
// objects: the client's settings, what an error means, and whether a reply came from an S3 server
// at all.
package s3api

import (
	"context"
	"crypto/fips140"
	"crypto/md5"
	"encoding/base64"
	"fmt"
	"strings"
	"sync/atomic"
	"unicode"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/leasehold-go/leasehold/internal/ctxmutex"
	"github.com/leasehold-go/leasehold/internal/storeapi"
	"github.com/leasehold-go/leasehold/storehttp"
)

// Bucket is a bucket, and what is known of the server that has it. It is safe for concurrent use.
type Bucket struct {
	Name, Prefix string // Prefix comes before each key
	server       storehttp.Server
	dialect      atomic.Int32
	learning     ctxmutex.Mutex // locked while the dialect is asked for
	question     question       // guarded by learning
}

// NewBucket returns the bucket of this name.
func NewBucket(name string) *Bucket { return &Bucket{Name: name, learning: ctxmutex.New()} }

// Validate returns an error that matches storeapi.ErrPermanent if client is nil or the names cannot
// work.
func (b *Bucket) Validate(client any) error {
	if storeapi.IsNil(client) {
		return Bad("the S3 client is nil (make one with s3.New or s3.NewFromConfig)")
	}
	if rest, ok := strings.CutPrefix(b.Name, "s3://"); ok {
		name, prefix, _ := strings.Cut(rest, "/")
		return Bad("bucket %q is a URL (give the bare name %q, and what follows it, %q, to WithKeyPrefix)",
			b.Name, name, prefix)
	}
	if b.Name == "" {
		return Bad("the bucket has no name (pass it to the store; if an environment variable has it, set that)")
	}
	switch arn := strings.HasPrefix(b.Name, "arn:"); {
	case strings.HasSuffix(b.Name, ".mrap"):
		return Bad("%q is a Multi-Region Access Point, which sends each request to the nearest of several buckets; "+
			"what one of them has is copied "+
			"to the others later, so two processes could hold one lock (give the name of one bucket)", b.Name)
	case !arn && strings.ContainsFunc(b.Name, notInBucketName):
		return Bad("bucket %q is not a bucket's name, which has only letters, digits, dots and dashes (a path "+
			"belongs into WithKeyPrefix)", b.Name)
	}
	return storehttp.CheckPrefix(b.Prefix)
}

// Bad is the error of an argument that cannot work.
func Bad(format string, args ...any) error {
	return &storehttp.Error{Kind: storeapi.ErrPermanent, Cause: fmt.Errorf(format, args...)}
}

// notInBucketName allows what old buckets and other servers allow: capitals, underscores, and
// colons after a tenant's name.
func notInBucketName(r rune) bool {
	return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune(".-_:", r)
}

// Key is the object's key in the bucket.
func (b *Bucket) Key(key string) *string { return aws.String(b.Prefix + key) }

// Doing begins an error's text.
func (b *Bucket) Doing(op Op, key string) string {
	return fmt.Sprintf("%s %q in bucket %q", op.verb, b.Prefix+key, b.Name)
}

// Heard notes an answer that only an S3 server gives.
func (b *Bucket) Heard() { b.server.Heard() }

// Unanswered notes why a request, or the body of its answer, has not come.
func (b *Bucket) Unanswered(err error) { b.server.Unanswered(err) }

// Once sets up a client for requests that must not be repeated on their own, which are conditional
// writes.
func (b *Bucket) Once(o *s3.Options) {
	b.Patient(o)
	o.Retryer = aws.NopRetryer{}
}

// MD5 is the Content-MD5 of a write, the one checksum that all servers know. A bucket with Object
// Lock and a default retention refuses writes without a checksum. It is nil where there must be
// none: directory buckets refuse it, and FIPS 140 may.
func (b *Bucket) MD5(body []byte) *string {
	// where MD5 panics
	if strings.HasSuffix(b.Name, "--x-s3") || strings.HasSuffix(b.Name, "--xa-s3") || fips140.Enforced() {
		return nil
	}
	sum := md5.Sum(body) // finds damage, not forgery
	return aws.String(base64.StdEncoding.EncodeToString(sum[:]))
}

// Patient sets up a client for requests that may be repeated: the client's own retryer is welcome.
func (b *Bucket) Patient(o *s3.Options) {
	// Other servers refuse the checksums that the SDK adds by itself. Writes have an MD5.
	o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
	o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
	o.APIOptions = append(o.APIOptions, UnsignedEncoding, b.listen)
}

// UnsignedEncoding leaves Accept-Encoding out of the signatures of an operation. The SDK signs it,
// and Cloudflare's tunnel, nginx and other proxies write their own, which the server then refuses
// as SignatureDoesNotMatch.
func UnsignedEncoding(stack *middleware.Stack) error {
	header, err := stack.Finalize.Remove("DisableAcceptEncodingGzip")
	if err != nil { // the operation does not set it
		return nil
	}
	return stack.Finalize.Insert(header, "Signing", middleware.After)
}

// listen notes every HTTP answer, and which requests have got none.
func (b *Bucket) listen(stack *middleware.Stack) error {
	return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc("leasehold", func(
		ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler,
	) (middleware.DeserializeOutput, middleware.Metadata, error) {
		if request, ok := in.Request.(*smithyhttp.Request); ok && b.server.Silent() {
			request.Close = true
		}
		out, meta, err := next.HandleDeserialize(ctx, in)
		if err == nil {
			b.server.Answer()
		} else {
			b.server.Unanswered(err)
		}
		return out, meta, err
	}), middleware.After)
}
