package leasehold_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/textproto"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"crypto/tls"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/assert"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/fenced"
	"github.com/leasehold-go/leasehold/internal/testkit/bubble"
	"github.com/leasehold-go/leasehold/internal/testkit/fakes3"
	"github.com/leasehold-go/leasehold/internal/testkit/faultproxy"
	"github.com/leasehold-go/leasehold/internal/testkit/storehttptest"
	"github.com/leasehold-go/leasehold/internal/testkit/testctx"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
	"github.com/leasehold-go/leasehold/storetest"
)

// wire is one client's way to a fake S3.
type wire struct {
	*fakes3.Wire
	store *leasehold.S3Store
}

func newWire(server http.Handler, opts ...leasehold.S3Option) *wire {
	w := fakes3.NewWire(server)
	return &wire{w, leasehold.NewS3Store(fakes3.NewClient(w), fakes3.Bucket, opts...)}
}

const someETag = `"etag"`

// overHTTP is what the store has in common with others.
var overHTTP = storehttptest.Store{
	New: func(_ *testing.T, endpoint string, over http.RoundTripper, slack time.Duration) leasehold.Store {
		client := s3.New(fakes3.NewClient(over).Options(), func(o *s3.Options) { o.BaseEndpoint = &endpoint })
		if slack == 0 {
			return leasehold.NewS3Store(client, fakes3.Bucket)
		}
		return leasehold.NewS3Store(client, fakes3.Bucket, leasehold.WithServerClock(slack))
	},
	Server: func() (http.Handler, func(key string, body []byte)) {
		server := &fakes3.Server{}
		return server, func(key string, body []byte) { server.Put(key, body) }
	},
	Exists: refusal(http.StatusPreconditionFailed, "PreconditionFailed"),
	ETag:   someETag, Hint: hint,
}

var (
	storeCalls  = storehttptest.Calls
	requireOnly = storehttptest.RequireOnly
	requireText = storehttptest.RequireText
)

func TestS3StoreConforms(t *testing.T) {
	for name, server := range map[string]*fakes3.Server{
		"strict":               {},
		"ETags never repeat":   {RandomETags: true},
		"DELETE unconditional": {IgnoreDeleteCondition: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // for one check waits in real time
			w := newWire(server, leasehold.WithKeyPrefix("some/prefix/"), leasehold.WithServerClock(2*time.Second))
			opts := []storetest.Option{
				storetest.Rounds(10),
				storetest.Plant(func(key string, body []byte) error {
					server.Put("some/prefix/"+key, body)
					return nil
				}),
			}
			if server.IgnoreDeleteCondition {
				opts = append(opts, storetest.IgnoresDeleteCondition())
			}
			storetest.Run(t, func(*testing.T) leasehold.Store { return w.store }, opts...)
		})
	}
}

func TestS3AnswersBecomeTheErrorsOfStore(t *testing.T) {
	permanent, unsafe := leasehold.ErrPermanent, leasehold.ErrUnsafeStore
	for _, c := range []struct {
		status int
		code   string // of an S3 error; "": no body
		body   string // instead
		want   error  // nil: may pass
		says   string

		conflict bool  // another write is under way
		wantPut  error // of writes, if it differs

		wantCreate error // of PutIfNoneMatch, if it differs
	}{
		{status: 404, code: "NoSuchKey", want: leasehold.ErrNotExist},
		{status: 404, code: "NoSuchBucket", want: permanent, says: "create the bucket"},
		{status: 404, code: "NotFound"},
		{status: 404},
		{status: 404, body: storehttptest.Page},
		{status: 412, code: "PreconditionFailed", want: leasehold.ErrPreconditionFailed},
		{status: 412, code: "ConditionNotMet", want: leasehold.ErrPreconditionFailed},
		{status: 412, want: leasehold.ErrPreconditionFailed},
		{status: 412, body: storehttptest.Page}, // a proxy's: see TestRepliesThatAreNoS3s
		{status: 409, code: "ConditionalRequestConflict", conflict: true},
		{status: 409, code: "OperationAborted", conflict: true},
		{status: 409, code: "ConcurrentModification", conflict: true},
		{status: 409, code: "FileAlreadyExists", wantCreate: leasehold.ErrPreconditionFailed},
		{status: 409, code: "ObjectAlreadyExists", wantCreate: leasehold.ErrPreconditionFailed},
		{status: 503, code: "ObjectAlreadyExists"},
		{status: 409, code: "ObjectParentIsFile", want: permanent, says: "no key can be below another one"},
		{status: 409, code: "ExistingObjectIsDirectory", want: permanent, says: "no key can be below another one"},
		{status: 409, code: "InvalidBucketState", says: "InvalidBucketState: as told"},
		{status: 409},
		{status: 409, body: storehttptest.Page},
		{status: 400, code: "NotImplemented", want: permanent, wantPut: unsafe, says: "does not implement"},
		{status: 501, code: "NotImplemented", want: permanent, wantPut: unsafe, says: "does not implement"},
		{status: 501, want: permanent, wantPut: unsafe},
		{status: 501, body: storehttptest.Page},
		{status: 403, code: "AccessDenied", want: permanent, says: "check the credentials"},
		{status: 403, code: "SignatureDoesNotMatch", want: permanent, says: "wrong secret key"},
		{status: 403, code: "InvalidAccessKeyId", want: permanent, says: "wrong access key"},
		{status: 403, want: permanent},
		{status: 401, want: permanent},
		{status: 400, code: "ExpiredToken", says: "ExpiredToken"},
		{status: 403, code: "ExpiredToken", says: "ExpiredToken"},
		{status: 403, code: "RequestTimeTooSkewed", says: "RequestTimeTooSkewed"},
		{status: 400, code: "RequestTimeout"},
		{status: 400, code: "RequestTimeoutException"},
		{status: 400, code: "RequestLimitExceeded"},
		{status: 400, code: "KMS.ThrottlingException"},
		{status: 400, code: "KMS.DisabledException", want: permanent, says: "KMS.DisabledException"},
		{status: 400, code: "IncompleteBody"},
		{status: 400, code: "InvalidArgument", want: permanent},
		{status: 400, code: "KeyTooLongError", want: permanent, says: "check bucket name, key and endpoint"},
		{status: 400, code: "InvalidBucketName", want: permanent},
		{status: 400, want: permanent},
		{status: 400, code: "AuthorizationHeaderMalformed", want: permanent, says: "region"},
		{status: 301, code: "PermanentRedirect", want: permanent, says: "region"},
		{status: 307, code: "TemporaryRedirect", want: permanent, says: "endpoint"},
		{status: 304, code: "NotModified"},
		{status: 405, code: "MethodNotAllowed", want: permanent},
		{status: 429, code: "TooManyRequests"},
		{status: 500, code: "InternalError"},
		{status: 502, body: storehttptest.Page},
		{status: 503, code: "SlowDown"},
		{status: 503, code: "ServiceUnavailable"},
		{status: 503},
		{status: 504},
	} {
		for name, call := range storeCalls {
			t.Run(strings.TrimSpace(fmt.Sprint(name, " ", c.status, " ", c.code)), func(t *testing.T) {
				body := c.body
				if c.code != "" {
					body = fakes3.Error(c.code, "as told")
				}
				w := newWire(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", http.DetectContentType([]byte(body)))
					if c.code != "" {
						w.Header().Set("X-Amz-Request-Id", "1")
					}
					w.WriteHeader(c.status)
					_, _ = io.WriteString(w, body)
				}))
				etag, err := call(t.Context(), w.store, someETag)
				want := c.want
				if c.wantPut != nil && strings.HasPrefix(name, "Put") {
					want = c.wantPut
				}
				if c.wantCreate != nil && name == "PutIfNoneMatch" {
					want = c.wantCreate
				}
				requireOnly(t, want, err)
				require.Equal(t, c.conflict, errors.Is(err, leasehold.ErrConflict))
				require.Empty(t, etag)
				require.ErrorContains(t, err, c.says)
				requireText(t, err)
				require.ErrorContains(t, err, `"`+storehttptest.Key, "which object")
				require.ErrorContains(t, err, `"`+fakes3.Bucket+`"`, "in which bucket")
				sent := 1
				if name == "PutIfMatch" && errors.Is(err, leasehold.ErrPreconditionFailed) {
					sent++ // a read that asks whether it was the ETag's form
				}
				require.Equal(t, sent, w.Count(), "the SDK's own retries are off")
			})
		}
	}
}

