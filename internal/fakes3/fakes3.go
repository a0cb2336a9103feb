// Package fakes3 is a small and strict S3 that lives in the test's own process: conditional reads, writes and deletes of
// whole objects, multipart uploads, S3's own error answers and HTTP dates. It needs no socket and takes its time from package time, so
// that the real SDK client runs against it inside a testing/synctest bubble.
package fakes3

import (
	"bytes"
	"crypto/md5"
	"crypto/rand"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Server is one bucket of an S3, as an http.Handler that takes path-style requests. The zero value is ready and strict;
// the fields make it worse and are set before the first request.
type Server struct {
	// RandomETags has no ETag ever repeat, as with SSE-KMS; otherwise an ETag is the MD5 of the body.
	RandomETags bool
	// IgnoreDeleteCondition has DELETE disregard If-Match, as MinIO does.
	IgnoreDeleteCondition bool
	// IgnoreConditions drops every conditional header, as several servers did or do.
	IgnoreConditions bool
	// IgnoreCompleteMatch and IgnoreCompleteNoneMatch drop one condition of CompleteMultipartUpload.
	IgnoreCompleteMatch, IgnoreCompleteNoneMatch bool
	// NoMultipart answers 501 to multipart uploads.
	NoMultipart bool
	// MinPartSize is the least size of all parts but the last; 0 means S3's 5 MiB.
	MinPartSize int
	// OnWrite is called for every version that is put in place, in that order, with the headers that are kept.
	OnWrite func(key string, header http.Header, body []byte)

	mu      sync.Mutex
	objects map[string]object
	uploads map[string]*upload
}

// Bucket is the name of the one bucket.
const Bucket = "bucket"

type object struct {
	body     []byte
	header   http.Header // what the client set: see kept
	etag     string
	modified time.Time
}

// apiError is an S3 error answer.
type apiError struct {
	status  int
	code    string
	message string
}

var (
	errNoSuchKey    = &apiError{http.StatusNotFound, "NoSuchKey", "The specified key does not exist."}
	errNoSuchBucket = &apiError{http.StatusNotFound, "NoSuchBucket", "The specified bucket does not exist"}
	errPrecondition = &apiError{http.StatusPreconditionFailed, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold"}
	errIncomplete   = &apiError{http.StatusBadRequest, "IncompleteBody", "You did not provide the number of bytes specified by the Content-Length HTTP header"}
	errArgument     = &apiError{http.StatusBadRequest, "InvalidArgument", "A condition must not be empty"}
	errUnsupported  = &apiError{http.StatusNotImplemented, "NotImplemented", "A header or query you provided implies functionality that is not implemented."}
	errMethod       = &apiError{http.StatusMethodNotAllowed, "MethodNotAllowed", "The specified method is not allowed against this resource."}
)

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Date", httpDate(time.Now()))
	w.Header().Set("Server", "fakes3")
	w.Header().Set("X-Amz-Request-Id", "fakes3")
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	var err *apiError
	switch {
	case bucket != Bucket:
		err = errNoSuchBucket
	case key == "" || unsupported(r):
		err = errUnsupported
	case multipart(r):
		err = s.serveUpload(w, r, key)
	default:
		err = s.serveObject(w, r, key)
	}
	if err != nil {
		writeError(w, r, err)
	}
}

// unsupported reports whether r asks for more than objects and uploads: other sub-resources, chunked signatures, checksums in trailers.
func unsupported(r *http.Request) bool {
	for name := range r.URL.Query() {
		switch name {
		case "x-id": // the SDK's own note of the operation
		case "uploads", "uploadId", "partNumber":
		default:
			return true
		}
	}
	return r.Header.Get("Content-Encoding") == "aws-chunked" || r.Header.Get("X-Amz-Trailer") != "" || r.Header.Get("X-Amz-Copy-Source") != ""
}

func (s *Server) serveObject(w http.ResponseWriter, r *http.Request, key string) *apiError {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		return s.read(w, r, key)
	case http.MethodPut:
		body, refused := whole(r)
		if refused != nil {
			return refused
		}
		s.mu.Lock()
		etag, refused := s.write(r.Header, key, object{body: body, header: r.Header, etag: s.etag(body)})
		s.mu.Unlock()
		if refused != nil {
			return refused
		}
		w.Header().Set("ETag", etag)
		return nil
	case http.MethodDelete:
		if refused := s.delete(r, key); refused != nil {
			return refused
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return errMethod
}

func (s *Server) read(w http.ResponseWriter, r *http.Request, key string) *apiError {
	s.mu.Lock()
	o, ok := s.objects[key]
	s.mu.Unlock()
	switch h := r.Header; {
	case !ok:
		return errNoSuchKey
	case h.Get("If-Match") != "" && !matches(h.Get("If-Match"), o.etag):
		return errPrecondition
	case h.Get("If-None-Match") != "" && matches(h.Get("If-None-Match"), o.etag):
		w.Header().Set("ETag", o.etag)
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	maps.Copy(w.Header(), o.header)
	w.Header().Set("ETag", o.etag)
	w.Header().Set("Last-Modified", httpDate(o.modified))
	w.Header().Set("Content-Length", strconv.Itoa(len(o.body)))
	if r.Method == http.MethodGet {
		_, _ = w.Write(o.body)
	}
	return nil
}

// whole is the body of a write.
func whole(r *http.Request) ([]byte, *apiError) {
	body, err := io.ReadAll(r.Body)
	if err != nil || r.ContentLength >= 0 && r.ContentLength != int64(len(body)) {
		return nil, errIncomplete
	}
	return body, nil
}

// write puts an object in place if the conditions hold: that of a PUT, or of a completed upload. The caller holds s.mu.
func (s *Server) write(conditions http.Header, key string, o object) (etag string, refused *apiError) {
	old, exists := s.objects[key]
	if !s.IgnoreConditions {
		if refused := condition(conditions, old, exists); refused != nil {
			return "", refused
		}
	}
	return s.put(key, o), nil
}

func (s *Server) delete(r *http.Request, key string) *apiError {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, exists := s.objects[key]
	if !s.IgnoreConditions && !s.IgnoreDeleteCondition {
		if refused := condition(r.Header, old, exists); refused != nil {
			return refused
		}
	}
	delete(s.objects, key)
	return nil
}

// condition checks If-Match and If-None-Match of a write or delete. If-Match of a missing key is 404, not 412, as on S3
// (apache/arrow-rs#6801).
func condition(h http.Header, old object, exists bool) *apiError {
	match, hasMatch := h["If-Match"]
	none, hasNone := h["If-None-Match"]
	switch {
	case hasMatch && match[0] == "", hasNone && none[0] == "":
		return errArgument
	case hasNone && none[0] != "*":
		return errUnsupported
	case hasMatch && !exists:
		return errNoSuchKey
	case hasMatch && !matches(match[0], old.etag), hasNone && exists:
		return errPrecondition
	}
	return nil
}

// matches is strict: an ETag is compared with its quotes.
func matches(condition, etag string) bool { return condition == "*" || condition == etag }

func (s *Server) etag(body []byte) string {
	if s.RandomETags {
		return `"` + strings.ToLower(rand.Text()) + `"`
	}
	return fmt.Sprintf(`"%x"`, md5.Sum(body))
}

// kept are the headers of a write that come back with a read, beside x-amz-meta-….
var kept = []string{
	"Content-Type", "Content-Encoding", "Content-Language", "Content-Disposition", "Cache-Control", "Expires",
	"X-Amz-Website-Redirect-Location", "X-Amz-Storage-Class", "X-Amz-Server-Side-Encryption",
	"X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id", "X-Amz-Server-Side-Encryption-Bucket-Key-Enabled",
	"X-Amz-Object-Lock-Mode", "X-Amz-Object-Lock-Retain-Until-Date", "X-Amz-Object-Lock-Legal-Hold",
	"X-Amz-Tagging-Count", "X-Amz-Missing-Meta", // planted by tests: S3 makes these two up itself
}

// put stores an object. The caller holds s.mu.
func (s *Server) put(key string, o object) (etag string) {
	header := http.Header{}
	for name, values := range o.header {
		if slices.Contains(kept, name) || strings.HasPrefix(name, "X-Amz-Meta-") {
			header[name] = values
		}
	}
	if s.objects == nil {
		s.objects = make(map[string]object)
	}
	o.body, o.header, o.modified = bytes.Clone(o.body), header, time.Now()
	s.objects[key] = o
	if s.OnWrite != nil {
		s.OnWrite(key, header, o.body)
	}
	return o.etag
}

// Put plants an object behind every client's back and returns its ETag.
func (s *Server) Put(key string, body []byte) (etag string) { return s.PutWith(key, body, nil) }

// PutWith is Put with headers, such as x-amz-meta-….
func (s *Server) PutWith(key string, body []byte, h http.Header) (etag string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.put(key, object{body: body, header: h, etag: s.etag(body)})
}

// Body returns what stands at key, nil if nothing does.
func (s *Server) Body(key string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[key].body
}

// Header returns the headers that are kept with what stands at key.
func (s *Server) Header(key string) http.Header {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[key].header.Clone()
}

// Keys returns every key in order.
func (s *Server) Keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.objects))
}

func writeError(w http.ResponseWriter, r *http.Request, e *apiError) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(e.status)
	if r.Method != http.MethodHead {
		_, _ = io.WriteString(w, Error(e.code, e.message))
	}
}

// Error is the body of an S3 error answer.
func Error(code, message string) string {
	body, _ := xml.Marshal(struct {
		XMLName   xml.Name `xml:"Error"`
		Code      string
		Message   string
		RequestId string
	}{Code: code, Message: message, RequestId: "fakes3"})
	return xml.Header + string(body)
}

// httpDate is t as HTTP has it: in whole seconds.
func httpDate(t time.Time) string { return t.UTC().Format(http.TimeFormat) }
