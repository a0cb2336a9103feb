package leaderhttp_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/faultproxy"
	"github.com/leasehold-go/leasehold/internal/testkit/testctx"
	"github.com/leasehold-go/leasehold/internal/testkit/testlog"
	"github.com/leasehold-go/leasehold/internal/testkit/testopt"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
	"github.com/leasehold-go/leasehold/internal/testkit/testsize"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
	"github.com/leasehold-go/leasehold/leaderhttp"
)

// replica is a process with a server on a socket. Its terms begin and end when the test says so.
type replica struct {
	t      *testing.T
	store  *access
	lock   *leasehold.Lock
	peer   *leaderhttp.Peer
	tells  leasehold.Callbacks
	server *httptest.Server
	lease  *leasehold.Lease
	app    atomic.Pointer[http.HandlerFunc]
	runs   atomic.Int64 // of app
}

var local = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}

func newReplica(t *testing.T, store leasehold.Store, url string, opts ...leaderhttp.Option) *replica {
	t.Helper()
	r := &replica{t: t, store: newAccess(store)}
	r.answer(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "done") })
	mux := http.NewServeMux()
	r.server = httptest.NewUnstartedServer(mux)
	r.server.Config.ErrorLog = log.New(testlog.Writer(func(line []byte) (int, error) {
		if bytes.Contains(line, []byte("panic serving")) {
			t.Errorf("%s", line)
		}
		return len(line), nil
	}), "", 0)
	if url == "" {
		url = "http://" + r.server.Listener.Addr().String()
	}
	var err error
	r.lock, err = leasehold.NewLock(r.store, key, quiet(), testopt.NewProcess(),
		leasehold.WithMetadata(map[string]string{leaderhttp.URLKey: url}))
	require.NoError(t, err)
	r.peer, err = leaderhttp.New(r.lock, opts...)
	require.NoError(t, err)
	r.tells = r.peer.Callbacks(leasehold.Callbacks{})
	mux.Handle(leaderhttp.Path, r.peer)
	mux.Handle("/", r.peer.Forward(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.runs.Add(1)
		(*r.app.Load())(w, req)
	})))
	r.server.Start()
	t.Cleanup(func() {
		local.CloseIdleConnections()
		r.peer.Close() // else those who wait would hold the server up
		r.server.CloseClientConnections()
		r.server.Close()
		r.peer.Close() // connections of requests that were forwarded since
		if r.lease != nil {
			_ = r.lease.Release(context.Background())
		}
	})
	return r
}

func (r *replica) answer(app http.HandlerFunc) { r.app.Store(&app) }

func (r *replica) lead() {
	r.t.Helper()
	var err error
	r.lease, err = r.lock.Acquire(r.t.Context())
	require.NoError(r.t, err)
	r.tells.OnNewLeader(r.lease.Record())
	r.tells.OnStartedLeading(r.lease.Context(), r.lease)
}

func (r *replica) resign() {
	r.t.Helper()
	require.NoError(r.t, r.lease.Release(r.t.Context()))
	r.tells.OnStoppedLeading(leasehold.ErrReleased)
}

// sees tells r of the leader.
func (r *replica) sees(of *replica) { r.tells.OnNewLeader(of.lease.Record()) }

func (r *replica) do(method, path, body string, header ...string) (*http.Response, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.server.URL+path, nil)
	require.NoError(r.t, err)
	if body != "" {
		req.Body, req.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	res, err := local.Do(req)
	require.NoError(r.t, err)
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	require.NoError(r.t, err)
	return res, string(got)
}

// leaderAndOther are a leader, and a process that knows of it.
func leaderAndOther(t *testing.T) (leader, other *replica) {
	t.Helper()
	store := leasehold.NewMemStore()
	leader, other = newReplica(t, store, ""), newReplica(t, store, "")
	leader.lead()
	other.sees(leader)
	return leader, other
}