func TestDeniedRequestsNameThePermission(t *testing.T) {
	w := newWire(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, fakes3.Error("AccessDenied", "Access Denied"))
	}))
	for name, permissions := range map[string][]string{
		"Get":            {"s3:GetObject", "s3:ListBucket"},
		"PutIfNoneMatch": {"s3:PutObject"},
		"PutIfMatch":     {"s3:PutObject", "s3:GetObject"},
		"DeleteIfMatch":  {"s3:DeleteObject", "s3:GetObject"},
	} {
		_, err := storeCalls[name](t.Context(), w.store, someETag)
		for _, p := range permissions {
			require.ErrorContains(t, err, p, name)
		}
	}
}

func TestOneStoreCallIsOneRequest(t *testing.T) { overHTTP.OneRequest(t) }

func TestHeadersOfRequests(t *testing.T) {
	server := &fakes3.Server{}
	w := newWire(server)
	var sent http.Header
	w.Decide = func(r *http.Request) faultproxy.Fault { sent = r.Header.Clone(); return faultproxy.Fault{} }
	check := func(ifMatch, ifNoneMatch []string) {
		t.Helper()
		require.Equal(t, ifMatch, sent["If-Match"])
		require.Equal(t, ifNoneMatch, sent["If-None-Match"])
		require.NotEqual(t, "aws-chunked", sent.Get("Content-Encoding"))
		for name := range sent {
			name = strings.ToLower(name)
			require.False(t, strings.Contains(name, "checksum") || strings.Contains(name, "trailer"),
				"%s: other servers than Amazon's refuse it", name)
		}
	}

	etag, err := w.store.PutIfNoneMatch(t.Context(), key, []byte("one"))
	require.NoError(t, err)
	check(nil, []string{"*"})
	require.Equal(t, "no-store", sent.Get("Cache-Control"))
	require.Equal(t, "application/json", sent.Get("Content-Type"))

	require.True(t, strings.HasPrefix(etag, `"`), "verbatim, with its quotes: %s", etag)
	next, err := w.store.PutIfMatch(t.Context(), key, []byte("two"), etag)
	require.NoError(t, err)
	check([]string{etag}, nil)
	require.Equal(t, "no-store", sent.Get("Cache-Control"))

	o, err := w.store.Get(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, next, o.ETag)
	check(nil, nil)

	require.NoError(t, w.store.DeleteIfMatch(t.Context(), key, o.ETag))
	check([]string{o.ETag}, nil)
}

// Servers other than Amazon's have ETags of any shape.
func TestETagsAreOpaque(t *testing.T) {
	for _, etag := range []string{`"0123456789abcdef0123456789abcdef-1"`, `W/"weak"`, "unquoted",
		`"with \"quotes\" and ; commas, inside"`, `"*"`} {
		var sent http.Header
		w := newWire(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			sent = r.Header
			w.Header().Set("ETag", etag)
		}))
		got, err := w.store.PutIfNoneMatch(t.Context(), key, nil)
		require.NoError(t, err)
		require.Equal(t, etag, got)
		o, err := w.store.Get(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, etag, o.ETag)
		_, err = w.store.PutIfMatch(t.Context(), key, nil, etag)
		require.NoError(t, err)
		require.Equal(t, etag, sent.Get("If-Match"))
	}
}

func TestEmptyETagIsRefusedUnsent(t *testing.T) {
	overHTTP.WrongETags(t, map[string]error{"": leasehold.ErrPermanent})
}

func TestObjectThatIsTooLargeIsLeftAlone(t *testing.T) { overHTTP.TooLarge(t) }

func TestKeyPrefix(t *testing.T) {
	server := &fakes3.Server{}
	s := newWire(server, leasehold.WithKeyPrefix("a/b-")).store
	_, err := s.PutIfNoneMatch(t.Context(), "c/d", nil)
	require.NoError(t, err)
	require.Equal(t, []string{"a/b-c/d"}, server.Keys())
	_, err = s.Get(t.Context(), "c/e")
	require.ErrorContains(t, err, `"a/b-c/e"`, "errors name the whole key")
}

func TestHangingServerIsLeftAfterTenSeconds(t *testing.T) { overHTTP.Deadline(t) }

// roundTrip is an http.RoundTripper for answers that no handler can give.
type roundTrip func(r *http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// stream is a response body that counts what is read of it.
type stream struct {
	io.Reader
	read   int
	closed bool
}

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	s.read += n
	return n, err
}

func (s *stream) Close() error { s.closed = true; return nil }

// answering returns a store whose server gives this answer to everything.
func answering(status int, h http.Header, length int64, body io.ReadCloser) *leasehold.S3Store {
	return leasehold.NewS3Store(fakes3.NewClient(roundTrip(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: h, ContentLength: length, Body: body, Request: r}, nil
	})), fakes3.Bucket)
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestEndlessBodyIsReadNoFurtherThanTheLimit(t *testing.T) {
	body := &stream{Reader: endless{}}
	o, err := answering(200, http.Header{"Etag": {`"etag"`}}, -1, body).Get(t.Context(), key)
	requireOnly(t, leasehold.ErrCorruptRecord, err)
	require.Equal(t, `"etag"`, o.ETag, "so that Break can repair it")
	require.Empty(t, o.Body)
	require.LessOrEqual(t, body.read, leasehold.MaxObjectSize+1)
	require.True(t, body.closed)
}

func TestTruncatedBodyIsNoCorruptRecord(t *testing.T) {
	for name, body := range map[string]*stream{
		"cut off unnoticed": {Reader: strings.NewReader(`{"expires_at":`)},
		"as the HTTP client has it": {Reader: io.MultiReader(strings.NewReader(`{"expires_at":`),
			errReader{io.ErrUnexpectedEOF})},
		"the connection breaks down": {Reader: errReader{errors.New("connection reset by peer")}},
	} {
		t.Run(name, func(t *testing.T) {
			h := http.Header{"Etag": {`"etag"`}, "Content-Length": {"100"}}
			_, err := answering(200, h, 100, body).Get(t.Context(), key)
			requireOnly(t, nil, err)
			require.True(t, body.closed)
		})
	}
}

type errReader struct{ error }

func (r errReader) Read([]byte) (int, error) { return 0, r.error }

func TestAgeIsToldByTheServersClockAlone(t *testing.T) { overHTTP.Ages(t) }

func TestGarbageForLastModifiedMayPass(t *testing.T) {
	h := http.Header{"Etag": {`"etag"`}, "Last-Modified": {"yesterday"}}
	_, err := answering(200, h, 0, http.NoBody).Get(t.Context(), key)
	requireOnly(t, nil, err)
}

func TestRequestCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &fakes3.Server{}
		a := newWire(server)
		lock := newLock(t, a.store)
		from := 0
		expect := func(step string, methods ...string) {
			t.Helper()
			require.Equal(t, methods, a.Methods(from), step)
			from = a.Count()
		}
		lease := acquire(t, lock)
		expect("cold acquire, the first of the process", "GET", "PUT", "PUT", "PUT")
		require.NoError(t, lease.Renew(t.Context()))
		expect("renew", "PUT")
		require.NoError(t, lease.Release(t.Context()))
		expect("release", "PUT")
		lease = acquire(t, lock)
		expect("warm acquire", "PUT")
		other, err := leasehold.NewLock(a.store, "locks/other")
		require.NoError(t, err)
		second := acquire(t, other)
		expect("cold acquire", "GET", "PUT")
		require.NoError(t, second.Release(t.Context()))
		expect("release", "PUT")

		time.Sleep(5 * time.Minute)
		renewals := a.Methods(from)
		require.InDelta(t, 60, len(renewals), 4, "every third of the TTL, up to a twentieth early")
		require.NotContains(t, renewals, "GET")

		b := newWire(server)
		ctx := testctx.Within(t, 5*time.Minute)
		_, err = newLock(t, b.store).Acquire(ctx)
		require.ErrorIs(t, err, leasehold.ErrHeld)
		require.InDelta(t, 123, b.Count("GET"), 5, "two for each renewal")
		require.Equal(t, 2, b.Count("PUT"), "they try the store")
		require.NoError(t, lease.Release(t.Context()))
	})
}

