package itest_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/createonly"
	"github.com/leasehold-go/leasehold/internal/testkit/faultproxy"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
	"github.com/leasehold-go/leasehold/storetest"
)

// refuseIfMatch answers as Storj and Aliyun OSS do.
func refuseIfMatch(r *http.Request) faultproxy.Fault {
	if r.Header.Get("If-Match") != "" {
		return faultproxy.Fault{Kind: faultproxy.Answer, Status: http.StatusNotImplemented}
	}
	return faultproxy.Fault{}
}

// TestCreateOnly runs on servers on which objects can only be created what other tests run on
// others.
func TestCreateOnly(t *testing.T) {
	eachServer(t, func(t *testing.T, server testserver.S3) {
		proxy := faultproxy.Start(t, server.Endpoint, refuseIfMatch)
		behind := server
		behind.Endpoint = proxy.URL()
		open := func(bucket string, opts ...func(*s3.Options)) leasehold.Store {
			return createonly.New(createonly.NewS3(behind.Client(opts...), bucket))
		}
		connect := func(t *testing.T, bucket string) *link {
			l := unlinked(t)
			l.store = open(bucket, func(o *s3.Options) {
				o.RetryMaxAttempts, o.HTTPClient = 1, &http.Client{Transport: l.Transport}
			})
			return l
		}
		lossyOn := func(t *testing.T) opened {
			bucket := server.Bucket(t)
			return func(seed uint64) leasehold.Store {
				l := connect(t, bucket)
				l.Decide = lossy(seed, l.decide)
				return l.store
			}
		}
		env := func(t *testing.T) []string {
			return append(holderEnv(behind, server.Bucket(t)), "HOLDER_CREATEONLY=1")
		}
		for name, test := range map[string]func(t *testing.T){
			"If-Match is refused": func(t *testing.T) {
				store := leasehold.NewS3Store(behind.Client(), server.Bucket(t))
				_, err := leasehold.CheckStore(t.Context(), store, "locks/check")
				require.ErrorIs(t, err, leasehold.ErrUnsafeStore)
			},
			"conformance": func(t *testing.T) {
				busy(t)
				store := open(server.Bucket(t))
				storetest.Run(t, func(*testing.T) leasehold.Store { return store }, storetest.Rounds(raceRounds),
					storetest.MissingIsPreconditionFailed())
			},
			"check": func(t *testing.T) {
				report, err := leasehold.CheckStore(t.Context(), open(server.Bucket(t)), "locks/check")
				require.NoError(t, err)
				require.True(t, report.ConditionalPuts)
				require.True(t, report.ConditionalDeletes)
			},
			"linearizable register": func(t *testing.T) {
				linearizableRegister(t, server.Name+"-createonly", false, lossyOn(t))
			},
			"linearizable lock": func(t *testing.T) {
				linearizableLock(t, server.Name+"-createonly", lossyOn(t))
			},
			"ambiguous writes": func(t *testing.T) {
				ambiguousWrites(t, func(t *testing.T) func() *link {
					bucket := server.Bucket(t)
					return func() *link { return connect(t, bucket) }
				})
			},
			"elections of processes": func(t *testing.T) { elections(t, env(t)) },
			"suspended process": func(t *testing.T) {
				bucket := server.Bucket(t)
				suspend(t, open(bucket), append(holderEnv(behind, bucket), "HOLDER_CREATEONLY=1"))
			},
			"requests": func(t *testing.T) {
				bucket := server.Bucket(t)
				createOnlyRequests(t, connect(t, bucket), connect(t, bucket))
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t)
			})
		}
	})
}

// createOnlyRequests counts the requests of a holder, and of a poll.
func createOnlyRequests(t *testing.T, holds, waits *link) {
	patient := leasehold.WithTTL(time.Minute) // so that no request is given up on a busy machine, and sent again
	lock := newLock(t, holds.store, leasehold.WithManualRenewal(), patient)
	lease, err := lock.TryAcquire(t.Context())
	require.NoError(t, err)
	for range createonly.Keep {
		require.NoError(t, lease.Renew(t.Context()))
	}
	// A DELETE is sent in the background, and again with the next write if it is not answered.
	answered := func(l *link) int {
		requests := l.Requests()
		return len(slices.DeleteFunc(requests, func(r faultproxy.Request) bool { return r.Status == 0 }))
	}
	all := func(l *link, n int) {
		require.Eventually(t, func() bool { return answered(l) >= n }, time.Minute, time.Millisecond)
	}
	require.Eventually(t, func() bool { return holds.Count("DELETE") == 1 }, time.Minute, time.Millisecond)
	all(holds, holds.Count())
	took := func(l *link, what string, do func() error, want ...string) {
		t.Helper()
		before := l.Count()
		require.NoError(t, do())
		all(l, before+len(want))
		var got []string
		for _, r := range l.Requests()[before:] {
			require.Empty(t, r.IfMatch)
			got = append(got, r.Method)
		}
		require.Equal(t, want, got, what)
	}
	took(holds, "renewal", func() error { return lease.Renew(t.Context()) }, "GET", "PUT", "GET", "DELETE")
	took(waits, "poll", func() error {
		_, err := newLock(t, waits.store, patient).TryAcquire(t.Context())
		require.ErrorIs(t, err, leasehold.ErrHeld)
		return nil
	}, "GET", "GET", "GET")
	took(holds, "release", func() error { return lease.Release(t.Context()) }, "GET", "PUT", "GET", "DELETE")
}
