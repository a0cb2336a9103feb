package main_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/testkit/faultproxy"
)

func TestAHandleGoesThroughThePipeline(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	url := b.url("locks/deploy")
	r := b.run("acquire", "--ttl", "1h", "--holder", "ci", "--metadata", "build=42", url)
	r.succeeds(t)
	handle := strings.TrimSuffix(r.out, "\n")
	require.NotContains(t, handle, "\n")
	require.Regexp(t, `^s3://`+b.name+`/locks/deploy\?endpoint=.*#term=1-[A-Z2-7]{26}$`, handle)

	first, err := b.lock("locks/deploy").Inspect(t.Context())
	require.NoError(t, err)
	require.Equal(t, time.Hour, first.TTL)
	require.Equal(t, "42", first.Metadata["build"])
	_, secret, _ := strings.Cut(handle, "-")
	body, err := first.MarshalJSON()
	require.NoError(t, err)
	require.NotContains(t, string(body), secret[len(secret)-26:], "whoever may read the bucket does not learn "+
		"the secret")
	b.run("run", "-n", url, "--", "true").complains(t, 75, `held by "ci" with token 1`)

	r = b.run("renew", handle)
	r.succeeds(t)
	require.Contains(t, r.out, ": renewed token 1 until ")
	second, err := b.lock("locks/deploy").Inspect(t.Context())
	require.NoError(t, err)
	require.True(t, second.ExpiresAt.After(first.ExpiresAt))
	require.NotEqual(t, first.Nonce, second.Nonce)
	first.ExpiresAt, first.RenewedAt, first.Nonce = second.ExpiresAt, second.RenewedAt, second.Nonce
	require.Equal(t, first, second, "nothing else has changed")

	b.run("renew", "--ttl", "2h", handle).succeeds(t)
	b.run("renew", handle).succeeds(t)
	third, err := b.lock("locks/deploy").Inspect(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2*time.Hour, third.TTL, "from then on")
	require.WithinDuration(t, time.Now().Add(2*time.Hour), third.ExpiresAt, time.Minute)

	cmd := b.command("release")
	cmd.Env = append(cmd.Env, "LEASEHOLD_HANDLE="+handle)
	finish(t, cmd).succeeds(t)
	b.run("release", handle).succeeds(t) // twice does no harm
	b.run("renew", handle).complains(t, 79, "lease released (token 1)")

	r = b.run("acquire", "-o", "json", url)
	r.succeeds(t)
	var got struct {
		Handle, URL, Key, Holder string
		Token                    uint64
		TTL                      float64   `json:"ttl_seconds"`
		Expires                  time.Time `json:"expires_at"`
	}
	require.NoError(t, json.Unmarshal([]byte(r.out), &got))
	require.EqualValues(t, 2, got.Token)
	require.EqualValues(t, 3600, got.TTL)
	require.Equal(t, url, mustUnescape(got.URL))
	require.WithinDuration(t, time.Now().Add(time.Hour), got.Expires, time.Minute)
	b.run("release", handle).complains(t, 79, "taken over by")
	b.run("release", got.Handle).succeeds(t)
	b.run("release", handle).complains(t, 79, "with token 2, and released since")
}

// A lease that has run out can be renewed as long as nobody else has taken the lock: the token
// proves that there was nobody.
func TestRenewAfterTheLeaseHasRunOut(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	r := b.run("acquire", "--ttl", "1s", b.url("locks/late"))
	r.succeeds(t)
	handle := strings.TrimSpace(r.out)
	time.Sleep(1200 * time.Millisecond)
	b.run("renew", handle).succeeds(t)
	lease, err := b.lock("locks/late", leasehold.WithHolder("next")).Acquire(soon(t))
	require.NoError(t, err)
	b.run("renew", handle).complains(t, 79, `taken over by "next" with token 2`)
	b.run("release", handle).complains(t, 79, `taken over by "next" with token 2`)
	require.NoError(t, lease.Renew(t.Context()))
	require.NoError(t, lease.Release(t.Context()))
}