// A write that was applied but whose reply was lost is the classic: the SDK's own retry would read
// as somebody else's success.
func TestWriteWithItsReplyLostCountsAsOurs(t *testing.T) {
	for loss, fault := range map[string]faultproxy.Fault{
		"connection closed": {Kind: faultproxy.DropReply},
		"internal error":    {Kind: faultproxy.AnswerAfter, Status: 500},
		"conflict":          {Kind: faultproxy.AnswerAfter, Status: 409},
		"too late":          {Kind: faultproxy.AnswerAfter, Status: 412},
		"no such object":    {Kind: faultproxy.AnswerAfter, Status: 404, Code: "NoSuchKey"},
		"hang":              {After: time.Hour},
	} {
		lose := func(step string, run func(t *testing.T, server *fakes3.Server, w *wire, lock *leasehold.Lock)) {
			bubble.Run(t, step+", "+loss, func(t *testing.T) {
				server := &fakes3.Server{}
				w := newWire(server)
				run(t, server, w, newLock(t, w.store, leasehold.WithHolder("alice"),
					leasehold.WithManualRenewal()))
			})
		}
		lose("acquire", func(t *testing.T, server *fakes3.Server, w *wire, lock *leasehold.Lock) {
			w.Fail("PUT", fault)
			began := time.Now()
			lease := acquire(t, lock)
			require.Equal(t, uint64(1), lease.Token())
			require.Equal(t, began.Add(12*time.Second), lease.Deadline(), "counted from before the write whose reply "+
				"was lost")
			requests := []string{"GET", "PUT", "GET", "PUT", "PUT"} // with the two that try the store
			if loss == "too late" || loss == "no such object" {
				requests = append(requests, "GET") // a refusal of a write that has landed is in doubt
			}
			require.Equal(t, requests, w.Methods(0))

			_, err := newLock(t, newWire(server).store).TryAcquire(t.Context())
			require.ErrorIs(t, err, leasehold.ErrHeld)
			require.NoError(t, lease.Renew(t.Context()), "with the ETag that was read back")
			require.NoError(t, lease.Release(t.Context()))
		})
		lose("renew", func(t *testing.T, server *fakes3.Server, w *wire, lock *leasehold.Lock) {
			lease := acquire(t, lock)
			time.Sleep(2 * time.Second)
			w.Fail("PUT", fault)
			began := time.Now()
			require.NoError(t, lease.Renew(t.Context()))
			require.False(t, lease.Deadline().Before(began.Add(12*time.Second)))
			require.Equal(t, lease.Record(), recordOf(t, server))
			require.Equal(t, uint64(1), lease.Token())
			require.NoError(t, lease.Renew(t.Context()))
			require.NoError(t, lease.Release(t.Context()))
		})
		lose("release", func(t *testing.T, server *fakes3.Server, w *wire, lock *leasehold.Lock) {
			lease := acquire(t, lock)
			w.Fail("PUT", fault)
			require.NoError(t, lease.Release(t.Context()))
			require.True(t, recordOf(t, server).Released())
			require.Equal(t, uint64(1), recordOf(t, server).Token)
			require.Equal(t, uint64(2), acquire(t, newLock(t, newWire(server).store,
				leasehold.WithManualRenewal())).Token())
		})
	}
}

// recordOf is what stands in the store.
func recordOf(t *testing.T, server *fakes3.Server) (rec leasehold.Record) {
	t.Helper()
	require.NoError(t, json.Unmarshal(server.Body(key), &rec))
	rec.Key = key
	return rec
}

func TestConflictOnAcquireIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(&fakes3.Server{})
		lock := newLock(t, w.store)
		for range 2 {
			w.Fail("PUT", faultproxy.Fault{Kind: faultproxy.Answer, Status: 409})
		}
		lease := acquire(t, lock)
		require.Equal(t, []string{"GET", "PUT", "GET", "PUT", "GET", "PUT", "PUT", "PUT"}, w.Methods(0),
			"with the two that try the store")

		w.Fail("PUT", faultproxy.Fault{Kind: faultproxy.Answer, Status: 409})
		require.NoError(t, lease.Renew(t.Context()))
		w.Fail("PUT", faultproxy.Fault{Kind: faultproxy.Answer, Status: 409})
		require.NoError(t, lease.Release(t.Context()))
	})
}

func TestCredentialsWithoutListBucketAreNamedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(&fakes3.Server{})
		w.Fail("GET", faultproxy.Fault{Kind: faultproxy.Answer, Status: 403})
		began := time.Now()
		_, err := newLock(t, w.store).Acquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrPermanent)
		require.ErrorContains(t, err, "s3:ListBucket")
		require.Zero(t, time.Since(began))
		require.Equal(t, 1, w.Count(), "absent or forbidden? That is not for us to guess")
	})
}

func TestCredentialsThatExpireMidTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &fakes3.Server{}
		w := newWire(server)
		lease := acquire(t, newLock(t, w.store))
		time.Sleep(time.Minute)
		require.True(t, lease.Valid())
		deadline := lease.Deadline()
		w.FailAlways(faultproxy.Fault{Kind: faultproxy.Answer, Status: 400, Code: "ExpiredToken"})
		from := w.Count()
		<-lease.Context().Done()
		require.Equal(t, deadline, time.Now(), "kept until the deadline: new credentials may come")
		require.Greater(t, w.Count()-from, 3)
		cause := context.Cause(lease.Context())
		require.ErrorIs(t, cause, leasehold.ErrLost)
		require.ErrorContains(t, cause, "ExpiredToken", "the cause says why it was not renewed")
	})
}

// A bucket with Object Lock and a default retention refuses writes without a checksum. This one
// knows no other than MD5, as old servers do.
func TestABucketWithADefaultRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newWire(&fakes3.Server{DefaultRetention: true}).store
		lease := acquire(t, newLock(t, store, leasehold.WithManualRenewal()))
		require.NoError(t, lease.Renew(t.Context()))
		require.NoError(t, lease.Release(t.Context()))
		_, err := leasehold.CheckStore(t.Context(), store, "check")
		require.NoError(t, err)
	})
}

func TestServerThatDropsConditionsIsRefused(t *testing.T) {
	server := &fakes3.Server{IgnoreConditions: true}
	_, err := leasehold.CheckStore(t.Context(), newWire(server).store, "check")
	require.ErrorIs(t, err, leasehold.ErrUnsafeStore)
	require.ErrorContains(t, err, "a second PutIfNoneMatch succeeded")
	require.Empty(t, server.Keys())
}

