package cloud

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"cloud.google.com/go/storage"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold-go/leasehold/internal/testkit/faultproxy"
	"github.com/leasehold-go/leasehold/internal/testkit/testlog"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
)

// server is one of the servers of the tests, as if it was a cloud: a bucket that is there, and
// credentials in the environment.
type server struct {
	url func(key string) string
	env []string
}

func onS3(t *testing.T, s testserver.S3) server {
	name := s.Bucket(t)
	return server{
		func(key string) string { return "s3://" + name + "/" + key + "?endpoint=" + s.Endpoint },
		[]string{"AWS_ACCESS_KEY_ID=" + s.AccessKey, "AWS_SECRET_ACCESS_KEY=" + s.SecretKey, "AWS_REGION=" + s.Region},
	}
}

func onGCS(t *testing.T) server {
	endpoint := testserver.FakeGCS(t)
	const name = "leasehold-cloud"
	at, err := place.ParsePrefix("gs://" + name + "/?endpoint=" + endpoint)
	require.NoError(t, err)
	client, err := at.GSClient(t.Context())
	require.NoError(t, err)
	defer client.Close()
	require.NoError(t, client.Bucket(name).Create(t.Context(), "project", &storage.BucketAttrs{}))
	return server{func(key string) string { return "gs://" + name + "/" + key + "?endpoint=" + endpoint }, nil}
}

func onAzure(t *testing.T) server {
	s := testserver.StartAzurite(t, testserver.AnyAPIVersion)
	const name = "leasehold-cloud"
	client, err := azblob.NewClientFromConnectionString(s.ConnectionString(), nil)
	require.NoError(t, err)
	_, err = client.CreateContainer(t.Context(), name, nil)
	require.NoError(t, err)
	return server{
		func(key string) string { return "azblob://" + name + "/" + key },
		[]string{"AZURE_STORAGE_CONNECTION_STRING=" + s.ConnectionString()},
	}
}

// environ has the credentials of the server, and nothing of the user's own.
func (s server) environ(url string) (env []string) {
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "_"); !slices.Contains([]string{"AWS", "AZURE", "GOOGLE", "LEASEHOLD"}, name) ||
			strings.HasPrefix(v, "LEASEHOLD_SIZE=") {
			env = append(env, v)
		}
	}
	return append(append(env, "AWS_EC2_METADATA_DISABLED=true", "AWS_CONFIG_FILE=/nonexistent",
		"AWS_SHARED_CREDENTIALS_FILE=/nonexistent", "LEASEHOLD_CLOUD_URL="+url, "LEASEHOLD_CLOUD_VERSION=v0.0.0-test"),
		s.env...)
}

// outcome is what a person has after make cloud.
type outcome struct {
	code        int
	out, stderr string
	report      report
}

// cloud is make cloud. If interrupt is not "", it is interrupted when it has printed that.
func (s server) cloud(t *testing.T, url, interrupt string) (o outcome) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "reports", "cloud.json")
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(s.environ(url), "LEASEHOLD_CLOUD_REPORT="+name)
	var out, stderr testlog.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	cmd.WaitDelay = time.Minute
	require.NoError(t, cmd.Start())
	if interrupt != "" {
		require.Eventually(t, func() bool { return strings.Contains(out.String(), interrupt) }, time.Minute,
			time.Millisecond, "%s%s", &out, &stderr)
		require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	}
	_ = cmd.Wait()
	o.code, o.out, o.stderr = cmd.ProcessState.ExitCode(), out.String(), stderr.String()
	t.Logf("%s%s", o.out, o.stderr)
	if text, err := os.ReadFile(name); err == nil {
		require.NoError(t, json.Unmarshal(text, &o.report))
	}
	return o
}

var environment sync.Mutex // while this process has the credentials of a server

