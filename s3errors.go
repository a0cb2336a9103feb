package leasehold

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// s3Op says what a request does and needs, for error messages.
type s3Op struct{ verb, permissions string }

var (
	opGet = s3Op{"reading", "s3:GetObject on the object, and s3:ListBucket on the bucket: " +
		"without that S3 answers 403 for an object that does not exist"}
	opPut    = s3Op{"writing", "s3:PutObject and s3:GetObject on the object"}
	opDelete = s3Op{"deleting", "s3:DeleteObject and s3:GetObject on the object"}
)

const (
	hintRequest    = "the server refuses the request: check bucket name, key and endpoint; does this port expect https? is this an S3 endpoint?"
	hintNotS3      = "is this an S3 endpoint? Check its host, port and path, and proxies on the way"
	strangeReplies = 3 // without one that is sound: the endpoint is wrong
)

// explain turns an SDK error into the errors of Store.
func (s *S3Store) explain(err error, op s3Op, key string) error {
	if err == nil {
		return nil
	}
	hint, kind := s.classify(err, op)
	return &storeError{s.doing(op, key), kind, err, hint}
}

// notS3 is the error of a reply that looks like a success but did not come from an S3.
func (s *S3Store) notS3(err error, op s3Op, key string) error {
	hint, kind := s.stranger()
	return &storeError{s.doing(op, key), kind, err, hint}
}

// classify says which error of Store an SDK error is, and what to do about it.
// The HTTP status decides first, the S3 error code second.
func (s *S3Store) classify(err error, op s3Op) (hint string, kind error) {
	if hint := unsent(err); hint != "" {
		if s.answered.Load() { // what has worked once can heal
			return hint, nil
		}
		return hint, ErrPermanent
	}
	status, code, header, redirected := 0, "", http.Header(nil), false
	if reply, ok := errors.AsType[*smithyhttp.ResponseError](err); ok && !credentials(err) {
		status = reply.HTTPStatusCode()
		if reply.Response != nil && reply.Response.Response != nil {
			header, redirected = reply.Response.Header, followed(reply.Response.Response)
		}
		if api, ok := errors.AsType[smithy.APIError](err); ok {
			code = api.ErrorCode()
		}
	}
	if status == 0 {
		return "", nil
	}
	s.answered.Store(true)
	overloaded := status >= 500 && status != http.StatusNotImplemented || status == http.StatusTooManyRequests
	switch {
	case webPage(header) || redirected:
		if overloaded { // the front of a server that is starting
			return "", nil
		}
		return s.stranger()
	case status == http.StatusPreconditionFailed, code == "PreconditionFailed": // some servers send the code with status 200
		s.heard()
		return "", ErrPreconditionFailed
	case status == http.StatusConflict:
		s.heard()
		return "", errConflict
	case status == http.StatusNotFound && code == "NoSuchKey":
		s.heard()
		return "", ErrNotExist
	case passing[code], overloaded:
		return "", nil
	case code == "NoSuchBucket":
		return "create the bucket, or correct its name or the endpoint", ErrPermanent
	case status == http.StatusNotImplemented, code == "NotImplemented":
		if op == opPut {
			return "the server does not implement conditional writes", ErrUnsafeStore
		}
		return "the server does not implement this request", ErrPermanent
	case code == "InvalidAccessKeyId":
		return "wrong access key: this server does not know it; check the credentials and the endpoint", ErrPermanent
	case code == "SignatureDoesNotMatch":
		return "wrong secret key; or a proxy on the way changes requests", ErrPermanent
	case status == http.StatusForbidden, status == http.StatusUnauthorized:
		return "check the credentials; they need " + op.permissions, ErrPermanent
	case status >= 300 && status < 400 && amazonian(header), code == "AuthorizationHeaderMalformed":
		return "the bucket is in another region than the client's, or at another endpoint", ErrPermanent
	case status == http.StatusBadRequest, status == http.StatusMethodNotAllowed:
		return hintRequest, ErrPermanent
	case brokenOff(err):
		return "", nil
	}
	return s.stranger()
}

// passing are the codes of 4xx answers that pass by themselves, or when the client has new credentials.
var passing = map[string]bool{
	"RequestTimeout": true, "RequestTimeTooSkewed": true,
	"ExpiredToken": true, "ExpiredTokenException": true, "TokenRefreshRequired": true, "RequestExpired": true,
	"SlowDown": true, "Throttling": true, "ThrottlingException": true, "TooManyRequests": true,
	"IncompleteBody": true, "BadDigest": true, "OperationAborted": true,
}

