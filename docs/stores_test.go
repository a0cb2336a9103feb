package docs_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/createonly"
	"github.com/leasehold-go/leasehold/fenced"
	"github.com/leasehold-go/leasehold/internal/testkit/fakes3"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
)

// The function tigris is in integrations.md, word for word.

func tigris(cfg aws.Config) *s3.Client {
	return s3.NewFromConfig(cfg, func(o *s3.Options) {
		o.APIOptions = append(o.APIOptions, smithyhttp.SetHeaderValue("X-Tigris-Consistent", "true"))
	})
}

func TestTigris(t *testing.T) {
	server, methods := &fakes3.Server{}, map[string]int{}
	cfg := aws.Config{
		Region: "auto", BaseEndpoint: aws.String("http://s3.test"),
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "access", SecretAccessKey: "secret"}, nil
		}),
		HTTPClient: &http.Client{Transport: fakes3.Transport{Handler: http.HandlerFunc(func(w http.ResponseWriter,
			r *http.Request) {
			methods[r.Method]++
			if r.Header.Get("X-Tigris-Consistent") != "true" ||
				!strings.Contains(r.Header.Get("Authorization"), ";x-tigris-consistent") {
				t.Errorf("%s %s without the header, or with one that is not signed", r.Method, r.URL)
			}
			r.URL.Path = "/" + fakes3.Bucket + r.URL.Path // the SDK has put the bucket's name in front of the host
			server.ServeHTTP(w, r)
		})}},
	}
	client, ctx := tigris(cfg), t.Context()
	store := leasehold.NewS3Store(client, "locks")
	lock, err := leasehold.NewLock(store, "locks/report")
	require.NoError(t, err)
	require.NoError(t, lock.Do(ctx, func(ctx context.Context, lease *leasehold.Lease) error {
		return lease.Renew(ctx)
	}))
	files, err := fenced.NewS3Store(client, "locks", fenced.PaddedBodies)
	require.NoError(t, err)
	require.NoError(t, files.Put(ctx, 1, "large", strings.NewReader(strings.Repeat("x", 9<<20))))
	require.NoError(t, files.Seal(ctx, 2, "large"))
	for _, method := range []string{"GET", "HEAD", "PUT", "POST", "DELETE"} {
		require.NotZero(t, methods[method], method)
	}
}

// The figures of integrations.md for Cloudflare R2: an hour of one holder.
func TestRateLimit(t *testing.T) {
	for _, tc := range []struct {
		ttl     time.Duration
		lost    int     // at least so many; none if 0
		writes  float64 // roughly
		refused float64 // share
	}{
		{ttl: 1 * time.Second, lost: 2500, writes: 60_400, refused: 0.95},
		{ttl: 2 * time.Second, writes: 16_500, refused: 0.80},
		{ttl: 3 * time.Second, writes: 7_000, refused: 0.50},
		{ttl: 6 * time.Second, writes: 1_850},
		{ttl: 15 * time.Second, writes: 740},
	} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex // guards last and refusals
			var last time.Time
			refusals, mem := 0, leasehold.NewMemStore()
			// One write a second. The others fail as S3Store fails with a 429: temporarily.
			store := teststore.New(mem, func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
				if r.Puts() {
					mu.Lock()
					defer mu.Unlock()
					if time.Since(last) < time.Second {
						refusals++
						return leasehold.Object{}, errors.New("429 Too Many Requests")
					}
					last = time.Now()
				}
				return r.Send(ctx)
			})
			var losses atomic.Int64 // leases are lost on the goroutines of timers
			lock, err := leasehold.NewLock(store, "locks/report", leasehold.WithTTL(tc.ttl),
				leasehold.WithLogger(slog.New(slog.DiscardHandler)),
				leasehold.WithObserver(func(_ context.Context, e leasehold.Event) {
					if e.Kind == leasehold.EventLost {
						losses.Add(1)
					}
				}))
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			for ctx.Err() == nil {
				_ = lock.Do(ctx, func(ctx context.Context, _ *leasehold.Lease) error {
					<-ctx.Done()
					return nil
				})
			}
			mu.Lock()
			writes, lost := store.Sent(teststore.Puts...), int(losses.Load())
			share := float64(refusals) / float64(writes)
			mu.Unlock()
			t.Logf("TTL %v: %d leases lost, %d writes, %.2f of them refused", tc.ttl, lost, writes, share)
			if tc.lost == 0 {
				require.Zero(t, lost)
			}
			require.GreaterOrEqual(t, lost, tc.lost)
			require.InEpsilon(t, tc.writes, writes, 0.02)
			require.InDelta(t, tc.refused, share, 0.01)

			time.Sleep(time.Minute)
			nothing := func(context.Context, *leasehold.Lease) error { return nil }
			for _, limit := range []struct{ least, most time.Duration }{{time.Second, 3 * time.Second},
				{2 * time.Second, 6 * time.Second}} {
				start := time.Now()
				require.NoError(t, lock.Do(t.Context(), nothing))
				took := time.Since(start)
				t.Logf("a job that is over at once took %v", took)
				require.True(t, limit.least <= took && took <= limit.most, took)
			}
		})
	}
	client := fakes3.NewClient(nil)
	store := leasehold.NewS3Store(client, "my-bucket", leasehold.WithMinTTL(6*time.Second))
	_, err := leasehold.NewLock(store, "locks/report", leasehold.WithTTL(5*time.Second))
	require.ErrorContains(t, err, "TTL 5s is below 6s")
}

