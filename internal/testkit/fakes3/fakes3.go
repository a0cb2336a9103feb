// Package fakes3 is a small, strict S3 in the test's own process. It has conditional reads, writes
// and deletes of whole objects, multipart uploads, S3's error replies and HTTP dates. It needs no
// socket and uses package time, so the real SDK client runs against it inside a testing/synctest
// bubble.
package fakes3

import (
	"bytes"
	"crypto/md5"
	"crypto/rand"
	"encoding/base64"
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

// Server is an S3 with one bucket, as an http.Handler for path-style requests. It is safe for
// concurrent use. The zero value is ready and strict. Each field weakens it or makes it stranger;
// set them before the first request.
type Server struct {
	// RandomETags makes every ETag unique, as with SSE-KMS. Otherwise an ETag is the MD5 of the
	// body.
	RandomETags bool
	// IgnoreDeleteCondition makes DELETE ignore If-Match, as MinIO does.
	IgnoreDeleteCondition bool
	// BareIfMatch makes every write and delete compare If-Match without the quotes of an ETag, as
	// Ceph's gateway 16 does.
	BareIfMatch bool
	// IgnoreConditions makes every write and delete ignore its conditional headers, as several
	// servers did or do.
	IgnoreConditions bool
	// IgnoreCompleteMatch and IgnoreCompleteNoneMatch make CompleteMultipartUpload ignore If-Match
	// or If-None-Match.
	IgnoreCompleteMatch, IgnoreCompleteNoneMatch bool
	// NoMultipart answers 501 to multipart uploads.
	NoMultipart bool
	// MinPartSize is the minimum size in bytes of every part except the last. 0 means 5 MiB, as on
	// S3.
	MinPartSize int
	// TornHeads makes the first HEAD after each replacement answer with the headers of the version
	// before and the ETag of the new one, as VersityGW 1.8.0 does if the object is replaced during
	// the HEAD.
	TornHeads bool
	// WriteInterval answers 429 to a write or a DELETE of a key that comes sooner after the last
	// one that was let through, as servers do that take one write of an object a second.
	WriteInterval time.Duration
	// DefaultRetention makes every write need a checksum, as in a bucket with Object Lock and a
	// default retention.
	DefaultRetention bool
	// CreateOnly answers 501 to every If-Match, as Storj and Aliyun OSS do.
	CreateOnly bool
	// CreateHeader is a header of a PUT that forbids overwriting. Then If-None-Match gets 501, as
	// on Aliyun OSS.
	CreateHeader string
	// PageSize is the most keys in a page of a LIST. 0 means as many as the client asks for.
	PageSize int
	// OnWrite is called for every new version, in order, with the headers that are stored. It must
	// not call the Server.
	OnWrite func(key string, header http.Header, body []byte)

	mu      sync.Mutex
	objects map[string]object
	uploads map[string]*upload
	written map[string]time.Time // when a write was let through
}

// Bucket is the name of the only bucket.
const Bucket = "bucket"

type object struct {
	body     []byte
	header   http.Header // what the client set, as far as kept lists it
	etag     string
	modified time.Time
	before   http.Header // of the version that it replaced, until a torn HEAD has shown them
}

// apiError is an error reply of S3.
type apiError struct {
	status  int
	code    string
	message string
}

var (
	errNoSuchKey    = &apiError{http.StatusNotFound, "NoSuchKey", "The specified key does not exist."}
	errNoSuchBucket = &apiError{http.StatusNotFound, "NoSuchBucket", "The specified bucket does not exist"}
	errPrecondition = &apiError{http.StatusPreconditionFailed, "PreconditionFailed",
		"At least one of the pre-conditions you specified did not hold"}
	errIncomplete = &apiError{http.StatusBadRequest, "IncompleteBody", "You did not provide the number of bytes " +
		"specified by the Content-Length HTTP header"}
	errDigest = &apiError{http.StatusBadRequest, "BadDigest", "The Content-MD5 you specified did not match " +
		"what we received."}
	errNoDigest = &apiError{http.StatusBadRequest, "InvalidRequest", "Content-MD5 OR x-amz-checksum- HTTP header " +
		"is required for Put Object requests with Object Lock parameters"}
	errArgument    = &apiError{http.StatusBadRequest, "InvalidArgument", "A condition must not be empty"}
	errUnsupported = &apiError{http.StatusNotImplemented, "NotImplemented", "A header or query you provided implies " +
		"functionality that is not implemented."}
	errTooMany = &apiError{http.StatusTooManyRequests, "TooManyRequests", "Reduce your rate of simultaneous " +
		"writes to the same object."}
	errFileExists = &apiError{http.StatusConflict, "FileAlreadyExists", "The object you specified already exists " +
		"and can not be overwritten."}
	errMethod = &apiError{http.StatusMethodNotAllowed, "MethodNotAllowed",
		"The specified method is not allowed against this resource."}
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
	case key == "" && r.Method == http.MethodGet && r.URL.Query().Get("list-type") == "2":
		err = s.list(w, r)
	case key == "" || unsupported(r) || s.createsOnly(r):
		err = errUnsupported
	case !s.admit(r, key):
		err = errTooMany
	case multipart(r):
		err = s.serveUpload(w, r, key)
	default:
		err = s.serveObject(w, r, key)
	}
	if err != nil {
		writeError(w, r, err)
	}
}

