package fencehttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/fencehttp"
	"github.com/leasehold-go/leasehold/internal/testkit/teststore"
)

func byPath(r *http.Request) string { return strings.TrimPrefix(r.URL.Path, "/") }

// send lets h answer a request without a server. The ResponseWriter does not support deadlines.
func send(ctx context.Context, h http.Handler, method, path string, tokens ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, method, path, nil)
	r.Header[fencehttp.Header] = tokens
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func put(ctx context.Context, h http.Handler, path string, tokens ...string) *httptest.ResponseRecorder {
	return send(ctx, h, http.MethodPut, path, tokens...)
}

func Example() {
	marks := fencehttp.NewStoreMarks(leasehold.NewMemStore(), "marks/") // in production, a store that lasts
	resource := func(r *http.Request) string { return "reports/" + r.PathValue("name") }
	fence, err := fencehttp.New(marks, resource) // one for all routes that write reports
	if err != nil {
		log.Fatal(err)
	}

	put := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "written with token ", r.Header.Get(fencehttp.Header))
	})
	remove := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "removed with token ", r.Header.Get(fencehttp.Header))
	})
	authorise := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, password, _ := r.BasicAuth(); password != "secret" {
				http.Error(w, "who are you?", http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	mux := http.NewServeMux() // authorise first, then fence: an unauthorised request must not raise the mark
	mux.Handle("PUT /reports/{name}", authorise(fence.Middleware(put)))
	mux.Handle("DELETE /reports/{name}", authorise(fence.Middleware(remove)))

	for _, request := range []struct {
		method, password string
		token            uint64 // from lease.Token()
	}{
		{"PUT", "secret", 1},
		{"DELETE", "secret", 2},
		{"PUT", "secret", 1},
		{"PUT", "guess", 9},
		{"PUT", "secret", 2},
	} {
		r := httptest.NewRequest(request.method, "/reports/today", nil)
		r.SetBasicAuth("leader", request.password)
		r.Header.Set(fencehttp.Header, fencehttp.Format(request.token))
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Println(w.Code, strings.TrimSpace(w.Body.String()))
	}
	// Output:
	// 200 written with token 1
	// 200 removed with token 2
	// 412 not carried out: token 1 is fenced off because token 2 has been seen: a newer leader has taken over, so stop
	// 401 who are you?
	// 200 written with token 2
}

// marksFunc implements Marks with a function.
type marksFunc func(ctx context.Context) (uint64, error)

func (f marksFunc) Raise(ctx context.Context, _ string, _ uint64) (uint64, error) { return f(ctx) }

func TestStatus(t *testing.T) {
	served := 0
	handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ })
	guarded := newFence(&fencehttp.MemMarks{}, byPath).Middleware(handler)
	for _, tc := range []struct {
		tokens []string
		path   string
		status int
	}{
		{[]string{"7"}, "/a", 200},
		{[]string{"7"}, "/a", 200},
		{[]string{"6"}, "/a", 412},
		{[]string{"6"}, "/b", 200},
		{[]string{"9007199254740992"}, "/a", 400}, // 2^53: no lock issues it
		{[]string{"18446744073709551615"}, "/a", 400},
		{[]string{"18446744073709551616"}, "/a", 400},
		{[]string{"7"}, "/a", 200}, // none of these has raised the mark
		{[]string{"9007199254740991"}, "/a", 200},
		{[]string{"7"}, "/a", 412},
		{nil, "/a", 428},
		{[]string{""}, "/a", 428},
		{[]string{"0"}, "/a", 400},
		{[]string{"-1"}, "/a", 400},
		{[]string{"+1"}, "/a", 400},
		{[]string{"1e3"}, "/a", 400},
		{[]string{"7", "8"}, "/c", 400},
		{[]string{"7", "7"}, "/c", 400},
		{[]string{"", "7"}, "/c", 400},
		{[]string{"7, 8"}, "/c", 400},
		{[]string{"1"}, "/c", 200},
		{[]string{"7"}, "/", 500}, // byPath returns "" for it
	} {
		before := served
		w := put(t.Context(), guarded, tc.path, tc.tokens...)
		require.Equal(t, tc.status, w.Code, "%v: %s", tc, w.Body)
		require.Equal(t, tc.status == 200, served > before)
	}
	require.Equal(t, "9007199254740991", put(t.Context(), guarded, "/a", "7").Header().Get(fencehttp.Header))
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodDelete} {
		require.Equal(t, 428, send(t.Context(), guarded, method, "/a").Code, method)
		require.Equal(t, 412, send(t.Context(), guarded, method, "/a", "7").Code, method)
	}
}