// A forwarded request reaches the leader as the client has sent it, and the answer the client.
func TestForward(t *testing.T) {
	leader, other := leaderAndOther(t)
	leader.answer(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("X-Seen", fmt.Sprintf("%q", []string{r.Method, r.Host, r.RequestURI, string(body)}))
		w.Header()["X-Via"] = r.Header["X-Forwarded-For"]
		w.Header()["X-Proto"] = r.Header["X-Forwarded-Proto"]
		w.Header()["X-Token"] = r.Header["Fencing-Token"]
		w.Header()["X-Mark"] = r.Header["Leasehold-Forwarded"]
		w.Header()["X-Encoding"] = r.TransferEncoding
		w.Header().Set("Trailer", "X-Trailer")
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, "a pot of tea")
		w.Header().Set("X-Trailer", "the end")
	})
	host := strings.TrimPrefix(other.server.URL, "http://")
	for _, tc := range []struct{ method, path, body string }{
		{"GET", "/", ""},
		{"GET", "/a%2Fb/c%20d?a;b=%zz&c=1", ""},
		{"POST", "/orders", "an order"},
		{"POST", "/orders", ""},
		{"PUT", "/orders", ""},
		{"PATCH", "/orders", ""},
		{"PUT", "/orders", strings.Repeat("x", 1000)},
		{"DELETE", "/orders/1", ""},
		{"BREW", "/pot", "coffee"},
	} {
		res, body := other.do(tc.method, tc.path, tc.body, "X-Forwarded-For", "203.0.113.7",
			"X-Forwarded-Proto", "https", "Fencing-Token", "4711", "Connection", "Leasehold-Forwarded")
		require.Equal(t, http.StatusTeapot, res.StatusCode, body)
		require.Equal(t, "a pot of tea", body)
		require.Equal(t, "the end", res.Trailer.Get("X-Trailer"))
		require.Equal(t, fmt.Sprintf("%q", []string{tc.method, host, tc.path, tc.body}), res.Header.Get("X-Seen"))
		require.Equal(t, "203.0.113.7, 127.0.0.1", res.Header.Get("X-Via"))
		require.Equal(t, "https", res.Header.Get("X-Proto"), "as the proxy in front has said")
		require.Equal(t, "4711", res.Header.Get("X-Token"), "the client's own, perhaps of another lock")
		require.Empty(t, res.Header.Get("X-Mark"))
		require.Empty(t, res.Header.Get("X-Encoding"), "its length is known")
	}
	res, _ := leader.do("GET", "/local", "")
	require.Contains(t, res.Header.Get("X-Seen"), `"/local"`)
	require.Zero(t, other.runs.Load())
}

// A request is forwarded once at most: only the leader of the term that the mark names runs it,
// whoever has set the mark.
func TestTheMarkOfForwardedRequests(t *testing.T) {
	leader, other := leaderAndOther(t)
	_, right, _ := strings.Cut(waitFor(leader.lease.Record()), "?")
	for _, marks := range [][]string{
		{""}, {"key=locks%2Fa&token=1"}, {"key=locks%2Fa&term=&token=1"}, {"token=1"}, {right, right}, {right + "&a=b"},
		{strings.Replace(right, leader.lease.Record().TermID, leader.lease.Record().ObjectID, 1)},
		{strings.Replace(right, "token=1", "token=2", 1)}, {strings.Replace(right, "%2Fa", "%2Fb", 1)},
	} {
		for _, r := range []*replica{leader, other} {
			var header []string
			for _, mark := range marks {
				header = append(header, "Leasehold-Forwarded", mark)
			}
			res, body := r.do("POST", "/", "order", header...)
			require.Equal(t, http.StatusMisdirectedRequest, res.StatusCode)
			require.Contains(t, body, "not carried out: this process does not lead the term")
		}
	}
	res, _ := other.do("POST", "/", "order", "Leasehold-Forwarded", right)
	require.Equal(t, http.StatusMisdirectedRequest, res.StatusCode)
	require.Zero(t, leader.runs.Load()+other.runs.Load())
	leader.answer(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Leasehold-Forwarded") != "" {
			w.WriteHeader(500)
		}
	})
	res, _ = leader.do("POST", "/", "order", "leasehold-forwarded", right)
	require.Equal(t, http.StatusOK, res.StatusCode)

	leader.resign()
	res, _ = leader.do("POST", "/", "order", "leasehold-forwarded", right)
	require.Equal(t, http.StatusMisdirectedRequest, res.StatusCode)
}

