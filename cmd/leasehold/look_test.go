package main_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/leasehold-go/leasehold"
)

func mustUnescape(text string) string {
	plain, err := url.QueryUnescape(text)
	if err != nil {
		panic(err)
	}
	return plain
}

// view is what status, list and watch print as JSON.
type view struct {
	URL, Key, State, Holder, Error string
	Token                          uint64
	AcquiredAt                     time.Time `json:"acquired_at"`
	RenewedAt                      time.Time `json:"renewed_at"`
	ExpiresAt                      time.Time `json:"expires_at"`
	Age                            float64   `json:"age_seconds"`
}

func views(t testing.TB, out string) (all []view) {
	t.Helper()
	for line := range strings.Lines(out) {
		var v view
		require.NoError(t, json.Unmarshal([]byte(line), &v), "%s", line)
		all = append(all, v)
	}
	return all
}

func (b bucket) putObject(key, body string) {
	_, err := b.server.Client().PutObject(b.t.Context(), &s3.PutObjectInput{
		Bucket: &b.name,
		Key:    &key,
		Body:   strings.NewReader(body),
	})
	require.NoError(b.t, err)
}

func TestStatusAndList(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	held, err := b.lock("locks/held", leasehold.WithHolder("alice")).Acquire(t.Context())
	require.NoError(t, err)
	defer held.Release(t.Context())
	released, err := b.lock("locks/released", leasehold.WithHolder("bob")).Acquire(t.Context())
	require.NoError(t, err)
	require.NoError(t, released.Release(t.Context()))
	b.putObject("locks/corrupt", "no record")
	b.putObject("locks/expired", `{"expires_at": 1700000000.5, "token": 9, "holder": "gone", "ttl": 15, "nonce": "x"}`)
	b.putObject("locks/large", strings.Repeat("x", 1<<20))
	b.putObject("other/thing", "no lock")

	r := b.run("status", "-o", "json", b.url("locks/held"), b.url("locks/released"), b.url("locks/never"))
	r.succeeds(t)
	got := views(t, r.out)
	require.Len(t, got, 3)
	require.Equal(t, []any{"held", "alice", uint64(1), "locks/held"},
		[]any{got[0].State, got[0].Holder, got[0].Token, got[0].Key})
	require.WithinDuration(t, held.Record().ExpiresAt, got[0].ExpiresAt, 20*time.Second)
	require.Equal(t, []any{"free", "bob", uint64(1)}, []any{got[1].State, got[1].Holder, got[1].Token})
	require.Equal(t, []any{"free", "", uint64(0)}, []any{got[2].State, got[2].Holder, got[2].Token})

	r = b.run("list", b.url("locks/"))
	r.succeeds(t)
	lines := strings.Split(strings.TrimSpace(r.out), "\n")
	require.Len(t, lines, 6)
	require.Regexp(t, `^LOCK +STATE +TOKEN +HOLDER +TTL +SINCE +UNTIL +AGE$`, lines[0])
	require.Regexp(t, `^locks/corrupt +corrupt +0 +.*9 bytes of text that begin with "no record"`, lines[1])
	require.Regexp(t, `^locks/expired +expired +9 +gone +15s +- +2023-11-1\d \S+ [+-]\d{4} +(-|\d+s)$`, lines[2])
	require.Regexp(t, `^locks/held +held +1 +alice +15s +20\S+ \S+ [+-]\d{4} +20\S+ \S+ [+-]\d{4} +\d+s$`, lines[3])
	require.Regexp(t, `^locks/large +corrupt `, lines[4])
	require.Regexp(t, `^locks/released +free +1 +\(bob\) +15s +20.* +- +\d+s$`, lines[5])
	require.NotContains(t, r.out, "\x1b", "no colours")

	r = b.run("list", "-o", "json", b.url("locks/re"))
	r.succeeds(t)
	require.Len(t, views(t, r.out), 1)
	b.run("list", b.url("nothing/")).succeeds(t)
	r = b.run("list", "-o", "json", strings.Replace(b.url(""), "s3://", "s3://no-such-", 1))
	require.Equal(t, 78, r.code, "%s", r.stderr)
	var failed struct {
		Error string
		Code  int
	}
	require.NoError(t, json.Unmarshal([]byte(r.stderr), &failed))
	require.Equal(t, 78, failed.Code)
	require.Contains(t, failed.Error, "create the bucket")

	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer full.Close()
	for _, args := range [][]string{{"status", b.url("locks/held")}, {"list", b.url("locks/")},
		{"list", "-o", "json", b.url("locks/")}, {"man"}} {
		cmd := b.command(args...)
		cmd.Stdout = full
		finish(t, cmd).complains2(t, args, 74, "cannot be written")
	}
}

