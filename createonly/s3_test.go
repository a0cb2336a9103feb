package createonly_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/createonly"
	"github.com/leasehold-go/leasehold/internal/testkit/fakes3"
	"github.com/leasehold-go/leasehold/internal/testkit/testsize"
	"github.com/leasehold-go/leasehold/storetest"
)

// asked notes the requests of a client, and answers some of them instead of the server.
type asked struct {
	http.RoundTripper
	mu       sync.Mutex
	requests []*http.Request
	answer   func(*http.Request) *http.Response
	change   func(*http.Request, *http.Response)
}

func (a *asked) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	a.requests = append(a.requests, r)
	a.mu.Unlock()
	if a.answer != nil {
		if got := a.answer(r); got != nil {
			got.Request = r
			return got, nil
		}
	}
	resp, err := a.RoundTripper.RoundTrip(r)
	if err == nil && a.change != nil {
		a.change(r, resp)
	}
	return resp, err
}

func reply(status int, contentType, body string) *http.Response {
	return &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {contentType}},
		Body:   io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
	}
}

func newS3(server *fakes3.Server, opts ...createonly.S3Option) (*createonly.Store, *asked) {
	a := &asked{RoundTripper: fakes3.Transport{Handler: server}}
	return createonly.New(createonly.NewS3(fakes3.NewClient(a), fakes3.Bucket, opts...)), a
}

func TestS3Conformance(t *testing.T) {
	for name, c := range map[string]struct {
		server *fakes3.Server
		opts   []createonly.S3Option
	}{
		"If-Match is refused": {&fakes3.Server{CreateOnly: true, PageSize: 5}, nil},
		"with a prefix": {&fakes3.Server{CreateOnly: true},
			[]createonly.S3Option{createonly.WithKeyPrefix("apps/a/")}},
		"by a header": {&fakes3.Server{CreateOnly: true, CreateHeader: "x-oss-forbid-overwrite"},
			[]createonly.S3Option{createonly.WithCreateHeader("x-oss-forbid-overwrite", "true")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := newS3(c.server, c.opts...)
			storetest.Run(t, func(*testing.T) leasehold.Store {
				return s
			}, storetest.MissingIsPreconditionFailed(), storetest.Rounds(testsize.Pick(5, 100)))
			for _, key := range c.server.Keys() {
				require.Equal(t, name == "with a prefix", strings.HasPrefix(key, "apps/a/storetest/"))
			}
		})
	}
}

func TestCheckStoreOnS3(t *testing.T) {
	s, _ := newS3(&fakes3.Server{CreateOnly: true})
	_, err := leasehold.CheckStore(t.Context(), s, "locks/check")
	require.NoError(t, err)
	s, _ = newS3(&fakes3.Server{IgnoreConditions: true})
	_, err = leasehold.CheckStore(t.Context(), s, "locks/check")
	require.ErrorIs(t, err, leasehold.ErrUnsafeStore)
	// a header that the server does not know
	s, _ = newS3(&fakes3.Server{}, createonly.WithCreateHeader("x-oss-forbid-overwrite", "true"))
	_, err = leasehold.CheckStore(t.Context(), s, "locks/check")
	require.ErrorIs(t, err, leasehold.ErrUnsafeStore)
	// a server that does not know If-None-Match
	s, _ = newS3(&fakes3.Server{CreateHeader: "x-oss-forbid-overwrite"})
	_, err = leasehold.CheckStore(t.Context(), s, "locks/check")
	require.ErrorIs(t, err, leasehold.ErrUnsafeStore)
}

// A create is one request, whatever its answer is.
func TestACreateIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, header := range []string{"If-None-Match", "X-Oss-Forbid-Overwrite"} {
			var opts []createonly.S3Option
			if header != "If-None-Match" {
				opts = append(opts, createonly.WithCreateHeader(header, "true"))
			}
			s, a := newS3(&fakes3.Server{}, opts...)
			puts := 0
			a.answer = func(r *http.Request) *http.Response {
				if r.Method != http.MethodPut {
					return nil
				}
				puts++
				require.NotEmpty(t, r.Header.Get(header))
				require.Contains(t, r.Header.Get("Authorization"), strings.ToLower(header))
				require.Equal(t, header == "If-None-Match", r.Header.Get("If-None-Match") != "")
				return reply(http.StatusInternalServerError, "application/xml",
					fakes3.Error("InternalError", "We encountered an internal error."))
			}
			_, err := s.PutIfNoneMatch(t.Context(), key, []byte("x"))
			require.Error(t, err)
			require.NotErrorIs(t, err, leasehold.ErrPreconditionFailed)
			require.NotErrorIs(t, err, leasehold.ErrPermanent)
			require.Equal(t, 1, puts)
		}
	})
}