func TestNew(t *testing.T) {
	for says, args := range map[string]struct {
		marks    fencehttp.Marks
		resource func(*http.Request) string
		opt      fencehttp.Option
	}{
		"must not be nil":   {nil, byPath, fencehttp.WithWait(1)},
		"resource must not": {&fencehttp.MemMarks{}, nil, fencehttp.WithWait(1)},
		"WithWait(0s)":      {&fencehttp.MemMarks{}, byPath, fencehttp.WithWait(0)},
		"an Option is nil":  {&fencehttp.MemMarks{}, byPath, nil},
	} {
		_, err := fencehttp.New(args.marks, args.resource, args.opt)
		require.ErrorContains(t, err, says)
	}
}

// newFence is New with arguments that can work.
func newFence(marks fencehttp.Marks, resource func(*http.Request) string, opts ...fencehttp.Option) *fencehttp.Fence {
	f, err := fencehttp.New(marks, resource, opts...)
	if err != nil {
		panic(err)
	}
	return f
}

func TestMarksThatFail(t *testing.T) {
	var logged strings.Builder
	was, out, flags := slog.Default(), log.Writer(), log.Flags()
	// SetDefault redirects package log
	t.Cleanup(func() { slog.SetDefault(was); log.SetOutput(out); log.SetFlags(flags) })
	slog.SetDefault(slog.New(slog.NewTextHandler(&logged, nil)))
	served := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("let in") })
	guard := func(raise marksFunc) http.Handler { return newFence(raise, byPath).Middleware(served) }

	w := put(t.Context(), guard(func(context.Context) (uint64, error) { return 0, errors.New("disk full") }), "/a", "1")
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.Equal(t, "not carried out: the fencing token could not be checked; try again\n", w.Body.String(),
		"the client must not see the cause")
	require.Contains(t, logged.String(), "disk full", "the operator must see the cause")

	synctest.Test(t, func(t *testing.T) { // marks that are slow
		began := time.Now()
		hang := func(ctx context.Context) (uint64, error) { <-ctx.Done(); return 0, ctx.Err() }
		w := put(t.Context(), guard(hang), "/a", "1")
		require.Equal(t, http.StatusServiceUnavailable, w.Code)
		require.Equal(t, 10*time.Second, time.Since(began))

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		logged.Reset()
		w = put(ctx, guard(hang), "/a", "1")
		require.Equal(t, http.StatusServiceUnavailable, w.Code)
		require.Equal(t, "not carried out: the server gave up waiting; try again\n", w.Body.String())
		require.Empty(t, logged.String(), "nothing is wrong with the marks")
	})
}

func TestANewLeaderWaitsForRequestsOfTheOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var mu sync.Mutex
		var log []string
		// The handler takes 10 s, even if its context ends.
		guarded := newFence(&fencehttp.MemMarks{}, byPath).Middleware(http.HandlerFunc(func(_ http.ResponseWriter,
			r *http.Request) {
			note := func(what string) {
				mu.Lock()
				defer mu.Unlock()
				log = append(log, fmt.Sprint(time.Since(began), " ", what, " ", r.Header.Get(fencehttp.Header)))
			}
			note("begins")
			defer context.AfterFunc(r.Context(), func() {
				var refused *leasehold.FencedError
				if cause := context.Cause(r.Context()); errors.Is(cause, leasehold.ErrFenced) &&
					errors.As(cause, &refused) {
					note(fmt.Sprintf("is interrupted by %d: %q, token", refused.Highest, refused.Key))
				}
			})()
			time.Sleep(10 * time.Second)
			note("ends")
		}))
		var wg sync.WaitGroup
		codes, answered := make([]int, 4), make([]time.Duration, 4)
		for i, token := range []string{"1", "2", "1", "2"} {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Second)
				codes[i] = put(t.Context(), guarded, "/a", token).Code
				answered[i] = time.Since(began)
			})
		}
		impatient, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		var gaveUp *httptest.ResponseRecorder
		wg.Go(func() {
			time.Sleep(2*time.Second + 100*time.Millisecond)
			gaveUp = put(impatient, guarded, "/a", "3")
		})
		wg.Wait()
		require.Equal(t, http.StatusServiceUnavailable, gaveUp.Code)
		require.Equal(t, "not carried out: the server gave up waiting; try again\n", gaveUp.Body.String())
		require.Equal(t, []int{200, 412, 412, 412}, codes, "a request that gave up waiting has raised the mark to 3")
		require.Equal(t, 2100*time.Millisecond, answered[1], "a waiting request is refused as soon as a higher "+
			"token comes")
		require.Equal(t, []string{"0s begins 1", `1s is interrupted by 2: "a", token 1`, "10s ends 1"}, log)
		log, began = nil, time.Now()
		for i, token := range []string{"3", "4"} {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Second)
				put(t.Context(), guarded, "/a", token)
			})
		}
		wg.Wait()
		require.Equal(t, []string{"0s begins 3", `1s is interrupted by 4: "a", token 3`, "10s ends 3",
			"10s begins 4", "20s ends 4"}, log)
	})
}

func TestTheWaitIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		marks, free := &fencehttp.MemMarks{}, make(chan struct{})
		guarded := newFence(marks, byPath, fencehttp.WithWait(3*time.Second)).Middleware(
			http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if r.Header.Get(fencehttp.Header) == "1" {
					<-free // ignores that its context has ended
				}
			}))
		var wg sync.WaitGroup
		wg.Go(func() { put(t.Context(), guarded, "/a", "1") })
		synctest.Wait()
		for range 2 {
			began := time.Now()
			w := put(t.Context(), guarded, "/a", "2")
			require.Equal(t, http.StatusServiceUnavailable, w.Code, "let in beside a lower token")
			require.Equal(t, "not carried out: requests with lower tokens are still running; try again\n",
				w.Body.String())
			require.Equal(t, 3*time.Second, time.Since(began))
		}
		require.Equal(t, http.StatusPreconditionFailed, put(t.Context(), guarded, "/a", "1").Code)
		require.Equal(t, http.StatusOK, put(t.Context(), guarded, "/b", "2").Code, "another resource")
		close(free)
		wg.Wait()
		require.Equal(t, http.StatusOK, put(t.Context(), guarded, "/a", "2").Code)
	})
}

// A higher token that only the marks know, because another process has seen it, interrupts as well.
func TestATokenThatAnotherProcessSawInterrupts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		marks := &fencehttp.MemMarks{}
		guarded := newFence(marks, byPath).Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			fmt.Fprint(w, errors.Is(context.Cause(r.Context()), leasehold.ErrFenced))
		}))
		var wg sync.WaitGroup
		var old *httptest.ResponseRecorder
		wg.Go(func() { old = put(t.Context(), guarded, "/a", "1") })
		synctest.Wait()
		_, err := marks.Raise(t.Context(), "a", 5)
		require.NoError(t, err)
		require.Equal(t, http.StatusPreconditionFailed, put(t.Context(), guarded, "/a", "2").Code)
		wg.Wait()
		require.Equal(t, "true", old.Body.String(), "the cause is ErrFenced")
	})
}

func TestAPanicLeavesTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guarded := newFence(&fencehttp.MemMarks{}, byPath).Middleware(http.HandlerFunc(func(_ http.ResponseWriter,
			r *http.Request) {
			switch {
			case r.Method == http.MethodDelete:
				panic(http.ErrAbortHandler)
			case r.Header.Get(fencehttp.Header) == "1":
				<-r.Context().Done()
			}
		}))
		var wg sync.WaitGroup
		wg.Go(func() { put(t.Context(), guarded, "/a", "1") }) // keeps the gate alive between the requests below
		synctest.Wait()
		require.PanicsWithValue(t, http.ErrAbortHandler, func() {
			send(t.Context(), guarded, http.MethodDelete, "/a", "1")
		})
		require.Equal(t, http.StatusOK, put(t.Context(), guarded, "/a", "2").Code)
		wg.Wait()
	})
}

// deadlines is a ResponseWriter that records the deadlines that are set.
type deadlines struct {
	*httptest.ResponseRecorder
	set []string
}

func (d *deadlines) SetReadDeadline(at time.Time) error {
	d.set = append(d.set, fmt.Sprint("read ", at.Unix()))
	return nil
}

func (d *deadlines) SetWriteDeadline(at time.Time) error {
	d.set = append(d.set, fmt.Sprint("write in ", time.Until(at)))
	return nil
}

