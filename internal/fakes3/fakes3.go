// Package fakes3 is a small and strict S3 that lives in the test's own process: conditional reads, writes and deletes of
// whole objects, with S3's own error answers and HTTP dates. It needs no socket and takes its time from package time, so
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
	// OnWrite is called for every version that is put in place, in that order, with the headers that are kept.
	OnWrite func(key string, header http.Header, body []byte)

	mu      sync.Mutex
	objects map[string]object
}

// Bucket is the name of the one bucket.
const Bucket = "bucket"

type object struct {
	body     []byte
	header   http.Header // what the client set: Content-Type, Cache-Control, x-amz-meta-*
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
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	var err *apiError
	switch {
	case bucket != Bucket:
		err = errNoSuchBucket
	case key == "" || unsupported(r):
		err = errUnsupported
	default:
		err = s.serveObject(w, r, key)
	}
	if err != nil {
		writeError(w, r, err)
	}
}

// unsupported reports whether r asks for more than whole objects: sub-resources such as ?uploads, chunked signatures, checksums in trailers.
func unsupported(r *http.Request) bool {
	for name := range r.URL.Query() {
		if name != "x-id" { // the SDK's own note of the operation
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
		body, err := io.ReadAll(r.Body)
		if err != nil || r.ContentLength >= 0 && r.ContentLength != int64(len(body)) {
			return errIncomplete
		}
		etag, refused := s.write(r, key, body)
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

// write puts an object in place if r's conditions hold. Whatever else ends in a write, such as the completion of a
// multipart upload, comes here too.
func (s *Server) write(r *http.Request, key string, body []byte) (etag string, refused *apiError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, exists := s.objects[key]
	if !s.IgnoreConditions {
		if refused := condition(r.Header, old, exists); refused != nil {
			return "", refused
		}
	}
	return s.put(key, body, r.Header), nil
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

// put stores an object. The caller holds s.mu.
func (s *Server) put(key string, body []byte, h http.Header) (etag string) {
	etag = fmt.Sprintf(`"%x"`, md5.Sum(body))
	if s.RandomETags {
		etag = `"` + strings.ToLower(rand.Text()) + `"`
	}
	kept := http.Header{}
	for name, values := range h {
		if name == "Content-Type" || name == "Cache-Control" || strings.HasPrefix(name, "X-Amz-Meta-") {
			kept[name] = values
		}
	}
	if s.objects == nil {
		s.objects = make(map[string]object)
	}
	s.objects[key] = object{body: bytes.Clone(body), header: kept, etag: etag, modified: time.Now()}
	if s.OnWrite != nil {
		s.OnWrite(key, kept, body)
	}
	return etag
}

// Put plants an object behind every client's back and returns its ETag.
func (s *Server) Put(key string, body []byte) (etag string) { return s.PutWith(key, body, nil) }

// PutWith is Put with headers, such as x-amz-meta-….
func (s *Server) PutWith(key string, body []byte, h http.Header) (etag string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.put(key, body, h)
}

// Body returns what stands at key, nil if nothing does.
func (s *Server) Body(key string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[key].body
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
