package azblobstore

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/storehttp"
)

// op is a kind of request, the status of its success, and the rights that it needs, for error
// messages.
type op struct {
	verb    string
	success int
	rights  string
}

var (
	opGet     = op{"reading", http.StatusOK, "to read blobs (r of a SAS)"}
	opCreate  = op{"creating", http.StatusCreated, "to create and write blobs (c and w of a SAS)"}
	opReplace = op{"writing", http.StatusCreated, "to write blobs (w of a SAS)"}
	opDelete  = op{"deleting", http.StatusAccepted, "to delete blobs (d of a SAS)"}
)

const hintForeign = "is this Azure Blob Storage? Check the endpoint, and any proxy in between"

// Headers that Azure sends with every reply, and with every refusal.
const (
	requestID = "x-ms-request-id"
	errorCode = "x-ms-error-code"
)

// doing begins an error's text.
func (s *Store) doing(op op, key string) string {
	return fmt.Sprintf("%s %q in container %q", op.verb, s.prefix+key, s.name)
}

// genuine returns an error if a reply that the SDK takes for a success did not come from Azure.
func (s *Store) genuine(reply *http.Response, op op, key string) error {
	err := foreign(reply, op)
	switch {
	case err != nil:
	case op != opDelete && op != opBlock && !isETag(reply.Header.Get("ETag")):
		err = fmt.Errorf("the answer has no ETag that can be a condition: %q", reply.Header.Get("ETag"))
	default:
		s.server.Heard()
		return nil
	}
	return &storehttp.Error{Doing: s.doing(op, key), Kind: s.server.Stranger(), Cause: err, Hint: hintForeign}
}

// foreign says why a reply does not come from Azure. It returns nil if it does.
func foreign(reply *http.Response, op op) error {
	switch {
	case reply == nil:
		return errors.New("the client shows no answer")
	// net/http followed a redirect, perhaps with a GET instead of another method
	case reply.Request != nil && reply.Request.Response != nil:
		return errors.New("the request was redirected")
	case reply.Header.Get(requestID) == "" && strings.HasPrefix(reply.Header.Get("Content-Type"), "text/html"):
		return errors.New("the answer is a web page")
	case reply.Header.Get(requestID) == "":
		return errors.New("the answer has no " + requestID)
	case reply.StatusCode >= 400 && reply.Header.Get(errorCode) == "":
		return errors.New("the answer has no " + errorCode)
	case reply.StatusCode < 400 && reply.StatusCode != op.success:
		return fmt.Errorf("the answer has status %d, Azure's would have %d", reply.StatusCode, op.success)
	}
	return nil
}

// explain turns an error of the SDK into an error of a Store. reply is nil if there was none.
func (s *Store) explain(err error, reply *http.Response, op op, key string) error {
	e := &storehttp.Error{Doing: s.doing(op, key), Cause: err}
	switch {
	case reply == nil:
		s.server.Unanswered(err)
		e.Cause = unsigned(err)
		e.Hint, e.Kind = s.unanswered(err)
	case lacksFeature(reply) && foreign(reply, op) == nil: // it is not busy: it never will
		e.Cause = brief(err, reply)
		e.Hint, e.Kind = "this server does not have what a lock needs", leasehold.ErrPermanent
	case reply.StatusCode >= 500, reply.StatusCode == http.StatusTooManyRequests,
		reply.StatusCode == http.StatusRequestTimeout:
		s.server.Answer()
		e.Cause = brief(err, reply)
	case foreign(reply, op) != nil:
		e.Cause = fmt.Errorf("%w: %w", brief(err, reply), foreign(reply, op))
		e.Hint, e.Kind = hintForeign, s.server.Stranger()
	default:
		s.server.Heard()
		e.Cause = brief(err, reply)
		message, detail := says(reply)
		e.Hint, e.Kind = verdict(reply.StatusCode, bloberror.Code(reply.Header.Get(errorCode)), message, op)
		if e.Hint == checkKey && reply.Request != nil &&
			strings.HasPrefix(reply.Request.Header.Get("Authorization"), "Bearer ") {
			e.Hint = checkToken
		}
		if e.Hint == checkKey && early(detail) {
			e.Kind = nil
		}
		if _, endless := s.endless.Load(key); endless && e.Hint == breakLease {
			e.Kind = leasehold.ErrPermanent
		}
	}
	return e
}

