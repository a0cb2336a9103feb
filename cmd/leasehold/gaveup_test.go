package main_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
)

// lastLine is the last line on standard error.
func (r result) lastLine() string {
	lines := strings.Split(strings.TrimSpace(r.stderr), "\n")
	return lines[len(lines)-1]
}

// bucketAt is a bucket that is not there.
func bucketAt(t *testing.T, endpoint string) bucket {
	return bucket{t: t, server: testserver.S3{Endpoint: endpoint, AccessKey: "a", SecretKey: "b"}, name: "bucket"}
}

// The end of --wait says for how long it was, and who or what stood in the way.
func TestTheEndOfAWait(t *testing.T) {
	t.Parallel()
	p, in := newPlace(t), "file://"+t.TempDir()+"/table"
	offline(t, "acquire", "--holder", "alice", p.url).succeeds(t)
	_, end := startHolder(t, "--slots", "1", in)
	nobody := httptest.NewServer(nil)
	nobody.Close()
	hung := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hung }))
	t.Cleanup(silent.Close)
	t.Cleanup(func() { close(hung) })
	t.Run("waits", func(t *testing.T) {
		for name, c := range map[string]struct {
			args, endpoint string
			code           int
			says           string
		}{
			"run":               {"run LOCK -- true", "", 75, `held by "alice" with token 1, `},
			"acquire":           {"acquire LOCK", "", 75, `held by "alice" with token 1, `},
			"run in a table":    {"run --slots 1 TABLE -- true", "", 75, `held: "run" of table "table", by `},
			"no server":         {"run URL -- true", nobody.URL, 69, "cannot reach the store at " + nobody.URL},
			"no server, table":  {"run --slots 1 URL -- true", nobody.URL, 69, "cannot reach the store at "},
			"no answer":         {"acquire URL", silent.URL, 69, "the store has not answered"},
			"no answer, table":  {"run --shared URL -- true", silent.URL, 69, "the store has not answered"},
			"longer than a TTL": {"run --shared --ttl 1s URL -- true", silent.URL, 69, "the store has not answered"},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b := bucketAt(t, c.endpoint)
				fill := strings.NewReplacer("LOCK", p.url, "TABLE", in, "URL", b.url("a"))
				args := strings.Fields(fill.Replace(c.args))
				r := b.run(append([]string{args[0], "--wait", "2s"}, args[1:]...)...)
				require.Equal(t, c.code, r.code, "%s", r.stderr)
				require.Regexp(t, `^leasehold: gave up after [2-9]s \(--wait\): `, r.lastLine())
				require.Contains(t, r.lastLine(), c.says)
				require.NotContains(t, r.lastLine(), "context deadline exceeded")
			})
		}
	})
	end()
}

// Without a wait, the store that cannot be reached is the cause, at once, also for a lock in a
// table.
func TestNoWaitForATableThatCannotBeReached(t *testing.T) {
	t.Parallel()
	nobody := httptest.NewServer(nil)
	nobody.Close()
	b := bucketAt(t, nobody.URL)
	began := time.Now()
	r := b.run("run", "--no-wait", "--slots", "2", "--ttl", "1h", b.url("a"), "--", "true")
	require.Equal(t, 69, r.code, "%s", r.stderr)
	require.Regexp(t, "^leasehold: cannot reach the store at "+nobody.URL+": .*connection refused", r.lastLine())
	require.Less(t, time.Since(began), 5*time.Minute, "a TTL is an hour")
}