func TestRequestsOfS3HaveNoIfMatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &fakes3.Server{CreateOnly: true}
		s, a := newS3(server)
		lock, err := leasehold.NewLock(s, key)
		require.NoError(t, err)
		require.NoError(t, lock.Do(t.Context(), func(context.Context, *leasehold.Lease) error {
			time.Sleep(5 * time.Minute)
			return nil
		}))
		time.Sleep(time.Minute)
		deletes := 0
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, r := range a.requests {
			require.Empty(t, r.Header.Get("If-Match"))
			if r.Method == http.MethodDelete {
				deletes++
			}
		}
		require.Greater(t, deletes, 30)
		require.Len(t, server.Keys(), createonly.Keep)
	})
}

func TestWithoutTheRightTo(t *testing.T) {
	denied := reply(http.StatusForbidden, "application/xml", fakes3.Error("AccessDenied", "Access Denied"))
	for name, c := range map[string]struct {
		denies func(*http.Request) bool
		says   string
	}{
		"list": {lists, "s3:ListBucket on the bucket"},
		"read": {func(r *http.Request) bool { return r.Method == http.MethodGet && !lists(r) }, "s3:GetObject"},
		"put":  {func(r *http.Request) bool { return r.Method == http.MethodPut }, "s3:PutObject"},
	} {
		t.Run(name, func(t *testing.T) {
			server := &fakes3.Server{}
			s, a := newS3(server)
			if name == "read" {
				_, err := s.PutIfNoneMatch(t.Context(), key, []byte("{}"))
				require.NoError(t, err)
			}
			before := server.Keys()
			a.answer = func(r *http.Request) *http.Response {
				if !c.denies(r) {
					return nil
				}
				return denied
			}
			lock, err := leasehold.NewLock(s, key, leasehold.WithLogger(slog.New(slog.DiscardHandler)))
			require.NoError(t, err)
			_, err = lock.Acquire(t.Context())
			require.ErrorIs(t, err, leasehold.ErrPermanent)
			require.ErrorContains(t, err, c.says)
			require.Equal(t, before, server.Keys())
		})
	}
}

// An answer that is not an S3's must not look like an empty list: the lock would start again.
func TestAPageInsteadOfAList(t *testing.T) {
	for name, body := range map[string]string{
		"html": "<!DOCTYPE html><title>Sign in</title>", "nothing": "", "another document": "<ok/>",
		"a list of another prefix": `<ListBucketResult><Name>bucket</Name><Prefix>x</Prefix></ListBucketResult>`,
	} {
		t.Run(name, func(t *testing.T) {
			server := &fakes3.Server{}
			s, a := newS3(server)
			_, err := s.PutIfNoneMatch(t.Context(), key, []byte("version 1"))
			require.NoError(t, err)
			contentType := "application/xml"
			if name == "html" {
				contentType = "text/html"
			}
			a.answer = func(r *http.Request) *http.Response {
				if r.Method == http.MethodGet {
					return reply(http.StatusOK, contentType, body)
				}
				return nil
			}
			_, err = s.Get(t.Context(), key)
			require.Error(t, err)
			require.NotErrorIs(t, err, leasehold.ErrNotExist)
			require.NotErrorIs(t, err, leasehold.ErrPermanent, "it may pass")
			_, err = s.PutIfNoneMatch(t.Context(), key, []byte("x"))
			require.Error(t, err)
			require.NotErrorIs(t, err, leasehold.ErrPreconditionFailed)
			require.Len(t, server.Keys(), 1)
		})
	}
}

// A page that is cut off must not pass for the whole list, because it need not have the highest
// version.
func TestAListThatDoesNotGoOn(t *testing.T) {
	s, a := newS3(&fakes3.Server{PageSize: 5})
	etag, err := s.PutIfNoneMatch(t.Context(), key, []byte("version 1"))
	require.NoError(t, err)
	for range 9 {
		etag, err = s.PutIfMatch(t.Context(), key, []byte("x"), etag)
		require.NoError(t, err)
	}
	a.change = func(r *http.Request, resp *http.Response) {
		if !lists(r) {
			return
		}
		from, rest, _ := strings.Cut(content(resp), "<NextContinuationToken>")
		_, to, _ := strings.Cut(rest, "</NextContinuationToken>")
		setContent(resp, from+to)
	}
	_, err = s.Get(t.Context(), key)
	require.ErrorContains(t, err, "the answer to LIST is cut off")
	require.NotErrorIs(t, err, leasehold.ErrNotExist)
}