// The last address in X-Forwarded-For is that of the client, as the first process has seen it,
// whatever the client says, and next can tell which requests were forwarded.
func TestTheAddressOfAClient(t *testing.T) {
	leader, other := leaderAndOther(t)
	leader.answer(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["X-Via"] = r.Header["X-Forwarded-For"]
		w.Header().Set("X-Was-Forwarded", fmt.Sprint(leaderhttp.Forwarded(r.Context())))
	})
	for _, r := range []*replica{leader, other} {
		for _, said := range [][]string{nil, {"203.0.113.7"}, {"203.0.113.7", "203.0.113.8"}, {"a, b"}, {""}} {
			var header []string
			for _, s := range said {
				header = append(header, "X-Forwarded-For", s)
			}
			res, _ := r.do("GET", "/", "", header...)
			via := res.Header["X-Via"]
			require.Len(t, via, 1, said)
			addresses := strings.Split(via[0], ", ")
			require.Equal(t, "127.0.0.1", addresses[len(addresses)-1], said)
			require.Equal(t, fmt.Sprint(r == other), res.Header.Get("X-Was-Forwarded"))
		}
	}
	require.False(t, leaderhttp.Forwarded(t.Context()))
}

// A handler in front may have taken the body away.
func TestARequestWithoutABody(t *testing.T) {
	leader, other := leaderAndOther(t)
	for _, method := range []string{"GET", "POST"} {
		r := httptest.NewRequest(method, "/", http.NoBody)
		r.Body = nil
		w := httptest.NewRecorder()
		other.peer.Forward(http.NotFoundHandler()).ServeHTTP(w, r)
		require.Equal(t, 200, w.Code, w.Body.String())
	}
	require.EqualValues(t, 2, leader.runs.Load())
}

// A proxy of the environment sees nothing of what peers send each other.
func TestNoProxyBetweenPeers(t *testing.T) {
	if os.Getenv("HTTP_PROXY") == "" { // which http.ProxyFromEnvironment reads once in a process
		asked := make(chan string, 10)
		proxy := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			asked <- r.URL.String()
		}))
		defer proxy.Close()
		child := exec.Command(os.Args[0], "-test.run=^TestNoProxyBetweenPeers$", "-test.v")
		child.Env = append(os.Environ(), "HTTP_PROXY="+proxy.URL, "http_proxy="+proxy.URL)
		out, err := child.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "--- PASS")
		require.Empty(t, asked)
		return
	}
	leader := newReplica(t, leasehold.NewMemStore(), "http://leader.invalid")
	leader.lead()
	other := newReplica(t, leader.store, "")
	other.sees(leader)
	res, body := other.do("GET", "/", "", "Host", "victim.example")
	require.Equal(t, http.StatusServiceUnavailable, res.StatusCode, body)
}

// An app's own 421 is an answer like any other.
func TestAnAppThatAnswers421(t *testing.T) {
	leader, other := leaderAndOther(t)
	leader.answer(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "wrong door", 421) })
	res, body := other.do("GET", "/", "")
	require.Equal(t, 421, res.StatusCode)
	require.Equal(t, "wrong door\n", body)
	require.EqualValues(t, 1, leader.runs.Load())
}

// The request of a term ends with its lease, and its form's files are removed by the server.
func TestTheContextOfARequestEndsWithTheLease(t *testing.T) {
	leader, other := leaderAndOther(t)
	started, cause := make(chan struct{}, 1), make(chan error, 1)
	leader.answer(func(_ http.ResponseWriter, r *http.Request) {
		started <- struct{}{}
		select {
		case <-r.Context().Done():
			cause <- context.Cause(r.Context())
		case <-time.After(10 * time.Second):
			cause <- errors.New("the request still runs")
		}
	})
	for _, r := range []*replica{leader, other} {
		if r == other {
			leader.lead()
			other.sees(leader)
		}
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			r.do("GET", "/", "")
		}()
		<-started
		leader.resign()
		require.ErrorIs(t, <-cause, leasehold.ErrReleased)
		<-answered
	}
}

