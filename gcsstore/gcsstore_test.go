package gcsstore_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/storage"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/api/option"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/gcsstore"
	"github.com/leasehold-go/leasehold/internal/testkit/fakes3"
	"github.com/leasehold-go/leasehold/internal/testkit/faultproxy"
	"github.com/leasehold-go/leasehold/internal/testkit/storehttptest"
	"github.com/leasehold-go/leasehold/internal/testkit/testctx"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
	"github.com/leasehold-go/leasehold/storetest"
)

type tests struct{ *testing.M }

func (m tests) Run() int { return testserver.Main(m.M) }

func TestMain(m *testing.M) { goleak.VerifyTestMain(tests{m}) }

const key = storehttptest.Key

// wire is the real client's connection to a server, with faults and a log of requests in between.
type wire struct {
	*fakes3.Wire
	client *storage.Client
}

// newWire connects a client made by NewClient. If server is nil, it connects to fake-gcs-server.
func newWire(t *testing.T, server http.Handler) *wire {
	w := &wire{Wire: fakes3.NewWire(server)}
	endpoint := "http://gcs.test"
	if server == nil {
		endpoint = testserver.FakeGCS(t)
		w.Base = &http.Transport{MaxIdleConnsPerHost: 64}
	}
	var err error
	w.client, err = gcsstore.NewClient(t.Context(),
		option.WithHTTPClient(&http.Client{Transport: w}), option.WithEndpoint(endpoint+"/storage/v1/"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.client.Close()) })
	return w
}

