package itest_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/fenced"
	"github.com/leasehold-go/leasehold/internal/testkit/faultproxy"
	"github.com/leasehold-go/leasehold/internal/testkit/testctx"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
)

// dropping starts a reverse proxy that drops headers of writes and signs anew, so that the server
// behind it seems to ignore them.
func dropping(t *testing.T, server testserver.S3, headers ...string) testserver.S3 {
	t.Helper()
	upstream, err := url.Parse(server.Endpoint)
	require.NoError(t, err)
	credentials := aws.Credentials{AccessKeyID: server.AccessKey, SecretAccessKey: server.SecretKey}
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(upstream)
			r.Out.Host = upstream.Host
			if r.In.Method == http.MethodPut {
				for _, h := range headers {
					r.Out.Header.Del(h)
				}
			}
			_, region, _ := strings.Cut(r.In.Header.Get("Authorization"), "Credential=")
			region = strings.Split(region, "/")[2]
			signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
			require.NoError(t, signer.SignHTTP(r.Out.Context(), credentials, r.Out,
				r.In.Header.Get("X-Amz-Content-Sha256"), "s3", region, time.Now()))
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	})
	t.Cleanup(proxy.Close)
	server.Endpoint = proxy.URL
	return server
}

// evaluating starts a reverse proxy that evaluates the conditions of writes on what the server has
// answered.
func evaluating(t *testing.T, server testserver.S3) testserver.S3 {
	t.Helper()
	upstream, err := url.Parse(server.Endpoint)
	require.NoError(t, err)
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(upstream) },
		ModifyResponse: func(r *http.Response) error {
			match, none := r.Request.Header.Get("If-Match"), r.Request.Header.Get("If-None-Match")
			if r.Request.Method != http.MethodPut || r.StatusCode != http.StatusOK || match+none == "" {
				return nil
			}
			if match != r.Header.Get("ETag") {
				body := []byte("<Error><Code>PreconditionFailed</Code><Message>too late</Message></Error>")
				r.StatusCode, r.Body, r.ContentLength = http.StatusPreconditionFailed,
					io.NopCloser(bytes.NewReader(body)), int64(len(body))
				r.Header.Set("Content-Length", strconv.Itoa(len(body)))
			}
			return nil
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	})
	t.Cleanup(proxy.Close)
	server.Endpoint = proxy.URL
	return server
}

// tooMany is the answer of a rate limit.
var tooMany = faultproxy.Fault{Kind: faultproxy.Answer, Status: http.StatusTooManyRequests, Code: "TooManyRequests"}

// ignored are the conditions that a server seems to ignore, by the name of the case.
var ignored = map[string][]string{
	"none": nil, "If-Match": {"If-Match"}, "If-None-Match": {"If-None-Match"},
	"both": {"If-Match", "If-None-Match"}, "evaluated too late": {"If-Match", "If-None-Match"},
}

// seeming returns the server behind a proxy, so that it seems to ignore these conditions.
func seeming(t *testing.T, server testserver.S3, name string) testserver.S3 {
	t.Helper()
	behind := dropping(t, server, ignored[name]...)
	if name == "evaluated too late" {
		behind = evaluating(t, behind)
	}
	return behind
}

// A real server that seems to ignore conditions is found out by the first acquisition, and nobody
// leads.
func TestServersThatIgnoreConditions(t *testing.T) {
	eachServer(t, func(t *testing.T, server testserver.S3) {
		for name := range ignored {
			t.Run(name, func(t *testing.T) {
				behind := seeming(t, server, name)
				bucket := server.Bucket(t)
				store := leasehold.NewS3Store(behind.Client(), bucket)
				// of a sixth, a busy machine answers
				lock := newLock(t, store, leasehold.WithLogger(slog.New(slog.DiscardHandler)),
					leasehold.WithTTL(time.Minute))
				lease, err := lock.TryAcquire(t.Context())
				if name == "none" {
					require.NoError(t, err)
					require.NoError(t, lease.Renew(t.Context()))
					require.NoError(t, lease.Release(t.Context()))
					return
				}
				// an answer that came too late has proven nothing
				for ctx := minute(t); err == nil && ctx.Err() == nil; {
					require.NoError(t, lease.Release(ctx))
					lease, err = lock.TryAcquire(ctx)
				}
				require.ErrorIs(t, err, leasehold.ErrUnsafeStore)
				rec, err := lock.Inspect(t.Context())
				require.NoError(t, err)
				require.True(t, rec.Released(), "the acquisition is given back")
				require.NotZero(t, rec.Token)

				e, err := leasehold.NewElector(lock, leasehold.Callbacks{
					OnStartedLeading: func(context.Context, *leasehold.Lease) { t.Error("it leads") },
				})
				require.NoError(t, err)
				ctx := minute(t)
				require.ErrorIs(t, e.Run(ctx), leasehold.ErrUnsafeStore)
				require.NoError(t, ctx.Err())
			})
		}
	})
}