// early reports whether credentials are refused because of the time. That passes when this
// machine's clock is set, or when the SAS begins.
func early(detail string) bool {
	_, start, _ := strings.Cut(detail, "Start [")
	start, _, _ = strings.Cut(start, "]")
	_, current, _ := strings.Cut(detail, "Current [")
	current, _, _ = strings.Cut(current, "]")
	begins, errStart := http.ParseTime(start)
	now, errCurrent := http.ParseTime(current)
	return errStart == nil && errCurrent == nil && now.Before(begins) ||
		strings.HasPrefix(detail, "Request date header too old")
}

// lacksFeature reports whether a 5xx means never, and not busy.
func lacksFeature(reply *http.Response) bool {
	code := reply.Header.Get(errorCode)
	return reply.StatusCode >= 500 && (code == "FeatureNotSupported" || code == "NotImplemented")
}

// unanswered explains an error of a request without a reply.
func (s *Store) unanswered(err error) (hint string, kind error) {
	const check = "check the credentials of the Azure client"
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return "", nil
	}
	if unsent, passes := storehttp.HintUnsent(err); unsent != "" {
		return unsent, s.server.Unsent(passes)
	}
	if e, ok := errors.AsType[*azidentity.AuthenticationFailedError](err); ok {
		if r := e.RawResponse; r != nil && r.StatusCode >= 400 && r.StatusCode < 404 &&
			!strings.Contains(e.Error(), "temporarily_unavailable") {
			return "Microsoft Entra refuses a token for these credentials: check whether they are wrong, expired or " +
				"disabled", leasehold.ErrPermanent
		}
		return check, nil // the server that issues tokens may only be out of reach
	}
	if _, ok := errors.AsType[interface { // of azcore: there are no credentials, or they may not be sent
		error
		NonRetriable()
	}](err); ok {
		return check, s.server.Unsent(true)
	}
	return "", nil
}

// verdict says what an answer of Azure means. Most codes are in
// https://learn.microsoft.com/rest/api/storageservices/blob-service-error-codes, the others in
// https://learn.microsoft.com/rest/api/storageservices/common-rest-api-error-codes.
func verdict(status int, code bloberror.Code, message string, op op) (hint string, kind error) {
	switch {
	case status == http.StatusPreconditionFailed && code == bloberror.ConditionNotMet && op != opGet,
		status == http.StatusConflict && code == bloberror.BlobAlreadyExists && op == opCreate:
		return "", leasehold.ErrPreconditionFailed
	case status == http.StatusNotFound && code == bloberror.BlobNotFound && op != opCreate:
		return "", leasehold.ErrNotExist
	// such as LeaseIdMissing, 412. It is not a conflict, because it says nothing about the ETag.
	case strings.HasPrefix(string(code), "Lease"):
		return breakLease, nil
	}
	switch code {
	case bloberror.ContainerNotFound, bloberror.ContainerBeingDeleted, bloberror.ContainerDisabled:
		return "create the container, or correct its name or the endpoint", leasehold.ErrPermanent
	case bloberror.ResourceNotFound: // Azurite's answer to an account that it does not have
		return "check the account's name and the endpoint; or create the container, or correct its name",
			leasehold.ErrPermanent
	case bloberror.BlobImmutableDueToPolicy, "BlobImmutableDueToLegalHold":
		return "the blobs of locks are overwritten at each renewal: use a container without immutability policy and " +
			"legal hold", leasehold.ErrPermanent
	case bloberror.InvalidBlobType:
		return hintType, leasehold.ErrPermanent
	case "OperationNotSupportedOnDirectory": // reported: https://github.com/apache/arrow/issues/40037
		return "this key is a directory of an account with a hierarchical namespace: use another key",
			leasehold.ErrPermanent
	case bloberror.BlobArchived:
		return "this blob is in the archive tier: delete it, and exclude locks from the lifecycle rules",
			leasehold.ErrPermanent
	case bloberror.SnapshotsPresent:
		return "delete the snapshots of this blob first", leasehold.ErrPermanent
	case bloberror.InvalidBlockList: // another write has ended first, and removed the blocks
		return "", nil
	case bloberror.MD5Mismatch, bloberror.CRC64Mismatch: // the body was damaged on the way
		return "", nil
	case bloberror.AuthorizationFailure:
		if strings.Contains(message, "failed to authenticate") { // Azurite's answer to a wrong key
			return checkKey, leasehold.ErrPermanent
		}
		return "check the account's firewall and network rules; the credentials also need the right " + op.rights,
			leasehold.ErrPermanent
	case bloberror.InvalidHeaderValue:
		if strings.Contains(message, "API version") {
			return "start Azurite with --skipApiVersionCheck, or use a newer one: the SDK's version of the API is " +
				"newer than the server's", leasehold.ErrPermanent
		}
	case bloberror.AuthenticationFailed, bloberror.InvalidAuthenticationInfo:
		return checkKey, leasehold.ErrPermanent
	}
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return "check the credentials: they need the right " + op.rights + ", such as the role Storage Blob Data " +
			"Contributor gives", leasehold.ErrPermanent
	case http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusLengthRequired,
		http.StatusRequestEntityTooLarge:
		return "Azure refuses the request: check container, key and endpoint", leasehold.ErrPermanent
	}
	return "", nil
}

