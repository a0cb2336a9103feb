package leaderhttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/testopt"
	"github.com/leasehold-go/leasehold/internal/testkit/testsize"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
	"github.com/leasehold-go/leasehold/leaderhttp"
)

// post sends a body with a Content-Length, if it is not empty, and else a GET.
func post(h http.Handler, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", path, nil)
	if body != "" {
		r = httptest.NewRequest("POST", path, strings.NewReader(body))
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// Under load, half of it with bodies, no request is answered 503 because the leader resigns, and
// none runs twice.
func TestNoRequestFailsDuringAHandOver(t *testing.T) {
	lines := logged(t)
	inWorld(t, func(t *testing.T, w *world) {
		var all []*process
		for _, name := range []string{"a", "b", "c"} {
			all = append(all, w.start(name, false))
			time.Sleep(time.Minute)
		}
		leader := w.next()
		var load sync.WaitGroup
		var slowest atomic.Int64
		for round := range testsize.Pick(20, 100) {
			for i := range 400 { // 200 a second
				load.Go(func() {
					time.Sleep(time.Duration(i) * 5 * time.Millisecond)
					body := ""
					if i/3%2 == 0 {
						body = strings.Repeat("order", i)
					}
					began, path := time.Now(), fmt.Sprint("/", round, "/", i)
					res := post(all[i%3].forward, path, body)
					if res.Code != 200 || res.Body.String() != body {
						t.Errorf("%s is answered %d %.100q", path, res.Code, res.Body)
					}
					if took := int64(time.Since(began)); took > slowest.Load() {
						slowest.Store(took)
					}
					n := 0
					for _, p := range all {
						if _, ran := p.runs.Load(path); ran {
							n++
						}
					}
					if n != 1 {
						t.Errorf("%s ran %d times", path, n)
					}
				})
			}
			time.Sleep(time.Second + time.Duration(round)*time.Millisecond)
			go func() { _ = leader.Resign(t.Context()) }()
			leader = w.next()
			time.Sleep(time.Minute + time.Duration(round)*77*time.Millisecond)
		}
		load.Wait()
		t.Logf("the slowest took %v", time.Duration(slowest.Load()))
		require.Less(t, slowest.Load(), int64(100*time.Millisecond))
	})
	require.Empty(t, lines())
}

// A process whose own new term Forward's read shows, before OnStartedLeading, neither asks itself
// nor says that it does. Its requests wait for the term to begin.
func TestAReadOfTheOwnTerm(t *testing.T) {
	lines := logged(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		lock, err := leasehold.NewLock(newAccess(w.store), key, quiet(), testopt.NewProcess(),
			leasehold.WithMetadata(map[string]string{leaderhttp.URLKey: "http://a"}))
		require.NoError(t, err)
		peer, err := leaderhttp.New(lock, leaderhttp.WithClient(&http.Client{Transport: w.net}))
		require.NoError(t, err)
		defer peer.Close()
		a := w.net.serve("a", peer)
		forward := peer.Forward(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "led")
		}))
		lease, err := lock.Acquire(t.Context())
		require.NoError(t, err)
		tells := peer.Callbacks(leasehold.Callbacks{
			OnNewLeader: func(leasehold.Record) { time.Sleep(500 * time.Millisecond) },
		})
		answered := make(chan string, 1)
		go func() { answered <- ask(forward, "GET", "/", nil).Body.String() }()
		time.Sleep(time.Second) // the elector has not called back yet
		require.Empty(t, answered)
		tells.OnNewLeader(lease.Record())
		tells.OnStartedLeading(lease.Context(), lease)
		require.Equal(t, "led", <-answered)
		require.Zero(t, a.requests.Load())

		require.NoError(t, lease.Release(t.Context()))
		tells.OnStoppedLeading(nil)
		time.Sleep(time.Second)
	})
	require.Empty(t, lines())
}

// A term that only a read of Forward has shown is not followed, because whoever follows is offered
// the lock. It is, once the elector has seen it.
func TestWhoDoesNotCampaignIsNotOfferedTheLock(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.lead("a")
		lock, err := leasehold.NewLock(newAccess(w.store), key, quiet(), testopt.NewProcess())
		require.NoError(t, err)
		peer, err := leaderhttp.New(lock, leaderhttp.WithClient(&http.Client{Transport: w.net}))
		require.NoError(t, err)
		tells := peer.Callbacks(leasehold.Callbacks{})
		require.Equal(t, 200, ask(peer.Forward(http.NotFoundHandler()), "GET", "/", nil).Code)
		require.EqualValues(t, 1, a.host.requests.Load())
		time.Sleep(time.Hour)
		require.EqualValues(t, 1, a.host.requests.Load())
		tells.OnNewLeader(a.lease.Load().Record())
		time.Sleep(time.Second)
		require.EqualValues(t, 2, a.host.requests.Load())
		peer.Close()
	})
}

