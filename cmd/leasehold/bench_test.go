package main_test

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/faultproxy"
)

// row is what bench prints as JSON.
type row struct {
	Operation                              string
	Rounds                                 int
	Median, Worst, Requests, RatioOfTheTTL float64
}

// benchRows checks what every bench shows.
func benchRows(t testing.TB, out string, rounds int, ttl time.Duration) (all map[string]row) {
	t.Helper()
	all = make(map[string]row)
	for line := range strings.Lines(out) {
		var got struct {
			row
			Median   float64 `json:"median_seconds"`
			Worst    float64 `json:"worst_seconds"`
			InTTLs   float64 `json:"worst_ttls"`
			Requests float64
		}
		require.NoError(t, json.Unmarshal([]byte(line), &got), "%s", line)
		all[got.Operation] = row{got.Operation, got.Rounds, got.Median, got.Worst, got.Requests, got.InTTLs}
	}
	require.Len(t, all, 5)
	for _, name := range []string{"acquire", "renew", "release"} {
		r := all[name]
		require.Equal(t, rounds, r.Rounds)
		require.Positive(t, r.Median)
		require.GreaterOrEqual(t, r.Worst, r.Median)
		require.Less(t, r.Worst, ttl.Seconds())
	}
	over := all["take over"]
	require.Equal(t, 1, over.Rounds)
	require.GreaterOrEqual(t, over.Worst, 0.99*ttl.Seconds(), "nobody leads before a TTL has passed")
	require.Less(t, over.Worst, 5*ttl.Seconds())
	require.InDelta(t, over.Worst/ttl.Seconds(), over.RatioOfTheTTL, 1e-9)
	return all
}

// benchTTL is so long that a machine that is busy neither loses a lease nor repeats a request. The
// tests only wait for it.
const benchTTL = 8 * time.Second

func TestBench(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	proxy := faultproxy.Start(t, b.server.Endpoint, func(*http.Request) faultproxy.Fault { return faultproxy.Fault{} })
	lease, err := b.lock("locks/a", leasehold.WithHolder("another")).Acquire(t.Context())
	require.NoError(t, err)
	defer lease.Release(t.Context())
	r := b.run("bench", "-o", "json", "--rounds", "3", "--ttl", benchTTL.String(), b.urlAt(proxy.URL(), "locks/a"))
	r.succeeds(t)
	rows := benchRows(t, r.out, 3, benchTTL)
	require.Equal(t, []float64{2, 1, 1}, []float64{rows["acquire"].Requests, rows["renew"].Requests,
		rows["release"].Requests})
	require.Greater(t, rows["take over"].Requests, 5.0, "the candidate reads the lock again and again")
	require.EqualValues(t, len(proxy.Requests()), rows["in all"].Requests, "what it counts is what the server gets")
	for _, sent := range proxy.Requests() {
		require.Equal(t, "/"+b.name+"/locks/a-bench", sent.Path, "the lock itself is left alone")
	}
	_, err = b.lock("locks/a-bench").Inspect(t.Context())
	require.ErrorIs(t, err, leasehold.ErrNotExist)

	r = b.run("bench", "--rounds", "1", "--ttl", benchTTL.String(), b.url("locks/a"))
	r.succeeds(t)
	lines := strings.Split(strings.TrimSpace(r.out), "\n")
	require.Len(t, lines, 6)
	shape := regexp.MustCompile(`[ 0-9.mµs]+`)
	require.Equal(t, shape.ReplaceAllString(snippet(t, "text", "OPERATION"), "#"),
		shape.ReplaceAllString(r.out, "#"), "as on the page")
	require.Regexp(t, `^OPERATION +ROUNDS +MEDIAN +WORST +REQUESTS$`, lines[0])
	require.Regexp(t, `^acquire +1 +[0-9.]+m?s +[0-9.]+m?s +2$`, lines[1])
	require.Regexp(t, `^take over +1 +[0-9.]+s +[0-9.]+s \([1-4]\.\d\d TTL\) +\d+$`, lines[4])
	require.Regexp(t, `^in all +- +- +- +\d+$`, lines[5])
}

// Without the permission to delete, one object stays, and is used again.
func TestBenchThatMayNotDelete(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	proxy := faultproxy.Start(t, b.server.Endpoint, func(r *http.Request) faultproxy.Fault {
		if r.Method == http.MethodDelete {
			return faultproxy.Fault{Kind: faultproxy.Answer, Status: http.StatusForbidden}
		}
		return faultproxy.Fault{}
	})
	for want := range 2 {
		r := b.run("bench", "-o", "json", "--rounds", "1", "--ttl", benchTTL.String(), b.urlAt(proxy.URL(), "locks/a"))
		require.Equal(t, 0, r.code, "%s", r.stderr)
		require.Contains(t, r.stderr, "the next bench uses it")
		benchRows(t, r.out, 1, benchTTL)
		rec, err := b.lock("locks/a-bench").Inspect(t.Context())
		require.NoError(t, err)
		require.True(t, rec.Released())
		require.EqualValues(t, 4*(want+1), rec.Token, "a first lease, one round, and two of the takeover")
	}
}

