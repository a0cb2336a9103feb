package leasehold_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/fakes3"
	"github.com/leasehold-go/leasehold/internal/testserver"
)

const (
	page = "<!DOCTYPE html><html><body><p>Please log in.</body></html>"
	hint = "is this an S3 endpoint?"
)

// client is the SDK's client for an endpoint, with net/http's own client, which follows redirects.
func client(endpoint string, options ...func(*s3.Options)) *s3.Client {
	return testserver.S3{Endpoint: endpoint, AccessKey: "access", SecretKey: "secret", Region: "us-east-1"}.Client(options...)
}

// listening is the URL of a server on a real socket.
func listening(t *testing.T, h http.HandlerFunc) string {
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}

// flush sends what is there. An answer without a length then goes out in chunks.
func flush(w http.ResponseWriter) { w.(http.Flusher).Flush() }

func missing(w http.ResponseWriter) {
	w.Header().Set("X-Amz-Request-Id", "1")
	w.WriteHeader(http.StatusNotFound)
	_, _ = io.WriteString(w, fakes3.Error("NoSuchKey", "The specified key does not exist."))
}

func refusalCutOff(status int) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Amz-Request-Id", "1")
		w.Header().Set("Content-Length", "1000")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `<?xml version="1.0" encoding="UTF-8"?><Error>`)
		flush(w)
		panic(http.ErrAbortHandler)
	}
}

// A port that expects https answers plain http with 400, and may close the connection before the answer has been read.
func TestA400CutOffBeforeTheFirstAnswerIsFinal(t *testing.T) {
	_, err := leasehold.NewS3Store(client(listening(t, refusalCutOff(400))), fakes3.Bucket).Get(t.Context(), key)
	require.ErrorIs(t, err, leasehold.ErrPermanent)
	require.ErrorContains(t, err, "does this port expect https?")
}