// A handle of a term that does not go on costs one read at most, and nothing is written.
func TestHandlesOfNoTerm(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	endpoint, sent := b.counted()
	acquired := func(lock string) string {
		r := b.run("acquire", b.urlAt(endpoint, "locks/"+lock))
		r.succeeds(t)
		return strings.TrimSpace(r.out)
	}
	older := acquired("a")
	b.run("release", older).succeeds(t)
	current, other, again := acquired("a"), acquired("other"), acquired("again")
	b.run("release", again).succeeds(t)
	again = acquired("again")
	b.putObject("locks/foreign", fmt.Sprintf(`{"expires_at": %d, "token": 2}`, time.Now().Add(time.Hour).Unix()))
	b.putObject("locks/page", "a page")
	at := func(lock, handle string) string {
		_, term, _ := strings.Cut(handle, "#")
		return b.urlAt(endpoint, "locks/"+lock) + "#" + term
	}
	secret := current[len(current)-26:]
	for name, c := range map[string]struct {
		handle   string
		code     int
		says     string
		requests []string
	}{
		"cut short":             {current[:len(current)-1], 64, "pass what acquire has printed", nil},
		"of an earlier version": {strings.Replace(current, "#term=", "#", 1), 64, "from an earlier version", nil},
		"a token that cannot be": {
			strings.Replace(current, "#term=2", "#term=9007199254740992", 1),
			78,
			"cut short or changed (pass what acquire has printed)",
			[]string{"GET"},
		},
		"a wrong secret": {
			strings.TrimSuffix(current, secret) + strings.Repeat("A", 26),
			79,
			"does not have the secret of this term",
			[]string{"GET"},
		},
		"an older term":           {older, 79, `taken over by "`, []string{"GET"}},
		"another lock, same term": {at("again", current), 79, "it is of another lock", []string{"GET"}},
		"another lock, fewer terms": {
			at("other", current),
			79,
			"1 terms: the handle is of another lock",
			[]string{"GET"},
		},
		"another lock, more terms": {at("a", other), 79, `taken over by "`, []string{"GET"}},
		"another lock, never taken": {
			at("none", current),
			79,
			"deleted, or the handle is of another lock",
			[]string{"GET"},
		},
		"a term of a foreign client": {at("foreign", current), 79, "has given this term no secret", []string{"GET"}},
		"what is no lock":            {at("page", current), 78, "corrupt", []string{"GET"}},
	} {
		for _, command := range []string{"renew", "release", "hold"} {
			sent()
			r := b.run(command, c.handle)
			r.complains(t, c.code, c.says)
			require.NotContains(t, r.stderr, secret, "the secret is not logged")
			require.Equal(t, c.requests, sent(), "%s %s", command, name)
		}
	}
	for _, handle := range []string{current, other, again} {
		b.run("release", handle).succeeds(t)
	}
}

// If the handle cannot be printed, the lock is released again, or not taken at all.
func TestAcquireWithoutAnOutput(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	for _, redirect := range []string{">&-", ">/dev/null"} {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", `"$0" "$@" `+redirect, program,
			"acquire", b.url("locks/out"))
		cmd.Env = b.environ()
		finish(t, cmd).complains(t, 64, "the handle would be lost")
	}
	_, err := b.lock("locks/out").Inspect(t.Context())
	require.ErrorIs(t, err, leasehold.ErrNotExist)

	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer full.Close()
	read, write, err := os.Pipe()
	require.NoError(t, err)
	defer write.Close()
	require.NoError(t, read.Close())
	for _, out := range []*os.File{full, write} {
		cmd := b.command("acquire", b.url("locks/out"))
		cmd.Stdout = out
		finish(t, cmd).complains(t, 74, "cannot be written")
		rec, err := b.lock("locks/out").Inspect(t.Context())
		require.NoError(t, err)
		require.True(t, rec.Released())
	}
}

// Replies are lost, so that the program has to find out itself whether its writes have landed.
func TestStepsWithLostReplies(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	var puts atomic.Int64
	proxy := faultproxy.Start(t, b.server.Endpoint, func(r *http.Request) faultproxy.Fault {
		if r.Method == http.MethodPut && puts.Add(1)%2 == 1 {
			return faultproxy.Fault{Kind: faultproxy.DropReply}
		}
		return faultproxy.Fault{}
	})
	r := b.run("acquire", b.urlAt(proxy.URL(), "locks/replies"))
	r.succeeds(t)
	handle := strings.TrimSpace(r.out)
	puts.Store(0)
	b.run("renew", handle).succeeds(t)
	require.EqualValues(t, 1, puts.Load(), "what has landed is not written again")
	puts.Store(0)
	b.run("release", handle).succeeds(t)
	require.EqualValues(t, 2, puts.Load())
	rec, err := b.lock("locks/replies").Inspect(t.Context())
	require.NoError(t, err)
	require.True(t, rec.Released())
}

func TestAcquireInterrupted(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	lease, err := b.lock("locks/interrupted", leasehold.WithHolder("another")).Acquire(t.Context())
	require.NoError(t, err)
	defer lease.Release(t.Context())
	s := start(t, b.command("acquire", "--wait", "1h", b.url("locks/interrupted")))
	// or it ends earlier, before it has caught the signal: the exit code is the same to a shell
	time.Sleep(300 * time.Millisecond)
	require.NoError(t, s.Process.Signal(syscall.SIGINT))
	code := s.wait(t)
	require.True(t, code == 128+2 || code == -1, "%d", code)
}

// A renewal is a read and a write, and a release a read and two writes.
func TestRequestsOfSteps(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	endpoint, sent := b.counted()
	r := b.run("acquire", b.urlAt(endpoint, "locks/count"))
	r.succeeds(t)
	handle := strings.TrimSpace(r.out)
	for _, c := range []struct{ command, requests string }{
		{"renew", "GET PUT"}, {"release", "GET PUT PUT"}, {"release", "GET"},
	} {
		sent()
		b.run(c.command, handle).succeeds(t)
		require.Equal(t, c.requests, strings.Join(sent(), " "), c.command)
	}
}
