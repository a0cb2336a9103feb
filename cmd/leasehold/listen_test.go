package main_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/faultproxy"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
)

// impatient is a client of those who answer at once or never.
var impatient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 2 * time.Second}

// answer is the status and body of what is served at a URL, and 0 if there is no answer.
func answer(url string) (int, string) {
	res, err := impatient.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(body)
}

// answers waits until that is the status of what is served at a URL, and returns the body.
func (s *started) answers(t testing.TB, url string, want int) string {
	t.Helper()
	for end := time.Now().Add(hangs); ; time.Sleep(10 * time.Millisecond) {
		status, body := answer(url)
		if status == want {
			return body
		}
		if time.Now().After(end) {
			require.Fail(t, "not the answer", "%d %s", status, body)
		}
	}
}

// route is a way to what a program with --listen serves at addr, on which the test sees requests.
func route(t testing.TB, addr string) *faultproxy.Proxy {
	return faultproxy.Start(t, "http://"+addr, nil)
}

// followed waits until somebody waits on this route for the end of a term.
func followed(t testing.TB, at *faultproxy.Proxy) { waits(t, at, 0) }

// waits waits until such a request has that status, or is open if it is 0.
func waits(t testing.TB, at *faultproxy.Proxy, status int) {
	t.Helper()
	require.Eventually(t, func() bool {
		return slices.ContainsFunc(at.Requests(), func(r faultproxy.Request) bool {
			return strings.HasSuffix(r.Path, "/.leasehold/wait") && r.Status == status
		})
	}, hangs, 5*time.Millisecond, "nobody follows")
}

// logged is the time of the line of a log that has the text.
func (s *started) logged(t testing.TB, text string) time.Time {
	t.Helper()
	m := regexp.MustCompile(`time=(\S+) level=\S+ msg="` + text + `"`).FindStringSubmatch(s.stderr.String())
	require.NotNil(t, m, "%s in %s", text, &s.stderr)
	at, err := time.Parse(time.RFC3339Nano, m[1])
	require.NoError(t, err)
	return at
}

// Two processes pass a lock on. The next one leads before the former has ended.
func TestAHandOverWithListen(t *testing.T) {
	t.Parallel()
	for _, sub := range []string{"run", "elect"} {
		t.Run(sub, func(t *testing.T) {
			t.Parallel()
			b := newBucket(t)
			addrs := []string{testserver.FreeAddr(t), testserver.FreeAddr(t)}
			routes := []*faultproxy.Proxy{route(t, addrs[0]), route(t, addrs[1])}
			replica := func(i int) *started {
				return start(t, b.command(sub, "-v", "--ttl", "30s", "--listen", addrs[i],
					"--advertise", routes[i].URL(),
					b.url("leaders/a"), "--", "sh", "-c", "echo $LEASEHOLD_TOKEN; exec sleep 600"))
			}
			begins := func(s *started, token int) {
				t.Helper()
				line := make([]byte, 2)
				_, err := io.ReadFull(s.out, line)
				require.NoError(t, err, "%s", &s.stderr)
				require.Equal(t, fmt.Sprintln(token), string(line))
			}
			leader, at := replica(0), 0
			begins(leader, 1)
			var all []*started
			for token := 2; token <= 4; token++ {
				next := replica(1 - at)
				followed(t, routes[at])
				require.NoError(t, leader.Process.Signal(syscall.SIGTERM))
				begins(next, token)
				leader.wait(t)
				all = append(all, leader)
				routes[at] = route(t, addrs[at]) // without the requests of before
				leader, at = next, 1-at
			}
			require.NoError(t, leader.Process.Signal(syscall.SIGTERM))
			leader.wait(t)
			all = append(all, leader)
			for i, from := range all[:3] {
				took := all[i+1].logged(t, "lock acquired").Sub(from.logged(t, "lock handed over"))
				t.Log("from the end of the hand-over to the next term:", took)
				require.Negative(t, took)
			}
		})
	}
}

