package gcsstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/storage"
	"golang.org/x/oauth2"
	"google.golang.org/api/googleapi"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/storehttp"
)

// op is a kind of request and the permissions that it needs, for error messages.
type op struct{ verb, permissions string }

var (
	opGet = op{"reading", "storage.objects.get on the object, and storage.objects.list on the bucket: without " +
		"list, Cloud Storage may answer 403 for an object that does not exist"}
	opPut = op{"writing", "storage.objects.create on the object, and storage.objects.delete to overwrite it; " +
		"remove any retention policy or hold that forbids overwriting"}
	opDelete = op{"deleting", "storage.objects.delete on the object; remove any retention policy or hold that " +
		"forbids deleting"}
)

const hintForeign = "is this Cloud Storage? Check the endpoint, and any proxy in between"

// doing begins an error's text.
func (s *Store) doing(op op, key string) string {
	return fmt.Sprintf("%s %q in bucket %q", op.verb, s.prefix+key, s.name)
}

// explain turns an error of the client into an error of a Store. heard is nil if the reply is
// unknown.
func (s *Store) explain(err error, heard *reply, op op, key string) error {
	hint, kind := s.classify(err, heard, op)
	return &storehttp.Error{Doing: s.doing(op, key), Kind: kind, Cause: err, Hint: hint}
}

// notCloudStorages returns the error for a reply that looks like a success but did not come from
// Cloud Storage.
func (s *Store) notCloudStorages(err error, op op, key string) error {
	return &storehttp.Error{Doing: s.doing(op, key), Kind: s.server.Stranger(), Cause: err, Hint: hintForeign}
}

// genuine returns an error if a supposed success did not come from Cloud Storage.
func (s *Store) genuine(attrs *storage.ObjectAttrs, heard *reply, op op, key string) error {
	err := heard.foreign(http.StatusOK)
	if err == nil && (attrs == nil || attrs.Generation <= 0) {
		err = errors.New("the answer has no generation")
	}
	if err != nil {
		return s.notCloudStorages(err, op, key)
	}
	s.server.Heard()
	return nil
}

func (s *Store) classify(err error, heard *reply, op op) (hint string, kind error) {
	s.server.Unanswered(err)
	if hint, passes := storehttp.HintUnsent(err); hint != "" {
		return hint, s.server.Unsent(passes)
	}
	status, text, header, cut := 0, "", http.Header(nil), false
	if heard != nil {
		header = heard.header
	}
	if e, ok := errors.AsType[*googleapi.Error](err); ok {
		// the client does not parse the text of a failed download
		status, text, header = e.Code, e.Message+" "+e.Body, e.Header
		cut = brokenOff(e)
	} else if errors.Is(err, storage.ErrObjectNotExist) { // by the XML API, whose reply the client does not pass on
		status, text = http.StatusNotFound, noObject
	} else if tokenRefused(err) {
		return "Google refuses an access token for these credentials: check whether the key is wrong, deleted or " +
			"disabled", leasehold.ErrPermanent
	}
	_, garbage := errors.AsType[*json.SyntaxError](err)
	overloaded := status >= 500 || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout
	switch {
	case status == 0 && !garbage:
		return "", nil
	case overloaded:
		s.server.Answer()
		return "", nil
	case garbage, webPage(header), heard != nil && heard.followed, status < 400:
		return hintForeign, s.server.Stranger()
	case status == http.StatusNotFound && op != opPut && !noBucket(text) && !missing(text):
		return hintForeign, s.server.Stranger()
	}
	s.server.Heard()
	switch {
	case status == http.StatusPreconditionFailed:
		return "", leasehold.ErrPreconditionFailed
	case status == http.StatusNotFound && (op == opPut || noBucket(text)): // for a write only the bucket can be missing
		return "create the bucket, or correct its name or the endpoint", leasehold.ErrPermanent
	case status == http.StatusNotFound:
		return "", leasehold.ErrNotExist
	// rateLimit… or userRateLimit…: some quotas answer 403
	case strings.Contains(text, "ateLimitExceeded"), status == http.StatusConflict:
		return "", nil
	case cut: // the reason, which says whether this refusal passes, may be missing
		return "", nil
	case status == http.StatusForbidden, status == http.StatusUnauthorized:
		return "check the credentials: they need " + op.permissions, leasehold.ErrPermanent
	case status == http.StatusBadRequest, status == http.StatusMethodNotAllowed, status == http.StatusLengthRequired:
		return "the server refuses the request: check bucket name, key and endpoint; does this port expect https? " +
			hintForeign, leasehold.ErrPermanent
	}
	return "", nil
}

// brokenOff reports whether the body of a refusal ended early. The client does not pass on the
// error of reading it.
func brokenOff(e *googleapi.Error) bool {
	size, err := strconv.Atoi(e.Header.Get("Content-Length"))
	return err == nil && len(e.Body) < size ||
		strings.HasPrefix(e.Header.Get("Content-Type"), "application/json") && !json.Valid([]byte(e.Body))
}

const noObject = "No such object"

// missing reports whether the text of a 404 is about a missing object, as Cloud Storage or one of
// its emulators words it.
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

// tokenRefused reports whether the server that issues access tokens has refused these credentials
// permanently.
func tokenRefused(err error) bool {
	var reply *http.Response
	if e, ok := errors.AsType[*auth.Error](err); ok {
		reply = e.Response
	} else if e, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		reply = e.Response
	}
	return reply != nil && (reply.StatusCode == http.StatusBadRequest || reply.StatusCode == http.StatusUnauthorized ||
		reply.StatusCode == http.StatusForbidden)
}