// FuzzS3Response has an evil server answer the reads or the writes of the real SDK client with
// anything.
func FuzzS3Response(f *testing.F) {
	const free = `{"expires_at": 0, "token": 7}`
	good := "ETag: \"etag\"\nDate: Tue, 06 Oct 2026 12:00:10 GMT\nLast-Modified: Tue, 06 Oct 2026 12:00:00 GMT\n"
	for _, status := range []int{200, 204, 206, 301, 304, 307, 400, 403, 404, 409, 412, 416, 500, 501, 503, 99,
		100, 199, 299, 600, -1} {
		for _, body := range []string{
			"", free, fakes3.Error("NoSuchKey", ""), fakes3.Error("NoSuchBucket", ""),
			fakes3.Error("PreconditionFailed", ""), "<html>", "<Error>",
		} {
			f.Add(status, good, []byte(body), false)
			f.Add(status, "", []byte(body), true)
		}
	}
	for _, body := range []string{
		`{"expires_at": 99999999999}`, `{"expires_at": 1}`, `{"expires_at": null}`,
		`{"expires_at": 1, "ttl": 15, "nonce": "x"}`, `{"expires_at": 1e-400}`,
		`[]`, `null`, "\xff", `<Error><Code>&#78;oSuchKey</Code></Error>`,
	} {
		f.Add(200, good, []byte(body), false)
		f.Add(404, good, []byte(body), false)
	}
	for _, headers := range []string{
		"Content-Length: 5\nETag: x", "Content-Length: -1\nETag: x", "Content-Length: x\nETag: x", "Date: x\nETag: x",
		"Last-Modified: x\nETag: x", "ETag:", "ETag: \"\"",
		"x-amz-meta-x: \xff\nETag: x", "x-amz-mp-parts-count: many\nETag: x", "x-amz-delete-marker: maybe\nETag: x",
		"Transfer-Encoding: chunked\nETag: x",
		"Content-Encoding: gzip\nETag: x", "Expires: never\nETag: x", "Location: http://elsewhere.test/\nETag: x",
		"x-amz-checksum-crc32: AAAA\nETag: x",
	} {
		f.Add(200, headers, []byte(free), false)
		f.Add(200, headers, []byte(nil), true)
		f.Add(307, headers, []byte(nil), true)
	}
	f.Fuzz(func(t *testing.T, status int, headers string, body []byte, writes bool) {
		h := http.Header{}
		for line := range strings.Lines(headers) {
			if name, value, ok := strings.Cut(strings.TrimRight(line, "\n"), ":"); ok {
				h.Add(textproto.CanonicalMIMEHeaderKey(name), strings.TrimSpace(value))
			}
		}
		reply := func(r *http.Request, status int, h http.Header, body []byte) (*http.Response, error) {
			return &http.Response{
				StatusCode:    status,
				Header:        h.Clone(),
				ContentLength: -1,
				Body:          io.NopCloser(bytes.NewReader(body)),
				Request:       r,
			}, nil
		}
		saysMissing := status == 404 && strings.Contains(strings.ToLower(html.UnescapeString(string(body))),
			"nosuchkey")
		saysStored := status >= 200 && status < 300 && h.Get("ETag") != ""
		s := leasehold.NewS3Store(fakes3.NewClient(roundTrip(func(r *http.Request) (*http.Response, error) {
			switch {
			case r.URL.Host != "s3.test":
				return nil, errors.New("redirected elsewhere")
			case (r.Method == http.MethodGet) != writes:
				return reply(r, status, h, body)
			case writes:
				return reply(r, 404, nil, []byte(fakes3.Error("NoSuchKey", "")))
			}
			// else the lock finds out that the conditions do nothing, and nothing is ever acquired
			if match := r.Header.Get("If-Match"); match != "" && match != h.Get("ETag") || match == "" && saysStored {
				return reply(r, 412, nil, []byte(fakes3.Error("PreconditionFailed", "")))
			}
			return reply(r, 200, http.Header{"Etag": {`"new"`}}, nil)
		})), fakes3.Bucket)

		if writes {
			etag, err := s.PutIfMatch(t.Context(), key, []byte("x"), `"old"`)
			require.True(t, err != nil || saysStored && etag == h.Get("ETag"), "PutIfMatch gave %q", etag)
			require.True(t, saysMissing || !errors.Is(err, leasehold.ErrNotExist), "%v", err)
			etag, err = s.PutIfNoneMatch(t.Context(), key, []byte("x"))
			require.True(t, err != nil || saysStored && etag == h.Get("ETag"), "PutIfNoneMatch gave %q", etag)
			err = s.DeleteIfMatch(t.Context(), key, `"old"`)
			require.True(t, err != nil || status >= 200 && status < 300)
			require.True(t, saysMissing || !errors.Is(err, leasehold.ErrNotExist), "%v", err)
		} else {
			o, err := s.Get(t.Context(), key)
			require.True(t, err != nil || saysStored && o.ETag == h.Get("ETag") &&
				bytes.Equal(o.Body, body), "Get gave %+v", o)
			require.True(t, saysMissing || !errors.Is(err, leasehold.ErrNotExist), "%v", err)
			require.GreaterOrEqual(t, o.Age, time.Duration(0))
			require.LessOrEqual(t, len(o.Body), leasehold.MaxObjectSize)
		}

		synctest.Test(t, func(t *testing.T) { // it backs off
			lock, err := leasehold.NewLock(s, key, leasehold.WithTTL(time.Second), leasehold.WithManualRenewal())
			require.NoError(t, err)
			began := time.Now()
			lease, err := lock.TryAcquire(t.Context())
			if err == nil {
				require.True(t, lease.Valid())
				free := saysFree(body, h, time.Since(began))
				require.True(t, writes && saysStored || !writes && (saysMissing || saysStored && free),
					"acquired on status %d, headers %q, body %q", status, headers, body)
			}
		})
	})
}

// saysFree is what a record that may be taken over looks like, told in another way than by the code
// under test. The object has not changed for as long as it was watched.
func saysFree(body []byte, h http.Header, watched time.Duration) bool {
	var rec struct {
		ExpiresAt json.Number `json:"expires_at"`
		TTL       float64     `json:"ttl"`
	}
	if json.Unmarshal(body, &rec) != nil || rec.ExpiresAt == "" {
		return false
	}
	mantissa, _, _ := strings.Cut(strings.ToLower(rec.ExpiresAt.String()), "e")
	if !strings.ContainsAny(mantissa, "123456789") {
		return true
	}
	if rec.TTL == 0 {
		expires, err := rec.ExpiresAt.Float64()
		return err == nil && expires < float64(time.Now().Unix())
	}
	date, _ := http.ParseTime(h.Get("Date"))
	modified, _ := http.ParseTime(h.Get("Last-Modified"))
	if !date.IsZero() && !modified.IsZero() {
		watched += date.Sub(modified)
	}
	return watched.Seconds() > rec.TTL
}

// spelling is a server that changes the If-Match of each write before it compares it.
func spelling(s *fakes3.Server, change func(ifMatch string) (string, int)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if match := r.Header.Get("If-Match"); match != "" && r.Method != http.MethodGet {
			match, status := change(match)
			if status != 0 {
				w.WriteHeader(status)
				return
			}
			if r.Header.Del("If-Match"); match != "" {
				r.Header.Set("If-Match", match)
			}
		}
		s.ServeHTTP(w, r)
	})
}

const neverMatches = `"0"`

// learning is what it costs to find out that a server wants ETags without quotes: a read, and five
// requests on an object of its own.
const learning = 6

// bareETags is what CheckStore tells of a server.
func bareETags(t *testing.T, server http.Handler) bool {
	t.Helper()
	report, err := leasehold.CheckStore(t.Context(), newWire(server).store, "locks/check")
	require.NoError(t, err)
	require.True(t, report.ConditionalPuts)
	return report.BareETags
}

func TestAServerThatWantsETagsWithoutQuotes(t *testing.T) {
	for name, server := range map[string]*fakes3.Server{
		"hashes":       {BareIfMatch: true},
		"never repeat": {BareIfMatch: true, RandomETags: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWire(server)
			first, err := w.store.PutIfNoneMatch(t.Context(), key, []byte("1"))
			require.NoError(t, err)
			second, err := w.store.PutIfMatch(t.Context(), key, []byte("2"), first)
			require.NoError(t, err)
			require.Equal(t, []string{"locks/.leasehold-etag", key}, server.Keys())
			require.Equal(t, 1+2+learning, w.Count())

			_, err = w.store.PutIfMatch(t.Context(), key, []byte("3"), first)
			requireOnly(t, leasehold.ErrPreconditionFailed, err)
			third, err := w.store.PutIfMatch(t.Context(), key, []byte("3"), second)
			require.NoError(t, err)
			require.Equal(t, 1+2+learning+2, w.Count(), "it is learnt once")
			requireOnly(t, leasehold.ErrPreconditionFailed, w.store.DeleteIfMatch(t.Context(), key, second))
			require.NoError(t, w.store.DeleteIfMatch(t.Context(), key, third))
			require.True(t, bareETags(t, server))
		})
	}
}

