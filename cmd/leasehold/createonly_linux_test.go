package main_test

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/createonly"
)

// onlyCreates is a proxy that answers If-Match as servers do on which objects can only be created.
// It may change other requests, or answer them, and change answers.
func (b bucket) onlyCreates(request func(*http.Request) *http.Response, reply func(*http.Response)) string {
	return b.behind(func(r *http.Request) *http.Response {
		if r.Header.Get("If-Match") != "" {
			return s3Error(501, "NotImplemented")
		}
		if request != nil {
			return request(r)
		}
		return nil
	}, reply)
}

// eachThatOnlyCreates runs a test on each server, behind such a proxy.
func eachThatOnlyCreates(t *testing.T, test func(t *testing.T, b bucket, url func(key string) string)) {
	t.Parallel()
	for name, open := range map[string]func(testing.TB) bucket{"minio": newBucket, "versitygw": versityBucket} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := open(t)
			endpoint := b.onlyCreates(nil, nil)
			test(t, b, func(key string) string { return b.urlAt(endpoint, key) + "&createonly=1" })
		})
	}
}

// prints waits for output.
func (s *started) prints(t testing.TB, want string) {
	t.Helper()
	got := make(chan string, 1)
	go func() {
		text := make([]byte, len(want))
		n, _ := s.out.Read(text)
		got <- string(text[:n])
	}()
	select {
	case text := <-got:
		require.Equal(t, want, text, "%s", &s.stderr)
	case <-time.After(40 * time.Second):
		require.Fail(t, "it prints nothing", "%s", &s.stderr)
	}
}

// shows is what status shows of a lock.
func (b bucket) shows(url string) view {
	r := b.run("status", "-o", "json", url)
	r.succeeds(b.t)
	return views(b.t, r.out)[0]
}

// Two processes run a command under a lock. The one that leads is killed, and the lock is left to
// run out. Then two electors do, and the guard of the first one frees it.
func TestRunWhereObjectsAreOnlyCreated(t *testing.T) {
	eachThatOnlyCreates(t, func(t *testing.T, b bucket, url func(key string) string) {
		lock := url("locks/report")
		lead := func(args ...string) *started {
			args = append(args, lock, "--", "sh", "-c", "echo $LEASEHOLD_TOKEN; exec sleep 1000")
			return start(t, b.command(args...))
		}
		first := lead("run", "--ttl=3s", "--on-crash=keep")
		first.prints(t, "1\n")
		b.run("run", "--no-wait", lock, "--", "echo", "ran").complains(t, 75, "is held by")
		second := lead("run", "--ttl=3s")
		require.NoError(t, first.Process.Kill())
		last := b.shows(lock)
		require.EqualValues(t, 1, last.Token)
		second.prints(t, "2\n")
		require.GreaterOrEqual(t, b.shows(lock).AcquiredAt.Sub(last.RenewedAt), 3*time.Second)
		require.NoError(t, second.Process.Signal(syscall.SIGTERM))
		require.Equal(t, 143, second.wait(t))

		elector := lead("elect", "--ttl=1m")
		elector.prints(t, "3\n")
		candidate := lead("elect", "--ttl=1m")
		require.NoError(t, elector.Process.Kill())
		candidate.prints(t, "4\n") // within less than a TTL
		require.NoError(t, candidate.Process.Signal(syscall.SIGTERM))
		require.Equal(t, 0, candidate.wait(t))
		for _, key := range b.left() {
			require.True(t, strings.HasPrefix(key, "locks/report/.leasehold-versions/"), key)
		}
	})
}

