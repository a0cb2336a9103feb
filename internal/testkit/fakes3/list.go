package fakes3

import (
	"encoding/xml"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// createsOnly reports whether r has a condition that a server does not know on which objects can
// only be created.
func (s *Server) createsOnly(r *http.Request) bool {
	return s.CreateOnly && r.Header.Get("If-Match") != "" || s.CreateHeader != "" && r.Header.Get("If-None-Match") != ""
}

type listed struct{ Key string }

// list answers ListObjectsV2, with up to max-keys keys, and no common prefixes.
func (s *Server) list(w http.ResponseWriter, r *http.Request) *apiError {
	q := r.URL.Query()
	reply := struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		Name, Prefix          string
		KeyCount, MaxKeys     int
		IsTruncated           bool
		NextContinuationToken string `xml:",omitempty"`
		Contents              []listed
	}{Name: Bucket, Prefix: q.Get("prefix"), MaxKeys: 1000}
	if most, err := strconv.Atoi(q.Get("max-keys")); err == nil {
		reply.MaxKeys = most
	}
	page := reply.MaxKeys
	if s.PageSize > 0 {
		page = min(page, s.PageSize)
	}
	for _, key := range s.Keys() {
		switch {
		case !strings.HasPrefix(key, reply.Prefix) || key <= q.Get("continuation-token"):
		case len(reply.Contents) == page:
			reply.IsTruncated, reply.NextContinuationToken = true, reply.Contents[page-1].Key
		case !reply.IsTruncated:
			reply.Contents = append(reply.Contents, listed{key})
		}
	}
	reply.KeyCount = len(reply.Contents)
	body, _ := xml.Marshal(reply)
	w.Header().Set("Content-Type", "application/xml")
	_, _ = io.WriteString(w, xml.Header+string(body))
	return nil
}