// Somebody leads on a real server. Whoever waits for the lock behind a proxy, so that the server
// seems to ignore conditions, is told. The leader goes on, with what it has committed.
func TestWhoWaitsOnAServerThatIgnoresConditions(t *testing.T) {
	eachServer(t, func(t *testing.T, server testserver.S3) {
		// of a sixth, a busy machine answers
		quiet, ttl := leasehold.WithLogger(slog.New(slog.DiscardHandler)), leasehold.WithTTL(time.Minute)
		bucket := server.Bucket(t)
		holder, err := newLock(t, leasehold.NewS3Store(server.Client(), bucket), quiet, ttl).TryAcquire(t.Context())
		require.NoError(t, err)
		for name := range ignored {
			t.Run(name, func(t *testing.T) {
				require.NoError(t, holder.Commit(t.Context(), []byte(name)))
				behind := seeming(t, server, name)
				limit := time.Minute
				if name == "none" {
					limit = 3 * time.Second
				}
				ctx := testctx.Within(t, limit)
				lock := newLock(t, leasehold.NewS3Store(behind.Client(), bucket), quiet, ttl,
					leasehold.WithPollInterval(time.Second))
				_, err := lock.Acquire(ctx)
				if name == "none" {
					require.ErrorIs(t, err, leasehold.ErrHeld)
				} else {
					require.ErrorIs(t, err, leasehold.ErrUnsafeStore)
				}
				require.True(t, holder.Valid())
				require.NoError(t, holder.Renew(t.Context()))
				rec, err := lock.Inspect(t.Context())
				require.NoError(t, err)
				require.Equal(t, name, string(rec.Payload))
				require.Equal(t, holder.Token(), rec.Token)
			})
		}
		require.NoError(t, holder.Release(t.Context()))
	})
}

// Two processes that find such a server at the same moment write over each other's records. Neither
// leads.
func TestTwoProcessesOnAServerThatIgnoresConditions(t *testing.T) {
	eachServer(t, func(t *testing.T, server testserver.S3) {
		for _, name := range []string{"both", "If-Match", "If-None-Match"} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				behind := seeming(t, server, name)
				for range 3 {
					bucket := server.Bucket(t)
					var said [2]bytes.Buffer
					var both [2]*exec.Cmd
					for i := range both {
						cmd := exec.CommandContext(minute(t), os.Args[0], "-test.run=^$")
						// of a sixth, a busy machine answers
						cmd.Env = append(holderEnv(behind, bucket), "HOLDER_TTL=1m")
						cmd.Stdout = &said[i]
						require.NoError(t, cmd.Start())
						both[i] = cmd
					}
					for i, cmd := range both {
						require.Error(t, cmd.Wait())
						require.Contains(t, said[i].String(), "the store's conditions with")
						require.NotRegexp(t, `(?m)^token `, said[i].String(), "it leads")
					}
				}
			})
		}
	})
}

// What the first acquisition sends, and what a rate limit makes of it.
func TestTheFirstAcquisitionTriesARealServer(t *testing.T) {
	eachServer(t, func(t *testing.T, server testserver.S3) {
		limited := true
		l := newLink(t, server, server.Bucket(t))
		l.Decide = func(r *http.Request) faultproxy.Fault {
			if limited && (strings.Contains(r.Header.Get("If-Match"), "0123456789abcdef") || l.Count("PUT") > 0 &&
				r.Header.Get("If-None-Match") == "*") {
				return tooMany
			}
			return faultproxy.Fault{}
		}
		lock := newLock(t, l.store)
		take := func() []int {
			t.Helper()
			from := len(l.Requests())
			lease, err := lock.TryAcquire(t.Context())
			require.NoError(t, err)
			var statuses []int
			for _, r := range l.Requests()[from:] {
				if r.Method == http.MethodPut {
					statuses = append(statuses, r.Status)
				}
			}
			require.NoError(t, lease.Renew(t.Context()))
			require.NoError(t, lease.Release(t.Context()))
			return statuses
		}
		for range 3 {
			require.Equal(t, []int{200, 429, 429}, take(), "a rate limit proves nothing, and the next acquisition "+
				"asks again")
		}
		limited = false
		require.Equal(t, []int{200, 412, 412}, take())
		require.Equal(t, []int{200}, take())
	})
}

// Behind a front that takes one write a second of each object, checks take their time and succeed.
func TestChecksOnARateLimitedServer(t *testing.T) {
	eachServer(t, func(t *testing.T, server testserver.S3) {
		bucket := server.Bucket(t)
		var mu sync.Mutex
		last, limited := map[string]time.Time{}, 0
		proxy := faultproxy.Start(t, server.Endpoint, func(r *http.Request) faultproxy.Fault {
			mu.Lock()
			defer mu.Unlock()
			if r.Method != http.MethodPut && r.Method != http.MethodDelete {
				return faultproxy.Fault{}
			}
			if time.Since(last[r.URL.Path]) < time.Second {
				limited++
				return tooMany
			}
			last[r.URL.Path] = time.Now()
			return faultproxy.Fault{}
		})
		behind := server
		behind.Endpoint = proxy.URL()
		client := behind.Client(func(o *s3.Options) { o.RetryMaxAttempts = 1 })
		store := leasehold.NewS3Store(client, bucket, leasehold.WithMinTTL(6*time.Second))
		report, err := leasehold.CheckStore(t.Context(), store, "check")
		require.NoError(t, err)
		require.True(t, report.ConditionalPuts)
		require.Empty(t, report.Leftover)

		lock := newLock(t, store)
		ctx := minute(t)
		lease, err := lock.TryAcquire(ctx)
		require.NoError(t, err)
		require.NoError(t, lease.Release(ctx))

		files, err := fenced.NewS3Store(client, bucket, fenced.PaddedBodies)
		require.NoError(t, err)
		for token := range uint64(3) {
			require.NoError(t, files.Put(ctx, token+1, "data/report", strings.NewReader("report")))
		}
		require.ErrorIs(t, files.Put(ctx, 1, "data/report", strings.NewReader("late")), leasehold.ErrFenced)
		require.NotZero(t, limited)
	})
}