// Some servers end a LIST with a token that is empty, or left over from the page before.
func TestAListThatEndsWithAToken(t *testing.T) {
	for _, token := range []string{"", "left-over"} {
		server := &fakes3.Server{PageSize: 5}
		s, a := newS3(server)
		a.change = func(r *http.Request, resp *http.Response) {
			if body := content(resp); lists(r) && !strings.Contains(body, "<IsTruncated>true") {
				setContent(resp, strings.Replace(body, "</ListBucketResult>",
					"<NextContinuationToken>"+token+"</NextContinuationToken></ListBucketResult>", 1))
			}
		}
		etag, err := s.PutIfNoneMatch(t.Context(), key, []byte("version 1"))
		require.NoError(t, err)
		for range 9 {
			etag, err = s.PutIfMatch(t.Context(), key, []byte("x"), etag)
			require.NoError(t, err)
		}
		before := len(a.requests)
		_, err = s.Get(t.Context(), key)
		require.NoError(t, err)
		require.Len(t, a.requests[before:], 2+1+2, "two pages, a GET, two pages")
	}
}

// A token that is given again leads nowhere.
func TestAListThatGoesInACircle(t *testing.T) {
	s, a := newS3(&fakes3.Server{})
	a.answer = func(r *http.Request) *http.Response {
		if !lists(r) {
			return nil
		}
		return reply(http.StatusOK, "application/xml", "<ListBucketResult><Prefix>"+r.URL.Query().Get("prefix")+
			"</Prefix><IsTruncated>true</IsTruncated><NextContinuationToken>x</NextContinuationToken>"+
			"</ListBucketResult>")
	}
	_, err := s.Get(t.Context(), key)
	require.ErrorContains(t, err, "does not say how to continue")
	require.Len(t, a.requests, 2)
}

// As on Storj: pages in no order, all of which are read if there are many.
func TestAListInNoOrder(t *testing.T) {
	server := &fakes3.Server{}
	s, a := newS3(server)
	const versions = 2*createonly.Listed + 500
	names := make([]string, versions)
	for n := range versions {
		names[n] = object(n + 1) // the highest come last
		server.Put(names[n], fmt.Append(nil, "version ", n+1))
	}
	a.answer = func(r *http.Request) *http.Response {
		if !lists(r) {
			return nil
		}
		present := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return server.Body(name) == nil })
		from, _ := strconv.Atoi(r.URL.Query().Get("continuation-token"))
		to := min(from+1000, len(present))
		var page strings.Builder
		fmt.Fprintf(&page, "<ListBucketResult><Prefix>%s</Prefix><IsTruncated>%v</IsTruncated>"+
			"<NextContinuationToken>%d</NextContinuationToken>", r.URL.Query().Get("prefix"), to < len(present), to)
		for _, name := range present[from:to] {
			fmt.Fprintf(&page, "<Contents><Key>%s</Key></Contents>", name)
		}
		return reply(http.StatusOK, "application/xml", page.String()+"</ListBucketResult>")
	}
	o, err := s.Get(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, fmt.Sprint("version ", versions), string(o.Body))
}

func content(resp *http.Response) string {
	body, _ := io.ReadAll(resp.Body)
	setContent(resp, string(body))
	return string(body)
}

func setContent(resp *http.Response, body string) {
	resp.Body, resp.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
}

func TestWrongArgumentsOfS3(t *testing.T) {
	client := fakes3.NewClient(nil)
	for says, objects := range map[string]*createonly.S3{
		"the S3 client is nil":     createonly.NewS3((*s3.Client)(nil), fakes3.Bucket),
		"NewS3Store":               nil,
		`bucket "s3://x" is a URL`: createonly.NewS3(client, "s3://x"),
		`key prefix "/"`:           createonly.NewS3(client, fakes3.Bucket, createonly.WithKeyPrefix("/")),
		"an S3Option is nil":       createonly.NewS3(client, fakes3.Bucket, nil),
		`the header's name "" or value "yes"`: createonly.NewS3(client, fakes3.Bucket,
			createonly.WithCreateHeader("", "yes")),
	} {
		s := createonly.New(objects)
		_, err := leasehold.NewLock(s, key)
		require.Error(t, err, says)
		if objects != nil {
			require.ErrorContains(t, err, says)
		}
		_, err = s.PutIfMatch(t.Context(), key, nil, "1-x-y")
		require.Error(t, err, says)
	}
	require.NoError(t, createonly.New(createonly.NewS3(client, fakes3.Bucket)).Describe().Err)
}

// A bucket that does not exist, and a client that cannot reach one, end an acquisition at once.
func TestNoBucket(t *testing.T) {
	a := &asked{RoundTripper: fakes3.Transport{Handler: &fakes3.Server{}}}
	s := createonly.New(createonly.NewS3(fakes3.NewClient(a), "another-bucket"))
	lock, err := leasehold.NewLock(s, key)
	require.NoError(t, err)
	_, err = lock.Acquire(t.Context())
	require.ErrorIs(t, err, leasehold.ErrPermanent)
	require.ErrorContains(t, err, "create the bucket")
	require.Len(t, a.requests, 1, fmt.Sprint(a.requests))
}

func lists(r *http.Request) bool { return r.URL.Query().Has("list-type") }