// A second higher token does not extend the deadline that the first one set. A request that has
// ended is not interrupted, because its ResponseWriter may be gone.
func TestARequestIsInterruptedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guarded := newFence(&fencehttp.MemMarks{}, byPath).Middleware(http.HandlerFunc(func(_ http.ResponseWriter,
			r *http.Request) {
			time.Sleep(5 * time.Second)
		}))
		serve := func(token string) (*deadlines, func()) {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/a", nil)
			r.Header.Set(fencehttp.Header, token)
			w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
			return w, func() { guarded.ServeHTTP(w, r) }
		}
		var wg sync.WaitGroup
		_, keeper := serve("1") // keeps the gate alive
		old, begin := serve("1")
		wg.Go(begin)
		wg.Go(func() { time.Sleep(time.Second); keeper() })
		time.Sleep(3 * time.Second)
		for _, token := range []string{"2", "3"} {
			_, next := serve(token)
			wg.Go(next)
			time.Sleep(time.Second)
		}
		time.Sleep(500 * time.Millisecond) // old has ended, keeper has not
		put(t.Context(), guarded, "/a", "4")
		wg.Wait()
		require.Equal(t, []string{"read 1", "write in 2.5s"}, old.set)
	})
}

// protocols runs test over HTTP/1.1 and HTTP/2; serve starts a real server.
func protocols(t *testing.T, test func(t *testing.T, serve func(http.Handler) *httptest.Server)) {
	for _, major := range []int{1, 2} {
		t.Run(fmt.Sprint("HTTP/", major), func(t *testing.T) {
			t.Parallel()
			test(t, func(h http.Handler) *httptest.Server {
				s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.ProtoMajor != major {
						t.Errorf("%s where HTTP/%d is due", r.Proto, major)
					}
					h.ServeHTTP(w, r)
				}))
				s.EnableHTTP2 = major == 2
				s.StartTLS()
				t.Cleanup(s.Close)
				return s
			})
		})
	}
}

// answer is what a client gets.
type answer struct {
	status int
	body   string
	err    error
}

// do sends a request and reads the answer.
func do(t *testing.T, s *httptest.Server, method, path, token string, body io.Reader) answer {
	return doWith(t, s.Client(), s, method, path, token, body)
}

func doWith(t *testing.T, c *http.Client, s *httptest.Server, method, path, token string, body io.Reader) answer {
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, body)
	require.NoError(t, err)
	r.Header.Set(fencehttp.Header, token)
	resp, err := c.Do(r)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, string(text), err}
}

// later is do in the background.
func later(t *testing.T, s *httptest.Server, method, path, token string, body io.Reader) <-chan answer {
	answered := make(chan answer, 1)
	go func() { answered <- do(t, s, method, path, token, body) }()
	return answered
}

// A write that has not run is never answered 200, although net/http answers 200 for a handler that
// writes nothing.
func TestAWriteThatHasNotRunIs503(t *testing.T) {
	for name, end := range map[string]func(s *http.Server, stop <-chan struct{}) http.Handler{
		"the server's base context ends": func(s *http.Server, stop <-chan struct{}) http.Handler {
			base, shutdown := context.WithCancel(t.Context())
			s.BaseContext = func(net.Listener) context.Context { return base }
			go func() { <-stop; shutdown() }()
			return s.Handler
		},
		"a middleware sets a deadline": func(s *http.Server, stop <-chan struct{}) http.Handler {
			next := s.Handler
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				ctx, cancel := context.WithCancel(r.Context())
				defer cancel()
				go func() { <-stop; cancel() }()
				next.ServeHTTP(w, r.WithContext(ctx))
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			inside, free, waits := make(chan struct{}), make(chan struct{}), make(chan struct{})
			var mem fencehttp.MemMarks
			marks := raised(func(token uint64) {
				if token == 2 {
					close(waits)
				}
			}, &mem)
			s := httptest.NewUnstartedServer(newFence(marks, byPath).Middleware(
				http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					if r.Header.Get(fencehttp.Header) != "1" {
						t.Error("let in")
						return
					}
					close(inside)
					<-free
				})))
			s.Config.Handler = end(s.Config, waits)
			s.Start()
			defer s.Close()
			defer close(free)
			later(t, s, http.MethodPut, "/a", "1", nil)
			<-inside
			a := do(t, s, http.MethodPut, "/a", "2", nil)
			require.NoError(t, a.err)
			require.Equal(t, http.StatusServiceUnavailable, a.status)
			require.Equal(t, "not carried out: the server gave up waiting; try again\n", a.body)
		})
	}
}

// raised returns marks that call saw after each Raise.
func raised(saw func(uint64), marks fencehttp.Marks) fencehttp.Marks { return &sawMarks{marks, saw} }

type sawMarks struct {
	fencehttp.Marks
	saw func(token uint64)
}

func (m *sawMarks) Raise(ctx context.Context, resource string, token uint64) (uint64, error) {
	defer m.saw(token)
	return m.Marks.Raise(ctx, resource, token)
}