// A proxy of the environment would see who asks whom, and could answer in the leader's place.
func TestListenAsksNoProxy(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer proxy.Close()
	p := newPlace(t)
	candidate := func() *exec.Cmd {
		return p.command("run", "-v", "--listen", testserver.FreeAddr(t),
			"--advertise", "http://leader.invalid:1", p.url, "--",
			"sh", "-c", "echo ready; exec sleep 600")
	}
	ready(t, candidate())
	cmd := candidate()
	cmd.Env = append(cmd.Env, "HTTP_PROXY="+proxy.URL, "http_proxy="+proxy.URL)
	other := start(t, cmd)
	require.Eventually(t, func() bool { return strings.Contains(other.stderr.String(), "following the leader failed") },
		hangs, 10*time.Millisecond, "%s", &other.stderr)
	require.Zero(t, asked.Load())
}

func TestWhatListenServes(t *testing.T) {
	t.Parallel()
	p, addr := newPlace(t), testserver.FreeAddr(t)
	leads, _ := ready(t, p.command("run", "--holder", "eve", "--metadata", "zone=1", "--listen", addr, p.url, "--",
		"sh", "-c", "echo ready; exec sleep 600"))
	base := "http://" + addr
	second := testserver.FreeAddr(t)
	waiting := start(t, p.command("elect", "--ttl", "5s", "--listen", second, p.url, "--", "echo", "leads"))
	for _, path := range []string{"/leader", "/.leasehold/leader"} {
		require.JSONEq(t, `{"leading": true}`, leads.answers(t, base+path, 200))
		require.JSONEq(t, `{"leading": false}`, waiting.answers(t, "http://"+second+path, 503))
	}
	for path, status := range map[string]int{
		"/healthz": 200, "/": 404, "/metrics": 404, "/.leasehold/wait?key=a&token=2": 409,
		"/.leasehold/other": 404,
	} {
		got, body := answer(base + path)
		require.Equal(t, status, got, "%s: %s", path, body)
	}
	res, err := impatient.Head(base + "/leader")
	require.NoError(t, err)
	require.Equal(t, 200, res.StatusCode)
	res, err = impatient.Post(base+"/leader", "", nil)
	require.NoError(t, err)
	require.Equal(t, 405, res.StatusCode)
	require.Equal(t, 200, func() int { status, _ := answer("http://" + second + "/healthz"); return status }())

	shown := finish(t, p.command("status", "-o", "json", p.url))
	require.Contains(t, shown.out, `"metadata":{"url":"`+base+`","zone":"1"}`)
	// Those who do not wait listen, too.
	third := testserver.FreeAddr(t)
	finish(t, p.command("run", "--no-wait", "--listen", third, p.url, "--", "true")).complains(t, 75, "held by")

	require.NoError(t, leads.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 128+15, leads.wait(t))
	require.NotContains(t, leads.stderr.String(), "level=", "%s", &leads.stderr)
	waiting.answers(t, "http://"+second+"/leader", 200)
}