// A read of Forward makes a candidate that waits follow at once.
func TestAReadOfForwardWakesTheElector(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		lease := w.hold("http://former")
		c := w.start("c", false, append(rare(), quiet())...)
		time.Sleep(time.Second)
		require.NoError(t, lease.Release(t.Context()))
		next := w.net.serve("next", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		w.hold("http://next")
		require.Equal(t, 200, ask(c.forward, "GET", "/", nil).Code)
		time.Sleep(time.Second)
		require.GreaterOrEqual(t, next.requests.Load(), int64(2))
	})
}

// Without patience, a request is answered after one read, or at once if there has just been one.
func TestNoPatience(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		lease := w.hold("http://gone")
		p := w.startWith("p", true, []leaderhttp.Option{leaderhttp.WithPatience(0)}, rare()...)
		time.Sleep(time.Second)
		require.NoError(t, lease.Release(t.Context()))
		began, before := time.Now(), p.store.Sent(teststore.Get)
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				if res := post(p.forward, "/", "order"); res.Code != 503 || res.Header().Get("Retry-After") != "3" {
					t.Errorf("%d %s", res.Code, res.Body)
				}
			})
		}
		all.Wait()
		require.Equal(t, request, time.Since(began))
		require.Equal(t, 503, post(p.forward, "/", "").Code)
		require.Equal(t, request, time.Since(began), "at once")
		require.EqualValues(t, 1, p.store.Sent(teststore.Get)-before)
		time.Sleep(time.Second)
		next := w.hold("http://next")
		w.net.serve("next", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		require.Equal(t, 200, post(p.forward, "/", "order").Code, "as the read shows")
		require.NoError(t, next.Release(t.Context()))
	})
}

// A thousand requests wait at most, and all of them run when there is a leader.
func TestAThousandRequestsWait(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		lease := w.hold("http://gone")
		p := w.start("p", false, leasehold.WithPollInterval(100*time.Millisecond), quiet())
		time.Sleep(time.Second)
		gone, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		statuses := make([]atomic.Int64, 1001)
		for i := range statuses {
			all.Go(func() {
				r := httptest.NewRequestWithContext(t.Context(), "GET", fmt.Sprint("/", i), nil)
				if i == 0 {
					r = r.WithContext(gone)
				}
				res := httptest.NewRecorder()
				p.forward.ServeHTTP(res, r)
				statuses[i].Store(int64(res.Code))
			})
			if i >= 999 {
				time.Sleep(2 * message)
			}
		}
		require.EqualValues(t, 503, statuses[1000].Load())
		leave()
		synctest.Wait()
		require.EqualValues(t, 503, statuses[0].Load())
		all.Go(func() { statuses[0].Store(int64(post(p.forward, "/instead", "").Code)) })
		time.Sleep(100 * time.Millisecond)
		require.NoError(t, lease.Release(t.Context()))
		require.Same(t, p, w.next())
		all.Wait()
		for i := range statuses[:1000] {
			require.EqualValues(t, 200, statuses[i].Load(), i)
		}
		time.Sleep(request)
	})
}

// A request that has waited, and then is carried out for long, waits no more: nothing is read for
// it.
func TestARequestThatHasWaited(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.net.serve("next", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(time.Hour) }))
		lease := w.hold("http://gone")
		require.NoError(t, lease.Release(t.Context()))
		p := w.start("p", true, rare()...)
		w.next()
		p.leave()
		answered := make(chan int, 1)
		go func() { answered <- post(p.forward, "/", "order").Code }()
		time.Sleep(time.Second)
		lease = w.hold("http://next")
		time.Sleep(time.Second)
		before := p.store.Sent(teststore.Get)
		time.Sleep(30 * time.Minute)
		require.Equal(t, before, p.store.Sent(teststore.Get))
		require.Equal(t, 200, <-answered)
		require.NoError(t, lease.Release(t.Context()))
	})
}

