package fakes3_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/testkit/fakes3"
)

// send sends one unsigned request and returns status, headers and body.
func send(t *testing.T, s http.Handler, method, path, body string, headers ...string) (int, http.Header, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://s3.test"+path, strings.NewReader(body))
	require.NoError(t, err)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := fakes3.Transport{Handler: s}.RoundTrip(r)
	require.NoError(t, err)
	got, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, resp.Header, string(got)
}

func TestConditionsAreThoseOfS3(t *testing.T) {
	const etagOfOne = `"f97c5d29941bfb1b2fdab0874906ab82"`
	for _, c := range []struct {
		name, method, header, value string
		exists                      bool
		status                      int
		code                        string
	}{
		{"create", "PUT", "If-None-Match", "*", false, 200, ""},
		{"create over an object", "PUT", "If-None-Match", "*", true, 412, "PreconditionFailed"},
		{"create unless a certain ETag", "PUT", "If-None-Match", etagOfOne, true, 501, "NotImplemented"},
		{"update", "PUT", "If-Match", etagOfOne, true, 200, ""},
		{"update of another version", "PUT", "If-Match", `"0"`, true, 412, "PreconditionFailed"},
		{"update without the quotes", "PUT", "If-Match", strings.Trim(etagOfOne, `"`), true, 412, "PreconditionFailed"},
		{"update of a missing key", "PUT", "If-Match", etagOfOne, false, 404, "NoSuchKey"},
		{"update of anything", "PUT", "If-Match", "*", true, 200, ""},
		{"update with an empty condition", "PUT", "If-Match", "", true, 400, "InvalidArgument"},
		{"unconditional write", "PUT", "X-Nothing", "x", true, 200, ""},
		{"delete", "DELETE", "If-Match", etagOfOne, true, 204, ""},
		{"delete of another version", "DELETE", "If-Match", `"0"`, true, 412, "PreconditionFailed"},
		{"delete of a missing key, conditional", "DELETE", "If-Match", etagOfOne, false, 404, "NoSuchKey"},
		{"delete of a missing key", "DELETE", "X-Nothing", "x", false, 204, ""},
		{"read", "GET", "X-Nothing", "x", true, 200, ""},
		{"read of a missing key", "GET", "X-Nothing", "x", false, 404, "NoSuchKey"},
		{"read unless changed", "GET", "If-Match", `"0"`, true, 412, "PreconditionFailed"},
		{"read if changed", "GET", "If-None-Match", etagOfOne, true, 304, ""},
		{"read if changed, and it is", "GET", "If-None-Match", `"0"`, true, 200, ""},
		{"head of a missing key", "HEAD", "X-Nothing", "x", false, 404, ""},
		{"another method", "PATCH", "X-Nothing", "x", true, 405, "MethodNotAllowed"},
		{"checksum in a trailer", "PUT", "Content-Encoding", "aws-chunked", true, 501, "NotImplemented"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &fakes3.Server{}
			if c.exists {
				require.Equal(t, etagOfOne, s.Put("key", []byte("one")))
			}
			status, _, body := send(t, s, c.method, "/bucket/key", "two", c.header, c.value)
			require.Equal(t, c.status, status)
			if c.code != "" {
				require.Contains(t, body, "<Code>"+c.code+"</Code>")
			}
			switch {
			case c.method == "PUT" && status == 200:
				require.Equal(t, "two", string(s.Body("key")))
			case c.method == "DELETE" && status == 204 || !c.exists:
				require.Empty(t, s.Keys())
			default:
				require.Equal(t, "one", string(s.Body("key")), "a refused request changes nothing")
			}
		})
	}
}