// The usual servers cost nothing more, but for a read if the very first update is refused.
func TestTheUsualETagsCostNothing(t *testing.T) {
	server := spelling(&fakes3.Server{}, func(ifMatch string) (string, int) {
		if !strings.HasPrefix(ifMatch, `"`) {
			return "", http.StatusBadRequest
		}
		return ifMatch, 0
	})
	w := newWire(server)
	first, err := w.store.PutIfNoneMatch(t.Context(), key, []byte("1"))
	require.NoError(t, err)
	second, err := w.store.PutIfMatch(t.Context(), key, []byte("2"), first)
	require.NoError(t, err)
	_, err = w.store.PutIfMatch(t.Context(), key, []byte("3"), first)
	requireOnly(t, leasehold.ErrPreconditionFailed, err)
	_, err = w.store.PutIfMatch(t.Context(), key, []byte("3"), second)
	require.NoError(t, err)
	require.Equal(t, 4, w.Count())
	require.False(t, bareETags(t, server))

	w = newWire(server)
	_, err = w.store.PutIfMatch(t.Context(), key, []byte("4"), first)
	requireOnly(t, leasehold.ErrPreconditionFailed, err)
	require.Equal(t, 2, w.Count())

	w = newWire(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet { // a server that knows no conditional reads shows the ETag that is there
			r.Header.Del("If-Match")
		}
		server.ServeHTTP(w, r)
	}))
	_, err = w.store.PutIfMatch(t.Context(), key, []byte("4"), first)
	requireOnly(t, leasehold.ErrPreconditionFailed, err)
	require.Equal(t, 2, w.Count(), "no object is made to ask the server")
}

// An object that has the name of the probe, and is not leasehold's, is left alone.
func TestTheProbeOfETagsOverwritesNothing(t *testing.T) {
	server := &fakes3.Server{BareIfMatch: true}
	w := newWire(server)
	client := fakes3.NewClient(w)
	_, err := client.PutObject(t.Context(), &s3.PutObjectInput{
		Bucket: aws.String(fakes3.Bucket),
		Key:    aws.String("locks/.leasehold-etag"),
		Body:   strings.NewReader("mine"),
	})
	require.NoError(t, err)
	etag, err := w.store.PutIfNoneMatch(t.Context(), key, []byte("{}"))
	require.NoError(t, err)
	_, err = w.store.PutIfMatch(t.Context(), key, []byte("{}"), etag)
	require.ErrorContains(t, err, `the object "locks/.leasehold-etag" is not leasehold's own`)
	require.Equal(t, "mine", string(server.Body("locks/.leasehold-etag")))

	for _, own := range []string{".leasehold-etag", "locks/.leasehold-etag", "locks/.leasehold-check"} {
		_, err = leasehold.NewLock(w.store, own)
		require.ErrorContains(t, err, "has a name that leasehold itself writes")
	}
	_, err = leasehold.NewLock(w.store, ".leasehold-etag/lock")
	require.NoError(t, err)
}

// No write of a lock goes out in a form whose condition the server might ignore, and no conflict is
// taken for a matter of form.
func TestAnETagsFormIsNeverGuessed(t *testing.T) {
	never := func(string) (string, int) { return neverMatches, 0 }
	for name, c := range map[string]struct {
		change func(ifMatch string) (string, int)
		want   error
		says   string
	}{
		"ignored without quotes": {func(ifMatch string) (string, int) {
			if strings.HasPrefix(ifMatch, `"`) {
				return neverMatches, 0
			}
			return "", 0
		}, nil, "takes a wrong ETag"},
		"refused three times for nothing, and ignored without quotes": {func() func(string) (string, int) {
			falsely := 3
			return func(ifMatch string) (string, int) {
				if falsely--; falsely >= 0 {
					return neverMatches, 0
				}
				if strings.HasPrefix(ifMatch, `"`) {
					return ifMatch, 0
				}
				return "", 0
			}
		}(), nil, "takes a wrong ETag"},
		"refused in each form": {never, leasehold.ErrPreconditionFailed, "412"},
		"not understood without quotes": {func(ifMatch string) (string, int) {
			if strings.HasPrefix(ifMatch, `"`) {
				return neverMatches, 0
			}
			return "", http.StatusBadRequest
		}, nil, "finding out"},
	} {
		t.Run(name, func(t *testing.T) {
			server, sent := &fakes3.Server{}, []string(nil)
			dialect := spelling(server, c.change)
			w := newWire(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if match := r.Header.Get("If-Match"); r.Method == http.MethodPut &&
					strings.HasSuffix(r.URL.Path, key) && match != "" {
					sent = append(sent, match)
				}
				dialect.ServeHTTP(w, r)
			}))
			first, err := w.store.PutIfNoneMatch(t.Context(), key, []byte("1"))
			require.NoError(t, err)
			_, err = w.store.PutIfMatch(t.Context(), key, []byte("2"), first)
			requireOnly(t, c.want, err)
			require.ErrorContains(t, err, c.says)
			require.Equal(t, "1", string(server.Body(key)))
			require.Equal(t, []string{first}, sent)
		})
	}
	t.Run("a read that shows an earlier version", func(t *testing.T) {
		server, old := &fakes3.Server{}, ""
		strict := spelling(server, func(ifMatch string) (string, int) { // but for bare ETags, which it ignores
			if strings.HasPrefix(ifMatch, `"`) {
				return ifMatch, 0
			}
			return "", 0
		})
		w := newWire(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				w.Header().Set("ETag", old)
				_, _ = w.Write([]byte("1"))
				return
			}
			strict.ServeHTTP(w, r)
		}))
		old, err := w.store.PutIfNoneMatch(t.Context(), key, []byte("1"))
		require.NoError(t, err)
		server.Put(key, []byte("another's"))
		_, err = w.store.PutIfMatch(t.Context(), key, []byte("2"), old)
		requireOnly(t, leasehold.ErrPreconditionFailed, err)
		require.Equal(t, "another's", string(server.Body(key)))
	})
}

// A read that fails leaves it open why the write was refused.
func TestErrorsWhileAnETagsFormIsLearnt(t *testing.T) {
	w := newWire(&fakes3.Server{BareIfMatch: true})
	first, err := w.store.PutIfNoneMatch(t.Context(), key, []byte("1"))
	require.NoError(t, err)
	w.Fail(http.MethodGet, faultproxy.Fault{Kind: faultproxy.Answer, Status: http.StatusServiceUnavailable})
	_, err = w.store.PutIfMatch(t.Context(), key, []byte("2"), first)
	requireOnly(t, nil, err)
	_, err = w.store.PutIfMatch(t.Context(), key, []byte("2"), first)
	require.NoError(t, err, "the next write asks again")
}

// What an answer says of the object that was made for the question says nothing about the lock's.
func TestErrorsOnTheObjectThatIsAsked(t *testing.T) {
	for _, status := range []int{http.StatusNotFound, http.StatusConflict, http.StatusServiceUnavailable,
		http.StatusForbidden} {
		for n := range 5 { // the requests on that object, in order
			dialect, asked := &fakes3.Server{BareIfMatch: true}, 0
			w := newWire(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.Contains(r.URL.Path, ".leasehold-etag") {
					if asked++; asked == n+1 {
						w.WriteHeader(status)
						_, _ = w.Write([]byte(`<Error><Code>` +
							map[bool]string{true: "NoSuchKey", false: "Other"}[status == 404] + `</Code></Error>`))
						return
					}
				}
				dialect.ServeHTTP(w, r)
			}))
			first, err := w.store.PutIfNoneMatch(t.Context(), key, []byte("1"))
			require.NoError(t, err)
			_, err = w.store.PutIfMatch(t.Context(), key, []byte("2"), first)
			requireOnly(t, nil, err)
			require.NotErrorIs(t, err, leasehold.ErrConflict)
			_, err = w.store.PutIfMatch(t.Context(), key, []byte("2"), first)
			require.NoError(t, err, "the next write asks again")
		}
	}
}