// A leader that has only just taken the lock may not know of its term yet, so it gets the request
// again. One whose term has gone on for long does not.
func TestALeaderThatDoesNotKnowOfItsTermYet(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var knows atomic.Bool
		next := w.net.serve("next", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if !knows.Load() {
				w.Header().Set("Leasehold-Forwarded", "refused")
				w.WriteHeader(http.StatusMisdirectedRequest)
			}
			_, _ = w.Write(body)
		}))
		lease := w.hold("http://next")
		p := w.start("p", true, rare()...)
		time.AfterFunc(200*time.Millisecond, func() { knows.Store(true) })
		res := post(p.forward, "/", "order")
		require.Equal(t, 200, res.Code, res.Body)
		require.Equal(t, "order", res.Body.String())
		require.LessOrEqual(t, next.requests.Load(), int64(6))

		time.Sleep(time.Minute)
		knows.Store(false)
		before, began := next.requests.Load(), time.Now()
		res = post(p.forward, "/", "order")
		require.Equal(t, 503, res.Code)
		require.Equal(t, "3", res.Header().Get("Retry-After"))
		require.Equal(t, 2*time.Second, time.Since(began).Round(10*time.Millisecond))
		require.EqualValues(t, 1, next.requests.Load()-before)
		require.NoError(t, lease.Release(t.Context()))
		time.Sleep(request)
	})
}

// One URL for all processes has one warning that says what is wrong.
func TestAURLOfAllProcesses(t *testing.T) {
	lines := logged(t)
	inWorld(t, func(t *testing.T, w *world) {
		var chosen atomic.Pointer[process] // by the load balancer
		w.net.serve("service", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			chosen.Load().host.ServeHTTP(rw, r)
		}))
		service := leasehold.WithMetadata(map[string]string{leaderhttp.URLKey: "http://service"})
		a := w.start("a", false, service)
		chosen.Store(a)
		w.next()
		b := w.start("b", false, service)
		chosen.Store(b)
		w.start("c", false, service)
		time.Sleep(10 * time.Minute)
		got := lines()
		require.Equal(t, 2, strings.Count(got, "\n"), "%s", got)
		require.Equal(t, 2, strings.Count(got, "a Service or load balancer in front of all processes"), "%s", got)
		require.Equal(t, 1, strings.Count(got, "it is the URL of this process"), "%s", got)
		require.NotContains(t, got, "409")
		require.True(t, a.IsLeader())
		require.Equal(t, 409, ask(b.peer, "GET", "/.leasehold/wait?key=locks/a&token=1", nil).Code)
		require.NotContains(t, ask(b.peer, "GET", "/.leasehold/wait?key=locks/a&token=1", nil).Body.String(), "follows",
			"for whoever cannot read the record")
	})
}

// Redirect tells clients where the leader is, which runs its requests itself.
func TestRedirect(t *testing.T) {
	lines := logged(t)
	inWorld(t, func(t *testing.T, w *world) {
		a := w.lead("a")
		b := w.start("b", false)
		time.Sleep(time.Second)
		app := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, fmt.Sprint("led by ", leaderhttp.Lease(r.Context()).Token()))
		})
		at := b.peer.Redirect(app)
		for asked, to := range map[string]string{
			"/":                          "https://example.org/a/",
			"/orders/a%2Fb?x=1&y=%zz":    "https://example.org/a/orders/a%2Fb?x=1&y=%zz",
			"//evil.example/a/../b":      "https://example.org/a//evil.example/a/../b",
			"http://evil.example/orders": "https://example.org/a/orders",
		} {
			res := ask(at, "POST", asked, nil)
			require.Equal(t, http.StatusTemporaryRedirect, res.Code)
			require.Equal(t, to, res.Header().Get("Location"))
			require.Equal(t, "no-store", res.Header().Get("Cache-Control"))
		}
		options := httptest.NewRequest("OPTIONS", "/", nil)
		options.URL.Path = "*"
		res := httptest.NewRecorder()
		at.ServeHTTP(res, options)
		require.Equal(t, "https://example.org/a/*", res.Header().Get("Location"))
		require.Equal(t, "led by 1", ask(a.peer.Redirect(app), "POST", "/", nil).Body.String())
		_, right, _ := strings.Cut(waitFor(a.lease.Load().Record()), "?")
		require.Equal(t, 421, ask(at, "POST", "/", http.Header{"Leasehold-Forwarded": {right}}).Code)
		require.Zero(t, len(lines()))

		b.leave()
		a.leave()
		time.Sleep(time.Minute)
		began, reads := time.Now(), b.store.Sent(teststore.Get)
		var all sync.WaitGroup
		for range 500 {
			all.Go(func() {
				if ask(at, "GET", "/", nil).Code != 503 {
					t.Error("nobody leads")
				}
			})
		}
		all.Wait()
		require.Equal(t, 2*time.Second, time.Since(began))
		require.LessOrEqual(t, b.store.Sent(teststore.Get)-reads, 12)
	})
}

