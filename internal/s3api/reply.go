package s3api

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// Genuine returns an error if an answer that says it is a success is not an S3 server's: nothing is
// known then.
func (b *Bucket) Genuine(op Op, key string, etag *string, meta middleware.Metadata) error {
	return b.judge(op, key, notAReply(meta, etag))
}

// GenuineObject is Genuine for a GET or a HEAD of an object. The object may have any content type,
// even text/html.
func (b *Bucket) GenuineObject(key string, etag *string, meta middleware.Metadata) error {
	why := otherStatus(meta, http.StatusOK)
	if why == nil {
		why = noETag(etag)
	}
	return b.judge(Get, key, why)
}

// GenuineDelete is Genuine for a DELETE.
func (b *Bucket) GenuineDelete(key string, meta middleware.Metadata) error {
	return b.judge(Delete, key, notADelete(meta))
}

func (b *Bucket) judge(op Op, key string, why error) error {
	if why != nil {
		return b.NotS3(why, op, key)
	}
	b.server.Heard()
	return nil
}

func notAReply(meta middleware.Metadata, etag *string) error {
	if err := otherReply(meta, http.StatusOK); err != nil {
		return err
	}
	return noETag(etag)
}

func noETag(etag *string) error {
	if aws.ToString(etag) == "" {
		return errors.New("the answer has no ETag")
	}
	return nil
}

// notADelete is notAReply for a DELETE, which S3 answers with 204 and nothing else; a few servers
// say 200.
func notADelete(meta middleware.Metadata) error {
	reply := rawReply(meta)
	if err := otherReply(meta, http.StatusNoContent, http.StatusOK); err != nil {
		return err
	}
	if reply != nil && reply.StatusCode == http.StatusOK && !amazonian(reply.Header) {
		return errors.New("the answer has status 200, not 204, and no request ID")
	}
	return nil
}

func otherReply(meta middleware.Metadata, statuses ...int) error {
	if reply := rawReply(meta); reply != nil && !followed(reply) && webPage(reply.Header) {
		return errors.New("the answer is a web page")
	}
	return otherStatus(meta, statuses...)
}

func otherStatus(meta middleware.Metadata, statuses ...int) error {
	switch reply := rawReply(meta); {
	case reply == nil: // the client is not the SDK's own
		return nil
	case followed(reply):
		return fmt.Errorf("the request was redirected to %s", reply.Request.URL.Redacted())
	case !slices.Contains(statuses, reply.StatusCode):
		return fmt.Errorf("the answer has status %d", reply.StatusCode)
	}
	return nil
}

func rawReply(meta middleware.Metadata) *http.Response {
	if raw, ok := awsmiddleware.GetRawResponse(meta).(*smithyhttp.Response); ok && raw != nil {
		return raw.Response
	}
	return nil
}

// followed reports whether net/http has followed a redirect to get this reply, as a GET even if the
// request was a PUT.
func followed(reply *http.Response) bool {
	return reply.Request != nil && reply.Request.Response != nil
}

// webPage reports whether an answer is HTML and not an S3's.
func webPage(h http.Header) bool {
	return strings.HasPrefix(h.Get("Content-Type"), "text/html") && !amazonian(h)
}

// amazonian reports whether an answer has a header that S3 servers put into each of theirs.
func amazonian(h http.Header) bool {
	return h.Get("X-Amz-Request-Id") != "" || h.Get("X-Amz-Id-2") != ""
}
