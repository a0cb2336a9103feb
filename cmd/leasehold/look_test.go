package main_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/url"
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
	require.Equal(t, "released", next().State)
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
