package leaderhttp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/testlog"
	"github.com/leasehold-go/leasehold/internal/testkit/testopt"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
	"github.com/leasehold-go/leasehold/leaderhttp"
)

// hold takes the lock for a day, for a holder with that URL, and without a peer.
func (w *world) hold(url string) *leasehold.Lease {
	w.t.Helper()
	lock, err := leasehold.NewLock(newAccess(w.store), key, leasehold.WithTTL(24*time.Hour), testopt.NewProcess(),
		leasehold.WithMetadata(map[string]string{leaderhttp.URLKey: url}))
	require.NoError(w.t, err)
	lease, err := lock.Acquire(w.t.Context())
	require.NoError(w.t, err)
	return lease
}

// rare are options with which a candidate does not poll while a test runs.
func rare() []leasehold.Option {
	return []leasehold.Option{leasehold.WithTTL(24 * time.Hour), leasehold.WithPollInterval(24 * time.Hour)}
}

// Whatever a leader answers, or does not, costs a few reads and nothing else, and has one line in
// the log.
func TestWhateverALeaderAnswers(t *testing.T) {
	text := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	after := func(d time.Duration, h http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-time.After(d):
				h(w, r)
			case <-r.Context().Done():
			}
		}
	}
	breaks := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	digits, spaces := strings.Repeat("9", 99), strings.Repeat(" ", 1<<20)
	elsewhere := 0
	for name, tc := range map[string]struct {
		answers http.HandlerFunc
		reads   int // in an hour
		asked   int64
		says    string // in the log
	}{
		"over, which is forged":     {text(200, `{"over":true}`), 2, 1, ""},
		"over, much later in line":  {text(200, `{"over":true,"place":13}`), 2, 1, ""},
		"over, last in a line":      {text(200, `{"over":true,"place":999}`), 0, 1, ""},
		"a place that cannot be":    {text(200, `{"over":true,"place":-64}`), 1, 130, "does not come from a Peer"},
		"a place of 99 digits":      {text(200, `{"over":true,"place":`+digits+`}`), 1, 130, "not come from a Peer"},
		"not over, at once":         {text(200, `{"over":false}`), 1, 130, "too soon"},
		"not leading":               {text(409, "no"), 1, 130, "409 Conflict"},
		"a page":                    {text(200, "<html>Welcome</html>"), 1, 130, "does not come from a Peer"},
		"a large page":              {text(200, spaces+`{"over":true}`), 1, 130, "does not come from a Peer"},
		"nothing":                   {text(200, ""), 1, 130, "does not come from a Peer"},
		"another misdirection":      {text(421, "not here"), 1, 130, "421 Misdirected Request"},
		"unauthorised":              {text(401, "log in"), 1, 130, "401 Unauthorized"},
		"not found":                 {text(404, "no such page"), 1, 130, "404 Not Found"},
		"an error":                  {text(500, `{"over":true}`), 1, 130, "500 Internal Server Error"},
		"too many wait":             {text(503, "later"), 1, 130, "503 Service Unavailable"},
		"a closed connection":       {breaks, 1, 130, "EOF"},
		"a closed connection, late": {after(26*time.Second, breaks), 135, 135, "EOF"},
		"no answer":                 {after(24*time.Hour, breaks), 60, 60, "context deadline exceeded"},
		"a redirection": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://elsewhere/", http.StatusTemporaryRedirect)
		}, 1, 130, "307 Temporary Redirect"},
	} {
		t.Run(name, func(t *testing.T) {
			lines := logged(t)
			inWorld(t, func(t *testing.T, w *world) {
				liar := w.net.serve("liar", tc.answers)
				w.net.serve("elsewhere", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere++ }))
				lease := w.hold("http://liar")
				candidate := w.start("c", false, rare()...)
				time.Sleep(time.Hour)
				require.False(t, candidate.IsLeader())
				require.LessOrEqual(t, candidate.store.Sent(teststore.Get)-1, tc.reads)
				require.LessOrEqual(t, liar.requests.Load(), tc.asked)
				require.Positive(t, liar.requests.Load())
				got := lines()
				if tc.says == "" {
					require.Empty(t, got)
				} else {
					require.Equal(t, 1, strings.Count(got, "\n"), "%s", got)
					require.Contains(t, got, "leaderhttp: following the leader failed")
					require.Contains(t, got, tc.says)
				}

				require.NoError(t, lease.Release(t.Context()))
				require.False(t, candidate.IsLeader(), "nothing has told it")
			})
		})
	}
	require.Zero(t, elsewhere, "redirections are not followed")
}