// Whoever waits for the end of a term hears of it when the release has landed, and then nobody
// keeps the process from ending.
func TestTheEndOfATermIsToldAfterTheRelease(t *testing.T) {
	t.Parallel()
	for sub, code := range map[string]int{"run": 128 + 15, "elect": 0} {
		t.Run(sub, func(t *testing.T) {
			t.Parallel()
			b := newBucket(t)
			var slow atomic.Bool
			proxy := faultproxy.Start(t, b.server.Endpoint, func(r *http.Request) faultproxy.Fault {
				if slow.Load() && r.Method == http.MethodPut {
					return faultproxy.Fault{Before: time.Second}
				}
				return faultproxy.Fault{}
			})
			addr := testserver.FreeAddr(t)
			s, _ := ready(t, b.command(sub, "--listen", addr, b.urlAt(proxy.URL(), "locks/a"), "--", "sh", "-c",
				"echo ready; exec sleep 600"))
			at := route(t, addr)
			lock := b.lock("locks/a")
			type told struct {
				body     string
				released bool
			}
			rec, err := lock.Inspect(t.Context())
			require.NoError(t, err)
			answered := make(chan told, 3)
			for range cap(answered) {
				go func() {
					var got told
					res, err := http.Get(at.URL() + "/.leasehold/wait?key=locks%2Fa&token=1&term=" + rec.TermID)
					if err == nil {
						body, _ := io.ReadAll(res.Body)
						res.Body.Close()
						got.body = string(body)
					}
					rec, err := lock.Inspect(t.Context())
					got.released = err == nil && rec.Released()
					answered <- got
				}()
			}
			require.Eventually(t, func() bool { return at.Count(http.MethodGet) == cap(answered) }, hangs,
				time.Millisecond)
			for _, text := range []string{"", "GET /leader HTT"} { // hold connections open
				c, err := net.Dial("tcp", addr)
				require.NoError(t, err)
				defer c.Close()
				_, err = io.WriteString(c, text)
				require.NoError(t, err)
			}
			slow.Store(true)
			require.NoError(t, s.Process.Signal(syscall.SIGTERM))
			ending := time.Now()
			for range cap(answered) {
				got := <-answered
				require.Contains(t, got.body, `"over":true`)
				require.True(t, got.released, "told before the release")
			}
			require.Equal(t, code, s.wait(t), "%s", &s.stderr)
			require.Less(t, time.Since(ending), 10*time.Second)
		})
	}
}

// A leader that lies costs two reads, and nothing runs before it has released the lock.
func TestAForgedEndOfATerm(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	var asked atomic.Int64
	liar := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		fmt.Fprint(w, `{"over":true,"place":0}`)
	}))
	defer liar.Close()
	lease, err := b.lock("locks/a", leasehold.WithMetadata(map[string]string{"url": liar.URL})).Acquire(t.Context())
	require.NoError(t, err)
	proxy := faultproxy.Start(t, b.server.Endpoint, nil)
	s := start(t, b.command("run", "--listen", testserver.FreeAddr(t),
		b.urlAt(proxy.URL(), "locks/a"), "--", "sh", "-c",
		"echo $LEASEHOLD_TOKEN"))
	require.Eventually(t, func() bool { return asked.Load() > 0 }, hangs, time.Millisecond)
	before := proxy.Count(http.MethodGet)
	const observed = 4 * time.Second // between two polls there are 6
	require.Never(t, func() bool {
		return proxy.Count(http.MethodGet) > before+4 || asked.Load() > 1
	}, observed, 10*time.Millisecond, "%d reads, asked %d times", proxy.Count(http.MethodGet)-before, asked.Load())
	require.NoError(t, lease.Release(t.Context()))
	ran, err := io.ReadAll(s.out)
	require.NoError(t, err)
	require.Equal(t, "2\n", string(ran))
	require.Zero(t, s.wait(t))
}

