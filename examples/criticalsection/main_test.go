package main

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/examples/internal/storeflag"
	"github.com/leasehold-go/leasehold/internal/fakes3"
)

// TestMain runs main instead of the tests in a process that command has made.
func TestMain(m *testing.M) {
	if os.Getenv("RUN_MAIN") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// command returns this example as a process of its own, to be started.
func command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), "RUN_MAIN=1", "AWS_ACCESS_KEY_ID=any", "AWS_SECRET_ACCESS_KEY=any")
	return cmd
}

// program runs this example as a process of its own, and returns what it prints.
func program(t *testing.T, args ...string) (string, error) {
	out, err := command(t.Context(), args...).CombinedOutput()
	return string(out), err
}

func TestHelp(t *testing.T) {
	out, err := program(t, "-h")
	require.NoError(t, err, "%s", out) // exit status 0
	require.Regexp(t, `(?s)^Criticalsection shows .+AWS_ENDPOINT_URL .+AWS_ACCESS_KEY_ID .+AWS_SECRET_ACCESS_KEY `, out)
}

func TestDeadEndpoint(t *testing.T) {
	began := time.Now()
	out, err := program(t, "-s3", "http://127.0.0.1:9", "-bucket", "b")
	require.EqualError(t, err, "exit status 1")
	require.Regexp(t, `^criticalsection: cannot reach an S3 server at http://127\.0\.0\.1:9: [^\n]+ \(start the server, or correct -s3 or AWS_ENDPOINT_URL\)\n$`, out)
	require.Less(t, time.Since(began), 10*time.Second)
}

func TestWaiting(t *testing.T) {
	var out bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		require.NoError(t, run(t.Context(), []string{"-jobs", "2"}, &out), "%s", &out)
	})
	order := regexp.MustCompile(`(?m)^ +\d+\.\d{3}s  (job \d)  (HOLDS|waits|changes|has released)`).FindAllStringSubmatch(out.String(), -1)
	require.Len(t, order, 7, "%s", &out)
	first, second := order[0][1], order[1][1]
	require.NotEqual(t, first, second, "%s", &out)
	for i, want := range []string{
		first + " HOLDS", second + " waits", first + " changes", first + " has released",
		second + " HOLDS", second + " changes", second + " has released",
	} {
		require.Equal(t, want, order[i][1]+" "+order[i][2], "%s", &out)
	}
	require.Contains(t, out.String(), fmt.Sprintf("%s  waits, because %s of process %d holds the lock (token 1)\n", second, first, os.Getpid()))
	require.Contains(t, out.String(), second+"  changes the balance from 100 to 200\n")
}

// The job of one process waits for the holder in another one, and says so.
func TestWaitingForAnotherProcess(t *testing.T) {
	server := httptest.NewServer(&fakes3.Server{})
	defer server.Close()
	t.Setenv("AWS_ACCESS_KEY_ID", "any")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "any")
	flags := []string{"-s3", server.URL, "-bucket", fakes3.Bucket}
	set := flag.NewFlagSet("test", flag.ContinueOnError)
	where := storeflag.Add(set, "")
	require.NoError(t, set.Parse(flags))
	store, err := where.Open(t.Context())
	require.NoError(t, err)
	lock, err := leasehold.NewLock(store, "examples/criticalsection", leasehold.WithIdentity("the test"))
	require.NoError(t, err)
	lease, err := lock.Acquire(t.Context())
	require.NoError(t, err)

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := command(ctx, append(flags, "-jobs", "1")...)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	waitFor := func(text string) {
		for lines.Scan() {
			if strings.Contains(lines.Text(), text) {
				return
			}
		}
		t.Fatalf("the program has ended without %q", text)
	}
	waitFor("job 1  waits, because the test holds the lock (token 1)")
	require.NoError(t, lease.Release(t.Context()))
	waitFor("job 1  HOLDS the lock (token 2)")
	waitFor("job 1  has released the lock")
	require.NoError(t, cmd.Wait())
}

func TestBadInput(t *testing.T) {
	for _, args := range [][]string{{"-jobs", "-1"}, {"-x"}} {
		require.Error(t, run(t.Context(), args, new(bytes.Buffer)), "%v", args)
	}
}
