package leasehold_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/bubble"
	"github.com/leasehold-go/leasehold/internal/testkit/fakes3"
	"github.com/leasehold-go/leasehold/internal/testkit/faultproxy"
	"github.com/leasehold-go/leasehold/internal/testkit/testctx"
	"github.com/leasehold-go/leasehold/internal/testkit/testopt"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
	"github.com/leasehold-go/leasehold/internal/testkit/testsize"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
)

// checkCost is what CheckStore costs on a strict store, as its comment says.
const checkCost = 50

func TestCheckStoreOnSoundStores(t *testing.T) {
	for name, c := range map[string]struct {
		server  *fakes3.Server
		deletes bool
		cost    int
	}{
		"strict":               {&fakes3.Server{}, true, checkCost},
		"ETags never repeat":   {&fakes3.Server{RandomETags: true}, true, checkCost},
		"DELETE unconditional": {&fakes3.Server{IgnoreDeleteCondition: true}, false, checkCost - 2},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWire(c.server)
			report, err := leasehold.CheckStore(t.Context(), w.store, "locks/check")
			require.NoError(t, err)
			require.True(t, report.ConditionalPuts)
			require.Equal(t, c.deletes, report.ConditionalDeletes)
			require.Equal(t, w.Count(), report.Requests)
			require.Equal(t, c.cost, report.Requests)
			require.Empty(t, report.Leftover)
			require.Empty(t, c.server.Keys(), "nothing stays behind")
		})
	}
	report, err := leasehold.CheckStore(t.Context(), leasehold.NewMemStore(), "check")
	require.NoError(t, err)
	require.Equal(t, leasehold.Report{
		ConditionalPuts:    true,
		ConditionalDeletes: true,
		ServerClock:        "not used",
		Requests:           checkCost,
	}, report)
}

func TestCheckStoreLeavesOtherObjectsAlone(t *testing.T) {
	server := &fakes3.Server{}
	server.Put("locks/check", []byte("mine"))
	_, err := leasehold.CheckStore(t.Context(), newWire(server).store, "locks/check")
	require.NoError(t, err)
	require.Equal(t, []string{"locks/check"}, server.Keys())
	require.Equal(t, "mine", string(server.Body("locks/check")))
}

func TestCheckStoreFindsDroppedConditions(t *testing.T) {
	server := &fakes3.Server{IgnoreConditions: true}
	report, err := leasehold.CheckStore(t.Context(), newWire(server).store, "locks/check")
	require.ErrorIs(t, err, leasehold.ErrUnsafeStore)
	for _, says := range []string{
		"PutIfMatch of a missing key succeeded", "a second PutIfNoneMatch succeeded",
		"PutIfMatch with a stale ETag succeeded", "both succeeded",
	} {
		require.ErrorContains(t, err, says)
	}
	require.False(t, report.ConditionalPuts)
	require.False(t, report.ConditionalDeletes)
	require.Empty(t, server.Keys(), "nothing stays behind")
}

// checkThenPut refuses as it should, as long as nobody else writes at the same time.
func checkThenPut(s leasehold.Store) *teststore.Store {
	return teststore.Known(s, teststore.CheckThenPut)
}

func TestCheckStoreFindsRaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		report, err := leasehold.CheckStore(t.Context(), checkThenPut(leasehold.NewMemStore()), "check")
		require.ErrorIs(t, err, leasehold.ErrUnsafeStore)
		require.ErrorContains(t, err, "of many creates at once, exactly one wins: ")
		require.ErrorContains(t, err, "of many updates of one version at once, exactly one wins: ")
		require.NotContains(t, err.Error(), "a create over an existing object")
		require.False(t, report.ConditionalPuts)
		require.Empty(t, report.Leftover)
	})
}

// deny answers requests with that method as S3 answers credentials that may not.
func deny(method string) func(*http.Request) faultproxy.Fault {
	return func(r *http.Request) faultproxy.Fault {
		if r.Method != method {
			return faultproxy.Fault{}
		}
		return faultproxy.Fault{Kind: faultproxy.Answer, Status: http.StatusForbidden}
	}
}

func TestCheckStoreWithCredentialsThatMayOnlyRead(t *testing.T) {
	server := &fakes3.Server{}
	w := newWire(server)
	w.Decide = deny("PUT")
	report, err := leasehold.CheckStore(t.Context(), w.store, "check")
	require.ErrorIs(t, err, leasehold.ErrPermanent)
	require.NotErrorIs(t, err, leasehold.ErrUnsafeStore, "the question is open")
	require.ErrorContains(t, err, "s3:PutObject")
	require.False(t, report.ConditionalPuts)
	require.LessOrEqual(t, report.Requests, 4, "it does not go on")
	require.Empty(t, report.Leftover)
	require.Empty(t, server.Keys())
}

