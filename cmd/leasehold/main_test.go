package main_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/testlog"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
)

// program is the path of the real program, which is built once.
var program string

func TestMain(m *testing.M) {
	if circumstances := os.Getenv("LEASEHOLD_TEST_WRAPPER"); circumstances != "" {
		actAsWrapper(circumstances)
	}
	if role := os.Getenv("LEASEHOLD_TEST_ROLE"); role != "" {
		actAs(role)
		return
	}
	// Trials wait most of the time, so more of them than processors run side by side. -parallel on
	// the command line comes later.
	if err := flag.Set("test.parallel", "10"); err != nil {
		panic(err)
	}
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(sig) { // as under nohup; programs that are started from here must not inherit that
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "leasehold-cmd-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		program = filepath.Join(dir, "leasehold")
		if out, err := exec.Command("go", "build", "-tags=disable_grpc_modules", "-o", program,
			".").CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "building the program: %v\n%s", err, out)
			return 1
		}
		return testserver.Main(m)
	}())
}

// bucket is a new bucket on a server, as its users see it.
type bucket struct {
	t      testing.TB
	server testserver.S3
	name   string
}

func newBucket(t testing.TB) bucket {
	server := testserver.MinIO(t)
	return bucket{t, server, server.Bucket(t)}
}

// url is that of a lock, or of a prefix.
func (b bucket) url(key string) string { return b.urlAt(b.server.Endpoint, key) }

func (b bucket) urlAt(endpoint, key string) string {
	return fmt.Sprintf("s3://%s/%s?endpoint=%s", b.name, key, endpoint)
}

// lock is the same lock for this process.
func (b bucket) lock(key string, opts ...leasehold.Option) *leasehold.Lock {
	opts = append([]leasehold.Option{leasehold.WithLogger(slog.New(slog.DiscardHandler)),
		leasehold.WithPollInterval(200 * time.Millisecond)}, opts...)
	lock, err := leasehold.NewLock(leasehold.NewS3Store(b.server.Client(), b.name), key, opts...)
	require.NoError(b.t, err)
	return lock
}

// environ is the environment of the program: the credentials, and nothing of the user's own.
func (b bucket) environ() []string {
	return append(plainEnviron(), "AWS_ACCESS_KEY_ID="+b.server.AccessKey, "AWS_SECRET_ACCESS_KEY="+b.server.SecretKey)
}

func plainEnviron() (env []string) {
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "AWS_") && !strings.HasPrefix(v, "LEASEHOLD_") {
			env = append(env, v)
		}
	}
	return append(env, "AWS_EC2_METADATA_DISABLED=true", "AWS_CONFIG_FILE=/nonexistent",
		"AWS_SHARED_CREDENTIALS_FILE=/nonexistent")
}

// result is what a person sees of a run of the program.
type result struct {
	code        int
	out, stderr string
}

// run runs the program to its end.
func (b bucket) run(args ...string) result { return finish(b.t, b.command(args...)) }

func (b bucket) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(b.t.Context(), program, args...)
	cmd.Env = b.environ()
	return cmd
}

// finish runs a command to its end.
func finish(t testing.TB, cmd *exec.Cmd) result {
	t.Helper()
	var out, stderr bytes.Buffer
	if cmd.Stdout == nil {
		cmd.Stdout = &out
	}
	cmd.Stderr = &stderr
	cmd.WaitDelay = hangs // for what it has left running
	require.NoError(t, cmd.Start())
	kill := time.AfterFunc(2*hangs, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	require.True(t, kill.Stop(), "the command does not end")
	if _, ok := errors.AsType[*exec.ExitError](err); !ok {
		require.NoError(t, err)
	}
	return result{shellCode(cmd.ProcessState), out.String(), stderr.String()}
}

// shellCode is the exit code that a shell shows.
func shellCode(state *os.ProcessState) int {
	if status := state.Sys().(syscall.WaitStatus); status.Signaled() {
		return 128 + int(status.Signal())
	}
	return state.ExitCode()
}

// offline runs the program without a server.
func offline(t testing.TB, args ...string) result {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = plainEnviron()
	return finish(t, cmd)
}

// complains checks the exit code, and that there is one line on standard error with the text.
func (r result) complains(t testing.TB, code int, text string) {
	t.Helper()
	require.Equal(t, code, r.code, "%s", r.stderr)
	require.Contains(t, r.stderr, text)
	require.Equal(t, 1, strings.Count(r.stderr, "\n"), "more than one line: %s", r.stderr)
	require.Regexp(t, "^leasehold: ", r.stderr)
}

// succeeds checks that the exit code is 0, and that nothing is said.
func (r result) succeeds(t testing.TB) {
	t.Helper()
	require.Equal(t, 0, r.code, "%s", r.stderr)
	require.Empty(t, r.stderr)
}

// started is a run of the program that goes on.
type started struct {
	*exec.Cmd
	stderr testlog.Buffer
	out    io.Reader
	ended  chan struct{} // closed when it has ended
	err    error         // then
}

// start starts a command, and kills it after the test if it still runs.
func start(t testing.TB, cmd *exec.Cmd) *started {
	t.Helper()
	s := &started{Cmd: cmd}
	cmd.Stderr = &s.stderr
	cmd.WaitDelay = 20 * time.Second // for those that live on, and hold it open, though they should not
	read, write, err := os.Pipe()
	require.NoError(t, err)
	s.out, cmd.Stdout = read, write
	require.NoError(t, cmd.Start())
	write.Close()
	s.ended = make(chan struct{})
	go func() {
		s.err = cmd.Wait()
		close(s.ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-s.ended
		read.Close()
	})
	return s
}

// wait waits for the end and returns the exit code.
func (s *started) wait(t testing.TB) int {
	t.Helper()
	select {
	case <-s.ended:
	case <-time.After(hangs):
		require.Fail(t, "the command does not end")
	}
	err := s.err
	if _, ok := errors.AsType[*exec.ExitError](err); !ok {
		require.NoError(t, err)
	}
	return shellCode(s.ProcessState)
}

// hangs is how long the end of a run may take before it counts as one that never comes.
const hangs = time.Minute

// soon is a context for what takes seconds at most on an idle machine.
func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}