// All other commands take such a URL, too.
func TestCommandsWhereObjectsAreOnlyCreated(t *testing.T) {
	eachThatOnlyCreates(t, func(t *testing.T, b bucket, url func(key string) string) {
		lock := url("locks/report")
		require.Equal(t, "never_taken", b.shows(lock).State)
		watch := start(t, b.command("watch", "--interval=100ms", lock))
		seen := bufio.NewReader(watch.out)
		first, err := seen.ReadString('\n')
		require.NoError(t, err)
		require.Contains(t, first, "never taken")
		defer time.AfterFunc(10*time.Minute, func() { _ = watch.Process.Kill() }).Stop()
		tells := func(what string) {
			for line := ""; !strings.Contains(line, what); {
				line, err = seen.ReadString('\n')
				require.NoError(t, err, "before: %s", what)
			}
		}
		r := b.run("acquire", "--ttl=20s", "--holder=alice", lock)
		r.succeeds(t)
		handle := strings.TrimSpace(r.out)
		for range 3 * createonly.Keep { // each is a process, which ends its deletes
			b.run("renew", handle).succeeds(t)
		}
		require.LessOrEqual(t, len(b.left()), 2*createonly.Keep+1)
		tells("token 1 held by alice")
		hold := start(t, b.command("hold", handle))
		held := b.shows(lock)
		require.Equal(t, "held by alice 1", fmt.Sprint(held.State, " by ", held.Holder, " ", held.Token))
		r = b.run("list", "-o", "json", url("locks/"))
		r.succeeds(t)
		listed := views(t, r.out)
		require.Len(t, listed, 1, "a lock has many versions: %s", r.out)
		require.Equal(t, "locks/report", listed[0].Key)
		require.Equal(t, "alice", b.shows(listed[0].URL).Holder)
		r = b.run("list", "-o", "json", url("locks/report/"))
		r.succeeds(t)
		require.Empty(t, r.out, "it is not below itself")
		b.run("release", handle).succeeds(t)
		require.Equal(t, 0, hold.wait(t), "%s", &hold.stderr)
		b.run("renew", handle).complains(t, 79, "released")

		b.run("acquire", "--ttl=10m", "--holder=bob", lock).succeeds(t)
		tells("token 2 held by bob")
		b.run("break", "--token=1", lock).complains(t, 64, "token")
		b.run("break", "--token=2", lock).succeeds(t)
		require.Equal(t, "released", b.shows(lock).State)
		b.run("bench", "--rounds=2", "--ttl=2s", lock).succeeds(t)
		r = b.run("list", "-o", "json", url("locks/"))
		r.succeeds(t)
		require.Len(t, views(t, r.out), 1, "that of the bench is deleted: %s", r.out)
		require.NoError(t, watch.Process.Signal(syscall.SIGINT))
		watch.wait(t)
	})
}

// What cannot be a lock is told, and neither overwritten nor deleted.
func TestBadInputWhereObjectsAreOnlyCreated(t *testing.T) {
	eachThatOnlyCreates(t, func(t *testing.T, b bucket, url func(key string) string) {
		const versions = "/.leasehold-versions/"
		put := func(name, body string) {
			_, err := b.server.Client().PutObject(t.Context(), &s3.PutObjectInput{
				Bucket: &b.name, Key: &name, Body: strings.NewReader(body),
			})
			require.NoError(t, err)
		}
		taken := func(key string) string {
			b.run("run", url(key), "--", "true").succeeds(t)
			return url(key)
		}
		gap := taken("gap")
		second := "gap" + versions + ".leasehold-9999999999999998"
		_, err := b.server.Client().DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: &b.name, Key: &second})
		require.NoError(t, err)
		foreign := taken("foreign")
		put("foreign"+versions+"readme", "mine")
		number := taken("number")
		put("number"+versions+".leasehold-12", "mine")
		corrupt := url("corrupt")
		put("corrupt"+versions+".leasehold-9999999999999998", `{"expires_at":-1}`)
		before := b.left()
		for lock, says := range map[string]string{
			gap: "is missing", foreign: `readme" is not a version of a lock`, number: "is not a version of a lock",
		} {
			for _, args := range [][]string{
				{"run", lock, "--", "true"}, {"elect", lock, "--", "true"}, {"acquire", lock}, {"status", lock},
				{"watch", lock}, {"break", "--token=1", lock},
			} {
				b.run(args...).complains(t, 78, says)
			}
		}
		b.run("acquire", "--no-wait", corrupt).complains(t, 78, "corrupt")
		r := b.run("list", "-o", "json", url(""))
		r.succeeds(t)
		listed := views(t, r.out)
		require.Len(t, listed, 6, "four locks, and two foreign objects")
		for _, v := range listed {
			require.Equal(t, "corrupt", v.State, v.Key)
		}
		require.Equal(t, before, b.left())
		b.run("break", "--token=7", corrupt).succeeds(t)
		require.EqualValues(t, 7, b.shows(corrupt).Token)
	})
}

