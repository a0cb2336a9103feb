package main

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/examples/internal/exampletest"
	"github.com/leasehold-go/leasehold/examples/internal/storeflag"
	"github.com/leasehold-go/leasehold/internal/testkit/fakes3"
)

func TestMain(m *testing.M) { exampletest.Main(main, m.Run) }

func TestHelp(t *testing.T) { exampletest.Help(t, "criticalsection") }

func TestDeadEndpoint(t *testing.T) { exampletest.DeadEndpoint(t, "criticalsection") }

func TestWaiting(t *testing.T) {
	var out bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		require.NoError(t, run(t.Context(), []string{"-jobs", "2"}, &out), "%s", &out)
	})
	order := regexp.MustCompile(
		`(?m)^ +\d+\.\d{3}s  (job \d) (HOLDS|waits|changes|has released)`).FindAllStringSubmatch(out.String(), -1)
	require.Len(t, order, 7, "%s", &out)
	first, second := order[0][1], order[1][1]
	require.NotEqual(t, first, second, "%s", &out)
	for i, want := range []string{
		first + " HOLDS", second + " waits", first + " changes", first + " has released",
		second + " HOLDS", second + " changes", second + " has released",
	} {
		require.Equal(t, want, order[i][1]+" "+order[i][2], "%s", &out)
	}
	require.Contains(t, out.String(), fmt.Sprintf("%s waits, because %s of process %d holds the lock (token 1)\n",
		second, first, os.Getpid()))
	require.Contains(t, out.String(), second+" changes the balance from 100 to 200\n")
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
	lock, err := leasehold.NewLock(store, "examples/criticalsection", leasehold.WithHolder("the test"))
	require.NoError(t, err)
	lease, err := lock.Acquire(t.Context())
	require.NoError(t, err)

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exampletest.Command(ctx, append(flags, "-jobs", "1")...)
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
	waitFor("job 1 waits, because the test holds the lock (token 1)")
	require.NoError(t, lease.Release(t.Context()))
	waitFor("job 1 HOLDS the lock (token 2)")
	waitFor("job 1 has released the lock")
	require.NoError(t, cmd.Wait())
}

func TestBadInput(t *testing.T) {
	for _, args := range [][]string{{"-jobs", "-1"}, {"-x"}} {
		require.Error(t, run(t.Context(), args, new(bytes.Buffer)), "%v", args)
	}
}