// A URL that cannot be used has one line in the log, is never asked, and polls go on.
func TestURLsThatCannotBeUsed(t *testing.T) {
	for url, says := range map[string]string{
		"":                                   "has no URL: set",
		"10.0.0.7:8080":                      "is not http(s)://",
		"ftp://host/":                        "is not http(s)://",
		"http://":                            "is not http(s)://",
		"http:opaque":                        "is not http(s)://",
		"http://:8080":                       "is not http(s)://",
		"//host":                             "is not http(s)://",
		"http://host/?a=b":                   "is not http(s)://",
		"http://host/?":                      "is not http(s)://",
		"http://host/#a":                     "is not http(s)://",
		"http://host\x7f/":                   "is not http(s)://",
		"http://" + strings.Repeat("%", 200): "is not http(s)://",
		"http://user:secret@host/":           "has user information",
		"http://169.254.169.254/":            "WithAllowedHosts does not allow",
	} {
		t.Run(url, func(t *testing.T) {
			lines := logged(t)
			inWorld(t, func(t *testing.T, w *world) {
				link := w.net.serve("host", http.NotFoundHandler())
				local := w.net.serve("169.254.169.254", http.NotFoundHandler())
				lease := w.hold(url)
				candidate := w.follow("c")
				got := lines()
				require.Equal(t, 1, strings.Count(got, "\n"), "%s", got)
				require.Contains(t, got, says)
				require.NotContains(t, got, "secret")
				require.Zero(t, link.requests.Load()+local.requests.Load())
				res := ask(candidate.peer.Forward(http.NotFoundHandler()), "GET", "/", nil)
				require.Equal(t, http.StatusServiceUnavailable, res.Code)
				require.Zero(t, link.requests.Load()+local.requests.Load())

				require.NoError(t, lease.Release(t.Context()))
				require.Same(t, candidate, w.next())
			})
		})
	}
}

// ask runs a handler in this goroutine.
func ask(h http.Handler, method, target string, header http.Header) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	maps.Copy(r.Header, header)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// A logger that blocks holds up the callback that logs, and no request.
func TestAWarningThatNobodyReads(t *testing.T) {
	reached, read := make(chan bool), make(chan bool)
	testlog.Default(t, testlog.Writer(func(p []byte) (int, error) {
		reached <- true
		<-read
		return len(p), nil
	}))
	store := leasehold.NewMemStore()
	lock, err := leasehold.NewLock(store, key, quiet())
	require.NoError(t, err)
	peer, err := leaderhttp.New(lock)
	require.NoError(t, err)
	defer peer.Close()
	lease, err := lock.Acquire(t.Context())
	require.NoError(t, err)
	told := make(chan bool)
	go func() {
		defer close(told)
		peer.Callbacks(leasehold.Callbacks{}).OnNewLeader(lease.Record()) // which has no URL
	}()
	<-reached
	answered := make(chan int, 1)
	go func() { answered <- ask(peer, http.MethodGet, "/leader", nil).Code }()
	select {
	case code := <-answered:
		require.Equal(t, http.StatusServiceUnavailable, code)
	case <-time.After(10 * time.Second):
		t.Error("a request waits for whoever reads the log")
	}
	close(read)
	<-told
}

// If the leader's URL is that of the process that asks, it says so and asks no more.
func TestAURLOfTheProcessItself(t *testing.T) {
	lines := logged(t)
	inWorld(t, func(t *testing.T, w *world) {
		lease := w.hold("http://service") // the name of all replicas
		candidate := w.start("service", false)
		time.Sleep(time.Hour)
		require.EqualValues(t, 1, candidate.host.requests.Load())
		got := lines()
		require.Equal(t, 1, strings.Count(got, "\n"), "%s", got)
		require.Contains(t, got, "it is the URL of this process: give each process a separate URL")
		require.NoError(t, lease.Release(t.Context()))
		require.Same(t, candidate, w.next())
	})
}