func TestWithoutTheRightToListWhereObjectsAreOnlyCreated(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	url := b.urlAt(b.onlyCreates(func(r *http.Request) *http.Response {
		if r.URL.Query().Has("list-type") {
			return s3Error(403, "AccessDenied")
		}
		return nil
	}, nil), "locks/report") + "&createonly=1"
	for _, args := range [][]string{{"run", url, "--", "true"}, {"acquire", url}, {"status", url}, {"watch", url}} {
		b.run(args...).complains(t, 77, "s3:ListBucket")
	}
	d := doctor(t, 77, b.command("doctor", url))
	require.Contains(t, d.checks["list"].Advice, "allow s3:ListBucket on arn:aws:s3:::"+b.name)
	require.Empty(t, b.left())
}

func TestDoctorWhereObjectsAreOnlyCreated(t *testing.T) {
	eachThatOnlyCreates(t, func(t *testing.T, b bucket, url func(key string) string) {
		plain := strings.TrimSuffix(url("locks/report"), "&createonly=1")
		for range 2 { // the first doctor cannot remove its object
			d := doctor(t, 78, b.command("doctor", plain))
			require.Equal(t, "failed", d.checks["conditions"].Result)
			require.Contains(t, d.checks["conditions"].Advice, "add createonly=1 to the parameters of the URL")
		}
		d := doctor(t, 0, b.command("doctor", url("locks/report")))
		for _, name := range []string{"list", "get", "put", "delete", "conditions"} {
			require.Equal(t, "ok", d.checks[name].Result, "%+v", d.checks[name])
		}
	})
}

// Conditions that are ignored, and lists that are old, are no place for locks.
func TestDoctorOnServersThatDoNotEvenCreate(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	ignores := b.urlAt(b.onlyCreates(func(r *http.Request) *http.Response {
		r.Header.Del("If-None-Match")
		return nil
	}, nil), "locks/report")
	for _, url := range []string{ignores, ignores + "&createonly=1"} {
		d := doctor(t, 78, b.command("doctor", url))
		require.Equal(t, "failed", d.checks["conditions"].Result)
		require.Contains(t, d.checks["conditions"].Advice, "two processes may lead")
	}
	d := doctor(t, 78, b.command("doctor", b.urlAt(b.onlyCreates(nil, oldLists()), "locks/other")+"&createonly=1"))
	require.Equal(t, "failed", d.checks["conditions"].Result)
	require.Contains(t, d.checks["conditions"].Seen, "LIST does not show version")
	require.Contains(t, d.checks["conditions"].Advice, "whose lists show at once what was created")
}

// oldLists makes each list show what was there at the one before.
func oldLists() func(*http.Response) {
	var mu sync.Mutex
	last := make(map[string]string)
	return func(r *http.Response) {
		if !r.Request.URL.Query().Has("list-type") || r.StatusCode != http.StatusOK {
			return
		}
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		now, asked := string(body), r.Request.URL.RequestURI()
		old := cmp.Or(last[asked], now)
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(old)), int64(len(old))
		r.Header.Set("Content-Length", strconv.Itoa(len(old)))
		last[asked] = now
	}
}
