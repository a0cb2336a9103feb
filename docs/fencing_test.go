package docs_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/fenced"
	"github.com/leasehold-go/leasehold/fencehttp"
	"github.com/leasehold-go/leasehold/internal/testkit/fakes3"
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

func routes(mux *http.ServeMux, store leasehold.Store, authorise func(http.Handler) http.Handler, put,
	remove http.Handler) error {
	marks := fencehttp.NewStoreMarks(store, "marks/") // durable, as the resource is
	resource := func(r *http.Request) string { return "reports/" + r.PathValue("name") }
	fence, err := fencehttp.New(marks, resource) // one for all routes that write reports
	if err != nil {
		return err
	}
	mux.Handle("PUT /reports/{name}", authorise(fence.Middleware(put)))
	mux.Handle("DELETE /reports/{name}", authorise(fence.Middleware(remove)))
	return nil
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
	require.NoError(t, routes(mux, leasehold.NewMemStore(), authorise, handler, handler))
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

// policed applies a bucket policy of Deny statements to a server, as AWS documents it.
type policed struct {
	Statement []struct {
		Effect, Principal, Action, Resource string
		Condition                           map[string]map[string]string
	}
	server http.Handler
}

func (p *policed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	action, keys := "", map[string]string{}
	switch {
	case r.Method == http.MethodDelete && query.Has("uploadId"):
		action = "s3:AbortMultipartUpload"
	case r.Method == http.MethodDelete:
		action = "s3:DeleteObject"
	case r.Method == http.MethodPut, r.Method == http.MethodPost:
		action = "s3:PutObject"
		keys["s3:ObjectCreationOperation"] = strconv.FormatBool(!query.Has("uploads") && !query.Has("partNumber"))
	}
	for key, header := range map[string]string{"s3:if-match": "If-Match", "s3:if-none-match": "If-None-Match"} {
		if value := r.Header.Get(header); value != "" {
			keys[key] = value
		}
	}
	for _, s := range p.Statement {
		prefix := strings.TrimSuffix(strings.TrimPrefix(s.Resource, "arn:aws:s3:::"), "*")
		if s.Action == action && strings.HasPrefix(r.URL.Path, "/"+prefix) && holds(s.Condition, keys) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, fakes3.Error("AccessDenied", "User is not authorized, with an explicit deny in "+
				"a resource-based policy"))
			return
		}
	}
	p.server.ServeHTTP(w, r)
}

// holds wants every key of every operator to hold.
func holds(condition map[string]map[string]string, keys map[string]string) bool {
	for operator, tests := range condition {
		for key, want := range tests {
			got, has := keys[key]
			switch operator {
			case "Null":
				has = strconv.FormatBool(!has) == want
			case "Bool", "StringEquals":
				has = has && got == want
			default:
				panic("the test does not know the operator " + operator)
			}
			if !has {
				return false
			}
		}
	}
	return true
}

// The policy on the page refuses every unconditional write and delete below its prefix, and nothing
// that leasehold sends.
func TestPolicy(t *testing.T) {
	page, err := os.ReadFile("fencing.md")
	require.NoError(t, err)
	found := regexp.MustCompile("(?s)```json\n(.*?)```").FindAllSubmatch(page, -1)
	require.Len(t, found, 1)
	server := &fakes3.Server{}
	p := &policed{server: myBucket{server}}
	require.NoError(t, json.Unmarshal(found[0][1], p))
	require.Len(t, p.Statement, 3)
	for _, s := range p.Statement {
		require.Equal(t, []string{"Deny", "*"}, []string{s.Effect, s.Principal})
	}
	client, ctx, bucket := fakes3.NewClient(fakes3.Transport{Handler: p}), t.Context(), aws.String("my-bucket")

	// What leasehold sends passes, and the checks remove what they have written.
	lock, err := leasehold.NewLock(leasehold.NewS3Store(client, *bucket), "reports/locks/publish")
	require.NoError(t, err)
	require.NoError(t, publish(ctx, client, lock, strings.NewReader(`{"n":1}`)))
	require.NoError(t, publish(ctx, client, lock, strings.NewReader(`{"n":2}`)))
	report, err := leasehold.CheckStore(ctx, leasehold.NewS3Store(client, *bucket), "reports/check")
	require.NoError(t, err)
	require.True(t, report.ConditionalPuts && report.ConditionalDeletes)
	require.Empty(t, report.Leftover)
	files, err := fenced.NewS3Store(client, *bucket, fenced.PaddedBodies)
	require.NoError(t, err)
	for _, token := range []uint64{1, 2} {
		require.NoError(t, files.Put(ctx, token, "reports/large", strings.NewReader(strings.Repeat("x", 9<<20))))
	}
	require.NoError(t, files.Delete(ctx, 3, "reports/large"))
	require.Equal(t, []string{"reports/large", "reports/locks/publish", "reports/today.json"}, server.Keys())

	key, today := aws.String("reports/today.json"), string(server.Body("reports/today.json"))
	put := func(key *string, ifMatch, ifNoneMatch *string) error {
		_, err := client.PutObject(ctx, &s3.PutObjectInput{
			Bucket:      bucket,
			Key:         key,
			Body:        strings.NewReader("{}"),
			IfMatch:     ifMatch,
			IfNoneMatch: ifNoneMatch,
		})
		return err
	}
	remove := func(key, ifMatch *string) error {
		_, err := client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: bucket, Key: key, IfMatch: ifMatch})
		return err
	}
	upload := func(ifNoneMatch *string) error {
		up, err := client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{
			Bucket: bucket,
			Key:    aws.String("reports/upload"),
		})
		require.NoError(t, err)
		part, err := client.UploadPart(ctx, &s3.UploadPartInput{
			Bucket: bucket, Key: aws.String("reports/upload"), UploadId: up.UploadId, PartNumber: aws.Int32(1),
			Body: strings.NewReader("x"),
		})
		require.NoError(t, err)
		_, err = client.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
			Bucket: bucket, Key: aws.String("reports/upload"), UploadId: up.UploadId, IfNoneMatch: ifNoneMatch,
			MultipartUpload: &types.CompletedMultipartUpload{Parts: []types.CompletedPart{{ETag: part.ETag,
				PartNumber: aws.Int32(1)}}},
		})
		return err
	}
	for what, err := range map[string]error{
		"PUT": put(key, nil, nil), "DELETE": remove(key, nil), "DELETE of any version": remove(key, aws.String("*")),
		"completion": upload(nil),
	} {
		refused, ok := errors.AsType[smithy.APIError](err)
		require.True(t, ok, "%s: %v", what, err)
		require.Equal(t, "AccessDenied", refused.ErrorCode(), what)
	}
	require.Equal(t, today, string(server.Body(*key)))
	require.NoError(t, upload(aws.String("*")))
	other := aws.String("other/today.json")
	require.NoError(t, put(other, nil, nil), "another prefix")
	require.NoError(t, remove(other, nil))
}