// A connection that breaks after a request was sent leaves its outcome open, so it is never sent
// again: not by this package, and not by http.Transport, which repeats a GET.
func TestNoRequestRunsTwice(t *testing.T) {
	leader, other := leaderAndOther(t)
	for _, tc := range []struct{ method, body, name, value string }{
		{"GET", "", "A", "b"},
		{"HEAD", "", "A", "b"},
		{"OPTIONS", "", "A", "b"},
		{"POST", "", "Idempotency-Key", "k"},
		{"POST", "order", "X-Idempotency-Key", "k"},
		{"DELETE", "", "Idempotency-Key", "k"},
	} {
		other.do("GET", "/", "") // so that there is a connection that was used before
		leader.runs.Store(0)
		leader.answer(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		res, body := other.do(tc.method, "/", tc.body, tc.name, tc.value)
		require.Equal(t, http.StatusServiceUnavailable, res.StatusCode)
		require.Empty(t, res.Header.Get("Retry-After"))
		if tc.method != "HEAD" {
			require.Contains(t, body, "whether the request was carried out is not known")
		}
		require.EqualValues(t, 1, leader.runs.Load(), tc.method)
		leader.answer(func(http.ResponseWriter, *http.Request) {})
	}
}

// A request that was certainly not carried out goes to the next leader, unless its body has been
// read.
func TestARequestGoesToTheNextLeader(t *testing.T) {
	for _, tc := range []struct {
		refused      bool // by the former leader, which else cannot be reached
		method, body string
		status       int
	}{
		{true, "GET", "", 200},
		{true, "POST", "order", 200},
		{true, "POST", strings.Repeat("x", 64<<10), 200},
		{true, "POST", strings.Repeat("x", 64<<10+1), 503},
		{false, "GET", "", 200},
		{false, "POST", "order", 200},
	} {
		for tries := 1; !aRequestGoesToTheNextLeader(t, tc.refused, tc.method, tc.body, tc.status); tries++ {
			require.Less(t, tries, 20, "the process has always learnt of the next leader before it was asked")
		}
	}
}

// aRequestGoesToTheNextLeader reports false if the process that forwards the request has learnt of
// the next leader before.
func aRequestGoesToTheNextLeader(t *testing.T, refused bool, method, sent string, status int) bool {
	t.Helper()
	former, other := leaderAndOther(t)
	next := newReplica(t, former.store.Store, "")
	next.answer(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || string(body) != sent {
			t.Errorf("%q %v", body, err)
		}
	})
	former.resign()
	if !refused {
		former.server.CloseClientConnections()
		former.server.Close()
	}
	next.lead()
	res, body := other.do(method, "/", sent)
	if status == 503 && res.StatusCode == 200 {
		return false
	}
	require.Equal(t, status, res.StatusCode, body)
	runs := int64(1)
	if status == 503 {
		require.Equal(t, "3", res.Header.Get("Retry-After"))
		require.Contains(t, body, "not carried out")
		runs = 0
		if res, _ = other.do(method, "/", sent); res.StatusCode == 200 { // it has learnt of the next leader meanwhile
			runs = 1
		}
	}
	require.Zero(t, former.runs.Load())
	require.Equal(t, runs, next.runs.Load())
	return true
}

// While nobody leads, requests are answered 503, and few of them read the record.
func TestRequestsWhileNobodyLeads(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		lease := w.hold("http://gone")
		p := w.start("p", true, rare()...) // so nothing wakes its elector
		time.Sleep(time.Second)
		require.NoError(t, lease.Release(t.Context()))
		runs := 0
		forward := p.peer.Forward(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { runs++ }))
		before := p.store.Sent(teststore.Get)
		var all sync.WaitGroup
		for range 1000 {
			all.Go(func() {
				res := ask(forward, "POST", "/", nil)
				if res.Code != 503 || res.Header().Get("Retry-After") != "3" ||
					!strings.Contains(res.Body.String(), "not carried out") {
					t.Errorf("%d %s", res.Code, res.Body)
				}
			})
			time.Sleep(3 * time.Millisecond)
		}
		all.Wait()
		reads := p.store.Sent(teststore.Get) - before
		t.Logf("%d reads in 5 s", reads)
		require.LessOrEqual(t, reads, 22)
		require.GreaterOrEqual(t, reads, 17)
		require.Zero(t, runs)

		time.Sleep(time.Second)
		p.store.down.Store(true) // a read is given up
		gone := testctx.Within(t, time.Second)
		began := time.Now()
		forward.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(gone, "GET", "/", nil))
		require.Equal(t, time.Second, time.Since(began), "the client has gone")
		require.Equal(t, 503, ask(forward, "GET", "/", nil).Code)
		require.Equal(t, 3*time.Second, time.Since(began), "the patience of a request")
		p.store.down.Store(false)

		next := w.hold("http://next")
		w.net.serve("next", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		time.Sleep(time.Second)
		require.Equal(t, 200, ask(forward, "GET", "/", nil).Code, "the fresh read shows it")
		require.NoError(t, next.Release(t.Context()))
	})
}