// A former leader that was stopped during an upload, with its connection still open, does not keep
// the new leader waiting.
func TestAStoppedUpload(t *testing.T) {
	protocols(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		inside, cause := make(chan struct{}), make(chan error, 1)
		s := serve(newFence(&fencehttp.MemMarks{}, byPath).Middleware(http.HandlerFunc(func(w http.ResponseWriter,
			r *http.Request) {
			if r.Header.Get(fencehttp.Header) != "1" {
				return
			}
			_, _ = r.Body.Read(make([]byte, 1))
			close(inside)
			if _, err := io.ReadAll(r.Body); err != nil { // blocks, because the rest never comes
				cause <- context.Cause(r.Context())
				http.Error(w, "interrupted", http.StatusConflict)
			}
		})))
		body, upload := io.Pipe()
		t.Cleanup(func() { upload.Close() })
		zombie := later(t, s, http.MethodPut, "/a", "1", body)
		_, err := upload.Write([]byte("x"))
		require.NoError(t, err)
		<-inside
		require.Equal(t, answer{status: http.StatusOK}, do(t, s, http.MethodPut, "/a", "2", nil))
		require.ErrorIs(t, <-cause, leasehold.ErrFenced)
		require.Equal(t, answer{status: http.StatusConflict, body: "interrupted\n"}, <-zombie,
			"the handler's answer is sent")
	})
}

// A former leader that was stopped while it read its answer does not keep the new leader waiting
// either.
func TestAStoppedDownload(t *testing.T) {
	protocols(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		fence := newFence(&fencehttp.MemMarks{}, byPath)
		s := serve(fence.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for err := error(nil); err == nil && r.Header.Get(fencehttp.Header) == "1"; {
				_, err = w.Write(make([]byte, 1<<20))
			}
		})))
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, s.URL+"/a", nil)
		require.NoError(t, err)
		r.Header.Set(fencehttp.Header, "1")
		resp, err := s.Client().Do(r)
		require.NoError(t, err)
		defer resp.Body.Close() // never read
		require.Equal(t, answer{status: http.StatusOK}, do(t, s, http.MethodPut, "/a", "2", nil))
	})
}

// A handler that has hijacked its connection is interrupted in a read from it.
func TestAHijackedConnection(t *testing.T) {
	inside := make(chan struct{})
	s := httptest.NewServer(newFence(&fencehttp.MemMarks{},
		byPath).Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(fencehttp.Header) != "1" {
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		close(inside)
		_, err = conn.Read(make([]byte, 1))
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read: %v", err)
		}
	})))
	defer s.Close()
	zombie := later(t, s, http.MethodPut, "/a", "1", nil)
	<-inside
	require.Equal(t, answer{status: http.StatusOK}, do(t, s, http.MethodPut, "/a", "2", nil))
	require.ErrorIs(t, (<-zombie).err, io.EOF)
}

// An interruption affects only its request. The connection serves the next one.
func TestAnInterruptedConnectionGoesOn(t *testing.T) {
	protocols(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		inside, from := make(chan struct{}), make(chan string, 2)
		s := serve(newFence(&fencehttp.MemMarks{}, byPath).Middleware(http.HandlerFunc(func(w http.ResponseWriter,
			r *http.Request) {
			if _, err := io.ReadAll(r.Body); err != nil {
				t.Error(err)
			}
			switch r.Header.Get(fencehttp.Header) {
			case "1":
				from <- r.RemoteAddr
				close(inside)
				<-r.Context().Done()
				w.WriteHeader(http.StatusConflict)
			case "3":
				from <- r.RemoteAddr
			}
		})))
		leader := &http.Client{Transport: s.Client().Transport.(*http.Transport).Clone()} // with its own connection
		zombie := later(t, s, http.MethodPut, "/a", "1", strings.NewReader("x"))
		<-inside
		require.Equal(t, answer{status: http.StatusOK}, doWith(t, leader, s, http.MethodPut, "/a", "2", nil))
		leader.CloseIdleConnections()
		require.Equal(t, answer{status: http.StatusConflict}, <-zombie)
		require.Equal(t, answer{status: http.StatusOK}, do(t, s, http.MethodPut, "/a", "3", strings.NewReader("y")))
		require.Equal(t, <-from, <-from, "another connection")
	})
}