// unsent says what to do about an error because of which no request can reach the server; "" if err is none of these.
// The SDK has no types for its own refusals, only texts.
func unsent(err error) (hint string) {
	if op, ok := errors.AsType[*smithy.OperationError](err); ok && op.Err != nil {
		text := op.Err.Error()
		switch {
		case credentials(err):
			return noCredentials(err)
		case !strings.HasPrefix(text, "resolve auth scheme: ") && !strings.HasPrefix(text, "bind auth scheme params: ") &&
			!strings.HasPrefix(text, "failed to resolve service endpoint"):
		case strings.Contains(text, "region must be set"), strings.Contains(text, "invalid input region"):
			return `set the client's region: AWS_REGION, or Region in its options; other servers than Amazon's take any, such as "us-east-1"`
		case strings.Contains(text, "not a valid URI"):
			return "the endpoint must be a URL with a scheme, such as http://localhost:9000"
		default:
			return "check the client's endpoint and region, and the bucket's name"
		}
	}
	dns, isDNS := errors.AsType[*net.DNSError](err)
	addr, isAddr := errors.AsType[*net.AddrError](err)
	switch {
	case isDNS && dns.IsNotFound:
		return fmt.Sprintf("the host %q is unknown: check the endpoint; if the bucket's name was put in front of it, set UsePathStyle in the client's options", dns.Name)
	case isAddr:
		return fmt.Sprintf("%q is not an address: check the endpoint", addr.Addr)
	case errors.Is(err, http.ErrSchemeMismatch):
		return "this port speaks http, not https: correct the endpoint's scheme or port"
	case strings.Contains(err.Error(), "unsupported protocol scheme"):
		return "the endpoint must begin with http:// or https://"
	}
	return ""
}

// credentials reports whether it was the client's credentials that could not be had. Whatever HTTP status is in such
// an error is that of another service.
func credentials(err error) bool {
	op, ok := errors.AsType[*smithy.OperationError](err)
	return ok && op.Err != nil && strings.HasPrefix(op.Err.Error(), "get identity: ")
}

// noCredentials tells credentials that are missing from those whose service is only down for the moment.
func noCredentials(err error) (hint string) {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return ""
	}
	if reply, ok := errors.AsType[*smithyhttp.ResponseError](err); ok && (reply.HTTPStatusCode() >= 500 || reply.HTTPStatusCode() == http.StatusTooManyRequests) {
		return ""
	}
	return "the client has no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, choose a profile, or give the machine a role"
}

// brokenOff reports whether an answer ended before it could be understood.
func brokenOff(err error) bool {
	_, network := errors.AsType[net.Error](err)
	return network || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF)
}

// heard notes an answer that only an S3 gives.
func (s *S3Store) heard() {
	s.answered.Store(true)
	s.sound.Store(true)
}

// stranger notes a reply that no S3 gives, and says what it means: nothing about the object, so it may pass; unless
// the server has never given any other.
func (s *S3Store) stranger() (hint string, kind error) {
	s.answered.Store(true)
	if s.strange.Add(1) >= strangeReplies && !s.sound.Load() {
		return hintNotS3, ErrPermanent
	}
	return hintNotS3, nil
}

// listen notes every HTTP answer, those to the requests of a FencedStore too.
func (s *S3Store) listen(stack *middleware.Stack) error {
	return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc("leasehold", func(
		ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler,
	) (middleware.DeserializeOutput, middleware.Metadata, error) {
		out, meta, err := next.HandleDeserialize(ctx, in)
		if err == nil {
			s.answered.Store(true)
		}
		return out, meta, err
	}), middleware.After)
}

// noS3Reply says why a success is not an S3's; nil if it may be one.
func noS3Reply(meta middleware.Metadata, etag *string, status int) error {
	if err := otherReply(meta, status); err != nil {
		return err
	}
	if aws.ToString(etag) == "" {
		return errors.New("the answer has no ETag")
	}
	return nil
}

// noS3Delete is noS3Reply for a DELETE, which S3 answers with 204 and nothing else; a few servers say 200.
func noS3Delete(meta middleware.Metadata) error {
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
	switch reply := rawReply(meta); {
	case reply == nil: // the client is not the SDK's own
		return nil
	case followed(reply):
		return fmt.Errorf("the request was redirected to %s", reply.Request.URL.Redacted())
	case webPage(reply.Header):
		return errors.New("the answer is a web page")
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

// followed reports whether net/http has followed a redirect to get this reply, as a GET even if the request was a PUT.
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
