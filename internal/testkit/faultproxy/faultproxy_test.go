package faultproxy_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/internal/testkit/bubble"
	"github.com/leasehold-go/leasehold/internal/testkit/faultproxy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// register is a server with one object, changed by PUT.
type register struct {
	mu    sync.Mutex
	value string
	host  string
	puts  int
}

func (s *register) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.host = r.Host
	if r.Method == http.MethodPut {
		s.value = string(body)
		s.puts++
	}
	fmt.Fprint(w, s.value)
}

func (s *register) get() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.value
}

// inProcess calls a handler without a socket.
type inProcess struct{ http.Handler }

func (h inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if r.Body == nil {
		r.Body = http.NoBody
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result(), nil
}

func put(ctx context.Context, client *http.Client, url, body string) (status int, reply string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("If-Match", `"etag"`)
	resp, err := client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

func timedOut(err error) bool {
	t, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return ok && t.Timeout()
}

func TestFaults(t *testing.T) {
	type outcome struct {
		status  int
		reply   string // a part of it
		err     error
		took    time.Duration
		applied bool // when the client has its reply or error
		lands   bool // applied in the end
	}
	for name, test := range map[string]struct {
		fault   faultproxy.Fault
		timeout time.Duration
		want    outcome
	}{
		"pass": {want: outcome{status: 200, reply: "new", applied: true, lands: true}},
		"delay": {
			fault: faultproxy.Fault{Before: time.Second},
			want:  outcome{status: 200, reply: "new", took: time.Second, applied: true, lands: true},
		},
		"delay too long": {
			fault: faultproxy.Fault{Before: time.Second}, timeout: time.Millisecond,
			want: outcome{err: context.DeadlineExceeded, took: time.Millisecond},
		},
		"refuse": {fault: faultproxy.Fault{Kind: faultproxy.Refuse}, want: outcome{err: syscall.ECONNREFUSED}},
		"conflict": {
			fault: faultproxy.Fault{Kind: faultproxy.Answer, Status: 409},
			want:  outcome{status: 409, reply: "<Code>ConditionalRequestConflict</Code>"},
		},
		"slow down": {
			fault: faultproxy.Fault{Kind: faultproxy.Answer, Status: 503, Before: time.Minute},
			want:  outcome{status: 503, reply: "<Code>SlowDown</Code>", took: time.Minute},
		},
		"own code": {
			fault: faultproxy.Fault{Kind: faultproxy.Answer, Status: 404, Code: "NoSuchBucket"},
			want:  outcome{status: 404, reply: "<Code>NoSuchBucket</Code>"},
		},
		"lost reply": {
			fault: faultproxy.Fault{Kind: faultproxy.DropReply},
			want:  outcome{err: io.EOF, applied: true, lands: true},
		},
		"reply lost after a while": {
			fault: faultproxy.Fault{Kind: faultproxy.DropReply, After: time.Second},
			want:  outcome{err: io.EOF, took: time.Second, applied: true, lands: true},
		},
		"500 after the fact": {
			fault: faultproxy.Fault{Kind: faultproxy.AnswerAfter},
			want:  outcome{status: 500, reply: "<Code>InternalError</Code>", applied: true, lands: true},
		},
		"late reply": {
			fault: faultproxy.Fault{After: time.Second},
			want:  outcome{status: 200, reply: "new", took: time.Second, applied: true, lands: true},
		},
		"reply too late": {
			fault: faultproxy.Fault{After: time.Second}, timeout: time.Millisecond,
			want: outcome{err: context.DeadlineExceeded, took: time.Millisecond, applied: true, lands: true},
		},
		"ghost": {
			fault: faultproxy.Fault{Kind: faultproxy.Ghost, Before: time.Minute}, timeout: time.Second,
			want: outcome{err: context.DeadlineExceeded, took: time.Second, lands: true},
		},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			server := &register{value: "old"}
			transport := &faultproxy.Transport{
				Base:   inProcess{server},
				Decide: func(*http.Request) faultproxy.Fault { return test.fault },
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if test.timeout > 0 {
				ctx, cancel = context.WithTimeout(ctx, test.timeout)
				defer cancel()
			}
			start := time.Now()
			status, reply, err := put(ctx, &http.Client{Transport: transport}, "http://server/bucket/key", "new")
			synctest.Wait()

			assert.Equal(t, test.want.took, time.Since(start))
			assert.Equal(t, test.want.status, status)
			assert.Contains(t, reply, test.want.reply)
			assert.ErrorIs(t, err, test.want.err)
			assert.Equal(t, test.want.applied, server.get() == "new")
			transport.Wait()
			assert.Equal(t, test.want.lands, server.get() == "new")

			want := faultproxy.Request{
				Method: "PUT", Path: "/bucket/key", IfMatch: `"etag"`, Fault: test.fault, Status: test.want.status,
			}
			if test.want.lands {
				want.Applied = 200
			}
			assert.Equal(t, []faultproxy.Request{want}, transport.Requests())
			assert.Equal(t, 1, transport.Count("PUT", "GET"))
			assert.Zero(t, transport.Count("GET"))
		})
	}
}

func TestGhostWithPatientClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &register{}
		transport := &faultproxy.Transport{Base: inProcess{server}, Decide: func(*http.Request) faultproxy.Fault {
			return faultproxy.Fault{Kind: faultproxy.Ghost, Before: time.Minute}
		}}
		_, _, err := put(t.Context(), &http.Client{Transport: transport}, "http://server/", "x")
		require.True(t, timedOut(err), "%v", err)
		require.Equal(t, "x", server.get())
	})
}

func TestCloseDropsGhosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &register{}
		transport := &faultproxy.Transport{Base: inProcess{server}, Decide: func(*http.Request) faultproxy.Fault {
			return faultproxy.Fault{Kind: faultproxy.Ghost, Before: time.Hour}
		}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _, err := put(ctx, &http.Client{Transport: transport}, "http://server/", "x")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		start := time.Now()
		transport.Close()
		transport.Close()
		require.Zero(t, time.Since(start))
		require.Zero(t, server.puts)
	})
}

func TestDecideSeesTheBody(t *testing.T) {
	server := &register{}
	var saw string
	transport := &faultproxy.Transport{Base: inProcess{server}, Decide: func(r *http.Request) faultproxy.Fault {
		b, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		saw = string(b)
		return faultproxy.Fault{}
	}}
	_, _, err := put(t.Context(), &http.Client{Transport: transport}, "http://server/", "x")
	require.NoError(t, err)
	require.Equal(t, "x", saw)
	require.Equal(t, "x", server.get())
}

func TestProxy(t *testing.T) {
	server := &register{value: "old"}
	upstream := httptest.NewServer(server)
	t.Cleanup(upstream.Close)
	var mu sync.Mutex
	var fault faultproxy.Fault
	proxy := faultproxy.Start(t, upstream.URL, func(*http.Request) faultproxy.Fault {
		mu.Lock()
		defer mu.Unlock()
		return fault
	})
	request := func(ctx context.Context, f faultproxy.Fault, body string) (int, string, error) {
		mu.Lock()
		fault = f
		mu.Unlock()
		return put(ctx, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
			proxy.URL()+"/a%2Fb/c?x=1", body)
	}
	do := func(f faultproxy.Fault, body string) (int, string, error) { return request(t.Context(), f, body) }
	// giveUp cancels a request as soon as the proxy has it.
	giveUp := func(f faultproxy.Fault, body string) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		before := proxy.Count()
		go func() {
			for proxy.Count() == before {
				time.Sleep(time.Millisecond)
			}
			cancel()
		}()
		_, _, err := request(ctx, f, body)
		require.ErrorIs(t, err, context.Canceled)
	}

	status, reply, err := do(faultproxy.Fault{}, "1")
	require.NoError(t, err)
	require.Equal(t, 200, status)
	require.Equal(t, "1", reply)
	require.Equal(t, strings.TrimPrefix(proxy.URL(), "http://"), server.host, "the Host header is kept")

	_, _, err = do(faultproxy.Fault{Kind: faultproxy.Refuse}, "2")
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, "1", server.get())

	_, _, err = do(faultproxy.Fault{Kind: faultproxy.DropReply}, "3")
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, "3", server.get())

	status, reply, err = do(faultproxy.Fault{Kind: faultproxy.Answer, Status: 503}, "4")
	require.NoError(t, err)
	require.Equal(t, 503, status)
	require.Contains(t, reply, "SlowDown")
	require.Equal(t, "3", server.get())

	giveUp(faultproxy.Fault{Kind: faultproxy.Ghost, Before: 2 * time.Second}, "5")
	require.Equal(t, "3", server.get())
	proxy.Wait()
	require.Equal(t, "5", server.get())

	giveUp(faultproxy.Fault{After: time.Hour}, "6")
	require.Equal(t, 6, proxy.Count())
}

func TestConcurrentUse(t *testing.T) {
	server := &register{}
	upstream := httptest.NewServer(server)
	t.Cleanup(upstream.Close)
	proxy := faultproxy.Start(t, upstream.URL, nil)
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				_, _, err := put(t.Context(), client, proxy.URL(), "x")
				assert.NoError(t, err)
				proxy.Requests()
			}
		})
	}
	wg.Wait()
	require.Equal(t, 160, server.puts)
	require.Equal(t, 160, proxy.Count("PUT"))
}