func (w *wire) CloseIdleConnections() {
	if c, ok := w.Base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// xml connects a client made by storage.NewClient to the same server. It reads by the XML API and
// does not record the Date.
func (w *wire) xml(t *testing.T) *storage.Client {
	endpoint := "http://gcs.test"
	if _, ok := w.Base.(fakes3.Transport); !ok {
		endpoint = testserver.FakeGCS(t)
	}
	client, err := storage.NewClient(t.Context(), option.WithoutAuthentication(),
		option.WithHTTPClient(&http.Client{Transport: w}), option.WithEndpoint(endpoint+"/storage/v1/"))
	require.NoError(t, err)
	return client
}

func (w *wire) createBucket(t *testing.T) string {
	name := "b-" + strings.ToLower(rand.Text()[:16])
	require.NoError(t, w.client.Bucket(name).Create(t.Context(), "project", nil))
	return name
}

// over returns a client that reads by one of the two APIs. A store on it sees all replies.
func over(t *testing.T, endpoint string, network http.RoundTripper, reads string) *storage.Client {
	opts := []option.ClientOption{option.WithoutAuthentication(),
		option.WithHTTPClient(&http.Client{Transport: gcsstore.Transport(network)}),
		option.WithEndpoint(endpoint + "/storage/v1/")}
	if reads == "JSON" {
		opts = append(opts, storage.WithJSONReads())
	}
	client, err := storage.NewClient(t.Context(), opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// overHTTP is what the store has in common with others, by each API that a client may read by.
var overHTTP = map[string]storehttptest.Store{"JSON": reading("JSON"), "XML": reading("XML")}

func reading(api string) storehttptest.Store {
	return storehttptest.Store{
		New: func(t *testing.T, endpoint string, network http.RoundTripper, slack time.Duration) leasehold.Store {
			client := over(t, endpoint, network, api)
			client.SetRetry(storage.WithPolicy(storage.RetryAlways)) // as the user's other code may want
			if slack == 0 {
				return gcsstore.New(client, bucket)
			}
			return gcsstore.New(client, bucket, gcsstore.WithServerClock(slack))
		},
		Server: func() (http.Handler, func(key string, body []byte)) {
			server := &fakeGCS{}
			return server, func(key string, body []byte) { server.write(key, body, nil, time.Now()) }
		},
		Exists: func(w http.ResponseWriter, _ *http.Request) {
			refuse(w, http.StatusPreconditionFailed, "conditionNotMet", "Precondition Failed")
		},
		ETag: "1000", Hint: "is this Cloud Storage?", Lines: true,
	}
}

var storeCalls, requireOnly = storehttptest.Calls, storehttptest.RequireOnly

func TestEveryCallIsOneRequest(t *testing.T) {
	for api, s := range overHTTP {
		t.Run(api, s.OneRequest)
	}
}

func TestObjectThatIsTooLargeIsLeftAlone(t *testing.T) { overHTTP["JSON"].TooLarge(t) }

func TestARequestHasADeadline(t *testing.T) { overHTTP["JSON"].Deadline(t) }

func TestConformsOnFakeGCSServer(t *testing.T) {
	for _, reads := range []string{"JSON", "XML"} {
		t.Run(reads, func(t *testing.T) {
			w := newWire(t, nil)
			name := w.createBucket(t)
			client := w.client
			if reads == "XML" {
				client = w.xml(t)
			}
			store := gcsstore.New(client, name, gcsstore.WithKeyPrefix("some/prefix/"))
			storetest.Run(t, func(*testing.T) leasehold.Store { return store },
				storetest.Rounds(40),
				storetest.IgnoresDeleteCondition(),
				storetest.MissingIsPreconditionFailed(),
				storetest.Plant(plant(w.client.Bucket(name))),
			)
		})
	}
}

// plant writes an object that a Store would refuse to write.
func plant(b *storage.BucketHandle) func(key string, body []byte) error {
	return func(key string, body []byte) error {
		w := b.Object("some/prefix/" + key).NewWriter(context.Background())
		w.ChunkSize, w.ContentType, w.CacheControl = 0, "application/json", "no-store"
		_, err := w.Write(body)
		return errors.Join(err, w.Close())
	}
}

func TestConformsOnStrictServer(t *testing.T) {
	w := newWire(t, &fakeGCS{})
	store := gcsstore.New(w.client, bucket, gcsstore.WithKeyPrefix("some/prefix/"))
	storetest.Run(t, func(*testing.T) leasehold.Store { return store },
		storetest.MissingIsPreconditionFailed(), // no IgnoresDeleteCondition: its DELETE honours the condition
		storetest.Plant(plant(w.client.Bucket(bucket))),
	)
}

func TestErrorsSayWhatToDo(t *testing.T) {
	canned := func(status int, reason, message string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { refuse(w, status, reason, message) })
	}
	const denied = "robot@project.iam.gserviceaccount.com does not have storage.objects.x access to the Google Cloud " +
		"Storage object."
	for _, c := range []struct {
		name   string
		server http.Handler
		calls  string // calls to try, separated by spaces; all if empty
		want   error
		say    string
	}{
		{"no such bucket", canned(404, "notFound", "The specified bucket does not exist."), "",
			leasehold.ErrPermanent, "create the bucket, or"},
		{"writing to what may be no bucket", canned(404, "notFound", "Not Found"), "PutIfNoneMatch PutIfMatch",
			leasehold.ErrPermanent, "create the bucket, or"},
		{"no such object", canned(404, "notFound", "No such object: locks/locks/service"), "Get DeleteIfMatch",
			leasehold.ErrNotExist, "No such object"},
		{"may not read", canned(403, "forbidden", denied), "Get", leasehold.ErrPermanent,
			"storage.objects.get on the object, and storage.objects.list on the bucket"},
		{"may not write", canned(403, "forbidden", denied), "PutIfNoneMatch PutIfMatch", leasehold.ErrPermanent,
			"storage.objects.create on the object, and storage.objects.delete to overwrite it"},
		{"may not delete", canned(403, "forbidden", denied), "DeleteIfMatch", leasehold.ErrPermanent,
			"storage.objects.delete"},
		{"kept by a retention policy",
			canned(403, "retentionPolicyNotMet", "Object is subject to bucket's retention policy"), "PutIfMatch",
			leasehold.ErrPermanent, "remove any retention policy or hold that forbids overwriting"},
		{"bad credentials", canned(401, "authError", "Invalid Credentials"), "", leasehold.ErrPermanent,
			"check the credentials"},
		{"changed", canned(412, "conditionNotMet", "Precondition Failed"), "PutIfNoneMatch PutIfMatch DeleteIfMatch",
			leasehold.ErrPreconditionFailed, `"locks/service`},
		{"bad request", canned(400, "invalid", "Invalid bucket name"), "", leasehold.ErrPermanent,
			"check bucket name, key and endpoint"},
		{"over the rate limit", canned(429, "rateLimitExceeded", "The object exceeded the rate limit"), "", nil,
			"rateLimitExceeded"},
		{"over an older rate limit", canned(403, "userRateLimitExceeded", "User Rate Limit Exceeded"), "", nil,
			"userRateLimitExceeded"},
		{"not modified", canned(304, "notModified", ""), "", nil, ""}, // nothing asks for it
		{"conflict", canned(409, "conflict", "The object is being changed"), "", nil, "conflict"},
		{"internal error", canned(500, "backendError", "Backend Error"), "", nil, "Backend Error"},
		{"unavailable", canned(503, "backendError", "Backend Error"), "", nil, "Backend Error"},
		{
			"connection closed",
			http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }),
			"",
			nil,
			"EOF",
		},
	} {
		overHTTP["JSON"].Answer(t, c.name, c.server, c.calls, c.want, c.say)
	}
}