func TestManyLearnAnETagsFormOnce(t *testing.T) {
	const n = 20
	server := &fakes3.Server{BareIfMatch: true}
	var refused sync.WaitGroup // each waits for the first refusal of all
	refused.Add(n)
	w := newWire(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut && strings.HasPrefix(r.Header.Get("If-Match"), `"`) &&
			!strings.Contains(r.URL.Path, ".leasehold-etag") {
			refused.Done()
			refused.Wait()
		}
		server.ServeHTTP(w, r)
	}))
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			key := fmt.Sprintf("locks/%d", i)
			etag, err := w.store.PutIfNoneMatch(t.Context(), key, []byte("1"))
			if assert.NoError(t, err) {
				_, err = w.store.PutIfMatch(t.Context(), key, []byte("2"), etag)
				assert.NoError(t, err)
			}
		})
	}
	group.Wait()
	require.Equal(t, n*4+learning-1, w.Count())
}

// Attempts that are too short for all the questions come to an answer together.
func TestAnETagsFormIsLearntInSeveralAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &fakes3.Server{BareIfMatch: true}
		w := newWire(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(60 * time.Millisecond)
			if r.Context().Err() == nil {
				server.ServeHTTP(w, r)
			}
		}))
		etag, err := w.store.PutIfNoneMatch(t.Context(), key, []byte("1"))
		require.NoError(t, err)
		attempts := 0
		for err = errors.New("not tried yet"); err != nil; attempts++ {
			require.Less(t, attempts, 6)
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			_, err = w.store.PutIfMatch(ctx, key, []byte("2"), etag)
			if err != nil {
				requireOnly(t, nil, err)
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
			cancel()
		}
		require.Greater(t, attempts, 1)
		require.Equal(t, []string{"locks/.leasehold-etag", key}, server.Keys())
	})
}

// Without quotes they would mean something else.
func TestETagsThatNeedTheirQuotes(t *testing.T) {
	server := &fakes3.Server{BareIfMatch: true}
	w := newWire(server)
	etag, err := w.store.PutIfNoneMatch(t.Context(), key, []byte("1"))
	require.NoError(t, err)
	_, err = w.store.PutIfMatch(t.Context(), key, []byte("2"), etag)
	require.NoError(t, err)
	for _, etag := range []string{`"*"`, `""`} {
		_, err := w.store.PutIfMatch(t.Context(), key, []byte("3"), etag)
		requireOnly(t, leasehold.ErrPreconditionFailed, err)
	}
	require.Equal(t, "2", string(server.Body(key)))
}

const hint = "is this an S3 endpoint?"

// client is the SDK's client for an endpoint, with net/http's own client, which follows redirects.
func client(endpoint string, options ...func(*s3.Options)) *s3.Client {
	return testserver.S3{
		Endpoint:  endpoint,
		AccessKey: "access",
		SecretKey: "secret",
		Region:    "us-east-1",
	}.Client(options...)
}

// listening is the URL of a server on a real socket.
func listening(t *testing.T, h http.HandlerFunc) string {
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}

// A port that expects https answers plain http with 400, and may close the connection before the
// answer has been read.
func TestA400CutOffBeforeTheFirstAnswerIsFinal(t *testing.T) {
	_, err := leasehold.NewS3Store(client(listening(t, refusalCutOff(400))), fakes3.Bucket).Get(t.Context(), key)
	require.ErrorIs(t, err, leasehold.ErrPermanent)
	require.ErrorContains(t, err, "does this port expect https?")
}

// These would be S3's if they were what they seem to be.
func TestRepliesThatAreNoS3s(t *testing.T) {
	type header = map[string]string
	reply, headed, cutOff := storehttptest.Status, storehttptest.Headed, storehttptest.CutOff
	const record = `{"expires_at":0,"token":1}`
	tag := header{"ETag": `"page"`}
	replies := map[string]storehttptest.Reply{
		"204":              {Answer: reply(204, ""), Fine: "DeleteIfMatch"},
		"204 with an ETag": {Answer: headed(204, tag, ""), Fine: "DeleteIfMatch"},
		// S3 answers a PUT with headers alone
		"a record cut off": {
			Answer: cutOff(200, header{"ETag": `"page"`, "Content-Length": "1000"}, record),
			Fine:   "PutIfNoneMatch PutIfMatch", Passes: true,
		},
		"chunks cut off": {Answer: cutOff(200, tag, record), Fine: "PutIfNoneMatch PutIfMatch", Passes: true},
		// its code might have said that it passes
		"403 cut off": {Answer: refusalCutOff(403), Passes: true},
		"400 cut off": {Answer: refusalCutOff(400), Passes: true},
	}
	for name, answer := range map[string]http.HandlerFunc{
		"a page with an ETag": headed(200, tag, storehttptest.Page),
		"a page in chunks with ETag": func(w http.ResponseWriter, r *http.Request) {
			headed(200, tag, storehttptest.Page)(w, r)
			w.(http.Flusher).Flush()
		},
		"a record without an ETag": reply(200, record),
		"201 with an ETag":         headed(201, tag, ""),
		"202 with an ETag":         headed(202, tag, ""),
		"206 with an ETag":         headed(206, header{"ETag": `"page"`, "Content-Range": "bytes 0-1/100"}, "{}"),
		"304 with an ETag":         headed(304, tag, ""),
		"301 to nowhere":           reply(301, ""),
		"302 to a page":            storehttptest.Redirect(302, headed(200, tag, storehttptest.Page)),
		"302 to a record":          storehttptest.Redirect(302, headed(200, tag, "{}")),
		"303 to a record":          storehttptest.Redirect(303, headed(200, tag, "{}")),
		"307 to a record":          storehttptest.Redirect(307, headed(200, tag, "{}")),
		"308 to a record":          storehttptest.Redirect(308, headed(200, tag, "{}")),
		"302 to another S3":        storehttptest.Redirect(302, refusal(404, "NoSuchKey")),
		"404":                      reply(404, ""),
		"501 page":                 reply(501, storehttptest.Page),
	} {
		replies[name] = storehttptest.Reply{Answer: answer}
	}
	overHTTP.ForeignReplies(t, replies)
}

// refusal is one of S3.
func refusal(status int, code string) http.HandlerFunc {
	return storehttptest.Headed(status, map[string]string{"X-Amz-Request-Id": "1"}, fakes3.Error(code, "as told"))
}

func refusalCutOff(status int) http.HandlerFunc {
	return storehttptest.CutOff(status, map[string]string{"X-Amz-Request-Id": "1", "Content-Length": "1000"},
		`<?xml version="1.0" encoding="UTF-8"?><Error>`)
}

// A front that is still starting answers 502 and 503, with pages of its own or without: that
// passes.
func TestPagesOfAServerThatIsStartingAreWaitedOut(t *testing.T) {
	for _, status := range []int{500, 502, 503, 504} {
		endpoint := listening(t, storehttptest.Status(status, storehttptest.Page))
		s := leasehold.NewS3Store(client(endpoint), fakes3.Bucket)
		for range 10 {
			_, err := s.Get(t.Context(), key)
			requireOnly(t, nil, err)
		}
	}
}

// A wrong answer in 200 that holds an S3 error is what the error says.
func TestErrorsWithStatus200(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		put  error
	}{
		"a refusal":         {fakes3.Error("PreconditionFailed", "too late"), leasehold.ErrPreconditionFailed},
		"an internal error": {fakes3.Error("InternalError", "sorry"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := leasehold.NewS3Store(client(listening(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet && r.Header.Get("If-Match") != "" {
					w.WriteHeader(http.StatusPreconditionFailed) // another version is there
				}
				_, _ = io.WriteString(w, c.body)
			})), fakes3.Bucket)
			_, err := s.Get(t.Context(), key)
			requireOnly(t, nil, err)
			_, err = s.PutIfNoneMatch(t.Context(), key, nil)
			requireOnly(t, c.put, err)
			_, err = s.PutIfMatch(t.Context(), key, nil, `"etag"`)
			requireOnly(t, c.put, err)
		})
	}
}