// A read shows what there was when the store answered. If the elector has learnt of a later term
// before the reply arrives, that term counts.
func TestAReadThatIsOvertaken(t *testing.T) {
	for _, released := range []bool{false, true} {
		logged(t)
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			former := w.net.serve("former", http.NotFoundHandler())
			w.net.serve("next", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			take := func(url string) *leasehold.Lease {
				lock, err := leasehold.NewLock(w.store, key, leasehold.WithTTL(24*time.Hour), quiet(),
					testopt.NewProcess(), leasehold.WithMetadata(map[string]string{leaderhttp.URLKey: url}))
				require.NoError(t, err)
				lease, err := lock.Acquire(t.Context())
				require.NoError(t, err)
				return lease
			}
			lock, err := leasehold.NewLock(newAccess(w.store), key, quiet(), testopt.NewProcess())
			require.NoError(t, err)
			peer, err := leaderhttp.New(lock, leaderhttp.WithClient(&http.Client{Transport: w.net}))
			require.NoError(t, err)
			defer peer.Close()

			lease := take("http://former")
			if released {
				require.NoError(t, lease.Release(t.Context()))
			}
			answered := make(chan *httptest.ResponseRecorder)
			go func() { answered <- ask(peer.Forward(http.NotFoundHandler()), "GET", "/", nil) }()
			time.Sleep(request * 3 / 4) // the reply is on its way
			require.NoError(t, lease.Release(t.Context()))
			lease = take("http://next")
			peer.Callbacks(leasehold.Callbacks{}).OnNewLeader(lease.Record())
			require.Equal(t, 200, (<-answered).Code)
			time.Sleep(request) // the read may outlast the request
			require.Equal(t, 200, ask(peer.Forward(http.NotFoundHandler()), "GET", "/", nil).Code)
			require.Zero(t, former.requests.Load())
			require.NoError(t, lease.Release(t.Context()))
			time.Sleep(request)
		})
	}
}

// A leader that hangs holds a request until its term is over, and 10 s more.
func TestALeaderThatHangs(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.lead("a", quiet())
		b := w.follow("b")
		forward := b.peer.Forward(http.NotFoundHandler())
		a.store.down.Store(true)
		a.host.silent.Store(true)
		gone := testctx.Within(t, time.Second)
		began := time.Now()
		forward.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(gone, "GET", "/", nil))
		require.Equal(t, time.Second, time.Since(began), "the client has gone")
		answered := make(chan *httptest.ResponseRecorder)
		go func() { answered <- ask(forward, "POST", "/", nil) }()
		require.Same(t, b, w.next())
		began = time.Now()
		res := <-answered
		require.Equal(t, 10*time.Second, time.Since(began))
		require.Equal(t, 503, res.Code)
		require.Empty(t, res.Header().Get("Retry-After"))
	})
}

// Streams and upgraded connections pass in both directions.
func TestStreams(t *testing.T) {
	leader, other := leaderAndOther(t)
	next := make(chan string)
	leader.answer(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "echo" {
			_ = http.NewResponseController(w).Flush()
			for line := range next {
				_, _ = io.WriteString(w, line)
				_ = http.NewResponseController(w).Flush()
			}
			return
		}
		conn, both, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = both.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_ = both.Flush()
		_, _ = io.Copy(conn, both)
	})
	res, err := local.Get(other.server.URL)
	require.NoError(t, err)
	lines := bufio.NewReader(res.Body)
	for i := range 3 {
		next <- fmt.Sprintln(i)
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintln(i), line)
	}
	close(next)
	_, err = lines.ReadByte()
	require.ErrorIs(t, err, io.EOF)
	res.Body.Close()

	conn, err := net.Dial("tcp", strings.TrimPrefix(other.server.URL, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	require.NoError(t, err)
	reader := bufio.NewReader(conn)
	res, err = http.ReadResponse(reader, nil)
	require.NoError(t, err)
	require.Equal(t, 101, res.StatusCode)
	for i := range 3 {
		_, err = fmt.Fprintln(conn, "hello", i)
		require.NoError(t, err)
		line, err := reader.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintln("hello", i), line)
	}
}