// What the two paths answer before, in and after a term.
func TestTheAnswersOfAPeer(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.lead("a")
		b := w.start("b", false)
		time.Sleep(time.Second)
		answer := func(p *process, target string) (int, map[string]any) {
			res := ask(p.peer, "GET", target, nil)
			require.Equal(t, "no-store", res.Header().Get("Cache-Control"))
			got := make(map[string]any)
			if res.Header().Get("Content-Type") == "application/json" {
				require.NoError(t, json.Unmarshal(res.Body.Bytes(), &got))
			}
			return res.Code, got
		}
		status, got := answer(a, "/.leasehold/leader")
		require.Equal(t, 200, status)
		require.Equal(t, map[string]any{"leading": true}, got, "whoever asks")
		status, got = answer(b, "/.leasehold/leader")
		require.Equal(t, 503, status)
		require.Equal(t, map[string]any{"leading": false}, got)
		require.Equal(t, 200, ask(a.peer, "HEAD", "/.leasehold/leader", nil).Code)
		require.Equal(t, 503, ask(b.peer, "HEAD", "/.leasehold/leader", nil).Code)
		require.Equal(t, 200, ask(a.peer, "OPTIONS", "/.leasehold/leader", nil).Code, "as HAProxy asks by default")
		require.Equal(t, 503, ask(b.peer, "OPTIONS", "/.leasehold/leader", nil).Code)
		require.Equal(t, 405, ask(a.peer, "POST", "/.leasehold/leader", nil).Code)
		wait := waitFor(a.lease.Load().Record())
		require.Equal(t, 405, ask(a.peer, "OPTIONS", wait, nil).Code)
		require.Equal(t, 405, ask(a.peer, "HEAD", wait, nil).Code)
		for target, want := range map[string]int{
			"/.leasehold/":                 404,
			"/.leasehold/other":            404,
			"/.leasehold/wait":             409,
			"/.leasehold/wait?key=locks/a": 409,
			// by whoever cannot read the record, and would take the place of a candidate
			"/.leasehold/wait?key=locks/a&token=1":         409,
			"/.leasehold/wait?key=locks/a&token=1&term=":   409,
			strings.Replace(wait, "token=1", "token=2", 1): 409,
			strings.Replace(wait, "token=1", "token=x", 1): 409,
			strings.Replace(wait, "%2Fa", "%2Fb", 1):       409,
		} {
			status, _ := answer(a, target)
			require.Equal(t, want, status, target)
		}
		status, _ = answer(b, wait)
		require.Equal(t, 409, status)

		began := time.Now()
		status, got = answer(a, wait)
		require.Equal(t, 50*time.Second, time.Since(began))
		require.Equal(t, 200, status)
		require.Equal(t, map[string]any{"over": false, "place": 0.}, got)

		// In line, after the release has landed. b waits already.
		places := make(chan string, 2000)
		waits := func() {
			status, got := answer(a, wait)
			places <- fmt.Sprintf("%v %v %v", status, got["over"], got["place"])
		}
		for range 2 {
			go waits()
			synctest.Wait()
		}
		gone, leave := context.WithCancel(t.Context())
		go a.peer.ServeHTTP(httptest.NewRecorder(),
			httptest.NewRequestWithContext(gone, "GET", strings.TrimPrefix(wait, "/.leasehold"), nil))
		synctest.Wait()
		leave()
		synctest.Wait()
		for range 997 {
			go waits()
		}
		synctest.Wait()
		res := ask(a.peer, "GET", wait, nil)
		require.Equal(t, 503, res.Code, "1,000 wait")
		require.NotEmpty(t, res.Header().Get("Retry-After"))
		require.Empty(t, places)
		a.stop()
		got2 := make(map[string]bool)
		for i := range 999 {
			place := <-places
			got2[place] = true
			if i == 0 {
				rec, err := leaderOf(w)
				require.NoError(t, err)
				require.True(t, rec.Released() || rec.Token == 2, "the release has landed")
			}
		}
		require.Len(t, got2, 999, "each has its own place")
		require.Contains(t, got2, "200 true 999")
		status, _ = answer(a, wait)
		require.Equal(t, 409, status)
		require.Same(t, b, w.next())
	})
}

