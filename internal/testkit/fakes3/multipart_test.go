package fakes3_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/testkit/fakes3"
)

// begin starts an upload and returns the query parameter that identifies it.
func begin(t *testing.T, s http.Handler, headers ...string) string {
	t.Helper()
	status, _, body := send(t, s, "POST", "/bucket/key?uploads", "", headers...)
	require.Equal(t, 200, status)
	_, id, _ := strings.Cut(body, "<UploadId>")
	id, _, _ = strings.Cut(id, "</UploadId>")
	return "uploadId=" + id
}

func uploadPart(t *testing.T, s http.Handler, id string, number int, body string) (etag string) {
	t.Helper()
	status, header, _ := send(t, s, "PUT", fmt.Sprintf("/bucket/key?partNumber=%d&%s", number, id), body)
	require.Equal(t, 200, status)
	return header.Get("ETag")
}

// list is the body of a completion, with these ETags for parts 1, 2, ….
func list(etags ...string) string {
	var b strings.Builder
	b.WriteString("<CompleteMultipartUpload>")
	for i, etag := range etags {
		fmt.Fprintf(&b, "<Part><PartNumber>%d</PartNumber><ETag>%s</ETag></Part>", i+1,
			strings.ReplaceAll(etag, `"`, "&quot;"))
	}
	return b.String() + "</CompleteMultipartUpload>"
}

func TestUploadsAreThoseOfS3(t *testing.T) {
	s := &fakes3.Server{MinPartSize: 3}
	id := begin(t, s, "X-Amz-Meta-Fence", "7")
	one, two := uploadPart(t, s, id, 1, "one"), uploadPart(t, s, id, 2, "2")
	require.Empty(t, s.Keys(), "the object appears only when the upload is completed")
	status, header, body := send(t, s, "POST", "/bucket/key?"+id, list(one, two))
	require.Equal(t, 200, status)
	require.Contains(t, body, "-2&#34;</ETag>")
	require.Empty(t, header.Get("ETag"))
	require.Equal(t, "one2", string(s.Body("key")))
	require.Equal(t, "7", s.Header("key").Get("X-Amz-Meta-Fence"))
	require.Zero(t, s.Uploads())

	id = begin(t, s)
	one, two = uploadPart(t, s, id, 1, "on"), uploadPart(t, s, id, 2, "2")
	for name, c := range map[string]struct{ path, body, code string }{
		"a part that is too small": {"key?" + id, list(one, two), "EntityTooSmall"},
		"another part":             {"key?" + id, list(two), "InvalidPart"},
		"no ETag":                  {"key?" + id, list(""), "InvalidPart"},
		"no parts":                 {"key?" + id, list(), "MalformedXML"},
		"another key":              {"yek?" + id, list(two), "NoSuchUpload"},
		"another upload":           {"key?uploadId=x", list(two), "NoSuchUpload"},
	} {
		status, _, body := send(t, s, "POST", "/bucket/"+c.path, c.body)
		require.GreaterOrEqual(t, status, 400, name)
		require.Contains(t, body, "<Code>"+c.code+"</Code>", name)
	}
	require.Equal(t, 1, s.Uploads())
	status, _, _ = send(t, s, "DELETE", "/bucket/key?"+id, "")
	require.Equal(t, 204, status)
	require.Zero(t, s.Uploads())
	require.Equal(t, "one2", string(s.Body("key")))

	status, _, _ = send(t, &fakes3.Server{NoMultipart: true}, "POST", "/bucket/key?uploads", "")
	require.Equal(t, 501, status)
}

func TestConditionsOfACompletion(t *testing.T) {
	const stale = `"0"`
	for _, c := range []struct {
		server        *fakes3.Server
		header, value string
		exists        bool
		status        int
	}{
		{&fakes3.Server{}, "If-None-Match", "*", false, 200},
		{&fakes3.Server{}, "If-None-Match", "*", true, 412},
		{&fakes3.Server{}, "If-Match", "the object's", true, 200},
		{&fakes3.Server{}, "If-Match", stale, true, 412},
		{&fakes3.Server{}, "If-Match", stale, false, 404},
		{&fakes3.Server{IgnoreCompleteMatch: true}, "If-Match", stale, true, 200},
		{&fakes3.Server{IgnoreCompleteMatch: true}, "If-None-Match", "*", true, 412},
		{&fakes3.Server{IgnoreCompleteNoneMatch: true}, "If-None-Match", "*", true, 200},
		{&fakes3.Server{IgnoreCompleteNoneMatch: true}, "If-Match", stale, true, 412},
		{&fakes3.Server{IgnoreConditions: true}, "If-Match", stale, true, 200},
	} {
		name, s := fmt.Sprintf("%+v", c), c.server
		if c.exists {
			if etag := s.Put("key", []byte("old")); c.value == "the object's" {
				c.value = etag
			}
		}
		before := string(s.Body("key"))
		id := begin(t, s)
		status, _, _ := send(t, s, "POST", "/bucket/key?"+id, list(uploadPart(t, s, id, 1, "new")), c.header, c.value)
		require.Equal(t, c.status, status, name)
		if status == 200 {
			require.Equal(t, "new", string(s.Body("key")), name)
			require.Zero(t, s.Uploads(), name)
		} else {
			require.Equal(t, before, string(s.Body("key")), name)
			require.Equal(t, 1, s.Uploads(), "%s: the upload is kept", name)
		}
	}
}
