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
	"github.com/leasehold-go/leasehold/fencehttp"
	"github.com/leasehold-go/leasehold/internal/fakes3"
)

func publish(ctx context.Context, client *s3.Client, lock *leasehold.Lock, report io.ReadSeeker) error {
	files := leasehold.NewFencedStore(client, "my-bucket", leasehold.PaddedBodies)
	return lock.Do(ctx, func(ctx context.Context, lease *leasehold.Lease) error {
		if err := files.Seal(ctx, lease.Token(), "reports/today.json"); err != nil {
			return err // before anything is read: from here on no former leader can change it
		}
		return files.Put(ctx, lease.Token(), "reports/today.json", report, leasehold.WithContentType("application/json"))
	})
}

func routes(mux *http.ServeMux, store leasehold.Store, handler http.Handler) {
	marks := fencehttp.NewStoreMarks(store, "marks/") // durable, as the resource is
	resource := func(r *http.Request) string { return "reports/" + r.PathValue("name") }
	mux.Handle("PUT /reports/{name}", fencehttp.Middleware(marks, resource)(handler))
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

	mux := http.NewServeMux()
	routes(mux, leasehold.NewMemStore(), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for token, status := range map[string]int{"2": 200, "": 428} {
		r := httptest.NewRequest(http.MethodPut, "/reports/today", nil)
		if token != "" {
			r.Header.Set(fencehttp.Header, token)
		}
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		require.Equal(t, status, w.Code)
	}
}
