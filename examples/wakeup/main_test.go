package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/exampletest"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
)

func TestMain(m *testing.M) { exampletest.Main(main, m) }

func TestUsage(t *testing.T) {
	exampletest.Usage(t, "wakeup", run, "-ttl 0s", "-turns 0", "-listen nowhere")
}

const table = `by polling +\d+\.\dms +\d+\.\dms\nwoken by a notification .+ms\nwoken by the other, .+ms\n`

func TestInMemory(t *testing.T) {
	out, err := exampletest.Output(t, "-ttl", "1s", "-turns", "3")
	require.NoError(t, err, "%s", out)
	require.Regexp(t, table, out)
	require.Regexp(t, `has received [1-9]\d* notifications`, out)
}

// With a poll interval of a minute, only a wake-up can hand the lock over in time.
func TestWakesInMemory(t *testing.T) {
	d := &demo{store: leasehold.NewMemStore(), ttl: 5 * time.Minute, hold: 100 * time.Millisecond, turns: 4}
	server := httptest.NewServer(webhook("secret", d.wake))
	defer server.Close()
	d.post = func(key string) { post(t.Context(), server.URL, "secret", key) }
	for key, oneStore := range map[string]bool{notified: false, sharing: true} {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		took, err := d.measure(ctx, key, oneStore)
		require.NoError(t, err, key)
		require.Len(t, took, 4)
		d.posts.Wait()
	}
}

// onMinIO runs the example with a MinIO whose webhook has the token "secret".
func onMinIO(t *testing.T, token string) (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := listener.Addr().String()
	require.NoError(t, listener.Close())
	server, _ := testserver.StartMinIOWithWebhooks(t, "secret", "http://"+addr)
	bucket := server.Bucket(t)
	server.Notify(t, bucket, "examples/")
	exampletest.Credentials(t, server)
	t.Setenv("WEBHOOK_TOKEN", token)
	var out bytes.Buffer
	err = run(t.Context(), []string{"-s3", server.Endpoint, "-bucket", bucket, "-listen", addr, "-turns", "3"}, &out)
	return out.String(), err
}

func TestOnMinIO(t *testing.T) {
	out, err := onMinIO(t, "secret")
	require.NoError(t, err, "%s", out)
	require.Regexp(t, table, out)
	t.Logf("\n%s", out)
}

func TestNothingArrives(t *testing.T) {
	out, err := onMinIO(t, "another")
	require.ErrorContains(t, err, "no bucket notification has arrived (set up the server's webhook")
	require.Regexp(t, table, out, "the lock changes hands all the same")
}

func TestWebhook(t *testing.T) {
	const right = "Bearer secret"
	for name, c := range map[string]struct {
		token, body string
		status      int
		wakes       []string
	}{
		"MinIO": {
			right,
			`{"EventName": "s3:ObjectCreated:Put", "Records": [{"s3": {"object": {"key": "locks%2Fa+b%2B%C3%BC"}}}]}`,
			204,
			[]string{"locks/a b+ü"},
		},
		"S3": {
			right,
			`{"Records": [{"s3": {"object": {"key": "locks/a"}}}, {"s3": {"object": {"key": "locks/b"}}}]}`,
			204,
			[]string{"locks/a", "locks/b"},
		},
		"S3's test": {right, `{"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "b"}`, 204, nil},
		"EventBridge": {
			right,
			`{"detail-type": "Object Created", "detail": {"bucket": {"name": "b"}, "object": {"key": "locks/a+b"}}}`,
			204,
			[]string{"locks/a+b"},
		},
		"no token":      {"", `{"Records": [{"s3": {"object": {"key": "locks/a"}}}]}`, 401, nil},
		"wrong token":   {"Bearer secret2", `{"Records": [{"s3": {"object": {"key": "locks/a"}}}]}`, 401, nil},
		"other scheme":  {"Basic secret", `{"Records": [{"s3": {"object": {"key": "locks/a"}}}]}`, 401, nil},
		"bad encoding":  {right, `{"Records": [{"s3": {"object": {"key": "locks%2"}}}]}`, 204, nil},
		"other JSON":    {right, `[1, 2, 3]`, 204, nil},
		"other members": {right, `{"Records": {"s3": 1}, "detail": {"object": 7}}`, 204, nil},
		"cut off":       {right, `{"Records": [{"s3": {"object": {"key": "locks/a`, 204, nil},
		"not JSON":      {right, "\x00\xff<xml>", 204, nil},
		"empty":         {right, "", 204, nil},
		"too long": {
			right,
			`{"Records": [{"s3": {"object": {"key": "locks/a"}}}]}` + strings.Repeat(" ", 64<<10),
			204,
			nil,
		},
		"deep": {right, strings.Repeat("[", 60<<10), 204, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var wakes []string
			server := httptest.NewServer(webhook("secret", func(key string) { wakes = append(wakes, key) }))
			defer server.Close()
			req, err := http.NewRequest(http.MethodPost, server.URL, strings.NewReader(c.body))
			require.NoError(t, err)
			if c.token != "" {
				req.Header.Set("Authorization", c.token)
			}
			res, err := http.DefaultClient.Do(req)
			require.NoError(t, err)
			_, err = io.Copy(io.Discard, res.Body)
			require.NoError(t, err)
			require.NoError(t, res.Body.Close())
			require.Equal(t, c.status, res.StatusCode)
			require.Equal(t, c.wakes, wakes)
		})
	}
}

// The block stands word for word in docs/handover.md.
func TestOneOfSeveralLocks(t *testing.T) {
	objects := leasehold.NewMemStore()
	other, err := leasehold.NewLock((&demo{store: objects}).process(), "locks/a", leasehold.WithTTL(5*time.Minute))
	require.NoError(t, err)
	lease, err := other.Acquire(t.Context())
	require.NoError(t, err)
	lock, err := leasehold.NewLock(objects, "locks/a", leasehold.WithTTL(5*time.Minute))
	require.NoError(t, err)
	mux, token := http.NewServeMux(), "secret"

	// the key of the object: with WithKeyPrefix, put the prefix before it
	locks := map[string]*leasehold.Lock{lock.Key(): lock}
	wake := func(key string) {
		if lock := locks[key]; lock != nil {
			lock.Wake()
		}
	}
	mux.Handle("POST /wake", webhook(token, wake))

	server := httptest.NewServer(mux)
	defer server.Close()
	watched := make(chan leasehold.State, 8)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // half of the poll interval
	defer cancel()
	go func() {
		defer close(watched)
		for status, err := range lock.Watch(ctx) {
			if err == nil {
				watched <- status.State
			}
		}
	}()
	require.Equal(t, leasehold.StateHeld, <-watched)
	require.NoError(t, lease.Release(ctx))
	post(ctx, server.URL+"/wake", token, "locks/unknown")
	post(ctx, server.URL+"/wake", token, lock.Key())
	require.Equal(t, leasehold.StateReleased, <-watched, "it was not woken")
}