// complains2 is complains for errors that are JSON if the arguments say so.
func (r result) complains2(t testing.TB, args []string, code int, text string) {
	require.Equal(t, code, r.code, "%s", r.stderr)
	require.Contains(t, r.stderr, text)
	require.Equal(t, strings.Contains(strings.Join(args, " "), "json"),
		strings.HasPrefix(r.stderr, "{"), "%s", r.stderr)
}

// A list that does not fit on one page of the server's, in order.
func TestListIsWhole(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	const n = 1100
	store := leasehold.NewS3Store(b.server.Client(), b.name)
	body, err := leasehold.Record{Token: 1, Holder: "h", Nonce: "x"}.MarshalJSON()
	require.NoError(t, err)
	var puts errgroup.Group
	puts.SetLimit(16)
	for i := range n {
		puts.Go(func() error {
			_, err := store.PutIfNoneMatch(t.Context(), fmt.Sprintf("many/%04d", i), body)
			return err
		})
	}
	require.NoError(t, puts.Wait())
	r := b.run("list", "-o", "json", b.url("many/"))
	r.succeeds(t)
	all := views(t, r.out)
	require.Len(t, all, n)
	for i, v := range all {
		require.Equal(t, fmt.Sprintf("many/%04d", i), v.Key)
	}
}

func TestWatchPrintsEveryChange(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	lock := b.lock("locks/watched", leasehold.WithHolder("alice"))
	lease, err := lock.Acquire(t.Context())
	require.NoError(t, err)
	s := start(t, b.command("watch", "--interval", "100ms", "-o", "json", b.url("locks/watched")))
	lines := bufio.NewReader(s.out)
	next := func() view {
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		return views(t, line)[0]
	}
	require.Equal(t, "held", next().State)
	require.NoError(t, lease.Release(t.Context()))
	require.Equal(t, "free", next().State)
	lease, err = lock.Acquire(t.Context())
	require.NoError(t, err)
	again := next()
	require.Equal(t, []any{"held", uint64(2), "alice"}, []any{again.State, again.Token, again.Holder})
	require.NoError(t, lease.Release(t.Context()))
	require.NoError(t, s.Process.Signal(syscall.SIGINT))
	require.Equal(t, 130, s.wait(t), "ended by the signal, as a shell tells it")

	b.putObject("locks/broken", "x")
	b.run("watch", b.url("locks/broken")).complains(t, 78, `corrupt lock, or none at all: 1 bytes of text`)
	b.run("watch", "--interval", "1ms", b.url("locks/watched")).complains(t, 64, "--interval 1ms")
}

func TestBreak(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	lease, err := b.lock("locks/stuck", leasehold.WithHolder("alice")).Acquire(t.Context())
	require.NoError(t, err)
	defer lease.Release(t.Context())
	url := b.url("locks/stuck")
	b.run("break", url).complains(t, 64, "--token is missing")
	b.run("break", url, "--token", "2").complains(t, 64, `it is in term 1 of "alice", not 2`)
	b.run("break", url, "--token", "x").complains(t, 64, "invalid argument")
	b.run("break", url, "--token", "9007199254740992").complains(t, 64, "--token 9007199254740992 is over 2^53-1")
	b.run("break", b.url("locks/never"), "--token", "1").complains(t, 64, "never taken")
	r := b.run("break", url, "--token", "1")
	r.succeeds(t)
	require.Contains(t, r.out, "token 1 is released")
	b.run("run", "-n", url, "--", "true").succeeds(t)

	b.putObject("locks/other", "x")
	b.putObject("locks/mark", `{"token":7}`)
	before := []string{b.object("locks/other"), b.object("locks/mark")}
	for _, args := range [][]string{{"run", "-n", b.url("locks/other"), "--", "true"},
		{"break", b.url("locks/other"), "--token", "41"}} {
		b.run(args...).complains(t, 78,
			`(give another URL; or, if it was this lock, write {"expires_at":0,"token":N} over`)
	}
	b.run("break", b.url("locks/mark"), "--token", "7").complains(t, 78,
		"it is a fencing mark of package fencehttp, not a lock (give another URL)")
	require.Equal(t, before, []string{b.object("locks/other"), b.object("locks/mark")}, "nothing was written")

	b.putObject("locks/bad", `{"expires_at": 0, "token": -1}`)
	b.run("run", "-n", b.url("locks/bad"), "--", "true").complains(t, 78, `repair it with "leasehold break"`)
	b.run("break", b.url("locks/bad"), "--token", "41").succeeds(t)
	r = b.run("run", "-n", b.url("locks/bad"), "--", "sh", "-c", "echo $LEASEHOLD_TOKEN")
	r.succeeds(t)
	require.Equal(t, "42\n", r.out)
}
