package s3api

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/leasehold-go/leasehold/internal/storeapi"
	"github.com/leasehold-go/leasehold/storehttp"
)

// Op says what a request does and which permissions it needs, for error messages.
type Op struct {
	verb, permissions string
	creates           bool
}

// The kinds of requests.
var (
	Get = Op{verb: "reading", permissions: "s3:GetObject on the object, and s3:ListBucket on the bucket: " +
		"without that S3 answers 403 for an object that does not exist"}
	Put = Op{verb: "writing", permissions: "s3:PutObject and s3:GetObject on the object, and with KMS " +
		"kms:GenerateDataKey and kms:Decrypt on the key; " +
		"a bucket's policy may also demand that each write names its encryption"}
	Delete = Op{verb: "deleting", permissions: "s3:DeleteObject and s3:GetObject on the object"}
)

// PutIf is a Put with this If-Match: without one, it may only create.
func PutIf(ifMatch *string) Op {
	op := Put
	op.creates = ifMatch == nil
	return op
}

const (
	hintRequest = "the server refuses the request: check bucket name, key and endpoint; does this port expect https? " +
		"is this an S3 endpoint?"
	hintNotS3 = "is this an S3 endpoint? Check its host, port and path, and proxies on the way"
)

// Explain turns an SDK error into the errors of a store.
func (b *Bucket) Explain(err error, op Op, key string) error {
	hint, kind := b.classify(err, op)
	return &storehttp.Error{Doing: b.Doing(op, key), Kind: kind, Cause: err, Hint: hint}
}

// NotS3 is the error of a reply that looks like a success but did not come from an S3 server.
func (b *Bucket) NotS3(err error, op Op, key string) error {
	return &storehttp.Error{Doing: b.Doing(op, key), Kind: b.server.Stranger(), Cause: err, Hint: hintNotS3}
}