func TestWeaknessesAreSwitches(t *testing.T) {
	s := &fakes3.Server{IgnoreDeleteCondition: true}
	s.Put("key", []byte("one"))
	status, _, _ := send(t, s, "PUT", "/bucket/key", "two", "If-Match", `"0"`)
	require.Equal(t, 412, status)
	status, _, _ = send(t, s, "DELETE", "/bucket/key", "", "If-Match", `"0"`)
	require.Equal(t, 204, status)
	require.Empty(t, s.Keys())

	s = &fakes3.Server{IgnoreConditions: true}
	s.Put("key", []byte("one"))
	status, _, _ = send(t, s, "PUT", "/bucket/key", "two", "If-None-Match", "*")
	require.Equal(t, 200, status)
	require.Equal(t, "two", string(s.Body("key")))

	s = &fakes3.Server{RandomETags: true}
	require.NotEqual(t, s.Put("key", []byte("one")), s.Put("key", []byte("one")))
}

func TestOtherBucketsAndSubresourcesAreNotServed(t *testing.T) {
	status, _, body := send(t, &fakes3.Server{}, "GET", "/other/key", "")
	require.Equal(t, 404, status)
	require.Contains(t, body, "NoSuchBucket")
	status, _, _ = send(t, &fakes3.Server{}, "GET", "/bucket/key?tagging", "")
	require.Equal(t, 501, status)
	status, _, _ = send(t, &fakes3.Server{}, "GET", "/bucket/", "")
	require.Equal(t, 501, status)
}

// The SDK's client in virtual time: reads return the metadata, keys are used unchanged, and dates
// are whole seconds of the bubble.
func TestRealClientInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakes3.Server{}
		client := fakes3.NewClient(fakes3.Transport{Handler: s})
		plain := func(o *s3.Options) { o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired }
		const key = "a b+c%20d/é?&#\"'"
		time.Sleep(1700 * time.Millisecond)
		put, err := client.PutObject(t.Context(), &s3.PutObjectInput{
			Bucket: aws.String(fakes3.Bucket), Key: aws.String(key), Body: bytes.NewReader([]byte("body")),
			Metadata: map[string]string{"fence": "7"}, CacheControl: aws.String("no-store"),
		}, plain)
		require.NoError(t, err)
		require.Equal(t, []string{key}, s.Keys())

		time.Sleep(time.Hour)
		got, err := client.GetObject(t.Context(), &s3.GetObjectInput{
			Bucket: aws.String(fakes3.Bucket),
			Key:    aws.String(key),
		})
		require.NoError(t, err)
		body, err := io.ReadAll(got.Body)
		require.NoError(t, err)
		require.Equal(t, "body", string(body))
		require.Equal(t, put.ETag, got.ETag)
		require.Equal(t, map[string]string{"fence": "7"}, got.Metadata)
		require.Equal(t, "no-store", *got.CacheControl)
		require.Equal(t, time.Date(2000, 1, 1, 0, 0, 1, 0, time.UTC), got.LastModified.UTC())

		head, err := client.HeadObject(t.Context(), &s3.HeadObjectInput{
			Bucket: aws.String(fakes3.Bucket),
			Key:    aws.String(key),
		})
		require.NoError(t, err)
		require.EqualValues(t, 4, *head.ContentLength)

		_, err = client.GetObject(t.Context(), &s3.GetObjectInput{
			Bucket: aws.String(fakes3.Bucket),
			Key:    aws.String("missing"),
		})
		var api smithy.APIError
		require.ErrorAs(t, err, &api)
		require.Equal(t, "NoSuchKey", api.ErrorCode())
	})
}

func TestHandlersCanBreakTheConnection(t *testing.T) {
	abort := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	r, err := http.NewRequestWithContext(t.Context(), "GET", "http://s3.test/bucket/key", nil)
	require.NoError(t, err)
	_, err = fakes3.Transport{Handler: abort}.RoundTrip(r)
	require.ErrorIs(t, err, io.EOF)

	bug := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(errors.New("bug")) })
	require.Panics(t, func() { _, _ = fakes3.Transport{Handler: bug}.RoundTrip(r) })
}