// Without the permission to delete, what a check leaves is the same two objects, however often it
// is run.
func TestCheckStoreWithCredentialsThatMayNotDelete(t *testing.T) {
	server := &fakes3.Server{}
	w := newWire(server)
	w.Decide = deny("DELETE")
	for range 5 {
		report, err := leasehold.CheckStore(t.Context(), w.store, "check")
		require.NoError(t, err, "locks never delete")
		require.True(t, report.ConditionalPuts)
		require.False(t, report.ConditionalDeletes)
		require.Equal(t, []string{"check-delete", "check-probe"}, server.Keys())
		require.ElementsMatch(t, server.Keys(), report.Leftover, "it says what stays behind")
	}
	w.Decide = nil
	report, err := leasehold.CheckStore(t.Context(), w.store, "check")
	require.NoError(t, err)
	require.True(t, report.ConditionalDeletes)
	require.Empty(t, report.Leftover, "its own are removed")
}

// An object that an earlier check has left does not make the next one blind.
func TestCheckStoreFindsFaultsOverALeftoverToo(t *testing.T) {
	server := &fakes3.Server{}
	w := newWire(server)
	w.Decide = deny("DELETE")
	_, err := leasehold.CheckStore(t.Context(), w.store, "check")
	require.NoError(t, err)
	server.IgnoreConditions = true
	report, err := leasehold.CheckStore(t.Context(), w.store, "check")
	require.ErrorIs(t, err, leasehold.ErrUnsafeStore)
	for _, says := range []string{
		"PutIfMatch of a missing key succeeded", "a second PutIfNoneMatch succeeded",
		"PutIfMatch with a stale ETag succeeded", "both succeeded",
	} {
		require.ErrorContains(t, err, says)
	}
	require.False(t, report.ConditionalPuts)

	synctest.Test(t, func(t *testing.T) {
		s := leasehold.NewMemStore()
		_, err := leasehold.CheckStore(t.Context(), noDelete(checkThenPut(s)), "check")
		require.ErrorContains(t, err, "of many creates at once, exactly one wins: ",
			"the first check creates the object by a race")
		require.ErrorContains(t, err, "of many updates of one version at once, exactly one wins: ")
		_, err = leasehold.CheckStore(t.Context(), noDelete(checkThenPut(s)), "check")
		require.ErrorIs(t, err, leasehold.ErrUnsafeStore)
		require.ErrorContains(t, err, "of many updates of one version at once, exactly one wins: ")
	})
}

// hesitant is a store whose requests take up to 3 ms each way, so that others come in between.
func hesitant(s leasehold.Store) leasehold.Store {
	return teststore.New(s, func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
		time.Sleep(rand.N(3 * time.Millisecond))
		defer func() { time.Sleep(rand.N(3 * time.Millisecond)) }()
		return r.Send(ctx)
	})
}

// All replicas of a service start at once: none may take another's writes for the store's fault.
func TestCheckStoresAtTheSameTimeDoNotDisturbEachOther(t *testing.T) {
	for name, may := range map[string]func(i int, s leasehold.Store) leasehold.Store{
		"all may delete":  func(_ int, s leasehold.Store) leasehold.Store { return s },
		"none may delete": func(_ int, s leasehold.Store) leasehold.Store { return noDelete(s) },
		"some may delete": func(i int, s leasehold.Store) leasehold.Store {
			if i%2 == 0 {
				return s
			}
			return noDelete(s)
		},
	} {
		t.Run(name, func(t *testing.T) {
			for range 100 {
				synctest.Test(t, func(t *testing.T) {
					m := testopt.NewMemStore(true, true)
					for range 2 { // on a fresh store, and over what is left
						var wg sync.WaitGroup
						for i := range 4 {
							wg.Go(func() {
								report, err := leasehold.CheckStore(t.Context(), may(i, hesitant(m)), "check")
								require.NoError(t, err)
								require.True(t, report.ConditionalPuts)
							})
						}
						wg.Wait()
					}
				})
			}
		})
	}
}