func TestCostOnS3Express(t *testing.T) {
	const put, get = 0.00113 / 1000, 0.00003 / 1000 // dollars a request
	const written, read = 0.0032 / (1 << 30), 0.0006 / (1 << 30)
	page, err := os.ReadFile("stores.md")
	require.NoError(t, err)
	month := (730 * time.Hour).Seconds()
	puts, gets := 3*month, 6*month // times the TTL in seconds
	require.Contains(t, string(page), fmt.Sprintf(" **(%.2f + %.2f × waiting candidates) ÷ TTL**", puts*put, gets*get))
	const shortest = 5 // seconds
	require.Less(t, 1024*(puts*written+9*gets*read)/shortest, 0.03)
	require.Less(t, puts*put, 0.25*puts*0.005/1000, "less than a quarter of S3 Standard")
}

// The SDK asks for a session with a directory bucket, which it knows by its name, and signs with
// the session's credentials.
func TestDirectoryBucket(t *testing.T) {
	server, sessions := &fakes3.Server{}, 0
	client := s3.New(s3.Options{
		Region: "us-east-1", BaseEndpoint: aws.String("http://s3.test"),
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "access", SecretAccessKey: "secret"}, nil
		}),
		HTTPClient: &http.Client{Transport: fakes3.Transport{Handler: http.HandlerFunc(func(w http.ResponseWriter,
			r *http.Request) {
			if r.URL.Query().Has("session") {
				sessions++
				expires := time.Now().Add(5 * time.Minute).UTC().Format(time.RFC3339)
				_, _ = io.WriteString(w, "<CreateSessionResult><Credentials>"+
					"<AccessKeyId>session</AccessKeyId><SecretAccessKey>s</SecretAccessKey>"+
					"<SessionToken>token</SessionToken><Expiration>"+expires+
					"</Expiration></Credentials></CreateSessionResult>")
				return
			}
			if !strings.Contains(r.Header.Get("Authorization"), "Credential=session/") ||
				r.Header.Get("X-Amz-S3session-Token") != "token" {
				t.Errorf("%s %s is not signed by the session", r.Method, r.URL)
			}
			if r.Header.Get("Content-Md5") != "" {
				t.Errorf("%s %s has an MD5, which directory buckets do not know", r.Method, r.URL)
			}
			r.URL.Path = "/" + fakes3.Bucket + r.URL.Path
			server.ServeHTTP(w, r)
		})}},
	})
	lock, err := leasehold.NewLock(leasehold.NewS3Store(client, "locks--use1-az4--x-s3"), "report")
	require.NoError(t, err)
	require.NoError(t, lock.Do(t.Context(), func(ctx context.Context, lease *leasehold.Lease) error {
		return lease.Renew(ctx)
	}))
	require.Equal(t, 1, sessions)
}

// The dollars of createonly: an hour of a leader and of a waiting candidate.
func TestCostWhereObjectsAreOnlyCreated(t *testing.T) {
	const list, put, get, hours = 0.005 / 1000, 0.005 / 1000, 0.0004 / 1000, 730 // dollars a request
	page, err := os.ReadFile("stores.md")
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		server := &fakes3.Server{CreateOnly: true}
		open := func() (*leasehold.Lock, func() float64) {
			var lists, puts, gets atomic.Int64
			transport := fakes3.Transport{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.URL.Query().Has("list-type"):
					lists.Add(1)
				case r.Method == http.MethodPut:
					puts.Add(1)
				case r.Method == http.MethodGet:
					gets.Add(1)
				}
				server.ServeHTTP(w, r)
			})}
			store := createonly.New(createonly.NewS3(fakes3.NewClient(transport), fakes3.Bucket))
			lock, err := leasehold.NewLock(store, "locks/report")
			require.NoError(t, err)
			return lock, func() float64 {
				return hours * (list*float64(lists.Load()) + put*float64(puts.Load()) + get*float64(gets.Load()))
			}
		}
		leads, leader := open()
		waits, candidate := open()
		lease, err := leads.Acquire(t.Context())
		require.NoError(t, err)
		hour, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err = waits.Acquire(hour)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, lease.Release(t.Context()))
		for what, cost := range map[string]struct{ ifMatch, createOnly, counted float64 }{
			"a leader":            {2.63, 5.47, leader()},
			"a waiting candidate": {0.42, 10.93, candidate()},
		} {
			require.InEpsilon(t, cost.createOnly, cost.counted, 0.06, what)
			require.Contains(t, strings.Join(strings.Fields(string(page)), " "),
				fmt.Sprintf(" %s costs $%.2f a month instead of $%.2f", what, cost.createOnly, cost.ifMatch))
		}
	})
}