func TestBenchNeverTouchesWhatIsNotItsOwn(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	lease, err := b.lock("locks/a-bench").Acquire(t.Context())
	require.NoError(t, err)
	require.NoError(t, lease.Release(t.Context()))
	b.run("bench", b.url("locks/a")).complains(t, 78, "is a lock, but not a lock of bench (give another URL)")
	b.putObject("locks/b-bench", "a page")
	b.run("bench", b.url("locks/b")).complains(t, 78, "corrupt lock, or none at all")
	rec, err := b.lock("locks/a-bench").Inspect(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, rec.Token)
}

// A bench that is interrupted leaves nothing. One that was killed leaves its lock, which the next
// one waits for or reports.
func TestBenchThatDoesNotReachItsEnd(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	url := b.url("locks/a")
	halfway := func() *started {
		s := start(t, b.command("bench", "--rounds", "1", "--ttl", "10s", url))
		require.Eventually(t, func() bool {
			rec, err := b.lock("locks/a-bench").Inspect(t.Context())
			return err == nil && rec.Token == 3 && !rec.Released()
		}, time.Minute, 10*time.Millisecond)
		return s
	}
	s := halfway()
	b.run("bench", "--rounds", "1", url).complains(t, 75, "is held by")
	require.NoError(t, s.Process.Signal(syscall.SIGINT))
	require.Equal(t, 128+2, s.wait(t), "%s", &s.stderr)
	_, err := b.lock("locks/a-bench").Inspect(t.Context())
	require.ErrorIs(t, err, leasehold.ErrNotExist)

	halfway().Process.Kill()
	store := leasehold.NewS3Store(b.server.Client(), b.name)
	o, err := store.Get(t.Context(), "locks/a-bench")
	require.NoError(t, err)
	var rec leasehold.Record
	require.NoError(t, rec.UnmarshalJSON(o.Body))
	rec.TTL, rec.ExpiresAt = time.Second, rec.RenewedAt.Add(-time.Hour) // as if time had passed
	body, err := rec.MarshalJSON()
	require.NoError(t, err)
	_, err = store.PutIfMatch(t.Context(), "locks/a-bench", body, o.ETag)
	require.NoError(t, err)
	r := b.run("bench", "-o", "json", "--rounds", "1", "--ttl", benchTTL.String(), url)
	require.Equal(t, 0, r.code, "%s", r.stderr)
	benchRows(t, r.out, 1, benchTTL)
}

func TestBenchOfAGoogleCloudStorage(t *testing.T) {
	t.Parallel() // it waits for TTLs
	endpoint, gs := newGCS(t, "leasehold-bench")
	began := time.Now()
	r := gs("bench", "-o", "json", "--rounds", "2", "gs://leasehold-bench/locks/a?endpoint="+endpoint)
	r.succeeds(t)
	rows := benchRows(t, r.out, 2, 6*time.Second)
	require.Equal(t, []float64{2, 1, 1}, []float64{rows["acquire"].Requests, rows["renew"].Requests,
		rows["release"].Requests})
	require.Greater(t, time.Since(began), 20*time.Second, "two TTLs, a TTL, and a second between two writes")
	r = gs("status", "-o", "json", "gs://leasehold-bench/locks/a-bench?endpoint="+endpoint)
	r.succeeds(t)
	require.Zero(t, views(t, r.out)[0].Token, "nothing is left")
	gs("bench", "--ttl", "3s", "gs://leasehold-bench/locks/a?endpoint="+endpoint).complains(t, 64,
		"--ttl 3s is below 6s")
}

func TestBenchOfADirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := offline(t, "bench", "-o", "json", "--ttl", benchTTL.String(), "file://"+dir+"/a")
	r.succeeds(t)
	rows := benchRows(t, r.out, 20, benchTTL)
	require.Equal(t, []float64{2, 1, 1}, []float64{rows["acquire"].Requests, rows["renew"].Requests,
		rows["release"].Requests})
	require.Equal(t, []string{".leasehold-lock"}, namesIn(t, dir))
	offline(t, "bench", "--rounds", "0", "file://"+dir+"/a").complains(t, 64, "--rounds 0 is below 1")
	offline(t, "bench", "file://"+dir+"/"+strings.Repeat("k", 1020)).complains(t, 64, "longer than 1024 bytes")
}
