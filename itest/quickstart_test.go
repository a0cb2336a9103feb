package itest_test

import (
	"bufio"
	"context"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testserver"
)

// The quick start of the README works when it is copied: the program is compiled and run as it stands there, with the
// environment variables that the README names and no others.
func TestQuickStart(t *testing.T) {
	testserver.SkipIfShort(t)
	program := buildQuickStart(t)
	eachServer(t, func(t *testing.T, server testserver.S3) {
		bucket := server.Bucket(t)
		env := quickStartEnv(t, server, bucket)
		first := startQuickStart(t, program, env)
		first.waitFor(t, `INFO leading token=1$`)
		second := startQuickStart(t, program, env)
		second.waitFor(t, `INFO leader .* token=1$`)
		first.stop(t)
		second.waitFor(t, `INFO leading token=2$`)
		second.stop(t)

		lock, err := leasehold.NewLock(leasehold.NewS3Store(server.Client(), bucket), "locks/reports")
		require.NoError(t, err)
		record, err := lock.Inspect(t.Context())
		require.NoError(t, err)
		require.True(t, record.Released())
		require.EqualValues(t, 2, record.Token)
	})
}

// quickStartBlock returns the one code block of the README in that language that contains a text.
func quickStartBlock(t *testing.T, language, text string) string {
	t.Helper()
	page, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	var found []string
	for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		if strings.Contains(m[1], text) {
			found = append(found, m[1])
		}
	}
	require.Len(t, found, 1, "blocks of %s with %q", language, text)
	return found[0]
}

// buildQuickStart compiles the README's program against this repository and returns its path.
func buildQuickStart(t *testing.T) string {
	dir := t.TempDir()
	source, program := filepath.Join(dir, "main.go"), filepath.Join(dir, "quickstart")
	require.NoError(t, os.WriteFile(source, []byte(quickStartBlock(t, "go", "package main")), 0o600))
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, source).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return program
}

// quickStartEnv gives each variable that the README's shell block sets the value for this server.
func quickStartEnv(t *testing.T, server testserver.S3, bucket string) []string {
	t.Helper()
	values := map[string]string{
		"AWS_ENDPOINT_URL":      strings.Replace(server.Endpoint, "127.0.0.1", "localhost", 1), // a name needs path style
		"AWS_REGION":            server.Region,
		"AWS_ACCESS_KEY_ID":     server.AccessKey,
		"AWS_SECRET_ACCESS_KEY": server.SecretKey,
		"BUCKET":                bucket,
	}
	var env []string
	for _, m := range regexp.MustCompile(`\b([A-Z_]+)=`).FindAllStringSubmatch(quickStartBlock(t, "sh", "AWS_ENDPOINT_URL"), -1) {
		require.Contains(t, values, m[1])
		env = append(env, m[1]+"="+values[m[1]])
	}
	require.Len(t, env, len(values))
	return env
}

// instance is a running copy of the quick start.
type instance struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
}

func startQuickStart(t *testing.T, program string, env []string) *instance {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = env
	out, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	return &instance{cmd: cmd, lines: bufio.NewScanner(out)}
}

// waitFor reads what the instance logs until a line matches.
func (i *instance) waitFor(t *testing.T, pattern string) {
	t.Helper()
	for i.lines.Scan() {
		t.Log(i.lines.Text())
		if regexp.MustCompile(pattern).MatchString(i.lines.Text()) {
			return
		}
	}
	require.Fail(t, "the instance ended before it logged a line that matches", pattern)
}

func (i *instance) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, i.cmd.Process.Signal(syscall.SIGTERM))
	for i.lines.Scan() {
		t.Log(i.lines.Text())
	}
	require.NoError(t, i.cmd.Wait())
}

// The embedded server of docs/servers.md is one that locks can use.
func TestEmbeddedServer(t *testing.T) {
	store := leasehold.NewS3Store(embeddedServer(t), "test-bucket")
	report, err := leasehold.CheckStore(t.Context(), store, "locks/check")
	require.NoError(t, err)
	require.True(t, report.ConditionalPuts)

	holder, waiting := newLock(t, store), newLock(t, store)
	lease, err := holder.TryAcquire(t.Context())
	require.NoError(t, err)
	_, err = waiting.TryAcquire(t.Context())
	require.ErrorIs(t, err, leasehold.ErrHeld)
	require.NoError(t, lease.Release(t.Context()))
	next, err := waiting.TryAcquire(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2, next.Token())
	require.NoError(t, next.Release(t.Context()))
}

// embeddedServer is the code of docs/servers.md, which a test of the root module compares with this.
func embeddedServer(t *testing.T) *s3.Client {
	server := httptest.NewServer(gofakes3.New(s3mem.New(), gofakes3.WithAutoBucket(true)).Server())
	t.Cleanup(server.Close)
	client := s3.New(s3.Options{BaseEndpoint: &server.URL, UsePathStyle: true, Region: "us-east-1"})
	return client
}