// Routes that share a fence share its gates: an old PUT takes effect before the new DELETE is
// answered.
func TestRoutesOfOneFenceWaitForEachOther(t *testing.T) {
	var mu sync.Mutex
	var log []string
	note := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		log = append(log, what)
	}
	inside, deleted := make(chan struct{}), make(chan struct{})
	fence := newFence(&fencehttp.MemMarks{}, byPath)
	mux := http.NewServeMux()
	mux.Handle("PUT /a", fence.Middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(inside)
		select {
		case <-r.Context().Done(): // but its write is already under way
		case <-deleted:
		}
		note("PUT lands")
	})))
	mux.Handle("DELETE /a", fence.Middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		note("DELETE lands")
	})))
	s := httptest.NewServer(mux)
	defer s.Close()
	zombie := later(t, s, http.MethodPut, "/a", "1", nil)
	<-inside
	require.Equal(t, http.StatusOK, do(t, s, http.MethodDelete, "/a", "2", nil).status)
	note("DELETE answered")
	close(deleted)
	<-zombie
	require.Equal(t, []string{"PUT lands", "DELETE lands", "DELETE answered"}, log)
}

// Authorise first, then fence: a request that is refused with 401 does not raise the mark.
func TestARefusedRequestDoesNotRaiseTheMark(t *testing.T) {
	authorise := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") == "" {
				http.Error(w, "who are you?", http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	write := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	for name, tc := range map[string]struct {
		token uint64
		chain func(*fencehttp.Fence) http.Handler
		mark  uint64
	}{
		"authorise, then fence": {
			1<<53 - 1,
			func(f *fencehttp.Fence) http.Handler { return authorise(f.Middleware(write)) },
			1,
		},
		"the wrong way round": {
			1<<53 - 1,
			func(f *fencehttp.Fence) http.Handler { return f.Middleware(authorise(write)) },
			1<<53 - 1,
		},
		"no lock's token": {
			1<<64 - 1,
			func(f *fencehttp.Fence) http.Handler { return f.Middleware(authorise(write)) },
			1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			marks := &fencehttp.MemMarks{}
			w := put(t.Context(), tc.chain(newFence(marks, byPath)), "/a", fencehttp.Format(tc.token))
			require.GreaterOrEqual(t, w.Code, 400)
			stands, err := marks.Raise(t.Context(), "a", 1)
			require.NoError(t, err)
			require.Equal(t, tc.mark, stands)
		})
	}
}

// net/http removes the temporary files of a form, although the handler has parsed it in a copy of
// the request.
func TestFormsLeaveNoFiles(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	s := httptest.NewServer(newFence(&fencehttp.MemMarks{},
		byPath).Middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if err := r.ParseMultipartForm(1); err != nil {
			t.Error(err)
		}
		if files, _ := filepath.Glob(dir + "/*"); len(files) == 0 {
			t.Error("the form made no temporary file, so this test proves nothing")
		}
	})))
	var form strings.Builder
	w := multipart.NewWriter(&form)
	file, err := w.CreateFormFile("report", "today.json")
	require.NoError(t, err)
	_, _ = file.Write(make([]byte, 11<<20)) // net/http keeps 10 MiB plus the requested amount in memory
	require.NoError(t, w.Close())
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, s.URL+"/a", strings.NewReader(form.String()))
	require.NoError(t, err)
	r.Header.Set(fencehttp.Header, "1")
	r.Header.Set("Content-Type", w.FormDataContentType())
	resp, err := s.Client().Do(r)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	s.Close() // waits until the request has ended
	left, err := filepath.Glob(dir + "/*")
	require.NoError(t, err)
	require.Empty(t, left)
}

// Requests run in the order of their tokens, and marks on a store survive the process.
func TestMarks(t *testing.T) {
	mem := leasehold.NewMemStore()
	for name, marks := range map[string]fencehttp.Marks{
		"mem":   &fencehttp.MemMarks{},
		"store": fencehttp.NewStoreMarks(mem, "marks/"),
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			last := ""
			guarded := newFence(marks, byPath).Middleware(http.HandlerFunc(func(_ http.ResponseWriter,
				r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				if token := fmt.Sprintf("%20s", r.Header.Get(fencehttp.Header)); token < last {
					t.Errorf("%s after %s", token, last)
				} else {
					last = token
				}
			}))
			var wg sync.WaitGroup
			for i := range 64 {
				wg.Go(func() {
					if code := put(t.Context(), guarded, "/a", fencehttp.Format(uint64(1+i%16))).Code; code != 200 &&
						code != 412 {
						t.Errorf("status %d", code)
					}
				})
			}
			wg.Wait()
			highest, err := marks.Raise(t.Context(), "a", 1)
			require.NoError(t, err)
			require.Equal(t, uint64(16), highest)
		})
	}
	restarted := fencehttp.NewStoreMarks(mem, "marks/")
	highest, err := restarted.Raise(t.Context(), "a", 3)
	require.NoError(t, err)
	require.Equal(t, uint64(16), highest)
}