// as makes this process a user of the bucket.
func (s server) as(t *testing.T, user func(ctx context.Context, at place.Location)) {
	t.Helper()
	environment.Lock()
	defer environment.Unlock()
	for _, v := range s.env {
		name, value, _ := strings.Cut(v, "=")
		require.NoError(t, os.Setenv(name, value))
		defer os.Unsetenv(name)
	}
	at, err := place.ParsePrefix(s.url(""))
	require.NoError(t, err)
	user(context.WithoutCancel(t.Context()), at) // also in cleanups
}

// keys are those of all objects in the bucket.
func (s server) keys(t *testing.T) (all []string) {
	t.Helper()
	s.as(t, func(ctx context.Context, at place.Location) {
		store, err := at.Open(ctx)
		require.NoError(t, err)
		defer store.Close()
		for o, err := range store.Objects(ctx, "") {
			require.NoError(t, err)
			all = append(all, o.Key)
		}
	})
	return all
}

// plant writes an object.
func (s server) plant(t *testing.T, key string) {
	t.Helper()
	s.as(t, func(ctx context.Context, at place.Location) {
		b, err := openBucket(ctx, at)
		require.NoError(t, err)
		require.NoError(t, b.put(ctx, key, []byte("mine")))
	})
}

// What make cloud does in a bucket of a cloud, it does on every server of the tests. It leaves
// nothing behind, touches nothing else, and finds what is known of each.
func TestOnServers(t *testing.T) {
	type expect struct {
		deletes, missing, row string
		parts                 int
	}
	run := func(t *testing.T, s server, want expect) {
		s.plant(t, "nightly/mine")
		t.Cleanup(func() { require.Equal(t, []string{"nightly/mine"}, s.keys(t)) })
		o := s.cloud(t, s.url("nightly"), "")
		require.Equal(t, 0, o.code)
		require.Equal(t, "passed", o.report.Outcome)
		require.Equal(t, want, expect{o.report.Deletes, o.report.UpdateMissing, want.row, len(o.report.Parts)})
		require.Contains(t, o.report.Row, want.row)
		require.Contains(t, o.out, o.report.Row)
		require.Contains(t, o.report.Row, "takeover after 1.")
		require.Regexp(t, `cloud`+"`"+`, 20\d\d-\d\d-\d\d, leasehold v0.0.0-test \|$`, o.report.Row)
		require.Positive(t, o.report.Requests.Writes)
		require.Positive(t, o.report.Requests.Deletes)
		require.Less(t, o.report.Dollars, 0.1)
		require.Empty(t, o.report.Left)
		require.NotEmpty(t, o.report.Doctor)
	}
	t.Parallel()
	t.Run("minio", func(t *testing.T) {
		t.Parallel()
		run(t, onS3(t, testserver.MinIO(t)), expect{"ignored", "404", "| MinIO | yes; ignores", 7})
	})
	t.Run("versitygw", func(t *testing.T) {
		t.Parallel()
		run(t, onS3(t, testserver.VersityGW(t)),
			expect{honouredAnyway, "404", "| VersityGW, us-east-1 | yes; honours", 7})
	})
	t.Run("fake-gcs-server", func(t *testing.T) {
		t.Parallel()
		run(t, onGCS(t), expect{"ignored", "412", "| gs at http", 7})
	})
	t.Run("azurite", func(t *testing.T) {
		t.Parallel()
		run(t, onAzure(t), expect{"honoured", "412", "| Azurite-Blob", 7})
	})
	for name, s := range map[string]testserver.S3{"minio": testserver.MinIO(t), "versitygw": testserver.VersityGW(t)} {
		t.Run(name+" that only creates", func(t *testing.T) {
			t.Parallel()
			s.Endpoint = faultproxy.Start(t, s.Endpoint, func(r *http.Request) faultproxy.Fault {
				if r.Header.Get("If-Match") == "" {
					return faultproxy.Fault{}
				}
				return faultproxy.Fault{Kind: faultproxy.Answer, Status: http.StatusNotImplemented}
			}).URL()
			b := onS3(t, s)
			run(t, server{func(key string) string { return b.url(key) + "&createonly=1" }, b.env},
				expect{"allowed", "412", " | creates only, used with createonly; ", 6})
		})
	}
}