// Over HTTP/1, too, an app may answer while it reads.
func TestAnAppThatAnswersWhileItReads(t *testing.T) {
	hangs := time.AfterFunc(time.Minute, func() { panic("no answer while it reads, and its server cannot be closed") })
	t.Cleanup(func() { hangs.Stop() }) // first, so that it is the last to run
	leader, other := leaderAndOther(t)
	leader.answer(func(w http.ResponseWriter, r *http.Request) {
		controller := http.NewResponseController(w)
		assert.NoError(t, controller.EnableFullDuplex())
		assert.NoError(t, controller.Flush())
		lines := bufio.NewScanner(r.Body)
		for lines.Scan() {
			_, _ = fmt.Fprintln(w, "read", lines.Text())
			_ = controller.Flush()
		}
	})
	reader, writer := io.Pipe()
	t.Cleanup(func() { writer.Close() }) // or no server could be closed after a failure
	ctx := testctx.Within(t, 30*time.Second)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, other.server.URL, reader)
	require.NoError(t, err)
	res, err := local.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	lines := bufio.NewReader(res.Body)
	for i := range 3 {
		_, err = fmt.Fprintln(writer, i)
		require.NoError(t, err)
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintln("read", i), line)
	}
	require.NoError(t, writer.Close())
	_, err = lines.ReadByte()
	require.ErrorIs(t, err, io.EOF)
}

// A body that is too large for a handler in front of Forward is the client's fault, as at the
// leader.
func TestABodyThatIsTooLarge(t *testing.T) {
	leader, other := leaderAndOther(t)
	leader.answer(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			_, _ = io.WriteString(w, "read to its end")
		}
	})
	handler := other.server.Config.Handler
	other.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.MaxBytesHandler(handler, 5).ServeHTTP(w, r)
	})
	res, body := other.do("POST", "/", "order")
	require.Equal(t, http.StatusOK, res.StatusCode, body)
	for _, length := range []int64{-1, 7} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, other.server.URL,
			strings.NewReader("too big"))
		require.NoError(t, err)
		req.ContentLength = length
		res, err = local.Do(req)
		require.NoError(t, err)
		res.Body.Close()
		require.Equal(t, http.StatusRequestEntityTooLarge, res.StatusCode)
	}
}

// A request that was certainly not sent is said to be so, and may be repeated.
func TestARequestThatCannotBeSent(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections, and answers no handshake
	require.NoError(t, err)
	defer silent.Close()
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	nobody := "http://" + testserver.FreeAddr(t)
	for name, c := range map[string]struct {
		url   string
		proxy string
	}{
		"a TLS handshake that fails":             {url: "https://" + plain.Listener.Addr().String()},
		"a TLS handshake that hangs":             {url: "https://" + silent.Addr().String()},
		"a proxy that cannot be reached":         {url: "http://leader.invalid", proxy: nobody},
		"a proxy that refuses to make a tunnel":  {url: "https://leader.invalid", proxy: plain.URL},
		"a leader whose name cannot be resolved": {url: "http://leader.invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			transport := &http.Transport{TLSHandshakeTimeout: 100 * time.Millisecond}
			if c.proxy != "" {
				transport.Proxy = func(*http.Request) (*url.URL, error) { return url.Parse(c.proxy) }
			}
			store := leasehold.NewMemStore()
			leader := newReplica(t, store, c.url)
			leader.lead()
			other := newReplica(t, store, "", leaderhttp.WithClient(&http.Client{Transport: transport}),
				leaderhttp.WithPatience(0))
			other.sees(leader)
			res, body := other.do("POST", "/", "order")
			require.Equal(t, http.StatusServiceUnavailable, res.StatusCode)
			require.Equal(t, "3", res.Header.Get("Retry-After"), body)
			require.Contains(t, body, "not carried out")
		})
	}
}