func TestStoreMarksEnd(t *testing.T) {
	raise := func(ctx context.Context, s leasehold.Store, token uint64) (uint64, error) {
		return fencehttp.NewStoreMarks(s, "marks/").Raise(ctx, "a", token)
	}

	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := teststore.New(leasehold.NewMemStore(), nil)
		s.Fail(leasehold.ErrNotExist, teststore.Get)
		s.Fail(leasehold.ErrPreconditionFailed, teststore.Create)
		_, err := raise(t.Context(), s, 1) // Get says "missing" and PutIfNoneMatch says "exists", forever
		require.ErrorIs(t, err, leasehold.ErrPreconditionFailed)
		require.ErrorContains(t, err, `leasehold: fencing mark "marks/a": could not be raised in 8 tries: `)
		require.Equal(t, 16, s.Sent())
		require.Less(t, time.Since(began), 3*time.Second)
		require.Greater(t, time.Since(began), time.Second)

		began = time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err = raise(ctx, s, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 100*time.Millisecond, time.Since(began))

		// After a write whose outcome is unknown, the next read tells.
		lost, mem := 0, leasehold.NewMemStore()
		s = teststore.New(mem, func(ctx context.Context, r teststore.Request) (leasehold.Object, error) {
			if r.Op == teststore.Create {
				if lost++; lost == 1 {
					return leasehold.Object{}, errors.New("connection reset")
				}
			}
			return r.Send(ctx)
		})
		highest, err := raise(t.Context(), s, 1)
		require.NoError(t, err)
		require.Equal(t, uint64(1), highest)
		require.Equal(t, 6, s.Sent(), "with the two writes that must be refused")

		for err, op := range map[error]teststore.Op{
			errors.New("no route to host"): teststore.Get, // the client tries again
			leasehold.ErrPermanent:         teststore.Create,
			leasehold.ErrUnsafeStore:       teststore.Create,
		} {
			s := teststore.New(leasehold.NewMemStore(), nil)
			s.Fail(err, op)
			began := time.Now()
			_, err := raise(t.Context(), s, 1)
			require.Error(t, err)
			require.LessOrEqual(t, s.Sent(), 2)
			require.Zero(t, time.Since(began))
		}
	})

	for _, token := range []uint64{0, 1 << 53} { // as marks these would shut out every lease
		s := teststore.New(leasehold.NewMemStore(), nil)
		_, err := raise(t.Context(), s, token)
		require.ErrorContains(t, err, "was not issued by a lock")
		require.Zero(t, s.Sent())
	}
	for _, body := range []string{"{}", `{"token": 9007199254740992}`, `{"token": -1}`, "<html>"} {
		mem := leasehold.NewMemStore()
		_, err := mem.PutIfNoneMatch(t.Context(), "marks/b", []byte(body))
		require.NoError(t, err)
		_, err = fencehttp.NewStoreMarks(mem, "marks/").Raise(t.Context(), "b", 3)
		require.ErrorIs(t, err, leasehold.ErrCorruptRecord, body)
	}
	// A lock has a token, too, and would be free for everybody.
	for body, says := range map[string]string{
		`{"expires_at":1740151473,"token":2,"holder":"a"}`: "it is a lock of package leasehold, not a fencing mark",
		`{"expires_at":-1,"token":2}`:                      "it is a lock of package leasehold, not a fencing mark",
		`{"table":1,"token":2}`:                            "it is a table of package locktable, not a fencing mark",
	} {
		mem := leasehold.NewMemStore()
		etag, err := mem.PutIfNoneMatch(t.Context(), "marks/b", []byte(body))
		require.NoError(t, err)
		_, err = fencehttp.NewStoreMarks(mem, "marks/").Raise(t.Context(), "b", 3)
		require.ErrorIs(t, err, leasehold.ErrCorruptRecord, body)
		require.ErrorContains(t, err, says)
		now, err := mem.Get(t.Context(), "marks/b")
		require.NoError(t, err)
		require.Equal(t, etag, now.ETag, "nothing was written")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := fencehttp.NewStoreMarks(leasehold.NewMemStore(), "marks/").Raise(ctx, "c", 3)
	require.ErrorIs(t, err, context.Canceled)
}

