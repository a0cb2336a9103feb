package testserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { os.Exit(testserver.Main(m)) }

func TestRestartKeepsDataAndAddress(t *testing.T) {
	for name, start := range map[string]func(testing.TB) (testserver.S3, *testserver.Process){
		"minio": testserver.StartMinIO, "versitygw": testserver.StartVersityGW,
	} {
		t.Run(name, func(t *testing.T) {
			server, process := start(t)
			client, bucket, key := server.Client(func(o *s3.Options) { o.RetryMaxAttempts = 1 }), server.Bucket(t), "a"
			_, err := client.PutObject(t.Context(), &s3.PutObjectInput{
				Bucket: &bucket,
				Key:    &key,
				Body:   bytes.NewReader([]byte("x")),
			})
			require.NoError(t, err)

			process.Kill()
			_, err = client.GetObject(t.Context(), &s3.GetObjectInput{Bucket: &bucket, Key: &key})
			require.Error(t, err)

			require.NoError(t, process.Restart())
			out, err := client.GetObject(t.Context(), &s3.GetObjectInput{Bucket: &bucket, Key: &key})
			require.NoError(t, err)
			require.NoError(t, out.Body.Close())
			require.NotContains(t, process.Log(), "panic")
		})
	}
}

// MinIO tells every receiver of a PUT below the prefix, and goes on when one is down.
func TestMinIOWithWebhooks(t *testing.T) {
	type post struct{ receiver, token, body string }
	posts := make(chan post, 16)
	receiver := func(name string) *httptest.Server {
		server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			assert.NoError(t, err)
			posts <- post{name, r.Header.Get("Authorization"), string(body)}
		}))
		t.Cleanup(server.Close)
		return server
	}
	a, b := receiver("a"), receiver("b")
	server, _ := testserver.StartMinIOWithWebhooks(t, "secret", a.URL, b.URL)
	client, bucket := server.Client(), server.Bucket(t)
	server.Notify(t, bucket, "locks/")
	put := func(key string) {
		_, err := client.PutObject(t.Context(), &s3.PutObjectInput{
			Bucket: &bucket,
			Key:    &key,
			Body:   strings.NewReader("x"),
		})
		require.NoError(t, err)
	}
	put("other/key")
	const key = "locks/a b+ü"
	put(key)
	var got []string
	for range 2 {
		p := <-posts
		got = append(got, p.receiver)
		require.Equal(t, "Bearer secret", p.token)
		var event struct {
			Records []struct {
				S3 struct{ Object struct{ Key string } }
			}
		}
		require.NoError(t, json.Unmarshal([]byte(p.body), &event), p.body)
		require.Len(t, event.Records, 1)
		name, err := url.QueryUnescape(event.Records[0].S3.Object.Key)
		require.NoError(t, err)
		require.Equal(t, key, name)
	}
	require.ElementsMatch(t, []string{"a", "b"}, got)

	a.Close()
	put("locks/c")
	require.Equal(t, "b", (<-posts).receiver)
}

func TestBuildErrors(t *testing.T) {
	_, err := testserver.Build(t.Context(), "linux", "nosuch")
	require.ErrorContains(t, err, `no program "nosuch"`)

	t.Setenv("LEASEHOLD_CACHE", t.TempDir())
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err = testserver.Build(ctx, "linux", "versitygw")
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestBuildByTwoAtOnce(t *testing.T) {
	testserver.SkipIfShort(t)
	t.Setenv("LEASEHOLD_CACHE", t.TempDir())
	paths := make(chan string, 2)
	for range cap(paths) {
		go func() {
			path, err := testserver.Build(t.Context(), runtime.GOOS, "versitygw")
			assert.NoError(t, err)
			paths <- path
		}()
	}
	path := <-paths
	require.Equal(t, path, <-paths)
	out, err := exec.CommandContext(t.Context(), path, "--version").CombinedOutput()
	require.NoError(t, err, string(out))
}

// When a test binary is killed, by a timeout or by hand, its servers end too.
func TestServerDiesWithTestBinary(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has a parent death signal")
	}
	if os.Getenv("LEASEHOLD_TEST_CHILD") != "" {
		_, process := testserver.StartVersityGW(t)
		fmt.Printf("addr=%s.\n", process.Addr)
		self, err := os.FindProcess(os.Getpid())
		require.NoError(t, err)
		require.NoError(t, self.Kill())
		select {}
	}
	testserver.SkipIfShort(t)
	testserver.Program(t, "versitygw") // so that the child need not build it
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=2m")
	cmd.Env = append(os.Environ(), "LEASEHOLD_TEST_CHILD=1", "TMPDIR="+t.TempDir())
	out, err := cmd.Output()
	require.Error(t, err, "it kills itself")
	_, addr, ok := strings.Cut(string(out), "addr=")
	require.True(t, ok, string(out))
	addr, _, _ = strings.Cut(addr, ".\n")
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
		}
		return err != nil
	}, 10*time.Second, 20*time.Millisecond)
}
