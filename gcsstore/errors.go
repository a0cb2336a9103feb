package gcsstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/storage"
	"golang.org/x/oauth2"
	"google.golang.org/api/googleapi"

	"github.com/leasehold-go/leasehold"
)

// op says what a request needs, for error messages.
type op struct{ verb, permissions string }

var (
	opGet    = op{"reading", "storage.objects.get on the object, and storage.objects.list on the bucket: without that, an object that does not exist may answer 403"}
	opPut    = op{"writing", "storage.objects.create, and to overwrite storage.objects.delete, on the object; a retention policy or hold that forbids overwriting has to go"}
	opDelete = op{"deleting", "storage.objects.delete on the object; a retention policy or hold that forbids deleting has to go"}
)

// storeError is an error of a Store: what was being done, the cause, and what to do about it. It matches its kind, which is
// not printed, and its cause.
type storeError struct {
	doing string
	kind  error // nil: it may pass
	cause error
	hint  string
}

func (e *storeError) Error() string {
	text := e.cause.Error()
	if e.doing != "" {
		text = e.doing + ": " + text
	}
	if e.hint != "" {
		text += " (" + e.hint + ")"
	}
	return text
}

func (e *storeError) Unwrap() []error {
	if e.kind == nil {
		return []error{e.cause}
	}
	return []error{e.kind, e.cause}
}

const hintForeign = "is this Cloud Storage? Check the endpoint, and proxies on the way"

// doing begins an error's text.
func (s *Store) doing(op op, key string) string {
	return fmt.Sprintf("%s %q in bucket %q", op.verb, s.prefix+key, s.name)
}

// explain turns a client error into the errors of Store. heard is the reply, nil if unknown.
func (s *Store) explain(err error, heard *reply, op op, key string) error {
	hint, kind := s.classify(err, heard, op)
	return &storeError{s.doing(op, key), kind, err, hint}
}

// notCloudStorages is the error of a reply that looks like a success but did not come from Cloud Storage.
func (s *Store) notCloudStorages(err error, op op, key string) error {
	hint, kind := s.stranger()
	return &storeError{s.doing(op, key), kind, err, hint}
}

func (s *Store) classify(err error, heard *reply, op op) (hint string, kind error) {
	if hint := unsent(err); hint != "" {
		if s.answered.Load() { // what has worked once can heal
			return hint, nil
		}
		return hint, leasehold.ErrPermanent
	}
	status, text, header := 0, "", http.Header(nil)
	if heard != nil {
		header = heard.header
	}
	if e, ok := errors.AsType[*googleapi.Error](err); ok {
		status, text, header = e.Code, e.Message+" "+e.Body, e.Header // the text of a failed download is not taken apart by the client
	} else if errors.Is(err, storage.ErrObjectNotExist) { // by the XML API, whose answers the client does not pass on
		status, text = http.StatusNotFound, noObject
	} else if tokenRefused(err) {
		return "Google gives no access token for these credentials: the key may be wrong, deleted or disabled", leasehold.ErrPermanent
	}
	_, garbage := errors.AsType[*json.SyntaxError](err)
	overloaded := status >= 500 || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout
	switch {
	case status == 0 && !garbage:
		return "", nil
	case overloaded:
		s.answered.Store(true)
		return "", nil
	case garbage, webPage(header), heard != nil && heard.followed, status < 400:
		return s.stranger()
	case status == http.StatusNotFound && op != opPut && !noBucket(text) && !missing(text):
		return s.stranger()
	}
	s.heard()
	switch {
	case status == http.StatusPreconditionFailed:
		return "", leasehold.ErrPreconditionFailed
	case status == http.StatusNotFound && (op == opPut || noBucket(text)): // nothing else can be missing for a write
		return "create the bucket, or correct its name or the endpoint", leasehold.ErrPermanent
	case status == http.StatusNotFound:
		return "", leasehold.ErrNotExist
	case strings.Contains(text, "ateLimitExceeded"), status == http.StatusConflict: // rate or userRate: some quotas answer 403
		return "", nil
	case status == http.StatusForbidden, status == http.StatusUnauthorized:
		return "check the credentials; they need " + op.permissions, leasehold.ErrPermanent
	case status == http.StatusBadRequest, status == http.StatusMethodNotAllowed, status == http.StatusLengthRequired:
		return "the server refuses the request: check bucket name, key and endpoint; does this port expect https? " + hintForeign, leasehold.ErrPermanent
	}
	return "", nil
}

// heard notes an answer of Cloud Storage.
func (s *Store) heard() {
	s.answered.Store(true)
	s.sound.Store(true)
}

// stranger notes a reply that Cloud Storage does not give, and says what it means: nothing about the object, so it may
// pass; unless the server has never given any other.
func (s *Store) stranger() (hint string, kind error) {
	s.answered.Store(true)
	if s.strange.Add(1) >= strangeReplies && !s.sound.Load() {
		return hintForeign, leasehold.ErrPermanent
	}
	return hintForeign, nil
}

// unsent says what to do about an error because of which no request can reach the server; "" if err is none of these.
func unsent(err error) (hint string) {
	dns, isDNS := errors.AsType[*net.DNSError](err)
	addr, isAddr := errors.AsType[*net.AddrError](err)
	switch {
	case isDNS && dns.IsNotFound:
		return fmt.Sprintf("the host %q is unknown: check the endpoint", dns.Name)
	case isAddr:
		return fmt.Sprintf("%q is not an address: check the endpoint", addr.Addr)
	case errors.Is(err, http.ErrSchemeMismatch):
		return "this port speaks http, not https: correct the endpoint's scheme or port"
	case strings.Contains(err.Error(), "unsupported protocol scheme"):
		return "the endpoint must begin with http:// or https://"
	}
	return ""
}

const noObject = "No such object"

// missing reports whether the text of a 404 says so of an object, in one of the ways of Cloud Storage and its emulators.
func missing(text string) bool {
	for _, says := range []string{noObject, "NoSuchKey", `"notFound"`} {
		if strings.Contains(text, says) {
			return true
		}
	}
	return strings.TrimSpace(text) == "Not Found" // fake-gcs-server's answer to a download
}

func noBucket(text string) bool {
	text = strings.ToLower(text)
	return strings.Contains(text, "nosuchbucket") || strings.Contains(text, "bucket does not exist")
}

// tokenRefused reports whether it was the credentials' own server that refused, for good.
func tokenRefused(err error) bool {
	var reply *http.Response
	if e, ok := errors.AsType[*auth.Error](err); ok {
		reply = e.Response
	} else if e, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		reply = e.Response
	}
	return reply != nil && (reply.StatusCode == http.StatusBadRequest || reply.StatusCode == http.StatusUnauthorized || reply.StatusCode == http.StatusForbidden)
}