// A transport that does not say how far it has come may have sent the request.
func TestATransportThatTellsNothing(t *testing.T) {
	store := leasehold.NewMemStore()
	leader := newReplica(t, store, "http://leader.invalid")
	leader.lead()
	other := newReplica(t, store, "", leaderhttp.WithClient(&http.Client{Transport: roundTripper(
		func(*http.Request) (*http.Response, error) { return nil, errors.New("something broke") },
	)}))
	other.sees(leader)
	res, body := other.do("POST", "/", "order")
	require.Equal(t, http.StatusServiceUnavailable, res.StatusCode)
	require.Empty(t, res.Header.Get("Retry-After"))
	require.Contains(t, body, "whether the request was carried out is not known")
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A leader whose machine falls silent does not keep the requests of an HTTP/2 connection, on which
// those that wait for the end of its term would keep it from being idle.
func TestAnHTTP2ConnectionThatFallsSilent(t *testing.T) {
	t.Parallel()
	const name = "LEASEHOLD_TEST_LINK"
	if at := os.Getenv(name); at != "" { // with the link's certificate, which the default client must trust
		store := leasehold.NewMemStore()
		leader := newReplica(t, store, at)
		leader.lead()
		other := newReplica(t, store, "")
		other.sees(leader)
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			res, body := other.do("GET", "/hangs", "")
			assert.Equal(t, http.StatusServiceUnavailable, res.StatusCode)
			assert.Empty(t, res.Header.Get("Retry-After"), body)
		}()
		select {
		case <-answered:
		case <-time.After(30 * time.Second):
			assert.Fail(t, "the request is kept by a connection that has died")
		}
		return
	}
	var link *faultproxy.Link
	link = faultproxy.StartLink(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		assert.Equal(t, 2, r.ProtoMajor)
		if r.URL.Path == "/hangs" {
			link.Silence()
		}
		<-r.Context().Done()
	}))
	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=1m")
	child.Env = append(os.Environ(), name+"="+link.URL(), "SSL_CERT_FILE="+link.CertFile(t))
	out, err := child.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "--- PASS")
}

// Short time-outs of the server do not cut off those who wait, and a shutdown is not held up.
func TestAServerWithTimeOuts(t *testing.T) {
	store := leasehold.NewMemStore()
	lock, err := leasehold.NewLock(store, key, quiet())
	require.NoError(t, err)
	peer, err := leaderhttp.New(lock)
	require.NoError(t, err)
	tells := peer.Callbacks(leasehold.Callbacks{})
	server := &http.Server{
		Handler: peer, ReadTimeout: 100 * time.Millisecond, WriteTimeout: 100 * time.Millisecond,
		ReadHeaderTimeout: 100 * time.Millisecond,
	}
	server.RegisterOnShutdown(peer.Close)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error)
	go func() { served <- server.Serve(listener) }()
	defer local.CloseIdleConnections()
	wait := func(lease *leasehold.Lease) chan string {
		answered := make(chan string, 1)
		go func() {
			res, err := local.Get(fmt.Sprint("http://", listener.Addr(), waitFor(lease.Record())))
			if err != nil {
				answered <- err.Error()
				return
			}
			defer res.Body.Close()
			body, err := io.ReadAll(res.Body)
			answered <- fmt.Sprint(res.StatusCode, " ", string(body), err)
		}()
		return answered
	}
	lead := func() *leasehold.Lease {
		lease, err := lock.Acquire(t.Context())
		require.NoError(t, err)
		tells.OnStartedLeading(lease.Context(), lease)
		return lease
	}
	lease := lead()
	answered := wait(lease)
	select {
	case got := <-answered:
		require.Fail(t, got)
	case <-time.After(500 * time.Millisecond): // five time-outs
	}
	require.NoError(t, lease.Release(t.Context()))
	tells.OnStoppedLeading(leasehold.ErrReleased)
	require.Equal(t, "200 {\"over\":true,\"place\":0}\n<nil>", <-answered)

	lease = lead()
	answered = wait(lease)
	time.Sleep(100 * time.Millisecond)
	soon := testctx.Within(t, 20*time.Second)
	require.NoError(t, server.Shutdown(soon))
	require.ErrorIs(t, <-served, http.ErrServerClosed)
	require.Equal(t, "200 {\"over\":false,\"place\":0}\n<nil>", <-answered)
	require.NoError(t, lease.Release(t.Context()))
}