// A process that does not campaign hears of no end of a term, so Redirect reads the record again.
func TestRedirectOfAProcessThatDoesNotCampaign(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.lead("a")
		c := w.start("c", true, rare()...)
		time.Sleep(time.Second)
		at := c.peer.Redirect(http.NotFoundHandler())
		reads := c.store.Sent(teststore.Get)
		for range 100 {
			require.Equal(t, "https://example.org/a/x", ask(at, "GET", "/x", nil).Header().Get("Location"))
		}
		require.LessOrEqual(t, c.store.Sent(teststore.Get)-reads, 2, "and its elector, which is woken")
		b := w.follow("b")
		require.NoError(t, a.Resign(t.Context()))
		require.Same(t, b, w.next())
		require.Equal(t, "https://example.org/b/x", ask(at, "GET", "/x", nil).Header().Get("Location"))
		c.store.down.Store(true)
		time.Sleep(time.Minute)
		began := time.Now()
		require.Equal(t, "https://example.org/b/x", ask(at, "GET", "/x", nil).Header().Get("Location"))
		require.LessOrEqual(t, time.Since(began), 2*time.Second)
		c.store.down.Store(false)
	})
}

// A public URL of all processes sends clients round in circles, of which the log warns.
func TestAPublicURLOfAllProcesses(t *testing.T) {
	lines := logged(t)
	inWorld(t, func(t *testing.T, w *world) {
		w.lead("a")
		b := w.start("b", false)
		time.Sleep(time.Second)
		at := b.peer.Redirect(http.NotFoundHandler())
		require.Equal(t, 307, ask(at, "GET", "http://example.com/x", nil).Code)
		require.Empty(t, lines())
		for range 2 {
			require.Equal(t, 307, ask(at, "GET", "http://Example.org/x", nil).Code)
		}
		require.Equal(t, 1, strings.Count(lines(), "public URL reaches another process"))
	})
}

// A lock that was made anew counts from 1. Whoever does not campaign sees its leader, too.
func TestALockThatWasMadeAnew(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.lead("a", quiet())
		require.NoError(t, a.Resign(t.Context()))
		w.next()
		c := w.start("c", true, rare()...)
		time.Sleep(time.Second)
		at := c.peer.Redirect(http.NotFoundHandler())
		require.Equal(t, "https://example.org/a/x", ask(at, "GET", "/x", nil).Header().Get("Location"))
		a.leave()
		obj, err := w.store.Get(t.Context(), key)
		require.NoError(t, err)
		require.NoError(t, w.store.DeleteIfMatch(t.Context(), key, obj.ETag))
		b := w.lead("b")
		require.EqualValues(t, 1, b.lease.Load().Token())
		time.Sleep(time.Minute)
		require.Equal(t, "https://example.org/b/x", ask(at, "GET", "/x", nil).Header().Get("Location"))
	})
}

// A leader without a public URL that can be used is told of, and nothing is made up.
func TestRedirectWithoutAPublicURL(t *testing.T) {
	for public, says := range map[string]string{
		"":                    `set \"public_url\"`,
		"example.org":         "is not http(s)://",
		"http://169.254.1.1/": "WithAllowedHosts does not allow",
	} {
		lines := logged(t)
		inWorld(t, func(t *testing.T, w *world) {
			w.start("a", false, leasehold.WithMetadata(map[string]string{
				leaderhttp.URLKey: "http://a", leaderhttp.PublicURLKey: public,
			}))
			w.next()
			b := w.start("b", false)
			time.Sleep(time.Second)
			for range 3 {
				res := ask(b.peer.Redirect(http.NotFoundHandler()), "GET", "/", nil)
				require.Equal(t, 503, res.Code)
				require.Equal(t, "3", res.Header().Get("Retry-After"))
				require.Contains(t, res.Body.String(), "no public URL")
				require.Empty(t, res.Header().Get("Location"))
			}
		})
		got := lines()
		require.Equal(t, 1, strings.Count(got, "\n"), "%s", got)
		require.Contains(t, got, says)
	}
}