func TestArgumentsThatCannotWorkAreRefusedUnsent(t *testing.T) {
	var requests atomic.Int32
	fine := client(listening(t, func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	prefix := leasehold.WithKeyPrefix
	for _, c := range []struct {
		name string
		s    *leasehold.S3Store
		says string
	}{
		{"no client", leasehold.NewS3Store(nil, "bucket"), "the S3 client is nil"},
		{"a nil client", leasehold.NewS3Store((*s3.Client)(nil), "bucket"), "the S3 client is nil"},
		{"no store", nil, "the S3Store is nil or empty (make one with NewS3Store"},
		{"an empty store", &leasehold.S3Store{}, "the S3Store is nil or empty (make one with NewS3Store"},
		{"a nil option", leasehold.NewS3Store(fine, "bucket", nil), "an S3Option is nil"},
		{"no bucket", leasehold.NewS3Store(fine, ""), "the bucket has no name"},
		{"a path", leasehold.NewS3Store(fine, "bucket/locks"), `bucket "bucket/locks" is not a bucket's name`},
		{"a URL", leasehold.NewS3Store(fine, "s3://bucket/team/"),
			`is a URL (give the bare name "bucket", and what follows it, "team/", to WithKeyPrefix`},
		{"a space", leasehold.NewS3Store(fine, "bucket "), "is not a bucket's name"},
		{"copies of a bucket", leasehold.NewS3Store(fine, "arn:aws:s3::123456789012:accesspoint/mfzwi23gnjvgw.mrap"),
			"is a Multi-Region Access Point"},
		{"an absolute prefix", leasehold.NewS3Store(fine, "bucket", prefix("/locks/")),
			`key prefix "/locks/" has an empty path segment`},
		{"an empty segment", leasehold.NewS3Store(fine, "bucket", prefix("a//b/")), "has an empty path segment"},
		{"dots", leasehold.NewS3Store(fine, "bucket", prefix("a/../")), `has a path segment "." or ".."`},
		{"a slack that is negative", leasehold.NewS3Store(fine, "bucket", leasehold.WithServerClock(-time.Hour)),
			"slack -1h0m0s is below 2s: 1 s because HTTP dates are whole seconds"},
		{"a slack of nothing", leasehold.NewS3Store(fine, "bucket", leasehold.WithServerClock(0)),
			"slack 0s is below 2s"},
		{"a slack that is too small",
			leasehold.NewS3Store(fine, "bucket", leasehold.WithServerClock(1999*time.Millisecond)),
			"slack 1.999s is below 2s"},
	} {
		overHTTP.BadArgument(t, c.name, c.s, c.says, c.s == nil) // nil: see TestStoresThatAreNilPointers
	}
	for _, bucket := range []string{
		"my-bucket.v2", "arn:aws:s3:eu-central-1:123456789012:accesspoint/locks", "locks-123456789012-s3alias",
		"locks--use1-az4--x-s3",
		"MyLegacyBucket", "old_bucket", "tenant:bucket",
	} {
		require.NoError(t, leasehold.NewS3Store(fine, bucket, prefix("a/b-"),
			leasehold.WithServerClock(2*time.Second)).Describe().Err, bucket)
	}
	require.Zero(t, requests.Load())
}

// What newcomers get wrong is told at once, with the cause and the cure, not retried in silence.
func TestNewcomersMistakesAreTold(t *testing.T) {
	server, _ := testserver.StartMinIO(t)
	bucket := server.Bucket(t)
	good := aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: server.AccessKey, SecretAccessKey: server.SecretKey}, nil
	})
	keys := func(access, secret string) func(*s3.Options) {
		return func(o *s3.Options) {
			o.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
				return aws.Credentials{AccessKeyID: access, SecretAccessKey: secret}, nil
			})
		}
	}
	endpoint := func(url string) func(*s3.Options) { return func(o *s3.Options) { o.BaseEndpoint = &url } }
	_, port, _ := strings.Cut(strings.TrimPrefix(server.Endpoint, "http://"), ":")
	site := listening(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("ETag", `"index"`)
		_, _ = io.WriteString(w, storehttptest.Page)
	})
	for _, c := range []struct {
		name   string
		bucket string
		option func(*s3.Options)
		says   []string
	}{
		{
			"no region",
			bucket,
			func(o *s3.Options) { o.Region = "" },
			[]string{"A region must be set", "set the client's region: AWS_REGION"},
		},
		{
			"a region that is none",
			bucket,
			func(o *s3.Options) { o.Region = "us east 1"; o.BaseEndpoint = nil },
			[]string{"region"},
		},
		{"no credentials", bucket, func(o *s3.Options) {
			o.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
				return aws.Credentials{}, errors.New("no EC2 IMDS role found")
			})
		}, []string{"no EC2 IMDS role found", "the client has no credentials: set AWS_ACCESS_KEY_ID"}},
		{
			"anonymous",
			bucket,
			func(o *s3.Options) { o.Credentials = aws.AnonymousCredentials{} },
			[]string{"AccessDenied", "check the credentials; they need s3:GetObject"},
		},
		{
			"no credentials provider",
			bucket,
			func(o *s3.Options) { o.Credentials = nil },
			[]string{"AccessDenied", "check the credentials"},
		},
		{"wrong access key", bucket, keys("leashold", server.SecretKey),
			[]string{"InvalidAccessKeyId", "wrong access key"}},
		{"wrong secret key", bucket, keys(server.AccessKey, "leasehold-secrets"),
			[]string{"SignatureDoesNotMatch", "wrong secret key"}},
		{"another bucket", "no-such-bucket", keys(server.AccessKey, server.SecretKey),
			[]string{"NoSuchBucket", "create the bucket, or correct its name"}},
		{"no bucket", "", func(*s3.Options) {}, []string{"the bucket has no name"}},
		{"a bucket's URL", "s3://" + bucket, func(*s3.Options) {}, []string{"give the bare name"}},
		{"no path style", bucket, func(o *s3.Options) {
			o.BaseEndpoint, o.UsePathStyle, o.HTTPClient = aws.String("http://s3.invalid:"+port), false, &http.Client{}
		}, []string{"no such host", `the host "` + bucket + `.s3.invalid" is unknown`, "UsePathStyle"}},
		{"no scheme", bucket, endpoint(strings.TrimPrefix(server.Endpoint, "http://")),
			[]string{"was not a valid URI", "a URL with a scheme, such as http://localhost:9000"}},
		{"another scheme", bucket, endpoint("s3://localhost"), []string{"was not a valid URI", "a URL with a scheme"}},
		{"a web site with ETags", bucket, endpoint(site), []string{"the answer is a web page", hint}},
		{"another path", bucket, endpoint(server.Endpoint + "/minio/health"),
			[]string{"NoSuchBucket", "or the endpoint"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := server.Client().Options()
			o.Credentials = good
			c.option(&o)
			s := leasehold.NewS3Store(s3.New(o), c.bucket)
			var err error
			for range 3 { // a strange answer is a matter of three
				if _, err = s.Get(t.Context(), key); errors.Is(err, leasehold.ErrPermanent) {
					break
				}
			}
			requireOnly(t, leasehold.ErrPermanent, err)
			require.NotContains(t, err.Error(), "leasehold: ")
			require.NotContains(t, err.Error(), "permanent store error")
			for _, says := range c.says {
				require.ErrorContains(t, err, says)
			}
		})
	}
	s := leasehold.NewS3Store(server.Client(), bucket)
	_, err := s.Get(t.Context(), key)
	requireOnly(t, leasehold.ErrNotExist, err)
	overHTTP.Endpoints(t, "does this port expect https?", nil)
}

// Before the first answer nothing can be reached by waiting; after it, a resolver or a credential
// service may be down for a while.
func TestFaultsOfThisMachineMayPassOnceTheServerHasAnswered(t *testing.T) {
	overHTTP.MachineFaults(t)
	var gone atomic.Bool
	s := leasehold.NewS3Store(client(listening(t, refusal(503, "SlowDown")), func(o *s3.Options) {
		o.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			if gone.Load() {
				return aws.Credentials{}, errors.New("the token file is gone")
			}
			return aws.Credentials{AccessKeyID: "access", SecretAccessKey: "secret"}, nil
		})
	}), fakes3.Bucket)
	for op, call := range storeCalls {
		gone.Store(false)
		_, err := call(t.Context(), s, someETag)
		requireOnly(t, nil, err)
		gone.Store(true)
		_, err = call(t.Context(), s, someETag)
		requireOnly(t, nil, err)
		require.ErrorContains(t, err, "the token file is gone", op)
	}
}