// A URL in the record that cannot be used costs a line of log, and the lock is waited for as ever.
func TestURLsOfALeaderThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	addr := testserver.FreeAddr(t)
	itself := route(t, addr)
	for name, c := range map[string]struct{ url, says string }{
		"none":        {"", "its record has no URL: start it with --listen"},
		"another":     {"ftp://10.0.0.7/", "is not http(s)://host"},
		"a password":  {"http://eve:secret@10.0.0.7/", "has user information"},
		"itself":      {itself.URL(), "it is the URL of this process: give each process a separate --advertise"},
		"unreachable": {"http://" + testserver.FreeAddr(t), "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key, at := "locks/"+name, addr
			if name != "itself" {
				at = testserver.FreeAddr(t)
			}
			lease, err := b.lock(key, leasehold.WithMetadata(map[string]string{"url": c.url})).Acquire(t.Context())
			require.NoError(t, err)
			log, err := os.CreateTemp(t.TempDir(), "log")
			require.NoError(t, err)
			defer log.Close()
			cmd := b.command("run", "--ttl", "4s", "--listen", at, strings.ReplaceAll(b.url(key), " ", "%20"), "--",
				"true")
			cmd.Stderr = log
			require.NoError(t, cmd.Start())
			said := func() string {
				body, err := os.ReadFile(log.Name())
				require.NoError(t, err)
				return string(body)
			}
			require.Eventually(t, func() bool { return strings.Contains(said(), c.says) }, hangs, 10*time.Millisecond,
				"it does not say %q", c.says)
			require.NoError(t, lease.Release(t.Context()))
			require.NoError(t, cmd.Wait())
			text := said()
			require.Equal(t, 1, strings.Count(text, c.says), "%s", text)
			require.Equal(t, 2, strings.Count(text, "\n"), "besides whom it waits for: %s", text)
			require.NotContains(t, text, "secret")
			require.NotContains(t, text, "leaderhttp")
		})
	}
}

// A process that waits is healthy while the store answers.
func TestTheHealthOfAProcessThatWaits(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	for _, sub := range []string{"run", "elect"} {
		t.Run(sub, func(t *testing.T) {
			t.Parallel()
			lease, err := b.lock("locks/" + sub).Acquire(t.Context())
			require.NoError(t, err)
			var failing atomic.Bool
			proxy := faultproxy.Start(t, b.server.Endpoint, func(*http.Request) faultproxy.Fault {
				if failing.Load() {
					return faultproxy.Fault{Kind: faultproxy.Answer, Status: 503}
				}
				return faultproxy.Fault{}
			})
			addr := testserver.FreeAddr(t)
			s := start(t, b.command(sub, "--ttl", "1s", "--listen", addr, b.urlAt(proxy.URL(), "locks/"+sub), "--",
				"true"))
			url := "http://" + addr + "/healthz"
			s.answers(t, url, 200)
			require.Eventually(t, func() bool { return proxy.Count(http.MethodGet) > 0 }, hangs, time.Millisecond)
			failing.Store(true)
			require.Contains(t, s.answers(t, url, 503), "no answer from the store for ")
			failing.Store(false)
			s.answers(t, url, 200)
			require.NoError(t, lease.Release(t.Context()))
		})
	}
}

// A leader that is stopped answers nobody, and does not lead when it goes on.
func TestAStoppedLeaderWithListen(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	addrs := []string{testserver.FreeAddr(t), testserver.FreeAddr(t)}
	replica := func(i int) *started {
		return start(t, b.command("run", "--ttl", "3s", "--listen", addrs[i], b.url("locks/a"), "--", "sleep", "600"))
	}
	first := replica(0)
	first.answers(t, "http://"+addrs[0]+"/leader", 200)
	second := replica(1)
	second.answers(t, "http://"+addrs[1]+"/leader", 503)
	require.NoError(t, first.Process.Signal(syscall.SIGSTOP))
	second.answers(t, "http://"+addrs[1]+"/leader", 200)
	status, body := answer("http://" + addrs[0] + "/leader")
	require.Zero(t, status, "%s", body)
	require.NoError(t, first.Process.Signal(syscall.SIGCONT))
	for done := false; !done; {
		status, _ := answer("http://" + addrs[0] + "/leader")
		require.NotEqual(t, 200, status, "two lead")
		select {
		case <-first.ended:
			done = true
		default:
		}
	}
	require.Equal(t, 79, first.wait(t), "%s", &first.stderr)
}

// snippetOf is the code of a page that is marked as of this language.
func snippetOf(t *testing.T, file, language string) string {
	body, err := os.ReadFile("../../docs/" + file)
	require.NoError(t, err)
	m := regexp.MustCompile("(?ms)^```" + language + "\n(.*?)^```$").FindStringSubmatch(string(body))
	require.NotNil(t, m, "%s in %s", language, file)
	return m[1]
}

