package main_test

import (
	"bufio"
	"context"
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
	shows(`free: never taken`)
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

// Wrong arguments have the exit code of the page, and a text in words of the command.
func TestArgumentsThatCannotWork(t *testing.T) {
	p := newPlace(t)
	require.NoError(t, os.Mkdir(filepath.Join(p.dir, "bin"), 0o755))
	p.put("corrupt", []byte(`{"expires_at": -1}`))
	p.put("other", []byte("x"))
	require.NoError(t, os.WriteFile(filepath.Join(p.dir, "cut.object"), []byte("x"), 0o600))
	lease, err := p.lock(leasehold.WithHolder("another")).Acquire(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = lease.Release(context.Background()) }) // after all of the parallel tests
	there := "file://" + p.dir + "/"
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"waiting for no time": {
			[]string{"run", "--wait", "0", p.url, "--", "true"},
			75,
			`held by "another"`,
		},
		"waiting for no time, acquire": {[]string{"acquire", "--wait", "0s", p.url}, 75, `held by "another"`},
		"an exit code over 255": {
			[]string{"run", "-n", "--held-code", "256", p.url, "--", "true"},
			64,
			"from 0 to 255",
		},
		"an exit code below 0": {
			[]string{"run", "-n", "--held-code", "-1", p.url, "--", "true"},
			64,
			"from 0 to 255",
		},
		"no margin": {
			[]string{"run", "--margin", "0", p.url, "--", "true"},
			64,
			"--margin 0s is not positive",
		},
		"a margin below 0": {
			[]string{"elect", "--margin", "-1s", p.url, "--", "true"},
			64,
			"--margin -1s is not positive",
		},
		"a margin that leaves no time": {
			[]string{"run", "--margin", "20s", p.url, "--", "true"},
			64,
			"a shorter --margin or a longer --ttl",
		},
		"a TTL that is too long": {
			[]string{"run", "--ttl", "900000h", p.url, "--", "true"},
			64,
			"--ttl 900000h0m0s is over",
		},
		"a margin of a nanosecond": {
			[]string{"run", "--margin", "1ns", p.url, "--", "true"},
			64,
			"--margin 1ns is below 10ms: the holder's code needs time to stop",
		},
		"a TTL of a nanosecond": {
			[]string{"run", "--ttl", "1ns", p.url, "--", "true"},
			64,
			"--ttl 1ns is below 1s",
		},
		"no such shell":                {[]string{"completion", "nosuch"}, 64, `"nosuch"`},
		"no such help":                 {[]string{"help", "nosuch"}, 64, `no help about "nosuch"`},
		"no such help below a command": {[]string{"help", "run", "nosuch"}, 64, `no help about "run nosuch"`},
		"a directory as command":       {[]string{"run", there + "x", "--", p.dir}, 126, "is a directory"},
		"a directory as command, ./":   {[]string{"run", there + "x", "--", p.dir + "/bin/"}, 126, "is a directory"},
		"a directory for the handle": {
			[]string{"acquire", "--handle-file", filepath.Join(p.dir, "bin"), there + "x"},
			64,
			"is a directory",
		},
		"metadata without a value": {
			[]string{"acquire", "-n", "--metadata", "x", p.url},
			64,
			"is not a name, an equals sign and a value",
		},
		"metadata without a name": {
			[]string{"acquire", "-n", "--metadata", "=x", p.url},
			64,
			"is not a name, an equals sign and a value",
		},
		"a corrupt record": {
			[]string{"run", "-n", there + "corrupt", "--", "true"},
			78,
			`repair it with "leasehold break"`,
		},
		"another object": {
			[]string{"run", "-n", there + "other", "--", "true"},
			78,
			"(give another URL; or, if it was this lock, write",
		},
		"a corrupt file": {
			[]string{"run", "-n", there + "cut", "--", "true"},
			78,
			`"leasehold break" repairs it if it was a lock`,
		},
		"a scheme in capitals, no slash": {[]string{"status", "S3:bucket/key"}, 64, "write s3://bucket/key"},
		"a bucket that is none": {
			[]string{"status", "s3://bad,bucket/key?region=x"},
			78,
			"only letters, digits",
		},
		"no region": {[]string{"status", "s3://bucket/key"}, 78, "?region=NAME"},
		"a long holder": {
			[]string{"run", "-n", "--holder", strings.Repeat("x", 1025), there + "x", "--", "true"},
			64,
			"--holder must be",
		},
		"an interval that is too short": {[]string{"watch", "--interval", "1us", p.url}, 64, "--interval 1µs"},
		"no host of that name": {
			[]string{"status", "s3://bucket/key?region=x&path-style=0&endpoint=http://no-such-host.invalid"},
			69,
			"path-style=1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := p.command(c.args...)
			cmd.Env = append(cmd.Env, "AWS_ACCESS_KEY_ID=x", "AWS_SECRET_ACCESS_KEY=y")
			r := finish(t, cmd)
			r.complains(t, c.code, c.says)
			require.NotRegexp(t, goWords, r.stderr)
			require.Empty(t, r.out)
		})
	}
}

func TestArgumentsThatWork(t *testing.T) {
	p := newPlace(t)
	r := offline(t, "acquire", "--metadata", "rev=1,2=3", "--metadata", "by=a\"b",
		strings.Replace(p.url, "file://", "FILE://", 1))
	r.succeeds(t)
	require.True(t, strings.HasPrefix(r.out, p.url+"#term=1-"), "%s", r.out)
	record, err := p.lock().Inspect(t.Context())
	require.NoError(t, err)
	require.Equal(t, "1,2=3", record.Metadata["rev"])
	require.Equal(t, `a"b`, record.Metadata["by"])
	for _, args := range [][]string{{"help"}, {"help", "run"}, {"help", "urls"},
		{"help", "completion", "bash"}, {"run", "--help"}} {
		r := offline(t, args...)
		r.succeeds(t)
		require.NotEmpty(t, r.out)
	}
	require.Equal(t, 255, offline(t, "run", "-n", "--held-code", "255", p.url, "--", "true").code)
}

func TestListOfABucketThatIsMissing(t *testing.T) {
	endpoint, gs := newGCS(t, "leasehold-list")
	gs("list", "gs://no-such-bucket/?endpoint="+endpoint).complains(t, 78, "create it")
}