// admit reports whether the rate limit lets a request through.
func (s *Server) admit(r *http.Request, key string) bool {
	completes := r.Method == http.MethodPost && r.URL.Query().Has("uploadId")
	if s.WriteInterval == 0 || !completes && (multipart(r) || r.Method != http.MethodPut &&
		r.Method != http.MethodDelete) {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if last, ok := s.written[key]; ok && time.Since(last) < s.WriteInterval {
		return false
	}
	if s.written == nil {
		s.written = make(map[string]time.Time)
	}
	s.written[key] = time.Now()
	return true
}

// unsupported reports whether r needs a feature that fakes3 does not have: other sub-resources,
// copies, chunked signatures, checksums in trailers.
func unsupported(r *http.Request) bool {
	for name := range r.URL.Query() {
		switch name {
		case "x-id": // the SDK adds the name of the operation
		case "uploads", "uploadId", "partNumber":
		default:
			return true
		}
	}
	return r.Header.Get("Content-Encoding") == "aws-chunked" || r.Header.Get("X-Amz-Trailer") != "" ||
		r.Header.Get("X-Amz-Copy-Source") != ""
}

func (s *Server) serveObject(w http.ResponseWriter, r *http.Request, key string) *apiError {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		return s.read(w, r, key)
	case http.MethodPut:
		body, refused := s.whole(r)
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
	if s.TornHeads && r.Method == http.MethodHead && o.before != nil {
		shown := o
		shown.before = nil
		s.objects[key] = shown
		o.header = o.before
	}
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

// whole reads the body of a write, and refuses one that does not have its Content-Length or its
// checksum.
func (s *Server) whole(r *http.Request) ([]byte, *apiError) {
	body, err := io.ReadAll(r.Body)
	sum := md5.Sum(body)
	switch given := r.Header.Get("Content-Md5"); {
	case err != nil, r.ContentLength >= 0 && r.ContentLength != int64(len(body)):
		return nil, errIncomplete
	case given != "" && given != base64.StdEncoding.EncodeToString(sum[:]):
		return nil, errDigest
	case given == "" && s.DefaultRetention && r.Method == http.MethodPut && !hasChecksum(r.Header):
		return nil, errNoDigest
	}
	return body, nil
}

// hasChecksum reports whether a write has one of the checksums that S3 takes instead of an MD5.
func hasChecksum(h http.Header) bool {
	for name := range h {
		if strings.HasPrefix(name, "X-Amz-Checksum-") {
			return true
		}
	}
	return false
}

// write stores the object of a PUT or of a completed upload if the conditions hold. The caller
// holds s.mu.
func (s *Server) write(conditions http.Header, key string, o object) (etag string, refused *apiError) {
	old, exists := s.objects[key]
	if !s.IgnoreConditions {
		if refused := s.condition(conditions, old, exists); refused != nil {
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
		if refused := s.condition(r.Header, old, exists); refused != nil {
			return refused
		}
	}
	delete(s.objects, key)
	return nil
}

// condition checks If-Match and If-None-Match of a write or delete. If-Match on a missing key gives
// 404, not 412, as on S3 (apache/arrow-rs#6801).
func (s *Server) condition(h http.Header, old object, exists bool) *apiError {
	match, hasMatch := h["If-Match"]
	none, hasNone := h["If-None-Match"]
	etag := old.etag
	if s.BareIfMatch {
		etag = strings.Trim(etag, `"`)
	}
	switch {
	case hasMatch && match[0] == "", hasNone && none[0] == "":
		return errArgument
	case hasNone && none[0] != "*":
		return errUnsupported
	case hasMatch && !exists:
		return errNoSuchKey
	case hasMatch && !matches(match[0], etag), hasNone && exists:
		return errPrecondition
	case s.CreateHeader != "" && h.Get(s.CreateHeader) == "true" && exists:
		return errFileExists
	}
	return nil
}

// matches is strict: it compares an ETag together with its quotes.
func matches(condition, etag string) bool { return condition == "*" || condition == etag }

func (s *Server) etag(body []byte) string {
	if s.RandomETags {
		return `"` + strings.ToLower(rand.Text()) + `"`
	}
	return fmt.Sprintf(`"%x"`, md5.Sum(body))
}

// kept lists the headers of a write that a read returns, besides x-amz-meta-….
var kept = []string{
	"Content-Type", "Content-Encoding", "Content-Language", "Content-Disposition", "Cache-Control", "Expires",
	"X-Amz-Website-Redirect-Location", "X-Amz-Storage-Class", "X-Amz-Server-Side-Encryption",
	"X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id", "X-Amz-Server-Side-Encryption-Bucket-Key-Enabled",
	"X-Amz-Object-Lock-Mode", "X-Amz-Object-Lock-Retain-Until-Date", "X-Amz-Object-Lock-Legal-Hold",
	"X-Amz-Tagging-Count", "X-Amz-Missing-Meta", // set by tests only: S3 computes these two itself
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
	o.body, o.header, o.modified, o.before = bytes.Clone(o.body), header, time.Now(), s.objects[key].header
	s.objects[key] = o
	if s.OnWrite != nil {
		s.OnWrite(key, header, o.body)
	}
	return o.etag
}

// Put stores an object directly, without a request, and returns its ETag.
func (s *Server) Put(key string, body []byte) (etag string) { return s.PutWith(key, body, nil) }

// PutWith is Put with headers, such as x-amz-meta-….
func (s *Server) PutWith(key string, body []byte, h http.Header) (etag string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.put(key, object{body: body, header: h, etag: s.etag(body)})
}

// Body returns the body of the object at key, or nil if there is none.
func (s *Server) Body(key string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[key].body
}

// Header returns the stored headers of the object at key.
func (s *Server) Header(key string) http.Header {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[key].header.Clone()
}

// Keys returns all keys in order.
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

// Error returns the body of an S3 error reply.
func Error(code, message string) string {
	body, _ := xml.Marshal(struct {
		XMLName   xml.Name `xml:"Error"`
		Code      string
		Message   string
		RequestId string
	}{Code: code, Message: message, RequestId: "fakes3"})
	return xml.Header + string(body)
}

// httpDate formats t for an HTTP header, in whole seconds.
func httpDate(t time.Time) string { return t.UTC().Format(http.TimeFormat) }