func TestCheckStoreDoesNotTouchAnObjectThatIsNotACheckS(t *testing.T) {
	for _, key := range []string{"check-delete", "check-probe"} {
		server := &fakes3.Server{IgnoreConditions: true}
		server.Put(key, []byte("mine"))
		w := newWire(server)
		w.Decide = deny("DELETE")
		_, err := leasehold.CheckStore(t.Context(), w.store, "check")
		require.ErrorIs(t, err, leasehold.ErrPermanent)
		require.ErrorContains(t, err, `the object "`+key+`" is not a check's own (choose another key prefix)`)
		require.Equal(t, "mine", string(server.Body(key)))
	}
}

// Ages are told only if the user has said that the server's clock is to be trusted, and CheckStore
// finds out where it is not. A reverse proxy that writes its own Date is in front of a real server.
func TestCheckStoreRefusesAClockThatIsNotTheStores(t *testing.T) {
	server, _ := testserver.StartVersityGW(t)
	bucket := server.Bucket(t)
	upstream, err := url.Parse(server.Endpoint)
	require.NoError(t, err)
	proxy := func(ahead time.Duration) string {
		p := httptest.NewServer(&httputil.ReverseProxy{
			Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(upstream); r.Out.Host = r.In.Host },
			ModifyResponse: func(r *http.Response) error {
				r.Header.Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
				return nil
			},
		})
		t.Cleanup(p.Close)
		return p.URL
	}
	for name, c := range map[string]struct {
		ahead time.Duration
		opts  []leasehold.S3Option
		clock leasehold.ClockVerdict
	}{
		"a proxy whose clock is fast": {20 * time.Second,
			[]leasehold.S3Option{leasehold.WithServerClock(2 * time.Second)}, "wrong"},
		"a proxy whose clock is fast by ten minutes": {10 * time.Minute,
			[]leasehold.S3Option{leasehold.WithServerClock(time.Minute)}, "wrong"},
		"a proxy whose clock is right": {0, []leasehold.S3Option{leasehold.WithServerClock(2 * time.Second)},
			"consistent"},
		"a proxy whose clock is slow": {-20 * time.Second,
			[]leasehold.S3Option{leasehold.WithServerClock(2 * time.Second)}, "consistent"},
		"a proxy whose clock is fast, but unused": {20 * time.Second, nil, "not used"},
		"a proxy whose clock is fast within a slack": {20 * time.Second,
			[]leasehold.S3Option{leasehold.WithServerClock(30 * time.Second)}, "consistent"},
		"a proxy whose clock is fast, with a prefix": {20 * time.Second,
			[]leasehold.S3Option{leasehold.WithKeyPrefix("a/"), leasehold.WithServerClock(3 * time.Second)}, "wrong"},
		"a proxy whose clock is fast beyond a slack": {20 * time.Second,
			[]leasehold.S3Option{leasehold.WithServerClock(10 * time.Second)}, "wrong"},
		"a proxy whose clock is fast by a few seconds": {4 * time.Second,
			[]leasehold.S3Option{leasehold.WithServerClock(2 * time.Second)}, "wrong"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			behind := server
			behind.Endpoint = proxy(c.ahead)
			s := leasehold.NewS3Store(behind.Client(), bucket, c.opts...)
			report, err := leasehold.CheckStore(t.Context(), s, "locks/"+strings.ReplaceAll(name, " ", "-"))
			require.Equal(t, c.clock, report.ServerClock)
			require.True(t, report.ConditionalPuts, "these have nothing to do with it")
			if c.clock != "wrong" {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, leasehold.ErrUnsafeStore)
				require.ErrorContains(t, err, "Date and Last-Modified do not come from one clock, or a proxy writes "+
					"its own Date (remove WithServerClock)")
				require.Regexp(t, "^leasehold: checking that no object is reported older than it is: ", err.Error())
			}
			if c.opts == nil {
				_, err = s.PutIfNoneMatch(t.Context(), key, nil)
				require.NoError(t, err)
				o, err := s.Get(t.Context(), key)
				require.NoError(t, err)
				require.Zero(t, o.Age)
			}
		})
	}
}

// A store that has no such method, but tells ages, is measured as well.
func TestCheckStoreMeasuresAgesThatAreToldUnasked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := testopt.NewMemStore(false, true)
		report, err := leasehold.CheckStore(t.Context(), hesitant(m), "check")
		require.NoError(t, err)
		require.Equal(t, leasehold.ClockConsistent, report.ServerClock)
		report, err = leasehold.CheckStore(t.Context(), older(hesitant(m), time.Second), "check")
		require.ErrorIs(t, err, leasehold.ErrUnsafeStore)
		require.Equal(t, leasehold.ClockWrong, report.ServerClock)
		report, err = leasehold.CheckStore(t.Context(), older(hesitant(m), -time.Hour), "check")
		require.ErrorIs(t, err, leasehold.ErrUnsafeStore, "negative")
		require.Equal(t, leasehold.ClockWrong, report.ServerClock)
	})
}

