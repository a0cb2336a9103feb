//go:build unix

package leaderhttp_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/testsize"
	"github.com/leasehold-go/leasehold/leaderhttp"
)

// memberOf is the variable that makes this program a member of those that share the directory that
// it names.
const memberOf = "LEADERHTTP_TEST_MEMBER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(memberOf); dir != "" {
		if err := runMember(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// runMember is a service of which one process leads, until SIGTERM. Each request that it carries
// out is a line in the file "ran".
func runMember(dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ran, err := os.OpenFile(filepath.Join(dir, "ran"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	at := "http://" + listener.Addr().String()
	lock, err := leasehold.NewLock(leasehold.NewFileStore(dir), "lock", leasehold.WithTTL(memberTTL),
		leasehold.WithMetadata(map[string]string{leaderhttp.URLKey: at}),
		leasehold.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	peer, err := leaderhttp.New(lock)
	if err != nil {
		return err
	}
	elector, err := leasehold.NewElector(lock, peer.Callbacks(leasehold.Callbacks{
		OnStartedLeading: func(ctx context.Context, lease *leasehold.Lease) { <-ctx.Done() },
	}))
	if err != nil {
		return err
	}
	app := peer.Forward(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		fmt.Fprintf(ran, "%s\n", r.URL.Path)
		time.Sleep(rand.N(10 * time.Millisecond))
		if r.Context().Err() != nil {
			http.Error(w, "the term is over", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("X-Ran", fmt.Sprint(leaderhttp.Lease(r.Context()).Token()))
	}))
	mux := http.NewServeMux()
	mux.Handle(leaderhttp.Path, peer)
	mux.HandleFunc("/resign", func(http.ResponseWriter, *http.Request) { _ = elector.Resign(ctx) })
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if mark := r.Header.Get("Leasehold-Forwarded"); mark != "" {
			of, _ := url.ParseQuery(mark)
			w.Header().Set("X-Sent", of.Get("token"))
		}
		app.ServeHTTP(w, r)
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	server.RegisterOnShutdown(peer.Close)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	fmt.Println(at)
	if err := elector.Run(ctx); err != nil {
		return err
	}
	drain, done := context.WithTimeout(context.Background(), 5*time.Second)
	defer done()
	return server.Shutdown(drain)
}

const memberTTL = time.Second

type member struct {
	*exec.Cmd
	url string
}

func startMember(t *testing.T, dir string) *member {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), memberOf+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	return &member{cmd, strings.TrimSpace(line)}
}

func (m *member) leads() bool {
	res, err := local.Get(m.url + leaderhttp.Path + "leader")
	if err != nil {
		return false
	}
	res.Body.Close()
	return res.StatusCode == http.StatusOK
}

// leaderAmong waits until one of the members leads.
func leaderAmong(t *testing.T, members []*member) int {
	t.Helper()
	var leads int
	require.Eventually(t, func() bool {
		for i, m := range members {
			if m.leads() {
				leads = i
				return true
			}
		}
		return false
	}, 20*time.Second, 5*time.Millisecond)
	return leads
}

// Under load, the leader is killed, stopped, told to resign, or told to end. Each answer is that of
// the leader of the term for which the request was sent, or 503, and no request runs twice.
func TestForwardUnderLoad(t *testing.T) {
	for _, tc := range []struct {
		name string
		ends func(*member) // a leader
		on   func(*member) // afterwards
	}{
		{"kill", func(m *member) { _ = m.Process.Kill() }, nil},
		{"pause", func(m *member) { _ = m.Process.Signal(syscall.SIGSTOP) }, func(m *member) {
			_ = m.Process.Signal(syscall.SIGCONT)
		}},
		{"resign", func(m *member) {
			if res, err := local.Post(m.url+"/resign", "", nil); err == nil {
				res.Body.Close()
			}
		}, nil},
		{"end", func(m *member) { _ = m.Process.Signal(syscall.SIGTERM) }, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			members := []*member{startMember(t, dir), startMember(t, dir), startMember(t, dir)}
			defer local.CloseIdleConnections()
			var mu sync.Mutex
			up := append([]*member(nil), members...) // that get requests
			answers := make(map[string]int)
			finals := make(map[string]string) // by the path of the request
			var load sync.WaitGroup
			over := make(chan struct{})
			send := func(i int) {
				mu.Lock()
				to := up[rand.IntN(len(up))]
				mu.Unlock()
				path, body := fmt.Sprint("/", i), io.Reader(nil)
				method := "GET"
				if i%2 == 0 {
					method, body = "POST", strings.NewReader("order")
				}
				req, err := http.NewRequest(method, to.url+path, body)
				if err != nil {
					t.Error(err)
					return
				}
				req.GetBody = nil
				if method == "GET" {
					req.Body = io.NopCloser(strings.NewReader("")) // so that local does not repeat it
				}
				got := ""
				res, err := local.Do(req)
				switch {
				case err != nil: // of this client's connection to a process that ends
					got = "none"
				case res.StatusCode == 200 && res.Header.Get("X-Ran") == "":
					t.Errorf("%s is answered 200, but not by the app", path)
				case res.StatusCode == 200:
					got = "ran"
					if sent := res.Header.Values("X-Sent"); len(sent) > 0 && sent[0] != res.Header.Get("X-Ran") {
						t.Errorf("%s was sent for term %v, and ran in term %s", path, sent, res.Header.Get("X-Ran"))
					}
				case res.StatusCode == 503 && res.Header.Get("Retry-After") != "":
					got = "not carried out"
				case res.StatusCode == 503:
					got = "not known"
				default:
					t.Errorf("%s is answered %d", path, res.StatusCode)
				}
				if err == nil {
					_, _ = io.Copy(io.Discard, res.Body)
					res.Body.Close()
				}
				mu.Lock()
				answers[got]++
				finals[path] = got
				mu.Unlock()
			}
			leaderAmong(t, members)
			load.Go(func() {
				tick := time.NewTicker(5 * time.Millisecond) // 200 a second
				defer tick.Stop()
				for i := 0; ; i++ {
					select {
					case <-tick.C:
						load.Go(func() { send(i) })
					case <-over:
						return
					}
				}
			})
			for range testsize.Pick(2, 10) {
				leads := leaderAmong(t, members)
				time.Sleep(300 * time.Millisecond)
				former := members[leads]
				mu.Lock()
				up = nil
				for i, m := range members {
					if i != leads {
						up = append(up, m)
					}
				}
				mu.Unlock()
				tc.ends(former)
				others := append(append([]*member(nil), members[:leads]...), members[leads+1:]...)
				leaderAmong(t, others)
				time.Sleep(200 * time.Millisecond)
				switch {
				case tc.on != nil:
					tc.on(former)
				case tc.name != "resign":
					_ = former.Wait()
					members[leads] = startMember(t, dir)
				}
				mu.Lock()
				up = append([]*member(nil), members...)
				mu.Unlock()
			}
			time.Sleep(300 * time.Millisecond)
			close(over)
			load.Wait()
			t.Log(answers)
			ran := make(map[string]int)
			text, err := os.ReadFile(filepath.Join(dir, "ran"))
			require.NoError(t, err)
			for line := range strings.Lines(string(text)) {
				ran[strings.TrimSpace(line)]++
			}
			for path, n := range ran {
				require.Equal(t, 1, n, "%s ran %d times", path, n)
				require.NotEqual(t, "not carried out", finals[path], path)
			}
			for path, got := range finals {
				require.True(t, got != "ran" || ran[path] == 1, "%s is answered, but has not run", path)
			}
			require.Greater(t, answers["ran"], 100)
		})
	}
}