// A machine that starts may have no DNS yet, and no credentials. That is waited for as long as ctx
// says, or for a TTL.
func TestAClientThatCannotSendYetIsWaitedFor(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	for name, c := range map[string]struct {
		network, credentials error
		final                bool
	}{
		"no DNS yet": {network: &net.DNSError{
			Err:        "no such host",
			Name:       "s3.test",
			IsNotFound: true,
		}},
		"no credentials service yet": {credentials: refused},
		"no DNS for the credentials' host": {credentials: &net.DNSError{
			Err:        "no such host",
			Name:       "sts.test",
			IsNotFound: true,
		}},
		"no such scheme": {network: errors.New("unsupported protocol scheme"), final: true},
		"no credentials": {credentials: errors.New("static credentials are empty"), final: true},
	} {
		for op, campaign := range map[string]func(ctx context.Context, l *leasehold.Lock) (led bool, err error){
			"Do": func(ctx context.Context, l *leasehold.Lock) (led bool, err error) {
				err = l.Do(ctx, func(context.Context, *leasehold.Lease) error {
					led = true
					return nil
				})
				return led, err
			},
			"Run": func(ctx context.Context, l *leasehold.Lock) (led bool, err error) {
				e, err := leasehold.NewElector(l, leasehold.Callbacks{OnStartedLeading: func(context.Context,
					*leasehold.Lease) {
					led = true
				}})
				require.NoError(t, err)
				err = e.Run(ctx)
				return led, err
			},
		} {
			bubble.Run(t, name+"/"+op, func(t *testing.T) {
				var ready atomic.Bool
				server := fakes3.NewWire(&fakes3.Server{})
				o := fakes3.NewClient(roundTrip(func(r *http.Request) (*http.Response, error) {
					if c.network != nil && !ready.Load() {
						return nil, c.network
					}
					return server.RoundTrip(r)
				})).Options()
				o.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
					if c.credentials != nil && !ready.Load() {
						return aws.Credentials{}, c.credentials
					}
					return aws.Credentials{AccessKeyID: "a", SecretAccessKey: "s"}, nil
				})
				lock := func() *leasehold.Lock {
					return newLock(t, leasehold.NewS3Store(s3.New(o), fakes3.Bucket),
						leasehold.WithLogger(slog.New(slog.DiscardHandler)))
				}
				_, err := lock().TryAcquire(t.Context())
				require.ErrorIs(t, err, leasehold.ErrPermanent, "for who does not wait")
				began := time.Now()
				_, err = campaign(t.Context(), lock())
				require.ErrorIs(t, err, leasehold.ErrPermanent)
				if c.final {
					require.Zero(t, time.Since(began))
					return
				}
				require.GreaterOrEqual(t, time.Since(began), 15*time.Second, "a TTL, without a limit of one's own")
				ctx := testctx.Within(t, 2*time.Minute)
				time.AfterFunc(time.Minute, func() { ready.Store(true) })
				led, err := campaign(ctx, lock())
				require.NoError(t, err)
				require.True(t, led)
			})
		}
	}
}

// The credentials' own service may be the one that answers: its status says nothing about the
// object, and its overload passes.
func TestAnswersOfACredentialServiceAreNotTheStores(t *testing.T) {
	for status, want := range map[int]error{
		404: leasehold.ErrPermanent, 412: leasehold.ErrPermanent, 403: leasehold.ErrPermanent,
		501: nil, 503: nil, 429: nil,
	} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			other := client(listening(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(status)
				_, _ = io.WriteString(w, fakes3.Error("NoSuchKey", ""))
			}), func(o *s3.Options) { o.Retryer = aws.NopRetryer{} })
			s := leasehold.NewS3Store(client("http://127.0.0.1:1", func(o *s3.Options) {
				o.Credentials = aws.CredentialsProviderFunc(func(ctx context.Context) (aws.Credentials, error) {
					_, err := other.GetObject(ctx, &s3.GetObjectInput{Bucket: aws.String("b"), Key: aws.String("k")})
					return aws.Credentials{}, err
				})
			}), fakes3.Bucket)
			for op, call := range storeCalls {
				_, err := call(t.Context(), s, someETag)
				requireOnly(t, want, err)
				require.ErrorContains(t, err, "get credentials", op)
			}
		})
	}
}

// A directory bucket has to give a session before the first request. Why it does not is told, and
// waited for if it may pass.
func TestADirectoryBucketThatGivesNoSession(t *testing.T) {
	for code, final := range map[string]bool{
		"NoSuchBucket": true, "AccessDenied": true, "RequestTimeTooSkewed": false, "SlowDown": false,
	} {
		status := map[string]int{"NoSuchBucket": 404, "SlowDown": 503}[code]
		c := client(listening(t, refusal(cmp.Or(status, 403), code)), func(o *s3.Options) { o.RetryMaxAttempts = 1 })
		_, err := leasehold.NewS3Store(c, "locks--use1-az4--x-s3").Get(t.Context(), key)
		require.ErrorIs(t, err, leasehold.ErrPermanent)
		require.Equal(t, !final, errors.Is(err, leasehold.ErrUnsent), code)
		require.ErrorContains(t, err, "s3express:CreateSession")
		require.NotContains(t, err.Error(), "no credentials")
	}
}

// What can heal before the first answer is waited for: a server that is not up yet, a slow
// credential service, a certificate.
func TestFaultsThatHealArePassing(t *testing.T) {
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	defer secure.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx    context.Context
		option func(*s3.Options)
	}{
		"connection refused": {t.Context(), func(o *s3.Options) { o.BaseEndpoint = aws.String("http://127.0.0.1:1") }},
		"cancelled":          {ctx, func(*s3.Options) {}},
		"cancelled while waiting for credentials": {t.Context(), func(o *s3.Options) {
			o.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
				return aws.Credentials{}, context.DeadlineExceeded
			})
		}},
		"a certificate that is not valid yet": {t.Context(), func(o *s3.Options) {
			o.BaseEndpoint = &secure.URL
			o.HTTPClient = &http.Client{Transport: &http.Transport{
				TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12},
			}}
		}},
	} {
		_, err := leasehold.NewS3Store(client("http://127.0.0.1:1", c.option), fakes3.Bucket).Get(c.ctx, key)
		requireOnly(t, nil, err)
		requireText(t, err)
		_ = name
	}
}

// A proxy that compresses makes ETags weak, and no condition on a weak ETag holds. No lock is ever
// taken over through it, and no object is ever fenced: the error names the ETag, and the proxy.
func TestAWeakETagIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &fakes3.Server{}
		strong := fakes3.Transport{Handler: server}
		weak := fakes3.NewClient(roundTrip(func(r *http.Request) (*http.Response, error) {
			resp, err := strong.RoundTrip(r)
			if err == nil && r.Method != http.MethodPut && resp.Header.Get("ETag") != "" {
				resp.Header.Set("ETag", "W/"+resp.Header.Get("ETag"))
			}
			return resp, err
		}))
		require.NoError(t, acquire(t, newLock(t, leasehold.NewS3Store(fakes3.NewClient(strong), fakes3.Bucket))).
			Release(t.Context()))
		_, err := newLock(t, leasehold.NewS3Store(weak, fakes3.Bucket)).TryAcquire(t.Context())
		require.NotErrorIs(t, err, leasehold.ErrHeld)
		files, openErr := fenced.NewS3Store(weak, fakes3.Bucket, fenced.PaddedBodies)
		require.NoError(t, openErr)
		_, checkErr := leasehold.CheckStore(t.Context(), leasehold.NewS3Store(weak, fakes3.Bucket), "check")
		for what, err := range map[string]error{
			"TryAcquire":   err,
			"a fenced Put": files.Put(t.Context(), 1, "data/report", strings.NewReader("x")),
			"CheckStore":   checkErr,
		} {
			require.ErrorContains(t, err, `the ETag W/"`, what)
			require.ErrorContains(t, err, "proxy", what)
		}
	})
}