func TestMissingBucketOnFakeGCSServer(t *testing.T) {
	w := newWire(t, nil)
	lock, err := leasehold.NewLock(gcsstore.New(w.client, "no-such-bucket"), key)
	require.NoError(t, err)
	ctx := testctx.Within(t, 30*time.Second)
	_, err = lock.Acquire(ctx)
	require.ErrorIs(t, err, leasehold.ErrPermanent)
	require.ErrorContains(t, err, `bucket "no-such-bucket"`)
}

func TestMissingBucketReadByTheXMLAPIShowsAtTheFirstWrite(t *testing.T) {
	store := gcsstore.New(newWire(t, &fakeGCS{}).xml(t), "another")
	_, err := store.Get(t.Context(), key)
	requireOnly(t, leasehold.ErrNotExist, err)
	_, err = store.PutIfNoneMatch(t.Context(), key, []byte("{}"))
	requireOnly(t, leasehold.ErrPermanent, err)
}

func TestBadArgumentsAreNamedWithoutARequest(t *testing.T) {
	w := newWire(t, &fakeGCS{})
	for _, c := range []struct {
		name  string
		store *gcsstore.Store
		say   string
	}{
		{"URL", gcsstore.New(w.client, "gs://locks/team/a/"),
			`is a URL (give the bare name "locks", and what follows it, "team/a/", to WithKeyPrefix`},
		{"path", gcsstore.New(w.client, "locks/team"), "is not a bucket's name"},
		{"capitals", gcsstore.New(w.client, "Locks"), "is not a bucket's name"},
		{"empty", gcsstore.New(w.client, ""), "the bucket has no name"},
		{"no store", nil, "the Store is nil or empty (make one with New"},
		{"an empty store", &gcsstore.Store{}, "the Store is nil or empty (make one with New"},
		{"a nil option", gcsstore.New(w.client, bucket, nil), "an Option is nil"},
		{"no client", gcsstore.New(nil, bucket), "the Cloud Storage client is nil"},
		{"absolute prefix", gcsstore.New(w.client, bucket, gcsstore.WithKeyPrefix("/locks/")),
			`key prefix "/locks/" has an empty path segment`},
		{"dots", gcsstore.New(w.client, bucket, gcsstore.WithKeyPrefix("a/../")),
			`key prefix "a/../" has a path segment "." or ".."`},
		{"backslash", gcsstore.New(w.client, bucket, gcsstore.WithKeyPrefix(`a\`)), "has a backslash"},
		{"small slack", gcsstore.New(w.client, bucket, gcsstore.WithServerClock(time.Second)), "slack 1s is below 2s"},
		{"negative slack", gcsstore.New(w.client, bucket, gcsstore.WithServerClock(-time.Hour)),
			"slack -1h0m0s is below 2s"},
		{"long prefix", gcsstore.New(w.client, bucket, gcsstore.WithKeyPrefix(strings.Repeat("p", 1024))),
			"is longer than 1024 bytes"},
		{"long name", gcsstore.New(w.client, bucket, gcsstore.WithKeyPrefix(strings.Repeat("p", 1023))),
			"use 1 to 1024"},
	} {
		overHTTP["JSON"].BadArgument(t, c.name, c.store, c.say, c.name == "long name" || c.store == nil)
	}
	overHTTP["JSON"].WrongETags(t, map[string]error{
		"": leasehold.ErrPermanent,
		// Cloud Storage reads generation 0 as "must not exist": a create in disguise.
		"0": leasehold.ErrPreconditionFailed, "-1": leasehold.ErrPreconditionFailed,
		"+7":    leasehold.ErrPreconditionFailed,
		`"abc"`: leasehold.ErrPreconditionFailed, "9223372036854775808": leasehold.ErrPreconditionFailed,
	})
	require.Zero(t, w.Count())
}

func TestRefusedCredentialsEndAtOnce(t *testing.T) {
	var asked atomic.Int32
	google := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		reply(w, http.StatusBadRequest, map[string]string{
			"error":             "invalid_grant",
			"error_description": "Invalid JWT Signature.",
		})
	}))
	defer google.Close()
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	account, err := json.Marshal(map[string]string{
		"type": "service_account", "client_email": "robot@project.iam.gserviceaccount.com", "token_uri": google.URL,
		"private_key_id": "deleted", "private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY",
			Bytes: der})),
	})
	require.NoError(t, err)
	credentials := option.WithAuthCredentialsJSON(option.ServiceAccount, account)

	for name, newClient := range map[string]func(context.Context, ...option.ClientOption) (*storage.Client, error){
		"gcsstore.NewClient": gcsstore.NewClient, "storage.NewClient": storage.NewClient,
	} {
		t.Run(name, func(t *testing.T) {
			client, err := newClient(t.Context(), credentials, option.WithEndpoint(google.URL+"/storage/v1/"))
			require.NoError(t, err)
			defer client.Close()
			for call, do := range storeCalls {
				asked.Store(0)
				_, err := do(t.Context(), gcsstore.New(client, bucket), "1000")
				requireOnly(t, leasehold.ErrPermanent, err)
				require.ErrorContains(t, err, "Google refuses an access token for these credentials", call)
				require.LessOrEqual(t, asked.Load(), int32(2), "%s", call)
			}
		})
	}
}

func TestAgeIsByTheServersClock(t *testing.T) {
	for api, s := range overHTTP {
		t.Run(api, s.Ages)
	}
	synctest.Test(t, func(t *testing.T) {
		w, clock := newWire(t, &fakeGCS{}), gcsstore.WithServerClock(2*time.Second)
		_, err := gcsstore.New(w.client, bucket).PutIfNoneMatch(t.Context(), key, []byte("{}"))
		require.NoError(t, err)
		time.Sleep(30 * time.Second)
		for client, want := range map[*storage.Client]time.Duration{
			w.client: 28 * time.Second, w.xml(t): 0, // which does not record the Date
		} {
			o, err := gcsstore.New(client, bucket, clock).Get(t.Context(), key)
			require.NoError(t, err)
			require.Equal(t, want, o.Age)
		}
	})
}

func TestAgeOnFakeGCSServer(t *testing.T) {
	w := newWire(t, nil)
	store := gcsstore.New(w.client, w.createBucket(t), gcsstore.WithServerClock(2*time.Second))
	report, err := leasehold.CheckStore(t.Context(), store, "check")
	require.NoError(t, err)
	require.Equal(t, leasehold.ClockConsistent, report.ServerClock)
	sent := time.Now()
	_, err = store.PutIfNoneMatch(t.Context(), key, []byte("{}"))
	require.NoError(t, err)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		o, err := store.Get(t.Context(), key)
		require.NoError(c, err)
		require.GreaterOrEqual(c, o.Age, 2*time.Second)
		require.LessOrEqual(c, o.Age, time.Since(sent))
	}, 10*time.Second, 100*time.Millisecond)
}

func TestBodyThatBreaksOffIsNotTakenForAMissingObject(t *testing.T) {
	// The first reply ends early. The client asks for the rest of that generation, which has been
	// overwritten in the meantime.
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) > 1 {
			refuse(w, http.StatusNotFound, "notFound", "No such object: locks/locks/service")
			return
		}
		w.Header().Set("X-Goog-Generation", "1000")
		w.Header().Set("Content-Length", "1000")
		_, _ = w.Write([]byte("half"))
	}))
	defer server.Close()
	client, err := gcsstore.NewClient(t.Context(), option.WithoutAuthentication(),
		option.WithEndpoint(server.URL+"/storage/v1/"))
	require.NoError(t, err)
	defer client.Close()
	_, err = gcsstore.New(client, bucket).Get(t.Context(), key)
	requireOnly(t, nil, err)
	require.EqualValues(t, 2, requests.Load())
}

func TestIntervalsBelowTheRateLimitAreRefused(t *testing.T) {
	store := gcsstore.New(newWire(t, &fakeGCS{}).client, bucket)
	_, err := leasehold.NewLock(store, key, leasehold.WithTTL(5*time.Second))
	require.ErrorContains(t, err, "below 6s")
	_, err = leasehold.NewLock(store, key, leasehold.WithRenewInterval(time.Second))
	require.ErrorContains(t, err, "renew interval 1s is below 2s")
	_, err = leasehold.NewLock(store, key, leasehold.WithTTL(store.Describe().MinTTL))
	require.NoError(t, err)
}

func TestRateLimitIsWaitedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &fakeGCS{limited: true}
		store := gcsstore.New(newWire(t, server).client, bucket)
		lost := 0
		newLock := func() *leasehold.Lock {
			lock, err := leasehold.NewLock(store, key, leasehold.WithTTL(store.Describe().MinTTL),
				leasehold.WithObserver(func(_ context.Context, e leasehold.Event) {
					if e.Kind == leasehold.EventLost {
						lost++
					}
				}))
			require.NoError(t, err)
			return lock
		}
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute) // takes about five
		defer cancel()
		locks := []*leasehold.Lock{newLock(), newLock(), newLock()}
		for term := range 30 { // each term begins right after the previous release and ends as soon as possible
			lease, err := locks[term%len(locks)].Acquire(ctx)
			require.NoError(t, err)
			require.EqualValues(t, term+1, lease.Token())
			require.NoError(t, lease.Commit(ctx, fmt.Appendf(nil, "of term %d", term)))
			if term%5 == 0 {
				time.Sleep(20 * time.Second) // time for renewals
			}
			require.NoError(t, lease.Release(ctx))
		}
		require.Zero(t, lost)
		require.NotZero(t, server.throttled, "no write met the rate limit, so the test proves nothing")
		t.Logf("30 terms with a commit each, %d writes answered 429", server.throttled)
	})
}

// A connection that has fallen silent costs two requests.
func TestASilentConnectionIsGivenUp(t *testing.T) {
	for _, made := range []string{"NewClient", "storage.NewClient", "storage.NewClient, JSON"} {
		t.Run(made, func(t *testing.T) {
			link := faultproxy.StartLink(t, &fakeGCS{})
			// Google's own transport is made of the default one, and has settings for HTTP/2.
			old := http.DefaultTransport
			defer func() { http.DefaultTransport = old }()
			http.DefaultTransport = &http.Transport{
				TLSClientConfig:   &tls.Config{RootCAs: link.Roots()},
				ForceAttemptHTTP2: true,
			}
			opts := []option.ClientOption{option.WithoutAuthentication(),
				option.WithEndpoint(link.URL() + "/storage/v1/")}
			make := gcsstore.NewClient
			if made != "NewClient" {
				make = storage.NewClient
			}
			if made == "storage.NewClient, JSON" {
				opts = append(opts, storage.WithJSONReads())
			}
			client, err := make(t.Context(), opts...)
			require.NoError(t, err)
			defer func() { require.NoError(t, client.Close()) }()
			storehttptest.SilentConnection(t, link, gcsstore.New(client, bucket))
		})
	}
}