// What the page shows of HAProxy: of two services, requests reach the one whose leasehold leads.
// Without a method, HAProxy checks by OPTIONS.
func TestHAProxyFollowsTheLeader(t *testing.T) {
	t.Parallel()
	shown := make(map[string]string)
	shown["handover.md"] = snippetOf(t, "handover.md", "haproxy")
	shown["/leader"] = strings.Replace(shown["handover.md"], "/.leasehold/leader", "/leader", 1)
	shown["by OPTIONS"] = strings.Replace(shown["/leader"], "httpchk GET /leader", "httpchk /leader", 1)
	require.NotEqual(t, shown["handover.md"], shown["/leader"])
	require.NotEqual(t, shown["/leader"], shown["by OPTIONS"])
	for name, text := range shown {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBucket(t)
			require.Equal(t, 5, strings.Count(text, "\n"))
			sidecars, checks := make(map[string]*started), make(map[string]string)
			for name, host := range map[string]string{"a": "10.0.0.7", "b": "10.0.0.8"} {
				server := host + ":80 check port 8080"
				service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					fmt.Fprint(w, name)
				}))
				defer service.Close()
				addr := testserver.FreeAddr(t)
				sidecars[name] = start(t, b.command("elect", "--listen", addr, b.url("leaders/a"), "--", "sleep",
					"600"))
				checks[name] = "http://" + addr + "/leader"
				_, port, err := net.SplitHostPort(addr)
				require.NoError(t, err)
				require.Contains(t, text, server)
				text = strings.Replace(text, server, strings.TrimPrefix(service.URL, "http://")+" check port "+port, 1)
			}
			front := testserver.StartHAProxy(t, text)
			reached := func() string {
				status, body := answer(front)
				// 502: the server was marked down while it had the request
				require.Contains(t, []int{200, 502, 503}, status, "%s", body)
				if status != 200 {
					return ""
				}
				return body
			}
			only := func(name string) { // once HAProxy has checked: it thinks well of those it does not know
				t.Helper()
				require.Eventually(t, func() bool {
					for range 50 {
						if reached() != name {
							return false
						}
					}
					return true
				}, hangs, 10*time.Millisecond, "not %s alone", name)
			}
			var first string
			require.Eventually(t, func() bool {
				for name, check := range checks {
					if status, _ := answer(check); status == 200 {
						first = name
					}
				}
				return first != ""
			}, hangs, 10*time.Millisecond)
			only(first)
			require.NoError(t, sidecars[first].Process.Signal(syscall.SIGTERM))
			require.Equal(t, 0, sidecars[first].wait(t))
			only(map[string]string{"a": "b", "b": "a"}[first])
		})
	}
}

// What the page shows of Kubernetes names a path that the command serves.
func TestTheReadinessProbe(t *testing.T) {
	t.Parallel()
	body, err := os.ReadFile("../../docs/handover.md")
	require.NoError(t, err)
	m := regexp.MustCompile("(?ms)^```yaml\n(readinessProbe:\n.*?)^```$").FindStringSubmatch(string(body))
	require.NotNil(t, m)
	require.Equal(t, 5, strings.Count(m[1], "\n"))
	var probe struct {
		ReadinessProbe struct {
			HTTPGet struct {
				Path string `yaml:"path"`
				Port int    `yaml:"port"`
			} `yaml:"httpGet"`
			Period int `yaml:"periodSeconds"`
		} `yaml:"readinessProbe"`
	}
	require.NoError(t, yaml.Unmarshal([]byte(m[1]), &probe))
	require.Equal(t, 8080, probe.ReadinessProbe.HTTPGet.Port)
	p, addr := newPlace(t), testserver.FreeAddr(t)
	s := start(t, p.command("run", "--listen", addr, p.url, "--", "sleep", "600"))
	u := url.URL{Scheme: "http", Host: addr, Path: probe.ReadinessProbe.HTTPGet.Path}
	s.answers(t, u.String(), 200)
}
