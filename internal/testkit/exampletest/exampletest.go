// Package exampletest runs an example as a separate process, and checks what all examples have in
// common.
package exampletest

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/testkit/testprocess"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
)

const asMain = "RUN_MAIN"

// Main runs main in a process that a test has made, and tests, which may start servers, in all
// others.
func Main(main func(), m *testing.M) {
	if os.Getenv(asMain) != "" {
		main()
		return
	}
	os.Exit(testserver.Main(m))
}

// command returns the example of this test as a process, to be started.
func command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append([]string{"AWS_ACCESS_KEY_ID=any", "AWS_SECRET_ACCESS_KEY=any"}, os.Environ()...)
	cmd.Env = append(cmd.Env, asMain+"=1")
	return cmd
}

// Start starts the example as a process.
func Start(t *testing.T, args ...string) *testprocess.Process {
	t.Helper()
	cmd := command(t.Context(), args...)
	cmd.Stderr = os.Stderr
	return testprocess.Start(t, cmd)
}

// Output runs the example to its end and returns what it prints.
func Output(t *testing.T, args ...string) (string, error) {
	out, err := command(t.Context(), args...).CombinedOutput()
	return string(out), err
}

// run is what an example does.
type run = func(ctx context.Context, args []string, out io.Writer) error

// InBubble runs the example in virtual time, and returns what it prints.
func InBubble(t *testing.T, run run, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	synctest.Test(t, func(t *testing.T) { require.NoError(t, run(t.Context(), args, &out), "%s", &out) })
	t.Logf("\n%s", &out)
	return out.String()
}

// Usage checks how the example is called. With -h it prints what it shows and which environment
// variables it reads, with exit status 0. That no server answers it says before it would try for a
// minute, in one line, with exit status 1. It refuses bad flags, given as one text each time.
func Usage(t *testing.T, name string, run run, bad ...string) {
	out, err := Output(t, "-h")
	require.NoError(t, err, "%s", out) // exit status 0
	title := strings.ToUpper(name[:1]) + name[1:]
	require.Regexp(t, `(?s)^`+regexp.QuoteMeta(
		title)+` shows .+AWS_ENDPOINT_URL .+AWS_ACCESS_KEY_ID .+AWS_SECRET_ACCESS_KEY `, out)

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	said, err := command(ctx, "-s3", "http://127.0.0.1:9", "-bucket", "b").CombinedOutput()
	require.EqualError(t, err, "exit status 1")
	require.Regexp(t, `^`+regexp.QuoteMeta(name)+`: cannot reach an S3 server at http://127\.0\.0\.1:9: [^\n]+ `+
		`\(start the server, or correct -s3 or AWS_ENDPOINT_URL\)\n$`, string(said))

	t.Setenv("AWS_ACCESS_KEY_ID", "any")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "any")
	for _, flags := range append(bad, "-x") {
		require.Error(t, run(t.Context(), strings.Fields(flags), io.Discard), flags)
	}
}

// Credentials sets the environment variables of the S3 server's credentials.
func Credentials(t *testing.T, s testserver.S3) {
	t.Setenv("AWS_ACCESS_KEY_ID", s.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", s.SecretKey)
	t.Setenv("AWS_REGION", s.Region)
}

// OnServers runs the example in a bucket of each real server, as often as told.
func OnServers(t *testing.T, times int, run run, args ...string) {
	for _, s := range []testserver.S3{testserver.MinIO(t), testserver.VersityGW(t)} {
		t.Run(s.Name, func(t *testing.T) {
			Credentials(t, s)
			args := append([]string{"-s3", s.Endpoint, "-bucket", s.Bucket(t)}, args...)
			for range times {
				var out bytes.Buffer
				require.NoError(t, run(t.Context(), args, &out), "%s", &out)
				t.Logf("\n%s", &out)
			}
		})
	}
}
