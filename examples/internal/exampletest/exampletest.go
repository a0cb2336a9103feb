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
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
)

const asMain = "RUN_MAIN"

// Main runs main in a process that [Command] has made, and tests in all others.
func Main(main func(), tests func() int) {
	if os.Getenv(asMain) != "" {
		main()
		return
	}
	os.Exit(tests())
}

// Command returns the example of this test as a process, to be started.
func Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), asMain+"=1", "AWS_ACCESS_KEY_ID=any", "AWS_SECRET_ACCESS_KEY=any")
	return cmd
}

// Output runs the example to its end and returns what it prints.
func Output(t *testing.T, args ...string) (string, error) {
	out, err := Command(t.Context(), args...).CombinedOutput()
	return string(out), err
}

// Help checks that -h prints what the example shows and which environment variables it reads, with
// exit status 0.
func Help(t *testing.T, name string) {
	out, err := Output(t, "-h")
	require.NoError(t, err, "%s", out) // exit status 0
	title := strings.ToUpper(name[:1]) + name[1:]
	require.Regexp(t, `(?s)^`+regexp.QuoteMeta(
		title)+` shows .+AWS_ENDPOINT_URL .+AWS_ACCESS_KEY_ID .+AWS_SECRET_ACCESS_KEY `, out)
}

// DeadEndpoint checks that the example says, before it would try for a minute, in one line, that no
// server answers, with exit status 1.
func DeadEndpoint(t *testing.T, name string) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	body, err := Command(ctx, "-s3", "http://127.0.0.1:9", "-bucket", "b").CombinedOutput()
	out := string(body)
	require.EqualError(t, err, "exit status 1")
	require.Regexp(t, `^`+regexp.QuoteMeta(name)+`: cannot reach an S3 server at http://127\.0\.0\.1:9: [^\n]+ `+
		`\(start the server, or correct -s3 or AWS_ENDPOINT_URL\)\n$`, out)
}

// OnServers runs the example in a bucket of each real server, as often as told.
func OnServers(t *testing.T, times int, run func(context.Context, []string, io.Writer) error, args ...string) {
	for _, s := range []testserver.S3{testserver.MinIO(t), testserver.VersityGW(t)} {
		t.Run(s.Name, func(t *testing.T) {
			t.Setenv("AWS_ACCESS_KEY_ID", s.AccessKey)
			t.Setenv("AWS_SECRET_ACCESS_KEY", s.SecretKey)
			args := append([]string{"-s3", s.Endpoint, "-bucket", s.Bucket(t)}, args...)
			for range times {
				var out bytes.Buffer
				require.NoError(t, run(t.Context(), args, &out), "%s", &out)
				t.Logf("\n%s", &out)
			}
		})
	}
}
