package main_test

import (
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/testkit/faultproxy"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
)

// replica is a candidate with --listen whose name is that of its place in a list.
type replica struct {
	*started
	at *faultproxy.Proxy // the way of the others to it
}

// elects starts a candidate that says its token when it leads.
func (b bucket) elects(t testing.TB, name string, flags ...string) replica {
	addr := testserver.FreeAddr(t)
	at := route(t, addr)
	args := append([]string{"elect", "-v", "--holder", name, "--listen", addr, "--advertise", at.URL()}, flags...)
	return replica{start(t, b.command(append(args, b.url("leaders/a"), "--", "sh", "-c",
		`trap 'echo ends; exit' TERM; echo $LEASEHOLD_TOKEN; sleep 600 & wait`)...)), at}
}

// says waits for the next line of its commands.
func (s *started) says(t testing.TB, want string) {
	t.Helper()
	line := make([]byte, len(want)+1)
	_, err := io.ReadFull(s.out, line)
	require.NoError(t, err, "%s", &s.stderr)
	require.Equal(t, want+"\n", string(line), "%s", &s.stderr)
}

// follow waits until so many candidates wait at r.
func (r replica) follow(t testing.TB, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		waiting := 0
		for _, req := range r.at.Requests() {
			if strings.HasSuffix(req.Path, "/.leasehold/wait") && req.Status == 0 {
				waiting++
			}
		}
		return waiting == n
	}, hangs, 5*time.Millisecond, "%d candidates do not wait", n)
}

func asksFor(t testing.TB, method, url string, header http.Header) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	require.NoError(t, err)
	req.Header = header
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(body)
}

// An operator moves the leader to the candidate that is named. Its command is told to end first.
func TestAHandOverToAName(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	admin, other := testserver.FreeAddr(t), testserver.FreeAddr(t)
	a := b.elects(t, "a", "--admin", admin)
	a.says(t, "1")
	candidates := []replica{
		b.elects(t, "b", "--admin", other), b.elects(t, "c"), b.elects(t, "d", "--priority", "7"),
	}
	a.follow(t, len(candidates))
	at := "http://" + admin + "/handover"

	for _, c := range []struct {
		method, url string
		header      http.Header
		status      int
		says        string
	}{
		{"GET", at + "?to=c", nil, http.StatusMethodNotAllowed, ""},
		{"POST", "http://" + admin + "/", nil, http.StatusNotFound, ""},
		{"POST", at + "?to=c", http.Header{"Sec-Fetch-Site": {"cross-site"}}, http.StatusForbidden, "a browser"},
		{"POST", at + "?to=c", http.Header{"Origin": {"http://" + admin}}, http.StatusForbidden, "a browser"},
		{"POST", at + "?to=x", nil, http.StatusNotFound, "no such candidate"},
		{"POST", at + "?to=", nil, http.StatusBadRequest, `"to" is empty`},
		{"POST", "http://" + other + "/handover?to=c", nil, http.StatusConflict, "does not lead"},
	} {
		status, body := asksFor(t, c.method, c.url, c.header)
		require.Equal(t, c.status, status, "%s %s: %s", c.method, c.url, body)
		require.Contains(t, body, c.says)
	}
	_, body := answer("http://" + admin + "/leader")
	require.NotContains(t, body, "leading", "it serves nothing else")

	status, body := asksFor(t, "POST", at+"?to=c", nil)
	require.Equal(t, http.StatusOK, status, "%s\n%s", body, &a.stderr)
	a.says(t, "ends")
	candidates[1].says(t, "2")
	lock, err := b.lock("leaders/a").Inspect(t.Context())
	require.NoError(t, err)
	require.Equal(t, "c", lock.Holder)
	require.EqualValues(t, 2, lock.Token)
	require.Contains(t, a.stderr.String(), "the lease ends: ending the command", "it is still valid then")

	candidates[1].follow(t, 3) // a, which rests first, too
	require.NoError(t, candidates[1].Process.Signal(syscall.SIGTERM))
	candidates[2].says(t, "3") // which has the highest priority
	require.Zero(t, candidates[1].wait(t))
}
