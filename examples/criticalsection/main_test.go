package main

import (
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/examples/internal/storeflag"
	"github.com/leasehold-go/leasehold/internal/testkit/exampletest"
	"github.com/leasehold-go/leasehold/internal/testkit/fakes3"
)

func TestMain(m *testing.M) { exampletest.Main(main, m) }

func TestUsage(t *testing.T) { exampletest.Usage(t, "criticalsection", run, "-jobs -1") }

// What two jobs print at one moment has no order. The balance shows that they run one after the
// other.
func TestWaiting(t *testing.T) {
	out := exampletest.InBubble(t, run, "-jobs", "2")
	does := map[string][]string{}
	for _, line := range regexp.MustCompile(
		`(?m)^ +\d+\.\d{3}s  (job \d) (HOLDS|waits|changes|has released)`).FindAllStringSubmatch(out, -1) {
		does[line[1]] = append(does[line[1]], line[2])
	}
	first := regexp.MustCompile(`(job \d) HOLDS the lock \(token 1\)`).FindStringSubmatch(out)[1]
	second := map[string]string{"job 1": "job 2", "job 2": "job 1"}[first]
	require.Equal(t, map[string][]string{
		first:  {"HOLDS", "changes", "has released"},
		second: {"waits", "HOLDS", "changes", "has released"},
	}, does)
	require.Contains(t, out, fmt.Sprintf("%s waits, because %s of process %d holds the lock (token 1)\n",
		second, first, os.Getpid()))
	require.Contains(t, out, second+" changes the balance from 100 to 200\n")
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

	job := exampletest.Start(t, append(flags, "-jobs", "1")...)
	job.Says(t, `job 1 waits, because the test holds the lock \(token 1\)`)
	require.NoError(t, lease.Release(t.Context()))
	job.Says(t, `job 1 HOLDS the lock \(token 2\)`)
	job.Says(t, "job 1 has released the lock")
	job.Ends(t)
}