// Replies that a proxy, a web site or a half-dead server gives say nothing about the object: they are neither a success, nor
// "absent", nor "refused", nor "unsafe". Real sockets, because net/http has its own mind about some of them.
func TestRepliesThatAreNoS3s(t *testing.T) {
	etag := func(w http.ResponseWriter) { w.Header().Set("ETag", `"page"`) }
	for name, c := range map[string]struct {
		answer func(w http.ResponseWriter, r *http.Request)
		fine   string // operations for which it is a good answer, though
		cutOff bool   // a reply of an S3 all the same: nobody need look for another endpoint
	}{
		"a page":                     {answer: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, page) }},
		"a page with an ETag":        {answer: func(w http.ResponseWriter, _ *http.Request) { etag(w); _, _ = io.WriteString(w, page) }},
		"a page in chunks":           {answer: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, page); flush(w) }},
		"a page in chunks with ETag": {answer: func(w http.ResponseWriter, _ *http.Request) { etag(w); _, _ = io.WriteString(w, page); flush(w) }},
		"text":                       {answer: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "OK") }},
		"nothing":                    {answer: func(http.ResponseWriter, *http.Request) {}},
		"a record without an ETag":   {answer: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"expires_at":0,"token":1}`) }},
		"201 with an ETag":           {answer: func(w http.ResponseWriter, _ *http.Request) { etag(w); w.WriteHeader(201) }},
		"202 with an ETag":           {answer: func(w http.ResponseWriter, _ *http.Request) { etag(w); w.WriteHeader(202) }},
		"204":                        {answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }, fine: "DeleteIfMatch"},
		"204 with an ETag":           {answer: func(w http.ResponseWriter, _ *http.Request) { etag(w); w.WriteHeader(204) }, fine: "DeleteIfMatch"},
		"206 with an ETag": {answer: func(w http.ResponseWriter, _ *http.Request) {
			etag(w)
			w.Header().Set("Content-Range", "bytes 0-1/100")
			w.WriteHeader(206)
			_, _ = io.WriteString(w, "{}")
		}},
		"304":               {answer: func(w http.ResponseWriter, _ *http.Request) { etag(w); w.WriteHeader(304) }},
		"301 to nowhere":    {answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(301) }},
		"302 to nowhere":    {answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(302) }},
		"307 to nowhere":    {answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(307) }},
		"302 to a page":     {answer: redirect(302, func(w http.ResponseWriter) { etag(w); _, _ = io.WriteString(w, page) })},
		"302 to a record":   {answer: redirect(302, func(w http.ResponseWriter) { etag(w); _, _ = io.WriteString(w, "{}") })},
		"303 to a record":   {answer: redirect(303, func(w http.ResponseWriter) { etag(w); _, _ = io.WriteString(w, "{}") })},
		"307 to a record":   {answer: redirect(307, func(w http.ResponseWriter) { etag(w); _, _ = io.WriteString(w, "{}") })},
		"308 to a record":   {answer: redirect(308, func(w http.ResponseWriter) { etag(w); _, _ = io.WriteString(w, "{}") })},
		"302 to another S3": {answer: redirect(302, missing)},
		"404 page":          {answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404); _, _ = io.WriteString(w, page) }},
		"404 text":          {answer: func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) }},
		"404":               {answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) }},
		"403 page":          {answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(403); _, _ = io.WriteString(w, page) }},
		"407 page":          {answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(407); _, _ = io.WriteString(w, page) }},
		"412 page":          {answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(412); _, _ = io.WriteString(w, page) }},
		"501 page":          {answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(501); _, _ = io.WriteString(w, page) }},
		"a record cut off": {cutOff: true, answer: func(w http.ResponseWriter, _ *http.Request) {
			if etag(w); w.Header().Get("ETag") != "" {
				w.Header().Set("Content-Length", "1000")
			}
			_, _ = io.WriteString(w, `{"expires_at":0,"token":1}`)
			flush(w)
			panic(http.ErrAbortHandler)
		}, fine: "PutIfNoneMatch PutIfMatch"}, // S3 answers a PUT with headers alone
		"403 cut off": {cutOff: true, answer: refusalCutOff(403)}, // its code might have said that it passes
		"400 cut off": {cutOff: true, answer: refusalCutOff(400)},
		"chunks cut off": {cutOff: true, answer: func(w http.ResponseWriter, _ *http.Request) {
			etag(w)
			_, _ = io.WriteString(w, `{"expires_at":0,"token":1}`)
			flush(w)
			panic(http.ErrAbortHandler)
		}, fine: "PutIfNoneMatch PutIfMatch"},
	} {
		for op, call := range storeCalls {
			if strings.Contains(" "+c.fine+" ", " "+op+" ") {
				continue
			}
			t.Run(op+"/"+name, func(t *testing.T) {
				t.Parallel()
				var sound atomic.Bool // the server of before, to begin with
				sound.Store(true)
				endpoint := listening(t, func(w http.ResponseWriter, r *http.Request) {
					if sound.Load() {
						missing(w)
						return
					}
					c.answer(w, r)
				})
				s := leasehold.NewS3Store(client(endpoint), fakes3.Bucket)
				_, err := s.Get(t.Context(), key)
				require.ErrorIs(t, err, leasehold.ErrNotExist)
				sound.Store(false)
				for range 5 { // what has worked once can heal, however long this lasts
					etag, err := call(t.Context(), s)
					requireOnly(t, nil, err)
					requireText(t, err)
					require.Empty(t, etag)
					if !c.cutOff {
						require.ErrorContains(t, err, hint)
					}
				}

				if c.cutOff {
					return
				}
				s = leasehold.NewS3Store(client(endpoint), fakes3.Bucket)
				for i := range 3 {
					_, err = call(t.Context(), s)
					require.ErrorContains(t, err, hint)
					if i < 2 {
						requireOnly(t, nil, err)
					}
				}
				requireOnly(t, leasehold.ErrPermanent, err)
			})
		}
	}
}

// redirect sends a request elsewhere on this server.
func redirect(status int, there func(http.ResponseWriter)) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/elsewhere" {
			there(w)
			return
		}
		http.Redirect(w, r, "/elsewhere", status)
	}
}

// A front that is still starting answers 502 and 503, with pages of its own or without: that passes.
func TestPagesOfAServerThatIsStartingAreWaitedOut(t *testing.T) {
	for _, status := range []int{500, 502, 503, 504} {
		endpoint := listening(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status); _, _ = io.WriteString(w, page) })
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
		{"no store", nil, "the S3Store is nil or empty: make one with NewS3Store"},
		{"an empty store", &leasehold.S3Store{}, "the S3Store is nil or empty: make one with NewS3Store"},
		{"a nil option", leasehold.NewS3Store(fine, "bucket", nil), "an S3Option is nil"},
		{"no bucket", leasehold.NewS3Store(fine, ""), "the bucket has no name"},
		{"a path", leasehold.NewS3Store(fine, "bucket/locks"), `bucket "bucket/locks" is not a bucket's name`},
		{"a URL", leasehold.NewS3Store(fine, "s3://bucket/team/"), `is a URL: give the bare name "bucket", and what follows it, "team/", to WithKeyPrefix`},
		{"a space", leasehold.NewS3Store(fine, "bucket "), "is not a bucket's name"},
		{"capitals", leasehold.NewS3Store(fine, "Bucket"), "is not a bucket's name"},
		{"an absolute prefix", leasehold.NewS3Store(fine, "bucket", prefix("/locks/")), `key prefix "/locks/" has an empty path segment`},
		{"an empty segment", leasehold.NewS3Store(fine, "bucket", prefix("a//b/")), "has an empty path segment"},
		{"dots", leasehold.NewS3Store(fine, "bucket", prefix("a/../")), `has a path segment "." or ".."`},
		{"a slack that is negative", leasehold.NewS3Store(fine, "bucket", leasehold.WithServerClock(-time.Hour)), "slack -1h0m0s is below 2s: 1 s because HTTP dates are whole seconds"},
		{"a slack of nothing", leasehold.NewS3Store(fine, "bucket", leasehold.WithServerClock(0)), "slack 0s is below 2s"},
		{"a slack that is too small", leasehold.NewS3Store(fine, "bucket", leasehold.WithServerClock(1999*time.Millisecond)), "slack 1.999s is below 2s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := c.s.Describe().Err
			requireOnly(t, leasehold.ErrPermanent, want)
			require.ErrorContains(t, want, c.says)
			for op, call := range storeCalls {
				_, err := call(t.Context(), c.s)
				require.EqualError(t, err, want.Error(), op)
				requireOnly(t, leasehold.ErrPermanent, err)
			}
			if c.s == nil { // see TestStoresThatAreNilPointers
				return
			}
			_, err := leasehold.CheckStore(t.Context(), c.s, "check")
			require.EqualError(t, err, "leasehold: "+want.Error())
			require.ErrorIs(t, err, leasehold.ErrPermanent)
			_, err = leasehold.NewLock(c.s, key)
			require.EqualError(t, err, "leasehold: "+want.Error())
		})
	}
	for _, bucket := range []string{
		"my-bucket.v2", "arn:aws:s3:eu-central-1:123456789012:accesspoint/locks", "locks-123456789012-s3alias", "locks--use1-az4--x-s3",
		"mfzwi23gnjvgw.mrap", "old_bucket", "tenant:bucket",
	} {
		require.NoError(t, leasehold.NewS3Store(fine, bucket, prefix("a/b-"), leasehold.WithServerClock(2*time.Second)).Describe().Err, bucket)
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
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	defer secure.Close()
	site := listening(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("ETag", `"index"`)
		_, _ = io.WriteString(w, page)
	})
	console := listening(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, page) }) // as MinIO's
	for _, c := range []struct {
		name   string
		bucket string
		option func(*s3.Options)
		says   []string
	}{
		{"no region", bucket, func(o *s3.Options) { o.Region = "" }, []string{"A region must be set", "set the client's region: AWS_REGION"}},
		{"a region that is none", bucket, func(o *s3.Options) { o.Region = "us east 1"; o.BaseEndpoint = nil }, []string{"region"}},
		{"no credentials", bucket, func(o *s3.Options) {
			o.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
				return aws.Credentials{}, errors.New("no EC2 IMDS role found")
			})
		}, []string{"no EC2 IMDS role found", "the client has no credentials: set AWS_ACCESS_KEY_ID"}},
		{"anonymous", bucket, func(o *s3.Options) { o.Credentials = aws.AnonymousCredentials{} }, []string{"AccessDenied", "check the credentials; they need s3:GetObject"}},
		{"no credentials provider", bucket, func(o *s3.Options) { o.Credentials = nil }, []string{"AccessDenied", "check the credentials"}},
		{"wrong access key", bucket, keys("leashold", server.SecretKey), []string{"InvalidAccessKeyId", "wrong access key"}},
		{"wrong secret key", bucket, keys(server.AccessKey, "leasehold-secrets"), []string{"SignatureDoesNotMatch", "wrong secret key"}},
		{"another bucket", "no-such-bucket", keys(server.AccessKey, server.SecretKey), []string{"NoSuchBucket", "create the bucket, or correct its name"}},
		{"no bucket", "", func(*s3.Options) {}, []string{"the bucket has no name"}},
		{"a bucket's URL", "s3://" + bucket, func(*s3.Options) {}, []string{"give the bare name"}},
		{"no path style", bucket, func(o *s3.Options) {
			o.BaseEndpoint, o.UsePathStyle, o.HTTPClient = aws.String("http://s3.invalid:"+port), false, &http.Client{}
		}, []string{"no such host", `the host "` + bucket + `.s3.invalid" is unknown`, "UsePathStyle"}},
		{"a host that is not there", bucket, endpoint("http://minio.invalid:9000"), []string{"no such host", `the host "minio.invalid" is unknown: check the endpoint`}},
		{"no scheme", bucket, endpoint(strings.TrimPrefix(server.Endpoint, "http://")), []string{"was not a valid URI", "a URL with a scheme, such as http://localhost:9000"}},
		{"another scheme", bucket, endpoint("s3://localhost"), []string{"was not a valid URI", "a URL with a scheme"}},
		{"no such port", bucket, endpoint("http://127.0.0.1:99999"), []string{"invalid port", `"99999" is not an address: check the endpoint`}},
		{"https for http", bucket, endpoint("https" + strings.TrimPrefix(server.Endpoint, "http")), []string{"server gave HTTP response to HTTPS client", "this port speaks http, not https"}},
		{"http for https", bucket, endpoint("http" + strings.TrimPrefix(secure.URL, "https")), []string{"does this port expect https?"}},
		{"a web site", bucket, endpoint(site), []string{"the answer is a web page", hint}},
		{"a console", bucket, endpoint(console), []string{"the answer is a web page", hint}},
		{"another path", bucket, endpoint(server.Endpoint + "/minio/health"), []string{"NoSuchBucket", "or the endpoint"}},
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
}