// older tells more than the age.
func older(s leasehold.Store, by time.Duration) leasehold.Store {
	return teststore.New(s, func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
		o, err := r.Send(ctx)
		o.Age += by
		return o, err
	})
}

func TestCheckStoreOnAServerThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(&fakes3.Server{})
		w.FailAlways(faultproxy.Fault{Kind: faultproxy.Answer, Status: 503})
		report, err := leasehold.CheckStore(t.Context(), w.store, "check")
		require.Error(t, err)
		require.NotErrorIs(t, err, leasehold.ErrUnsafeStore)
		require.False(t, report.ConditionalPuts)

		ctx := testctx.Within(t, time.Second)
		w.FailAlways(faultproxy.Fault{After: time.Hour})
		began := time.Now()
		_, err = leasehold.CheckStore(ctx, w.store, "check")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(began))
	})
}

func TestCheckStoreRefusesABadPrefix(t *testing.T) {
	for _, prefix := range []string{"/", "a//", "a/../", "\x00", string(bytes.Repeat([]byte("x"), 1002))} {
		w := newWire(&fakes3.Server{})
		_, err := leasehold.CheckStore(t.Context(), w.store, prefix)
		require.ErrorIs(t, err, leasehold.ErrPermanent, "%q", prefix)
		require.Zero(t, w.Count())
	}
}

// On a server that takes one write of an object a second, a check takes its time.
func TestCheckStoreOnARateLimitedServer(t *testing.T) {
	for name, may := range map[string]func(*http.Request) faultproxy.Fault{
		"may delete":     nil,
		"may not delete": deny("DELETE"),
	} {
		bubble.Run(t, name, func(t *testing.T) {
			server := &fakes3.Server{WriteInterval: time.Second}
			w := newWire(server)
			if may != nil {
				w.Decide = may
			}
			began := time.Now()
			report, err := leasehold.CheckStore(t.Context(), w.store, "locks/check")
			require.NoError(t, err)
			require.True(t, report.ConditionalPuts)
			require.Equal(t, may == nil, report.ConditionalDeletes)
			require.Equal(t, w.Count(), report.Requests)
			require.Less(t, time.Since(began), 30*time.Second)
			require.ElementsMatch(t, server.Keys(), report.Leftover)
		})
	}
}

// Neither an answer that is lost nor one that says nothing makes a store unsafe, or a check fail.
func TestCheckStoreAmongFailures(t *testing.T) {
	for _, f := range []faultproxy.Fault{
		{
			Kind:   faultproxy.Answer,
			Status: 503,
		}, {Kind: faultproxy.AnswerAfter, Status: 500}, {Kind: faultproxy.DropReply},
	} {
		for _, may := range []bool{true, false} {
			for n := 0; n < checkCost; n += testsize.Pick(7, 1) {
				synctest.Test(t, func(t *testing.T) {
					server := &fakes3.Server{}
					w := newWire(server)
					var sent atomic.Int64
					w.Decide = func(r *http.Request) faultproxy.Fault {
						if !may && r.Method == "DELETE" {
							return deny("DELETE")(r)
						}
						if int(sent.Add(1)) == n+1 {
							return f
						}
						return faultproxy.Fault{}
					}
					report, err := leasehold.CheckStore(t.Context(), w.store, "check")
					require.NoError(t, err, "%+v at request %d", f, n)
					require.True(t, report.ConditionalPuts)
					require.ElementsMatch(t, server.Keys(), report.Leftover)
					w.Wait()
				})
			}
		}
	}
}

// noDelete is a store whose credentials may not delete.
func noDelete(s leasehold.Store) leasehold.Store {
	store := teststore.New(s, nil)
	store.Fail(leasehold.ErrPermanent, teststore.Delete)
	return store
}

// unsafeStore carries out creates over an object that exists.
func unsafeStore() leasehold.Store {
	mem := leasehold.NewMemStore()
	return teststore.New(mem, func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
		if r.Op == teststore.Create {
			return r.Overwrite(ctx)
		}
		return r.Send(ctx)
	})
}