// classify says which error of Store an SDK error is, and what to do about it.
// The HTTP status decides first, the S3 error code second.
func (b *Bucket) classify(err error, op Op) (hint string, kind error) {
	if hint, passes := unsent(err); hint != "" {
		return hint, b.server.Unsent(passes)
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
	b.server.Answer()
	overloaded := status >= 500 && status != http.StatusNotImplemented || status == http.StatusTooManyRequests
	switch {
	case webPage(header) || redirected:
		if overloaded { // the front of a server that is starting
			return "", nil
		}
		return hintNotS3, b.server.Stranger()
	// some servers send the code with status 200
	case status == http.StatusPreconditionFailed, code == "PreconditionFailed":
		b.server.Heard()
		return "", storeapi.ErrPreconditionFailed
	case op.creates && status == http.StatusConflict && exists[code]:
		b.server.Heard()
		return "", storeapi.ErrPreconditionFailed
	case status == http.StatusConflict && concurrent[code]:
		b.server.Heard()
		return "", storeapi.ErrConflict
	case status == http.StatusNotFound && code == "NoSuchKey":
		b.server.Heard()
		return "", storeapi.ErrNotExist
	case passes(code), overloaded:
		return "", nil
	case code == "ObjectParentIsFile", code == "ExistingObjectIsDirectory", code == "ExistingObjectIsFile":
		return "this server keeps objects as files, so no key can be below another one, as in jobs/report and " +
			"jobs/report/daily: " +
			"use a key that is in no other key's path", storeapi.ErrPermanent
	case (status == http.StatusConflict || status == http.StatusNotModified) && amazonian(header):
		return "", nil // nothing is known
	case code == "NoSuchBucket":
		return "create the bucket, or correct its name or the endpoint", storeapi.ErrPermanent
	case status == http.StatusNotImplemented, code == "NotImplemented":
		if op.verb == Put.verb {
			return "the server does not implement conditional writes, or not this one: package createonly keeps " +
				"locks with creates alone, or a header in their place", storeapi.ErrUnsafeStore
		}
		return "the server does not implement this request", storeapi.ErrPermanent
	case code == "InvalidAccessKeyId":
		return "wrong access key: this server does not know it; check the credentials and the endpoint",
			storeapi.ErrPermanent
	case code == "SignatureDoesNotMatch":
		return "wrong secret key; or a proxy on the way changes requests", storeapi.ErrPermanent
	case keptByObjectLock(err):
		return "remove the bucket's default retention, or use another bucket: Object Lock keeps what a renewal " +
			"must replace", storeapi.ErrPermanent
	// often a port that expects https, which closes the connection
	case brokenOff(err) && status == http.StatusBadRequest:
		return hintRequest, b.server.Unheard()
	case brokenOff(err): // the code, which says whether this refusal passes, is missing
		return "", nil
	case status == http.StatusForbidden, status == http.StatusUnauthorized:
		return "check the credentials; they need " + op.permissions, storeapi.ErrPermanent
	case status >= 300 && status < 400 && amazonian(header), code == "AuthorizationHeaderMalformed":
		return "the bucket is in another region than the client's, or at another endpoint", storeapi.ErrPermanent
	case status == http.StatusBadRequest, status == http.StatusMethodNotAllowed:
		return hintRequest, storeapi.ErrPermanent
	}
	return hintNotS3, b.server.Stranger()
}

// concurrent are the codes of a 409 that says that another write of the object is under way. A 409
// with another code, or without any, does not say that.
var concurrent = map[string]bool{
	// S3: docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html; CoreWeave to
	// losers of a create
	"ConditionalRequestConflict": true,
	// S3: docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html; Ceph's gateway
	// (rgw_common.cc, ERR_TAG_CONFLICT)
	"OperationAborted":       true,
	"ConcurrentModification": true, // Ceph's gateway (rgw_common.cc, ECANCELED)
}

// exists are the codes of a 409 that refuses a create because there is an object.
var exists = map[string]bool{
	// Aliyun OSS: help.aliyun.com/en/oss/user-guide/http-status-code-409; Tencent COS, by reports
	// of its users
	"FileAlreadyExists": true,
	// IBM COS: ibm.com/docs/en/coss/3.20.1?topic=headers-forbid-overwrite-header; Huawei OBS, by
	// clients that expect it
	"ObjectAlreadyExists": true,
}

// passes reports whether a refusal with this code passes by itself, or when the client has new
// credentials.
func passes(code string) bool {
	// S3 puts this before the codes of KMS
	_, throttled := retry.DefaultThrottleErrorCodes[strings.TrimPrefix(code, "KMS.")]
	_, timedOut := retry.DefaultRetryableErrorCodes[code]
	return throttled || timedOut || passing[code]
}

// passing are the codes that pass, in addition to the codes that the SDK itself retries.
var passing = map[string]bool{
	"RequestTimeTooSkewed": true,
	"ExpiredToken":         true, "ExpiredTokenException": true, "TokenRefreshRequired": true, "RequestExpired": true,
	"TooManyRequests": true,
	"IncompleteBody":  true, "BadDigest": true, "OperationAborted": true,
}

// unsent says what to do about an error because of which no request can reach the server, and
// whether it may pass. It returns "" if err is none of these. The SDK has no types for its own
// refusals, only texts.
func unsent(err error) (hint string, passes bool) {
	if op, ok := errors.AsType[*smithy.OperationError](err); ok && op.Err != nil {
		text := op.Err.Error()
		switch {
		case credentials(err):
			return noCredentials(err)
		case !strings.HasPrefix(text, "resolve auth scheme: ") &&
			!strings.HasPrefix(text, "bind auth scheme params: ") &&
			!strings.HasPrefix(text, "failed to resolve service endpoint"):
		case strings.Contains(text, "region must be set"), strings.Contains(text, "invalid input region"):
			return "set the client's region: AWS_REGION, or Region in its options; " +
				`other servers than Amazon's take any, such as "us-east-1"`, false
		case strings.Contains(text, "not a valid URI"):
			return "the endpoint must be a URL with a scheme, such as http://localhost:9000", false
		default:
			return "check the client's endpoint and region, and the bucket's name", false
		}
	}
	hint, passes = storehttp.HintUnsent(err)
	if dns, ok := errors.AsType[*net.DNSError](err); ok && hint != "" && dns.IsNotFound {
		hint += "; if the bucket's name was put in front of it, set UsePathStyle in the client's options"
	}
	return hint, passes
}

// credentials reports whether it was the client's credentials that could not be had. The HTTP
// status in such an error comes from another service.
func credentials(err error) bool {
	op, ok := errors.AsType[*smithy.OperationError](err)
	return ok && op.Err != nil && strings.HasPrefix(op.Err.Error(), "get identity: ")
}

// noCredentials distinguishes missing credentials from credentials that could not be had yet. An
// answer of the service that has them, or a setting, says that they are missing. A service that is
// overloaded, unknown or not reached says nothing.
func noCredentials(err error) (hint string, passes bool) {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return "", true
	}
	switch text := err.Error(); { // of a directory bucket's session, the SDK passes on only this
	case strings.Contains(text, "s3express retrieve credentials canceled"): // ctx has ended
		return "", true
	case strings.Contains(text, "operation error S3: CreateSession"):
		return "the directory bucket gives no session: check its name and the region, this machine's clock, and the " +
				"permission s3express:CreateSession on the bucket",
			!strings.Contains(text, "NoSuchBucket") && !strings.Contains(text, "AccessDenied")
	}
	reply, answered := errors.AsType[*smithyhttp.ResponseError](err)
	if answered && (reply.HTTPStatusCode() >= 500 || reply.HTTPStatusCode() == http.StatusTooManyRequests) {
		return "", true
	}
	missing := answered && reply.HTTPStatusCode() != 0 ||
		strings.Contains(err.Error(), "access disabled to EC2 IMDS") ||
		strings.Contains(err.Error(), "static credentials are empty")
	return "the client has no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, choose a profile, or " +
		"give the machine a role", !missing
}

// keptByObjectLock reports whether a write was refused because it would replace an object that is
// kept, as on servers that have no versions. VersityGW says "Access Denied because object protected
// by object lock", and MinIO "Object is WORM protected and cannot be overwritten".
func keptByObjectLock(err error) bool {
	api, ok := errors.AsType[smithy.APIError](err)
	return ok && (strings.Contains(api.ErrorMessage(), "object lock") || strings.Contains(api.ErrorMessage(), "WORM"))
}

// brokenOff reports whether an answer ended before it could be understood.
func brokenOff(err error) bool {
	_, network := errors.AsType[net.Error](err)
	return network || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF)
}