// Over a network that loses requests and answers, delays them and answers for the leader, each
// request is answered by the leader or with an error, and none runs twice.
func TestForwardOverABadNetwork(t *testing.T) {
	store := leasehold.NewMemStore()
	var proxy *faultproxy.Proxy
	var mu sync.Mutex
	ids := make(map[string]int)
	upstream := httptest.NewUnstartedServer(nil)
	url := "http://" + upstream.Listener.Addr().String()
	proxy = faultproxy.Start(t, url, func(r *http.Request) (f faultproxy.Fault) {
		if strings.HasPrefix(r.URL.Path, leaderhttp.Path) {
			return f
		}
		f.Kind = []faultproxy.Kind{
			faultproxy.Pass, faultproxy.Pass, faultproxy.Refuse, faultproxy.Answer, faultproxy.DropReply,
			faultproxy.AnswerAfter,
		}[rand.IntN(6)]
		f.Before, f.After = rand.N(5*time.Millisecond), rand.N(5*time.Millisecond)
		return f
	})
	leader := newReplica(t, store, proxy.URL())
	leader.answer(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		mu.Lock()
		defer mu.Unlock()
		ids[r.URL.Path]++
		_, _ = io.WriteString(w, "ran")
	})
	upstream.Config.Handler = leader.server.Config.Handler
	upstream.Start()
	defer upstream.Close()
	defer upstream.CloseClientConnections()
	defer leader.peer.Close() // else those who wait would hold upstream up
	leader.lead()
	other := newReplica(t, store, "")
	other.sees(leader)
	answers := make(map[string]int)
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			for i := range testsize.Pick(40, 1000) {
				if t.Failed() {
					return
				}
				method, body := "GET", ""
				if i%2 == 0 {
					method, body = "POST", "order"
				}
				id := fmt.Sprintf("/%d/%d", worker, i)
				res, got := other.do(method, id, body)
				mu.Lock()
				runs := ids[id]
				switch {
				case runs > 1:
					t.Errorf("%s %s ran %d times", method, id, runs)
				case res.StatusCode == 200 && (got != "ran" || runs != 1):
					t.Errorf("%s %s is answered %q and ran %d times", method, id, got, runs)
				case res.Header.Get("Retry-After") != "" && runs != 0:
					t.Errorf("%s %s ran, and is answered %q", method, id, got)
				case res.StatusCode != 200 && res.StatusCode != 500 && res.StatusCode != 503:
					t.Errorf("%s %s is answered %d %q", method, id, res.StatusCode, got)
				}
				answers[fmt.Sprint(res.StatusCode)]++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	t.Log(answers)
	require.Greater(t, answers["200"], 8)
	require.Greater(t, answers["503"], 8)
}

// A peer that accepts connections and never answers is left by Close.
func TestAPeerThatNeverAnswers(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	accepted := make(chan net.Conn, 10)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				close(accepted)
				return
			}
			accepted <- conn
		}
	}()
	store := leasehold.NewMemStore()
	silent := newReplica(t, store, "http://"+listener.Addr().String())
	silent.lead()
	other := newReplica(t, store, "")
	other.sees(silent)
	conns := []net.Conn{<-accepted}
	ctx, cancel := context.WithCancel(t.Context())
	answered := make(chan error)
	go func() {
		req, err := http.NewRequestWithContext(ctx, "GET", other.server.URL, nil)
		if err == nil {
			_, err = local.Do(req)
		}
		answered <- err
	}()
	conns = append(conns, <-accepted)
	cancel()
	require.ErrorIs(t, <-answered, context.Canceled)
	other.peer.Close()
	require.NoError(t, listener.Close())
	for conn := range accepted {
		conns = append(conns, conn)
	}
	for _, conn := range conns {
		_, _ = io.Copy(io.Discard, conn) // until the other side has closed it
		conn.Close()
	}
}
