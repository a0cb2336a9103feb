package docs_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/fenced"
	"github.com/leasehold-go/leasehold/fencehttp"
	"github.com/leasehold-go/leasehold/internal/fakes3"
)

func publish(ctx context.Context, client *s3.Client, lock *leasehold.Lock, report io.ReadSeeker) error {
	files, err := fenced.NewS3Store(client, "my-bucket", fenced.PaddedBodies)
	if err != nil {
		return err
	}
	return lock.Do(ctx, func(ctx context.Context, lease *leasehold.Lease) error {
		if err := files.Seal(ctx, lease.Token(), "reports/today.json"); err != nil {
			return err // before anything is read: from here on no former leader can change it
		}
		return files.Put(ctx, lease.Token(), "reports/today.json", report, fenced.WithContentType("application/json"))
	})
}

func routes(mux *http.ServeMux, store leasehold.Store, authorise func(http.Handler) http.Handler, put, remove http.Handler) {
	marks := fencehttp.NewStoreMarks(store, "marks/") // durable, as the resource is
	resource := func(r *http.Request) string { return "reports/" + r.PathValue("name") }
	fence := fencehttp.New(marks, resource) // one for all routes that write reports
	mux.Handle("PUT /reports/{name}", authorise(fence.Middleware(put)))
	mux.Handle("DELETE /reports/{name}", authorise(fence.Middleware(remove)))
}

// myBucket has the fake's one bucket go by the name that the page uses.
type myBucket struct{ http.Handler }

func (b myBucket) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r.URL.Path = strings.Replace(r.URL.Path, "/my-bucket/", "/"+fakes3.Bucket+"/", 1)
	b.Handler.ServeHTTP(w, r)
}

func TestFencing(t *testing.T) {
	server := &fakes3.Server{}
	lock, err := leasehold.NewLock(leasehold.NewMemStore(), "locks/publish")
	require.NoError(t, err)
	client := fakes3.NewClient(fakes3.Transport{Handler: myBucket{server}})
	require.NoError(t, publish(t.Context(), client, lock, strings.NewReader(`{"n":1}`)))
	require.NoError(t, publish(t.Context(), client, lock, strings.NewReader(`{"n":2}`)))
	require.Equal(t, `{"n":2}`, strings.TrimRight(string(server.Body("reports/today.json")), " \t"))

	mux, handler := http.NewServeMux(), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	authorise := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, _, ok := r.BasicAuth(); !ok {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	routes(mux, leasehold.NewMemStore(), authorise, handler, handler)
	for _, tc := range []struct {
		method, token string
		known         bool
		status        int
	}{
		{http.MethodPut, "", true, 428},
		{http.MethodPut, "9", false, 401},
		{http.MethodPut, "2", true, 200},
		{http.MethodDelete, "3", true, 200},
		{http.MethodPut, "2", true, 412},
	} {
		r := httptest.NewRequest(tc.method, "/reports/today", nil)
		if tc.token != "" {
			r.Header.Set(fencehttp.Header, tc.token)
		}
		if tc.known {
			r.SetBasicAuth("leader", "secret")
		}
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		require.Equal(t, tc.status, w.Code, "%v", tc)
	}
}