func TestAnErrorOfAnUnsafeStoreNamesThePackageOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, check := leasehold.CheckStore(t.Context(), unsafeStore(), "check")
		_, try := newLock(t, unsafeStore()).TryAcquire(t.Context())
		for _, err := range []error{check, try} {
			require.ErrorIs(t, err, leasehold.ErrUnsafeStore)
			require.Equal(t, 1, strings.Count(err.Error(), "leasehold: "), err.Error())
		}
	})
}

// A server that enforces creates and has no updates is no place for an S3Store, and is one for
// package createonly.
func TestCheckStoreOnAServerThatOnlyCreates(t *testing.T) {
	ignoresIfMatch := &fakes3.Server{}
	for name, c := range map[string]struct {
		server  http.Handler
		creates bool
	}{
		"ignores If-Match": {http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Header.Del("If-Match")
			ignoresIfMatch.ServeHTTP(w, r)
		}), true},
		"creates":              {&fakes3.Server{CreateOnly: true}, true},
		"ignores creates, too": {&fakes3.Server{CreateOnly: true, IgnoreConditions: true}, false},
		"refuses creates, too": {&fakes3.Server{CreateOnly: true, CreateHeader: "x-oss-forbid-overwrite"}, false},
		"ignores all":          {&fakes3.Server{IgnoreConditions: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			store := leasehold.NewS3Store(fakes3.NewClient(fakes3.Transport{Handler: c.server}), fakes3.Bucket)
			for range 2 { // the second time its objects are there, because a DELETE with a condition is refused
				report, err := leasehold.CheckStore(t.Context(), store, "locks/check")
				require.ErrorIs(t, err, leasehold.ErrUnsafeStore)
				require.False(t, report.ConditionalPuts)
				require.Equal(t, c.creates, strings.Contains(err.Error(), "use package createonly"), err)
			}
		})
	}
}

// A server that does not answer updates may have them.
func TestCheckStoreNamesNoPackageForOtherFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(&fakes3.Server{})
		w.Decide = func(r *http.Request) faultproxy.Fault {
			if r.Method == http.MethodPut && r.Header.Get("If-Match") != "" {
				return faultproxy.Fault{Kind: faultproxy.Answer, Status: 503}
			}
			return faultproxy.Fault{}
		}
		report, err := leasehold.CheckStore(t.Context(), w.store, "check")
		require.Error(t, err)
		require.NotErrorIs(t, err, leasehold.ErrUnsafeStore)
		require.NotContains(t, err.Error(), "createonly")
		require.False(t, report.ConditionalPuts)
	})
}

// cache is a cache in front of a server, as nginx's proxy_cache: it answers GET for four seconds as
// the server has answered it, and passes the rest.
type cache struct {
	server  http.Handler
	missing bool // also what is not there
	mu      sync.Mutex
	answers map[string]cached
}

type cached struct {
	*httptest.ResponseRecorder
	until time.Time
}

func (c *cache) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		c.server.ServeHTTP(w, r)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	answer := c.answers[r.URL.Path]
	if time.Now().After(answer.until) {
		answer = cached{httptest.NewRecorder(), time.Now().Add(4 * time.Second)}
		c.server.ServeHTTP(answer, r)
		if answer.Code == http.StatusOK || c.missing {
			c.answers[r.URL.Path] = answer
		}
	}
	maps.Copy(w.Header(), answer.Header())
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

// A read must show the writes before it. A cache in front of the store is named, whether the check
// may delete or not.
func TestCheckStoreFindsACache(t *testing.T) {
	for _, missing := range []bool{true, false} {
		for name, may := range map[string]func(*http.Request) faultproxy.Fault{
			"may delete":     nil,
			"may not delete": deny("DELETE"),
		} {
			bubble.Run(t, fmt.Sprintf("%s, missing objects are cached: %v", name, missing), func(t *testing.T) {
				server := &fakes3.Server{}
				for range 3 { // what is left of one check does not keep the next one from it
					w := newWire(&cache{server: server, missing: missing, answers: map[string]cached{}})
					if may != nil {
						w.Decide = may
					}
					report, err := leasehold.CheckStore(t.Context(), w.store, "locks/check")
					require.ErrorContains(t, err, "cache")
					require.NotContains(t, err.Error(), "createonly")
					require.False(t, report.ConditionalPuts)
					if may == nil {
						require.ErrorIs(t, err, leasehold.ErrUnsafeStore)
						require.ErrorContains(t, err, "a read does not show the write before it")
						require.Empty(t, server.Keys(), "nothing is left behind")
						require.Empty(t, report.Leftover)
					}
				}
			})
		}
	}
}
