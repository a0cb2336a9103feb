package fakes3

import (
	"cmp"
	"crypto/md5"
	"crypto/rand"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
)

// upload is a multipart upload that has been neither completed nor aborted.
type upload struct {
	key    string
	header http.Header
	parts  map[int]part
}

type part struct {
	body []byte
	etag string
}

var (
	errNoSuchUpload = &apiError{http.StatusNotFound, "NoSuchUpload", "The specified multipart upload does not exist."}
	errInvalidPart  = &apiError{http.StatusBadRequest, "InvalidPart", "One or more of the specified parts could not " +
		"be found."}
	errPartOrder = &apiError{http.StatusBadRequest, "InvalidPartOrder", "The list of parts was not in " +
		"ascending order."}
	errTooSmall = &apiError{http.StatusBadRequest, "EntityTooSmall", "Your proposed upload is smaller than the " +
		"minimum allowed size"}
	errMalformed = &apiError{http.StatusBadRequest, "MalformedXML", "The XML you provided was not well-formed or " +
		"did not validate against our published schema"}
)

func multipart(r *http.Request) bool {
	q := r.URL.Query()
	return q.Has("uploads") || q.Has("uploadId") || q.Has("partNumber")
}

func (s *Server) serveUpload(w http.ResponseWriter, r *http.Request, key string) *apiError {
	if s.NoMultipart {
		return errUnsupported
	}
	body, refused := s.whole(r)
	if refused != nil {
		return refused
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q := r.URL.Query()
	if q.Has("uploads") {
		if r.Method != http.MethodPost {
			return errMethod
		}
		if s.uploads == nil {
			s.uploads = make(map[string]*upload)
		}
		id := rand.Text()
		s.uploads[id] = &upload{key: key, header: r.Header, parts: map[int]part{}}
		writeXML(w, struct {
			XMLName               xml.Name `xml:"InitiateMultipartUploadResult"`
			Bucket, Key, UploadId string
		}{Bucket: Bucket, Key: key, UploadId: id})
		return nil
	}
	id := q.Get("uploadId")
	up := s.uploads[id]
	if up == nil || up.key != key {
		return errNoSuchUpload
	}
	switch r.Method {
	case http.MethodPut:
		number, err := strconv.Atoi(q.Get("partNumber"))
		if err != nil || number < 1 || number > 10_000 {
			return errArgument
		}
		up.parts[number] = part{body, fmt.Sprintf(`"%x"`, md5.Sum(body))}
		w.Header().Set("ETag", up.parts[number].etag)
		return nil
	case http.MethodPost:
		etag, refused := s.complete(up, r.Header, body)
		if refused != nil {
			return refused // and keep the upload
		}
		delete(s.uploads, id)
		writeXML(w, struct {
			XMLName           xml.Name `xml:"CompleteMultipartUploadResult"`
			Bucket, Key, ETag string
		}{Bucket: Bucket, Key: key, ETag: etag})
		return nil
	case http.MethodDelete:
		delete(s.uploads, id)
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return errMethod
}

// complete stores the object that consists of the listed parts. The caller holds s.mu.
func (s *Server) complete(up *upload, conditions http.Header, list []byte) (etag string, refused *apiError) {
	var in struct {
		XMLName xml.Name `xml:"CompleteMultipartUpload"`
		Part    []struct {
			PartNumber int
			ETag       string
		}
	}
	if err := xml.Unmarshal(list, &in); err != nil || len(in.Part) == 0 {
		return "", errMalformed
	}
	least := cmp.Or(s.MinPartSize, 5<<20)
	var body, sums []byte
	for i, p := range in.Part {
		got, ok := up.parts[p.PartNumber]
		switch {
		case i > 0 && p.PartNumber <= in.Part[i-1].PartNumber:
			return "", errPartOrder
		case !ok || p.ETag != got.etag:
			return "", errInvalidPart
		case i < len(in.Part)-1 && len(got.body) < least:
			return "", errTooSmall
		}
		body = append(body, got.body...)
		sum := md5.Sum(got.body)
		sums = append(sums, sum[:]...)
	}
	conditions = maps.Clone(conditions)
	if s.IgnoreCompleteMatch {
		conditions.Del("If-Match")
	}
	if s.IgnoreCompleteNoneMatch {
		conditions.Del("If-None-Match")
	}
	return s.write(conditions, up.key, object{
		body: body, header: up.header, etag: fmt.Sprintf(`%s-%d"`, strings.TrimSuffix(s.etag(sums), `"`), len(in.Part)),
	})
}

// Uploads returns the number of multipart uploads that have been neither completed nor aborted.
func (s *Server) Uploads() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.uploads)
}

func writeXML(w http.ResponseWriter, v any) {
	body, _ := xml.Marshal(v)
	w.Header().Set("Content-Type", "application/xml")
	_, _ = io.WriteString(w, xml.Header+string(body))
}
