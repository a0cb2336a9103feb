package main_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
)

// clouds are URLs of a prefix on a server, and credentials for it. The server need not be what it
// is taken for.
func clouds(endpoint string) map[string]func(*exec.Cmd) string {
	return map[string]func(*exec.Cmd) string{
		"s3": func(cmd *exec.Cmd) string {
			cmd.Env = append(cmd.Env, "AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=b")
			return "s3://bucket/locks/?endpoint=" + endpoint
		},
		"gs": func(*exec.Cmd) string { return "gs://bucket/locks/?endpoint=" + endpoint },
		"azblob": func(cmd *exec.Cmd) string {
			cmd.Env = append(cmd.Env, "AZURE_STORAGE_KEY=c2VjcmV0")
			return "azblob://container/locks/?account=account&endpoint=" + endpoint
		},
	}
}

// onCloud runs a command on each kind of cloud. The arguments have PREFIX for the URL of a prefix,
// and LOCK for that of a lock.
func onCloud(t *testing.T, cloud, endpoint string, args ...string) result {
	t.Helper()
	cmd := place{t: t}.command()
	prefix := clouds(endpoint)[cloud](cmd)
	names := strings.NewReplacer("PREFIX", prefix, "LOCK", strings.Replace(prefix, "/?", "/a?", 1))
	for _, arg := range args {
		cmd.Args = append(cmd.Args, names.Replace(arg))
	}
	return finish(t, cmd)
}

// Every request is under a limit: what never comes to an end is a store that does not answer.
func TestEveryRequestEnds(t *testing.T) {
	silent := silentServer(t)
	busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	t.Cleanup(busy.Close)
	for name, endpoint := range map[string]string{"silent": silent, "busy": busy.URL} {
		for cloud := range clouds(endpoint) {
			for _, args := range [][]string{{"list", "PREFIX"}, {"status", "LOCK"}, {"doctor", "LOCK"}} {
				t.Run(strings.Join([]string{name, cloud, args[0]}, " "), func(t *testing.T) {
					t.Parallel()
					began := time.Now()
					r := onCloud(t, cloud, endpoint, args...)
					require.Equal(t, 69, r.code, "%s%s", r.out, r.stderr)
					require.Less(t, time.Since(began), 40*time.Second)
				})
			}
		}
	}
	t.Run("credentials", func(t *testing.T) {
		t.Parallel()
		lock, prefix := "s3://bucket/locks/a?endpoint="+busy.URL, "s3://bucket/locks/?endpoint="+busy.URL
		for _, args := range [][]string{{"doctor", lock}, {"list", prefix}, {"status", lock}} {
			cmd := place{t: t}.command(args...)
			cmd.Env = append(cmd.Env, "AWS_CONTAINER_CREDENTIALS_FULL_URI="+silent+"/credentials")
			r := finish(t, cmd)
			require.Equal(t, 69, r.code, "%s: %s%s", args, r.out, r.stderr)
		}
	})
}

// silentServer accepts connections and never answers.
func silentServer(t *testing.T) (endpoint string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	return "http://" + listener.Addr().String()
}

// A web page is no answer of a store, though it comes with 200.
func TestAWebPageIsNoStore(t *testing.T) {
	t.Parallel()
	for kind, page := range map[string]string{
		"text/html":        "<!DOCTYPE html><html><head><title>Welcome</title></head><body>It works!</body></html>",
		"application/xml":  "<html><body>It works!</body></html>",
		"application/json": "[]",
		"text/plain":       "",
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			_, _ = io.WriteString(w, page)
		}))
		t.Cleanup(server.Close)
		for cloud := range clouds(server.URL) {
			t.Run(cloud+" "+kind, func(t *testing.T) {
				r := onCloud(t, cloud, server.URL, "list", "PREFIX")
				require.Equal(t, 69, r.code, "%s%s", r.out, r.stderr)
				require.Empty(t, r.out)
				plain(t, r.stderr, 1)
				for _, args := range [][]string{
					{"status", "LOCK"}, {"run", "-n", "LOCK", "--", "true"}, {"doctor", "LOCK"},
				} {
					r := onCloud(t, cloud, server.URL, args...)
					require.NotContains(t, []int{-1, 0, 2, 70}, r.code, "%s: %s%s", args, r.out, r.stderr)
					require.NotContains(t, r.stderr, "goroutine", "%s", args)
				}
			})
		}
	}
}

// A store that is down is one line, though each of its answers has another number.
func TestWatchComplainsOnce(t *testing.T) {
	t.Parallel()
	answered := make(chan struct{}, 100)
	var numbers atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		number := int(numbers.Add(1))
		w.Header().Set("X-Amz-Request-Id", strings.Repeat("7", number))
		w.WriteHeader(http.StatusServiceUnavailable)
		text := strings.Repeat("x", number)
		_, _ = io.WriteString(w, "<Error><Code>SlowDown</Code><Message>"+text+"</Message></Error>")
		answered <- struct{}{}
	}))
	t.Cleanup(server.Close)
	b := bucket{t: t, server: testserver.S3{Endpoint: server.URL, AccessKey: "a", SecretKey: "b"}, name: "bucket"}
	s := start(t, b.command("watch", "--interval", "50ms", b.url("a")))
	for range 10 {
		<-answered
	}
	require.NoError(t, s.Process.Signal(syscall.SIGTERM))
	s.wait(t)
	require.Equal(t, 1, strings.Count(s.stderr.String(), "\n"), "%s", &s.stderr)
}