// Where conditions are ignored, the slower of two requests sets a mark back.
func TestStoreMarksOnAStoreThatIgnoresConditions(t *testing.T) {
	for _, ignored := range teststore.Puts {
		s := teststore.New(leasehold.NewMemStore(), func(ctx context.Context, r teststore.Request) (leasehold.Object,
			error) {
			if r.Op == ignored {
				return r.Overwrite(ctx)
			}
			return r.Send(ctx)
		})
		marks := fencehttp.NewStoreMarks(s, "marks/")
		for range 2 {
			_, err := marks.Raise(t.Context(), "a", 3)
			require.ErrorIs(t, err, leasehold.ErrUnsafeStore, ignored)
			require.ErrorContains(t, err, `fencing mark "marks/a": trying the store's conditions with `)
		}
	}

	// A store is tried once, and not at all if it is known to be safe.
	for _, info := range []leasehold.StoreInfo{{}, {Conditional: true}} {
		s := teststore.New(leasehold.NewMemStore(), nil)
		s.Info = info
		marks, tried := fencehttp.NewStoreMarks(s, "marks/"), 2
		for token := range uint64(3) {
			if info.Conditional || token > 0 {
				tried = 0
			}
			s.Forget()
			highest, err := marks.Raise(t.Context(), "a", token+1)
			require.NoError(t, err)
			require.Equal(t, token+1, highest)
			require.Equal(t, 2+tried, s.Sent())
		}
	}
}

// The name of a resource may be a client's text.
func TestStoreMarksSendNoBadKey(t *testing.T) {
	for _, name := range []string{"../locks/a", "a/../b", "a//b", "a\x00b", `a\b`, ".leasehold-lock", "a/", "\xff"} {
		s := teststore.New(leasehold.NewMemStore(), nil)
		_, err := fencehttp.NewStoreMarks(s, "marks/").Raise(t.Context(), name, 3)
		require.ErrorIs(t, err, leasehold.ErrPermanent, name)
		require.Zero(t, s.Sent())
	}
	fence, err := fencehttp.New(fencehttp.NewStoreMarks(leasehold.NewMemStore(), "marks/"),
		func(r *http.Request) string { return r.URL.Path })
	require.NoError(t, err)
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPut, "/a", nil) // its key is marks//a
	r.Header.Set(fencehttp.Header, "1")
	fence.Middleware(http.NotFoundHandler()).ServeHTTP(w, r)
	require.Equal(t, "503 not carried out: the server cannot check the fencing token\n",
		fmt.Sprint(w.Code, " ", w.Body), "another try would not help")
}

// A trial write of the store that hangs keeps no request longer than it may wait.
func TestATrialOutlastsNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := teststore.New(leasehold.NewMemStore(), func(ctx context.Context, r teststore.Request) (
			leasehold.Object, error,
		) {
			if r.Op != teststore.Update {
				return r.Send(ctx)
			}
			<-ctx.Done()
			return leasehold.Object{}, ctx.Err()
		})
		store.Info = leasehold.StoreInfo{MinTTL: time.Millisecond}
		fence := newFence(fencehttp.NewStoreMarks(store, "marks/"), byPath, fencehttp.WithWait(time.Second))
		passed := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request has passed") })
		for range 2 {
			began := time.Now()
			require.Equal(t, http.StatusServiceUnavailable, put(t.Context(), fence.Middleware(passed), "/a", "1").Code)
			require.Equal(t, time.Second, time.Since(began))
		}
		time.Sleep(time.Minute) // so that the trial can end
	})
}

// A store that panics ends the request whose goroutine asked it, which net/http survives, and not
// the process.
func TestAStoreThatPanics(t *testing.T) {
	store := teststore.New(leasehold.NewMemStore(), func(ctx context.Context, r teststore.Request) (
		leasehold.Object, error,
	) {
		if r.Op == teststore.Update {
			panic("a bug of the store")
		}
		return r.Send(ctx)
	})
	store.Info = leasehold.StoreInfo{MinTTL: time.Millisecond}
	marks := fencehttp.NewStoreMarks(store, "marks/")
	for range 2 {
		require.PanicsWithValue(t, "a bug of the store", func() { _, _ = marks.Raise(t.Context(), "a", 1) })
	}
}

// Marks without a store, or in one that cannot work, refuse each request.
func TestMarksWithoutAStore(t *testing.T) {
	for name, marks := range map[string]*fencehttp.StoreMarks{
		"zero":    {},
		"nil":     fencehttp.NewStoreMarks(nil, "marks/"),
		"nil S3":  fencehttp.NewStoreMarks((*leasehold.S3Store)(nil), "marks/"),
		"no file": fencehttp.NewStoreMarks(leasehold.NewFileStore(""), "marks/"),
	} {
		t.Run(name, func(t *testing.T) {
			require.NotPanics(t, func() {
				_, err := marks.Raise(t.Context(), "a", 1)
				require.ErrorIs(t, err, leasehold.ErrPermanent)
			})
		})
	}
}
