package main_test

import (
	"bufio"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
)

// Each state of a lock has its line, also the first one, and the same state has one line only.
func TestWatchHasALineForEachState(t *testing.T) {
	p := newPlace(t)
	s := start(t, p.command("watch", "--interval", "100ms", p.url))
	lines := bufio.NewReader(s.out)
	shows := func(pattern string) {
		t.Helper()
		got := make(chan string, 1)
		go func() {
			line, _ := lines.ReadString('\n')
			got <- line
		}()
		select {
		case line := <-got:
			require.Regexp(t, `^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4} `+pattern+"\n$", line)
		case <-time.After(time.Minute):
			require.Fail(t, "no line", pattern)
		}
	}
	shows(`never taken`)
	lease, err := p.lock(leasehold.WithHolder("alice"), leasehold.WithTTL(time.Hour)).Acquire(t.Context())
	require.NoError(t, err)
	shows(`token 1 held by alice since .*`)
	require.NoError(t, lease.Release(t.Context()))
	shows(`token 1 released by alice`)
	lease, err = p.lock(leasehold.WithHolder("bob"), leasehold.WithTTL(2*time.Second),
		leasehold.WithManualRenewal()).Acquire(t.Context())
	require.NoError(t, err)
	shows(`token 2 held by bob since .*`)
	shows(`token 2 of bob has expired: not renewed since .*`)
	lease.Abandon()
	lease, err = p.lock(leasehold.WithHolder("carol"), leasehold.WithTTL(time.Hour)).Acquire(t.Context())
	require.NoError(t, err)
	shows(`token 3 held by carol since .*`)
	require.NoError(t, os.Remove(filepath.Join(p.dir, "a.object")))
	shows(`deleted: there is no lock object any more`)
	p.put("a", []byte("no record"))
	require.Equal(t, 78, s.wait(t))
	require.Regexp(t, "^leasehold: .*corrupt", s.stderr.String())
	_ = lease
}

// The record of a foreign client need not have a token.
func TestWatchShowsALockWithoutAToken(t *testing.T) {
	p := newPlace(t)
	p.put("a", []byte(`{"expires_at": 32503680000, "holder": "foreign"}`))
	s := start(t, p.command("watch", "--interval", "100ms", p.url))
	line, err := bufio.NewReader(s.out).ReadString('\n')
	require.NoError(t, err)
	require.Regexp(t, ` token 0 held by foreign since -\n$`, line)
}

// A machine that starts may have no DNS yet. The watch says so, and goes on.
func TestWatchWaitsForTheNetwork(t *testing.T) {
	p := newPlace(t)
	cmd := p.command("watch", "--interval", "100ms",
		"s3://bucket/key?region=x&path-style=1&endpoint=http://no-such-host.invalid")
	cmd.Env = append(cmd.Env, "AWS_ACCESS_KEY_ID=x", "AWS_SECRET_ACCESS_KEY=y")
	s := start(t, cmd)
	select {
	case <-s.ended:
		require.Fail(t, "it has not waited", "%s", &s.stderr)
	case <-time.After(3 * time.Second):
	}
	require.NoError(t, s.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 143, s.wait(t))
	require.Equal(t, 1, strings.Count(s.stderr.String(), `the host "no-such-host.invalid" is unknown`))
}

// A holder that renews is there, whatever the clocks say. One that was silent for its TTL has
// expired.
func TestWatchBelievesWhatItSees(t *testing.T) {
	p := newPlace(t)
	old := time.Now().Add(-time.Hour)
	record := leasehold.Record{
		Token:      7,
		Holder:     "gone",
		TTL:        2 * time.Second,
		Nonce:      "x",
		AcquiredAt: old,
		RenewedAt:  old,
		ExpiresAt:  old.Add(2 * time.Second),
	}
	began := time.Now()
	p.record("a", record)
	s := start(t, p.command("watch", "--interval", "100ms", "-o", "json", p.url))
	lines := bufio.NewReader(s.out)
	shows := func(state string) {
		t.Helper()
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, state, views(t, line)[0].State)
	}
	shows("held")
	shows("expired")
	require.GreaterOrEqual(t, time.Since(began), record.TTL)
	store := leasehold.NewFileStore(p.dir)
	o, err := store.Get(t.Context(), "a")
	require.NoError(t, err)
	record.Nonce, record.RenewedAt = "y", old.Add(time.Second)
	record.ExpiresAt = record.RenewedAt.Add(record.TTL)
	body, err := record.MarshalJSON()
	require.NoError(t, err)
	_, err = store.PutIfMatch(t.Context(), "a", body, o.ETag)
	require.NoError(t, err)
	shows("held") // it is its clock that is an hour late
	shows("expired")
}

var goWords = regexp.MustCompile(
	`\b(Lock\.|Lease\.|Elector\.|With[A-Z]|UsePathStyle|NewLock|client's options|in its options|time\.)`)
