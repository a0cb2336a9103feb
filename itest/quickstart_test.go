package itest_test

import (
	"io/fs"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/testprocess"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
)

// The elector of docs/start.md works when it is copied: the program is compiled and run as it
// stands there, with the environment variables that the page names and no others.
func TestElectorOfThePage(t *testing.T) {
	testserver.SkipIfShort(t)
	t.Parallel()
	program := buildQuickStart(t)
	servers(t, func(t *testing.T, server testserver.S3) {
		bucket := server.Bucket(t)
		env := quickStartEnv(t, server, bucket)
		first := startQuickStart(t, program, env)
		first.Says(t, `INFO leading token=1$`)
		second := startQuickStart(t, program, env)
		second.Says(t, `INFO leader .* token=1$`)
		require.NoError(t, first.Signal(syscall.SIGTERM))
		first.Ends(t)
		second.Says(t, `INFO leading token=2$`)
		require.NoError(t, second.Signal(syscall.SIGTERM))
		second.Ends(t)

		lock, err := leasehold.NewLock(leasehold.NewS3Store(server.Client(), bucket), "locks/reports")
		require.NoError(t, err)
		record, err := lock.Inspect(t.Context())
		require.NoError(t, err)
		require.True(t, record.Released())
		require.EqualValues(t, 2, record.Token)
	})
}

// Each command of the README's quick start is run as it stands there, in a copy of the checkout
// instead of a clone. Two more things differ: the server is the program that is built already, and
// listens on a free port.
func TestQuickStart(t *testing.T) {
	testserver.SkipIfShort(t)
	t.Parallel()
	page, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(page), "\n## Quick start\n")
	section, _, _ = strings.Cut(section, "\n## ")
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(section, -1)
	require.Len(t, blocks, 3, "a lock on files, a server, what runs on it")
	version, err := testserver.Version("versitygw")
	require.NoError(t, err)
	program, err := testserver.Build(t.Context(), runtime.GOOS, "versitygw")
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(testserver.FreeAddr(t))
	require.NoError(t, err)
	checkout := copyCheckout(t)
	shell := func(commands string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "bash", "-e", "-u", "-o", "pipefail", "-c", commands)
		cmd.Dir = checkout
		cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "AWS_") })
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
		cmd.WaitDelay = 10 * time.Second
		return cmd
	}

	const clone = "git clone https://github.com/leasehold-go/leasehold && cd leasehold\n"
	hello, found := strings.CutPrefix(blocks[0][1], clone)
	require.True(t, found)
	first := testprocess.Start(t, shell(hello))
	first.Says(t, `I alone work now, with token 1$`)
	began := time.Now()
	second := testprocess.Start(t, shell(hello))
	second.Says(t, `I alone work now, with token 2$`)
	require.GreaterOrEqual(t, time.Since(began), 9*time.Second, "the second has waited for the first")
	first.Ends(t)
	second.Ends(t)

	built := "go run github.com/versity/versitygw/cmd/versitygw@" + version + " "
	require.Equal(t, 1, strings.Count(blocks[1][1], built))
	server := shell(strings.NewReplacer(built, program+" ", ":7070", ":"+port).Replace(blocks[1][1]))
	require.NoError(t, server.Start())
	t.Cleanup(func() { _, _ = server.Cancel(), server.Wait() })
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			err = conn.Close()
		}
		return err == nil
	}, time.Minute, 50*time.Millisecond)
	out, err := shell(strings.ReplaceAll(blocks[2][1], ":7070", ":"+port)).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Regexp(t, `(?m)^conditions +ok `, string(out))
	require.Contains(t, string(out), "Two leaders at once: in 0 of ")

	// The elector of docs/start.md goes on from there.
	reports := filepath.Join(checkout, "reports")
	require.NoError(t, os.Mkdir(reports, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(reports, "main.go"),
		[]byte(quickStartBlock(t, "go", "func main()")), 0o600))
	elector := testprocess.Start(t, shell(strings.ReplaceAll(quickStartBlock(t, "sh", "AWS_ENDPOINT_URL"),
		":7070", ":"+port)))
	elector.Says(t, `INFO leading token=1$`)
	require.NoError(t, syscall.Kill(-elector.Pid, syscall.SIGINT)) // Ctrl-C reaches the whole group
	elector.Says(t, `INFO lock released .* token=1$`)

	// So does its test.
	require.NoError(t, os.WriteFile(filepath.Join(reports, "main_test.go"),
		[]byte(quickStartBlock(t, "go", "func TestWork")), 0o600))
	out, err = shell("go test ./reports").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "ok  \t")
}

// copyCheckout copies what a clone of the repository has, and returns the directory.
func copyCheckout(t *testing.T) string {
	t.Helper()
	dir, root := t.TempDir(), os.DirFS("..")
	require.NoError(t, fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil || name == ".":
			return err
		// .git, what tests keep, and a server's data
		case entry.IsDir() && (strings.HasPrefix(name, ".") || name == "buckets"):
			return fs.SkipDir
		case entry.IsDir():
			return os.Mkdir(filepath.Join(dir, name), 0o755)
		case !entry.Type().IsRegular() || strings.HasSuffix(name, ".object"):
			return nil
		}
		body, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, name), body, 0o644)
	}))
	return dir
}

// quickStartBlock returns the one code block of docs/start.md in that language that contains a
// text.
func quickStartBlock(t *testing.T, language, text string) string {
	t.Helper()
	page, err := os.ReadFile("../docs/start.md")
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

// buildQuickStart compiles the page's program against this repository and returns its path.
func buildQuickStart(t *testing.T) string {
	dir := t.TempDir()
	source, program := filepath.Join(dir, "main.go"), filepath.Join(dir, "quickstart")
	require.NoError(t, os.WriteFile(source, []byte(quickStartBlock(t, "go", "func main()")), 0o600))
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, source).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return program
}

// quickStartEnv gives each variable that the page's shell block sets the value for this server.
func quickStartEnv(t *testing.T, server testserver.S3, bucket string) []string {
	t.Helper()
	values := map[string]string{
		// a name needs path style
		"AWS_ENDPOINT_URL":      strings.Replace(server.Endpoint, "127.0.0.1", "localhost", 1),
		"AWS_REGION":            server.Region,
		"AWS_ACCESS_KEY_ID":     server.AccessKey,
		"AWS_SECRET_ACCESS_KEY": server.SecretKey,
		"BUCKET":                bucket,
	}
	var env []string
	for _, m := range regexp.MustCompile(`\b([A-Z_]+)=`).FindAllStringSubmatch(quickStartBlock(t, "sh",
		"AWS_ENDPOINT_URL"), -1) {
		require.Contains(t, values, m[1])
		env = append(env, m[1]+"="+values[m[1]])
	}
	require.Len(t, env, len(values))
	return env
}

func startQuickStart(t *testing.T, program string, env []string) *testprocess.Process {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = env
	return testprocess.Start(t, cmd)
}

// The embedded server of docs/stores.md is one that locks can use.
func TestEmbeddedServer(t *testing.T) {
	t.Parallel()
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

// embeddedServer is the code of docs/stores.md, which a test of the root module compares with
// this.
func embeddedServer(t *testing.T) *s3.Client {
	server := httptest.NewServer(gofakes3.New(s3mem.New(), gofakes3.WithAutoBucket(true)).Server())
	t.Cleanup(server.Close)
	client := s3.New(s3.Options{BaseEndpoint: &server.URL, UsePathStyle: true, Region: "us-east-1"})
	return client
}
