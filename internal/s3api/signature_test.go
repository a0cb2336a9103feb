package s3api_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/fenced"
	"github.com/leasehold-go/leasehold/internal/testkit/fakes3"
)

// No request signs Accept-Encoding, because proxies write their own. Each still says "identity",
// because net/http would otherwise ask for gzip by itself, and a compressed answer has another
// ETag.
func TestAcceptEncodingIsNotSigned(t *testing.T) {
	server := &fakes3.Server{RandomETags: true}
	seen := map[string]bool{}
	client := fakes3.NewClient(fakes3.Transport{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kind := r.Method
		for name := range r.URL.Query() {
			if name != "x-id" && name != "partNumber" {
				kind += " " + name
			}
		}
		seen[kind] = true
		_, signed, ok := strings.Cut(r.Header.Get("Authorization"), "SignedHeaders=")
		signed, _, _ = strings.Cut(signed, ",")
		if !ok || !strings.Contains(signed, "host") || strings.Contains(signed, "accept-encoding") {
			t.Errorf("%s signs the headers %q", kind, signed)
		}
		if got := r.Header.Values("Accept-Encoding"); len(got) != 1 || got[0] != "identity" {
			t.Errorf("%s accepts the encodings %q", kind, got)
		}
		server.ServeHTTP(w, r)
	})})
	store := leasehold.NewS3Store(client, fakes3.Bucket)
	etag, err := store.PutIfNoneMatch(t.Context(), "lock", []byte("{}"))
	require.NoError(t, err)
	etag, err = store.PutIfMatch(t.Context(), "lock", []byte("{}"), etag)
	require.NoError(t, err)
	_, err = store.Get(t.Context(), "lock")
	require.NoError(t, err)
	require.NoError(t, store.DeleteIfMatch(t.Context(), "lock", etag))
	files, err := fenced.NewS3Store(client, fakes3.Bucket, fenced.UniqueETags)
	require.NoError(t, err)
	require.NoError(t, files.Put(t.Context(), 1, "file", bytes.NewReader(make([]byte, 9<<20))))
	require.NoError(t, files.Seal(t.Context(), 2, "file"))
	require.Equal(t, map[string]bool{
		"GET": true, "PUT": true, "DELETE": true, "HEAD": true, "POST uploads": true, "PUT uploadId": true,
		"POST uploadId": true, "DELETE uploadId": true,
	}, seen)
}