const hintType = "this key is a page or append blob, which is not a lock: delete it, or use another key"

const breakLease = "a client holds an Azure lease on this blob, which locks it for all others: break the lease, " +
	"and do not lease the blobs of locks"

const checkKey = "check the account key, or the SAS and its expiry, and this machine's clock, which may be wrong by " +
	"15 minutes at most"

const checkToken = "Azure does not accept this token of Microsoft Entra: check that the token is for " +
	"https://storage.azure.com and comes from the account's tenant, and this machine's clock"

// refusal is an error of the SDK with a text of one line.
type refusal struct {
	text string
	err  error
}

func (r *refusal) Error() string { return r.text }
func (r *refusal) Unwrap() error { return r.err }

// brief shortens the text of an SDK error, which is a dump of the reply, to status, code, message
// and the ID that Microsoft's support asks for.
func brief(err error, reply *http.Response) error {
	if _, ok := errors.AsType[*azcore.ResponseError](err); !ok {
		return unsigned(err)
	}
	text := fmt.Sprintf("status %d", reply.StatusCode)
	if code := reply.Header.Get(errorCode); code != "" {
		text += " " + code
	}
	if message, detail := says(reply); message != "" {
		text += ": " + message
		if detail != "" {
			text += " " + detail
		}
	}
	if id := reply.Header.Get(requestID); id != "" {
		text += ", request " + id
	}
	return &refusal{text, err}
}

// unsigned is err without the query of its URL in the text, which has the signature of a SAS.
func unsigned(err error) error {
	request, ok := errors.AsType[*url.Error](err)
	if !ok {
		return err
	}
	bare, _, _ := strings.Cut(request.URL, "?")
	return &refusal{strings.ReplaceAll(err.Error(), request.URL, bare), err}
}

// says returns the first line of the reply's message, and of its detail about refused credentials.
// Each is "" if there is none.
func says(reply *http.Response) (message, aboutCredentials string) {
	var document struct{ Message, AuthenticationErrorDetail string }
	if body, err := runtime.Payload(reply); err == nil { // the SDK has read it
		_ = xml.Unmarshal(bytes.TrimPrefix(body, []byte("\ufeff")), &document)
	}
	message, _, _ = strings.Cut(document.Message, "\n")
	aboutCredentials, _, _ = strings.Cut(document.AuthenticationErrorDetail, "\n")
	return strings.TrimSpace(message), strings.TrimSpace(aboutCredentials)
}