// Where DELETE is denied, all but what needs it is tried, and what is left is listed.
func TestDeleteDenied(t *testing.T) {
	t.Parallel()
	s := testserver.MinIO(t)
	proxy := faultproxy.Start(t, s.Endpoint, func(r *http.Request) faultproxy.Fault {
		if r.Method == http.MethodDelete {
			return faultproxy.Fault{Kind: faultproxy.Answer, Status: http.StatusForbidden}
		}
		return faultproxy.Fault{}
	})
	s.Endpoint = proxy.URL()
	denied := onS3(t, s)
	o := denied.cloud(t, denied.url("locks/"), "")
	require.Equal(t, 1, o.code)
	require.Equal(t, "denied", o.report.Deletes)
	require.Contains(t, o.report.Outcome, "passed, and not all objects could be removed")
	require.Contains(t, o.out, o.report.Row)
	require.Equal(t, denied.keys(t), o.report.Left)
	for _, key := range o.report.Left {
		require.Contains(t, o.stderr, key)
	}
}

// After Ctrl-C nothing is left in the bucket.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	for _, during := range []string{"conformance", "contention", "fenced"} {
		t.Run(during, func(t *testing.T) {
			t.Parallel()
			s := onS3(t, testserver.MinIO(t))
			o := s.cloud(t, s.url(""), during)
			require.Equal(t, 130, o.code)
			require.Equal(t, "interrupted", o.report.Outcome)
			require.Empty(t, o.report.Row)
			require.Empty(t, s.keys(t))
			require.NotContains(t, o.out, "FAIL")
		})
	}
}

// What cannot work is told before anything is written.
func TestBadInput(t *testing.T) {
	t.Parallel()
	s := onS3(t, testserver.MinIO(t))
	without := s
	without.env = nil
	for what, c := range map[string]struct {
		from server
		url  string
		code int
		says string
	}{
		"no URL":         {s, "bucket/prefix", 64, "it has no scheme"},
		"a directory":    {s, "file:///tmp", 64, "name a bucket"},
		"no bucket":      {s, "s3://no-such-bucket/a?" + strings.SplitN(s.url(""), "?", 2)[1], 78, "create the bucket"},
		"no credentials": {without, s.url("a"), 78, "there are no credentials"},
		"no server":      {s, "s3://bucket/a?endpoint=http://127.0.0.1:1", 69, "connection refused"},
		"a long prefix":  {s, s.url(strings.Repeat("x", 800)), 64, "longer than 1024 bytes"},
		"no account":     {s, "azblob://container/a", 78, "there is no storage account"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			o := c.from.cloud(t, c.url, "")
			require.Equal(t, c.code, o.code)
			require.Contains(t, o.stderr, "make cloud: ")
			require.Contains(t, o.stderr, c.says)
			require.Equal(t, 1, strings.Count(o.stderr, "\n"))
			require.Empty(t, s.keys(t))
		})
	}
}

// At the bound nothing more is sent, except by what removes the objects.
func TestBound(t *testing.T) {
	var told error
	m := &meter{stop: func(why error) { told = why }}
	for range bound.Writes - forRemoval {
		require.NoError(t, m.add(write, false))
	}
	require.NoError(t, told)
	require.ErrorIs(t, m.add(write, false), errBound)
	require.ErrorIs(t, told, errBound)
	require.NoError(t, m.add(write, true))
	m.stopNow(told)
	require.ErrorIs(t, m.add(read, false), errBound)
	require.NoError(t, m.add(remove, true))
	for _, p := range pricesOf {
		require.LessOrEqual(t, bound.dollars(p), 0.1)
	}
}
