//go:build unix

package main

import (
	"bytes"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/testserver"
)

// TestMain runs main instead of the tests in a process that program has started, and in the writers that main starts.
func TestMain(m *testing.M) {
	if os.Getenv("RUN_MAIN") != "" || slices.Contains(os.Args, "-writer") {
		main()
		return
	}
	os.Exit(testserver.Main(m))
}

// program runs this example as a process of its own, and returns what it prints.
func program(t *testing.T, args ...string) (string, error) {
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), "RUN_MAIN=1", "AWS_ACCESS_KEY_ID=any", "AWS_SECRET_ACCESS_KEY=any")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestHelp(t *testing.T) {
	out, err := program(t, "-h")
	require.NoError(t, err, "%s", out) // exit status 0
	require.Regexp(t, `(?s)^Fencedwriter shows .+AWS_ENDPOINT_URL .+AWS_ACCESS_KEY_ID .+AWS_SECRET_ACCESS_KEY `, out)
}

func TestDeadEndpoint(t *testing.T) {
	began := time.Now()
	out, err := program(t, "-s3", "http://127.0.0.1:9", "-bucket", "b")
	require.EqualError(t, err, "exit status 1")
	require.Regexp(t, `^fencedwriter: cannot reach an S3 server at http://127\.0\.0\.1:9: [^\n]+ \(start the server, or correct -s3 or AWS_ENDPOINT_URL\)\n$`, out)
	require.Less(t, time.Since(began), 10*time.Second)
}

func TestRun(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), nil, &out), "%s", &out)
	t.Logf("%s", &out)
	require.Contains(t, out.String(), `in the object: "written by alice": WRONG`)
	require.Contains(t, out.String(), `in the object: "written by bob": right`)
	require.Contains(t, out.String(), "token 1: alice's write is refused, because a leader with token 2 has written\n")
}

func TestOnServers(t *testing.T) {
	for _, s := range []testserver.S3{testserver.MinIO(t), testserver.VersityGW(t)} {
		t.Run(s.Name, func(t *testing.T) {
			t.Setenv("AWS_ACCESS_KEY_ID", s.AccessKey)
			t.Setenv("AWS_SECRET_ACCESS_KEY", s.SecretKey)
			args := []string{"-s3", s.Endpoint, "-bucket", s.Bucket(t)}
			for range 2 { // tokens go on
				var out bytes.Buffer
				require.NoError(t, run(t.Context(), args, &out), "%s", &out)
			}
		})
	}
}

func TestBadInput(t *testing.T) {
	for _, args := range [][]string{{"-s3", "foo", "-bucket", "b"}, {"-x"}} {
		require.Error(t, run(t.Context(), args, new(bytes.Buffer)), "%v", args)
	}
}