// Before the first answer nothing can be reached by waiting; after it, a resolver or a credential service may be down for a while.
func TestFaultsOfThisMachineMayPassOnceTheServerHasAnswered(t *testing.T) {
	endpoint := listening(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	var host, noKeys atomic.Value
	host.Store(endpoint)
	noKeys.Store("")
	moving := func(o *s3.Options) {
		o.HTTPClient = &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			r = r.Clone(r.Context())
			r.URL.Host = strings.TrimPrefix(host.Load().(string), "http://")
			return http.DefaultTransport.RoundTrip(r)
		})}
		o.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			if why := noKeys.Load().(string); why != "" {
				return aws.Credentials{}, errors.New(why)
			}
			return aws.Credentials{AccessKeyID: "access", SecretAccessKey: "secret"}, nil
		})
	}
	for op, call := range storeCalls {
		s := leasehold.NewS3Store(client(endpoint, moving), fakes3.Bucket)
		host.Store("gone.invalid")
		_, err := call(t.Context(), s)
		requireOnly(t, leasehold.ErrPermanent, err)

		host.Store(endpoint)
		_, err = call(t.Context(), s)
		requireOnly(t, nil, err)
		host.Store("gone.invalid")
		_, err = call(t.Context(), s)
		requireOnly(t, nil, err)
		require.ErrorContains(t, err, "no such host", op)
		host.Store(endpoint)
		noKeys.Store("the token file is gone")
		_, err = call(t.Context(), s)
		requireOnly(t, nil, err)
		require.ErrorContains(t, err, "the token file is gone", op)
		noKeys.Store("")
	}
}

// The credentials' own service may be the one that answers: its status says nothing about the object, and its overload passes.
func TestAnswersOfACredentialServiceAreNotTheStores(t *testing.T) {
	for status, want := range map[int]error{
		404: leasehold.ErrPermanent, 412: leasehold.ErrPermanent, 403: leasehold.ErrPermanent, 501: nil, 503: nil, 429: nil,
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
				_, err := call(t.Context(), s)
				requireOnly(t, want, err)
				require.ErrorContains(t, err, "get credentials", op)
			}
		})
	}
}

// What can heal before the first answer is waited for: a server that is not up yet, a slow credential service, a certificate.
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
			o.HTTPClient = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}}}
		}},
	} {
		_, err := leasehold.NewS3Store(client("http://127.0.0.1:1", c.option), fakes3.Bucket).Get(c.ctx, key)
		requireOnly(t, nil, err)
		requireText(t, err)
		_ = name
	}
}