// waitFor is what a candidate asks that has read the record of a term.
func waitFor(rec leasehold.Record) string {
	return "/.leasehold/wait?" + url.Values{
		"key": {rec.Key}, "token": {fmt.Sprint(rec.Token)}, "term": {rec.TermID},
	}.Encode()
}

func leaderOf(w *world) (leasehold.Record, error) {
	lock, err := leasehold.NewLock(w.store, key)
	if err != nil {
		return leasehold.Record{}, err
	}
	return lock.Inspect(context.Background())
}

// Close answers those who wait, ends following and leaves no goroutine, and may be called again.
func TestClose(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.lead("a")
		b := w.start("b", false)
		time.Sleep(time.Second)
		require.EqualValues(t, 1, a.host.requests.Load())
		b.peer.Close()
		time.Sleep(10 * time.Minute)
		require.EqualValues(t, 1, a.host.requests.Load(), "it asks no more")
		c := w.start("c", false)
		time.Sleep(time.Second)
		began := time.Now()
		waited := make(chan int)
		wait := waitFor(a.lease.Load().Record())
		go func() { waited <- ask(a.peer, "GET", wait, nil).Code }()
		synctest.Wait()
		a.peer.Close()
		require.Equal(t, 200, <-waited)
		require.Equal(t, began, time.Now())
		require.Equal(t, 503, ask(a.peer, "GET", wait, nil).Code)
		require.Equal(t, 200, ask(a.peer, "GET", "/.leasehold/leader", nil).Code)
		a.peer.Close()
		a.stop()
		next := w.next()
		require.Contains(t, []*process{b, c}, next)
		time.Sleep(time.Minute)
		require.EqualValues(t, next.lease.Load().Token(), b.seen.Load(), "its callbacks go on")
	})
}

// busy is a reply of which the deadline takes as long as f.
type busy struct {
	*httptest.ResponseRecorder
	f func()
}

func (b busy) SetWriteDeadline(time.Time) error {
	b.f()
	return nil
}

// The term ends and the peer is closed before a request that has come in time waits: it hears of
// the end.
func TestCloseAfterTheEndOfATerm(t *testing.T) {
	for range 50 { // a select takes either
		lock, err := leasehold.NewLock(leasehold.NewMemStore(), key, quiet())
		require.NoError(t, err)
		peer, err := leaderhttp.New(lock)
		require.NoError(t, err)
		tells := peer.Callbacks(leasehold.Callbacks{})
		lease, err := lock.Acquire(t.Context())
		require.NoError(t, err)
		tells.OnStartedLeading(lease.Context(), lease)
		w := busy{httptest.NewRecorder(), func() {
			require.NoError(t, lease.Release(t.Context()))
			tells.OnStoppedLeading(nil)
			peer.Close()
		}}
		peer.ServeHTTP(w, httptest.NewRequest(http.MethodGet, waitFor(lease.Record()), nil))
		require.JSONEq(t, `{"over": true, "place": 0}`, w.Body.String())
	}
}

func TestNewRefuses(t *testing.T) {
	lock, err := leasehold.NewLock(leasehold.NewMemStore(), key)
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		lock *leasehold.Lock
		opts []leaderhttp.Option
	}{
		"no lock":            {nil, nil},
		"a lock of its own":  {new(leasehold.Lock), nil},
		"a nil option":       {lock, []leaderhttp.Option{nil}},
		"a nil client":       {lock, []leaderhttp.Option{leaderhttp.WithClient(nil)}},
		"a nil AllowedHosts": {lock, []leaderhttp.Option{leaderhttp.WithAllowedHosts(nil)}},
		"a late preemption":  {lock, []leaderhttp.Option{leaderhttp.WithPreemption(50 * time.Second)}},
		"an early one":       {lock, []leaderhttp.Option{leaderhttp.WithPreemption(-1)}},
		"no patience at all": {lock, []leaderhttp.Option{leaderhttp.WithPatience(-1)}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := leaderhttp.New(tc.lock, tc.opts...)
			require.ErrorContains(t, err, "leaderhttp: ")
		})
	}
}
